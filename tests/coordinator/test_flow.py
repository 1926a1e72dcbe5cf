"""Workflows from submit to end, with one coordinator and scripted workers: order, joins, retries, conditions, limits."""

from __future__ import annotations

import asyncio
import json

from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.store.wire import BlobRef, Cause, Outcome, TaskMessage
from tests.coordinator.stage import Stage, attempts, counted
from tests.support.small import DIAMOND, many, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, ScriptedWorker, always, by_name


async def test_a_chain_runs_in_order_each_task_once(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"], "c": ["b"]}))

    async with stage.coordinator(), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    assert [execution.task for execution in worker.executions] == ["a", "b", "c"]


async def test_a_join_runs_once_after_both_its_parents(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))

    async with stage.coordinator(), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    order = [execution.task for execution in worker.executions]
    assert (order[0], sorted(order[1:3]), order[3:]) == ("a", ["b", "c"], ["d"])


async def test_a_join_of_two_hundred_runs_once(stage: Stage) -> None:
    middles = many(200, parents=["a"])
    workflow_id = await stage.submit(workflow({"a": [], **middles, "join": list(middles)}))

    async with stage.coordinator(), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    assert len(worker.runs_of("join")) == 1
    assert len(worker.executions) == 202


async def test_two_hundred_joins_with_a_retried_parent_run_once_each(stage: Stage) -> None:
    tasks: dict[str, list[str]] = {}
    for number in range(50):
        tasks |= {f"l{number}": [], f"r{number}": [], f"join{number}": [f"l{number}", f"r{number}"]}
    changes = {f"r{number}": {"num_retries": 1} for number in range(50)}
    workflow_id = await stage.submit(workflow(tasks, changes=changes))
    script = by_name({f"r{number}": [FAIL, Act()] for number in range(50)})

    async with stage.coordinator(), ScriptedWorker(stage.store, script) as worker:
        await stage.completed(workflow_id)

    assert [len(worker.runs_of(f"join{number}")) for number in range(50)] == [1] * 50
    assert [attempts(worker.runs_of(f"r{number}")) for number in range(50)] == [[1, 2]] * 50


async def test_a_task_that_always_fails_gets_one_attempt_more_than_its_retries(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}, changes={"a": {"num_retries": 3}}))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": FAIL})) as worker:
        header = await stage.ended(workflow_id)

    assert attempts(worker.runs_of("a")) == [1, 2, 3, 4]
    assert header.state is WorkflowState.FAILED
    assert header.counts == counted(failed=1, upstream_failed=1)


async def test_a_lost_attempt_is_followed_by_another_without_a_retry_budget(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    lost = Act(outcome=Outcome.FAILED, cause=Cause.LOST)

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": [lost, lost, Act()]})) as worker:
        await stage.completed(workflow_id)

    assert attempts(worker.runs_of("a")) == [1, 2, 3]


async def test_a_task_with_a_false_condition_is_skipped_and_its_child_too(stage: Stage) -> None:
    tasks = {"a": [], "b": ["a"], "c": ["b"], "d": ["a"]}
    changes = {"b": {"condition": "inputs.a.score > 5"}, "d": {"condition": "inputs.a.score < 5"}}
    workflow_id = await stage.submit(workflow(tasks, changes=changes))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": Act(output='{"score": 3}')})) as worker:
        await stage.completed(workflow_id)

    assert [execution.task for execution in worker.executions] == ["a", "d"]
    assert await stage.states(workflow_id) == {
        "a": TaskState.COMPLETED,
        "b": TaskState.SKIPPED,
        "c": TaskState.SKIPPED,
        "d": TaskState.COMPLETED,
    }


async def test_a_condition_reads_an_output_that_is_a_blob(stage: Stage) -> None:
    text = json.dumps({"score": 7, "padding": "x" * 40_000})
    changes = {"b": {"condition": "inputs.a.score == 7"}}
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}, changes=changes))
    header = await stage.header(workflow_id)
    message = TaskMessage(
        store=stage.store.name, workflow_id=workflow_id, run=header.run, life=1, row="t000000", task_name="a", attempt=1
    )
    output = await stage.store.outputs_store.save(stage.store.names, message, "1-x", text)
    assert isinstance(output, BlobRef)

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": Act(output=output)})) as worker:
        await stage.completed(workflow_id)

    assert len(worker.runs_of("b")) == 1


async def test_a_condition_whose_blob_is_gone_fails_its_task_and_says_why(stage: Stage) -> None:
    gone = BlobRef(blob="Test/nowhere/output.json", size_bytes=3, md5="0" * 32)
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}, changes={"b": {"condition": "inputs.a > 1"}}))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": Act(output=gone)})):
        header = await stage.ended(workflow_id)

    assert header.state is WorkflowState.FAILED
    assert "output of 'a'" in (await stage.task(workflow_id, 1)).error


async def test_a_condition_on_an_output_nested_too_deeply_fails_only_its_task(stage: Stage) -> None:
    deep = Act(output="[" * 15_000 + "]" * 15_000)
    tasks = {"a": [], "b": ["a"], "c": ["a"]}
    workflow_id = await stage.submit(workflow(tasks, changes={"b": {"condition": "exists(inputs.a)"}}))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": deep})):
        header = await stage.ended(workflow_id)

    assert header.counts == counted(completed=2, failed=1)


async def test_no_more_tasks_than_max_parallelism_are_out_at_a_time(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(12), max_parallelism=3))
    out = 0
    most = 0

    async def work() -> None:
        nonlocal out, most
        out += 1
        most = max(most, out)
        await asyncio.sleep(0)
        out -= 1

    async with stage.coordinator(), ScriptedWorker(stage.store, always(Act(first=work))) as worker:
        await until(lambda: worker.executions)
        header = await stage.header(workflow_id)
        assert sum(header.counts.get(state, 0) for state in (TaskState.READY, TaskState.RUNNING)) <= 3
        await stage.completed(workflow_id)

    assert len(worker.executions) == 12
    assert most <= 3


async def test_more_tasks_than_an_outbox_holds_are_all_dispatched_at_once(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(250)))

    async with stage.coordinator(), ScriptedWorker(stage.store, queues=("nobody",), slots=0):
        registry = ScriptedWorker(stage.store, slots=1000)
        await registry.announce()
        await until(lambda: _all_queued(stage, 250))

    assert (await stage.header(workflow_id)).counts == counted(ready=250)


async def _all_queued(stage: Stage, count: int) -> bool:
    return await stage.queued() == count


async def test_a_workflow_on_three_queues_keeps_each_task_to_its_queue(stage: Stage) -> None:
    tasks = {**many(70, prefix="x"), **many(70, prefix="y"), **many(5, prefix="z")}
    changes = {name: {"queue": f"queue-{name[0]}"} for name in tasks}
    workflow_id = await stage.submit(workflow(tasks, changes=changes))
    workers = {name: ScriptedWorker(stage.store, queues=(f"queue-{name}",)) for name in "xyz"}

    async with stage.coordinator(), workers["x"], workers["y"], workers["z"]:
        await stage.completed(workflow_id)

    for name, worker in workers.items():
        assert {execution.task[0] for execution in worker.executions} == {name}


async def test_an_ended_workflow_leaves_neither_messages_nor_an_active_row(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))

    async with stage.coordinator(), ScriptedWorker(stage.store):
        await stage.completed(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))

    assert (await stage.queued(), await stage.completions()) == (0, 0)
    assert (await stage.header(workflow_id)).outbox == ()


async def test_the_index_row_of_an_ended_workflow_tells_its_end(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))

    async with stage.coordinator(), ScriptedWorker(stage.store):
        await stage.completed(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))

    [record] = [record async for record in stage.store.index.ended()]
    assert (record.state, record.counts) == (WorkflowState.COMPLETED, counted(completed=4))
