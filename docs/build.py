"""Rewrites the generated parts of the documentation: run by ``make docs``, compared by the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from ai4s.jobq.engine.diagram import task_diagram, workflow_diagram

DOCS = Path(__file__).parent
WIDTH = 100  # of the help texts on the page

CLI_HEAD = """# Command line

Generated from the program's own help by `make docs`; `ai4s-jobq COMMAND --help` says the same.
"""


def states() -> str:
    """``states.md`` with its two diagrams drawn anew."""
    page = (DOCS / "states.md").read_text(encoding="utf-8")
    diagrams = iter((task_diagram(), workflow_diagram()))
    return re.sub(r"```mermaid\n.*?\n```", lambda _: f"```mermaid\n{next(diagrams)}\n```", page, flags=re.DOTALL)


def command_line() -> str:
    """``cli.md``: the help of every command."""
    from ai4s.jobq.cli.main import cli

    return "\n".join([CLI_HEAD, *_sections(cli, click.Context(cli, info_name="ai4s-jobq", **cli.context_settings))])


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## `{context.command_path}`\n\n```text\n{_help(command, context)}\n```\n"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _sections(
                    child, click.Context(child, info_name=name, parent=context, **child.context_settings)
                )


def _help(command: click.Command, context: click.Context) -> str:
    context.terminal_width = context.max_content_width = WIDTH
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


if __name__ == "__main__":
    (DOCS / "states.md").write_text(states(), encoding="utf-8")
    (DOCS / "cli.md").write_text(command_line(), encoding="utf-8")
