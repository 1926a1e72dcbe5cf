"""Processors of one's own for workflow tasks: the framework reports what they return, or that they failed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.plain.callbacks import CallbackProcessor
from ai4s.jobq.plain.processors import Processor
from ai4s.jobq.store.stashes import KEY
from ai4s.jobq.store.wire import Cause, Outcome, Report
from ai4s.jobq.workflow import (
    BlobStasher,
    NotInTaskError,
    WorkflowContext,
    get_upstream_output,
    get_workflow_context,
    is_cancelled,
    set_output,
)
from tests.worker.stage import Stage
from tests.worker.test_stash_outputs import plant_output


async def run(
    stage: Stage, callback: Any, kwargs: dict[str, Any] | None = None, *, timeout_s: int | None = None
) -> Report:
    """How a task that ``callback`` ran ended."""
    header = await stage.submit(Task(name="prep"), Task(name="train", depends_on=("prep",), kwargs=kwargs or {}))
    await plant_output(stage, header.workflow_id, 0, '{"rows": 7}', "prep")
    await stage.put(header, 1, parents="o", timeout_s=timeout_s)
    await stage.worker(processor=CallbackProcessor(callback)).run()
    return stage.only_outcome()


class Train(Processor):
    async def __call__(self, **kwargs: Any) -> Any:
        return {"got": kwargs}


async def test_a_processor_gets_the_kwargs_and_what_it_returns_is_the_output(stage: Stage) -> None:
    report = await run(stage, Train(), {"epochs": 3, "name": "é"})

    assert report.outcome is Outcome.SUCCEEDED
    assert json.loads(str(report.output)) == {"got": {"epochs": 3, "name": "é"}}


async def test_what_returns_nothing_has_no_output(stage: Stage) -> None:
    report = await run(stage, lambda: None)

    assert (report.outcome, report.output) == (Outcome.SUCCEEDED, None)


async def test_an_exception_fails_the_attempt_with_its_text(stage: Stage) -> None:
    def fail() -> None:
        raise ValueError("no such data set")

    report = await run(stage, fail)

    assert (report.outcome, report.cause, report.output) == (Outcome.FAILED, Cause.EXIT, None)
    assert report.error == "ValueError: no such data set"


async def test_kwargs_that_do_not_fit_fail_the_attempt(stage: Stage) -> None:
    async def train(epochs: int) -> int:
        return epochs

    report = await run(stage, train, {"epoch": 3})

    assert "unexpected keyword argument 'epoch'" in (report.error or "")


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"x"])
async def test_what_is_no_json_fails_the_attempt(stage: Stage, value: Any) -> None:
    report = await run(stage, lambda: value)

    assert (report.outcome, report.output) == (Outcome.FAILED, None)


async def test_a_processor_out_of_time_is_a_time_out(stage: Stage) -> None:
    report = await run(stage, lambda: asyncio.sleep(60), timeout_s=1)

    assert report.cause is Cause.TIMEOUT


async def test_a_returned_file_is_stored(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")

    report = await run(stage, lambda: {"model": BlobStasher.from_file(tmp_path / "model.bin")})

    assert json.loads(str(report.output))["model"][KEY]["state"] == "ready"


def read_sync() -> Any:
    return [get_upstream_output("prep"), get_workflow_context().task_name, is_cancelled()]


async def read_async() -> Any:
    return read_sync()


async def read_in_thread() -> Any:
    return await asyncio.to_thread(read_sync)


@pytest.mark.parametrize("callback", [read_sync, read_async, read_in_thread])
async def test_the_helpers_of_scripts_answer_for_the_task_of_the_call(stage: Stage, callback: Any) -> None:
    report = await run(stage, callback)

    assert json.loads(str(report.output)) == [{"rows": 7}, "train", False]


async def test_a_processor_may_set_its_output_as_scripts_do(stage: Stage) -> None:
    report = await run(stage, lambda: set_output("mine"))

    assert report.output == '"mine"'


async def test_a_context_made_of_kwargs_is_that_of_the_call(stage: Stage) -> None:
    def train(**kwargs: Any) -> Any:
        return WorkflowContext.from_kwargs(kwargs).get_available_upstream_outputs()

    report = await run(stage, train, {"epochs": 3})

    assert json.loads(str(report.output)) == {"prep": {"rows": 7}}


async def test_two_calls_at_a_time_are_two_tasks(stage: Stage) -> None:
    both = asyncio.Barrier(2)

    async def train(n: int) -> Any:
        await both.wait()
        return [n, get_workflow_context().workflow_id]

    for n in (1, 2):
        header = await stage.submit(Task(name="train", kwargs={"n": n}), workflow_id=f"w{n}")
        await stage.put(header)
    await stage.worker(processor=CallbackProcessor(train), slots=2).run()

    assert sorted(json.loads(str(report.output)) for report in stage.outcomes()) == [[1, "w1"], [2, "w2"]]


async def test_a_plain_job_is_no_task_even_of_a_worker_that_runs_in_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_ID", "outer")
    found: list[str] = []

    def look() -> None:
        try:
            found.append(get_workflow_context().workflow_id)
        except NotInTaskError:
            found.append("none")

    await stage.put_job({})
    await stage.worker(processor=CallbackProcessor(look), plain=True).run()

    assert found == ["none"]


async def test_a_call_leaves_no_trace_in_the_process(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_ID", raising=False)
    await run(stage, read_async)

    with pytest.raises(NotInTaskError):
        get_workflow_context()
