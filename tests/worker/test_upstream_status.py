"""B3: how the parents of a task ended, for tasks that run although, or because, some of them ended badly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.states import JobKind, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import Header, error_values, task_values
from ai4s.jobq.store.wire import Cause
from ai4s.jobq.task import NotInTaskError, get_upstream_status, get_workflow_context
from tests.worker.stage import Stage

NOTHING = {"exit_code": None, "error": None, "cause": None, "attempt": None}
FAILED = {"status": "failed", "exit_code": 3, "error": "exit code 3\nbroken", "cause": "exit", "attempt": 2}

SCRIPT = """
from ai4s.jobq.workflow import get_real_upstream_tasks, get_upstream_status, set_output
set_output({name: get_upstream_status(name) for name in get_real_upstream_tasks()})
"""


async def submit(stage: Stage, tasks: dict[str, list[str]], script: str = SCRIPT) -> Header:
    """A workflow of ``{task: its parents}``, whose last task runs the script."""
    *others, last = tasks
    cmd = f"{sys.executable} - <<'END'\n{script}\nEND"
    return await stage.submit(
        *(Task(name=name, depends_on=tuple(tasks[name]), kwargs={"cmd": "true"}) for name in others),
        Task(name=last, depends_on=tuple(tasks[last]), kwargs={"cmd": cmd}),
    )


async def end(
    stage: Stage, header: Header, number: int, state: TaskState = TaskState.FAILED, *, life: int = 1, **facts: Any
) -> None:
    """Write the row of a task that ended badly."""
    ended: dict[str, Any] = {"attempt": 2, "exit_code": 3, "cause": Cause.EXIT} | facts
    task = TaskRun(number=number, state=state, stored=state, life=life, **ended)
    values = task_values(task, name="x", queue="gpu", life=life, rev=1)
    await stage.set_row(header.workflow_id, task_row(number), values | error_values("exit code 3\nbroken"))


async def statuses(stage: Stage, header: Header, parents: str) -> Any:
    """What the last task of the workflow says of its parents."""
    definition = await stage.store.definition(header.workflow_id, header.run)
    await stage.put(header, len(definition.tasks) - 1, parents=parents, kind=JobKind.CLEANUP, life=header.life)
    await stage.run()
    report = stage.only_outcome()
    assert isinstance(report.output, str), report.error
    return json.loads(report.output)


async def test_a_failed_parent_is_told_with_code_error_cause_and_attempt(stage: Stage) -> None:
    header = await submit(stage, {"train": [], "cleanup": ["train"]})
    await end(stage, header, 0)

    assert await statuses(stage, header, "f") == {"train": FAILED}


async def test_strict_says_why_a_parent_failed(stage: Stage) -> None:
    script = """
from ai4s.jobq.workflow import DependencyFailedError, get_upstream_output, set_output
try:
    get_upstream_output("train", strict=True)
except DependencyFailedError as exc:
    set_output([str(exc), exc.task_name, exc.status])
"""
    header = await submit(stage, {"train": [], "cleanup": ["train"]}, script)
    await end(stage, header, 0)

    words = "upstream task 'train' has no output: it is failed: exit code 3"
    assert await statuses(stage, header, "f") == [words, "train", "failed"]


async def test_a_parent_that_timed_out_has_its_signal_and_its_cause(stage: Stage) -> None:
    header = await submit(stage, {"train": [], "cleanup": ["train"]})
    await end(stage, header, 0, cause=Cause.TIMEOUT, exit_code=-9)

    found = (await statuses(stage, header, "f"))["train"]

    assert (found["cause"], found["exit_code"]) == ("timeout", -9)


@pytest.mark.parametrize(
    ("letter", "status"),
    [
        ("c", {"status": "completed"} | NOTHING | {"exit_code": 0}),
        ("o", {"status": "completed"} | NOTHING | {"exit_code": 0}),
        ("s", {"status": "skipped"} | NOTHING),
        ("p", {"status": "pending"} | NOTHING),
        ("x", {"status": "cancelled"} | NOTHING),
    ],
)
async def test_any_other_parent_has_its_state(stage: Stage, letter: str, status: dict[str, Any]) -> None:
    header = await submit(stage, {"train": [], "cleanup": ["train"]})

    assert await statuses(stage, header, letter) == {"train": status}


async def test_a_parent_that_was_stopped_is_cancelled_with_the_last_it_said(stage: Stage) -> None:
    header = await submit(stage, {"train": [], "cleanup": ["train"]})
    await end(stage, header, 0, TaskState.CANCELLED, cause=Cause.CANCELLED, exit_code=-15)

    found = (await statuses(stage, header, "x"))["train"]

    assert (found["status"], found["cause"], found["attempt"]) == ("cancelled", "cancelled", 2)


async def test_an_upstream_failed_parent_names_the_task_that_made_it_fail(stage: Stage) -> None:
    header = await submit(
        stage, {"a": [], "b": ["a"], "c": ["b"], "other": [], "d": ["other", "c"], "cleanup": ["d", "a"]}
    )
    await end(stage, header, 0)

    assert await statuses(stage, header, "uf") == {
        "d": {"status": "upstream_failed"} | NOTHING | {"error": "upstream task 'a' failed"},
        "a": FAILED,
    }


async def test_the_row_of_an_earlier_life_says_nothing(stage: Stage) -> None:
    """A task that failed, and after a retry of the workflow was cancelled before it ran again."""
    header = await submit(stage, {"train": [], "cleanup": ["train"]})
    await end(stage, header, 0, life=1)
    await stage.change_header(header.workflow_id, life=2)
    second = await stage.store.header(header.workflow_id)
    assert second is not None

    assert await statuses(stage, second, "x") == {"train": {"status": "cancelled"} | NOTHING}


@pytest.mark.parametrize(("letters", "reads"), [("cs", 0), ("cf", 1)])
async def test_rows_are_read_only_when_a_parent_ended_badly(stage: Stage, letters: str, reads: int) -> None:
    header = await submit(stage, {"a": [], "b": [], "join": ["a", "b"]})
    await stage.store.graph(header.workflow_id, header.run)
    before = stage.services.requests["table.query"]

    await statuses(stage, header, letters)

    assert stage.services.requests["table.query"] - before == reads


async def test_more_bad_parents_than_are_handed_over_are_read_when_they_are_asked_for(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    parents = [f"p{number}" for number in range(66)]
    script = "from ai4s.jobq.workflow import *; set_output([get_upstream_status(n) for n in ('p0', 'p65')])"
    header = await submit(stage, {**{name: [] for name in parents}, "cleanup": parents}, script)
    await end(stage, header, 0)
    await end(stage, header, 65)

    assert await statuses(stage, header, "f" * 66) == [FAILED, FAILED]


async def test_an_undo_job_learns_that_its_task_completed(stage: Stage) -> None:
    header = await submit(stage, {"train": []})
    task = (await stage.store.definition(header.workflow_id, header.run)).tasks[0]
    await stage.put(header, row="u000000", kind=JobKind.UNDO, parents="c", kwargs=task.kwargs)

    await stage.run()

    report = stage.only_outcome()
    assert isinstance(report.output, str)
    assert json.loads(report.output) == {"train": {"status": "completed"} | NOTHING | {"exit_code": 0}}


async def test_a_task_that_is_no_parent_is_an_error(stage: Stage) -> None:
    script = "from ai4s.jobq.workflow import get_upstream_status; get_upstream_status('other')"
    header = await submit(stage, {"train": [], "cleanup": ["train"]}, script)
    await stage.put(header, 1, parents="c")

    await stage.run()

    assert "'other' is not a direct upstream" in (stage.only_outcome().error or "")


def test_outside_a_task_there_is_no_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_ID", raising=False)

    with pytest.raises(NotInTaskError):
        get_upstream_status("a")


def test_a_context_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ID": "w", "TASK": "t", "ATTEMPT": "1"}.items():
        monkeypatch.setenv(f"JOBQ_WORKFLOW_{name}", value)
    monkeypatch.delenv("JOBQ_SIDECAR", raising=False)
    context = get_workflow_context()

    context.close()

    assert context.get_real_upstream_tasks() == []
