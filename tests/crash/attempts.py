"""What ran, told by the commands themselves: each execution writes its workflow, task and attempt at its start and end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = (
    'printf "%s {mark} %s %s %s\\n" "$(date +%s.%N)" "$JOBQ_WORKFLOW_ID" "$JOBQ_WORKFLOW_TASK" "$JOBQ_WORKFLOW_ATTEMPT"'
    ' >> "$ATTEMPTS"'
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file. ``mark`` is ``start`` or ``end``; an execution that was killed has no ``end``."""

    at: float
    mark: str
    workflow_id: str
    task: str
    attempt: int


def written(cmd: str) -> str:
    """A command that writes lines before and after; it needs ``ATTEMPTS`` in its environment."""
    return "\n".join([_MARK.format(mark="start"), cmd, "code=$?", _MARK.format(mark="end"), "exit $code"])


def with_attempts(definition: dict[str, Any]) -> dict[str, Any]:
    """The same definition with ``written`` commands."""
    tasks = [
        {**task, "kwargs": {**task["kwargs"], "cmd": written(task["kwargs"]["cmd"])}} for task in definition["tasks"]
    ]
    return {**definition, "tasks": tasks}


def read_lines(path: Path) -> list[Line]:
    """All complete lines in the order in which they were written."""
    text = path.read_text() if path.exists() else ""
    lines = []
    for line in text.splitlines():
        at, mark, workflow_id, task, attempt = line.split(" ")
        lines.append(Line(float(at), mark, workflow_id, task, int(attempt)))
    return lines


def starts(path: Path, workflow_id: str) -> Counter[tuple[str, int]]:
    """How often each attempt of a workflow's tasks was begun."""
    lines = read_lines(path)
    return Counter(
        (line.task, line.attempt) for line in lines if (line.workflow_id, line.mark) == (workflow_id, "start")
    )
