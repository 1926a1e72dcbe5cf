"""Types of option values, and options that are made from the fields of a settings class."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def duration(text: str) -> float:
    """A whole number and a unit, such as 90s, 10m, 12h, 7d or 2w, in seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r}. Expected format: <number>[smhdw], such as 90s or 10m.")
    return float(int(found[1]) * _SECONDS[found[2]])


def key_value(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair. The value may be a secret: errors do not repeat it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter("Expected format: <key>=<value>.")
    return key, value


def settings_options(kind: type[Any], *, env_prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One option per field of a settings class: ``--batch-size``, read from ``<env_prefix>BATCH_SIZE`` too.

    Values not given arrive as None, so that a config file may still say them.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for spec in reversed(fields(kind)):
            command = _option(spec, env_prefix)(command)
        return command

    return decorate


def _option(spec: Field[Any], env_prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{spec.name.replace('_', '-')}",
        spec.name,
        type=type(spec.default),
        default=None,
        envvar=f"{env_prefix}{spec.name.upper()}",
        show_envvar=True,
        help=f"{spec.metadata['help']}  [default: {spec.default:g}]",
    )
