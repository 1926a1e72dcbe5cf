"""Who coordinates: one at a time, nobody for long, two by accident, and a private run by its own process only."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from ai4s.jobq.coordinator.loop import PrivateRun
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.ports.table import ETag
from ai4s.jobq.store.layout import LEASE, private_completion_queue, private_queue
from tests.coordinator.stage import SHORT_LEASE, Running, Stage, attempts, counted
from tests.support.faults import Call, Faults
from tests.support.small import DIAMOND, many, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, ScriptedWorker, by_name


def believes_it_leads(stage: Stage) -> Faults:
    """Faults of a process for which the lease is always free: it leads whatever the others do."""
    faults = Faults()
    faults.replace("table.get", stage.store.names.index_table, answer=lambda call: None, key=LEASE)
    faults.replace("table.transact", stage.store.names.index_table, answer=_etags, key=LEASE)
    return faults


def _etags(call: Call) -> list[ETag]:
    return [ETag("x")] * (len(call.keys) - 1)


async def _run_beside_each_other(stage: Stage, count: int, definition: Any, worker: ScriptedWorker) -> list[Running]:
    workflow_id = await stage.submit(definition, "split")
    coordinators = [stage.new_coordinator(faults=believes_it_leads(stage), owner=f"c{n}") for n in range(count)]
    for running in coordinators:
        running.start()
    async with worker:
        await stage.ended(workflow_id)
    for running in coordinators:
        await running.stop()
    return coordinators


@pytest.mark.parametrize("count", [2, 4])
async def test_coordinators_active_at_once_record_every_task_once(stage: Stage, count: int) -> None:
    middles = many(60, parents=["a"])
    definition = workflow({"a": [], **middles, "join": list(middles)}, changes={"t7": {"num_retries": 2}})
    worker = ScriptedWorker(stage.store, by_name({"t7": [FAIL, FAIL, Act()]}))

    await _run_beside_each_other(stage, count, definition, worker)

    header = await stage.header("split")
    assert (header.state, header.counts) == (WorkflowState.COMPLETED, counted(completed=62))
    assert (await stage.task("split", 8)).attempt == 3
    assert max(Counter((run.task, run.attempt) for run in worker.executions).values()) <= count


async def test_attempts_have_no_gaps_with_two_coordinators_active_at_once(stage: Stage) -> None:
    definition = workflow(many(10), changes={name: {"num_retries": 3} for name in many(10)})
    worker = ScriptedWorker(stage.store, by_name(dict.fromkeys(many(10), FAIL)))

    await _run_beside_each_other(stage, 2, definition, worker)

    for name in many(10):
        assert sorted(set(attempts(worker.runs_of(name)))) == [1, 2, 3, 4]
    assert (await stage.header("split")).counts == counted(failed=10)


async def test_a_join_starts_after_all_its_parents_with_two_coordinators_active_at_once(stage: Stage) -> None:
    definition = workflow(DIAMOND)
    worker = ScriptedWorker(stage.store)

    await _run_beside_each_other(stage, 2, definition, worker)

    order = [run.task for run in worker.executions]
    assert order.index("d") > max(order.index("b"), order.index("c"))


# -- the lease


async def test_only_one_of_two_coordinators_leads(stage: Stage) -> None:
    async with stage.coordinator() as first, stage.coordinator() as second:
        index = stage.store.names.index_table
        await until(lambda: first.faults.count("table.get", index) and second.faults.count("table.get", index))
        await until(lambda: first.coordinator.is_leading or second.coordinator.is_leading)
        assert not (first.coordinator.is_leading and second.coordinator.is_leading)


async def test_a_standby_receives_nothing_until_it_leads(stage: Stage) -> None:
    async with stage.coordinator() as first:
        await until(lambda: first.coordinator.is_leading)
        async with stage.coordinator(SHORT_LEASE) as second, ScriptedWorker(stage.store):
            await stage.completed(await stage.submit(workflow(DIAMOND)))
            assert second.faults.count("queue.receive") == 0


async def test_a_standby_takes_over_from_a_dead_leader_and_finishes_its_workflows(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))
    first = stage.new_coordinator(SHORT_LEASE)
    first.faults.kill("table.transact", stage.store.names.tasks_table, skip=2)
    first.start()
    await until(lambda: first.coordinator.is_leading)

    async with stage.coordinator(SHORT_LEASE) as second, ScriptedWorker(stage.store) as worker:
        await until(lambda: first.faults.dead)
        await first.kill()
        await stage.completed(workflow_id)
        assert second.coordinator.is_leading

    assert len(worker.runs_of("d")) == 1


async def test_a_standby_takes_over_at_once_when_the_leader_leaves_politely(stage: Stage) -> None:
    async with stage.coordinator() as first:
        await until(lambda: first.coordinator.is_leading)
        await first.stop()

    assert await stage.store.index.table.get(LEASE, "coordinator") is None


async def test_a_leader_that_cannot_renew_its_lease_starts_no_more_turns(stage: Stage) -> None:
    async with stage.coordinator(SHORT_LEASE) as running:
        await until(lambda: running.coordinator.is_leading)
        running.faults.refuse("table.transact", stage.store.names.index_table, key=LEASE, times=10**6)
        await until(lambda: not running.coordinator.is_leading)
        workflow_id = await stage.submit(workflow())
        receives = running.faults.count("queue.receive")

        await stage.store.index.poke(workflow_id)
        await until(lambda: running.faults.count("table.get", stage.store.names.index_table) > 0)

        assert running.faults.count("queue.receive") <= receives + 1
        assert (await stage.header(workflow_id)).state is WorkflowState.PENDING
        running.faults.heal()
        await until(lambda: _is_ready(stage, workflow_id))


async def _is_ready(stage: Stage, workflow_id: str) -> bool:
    return (await stage.header(workflow_id)).counts.get(TaskState.READY, 0) > 0


# -- stopping


async def test_a_polite_stop_finishes_the_turn_and_clears_the_outbox(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(5)))
    running = stage.new_coordinator()
    sending, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_: Call) -> None:
        sending.set()
        await go_on.wait()

    running.faults.hook("queue.send", "default", hook=hold)
    running.start()
    await sending.wait()
    running.coordinator.stop()
    go_on.set()
    await running.task

    assert (await stage.header(workflow_id)).outbox == ()
    assert await stage.queued() == 5


async def test_a_cancelled_coordinator_leaves_no_task_behind(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(5)))
    running = stage.new_coordinator()
    before = asyncio.all_tasks()
    running.start()
    await until(lambda: _is_ready(stage, workflow_id))

    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)

    assert asyncio.all_tasks() - before == set()


async def test_a_stop_before_anything_began_returns(stage: Stage) -> None:
    running = stage.new_coordinator()
    running.start()
    await running.stop()

    assert running.coordinator.stats.commits == 0


# -- private runs


async def test_a_private_run_is_left_alone_by_the_coordinator_of_its_prefix(stage: Stage) -> None:
    submission = await stage.store.submit(workflow(), now=stage.clock.now(), workflow_id="mine", private="me")
    async with stage.coordinator() as running, ScriptedWorker(stage.store):
        await stage.completed(await stage.submit(workflow()))
        await until(lambda: running.faults.count("table.query", stage.store.names.index_table) > 40)

    header = await stage.header(submission.workflow_id)
    assert (header.state, header.rev) == (WorkflowState.PENDING, 0)


async def test_a_private_run_uses_queues_of_its_own_and_needs_no_lease(stage: Stage) -> None:
    submission = await stage.store.submit(workflow(DIAMOND), now=stage.clock.now(), workflow_id="mine", private="me")
    run = submission.run
    private = PrivateRun(workflow_id="mine", run=run, slots={"default": 4})
    worker = ScriptedWorker(
        stage.store, queues=(private_queue(run, 0),), completion_queue=private_completion_queue(run)
    )

    async with stage.coordinator() as other, ScriptedWorker(stage.store) as foreign:
        await until(lambda: other.coordinator.is_leading)
        async with stage.coordinator(private=private), worker:
            await stage.completed("mine")

    assert foreign.executions == []
    assert sorted(run.task for run in worker.executions) == ["a", "b", "c", "d"]


async def test_two_private_runs_do_not_mix(stage: Stage) -> None:
    workers = []
    async with asyncio.timeout(60):
        for name in ("one", "two"):
            await stage.store.submit(workflow(DIAMOND), now=stage.clock.now(), workflow_id=name, private=name)
    runs = {name: (await stage.header(name)).run for name in ("one", "two")}
    for run in runs.values():
        workers.append(
            ScriptedWorker(stage.store, queues=(private_queue(run, 0),), completion_queue=private_completion_queue(run))
        )
    privates = [PrivateRun(workflow_id=name, run=run, slots={"default": 1}) for name, run in runs.items()]

    async with stage.coordinator(private=privates[0]), stage.coordinator(private=privates[1]), workers[0], workers[1]:
        await stage.completed("one", "two")

    assert [len(worker.executions) for worker in workers] == [4, 4]
