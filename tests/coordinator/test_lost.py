"""Messages and workers that vanish without a word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ai4s.jobq.control.lifecycle import cancel_workflow
from ai4s.jobq.coordinator.reconcile import EmptyQueues, LiveWorkers, UnclaimedTasks, overtaken_tasks
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.engine.events import TaskFailed
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.ports.table import ETag
from ai4s.jobq.store.workers import LIVE_S, SeenWorker, WorkerRecord
from tests.coordinator.stage import Stage, attempts, counted
from tests.support.faults import Faults
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import DIE, Act, ScriptedWorker, by_name

WATCHFUL = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=0.1, task_visibility_s=1, visibility_s=2)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def _queued(stage: Stage, count: int) -> bool:
    return await stage.queued() == count


async def test_tasks_whose_queue_was_cleared_get_a_new_attempt(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(3)))
    async with stage.coordinator(WATCHFUL):
        await until(lambda: _queued(stage, 3))
        await stage.services.queue("default").clear()
        await until(lambda: _queued(stage, 3))

        async with ScriptedWorker(stage.store) as worker:
            await stage.completed(workflow_id)

    assert attempts(worker.executions) == [2, 2, 2]


async def test_a_task_in_the_hands_of_a_live_worker_is_not_lost(stage: Stage) -> None:
    """Its message is gone from the queue, but a worker that gives signs of life claims it."""
    workflow_id = await stage.submit(workflow({"held": [], "lost": []}))
    async with stage.coordinator(WATCHFUL):
        await until(lambda: _queued(stage, 2))
        worker = ScriptedWorker(stage.store, slots=1)
        await worker.announce(f"{workflow_id}/t000000")
        await stage.services.queue("default").clear()
        await until(lambda: _queued(stage, 1))

    assert (await stage.task(workflow_id, 0)).attempt == 1
    assert (await stage.task(workflow_id, 1)).attempt == 2


async def test_a_task_whose_message_is_not_sent_yet_is_not_lost(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"x": [], "y": []}, changes={"x": {"queue": "queue-x"}}))
    faults = Faults()
    faults.refuse("queue.send", "queue-x", times=10**6)
    async with stage.coordinator(WATCHFUL, faults=faults):
        await until(lambda: _queued(stage, 1))
        await stage.services.queue("default").clear()
        await until(lambda: _queued(stage, 1))

    assert (await stage.task(workflow_id, 0)).attempt == 1


async def test_a_halted_run_whose_worker_died_ends(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    async with stage.coordinator(WATCHFUL), ScriptedWorker(stage.store, by_name({"a": DIE})):
        await until(lambda: _is_running(stage, workflow_id))
        await cancel_workflow(stage.store, workflow_id, stage.clock)

        header = await stage.ended(workflow_id)

    assert header.counts == counted(cancelled=2)


async def _is_running(stage: Stage, workflow_id: str) -> bool:
    return (await stage.header(workflow_id)).counts.get(TaskState.RUNNING, 0) > 0


async def test_the_message_of_a_dead_worker_goes_to_another_and_costs_one_loss(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    async with stage.coordinator():
        async with ScriptedWorker(stage.store, by_name({"a": DIE}), visibility_s=0.5):
            await until(lambda: _is_running(stage, workflow_id))
        async with ScriptedWorker(stage.store, by_name({"a": Act(says_started=True)})) as living:
            await stage.completed(workflow_id)

    record = await stage.task(workflow_id, 0)
    assert (record.attempt, record.run.losses) == (1, 1)
    assert len(living.executions) == 1


async def test_reports_in_the_hands_of_a_dead_coordinator_are_no_proof_of_a_loss(stage: Stage) -> None:
    """It died with the reports received and hidden: the queues look empty, and still nothing is lost."""
    workflow_id = await stage.submit(workflow({**many(3), "join": list(many(3))}))
    first = stage.new_coordinator(WATCHFUL)
    first.start()
    await until(lambda: _queued(stage, 3))
    first.faults.kill("table.transact", stage.store.names.tasks_table)
    async with ScriptedWorker(stage.store) as worker:
        await until(lambda: first.faults.dead)
        await first.kill()
        await stage.free_lease()
        async with stage.coordinator(WATCHFUL):
            await stage.completed(workflow_id)

    assert set(attempts(worker.executions)) == {1}


# -- the evidence


def test_one_look_at_an_empty_queue_proves_nothing() -> None:
    empty = EmptyQueues()
    empty.look({"q": 0}, 0.0, NOW)

    assert empty.proven({"q": 0}, apart_s=90, completions_empty_at=10**9) == {}


def test_two_looks_far_enough_apart_prove_it_since_the_first() -> None:
    empty = EmptyQueues()
    empty.look({"q": 0}, 0.0, NOW)
    empty.look({"q": 0}, 90.0, NOW + timedelta(seconds=90))

    assert empty.proven({"q": 0}, apart_s=90, completions_empty_at=91.0) == {"q": NOW}


def test_completions_asked_for_before_the_second_look_prove_nothing() -> None:
    empty = EmptyQueues()
    empty.look({"q": 0}, 0.0, NOW)
    empty.look({"q": 0}, 90.0, NOW)

    assert empty.proven({"q": 0}, apart_s=90, completions_empty_at=89.9) == {}


def test_a_message_seen_in_between_begins_the_proof_anew() -> None:
    empty = EmptyQueues()
    empty.look({"q": 0}, 0.0, NOW)
    empty.look({"q": 1}, 50.0, NOW)
    empty.look({"q": 0}, 90.0, NOW)

    assert empty.proven({"q": 0}, apart_s=90, completions_empty_at=10**9) == {}


def test_a_queue_that_could_not_be_counted_now_is_not_proven_empty() -> None:
    empty = EmptyQueues()
    empty.look({"q": 0}, 0.0, NOW)
    empty.look({"q": 0}, 90.0, NOW)

    assert empty.proven({}, apart_s=90, completions_empty_at=10**9) == {}


def _worker(etag: str, *executions: str) -> SeenWorker:
    record = WorkerRecord(
        worker_id="w", queue="q", host="h", pid=1, slots=3, version="1", started_at=NOW, executions=executions
    )
    return SeenWorker(record, ETag(etag))


def test_a_worker_lives_as_long_as_its_row_changes() -> None:
    workers = LiveWorkers()
    workers.look([_worker("1", "w/t000000")], 0.0)
    workers.look([_worker("2", "w/t000001")], LIVE_S - 1)
    workers.look([_worker("2", "w/t000001")], 2 * LIVE_S - 2)

    assert (workers.slots(), workers.claims()) == ({"q": 3}, frozenset({"w/t000001"}))


def test_a_worker_whose_row_stands_still_is_dead_by_the_readers_clock() -> None:
    workers = LiveWorkers()
    workers.look([_worker("1", "w/t000000")], 0.0)
    workers.look([_worker("1", "w/t000000")], LIVE_S)

    assert (workers.slots(), workers.claims()) == ({}, frozenset())


def test_a_worker_is_silent_from_the_last_change_of_its_row() -> None:
    workers = LiveWorkers()
    workers.look([_worker("1")], 0.0)
    workers.look([_worker("2")], 100.0)
    workers.look([_worker("2")], 3699.0)

    assert workers.silent_for(3600, 3699.0) == []
    assert workers.silent_for(3600, 3700.0) == ["w"]


def test_a_task_claimed_in_between_is_unclaimed_anew() -> None:
    tasks = UnclaimedTasks()
    tasks.look(["w/t000000"], 0.0)
    tasks.look([], 50.0)
    tasks.look(["w/t000000"], 100.0)

    assert not tasks.for_at_least("w/t000000", 60, 120.0)
    assert tasks.for_at_least("w/t000000", 60, 160.0)


# -- overtaken


HOUR = timedelta(hours=1)


def overtaken(*, waits: timedelta, later: int, claims: frozenset[str] = frozenset()) -> dict[str, list[TaskFailed]]:
    """What is found of one task that waits so long, while so many that were dispatched after it have ended."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    old = TaskRun(0, stored=TaskState.READY, attempt=1, ready_at=now - waits)
    ended = [
        TaskRun(number, stored=TaskState.COMPLETED, attempt=1, ready_at=now - waits + timedelta(seconds=number))
        for number in range(1, later + 1)
    ]
    run = WorkflowRun(Graph(workflow(many(later + 1))), run="r", tasks=[old, *ended])
    return overtaken_tasks({"wf": run}, claims, now=now, window=lambda queue: 5)


def test_a_task_that_two_windows_have_overtaken_for_an_hour_is_lost() -> None:
    (lost,) = overtaken(waits=HOUR, later=10)["wf"]

    assert (lost.number, lost.attempt) == (0, 1)


def test_a_task_that_waits_for_less_than_an_hour_is_not_overtaken() -> None:
    assert not overtaken(waits=HOUR - timedelta(seconds=1), later=10)


def test_a_task_that_fewer_than_two_windows_have_overtaken_is_not_lost() -> None:
    assert not overtaken(waits=HOUR, later=9)


def test_a_task_that_a_live_worker_claims_is_not_overtaken() -> None:
    assert not overtaken(waits=HOUR, later=10, claims=frozenset({"wf/t000000"}))
