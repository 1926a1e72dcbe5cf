"""What commands print with ``--json``, held against ``schemas/``.

The published schemas are open: a later release may print more. Here they are closed first, so that a field which no schema
describes fails the test that made a command print it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema

from ai4s.jobq.cli.main import cli

FOLDER = Path(__file__).parents[2] / "schemas"
DEFINITION = "workflow-definition"  # the one schema that is of what users write

_COMMAND = re.compile(r"`ai4s-jobq (?:ACCOUNT/QUEUE )?([^`]*) --json`")
_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).utcoffset() is not None


def json_commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands that have ``--json``, as they are typed: ``workflow status``."""
    if any("--json" in param.opts for param in command.params):
        yield " ".join(path)
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from json_commands(child, (*path, name))


@cache
def published() -> Mapping[str, Any]:
    """The schemas of what commands print, by the names of their files."""
    texts = {path.name.removesuffix(".schema.json"): path.read_text("utf-8") for path in FOLDER.glob("*.schema.json")}
    return {name: json.loads(text) for name, text in sorted(texts.items()) if name != DEFINITION}


def commands_of(schema: Mapping[str, Any]) -> list[str]:
    """The commands that a schema is of, by its title."""
    return _COMMAND.findall(schema["title"])


def check_printed(args: Sequence[str], printed: str) -> None:
    """Raise unless what a command printed with ``--json`` is one document, and as the schema of the command promises."""
    if "--json" in args[: args.index("--") if "--" in args else None]:
        check_schema(_schema_of()[_command_of(args)], json.loads(printed, parse_constant=_refuse))


def check_schema(name: str, value: Any) -> None:
    """Raise unless the value is as the published schema says, and holds nothing that it does not describe."""
    _validator(name).validate(value)


def closed(schema: Any) -> Any:
    """The schema, forbidding all fields that it does not describe."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    within = {
        key: {name: closed(field) for name, field in value.items()} if key in ("properties", "$defs") else closed(value)
        for key, value in schema.items()
        if key not in ("if", "then", "else")  # they say more about fields that are described elsewhere
    }
    if "properties" in schema:
        within.setdefault("additionalProperties", False)
    return {**schema, **within}


@cache
def _schema_of() -> Mapping[str, str]:
    """The name of the schema by command."""
    return {command: name for name, schema in published().items() for command in commands_of(schema)}


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(closed(published()[name]), format_checker=_FORMATS)


def _command_of(args: Sequence[str]) -> str:
    """The command that these arguments call."""
    command: click.Command = cli
    words: list[str] = []
    for arg in args:
        if isinstance(command, click.Group) and arg in command.commands:
            command = command.commands[arg]
            words.append(arg)
    return " ".join(words)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
