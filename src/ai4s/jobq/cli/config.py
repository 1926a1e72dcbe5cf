"""``workflow config show``: what is configured, and where each value was said."""

from __future__ import annotations

import os
from typing import Any

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.render import config_lines, print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put_json, say
from ai4s.jobq.config_file import load_config
from ai4s.jobq.settings import NotConfiguredError


@click.group()
def config() -> None:
    """Look at the configuration."""


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
