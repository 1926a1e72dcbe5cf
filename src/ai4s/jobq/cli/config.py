"""``workflow config``: what is configured and where each value was said, and a file to begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.render import config_lines, print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put, put_json, say
from ai4s.jobq.config_file import load_config
from ai4s.jobq.settings import NotConfiguredError


@click.group()
def config() -> None:
    """Look at the configuration, or begin a file of it."""


@config.command()
@as_json_option
@click.pass_obj
def show(invocation: Invocation, as_json: bool) -> None:
    """Print the target and where each part of it was said."""
    try:
        target = invocation.target()
    except NotConfiguredError as exc:
        target = None
        say(f"Note: {exc}")
    file = load_config(invocation.config, os.environ)
    values: dict[str, Any] = {
        "storage": target and target.account,
        "prefix": target and target.prefix,
        "queues": target and target.queue_account,
        "blobs": target and f"{target.blob_account}/{target.container}",
        "sources": dict(target.sources) if target is not None else {},
        "config_path": None if file.path is None else str(file.path),
        "local_dir": str(target.local_dir) if target is not None and target.is_local else None,
        "coordinator": dict(file.coordinator),
    }
    if as_json:
        put_json(values)
    else:
        print_lines(config_lines(target, values))


@config.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=Path("jobq.yaml"))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(path: Path, force: bool) -> None:
    """Write a config file with everything in it as comments.

    PATH is jobq.yaml unless you say otherwise.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _template())
    except FileExistsError as exc:
        raise click.UsageError(f"{path} is there already. Add --force to write over it.") from exc
    except OSError as exc:
        raise click.UsageError(f"{path} cannot be written: {exc.strerror}.") from exc
    put(str(path))


def _template() -> Iterator[str]:
    """A config file in which every value is commented out and says what it would be."""
    from ai4s.jobq.coordinator.settings import CoordinatorSettings

    yield "# Settings of ai4s-jobq workflow. Options and environment variables win over this file."
    yield ""
    yield "connection:"
    yield "  # storage: myaccount        # storage account, 'local' for a directory of this machine"
    yield "  # prefix: MyProject         # a letter, then letters and digits"
    yield "  # queues: otheraccount      # where the queues are, if elsewhere"
    yield "  # blobs: otheraccount/box   # account/container of logs and large outputs, if elsewhere"
    yield ""
    yield "coordinator:"
    for spec in fields(CoordinatorSettings):
        default = spec.default if isinstance(spec.default, str) else f"{spec.default:g}"
        yield f"  # {spec.name}: {default}".ljust(30) + f"# {spec.metadata['help']}"
