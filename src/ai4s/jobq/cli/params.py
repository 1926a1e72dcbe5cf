"""Types of option values, and options that are made from the fields of a settings class."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import click

from ai4s.jobq.durations import duration_s
from ai4s.jobq.errors import UsageError


def duration(text: str) -> float:
    """A whole number and a unit, such as 90s, 10m, 12h, 7d or 2w, in seconds."""
    try:
        return duration_s(text)
    except UsageError as exc:
        raise click.BadParameter(str(exc)) from exc


def text(given: str) -> str:
    """Text as its user sees it: UTF-8 wherever it can be, whatever the locale takes it for."""
    try:
        return os.fsencode(given).decode("utf-8")
    except UnicodeError:
        return given


def task_name(given: str) -> str:
    """The name of a task, in the form in which names are stored."""
    return unicodedata.normalize("NFC", text(given))


def key_value(given: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair. The value may be a secret: errors do not repeat it."""
    key, equals, value = text(given).partition("=")
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
        help=f"{spec.metadata['help']}  [default: {_shown(spec.default)}]",
    )


def _shown(default: Any) -> str:
    return default if isinstance(default, str) else f"{default:g}"
