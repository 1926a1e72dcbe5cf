"""Submit: the whole workflow or nothing, once per id, however many say it at the same time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import EntityExistsError, StorageUnavailableError, UsageError, WorkflowExistsError
from ai4s.jobq.store import workflows
from ai4s.jobq.store.layout import ACTIVE
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import decode_completion
from ai4s.jobq.store.workflows import Submission, WorkflowStore
from tests.store.test_index import ended_header
from tests.support.faults import Call, Faults
from tests.support.small import DIAMOND, many, workflow

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def header_of(store: WorkflowStore, workflow_id: str) -> Header:
    header = await store.header(workflow_id)
    assert header is not None
    return header


async def test_a_submitted_workflow_is_pending_with_all_its_tasks(store: WorkflowStore) -> None:
    submission = await store.submit(workflow(DIAMOND), now=NOW)
    header = await header_of(store, submission.workflow_id)

    assert submission == Submission(header.workflow_id, header.run, created=True)
    assert (header.state, header.task_count, header.created_at) == (WorkflowState.PENDING, 4, NOW)
    assert await store.definition(submission.workflow_id, submission.run) == workflow(DIAMOND)


async def test_a_submitted_workflow_is_in_the_index(store: WorkflowStore) -> None:
    submission = await store.submit(workflow(DIAMOND), now=NOW)

    [record] = [record async for record in store.index.active()]
    assert (record.workflow_id, record.run, record.task_count) == (submission.workflow_id, submission.run, 4)


async def test_a_submit_leaves_a_hint(store: WorkflowStore) -> None:
    submission = await store.submit(workflow(), now=NOW)

    [message] = await store.services.queue(store.names.completion_queue).receive(10, visibility_s=30)
    assert decode_completion(message.body).workflow_id == submission.workflow_id


async def test_a_private_submit_leaves_no_hint(store: WorkflowStore) -> None:
    submission = await store.submit(workflow(), now=NOW, private="me")

    assert await store.services.queue(store.names.completion_queue).approximate_count() == 0
    assert (await header_of(store, submission.workflow_id)).private == "me"


async def test_a_hint_that_cannot_be_sent_does_not_matter(faulty: WorkflowStore, faults: Faults) -> None:
    faults.refuse("queue.send", times=10)

    assert (await faulty.submit(workflow(), now=NOW)).created


async def test_the_same_definition_again_changes_nothing(store: WorkflowStore) -> None:
    first = await store.submit(workflow(DIAMOND), now=NOW, workflow_id="w")
    stored = await store.read_header("w")
    second = await store.submit(workflow(DIAMOND), now=NOW, workflow_id="w")

    assert second == Submission("w", first.run, created=False)
    assert await store.read_header("w") == stored


async def test_another_definition_under_the_same_id_is_refused(store: WorkflowStore) -> None:
    first = await store.submit(workflow(DIAMOND), now=NOW, workflow_id="w")

    with pytest.raises(WorkflowExistsError, match="'w'"):
        await store.submit(workflow(), now=NOW, workflow_id="w")
    assert (await header_of(store, "w")).run == first.run


@pytest.mark.parametrize("workflow_id", ["", "a/b", "x" * 65, "ü", ".."])
async def test_an_id_that_no_row_can_have_is_refused(store: WorkflowStore, workflow_id: str) -> None:
    with pytest.raises(UsageError):
        await store.submit(workflow(), now=NOW, workflow_id=workflow_id)


async def test_a_random_id_that_is_taken_is_drawn_again(store: WorkflowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.submit(workflow(DIAMOND), now=NOW, workflow_id="taken")
    await store.submit(workflow(), now=NOW, workflow_id="same")
    ids = iter(["taken", "same", "free"])
    monkeypatch.setattr(workflows, "new_workflow_id", lambda: next(ids))

    assert (await store.submit(workflow(), now=NOW)).workflow_id == "free"


async def test_of_twenty_submits_of_one_id_at_the_same_time_one_creates_it(store: WorkflowStore) -> None:
    submissions = await asyncio.gather(*(store.submit(workflow(DIAMOND), now=NOW, workflow_id="w") for _ in range(20)))

    assert sum(submission.created for submission in submissions) == 1
    assert {submission.run for submission in submissions} == {(await header_of(store, "w")).run}


async def test_of_twenty_different_submits_of_one_id_one_wins_and_the_index_speaks_of_it(store: WorkflowStore) -> None:
    results = await asyncio.gather(
        *(store.submit(workflow(many(number + 1)), now=NOW, workflow_id="w") for number in range(20)),
        return_exceptions=True,
    )

    [winner] = [result for result in results if isinstance(result, Submission)]
    assert sum(isinstance(result, WorkflowExistsError) for result in results) == 19
    header = await header_of(store, "w")
    [record] = [record async for record in store.index.active()]
    assert (winner.run, record.run, record.task_count) == (header.run, header.run, header.task_count)


async def test_a_submit_that_comes_second_leaves_no_active_row_of_an_ended_workflow(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    """Between its look and its first write another submit of the id was quicker, and its workflow has ended."""

    async def be_quicker(_: Call) -> None:
        await store.submit(workflow(DIAMOND), now=NOW, workflow_id="w")
        await ended_header(store, "w")

    faults.hook("table.transact", store.names.index_table, hook=be_quicker)

    with pytest.raises(WorkflowExistsError):
        await faulty.submit(workflow(), now=NOW, workflow_id="w")

    assert await store.index.table.get(ACTIVE, "w") is None


async def test_a_lost_reply_that_the_adapter_repeated_is_a_success(faulty: WorkflowStore, faults: Faults) -> None:
    """An adapter that sends a transaction twice reports that the row is there already: it is ours."""
    faults.lose_reply("table.transact", faulty.names.tasks_table, error=EntityExistsError("there"))

    assert (await faulty.submit(workflow(), now=NOW, workflow_id="w")).created


async def test_a_lost_reply_to_one_of_many_chunks_is_a_success(
    faulty: WorkflowStore, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MAX_ROWS", 1)
    faults.lose_reply("table.transact", faulty.names.tasks_table, error=EntityExistsError("there"), times=2)
    definition = workflow(many(3000), changes={name: {"kwargs": {"cmd": "x" * 200}} for name in many(3000)})

    submission = await faulty.submit(definition, now=NOW, workflow_id="w")

    assert submission.created
    assert faults.count("table.transact", faulty.names.tasks_table) > 2
    assert await faulty.definition("w", submission.run) == definition


async def test_the_header_comes_after_all_chunks(
    faulty: WorkflowStore, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MAX_ROWS", 1)
    definition = workflow(many(3000), changes={name: {"kwargs": {"cmd": "x" * 200}} for name in many(3000)})
    await faulty.submit(definition, now=NOW, workflow_id="w")

    writes = [call.keys[1:] for call in faults.calls if call.kind == "table.transact" and call.keys[0] == "w"]
    assert [("header" in keys) for keys in writes] == [False] * (len(writes) - 1) + [True]


async def test_trouble_during_a_submit_is_told_and_the_submit_can_be_repeated(
    faulty: WorkflowStore, faults: Faults
) -> None:
    faults.lose_reply("table.transact", faulty.names.tasks_table)

    with pytest.raises(StorageUnavailableError):
        await faulty.submit(workflow(), now=NOW, workflow_id="w")
    assert not (await faulty.submit(workflow(), now=NOW, workflow_id="w")).created


async def test_fifty_thousand_tasks_are_submitted_in_a_few_requests(faulty: WorkflowStore, faults: Faults) -> None:
    submission = await faulty.submit(workflow(many(50_000)), now=NOW)

    assert submission.created
    assert faults.count("table.transact") <= 3
