"""``workflow graph``: what depends on what, as text or as a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.files import write_result
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import visible
from ai4s.jobq.errors import UsageError

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.graph import TaskGraph

FORMATS = ("text", "mermaid", "dot", "svg")
_SUFFIXES = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg"}
_DEFINITIONS = (".yaml", ".yml", ".json")


@click.command()
@click.argument("source", metavar="FILE|ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="What to make.  [default: as the name of --output says, else text]",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to this file.  [default: stdout]")
@click.pass_obj
def graph(invocation: Invocation, source: str, form: str | None, output: str | None) -> None:
    """Draw the graph of a definition file, or of a workflow with the states of its tasks.

    Hooks come last. The undo jobs of a workflow are drawn once they are wanted; until then tasks that have one are marked.
    More than 200 tasks are drawn by layers: names without their numbers, or tasks at the same depth.
    """
    form = form or _SUFFIXES.get(Path(output or "").suffix.lower(), "text")
    found = _of_file(source) if _is_file(source) else invocation.ask(lambda client: _of_run(client, source))
    write_result(_DRAWN[form](found), output)


def _is_file(source: str) -> bool:
    """Whether a file is meant, and not the id of a workflow. Raises ``UsageError`` when it is not there."""
    if Path(source).is_file():
        return True
    if "/" in source or source.lower().endswith(_DEFINITIONS):
        raise UsageError(f"There is no file {source!r}. Give a definition file, or the id of a workflow.")
    return False


def _of_file(source: str) -> TaskGraph:
    from ai4s.jobq.definition.load import load_file
    from ai4s.jobq.views.graph import graph_of

    return graph_of(load_file(source))


async def _of_run(client: WorkflowClient, workflow_id: str) -> TaskGraph:
    from ai4s.jobq.views.graph import graph_of
    from ai4s.jobq.views.reading import load_existing

    run = (await load_existing(client.store, workflow_id)).run
    return graph_of(run.graph.definition, run)


def _text(found: TaskGraph) -> str:
    from ai4s.jobq.drawing.graph_text import UNDOABLE_MARK, layer_rows

    rows: list[tuple[str, ...]] = list(layer_rows(found))
    titles: tuple[str, ...] = ("Layer", "Task", "Status", "Depends On")
    if not found.counts:
        rows, titles = [(*row[:2], row[3]) for row in rows], (*titles[:2], titles[3])
    groups = f" in {found.groups} groups" if found.is_rolled_up else ""
    tasks = f"{found.tasks:,} task{'s' * (found.tasks != 1)}{groups}"
    head = f"{visible(found.name)}: {tasks}, {found.layers} layer{'s' * (found.layers != 1)}"
    undoable = any(node.undoable for node in found.nodes)
    foot = ("", f"{UNDOABLE_MARK} has an undo command") if undoable else ()
    return "\n".join((head, "", *table(titles, rows, sys.stdout), *foot)) + "\n"


def _mermaid(found: TaskGraph) -> str:
    from ai4s.jobq.drawing.graph_text import mermaid

    return "\n".join(mermaid(found)) + "\n"


def _dot(found: TaskGraph) -> str:
    from ai4s.jobq.drawing.graph_text import dot

    return "\n".join(dot(found)) + "\n"


def _svg(found: TaskGraph) -> str:
    from ai4s.jobq.drawing.graph_svg import graph_svg

    return graph_svg(found)


_DRAWN: dict[str, Callable[[TaskGraph], str]] = {"text": _text, "mermaid": _mermaid, "dot": _dot, "svg": _svg}
