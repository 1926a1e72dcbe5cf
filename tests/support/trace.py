"""Proof from the outside: each task of a definition writes when it started and ended, and a checker reads it.

The trace is an ordinary file that the commands append to. It knows nothing of our stores, so it cannot share their mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = 'printf "%s {mark} %s\\n" "${{EPOCHREALTIME:-$(date +%s.%N)}}" "$JOBQ_WORKFLOW_TASK" >> "$RUNLOG"'


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a task as its command saw it; ``ended_at`` is None when it never got to its last line."""

    started_at: float
    ended_at: float | None


def traced(definition: dict[str, Any], trace: Path) -> dict[str, Any]:
    """The same definition, each command between two lines that append to ``trace``."""
    return {**definition, "tasks": [_traced_task(task, trace) for task in definition["tasks"]]}


def _traced_task(task: dict[str, Any], trace: Path) -> dict[str, Any]:
    kwargs = task["kwargs"]
    env = {**kwargs.get("env", {}), "RUNLOG": str(trace), "TRACE": str(trace.with_suffix(".own"))}
    cmd = "\n".join([_MARK.format(mark="start"), kwargs["cmd"], "code=$?", _MARK.format(mark="end"), "exit $code"])
    return {**task, "kwargs": {**kwargs, "cmd": cmd, "env": env}}


def read_trace(trace: Path) -> dict[str, list[Execution]]:
    """All executions by task name, in order of their start."""
    starts: dict[str, list[float]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)
    for line in trace.read_text().splitlines():
        time, mark, name = line.split(" ", 2)
        (starts if mark == "start" else ends)[name].append(float(time))
    return {
        name: [
            Execution(start, ends[name][index] if index < len(ends[name]) else None)
            for index, start in enumerate(times)
        ]
        for name, times in starts.items()
    }


def check_every_task_ran_once_after_its_parents(definition: dict[str, Any], trace: Path) -> None:
    """Fail unless each task has exactly one execution, which began after all its parents' had ended."""
    executions = read_trace(trace)
    names = [task["name"] for task in definition["tasks"]]
    assert sorted(executions) == sorted(names), f"did not run: {sorted(set(names) - set(executions))[:5]}"
    more_than_once = [name for name, runs in executions.items() if len(runs) != 1]
    assert not more_than_once, f"ran more than once: {more_than_once[:5]}"
    for task in definition["tasks"]:
        started_at = executions[task["name"]][0].started_at
        for parent in task.get("depends_on", ()):
            ended_at = executions[parent][0].ended_at
            assert ended_at is not None, f"{parent} did not end"
            assert ended_at <= started_at, f"{task['name']} began before {parent} had ended"
