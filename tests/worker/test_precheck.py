"""Whether a task may start, and whether it may go on, as tables of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai4s.jobq.engine.states import Stop, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.records import Header, TaskRecord
from ai4s.jobq.store.wire import TaskMessage
from ai4s.jobq.worker.precheck import Verdict, by_header, is_past, must_stop

NOW = SystemClock().now()
HEADER = Header(workflow_id="w", name="n", run="r1", life=2, created_at=NOW, updated_at=NOW, task_count=1, chunks=1)
TASK = TaskMessage(store="a/B", workflow_id="w", run="r1", life=2, row="t000000", task_name="t", attempt=3)


@pytest.mark.parametrize(
    ("header", "verdict", "stops"),
    [
        (HEADER, Verdict.RUN, False),
        (None, Verdict.FORGET, True),
        (replace(HEADER, run="r2"), Verdict.FORGET, True),
        (replace(HEADER, life=3), Verdict.FORGET, True),
        (replace(HEADER, life=1), Verdict.LOOK_AGAIN, False),
        (replace(HEADER, life=1, stop=Stop.HALT), Verdict.LOOK_AGAIN, False),
        (replace(HEADER, stop=Stop.DROP), Verdict.CANCELLED, False),
        (replace(HEADER, stop=Stop.HALT), Verdict.CANCELLED, True),
    ],
)
def test_the_header_decides_what_starts_and_what_goes_on(header: Header | None, verdict: Verdict, stops: bool) -> None:
    assert by_header(TASK, header) is verdict
    assert must_stop(TASK, header) is stops


def record(state: TaskState, *, attempt: int = 3, life: int = 2) -> TaskRecord:
    return TaskRecord(run=TaskRun(number=0, state=state, stored=state, attempt=attempt), life=life)


@pytest.mark.parametrize(
    ("row", "past"),
    [
        (record(TaskState.READY), False),
        (record(TaskState.RUNNING), False),
        (record(TaskState.COMPLETED), True),
        (record(TaskState.FAILED), True),
        (record(TaskState.CANCELLED), True),
        (record(TaskState.READY, attempt=4), True),
        (record(TaskState.READY, life=3), True),
        (record(TaskState.FAILED, attempt=2, life=1), False),
    ],
)
def test_the_row_tells_a_copy_of_a_message_from_the_message(row: TaskRecord, past: bool) -> None:
    assert is_past(TASK, row) is past
