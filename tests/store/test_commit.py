"""Commits: decisions in transactions that Azure takes, in the right order, all guarded by the header."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ai4s.jobq.definition.parts import Job
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import Cause, Decision, Event, Room, TaskFailed, TaskSucceeded
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import InternalError, StaleWriteError, StorageUnavailableError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.commit import commit, write
from ai4s.jobq.store.layout import HEADER, task_row
from ai4s.jobq.store.records import OutboxEntry
from ai4s.jobq.store.workflows import MAX_BYTES, MAX_ROWS, LoadedRun, StoredHeader, WorkflowStore, transactions
from tests.support.faults import Faults
from tests.support.small import DIAMOND, many, workflow

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def loaded_run(store: WorkflowStore, tasks: dict[str, list[str]]) -> LoadedRun:
    await store.submit(workflow(tasks), now=NOW, workflow_id="w")
    loaded = await store.load("w")
    assert loaded is not None
    return loaded


async def settle(store: WorkflowStore, loaded: LoadedRun, *events: Event, room: int = 10_000) -> Decision:
    decision = decide(loaded.run, events, now=NOW, room=Room(queues={"default": room}, dispatches=room))
    await commit(store.table, loaded, decision, now=NOW, outbox=(), owner="me")
    return decision


def success(loaded: LoadedRun, number: int, output: str | None = None) -> TaskSucceeded:
    return TaskSucceeded(run=loaded.header.run, number=number, life=1, attempt=1, execution="1-x", output=output)


async def assert_agrees_with_the_table(store: WorkflowStore, loaded: LoadedRun) -> None:
    stored = await store.load("w")
    assert stored is not None
    assert (stored.header, stored.etag) == (loaded.header, loaded.etag)
    assert [task.state for task in stored.run.tasks] == [task.state for task in loaded.run.tasks]
    assert stored.run.counts == loaded.header.counts


async def test_a_run_agrees_with_the_table_after_each_commit(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, DIAMOND)
    for number in (None, 0, 1, 2, 3):
        events = [] if number is None else [success(loaded, number, '{"x": 1}')]
        await settle(store, loaded, *events)
        await assert_agrees_with_the_table(store, loaded)

    assert loaded.header.state is WorkflowState.COMPLETED


async def test_dispatches_are_in_the_outbox_of_their_own_commit(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, many(3))
    await settle(store, loaded)

    assert loaded.header.outbox == tuple(OutboxEntry(task_row(number), 1, "me") for number in range(3))


async def test_the_outbox_keeps_the_order_of_dispatch(store: WorkflowStore) -> None:
    """B6: the more urgent task is sent first."""
    definition = workflow(many(3), changes={"t0": {"priority": -1}, "t2": {"priority": 1}})
    await store.submit(definition, now=NOW, workflow_id="w")
    loaded = await store.load("w")
    assert loaded is not None
    await settle(store, loaded)

    assert [entry.row for entry in loaded.header.outbox] == [task_row(2), task_row(1), task_row(0)]


async def test_more_rows_than_a_transaction_takes_are_cut(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    loaded = await loaded_run(store, many(250))
    await settle(faulty, loaded)

    sizes = [len(call.keys) - 1 for call in faults.calls if call.kind == "table.transact"]
    assert sizes == [MAX_ROWS + 1, MAX_ROWS + 1, 250 - 2 * MAX_ROWS + 1]
    assert all(call.keys[-1] == HEADER for call in faults.calls if call.kind == "table.transact")
    await assert_agrees_with_the_table(store, loaded)


async def test_more_bytes_than_a_transaction_takes_are_cut(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    loaded = await loaded_run(store, many(95))
    await settle(store, loaded)
    output = '"' + "x" * 32_000 + '"'
    await settle(faulty, loaded, *(success(loaded, number, output) for number in range(95)))

    assert faults.count("table.transact") == 2
    await assert_agrees_with_the_table(store, loaded)


def test_parts_hold_no_more_bytes_than_allowed() -> None:
    rows = [Merge(task_row(number), {"output": b"x" * 60_000}) for number in range(200)]
    parts = transactions(rows, reserve_bytes=32_000)

    assert [row for part in parts for row in part] == rows
    assert all(60_000 * len(part) <= MAX_BYTES - 32_000 for part in parts)


def test_nothing_to_cut_is_no_part() -> None:
    assert transactions([], reserve_bytes=0) == []


async def test_rows_of_ended_tasks_are_stored_before_rows_of_ready_ones(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    parents = many(120)
    children = {f"c{number}": [f"t{number}"] for number in range(120)}
    loaded = await loaded_run(store, {**parents, **children})
    await settle(store, loaded)
    await settle(faulty, loaded, *(success(loaded, number) for number in range(120)))

    rows = [row for call in faults.calls if call.kind == "table.transact" for row in call.keys[1:] if row != HEADER]
    assert rows == [task_row(number) for number in range(240)]


async def test_the_end_of_a_run_is_only_in_its_last_transaction(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    """The first of two transactions is stored, the second is not: the workflow has not ended."""
    loaded = await loaded_run(store, many(150))
    await settle(store, loaded)
    faults.refuse("table.transact", skip=1)
    with pytest.raises(StorageUnavailableError):
        await settle(faulty, loaded, *(success(loaded, number) for number in range(150)))

    stored = await store.load("w")
    assert stored is not None
    assert (stored.header.state, stored.header.ended_at) == (WorkflowState.RUNNING, None)
    assert stored.run.counts == {TaskState.COMPLETED: MAX_ROWS, TaskState.READY: 150 - MAX_ROWS}


async def test_the_same_reports_finish_what_a_crash_between_two_transactions_left(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    tasks = {**many(150), "join": list(many(150))}
    loaded = await loaded_run(store, tasks)
    await settle(store, loaded)
    faults.refuse("table.transact", skip=1)
    events = [success(loaded, number) for number in range(150)]
    with pytest.raises(StorageUnavailableError):
        await settle(faulty, loaded, *events)

    stored = await store.load("w")
    assert stored is not None
    decision = await settle(store, stored, *events)

    assert [dispatch.number for dispatch in decision.dispatches] == [150]
    await assert_agrees_with_the_table(store, stored)


async def test_an_outbox_of_a_crash_between_two_transactions_lists_what_its_rows_say(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    loaded = await loaded_run(store, many(150))
    faults.refuse("table.transact", skip=1)
    with pytest.raises(StorageUnavailableError):
        await settle(faulty, loaded)

    stored = await store.load("w")
    assert stored is not None
    assert [entry.row for entry in stored.header.outbox] == [task_row(number) for number in range(MAX_ROWS)]
    assert stored.run.counts == {TaskState.READY: MAX_ROWS, TaskState.PENDING: 150 - MAX_ROWS}


async def test_a_lost_reply_that_the_adapter_repeated_is_a_success(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    loaded = await loaded_run(store, DIAMOND)
    faults.lose_reply("table.transact", error=StaleWriteError("changed"))

    await settle(faulty, loaded)

    await assert_agrees_with_the_table(store, loaded)


async def test_a_commit_on_a_header_that_somebody_else_changed_is_stale(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, DIAMOND)
    other = await store.load("w")
    assert other is not None
    await settle(store, other)

    with pytest.raises(StaleWriteError):
        await settle(store, loaded)
    await assert_agrees_with_the_table(store, other)


async def test_a_commit_on_a_workflow_that_was_purged_is_stale(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, DIAMOND)
    await store.table.drop()

    with pytest.raises(StaleWriteError):
        await settle(store, loaded)


async def test_a_commit_on_another_submission_of_the_same_id_is_stale(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, DIAMOND)
    await store.table.drop()
    await store.submit(workflow(DIAMOND), now=NOW, workflow_id="w")

    with pytest.raises(StaleWriteError):
        await settle(store, loaded)


async def test_a_header_that_would_not_fit_is_not_written(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, DIAMOND)
    large = replace(loaded.header, name="x" * 20_000, commit=new_nonce())

    with pytest.raises(InternalError, match="grown"):
        await write(store.table, StoredHeader(loaded.header, loaded.etag), large)


async def test_a_failure_keeps_what_is_told_to_people(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, {"a": []})
    await settle(store, loaded)
    failed = TaskFailed(
        run=loaded.header.run,
        number=0,
        life=1,
        attempt=1,
        execution="1-x",
        worker="h-1",
        at=NOW + timedelta(seconds=5),
        cause=Cause.EXIT,
        exit_code=3,
        error="é" * 500_000,
    )
    await settle(store, loaded, failed)

    record = await store.task("w", task_row(0))
    assert record is not None
    assert (record.state, record.run.exit_code, record.run.worker) == (TaskState.FAILED, 3, "h-1")
    assert "bytes left out" in record.error
    assert [attempt["exit_code"] for attempt in record.history] == [3]


async def test_counts_are_exact_for_more_rows_than_a_page_holds(store: WorkflowStore) -> None:
    loaded = await loaded_run(store, many(2500))
    await settle(store, loaded)

    stored = await store.load("w")
    assert stored is not None
    assert stored.run.counts == {TaskState.READY: 2500}
    assert len([record async for record in store.tasks("w", life=1)]) == 2500


async def test_the_rows_of_undo_jobs_and_hooks_are_read_like_those_of_tasks(store: WorkflowStore) -> None:
    """B7: a worker looks at the row of whatever it was sent when a message may exist twice."""
    undo = Job(kwargs={"cmd": "true"})
    definition = workflow({"a": [], "b": ["a"]}, changes={"a": {"undo": undo}}, on_end=undo)
    await store.submit(definition, now=NOW, workflow_id="w")
    loaded = await store.load("w")
    assert loaded is not None
    await settle(store, loaded)
    await settle(store, loaded, success(loaded, 0))
    failure = TaskFailed(run=loaded.header.run, number=1, life=1, attempt=1, execution="1-x", cause=Cause.EXIT)
    await settle(store, loaded, failure)
    await settle(store, loaded, success(loaded, 2))

    undone, hook = await store.task("w", "u000000"), await store.task("w", "h000000")
    assert undone is not None
    assert (undone.state, undone.attempt) == (TaskState.COMPLETED, 1)
    assert hook is not None
    assert (hook.state, hook.attempt) == (TaskState.READY, 1)
