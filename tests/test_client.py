"""B1, B10, B11, A15-A17: the client, against a local store in which nothing but the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.definition.load import from_mapping
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import (
    NothingToRetryError,
    OperationalError,
    WaitTimeoutError,
    WorkflowExistsError,
    WorkflowNotFoundError,
)
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.table import Table
from ai4s.jobq.store import commit as commit_module
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.status import WorkflowStatus
from tests.support.acting import failed, play, started, succeeded

NOW = SystemClock().now


CHAIN = from_mapping(
    {
        "name": "chain",
        "default_queue": "cpu",
        "tasks": [
            {"name": "a"},
            {"name": "b", "depends_on": ["a"], "num_retries": 1, "queue": "gpu"},
            {"name": "c", "depends_on": ["b"]},
            {"name": "d", "depends_on": ["c"]},
        ],
    }
)


async def failed_chain(store: WorkflowStore, client: WorkflowClient, workflow_id: str = "w") -> None:
    """``a`` completed, ``b`` failed twice, ``c`` and ``d`` are upstream_failed, all has ended."""
    await client.submit(CHAIN, workflow_id=workflow_id)
    await play(store, workflow_id)
    await succeeded(store, workflow_id, 0, '{"x": 1}')
    await failed(store, workflow_id, 1)
    await failed(store, workflow_id, 1)


def states(status: WorkflowStatus) -> dict[str, str]:
    assert status.tasks is not None
    return {name: str(task.status) for name, task in status.tasks.items()}


async def test_a_submitted_workflow_is_pending(client: WorkflowClient) -> None:
    submission = await client.submit(CHAIN)

    status = await client.status(submission.workflow_id)

    assert submission.created
    assert status.status is WorkflowState.PENDING
    assert set(states(status).values()) == {"pending"}
    assert (status.default_queue, status.queues_used) == ("cpu", ("cpu", "gpu"))


async def test_the_same_definition_again_is_not_created_and_another_one_is_refused(client: WorkflowClient) -> None:
    await client.submit(CHAIN, workflow_id="w")

    assert not (await client.submit(CHAIN, workflow_id="w")).created
    with pytest.raises(WorkflowExistsError):
        await client.submit(CHAIN.with_tasks(CHAIN.tasks[:1]), workflow_id="w")


async def test_a_batch_answers_in_order(client: WorkflowClient) -> None:
    definitions = [from_mapping({"name": f"w{number}", "tasks": [{"name": "a"}]}) for number in range(30)]

    results = [result async for result in client.submit_batch(definitions, concurrency=4)]

    names = {row.workflow_id: row.name for row in await client.list_workflows()}
    assert [names[result.submission.workflow_id] for result in results if result.submission] == [
        definition.name for definition in definitions
    ]


async def test_derived_states_name_the_root_cause(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client)

    status = await client.status("w")

    assert states(status) == {"a": "completed", "b": "failed", "c": "upstream_failed", "d": "upstream_failed"}
    assert status.tasks is not None
    assert status.tasks["d"].error == "upstream task 'b' failed"
    assert (status.tasks["b"].exit_code, status.tasks["b"].attempt, status.tasks["b"].retries_remaining) == (7, 2, 0)
    assert status.tasks["a"].output == '{"x": 1}'
    assert status.error == "task 'b' (exit code 7) failed"


async def test_a_status_without_tasks_costs_one_request(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client)
    before = dict(store.services.requests)

    status = await client.status("w", include_tasks=False)

    sent = {kind: count - before.get(kind, 0) for kind, count in store.services.requests.items()}
    assert {kind: count for kind, count in sent.items() if count} == {"table.get": 1}
    assert (status.completed, status.failed, status.tasks) == (1, 3, None)


async def test_a_long_chain_below_a_failure_is_explained_at_once(store: WorkflowStore, client: WorkflowClient) -> None:
    """Each task of 5,000 names the root cause; walking up anew for each would take minutes."""
    tasks = [{"name": "t0"}] + [{"name": f"t{n}", "depends_on": [f"t{n - 1}"]} for n in range(1, 5000)]
    await client.submit(from_mapping({"name": "long", "tasks": tasks}), workflow_id="w")
    await play(store, "w")
    await failed(store, "w", 0)

    found = await client.tasks("w", status=TaskState.UPSTREAM_FAILED)

    assert len(found) == 4999
    assert {task.error for task in found} == {"upstream task 't0' failed"}


async def test_an_error_of_an_attempt_that_is_repeated_is_told(store: WorkflowStore, client: WorkflowClient) -> None:
    await client.submit(CHAIN, workflow_id="w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await failed(store, "w", 1)

    (task,) = await client.tasks("w", name_prefix="b")

    assert (task.status, task.attempt, task.error, task.completed_at) == (TaskState.READY, 2, "exit code 7", None)


async def test_cancel_halts_and_counts_what_the_engine_will_derive(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    await client.submit(CHAIN, workflow_id="w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await started(store, "w", 1)

    result = await client.cancel("w")

    header_alone, derived = await client.status("w", include_tasks=False), await client.status("w")
    assert result.changed
    assert header_alone.status is WorkflowState.CANCELLED
    assert header_alone.ended_at is None
    assert dict(header_alone.counts) == dict(derived.counts)
    assert states(derived) == {"a": "completed", "b": "running", "c": "cancelled", "d": "cancelled"}
    assert [row.status for row in await client.list_workflows()] == [WorkflowState.CANCELLED]


async def test_cancel_asks_the_coordinator_to_look(store: WorkflowStore, client: WorkflowClient) -> None:
    await client.submit(CHAIN, workflow_id="w")
    before = await store.index.get("w")

    await client.cancel("w")

    after = await store.index.get("w")
    assert before is not None
    assert after is not None
    assert after.poke != before.poke
    assert await store.services.queue(store.names.completion_queue).approximate_count() == 2  # submit's and cancel's


async def test_cancel_meets_a_commit_and_decides_anew(
    store: WorkflowStore, client: WorkflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J05: the coordinator's commit lands between the client's read and write; neither is lost."""
    await client.submit(CHAIN, workflow_id="w")
    await play(store, "w")
    await _interfere_once(monkeypatch, lambda: succeeded(store, "w", 0))

    await client.cancel("w")

    assert states(await client.status("w"))["a"] == "completed"
    assert (await client.status("w")).status is WorkflowState.CANCELLED


async def test_retry_keeps_what_completed(store: WorkflowStore, client: WorkflowClient) -> None:
    """J02."""
    await failed_chain(store, client)

    result = await client.retry("w")

    status = await client.status("w")
    assert (result.reset, result.now_ready, result.still_pending) == (3, 1, 2)
    assert status.status is WorkflowState.RUNNING
    assert states(status) == {"a": "completed", "b": "pending", "c": "pending", "d": "pending"}
    assert status.tasks is not None
    assert status.tasks["a"].output == '{"x": 1}'
    assert (status.tasks["b"].attempt, status.tasks["b"].error) == (2, None)


async def test_a_retried_workflow_is_listed_once_as_running(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client)

    await client.retry("w")

    assert [(row.workflow_id, row.status) for row in await client.list_workflows()] == [("w", WorkflowState.RUNNING)]


async def test_a_retried_workflow_can_complete(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client)
    await client.retry("w")
    await play(store, "w")
    for number in (1, 2, 3):
        await succeeded(store, "w", number)

    assert (await client.wait("w", timeout_s=60)).status is WorkflowState.COMPLETED
    with pytest.raises(NothingToRetryError):
        await client.retry("w")


@pytest.mark.parametrize("dispatched", [False, True])
async def test_retry_of_what_has_not_ended_is_refused(
    store: WorkflowStore, client: WorkflowClient, dispatched: bool
) -> None:
    """J03."""
    await client.submit(CHAIN, workflow_id="w")
    if dispatched:
        await play(store, "w")

    with pytest.raises(OperationalError, match="has not ended"):
        await client.retry("w")


async def test_two_retries_at_once_begin_one_life(
    store: WorkflowStore, client: WorkflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failed_chain(store, client)
    await _interfere_once(monkeypatch, lambda: client.retry("w"))

    with pytest.raises(OperationalError, match="has not ended"):
        await client.retry("w")

    stored = await store.header("w")
    assert stored is not None
    assert stored.life == 2


async def test_an_unknown_id_names_near_ones(client: WorkflowClient) -> None:
    await client.submit(CHAIN, workflow_id="training-1")

    for ask in (client.status, client.tasks, client.cancel, client.retry, client.wait):
        with pytest.raises(WorkflowNotFoundError) as caught:
            await ask("trainign-1")
        assert caught.value.near == ("training-1",)


async def test_wait_gives_up_after_its_time(client: WorkflowClient) -> None:
    await client.submit(CHAIN, workflow_id="w")

    with pytest.raises(TimeoutError) as caught:
        await client.wait("w", timeout_s=0.05)

    assert isinstance(caught.value, WaitTimeoutError)
    assert caught.value.exit_code == 124


async def test_wait_goes_by_the_end_and_not_by_the_state(store: WorkflowStore, client: WorkflowClient) -> None:
    """A cancelled workflow whose task still runs has not ended."""
    await client.submit(CHAIN, workflow_id="w")
    await play(store, "w")
    await started(store, "w", 0)
    await client.cancel("w")
    waiting = asyncio.create_task(client.wait("w", timeout_s=60, poll_s=0.01))
    with pytest.raises(WaitTimeoutError):
        await client.wait("w", timeout_s=0.05)
    assert not waiting.done()

    await succeeded(store, "w", 0)

    assert (await waiting).status is WorkflowState.CANCELLED


async def test_follow_tells_each_change_and_ends_with_the_workflow(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    await client.submit(from_mapping({"name": "one", "tasks": [{"name": "a"}]}), workflow_id="w")
    seen: list[dict[str, str]] = []

    async for status in client.follow("w", timeout_s=60, poll_s=0.01):
        seen.append(states(status))
        if len(seen) == 1:
            await play(store, "w")
        elif len(seen) == 2:
            await succeeded(store, "w", 0)

    assert seen == [{"a": "pending"}, {"a": "ready"}, {"a": "completed"}]


async def test_filters_and_limits_of_tasks(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client)

    async def names(**filters: object) -> list[str]:
        return [task.name for task in await client.tasks("w", **filters)]  # type: ignore[arg-type]  # as given below

    assert await names() == ["a", "b", "c", "d"]
    assert await names(status=TaskState.UPSTREAM_FAILED) == ["c", "d"]
    assert await names(queue="gpu") == ["b"]
    assert await names(name_prefix="d") == ["d"]
    assert await names(limit=2) == ["a", "b"]


async def test_tasks_read_only_the_rows_they_show(store: WorkflowStore, client: WorkflowClient) -> None:
    definition = wide(1200)
    await client.submit(definition, workflow_id="w")
    before = dict(store.services.requests)

    found = await client.tasks("w", limit=5)

    sent = {kind: count - before.get(kind, 0) for kind, count in store.services.requests.items()}
    assert len(found) == 5
    assert sum(sent.values()) <= 5


def wide(count: int) -> WorkflowDefinition:
    return from_mapping({"name": "wide", "tasks": [{"name": f"t{number}"} for number in range(count)]})


async def test_summary_counts_workflows_and_tasks(store: WorkflowStore, client: WorkflowClient) -> None:
    await failed_chain(store, client, "w1")
    await client.submit(CHAIN, workflow_id="w2")

    summary = await client.summary()

    assert summary.to_json() == {
        "workflows": {"pending": 1, "failed": 1},
        "total_tasks": 8,
        "completed_tasks": 1,
        "running_tasks": 0,
        "failed_tasks": 3,
        "pending_tasks": 4,
        "skipped_tasks": 0,
    }


async def test_list_puts_unfinished_workflows_first_and_the_newest_end_next(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    for workflow_id in ("old", "new"):
        await failed_chain(store, client, workflow_id)
    await client.submit(CHAIN, workflow_id="open")

    async def ids(**choice: object) -> list[str]:
        return [row.workflow_id for row in await client.list_workflows(**choice)]  # type: ignore[arg-type]  # as below

    assert await ids() == ["open", "new", "old"]
    assert await ids(recent=1) == ["new"]
    assert await ids(status=WorkflowState.FAILED, limit=1) == ["new"]
    assert await ids(status=WorkflowState.COMPLETED) == []


async def test_a_client_opens_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/Mine")

    async with WorkflowClient.from_environment() as client:
        await client.submit(CHAIN, workflow_id="w")
    async with WorkflowClient.from_environment("local/Mine") as client:
        assert (await client.status("w", include_tasks=False)).name == "chain"


async def _interfere_once(monkeypatch: pytest.MonkeyPatch, interfere: object) -> None:
    """Let something happen right before the next header that ``control`` writes, and only then."""
    write = commit_module.write
    pending = [interfere]

    async def interrupted(table: Table, *args: object) -> object:
        if pending:
            await pending.pop()()  # type: ignore[operator]  # one of the lambdas above
        return await write(table, *args)  # type: ignore[arg-type]  # passed on as given

    monkeypatch.setattr("ai4s.jobq.control.lifecycle.write", interrupted)
