"""``workflow history``: every attempt of a workflow's tasks, undo jobs and hooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli import params
from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.files import write_result
from ai4s.jobq.cli.render import brief, print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import cut, put, put_json

if TYPE_CHECKING:
    from typing import TextIO

    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.history import Attempt, WorkflowHistory

ERROR_PREVIEW = 60  # characters
_TITLES = ("Task", "Attempt", "Outcome", "Wait", "Run", "Worker", "Cause")


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option("--task", "task_name", metavar="TASK", type=params.task_name, help="Only of this task, undo job or hook.")
@click.option("--svg", "picture", type=click.Path(dir_okay=False), metavar="FILE", help="Draw it into this file.")
@as_json_option
@click.pass_obj
def history(
    invocation: Invocation, workflow_id: str, task_name: str | None, picture: str | None, as_json: bool
) -> None:
    """Show every attempt: how long it waited and ran, where, and how it ended.

    Those of undo jobs (undo:TASK) and hooks (hook:on_end) come after those of tasks. Of each the last 20 are kept.
    """

    async def read(client: WorkflowClient) -> WorkflowHistory:
        from ai4s.jobq.views.history import read_history

        return await read_history(client.store, workflow_id, job_name=task_name)

    found = invocation.ask(read)
    if picture is not None:
        from ai4s.jobq.drawing.gantt import gantt_svg

        write_result(gantt_svg(found), picture)
    if as_json:
        put_json(found.to_json())
    elif picture is None:
        _print(found)


def _print(found: WorkflowHistory) -> None:
    if found.attempts:
        print_lines(_lines(found, sys.stdout))
    else:
        put("Nothing was started yet." if found.ended_at is None else "Nothing was started.")


def _lines(found: WorkflowHistory, stream: TextIO) -> Iterator[str]:
    from ai4s.jobq.drawing.gantt import duration_text

    def length(seconds: float | None) -> str:
        return "—" if seconds is None else duration_text(seconds)

    rows = [
        (
            attempt.task,
            str(attempt.attempt),
            str(attempt.outcome),
            length(attempt.wait_s),
            length(attempt.run_s),
            attempt.worker or "—",
            _cause(attempt),
        )
        for attempt in found.attempts
    ]
    return table(_TITLES, rows, stream)


def _cause(attempt: Attempt) -> str:
    if attempt.cause is None:
        return "—"
    return cut(brief(attempt.error) if attempt.error else attempt.cause, ERROR_PREVIEW, mark="...")
