"""``workflow logs``: what a task, an undo job or a hook printed."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli import params
from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.printed_text import output_of
from ai4s.jobq.cli.terminal import say

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.log_reading import PrintedLog


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.argument("task_name", metavar="TASK", type=params.task_name)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt.  [default: the last one]")
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt is over.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.  [default: all]")
@click.pass_obj
def logs(
    invocation: Invocation, workflow_id: str, task_name: str, attempt: int | None, follow: bool, tail: int | None
) -> None:
    """Show what a task printed, on stdout and stderr.

    TASK may be an undo job (undo:TASK) or a hook (hook:on_end) as well.

    Of each attempt the first 4 MiB and about the last 5 MiB are kept; a mark stands for what is not. Into a pipe it goes as
    it was printed, and a terminal gets no control characters.
    """

    async def show(client: WorkflowClient) -> None:
        from ai4s.jobq.views.log_reading import find_printed

        printed = await find_printed(client.store, workflow_id, task_name, attempt=attempt)
        if not await _show(printed, follow=follow, tail=tail):
            say(await _nothing(printed, workflow_id, task_name))

    invocation.ask(show)


async def _show(printed: PrintedLog, *, follow: bool, tail: int | None) -> bool:
    """Print what there is, and what comes; whether there was anything."""
    output = output_of(sys.stdout)
    shown = False
    last = None if tail is None else LastLines(tail)
    async for piece in printed.more():
        shown = True
        text = mark(piece.missing) + piece.data
        output.write(text) if last is None else last.add(text)
    if last is not None:
        output.write(last.text())
    if follow:
        async for piece in printed.follow():
            shown = True
            output.write(mark(piece.missing) + piece.data)
    output.close()
    return shown


class LastLines:
    """The last lines of what is added."""

    def __init__(self, most: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=most)
        self._open = b""

    def add(self, data: bytes) -> None:
        *lines, self._open = (self._open + data).split(b"\n")
        self._lines.extend(line + b"\n" for line in lines)

    def text(self) -> bytes:
        if self._open and self._lines.maxlen:
            self._lines.append(self._open)
        return b"".join(self._lines)


def mark(missing: int) -> bytes:
    """What stands for so many bytes that were printed and not kept."""
    return b"\n[... %d bytes were not kept ...]\n" % missing if missing else b""


async def _nothing(printed: PrintedLog, workflow_id: str, task_name: str) -> str:
    """Why there is nothing to show."""
    if printed.attempt == 0:
        return f"{task_name!r} was never started, so there is no output."
    earlier = await printed.earlier()
    hint = f" Of attempt {earlier[0]} there is some: add --attempt {earlier[0]}" if earlier else ""
    return f"Nothing was captured of attempt {printed.attempt} of {task_name!r} of {workflow_id}.{hint}"
