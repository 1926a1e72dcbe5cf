"""A workflow on a terminal, redrawn in place as it goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ai4s.jobq.cli.render import JobRow, job_lines, job_rows, layer_lines, progress
from ai4s.jobq.cli.terminal import fitted, visible
from ai4s.jobq.engine.states import TaskState

if TYPE_CHECKING:
    from ai4s.jobq.views.layers import LayeredStatus
    from ai4s.jobq.views.status import WorkflowStatus

LINES_AROUND = 6  # of a screen, used by what stands above and below the tasks
_FIRST_SHOWN = (TaskState.RUNNING, TaskState.FAILED, TaskState.READY, TaskState.PENDING)


@contextmanager
def open_screen(stream: TextIO) -> Iterator[Callable[[WorkflowStatus], None]]:
    """What draws a status over the one before. The cursor is back at the end, however it ends."""
    with _live(stream) as draw:
        yield lambda status: draw(_screen(status, stream))


@contextmanager
def open_layer_screen(stream: TextIO) -> Iterator[Callable[[LayeredStatus], None]]:
    """As ``open_screen``, for a workflow by layers."""
    with _live(stream) as draw:
        yield lambda found: draw(_layer_screen(found, stream))


@contextmanager
def _live(stream: TextIO) -> Iterator[Callable[[Iterator[str]], None]]:
    """What draws lines over those before."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda lines: live.update(Text.from_ansi("\n".join(lines)), refresh=True)


def _layer_screen(found: LayeredStatus, stream: TextIO) -> Iterator[str]:
    """What fits a screen: the workflow, a bar, and the layers that are not over first."""
    size = shutil.get_terminal_size()
    yield from _head(found.status, size.columns, stream)
    room = max(size.lines - LINES_AROUND, 1)
    shown = sorted(found.layers, key=lambda layer: layer.settled == layer.total)[:room]
    yield from layer_lines(shown, stream)
    if len(shown) < len(found.layers):
        yield f"… {len(found.layers) - len(shown)} more"


def _screen(status: WorkflowStatus, stream: TextIO) -> Iterator[str]:
    """What fits a screen: the workflow, a bar, and the tasks, undo jobs and hooks that matter most now."""
    size = shutil.get_terminal_size()
    rows = list(job_rows(list((status.tasks or {}).values()), status.hooks or {}))
    yield from _head(status, size.columns, stream)
    room = max(size.lines - LINES_AROUND, 1)
    shown = rows if len(rows) <= room else sorted(rows, key=_urgency)[:room]
    if shown:
        yield from job_lines(shown, stream)
    if len(shown) < len(rows):
        yield f"… {len(rows) - len(shown)} more"


def _head(status: WorkflowStatus, columns: int, stream: TextIO) -> Iterator[str]:
    yield f"{visible(status.name)}  {status.workflow_id}  {status.status}"
    yield progress(status)
    yield _bar(status, columns - 2, stream)


def _bar(status: WorkflowStatus, width: int, stream: TextIO) -> str:
    settled = status.total - status.pending - status.running
    block = "█" if fitted("█", stream) == "█" else "#"
    return block * (max(width, 10) * settled // max(status.total, 1))


def _urgency(row: JobRow) -> int:
    return _FIRST_SHOWN.index(row.state) if row.state in _FIRST_SHOWN else len(_FIRST_SHOWN)
