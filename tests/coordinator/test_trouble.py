"""Services that refuse, fail for a while or lose replies, and workflows whose rows are broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ai4s.jobq.control.lifecycle import cancel_workflow
from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import AccessDeniedError, MessageTooLargeError, NothingSentError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.layout import ACTIVE, task_row
from ai4s.jobq.store.wire import CompletionMessage, TaskMessage, decode_queue_message, encode_completion
from tests.coordinator.stage import SHORT_LEASE, JumpingClock, Stage, attempts, counted
from tests.support.faults import Call, Faults
from tests.support.small import DIAMOND, many, workflow
from tests.support.waiting import until
from tests.support.workers import Act, ScriptedWorker, by_name

TWO_QUEUES = {"x": {"queue": "queue-x"}, "y": {"queue": "queue-y"}}


# -- sending


async def test_a_queue_that_refuses_for_good_fails_its_tasks_and_says_why(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"x": [], "y": []}, changes=TWO_QUEUES))
    faults = Faults()
    faults.refuse("queue.send", "queue-x", error=NothingSentError("no such queue"), times=10**6)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store, queues=("queue-y",)):
        header = await stage.ended(workflow_id)

    assert (header.state, header.counts) == (WorkflowState.FAILED, counted(failed=1, completed=1))
    record = await stage.task(workflow_id, 0)
    assert (record.run.cause, "queue 'queue-x'" in record.error) == ("dispatch", True)


async def test_a_refusal_counts_although_another_queue_is_in_trouble_at_the_same_time(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"x": [], "y": []}, changes=TWO_QUEUES))
    faults = Faults()
    faults.refuse("queue.send", "queue-x", error=NothingSentError("no such queue"), times=10**6)
    faults.refuse("queue.send", "queue-y")

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store, queues=("queue-y",)):
        header = await stage.ended(workflow_id)

    assert header.counts == counted(failed=1, completed=1)


async def test_a_message_that_is_too_large_fails_its_own_task_only(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(5)))
    faults = Faults()

    async def check_size(call: Call) -> None:
        messages = [decode_queue_message(body) for body in call.sent]
        if any(isinstance(message, TaskMessage) and message.task_name == "t3" for message in messages):
            raise MessageTooLargeError("message 3 is 70000 bytes")

    faults.hook("queue.send", "default", hook=check_size, times=10**6)
    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store):
        header = await stage.ended(workflow_id)

    assert header.counts == counted(completed=4, failed=1)
    assert (await stage.task(workflow_id, 3)).run.cause == "dispatch"


async def test_doubt_about_a_send_is_stored_before_the_message_is_sent_again(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(3)))
    faults = Faults()
    recheck_at_send: list[bool] = []

    async def look(_: Call) -> None:
        recheck_at_send.append((await stage.header(workflow_id)).recheck)

    faults.lose_reply("queue.send", "default")
    faults.hook("queue.send", "default", hook=look)
    async with stage.coordinator(faults=faults):
        await until(lambda: recheck_at_send)
        await until(lambda: _queued(stage, 6))

        async with ScriptedWorker(stage.store) as worker:
            await stage.completed(workflow_id)
            await until(lambda: _queued(stage, 0))

    assert recheck_at_send == [True]
    assert len(worker.executions) + len(worker.forgotten) == 6


async def _queued(stage: Stage, count: int, queue: str = "default") -> bool:
    return await stage.queued(queue) == count


async def test_a_queue_in_trouble_does_not_hold_up_the_other_queues_of_the_workflow(stage: Stage) -> None:
    """Queue x answers nothing for as long as it takes: a chain of ten on queue y runs to its end meanwhile."""
    chain = {"y0": [], **{f"y{number}": [f"y{number - 1}"] for number in range(1, 10)}}
    tasks = {**many(100, prefix="x"), **chain}
    changes = {name: {"queue": f"queue-{name[0]}"} for name in tasks}
    workflow_id = await stage.submit(workflow(tasks, changes=changes))
    faults = Faults()
    faults.refuse("queue.send", "queue-x", times=10**6)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store, queues=("queue-x", "queue-y")) as worker:
        await until(lambda: worker.runs_of("y9"))
        assert faults.count("queue.send", "queue-x") <= 3
        faults.heal()
        await stage.completed(workflow_id)

    assert set(attempts(worker.executions)) == {1}


async def test_a_queue_in_trouble_is_left_alone_when_its_tasks_are_cancelled(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"x": []}, changes={"x": {"queue": "queue-x"}}))
    faults = Faults()
    faults.refuse("queue.send", "queue-x", times=10**6)
    clock = JumpingClock()

    async with stage.coordinator(faults=faults, clock=clock):
        await until(lambda: faults.count("queue.send", "queue-x"))
        await cancel_workflow(stage.store, workflow_id, stage.clock)
        await until(lambda: _is_cancelled(stage, workflow_id))
        clock.jump(6)
        await stage.store.hint(await stage.header(workflow_id))
        await stage.ended(workflow_id)

    assert await stage.queued("queue-x") == 0


async def _is_cancelled(stage: Stage, workflow_id: str) -> bool:
    record = await stage.store.index.get(workflow_id)
    return record is not None and record.state is WorkflowState.CANCELLED


# -- the outbox of the dead


async def test_the_outbox_of_a_dead_coordinator_is_sent_with_recheck(stage: Stage) -> None:
    """It died after the commit and before the send: nobody else knows whether the messages exist."""
    workflow_id = await stage.submit(workflow(DIAMOND))
    faults = Faults()
    faults.kill("queue.send", "default")
    first = stage.new_coordinator(faults=faults)
    first.start()
    await until(lambda: faults.dead)
    await first.kill()
    assert [entry.row for entry in (await stage.header(workflow_id)).outbox] == [task_row(0)]
    await stage.free_lease()

    async with stage.coordinator(), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    assert (await stage.header(workflow_id)).recheck
    assert attempts(worker.runs_of("a")) == [1]


async def test_a_message_sent_by_the_dead_and_again_by_the_living_runs_once(stage: Stage) -> None:
    """It died after the send and before the outbox was cleared; the copy is recognised, for the first has ended."""
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    faults = Faults()
    faults.kill("queue.send", "default", after=True)
    async with ScriptedWorker(stage.store) as worker:
        first = stage.new_coordinator(faults=faults)
        first.start()
        await until(lambda: faults.dead and worker.executions)
        await first.kill()
        await stage.free_lease()
        async with stage.coordinator():
            await stage.completed(workflow_id)
        await until(lambda: _queued(stage, 0))

    assert len(worker.runs_of("b")) == 1
    assert set(attempts(worker.executions)) == {1}


async def test_an_entry_of_an_attempt_that_is_over_is_not_sent(stage: Stage) -> None:
    """The dead one's outbox lists a task whose report is waiting: the report is decided first."""
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    faults = Faults()
    faults.kill("queue.send", "default", after=True)
    first = stage.new_coordinator(faults=faults)
    first.start()
    await until(lambda: faults.dead)
    await first.kill()
    await stage.free_lease()
    async with ScriptedWorker(stage.store) as worker:
        await until(lambda: stage.completions())
        second = stage.new_coordinator()
        sent: list[str] = []

        async def note(call: Call) -> None:
            sent.extend(message.row for message in map(decode_queue_message, call.sent) if hasattr(message, "row"))

        second.faults.hook("queue.send", "default", hook=note, times=10**6)
        second.faults.refuse(
            "table.query", stage.store.names.index_table, times=10**6
        )  # no sweep: the report comes first
        second.start()
        await stage.completed(workflow_id)
        await second.stop()

    assert sent == [task_row(1)]
    assert [execution.task for execution in worker.executions] == ["a", "b"]


# -- tables


async def test_a_commit_whose_reply_is_lost_is_not_done_twice(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))
    faults = Faults()
    faults.lose_reply("table.transact", stage.store.names.tasks_table, times=3)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    assert sorted(execution.task for execution in worker.executions) == ["a", "b", "c", "d"]


async def test_everything_failing_for_a_while_is_waited_out(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(DIAMOND))
    faults = Faults()
    for kind in ("table.transact", "table.get", "table.query", "queue.receive", "queue.send", "queue.complete"):
        faults.refuse(kind, skip=3, times=2)
        faults.lose_reply(kind, skip=8)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store) as worker:
        await stage.completed(workflow_id)

    assert {execution.task for execution in worker.executions} == {"a", "b", "c", "d"}
    assert set(attempts(worker.executions)) == {1}


async def test_a_wait_for_reports_that_fails_is_told_and_repeated(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults()
    faults.refuse("queue.arrival", times=1)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store):
        await until(lambda: "receiving failed" in caplog.text)
        await stage.completed(await stage.submit(workflow()))


async def test_a_coordinator_that_is_refused_at_its_start_says_so_and_ends(stage: Stage) -> None:
    faults = Faults()
    faults.refuse("table.get", stage.store.names.index_table, error=AccessDeniedError("no role"))
    running = stage.new_coordinator(faults=faults)
    running.start()

    with pytest.raises(AccessDeniedError, match="no role"):
        await running.task


async def test_a_coordinator_that_was_let_in_once_waits_until_it_is_again(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    faults = Faults()
    faults.refuse("table.get", stage.store.names.index_table, error=AccessDeniedError("no role"), skip=1, times=3)

    async with stage.coordinator(SHORT_LEASE, faults=faults), ScriptedWorker(stage.store):
        await until(lambda: faults.count("table.get", stage.store.names.index_table) > 4)
        await stage.completed(workflow_id)


async def test_a_task_queue_that_cannot_be_counted_does_not_stop_the_sweep(stage: Stage) -> None:
    await stage.submit(workflow({"x": []}, changes={"x": {"queue": "queue-x"}}))
    faults = Faults()
    faults.refuse("queue.count", "queue-x", error=AccessDeniedError("no right to count"), times=10**6)

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store):
        await until(lambda: faults.count("queue.count", "queue-x"))
        client_faults = Faults()
        client_faults.refuse("queue.send", times=10**6)
        client = stage.store_with(client_faults)
        submission = await client.submit(workflow(), now=stage.clock.now())
        await stage.completed(submission.workflow_id)


async def test_what_a_sweep_found_before_it_failed_is_found_again(stage: Stage) -> None:
    faults = Faults()
    async with stage.coordinator(faults=faults) as running, ScriptedWorker(stage.store):
        await until(lambda: running.coordinator.is_leading)
        faults.refuse("table.query", stage.store.names.index_table, key="workers", times=2)
        client_faults = Faults()
        client_faults.refuse("queue.send", times=10**6)
        submission = await stage.store_with(client_faults).submit(workflow(), now=stage.clock.now())
        await stage.completed(submission.workflow_id)


async def test_a_lost_race_in_the_index_parks_nothing(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    faults = Faults()
    faults.refuse("table.transact", stage.store.names.index_table, key="ended", error=StaleWriteError("changed"))

    async with stage.coordinator(faults=faults), ScriptedWorker(stage.store):
        await stage.completed(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))


# -- broken workflows


async def _damage_header(stage: Stage, workflow_id: str, values: dict[str, Any]) -> None:
    await stage.store.table.transact(workflow_id, [Merge("header", values)])


@pytest.mark.parametrize("values", [{"state": "dancing"}, {"facts": "{"}, {"facts": "[" * 1000}, {"v": 7}, {"v": "1"}])
async def test_one_broken_workflow_is_parked_while_ten_others_finish(stage: Stage, values: dict[str, Any]) -> None:
    broken = await stage.submit(workflow(many(3)))
    await _damage_header(stage, broken, values)
    healthy = [await stage.submit(workflow(DIAMOND)) for _ in range(10)]

    async with stage.coordinator(), ScriptedWorker(stage.store):
        await stage.completed(*healthy)
        await until(lambda: _parked_reason(stage, broken))

    assert "Error" in await _parked_reason(stage, broken)


async def _parked_reason(stage: Stage, workflow_id: str) -> str:
    record = await stage.store.index.get(workflow_id)
    return "" if record is None else record.parked


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("t000000", {"v": 1, "state": "dancing", "life": 1, "attempt": 1, "facts": "{}"}),
        ("t000000", {"v": 1, "state": "ready", "life": 1, "attempt": 1, "facts": "nonsense"}),
        ("t000000", {"v": 1}),
        ("txyz", {"v": 1, "state": "ready", "life": 1, "attempt": 1, "facts": "{}"}),
    ],
)
async def test_a_workflow_with_a_damaged_task_row_is_parked(stage: Stage, row: str, values: dict[str, Any]) -> None:
    broken = await stage.submit(workflow(many(3)))
    await stage.store.table.transact(broken, [Merge(row, values)])
    healthy = await stage.submit(workflow(DIAMOND))

    async with stage.coordinator(), ScriptedWorker(stage.store):
        await stage.completed(healthy)
        await until(lambda: _parked_reason(stage, broken))

    assert "CorruptRecordError" in await _parked_reason(stage, broken)


async def test_a_parked_workflow_makes_no_busy_loop(stage: Stage) -> None:
    broken = await stage.submit(workflow(many(3)))
    await _damage_header(stage, broken, {"facts": "{"})

    async with stage.coordinator() as running:
        await until(lambda: _parked_reason(stage, broken))
        for _ in range(5):
            await stage.store.index.poke(broken)
        before = running.faults.count("table.query", stage.store.names.index_table)
        await until(lambda: running.faults.count("table.query", stage.store.names.index_table) > before + 10)
        assert running.faults.count("table.get", stage.store.names.tasks_table) <= 2


async def test_a_parked_workflow_goes_on_after_ten_minutes_when_it_has_been_mended(stage: Stage) -> None:
    clock = JumpingClock()
    workflow_id = await stage.submit(workflow(many(3)))
    entity = await stage.store.table.get(workflow_id, "header")
    assert entity is not None
    await _damage_header(stage, workflow_id, {"facts": "{"})

    async with stage.coordinator(SHORT_LEASE, clock=clock), ScriptedWorker(stage.store):
        await until(lambda: _parked_reason(stage, workflow_id))
        await _damage_header(stage, workflow_id, dict(entity.values))
        clock.jump(601)
        await stage.completed(workflow_id)


async def test_a_parked_workflow_holds_no_room_on_its_queue(stage: Stage) -> None:
    """32 of its tasks are out when it breaks, which is all a queue without known workers takes."""
    broken = await stage.submit(workflow(many(40)))
    run = (await stage.header(broken)).run
    async with stage.coordinator():
        await until(lambda: _queued(stage, 32))
        await _damage_header(stage, broken, {"facts": "{"})
        await put_hint(stage, broken, run)
        await until(lambda: _parked_reason(stage, broken))

        other = await stage.submit(workflow(many(3, prefix="o")))
        await until(lambda: _queued(stage, 35))

    assert (await stage.header(other)).counts == counted(ready=3)


async def put_hint(stage: Stage, workflow_id: str, run: str) -> None:
    body = encode_completion(CompletionMessage(store=stage.store.name, workflow_id=workflow_id, run=run))
    queue = stage.services.queue(stage.store.names.completion_queue)
    await queue.send([OutgoingMessage(body=body, message_id=new_nonce())])


async def test_a_damaged_index_row_is_mended_and_stops_no_sweep(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    await stage.store.index.table.transact(ACTIVE, [Merge(workflow_id, {"counts": "{", "state": "dancing"})])
    hold = asyncio.Event()

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": Act(first=hold.wait)})):
        await until(lambda: _is_readable(stage, workflow_id))
        hold.set()
        await stage.completed(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))


async def _is_readable(stage: Stage, workflow_id: str) -> bool:
    return workflow_id in await stage.active_ids()


async def test_an_index_row_of_a_newer_release_stops_no_sweep_and_is_left_alone(stage: Stage) -> None:
    await stage.store.index.table.transact(ACTIVE, [Merge("newer", {"v": 9, "shape": "unknown"})])
    client_faults = Faults()
    client_faults.refuse("queue.send", times=10**6)

    async with stage.coordinator(), ScriptedWorker(stage.store):
        submission = await stage.store_with(client_faults).submit(workflow(), now=stage.clock.now())
        await stage.completed(submission.workflow_id)

    entity = await stage.store.index.table.get(ACTIVE, "newer")
    assert entity is not None
    assert entity.values == {"v": 9, "shape": "unknown"}


async def test_reports_of_a_parked_workflow_wait_for_it(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(2)))
    async with stage.coordinator() as running:
        await until(lambda: _queued(stage, 2))
        await until(lambda: _outbox_is_clear(stage, workflow_id))
        await stage.store.table.transact(workflow_id, [Merge("t000001", {"facts": "{"})])
        await _damage_header(stage, workflow_id, {"rev": 99})  # so that the coordinator reads again

        async with ScriptedWorker(stage.store):
            await until(lambda: running.faults.count("queue.abandon") >= 1)

        assert await stage.completions() >= 1


async def _outbox_is_clear(stage: Stage, workflow_id: str) -> bool:
    return not (await stage.header(workflow_id)).outbox
