"""B18: attempts from stored rows, and their picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
from ai4s.jobq.drawing.gantt import MOST_ROWS, duration_text, gantt_svg
from ai4s.jobq.engine.events import AttemptRecord, Cause
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import attempt_values, task_values
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.history import Attempt, WorkflowHistory, read_history

SVG = "{http://www.w3.org/2000/svg}"
START = datetime(2026, 11, 29, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WorkflowStore]:
    async with open_local(tmp_path) as services:
        yield WorkflowStore(services, account="local", prefix="Proj")


async def submitted(store: WorkflowStore, *names: str) -> str:
    definition = WorkflowDefinition(name="flow", tasks=tuple(Task(name=name) for name in names))
    return (await store.submit(definition, now=START)).workflow_id


async def put(
    store: WorkflowStore, workflow_id: str, task: TaskRun, *past: AttemptRecord, life: int = 1, row: str = ""
) -> None:
    values = task_values(task, name=f"t{task.number}", queue="default", life=life, rev=1)
    for record in past:
        values.update(attempt_values(record))
    await store.table.transact(workflow_id, [Merge(row or task_row(task.number), values)])


def past(attempt: int, cause: Cause | None = None, number: int = 0) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        attempt=attempt,
        execution=f"{attempt}-x",
        worker="w1",
        ready_at=at(10 * attempt),
        started_at=at(10 * attempt + 2),
        ended_at=at(10 * attempt + 5.5),
        cause=cause,
        exit_code=0 if cause is None else 1,
        error="" if cause is None else "went wrong",
    )


async def test_every_kept_attempt_is_told_oldest_first(store: WorkflowStore) -> None:
    workflow_id = await submitted(store, "a")
    task = TaskRun(0, stored=TaskState.COMPLETED, attempt=23)
    await put(store, workflow_id, task, *(past(n, Cause.EXIT) for n in range(1, 23)), past(23))

    history = await read_history(store, workflow_id)

    assert [attempt.attempt for attempt in history.attempts] == list(range(4, 24))
    assert [attempt.outcome for attempt in history.attempts[-2:]] == [TaskState.FAILED, TaskState.COMPLETED]
    last = history.attempts[-1]
    assert (last.wait_s, last.run_s, last.worker, last.exit_code, last.error) == (2.0, 3.5, "w1", 0, None)


async def test_an_attempt_that_goes_on_has_no_end(store: WorkflowStore) -> None:
    workflow_id = await submitted(store, "a", "b")
    await put(store, workflow_id, TaskRun(0, stored=TaskState.RUNNING, attempt=1, ready_at=at(0), started_at=at(4)))
    await put(store, workflow_id, TaskRun(1, stored=TaskState.READY, attempt=2, ready_at=at(9)), past(1, Cause.LOST, 1))

    running, lost, ready = (await read_history(store, workflow_id)).attempts

    assert (running.outcome, running.wait_s, running.run_s) == (TaskState.RUNNING, 4.0, None)
    assert (lost.task, lost.cause) == ("b", "lost")
    assert (ready.attempt, ready.outcome, ready.wait_s) == (2, TaskState.READY, None)


async def test_attempts_of_earlier_lives_are_part_of_the_history(store: WorkflowStore) -> None:
    workflow_id = await submitted(store, "a")
    await put(store, workflow_id, TaskRun(0, stored=TaskState.FAILED, attempt=1), past(1, Cause.EXIT), life=0)

    history = await read_history(store, workflow_id)

    assert [(attempt.attempt, attempt.outcome) for attempt in history.attempts] == [(1, TaskState.FAILED)]


async def test_undo_jobs_and_hooks_come_after_the_tasks(store: WorkflowStore) -> None:
    job = Job(kwargs={"cmd": "x"})
    tasks = (Task(name="a", undo=job), Task(name="undo:a"))
    definition = WorkflowDefinition(name="flow", tasks=tasks, on_end=job)
    workflow_id = (await store.submit(definition, now=START)).workflow_id
    done = TaskRun(0, stored=TaskState.COMPLETED, attempt=1)
    await put(store, workflow_id, TaskRun(0, stored=TaskState.RUNNING, attempt=2), past(1, Cause.LOST), row="h000000")
    await put(store, workflow_id, done, past(1), row="u000000")
    await put(store, workflow_id, done, past(1), row="t000000")

    attempts = (await read_history(store, workflow_id)).attempts

    assert [(attempt.task, attempt.role, attempt.attempt, attempt.outcome) for attempt in attempts] == [
        ("a", JobRole.TASK, 1, TaskState.COMPLETED),
        ("undo:a", JobRole.UNDO, 1, TaskState.COMPLETED),
        ("hook:on_end", JobRole.HOOK, 1, TaskState.FAILED),
        ("hook:on_end", JobRole.HOOK, 2, TaskState.RUNNING),
    ]
    hook = (await read_history(store, workflow_id, job_name="hook:on_end")).attempts
    assert [attempt.attempt for attempt in hook] == [1, 2]
    # A task of the very name of an undo job comes first.
    assert (await read_history(store, workflow_id, job_name="undo:a")).attempts == ()


async def test_what_an_earlier_life_left_unfinished_does_not_go_on(store: WorkflowStore) -> None:
    workflow_id = await submitted(store, "a")
    await put(store, workflow_id, TaskRun(0, stored=TaskState.READY, attempt=2), past(1, Cause.EXIT), life=0)

    attempts = (await read_history(store, workflow_id)).attempts

    assert [attempt.attempt for attempt in attempts] == [1]


def history_of(*attempts: Attempt) -> WorkflowHistory:
    return WorkflowHistory(
        workflow_id="abc",
        name="flow",
        status=WorkflowState.RUNNING,
        created_at=START,
        as_of=at(100),
        ended_at=None,
        attempts=attempts,
    )


def attempt(task: str, number: int = 1, **facts: object) -> Attempt:
    usual: dict[str, object] = {
        "outcome": TaskState.COMPLETED,
        "ready_at": at(0),
        "started_at": at(1),
        "ended_at": at(2),
    }
    return Attempt(task=task, queue="default", attempt=number, **(usual | facts))  # type: ignore[arg-type]  # test facts


def test_the_picture_has_a_wait_and_a_run_for_each_attempt() -> None:
    drawing = ET.fromstring(
        gantt_svg(history_of(attempt("a"), attempt("b", outcome=TaskState.FAILED, cause="exit", exit_code=3)))
    )

    titles = [box.findtext(f"{SVG}title") for box in drawing.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert titles == [
        *["a, attempt 1: completed\nwaited 1s\nran 1s"] * 2,
        *["b, attempt 1: failed, exit, exit code 3\nwaited 1s\nran 1s"] * 2,
    ]


def test_bars_lie_within_the_chart_and_in_time_order() -> None:
    running = attempt("c", outcome=TaskState.RUNNING, ended_at=None, started_at=at(50))
    drawing = ET.fromstring(gantt_svg(history_of(attempt("a"), running)))

    bars = [box for box in drawing.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    places = [(float(bar.attrib["x"]), float(bar.attrib["x"]) + float(bar.attrib["width"])) for bar in bars]
    assert all(0 < left < right <= float(drawing.attrib["width"]) for left, right in places)
    assert places[3][1] == max(right for _, right in places)  # what goes on ends where the picture does
    assert places[0][1] == pytest.approx(places[1][0], abs=0.11)


def test_many_tasks_share_rows_by_layer() -> None:
    drawing = ET.fromstring(gantt_svg(history_of(*(attempt(f"fit-{n:04}") for n in range(MOST_ROWS + 1)))))

    names = [text.text for text in drawing.iter(f"{SVG}text") if text.attrib.get("text-anchor") == "end"]
    assert names == ["fit"]


def test_what_does_not_fit_is_said() -> None:
    svg = gantt_svg(history_of(*(attempt(f"task {n}") for n in range(MOST_ROWS + 5))))

    assert "5 more are not shown" in svg


def test_undo_jobs_and_hooks_have_rows_of_their_own_below_the_tasks() -> None:
    undo = attempt("undo:a", role=JobRole.UNDO, ready_at=at(0))
    hook = attempt("hook:on_end", role=JobRole.HOOK, ready_at=at(0))
    drawing = ET.fromstring(gantt_svg(history_of(hook, undo, attempt("b", ready_at=at(0.5)), attempt("a"))))

    texts = [text.text or "" for text in drawing.iter(f"{SVG}text")]
    names = ["a", "b", "undo jobs", "undo:a", "hooks", "hook:on_end"]
    assert [text for text in texts if text in names] == names
    assert "abc · running · 4 attempts of 2 tasks, 1 undo job, 1 hook" in texts
    bars = {box.findtext(f"{SVG}title", "").split(",")[0]: box.attrib for box in drawing.iter(f"{SVG}rect")}
    assert ["stroke-dasharray" in bars[name] for name in ("a", "undo:a", "hook:on_end")] == [False, True, False]
    assert len({bars[name]["fill"] for name in ("a", "undo:a")}) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (0.35, "350ms"),
        (2.5, "2.5s"),
        (59.96, "60s"),
        (250, "4m10s"),
        (3600, "1h"),
        (11_100, "3h05m"),
        (187_200, "2d04h"),
    ],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
