"""``python -m tests.chaos [--minutes 5] [--seed N] [--backend azurite|local]``: bad weather, and nothing may be lost."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.run import Size, run_chaos


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True, help="For how long things go wrong.")
@click.option("--seed", type=int, default=None, help="What goes wrong, and what is submitted.  [default: random]")
@click.option("--backend", type=click.Choice(["azurite", "local"]), default="azurite", show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="An empty folder for logs, to be kept.")
def main(minutes: float, seed: int | None, backend: str, keep: Path | None) -> None:
    """Kill, freeze, cut off and restart everything at random while workflows run; then audit what came of them."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"seed {seed}: python -m tests.chaos --minutes {minutes:g} --seed {seed} --backend {backend}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = run_chaos(
            backend,
            seed=seed,
            seconds=minutes * 60,
            size=Size(),
            folder=folder,
            say=lambda line: print(line, flush=True),
        )
    click.echo(report.table())
    sys.exit(1 if report.findings.losses else 0)


if __name__ == "__main__":
    main()
