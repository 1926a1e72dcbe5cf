"""All crash points: ``python -m tests.crash [--backend local|azurite] [--role NAME]``, with a line per role."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tests.crash.enumeration import ROLES, Backend, Extent, enumerate_role, on_azurite
from tests.support.azurite import Azurite
from tests.support.fork_server import ForkServer


@contextlib.contextmanager
def opened(backend: str) -> Iterator[Backend]:
    """A backend by its name; Azurite is started for it."""
    if backend == "local":
        yield Backend("local", {})
        return
    with Azurite() as azurite:
        yield on_azurite(azurite.ports)


@click.command()
@click.option("--backend", type=click.Choice(["local", "azurite"]), default="local", show_default=True)
@click.option("--role", "chosen", type=click.Choice(list(ROLES)), multiple=True, help="Only this; may be repeated.")
@click.option("--first", is_flag=True, help="Only after the first call of each kind.")
def main(backend: str, chosen: tuple[str, ...], first: bool) -> None:
    """Kill each role before and after each kind of call."""
    extent = Extent.FIRST if first else Extent.EVERY
    deaths = 0
    with tempfile.TemporaryDirectory() as folder, opened(backend) as place, ForkServer() as forks:
        for role in chosen or ROLES:
            result = enumerate_role(role, place, forks, Path(folder), extent)
            deaths += len(result.died)
            print(
                f"{role}: killed at {len(result.died)} points of {len(result.kinds)} kinds of calls, "
                f"{len(result.not_reached)} not reached again, {result.seconds:.0f} s, losses 0",
                flush=True,
            )
            for death in result.not_reached:
                print(f"    not reached: {death}")
    print(f"{deaths} deaths on {backend}, losses 0")


if __name__ == "__main__":
    main()
