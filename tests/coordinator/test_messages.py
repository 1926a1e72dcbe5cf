"""What the coordinator makes of the messages on its queue: copies, old ones, strange ones, and ones of others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import Cause, Room, TaskFailed
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name, read_dead_letter
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.commit import commit, write
from ai4s.jobq.store.wire import CompletionMessage, Outcome, Report, encode_completion
from tests.coordinator.stage import Stage, attempts, counted
from tests.support.small import DIAMOND, workflow
from tests.support.waiting import until
from tests.support.workers import FAIL, Act, ScriptedWorker, always, by_name, post_report


def report(number: int = 0, *, attempt: int = 1, life: int = 1, outcome: Outcome = Outcome.SUCCEEDED) -> Report:
    return Report(row=f"t{number:06d}", life=life, attempt=attempt, execution=f"{attempt}-test", outcome=outcome)


async def put(stage: Stage, body: str) -> None:
    queue = stage.services.queue(stage.store.names.completion_queue)
    await queue.send([OutgoingMessage(body=body, message_id=new_nonce())])


async def none_left(stage: Stage) -> bool:
    return await stage.completions() == 0


async def test_three_copies_of_every_report_change_nothing(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND, changes={"b": {"num_retries": 1}}))
    script = by_name({"b": [replace(FAIL, copies=3), Act(copies=3)]}, otherwise=Act(copies=3))

    async with stage.coordinator(), ScriptedWorker(stage.store, script) as worker:
        await stage.completed(workflow_id)
        await until(lambda: none_left(stage))

    assert sorted(execution.task for execution in worker.executions) == ["a", "b", "b", "c", "d"]
    assert (await stage.header(workflow_id)).counts == counted(completed=4)


@pytest.mark.parametrize("late", [Outcome.FAILED, Outcome.STARTED, Outcome.SUCCEEDED])
async def test_a_report_after_the_outcome_changes_nothing(stage: Stage, late: Outcome) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    run = (await stage.header(workflow_id)).run

    async with stage.coordinator():
        await until(lambda: _is_ready(stage, 1))
        await post_report(stage.store, workflow_id, run, report())
        await until(lambda: _is_ready(stage, 2))
        await post_report(stage.store, workflow_id, run, report(outcome=late))
        await until(lambda: none_left(stage))

    assert await stage.states(workflow_id) == {"a": TaskState.COMPLETED, "b": TaskState.READY}
    assert (await stage.task(workflow_id, 0)).attempt == 1


async def _is_ready(stage: Stage, messages: int) -> bool:
    return await stage.queued() == messages


async def test_the_end_before_the_start_counts_and_the_start_after_it_does_not(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    run = (await stage.header(workflow_id)).run
    running = stage.new_coordinator()
    ended = encode_completion(
        CompletionMessage(
            store=stage.store.name,
            workflow_id=workflow_id,
            run=run,
            reports=[
                report(),
                report(outcome=Outcome.STARTED),
            ],
        )
    )

    running.start()
    await until(lambda: _is_ready(stage, 1))
    await put(stage, ended)
    await stage.completed(workflow_id)
    await running.stop()

    assert (await stage.header(workflow_id)).counts == counted(completed=1)


async def test_a_failure_of_an_earlier_attempt_does_not_touch_the_present_one(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(changes={"a": {"num_retries": 5}}))
    run = (await stage.header(workflow_id)).run

    async with stage.coordinator():
        await until(lambda: _is_ready(stage, 1))
        for _ in range(3):
            await post_report(stage.store, workflow_id, run, report(outcome=Outcome.FAILED))
        await until(lambda: none_left(stage))

    assert (await stage.task(workflow_id, 0)).attempt == 2


async def test_reports_about_an_unknown_workflow_are_acknowledged(stage: Stage) -> None:
    async with stage.coordinator():
        await post_report(stage.store, "nobody", "f" * 16, report())
        await until(lambda: none_left(stage))

    assert await stage.services.table(stage.store.names.tasks_table).get("nobody", "header") is None


async def test_reports_of_an_earlier_submission_of_the_same_id_change_nothing(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(), "again")

    async with stage.coordinator():
        await until(lambda: _is_ready(stage, 1))
        await post_report(stage.store, workflow_id, "0" * 16, report())
        await until(lambda: none_left(stage))

    assert await stage.states(workflow_id) == {"a": TaskState.READY}


@pytest.mark.parametrize("row", ["header", "t", "t²", "t" + "9" * 5000, "t000007", "t999999", "d:x:1", "", "ü"])
async def test_a_report_about_no_task_is_acknowledged_and_holds_up_nobody(stage: Stage, row: str) -> None:
    workflow_id = await stage.submit(workflow())
    run = (await stage.header(workflow_id)).run

    async with stage.coordinator():
        await until(lambda: _is_ready(stage, 1))
        await post_report(stage.store, workflow_id, run, replace(report(attempt=7), row=row))
        await post_report(stage.store, workflow_id, run, report())
        await stage.completed(workflow_id)
        await until(lambda: none_left(stage))


@pytest.mark.parametrize(
    "body",
    [
        "hello",
        "[]",
        "{}",
        '{"v": 1}',
        '{"v": 0, "store": "x"}',
        '{"z": "AAAA"}',
        "ÿ" * 20_000,
        json.dumps({"v": 1, "store": "local/Test", "workflow": "no/such#key", "run": "x", "reports": []}),
    ],
)
async def test_an_unreadable_completion_is_set_aside_with_a_reason(stage: Stage, body: str) -> None:
    workflow_id = await stage.submit(workflow())
    await put(stage, body)

    async with stage.coordinator() as running, ScriptedWorker(stage.store):
        await stage.completed(workflow_id)
        await until(lambda: running.coordinator.stats.dead_lettered == 1)

    failed = stage.services.queue(dead_letter_queue_name(stage.store.names.completion_queue))
    [message] = await failed.receive(1, visibility_s=30)
    assert read_dead_letter(message.body).reason


async def test_a_completion_of_a_newer_release_is_left_alone(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    await put(stage, json.dumps({"v": 2, "shape": "unknown"}))

    async with stage.coordinator() as running, ScriptedWorker(stage.store):
        await until(lambda: running.faults.count("queue.abandon") == 1)
        await stage.completed(workflow_id)

    assert await stage.completions() == 1
    assert running.coordinator.stats.dead_lettered == 0


async def test_a_completion_of_another_store_is_left_alone(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    run = (await stage.header(workflow_id)).run
    foreign = CompletionMessage(store="elsewhere/Test", workflow_id=workflow_id, run=run, reports=[report()])

    async with stage.coordinator() as running:
        await until(lambda: _is_ready(stage, 1))
        await put(stage, encode_completion(foreign))
        await until(lambda: running.faults.count("queue.abandon") == 1)

    assert await stage.completions() == 1
    assert await stage.states(workflow_id) == {"a": TaskState.READY}


async def test_trouble_with_a_message_set_aside_does_not_hold_up_the_ones_behind_it(stage: Stage) -> None:
    running = stage.new_coordinator()
    running.faults.refuse("queue.dead_letter", times=10**6)
    workflow_id = await stage.submit(workflow())
    running.start()
    await until(lambda: _is_ready(stage, 1))
    run = (await stage.header(workflow_id)).run
    completion = CompletionMessage(store=stage.store.name, workflow_id=workflow_id, run=run, reports=[report()])
    queue = stage.services.queue(stage.store.names.completion_queue)

    bodies = ["junk", encode_completion(completion)]
    await queue.send([OutgoingMessage(body=body, message_id=new_nonce()) for body in bodies])

    await stage.completed(workflow_id)
    await running.stop()


async def test_a_stale_cache_does_not_eat_the_completion_of_a_newer_attempt(stage: Stage) -> None:
    """Coordinator A knows attempt 1; B, active at the same time, has dispatched attempt 2, whose report goes to A."""
    workflow_id = await stage.submit(workflow(changes={"a": {"num_retries": 1}}))
    run = (await stage.header(workflow_id)).run
    async with stage.coordinator(owner="A") as first:
        await until(lambda: _is_ready(stage, 1))
        await until(lambda: _outbox_is_empty(stage, workflow_id))
        await _another_coordinator_retries(stage, workflow_id)

        await post_report(stage.store, workflow_id, run, report(attempt=2))

        await stage.completed(workflow_id)
        assert first.coordinator.stats.dead_lettered == 0

    assert (await stage.task(workflow_id, 0)).attempt == 2


async def test_a_stale_cache_does_not_eat_a_report_it_takes_for_a_duplicate(stage: Stage) -> None:
    """The report is of the attempt A knows, but A's header is stale: A has to look before it acknowledges."""
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    run = (await stage.header(workflow_id)).run
    async with stage.coordinator(owner="A"):
        await until(lambda: _is_ready(stage, 1))
        await until(lambda: _outbox_is_empty(stage, workflow_id))
        await _touch(stage, workflow_id)

        await post_report(stage.store, workflow_id, run, report())

        await until(lambda: _is_ready(stage, 2))

    assert (await stage.states(workflow_id))["a"] is TaskState.COMPLETED


async def _outbox_is_empty(stage: Stage, workflow_id: str) -> bool:
    return not (await stage.header(workflow_id)).outbox


async def _touch(stage: Stage, workflow_id: str) -> None:
    stored = await stage.store.read_header(workflow_id)
    assert stored is not None
    await write(stage.store.table, stored, replace(stored.header, rev=stored.header.rev + 1, commit=new_nonce()))


async def _another_coordinator_retries(stage: Stage, workflow_id: str) -> None:
    """What a second coordinator commits when attempt 1 fails."""
    loaded = await stage.store.load(workflow_id)
    assert loaded is not None
    failed = TaskFailed(run=loaded.header.run, number=0, life=1, attempt=1, cause=Cause.EXIT)
    now = stage.clock.now()
    decision = decide(loaded.run, [failed], now=now, room=Room(queues={"default": 9}, dispatches=9))
    await commit(stage.store.table, loaded, decision, now=now, outbox=(), owner="B")


async def test_completions_that_come_while_nobody_leads_wait(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))
    async with ScriptedWorker(stage.store, always(Act(copies=2))):
        async with stage.coordinator():
            await until(lambda: _has_completed(stage, workflow_id))
        async with stage.coordinator():
            await stage.completed(workflow_id)


async def _has_completed(stage: Stage, workflow_id: str) -> bool:
    return (await stage.header(workflow_id)).counts.get(TaskState.COMPLETED, 0) > 0


async def test_attempt_numbers_have_no_gaps_after_many_failures(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(changes={"a": {"num_retries": 10}}))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": replace(FAIL, copies=2)})) as worker:
        await stage.ended(workflow_id)

    assert attempts(worker.executions) == list(range(1, 12))
