"""A21: why is this not running? From evidence, with the one command that would help."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.control.lifecycle import cancel_workflow
from ai4s.jobq.definition.parts import Job, WaitFor
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.errors import CorruptRecordError, StorageUnavailableError, WorkflowNotFoundError
from ai4s.jobq.explain.explain import explain_workflow
from ai4s.jobq.explain.explanation import Explanation
from ai4s.jobq.owner import this_owner
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Merge, Value
from ai4s.jobq.settings import Target
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.lease import CoordinatorLease
from ai4s.jobq.store.records import Header, OutboxEntry
from ai4s.jobq.store.workers import WorkerRecord, WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.job_lookup import UnknownTaskError
from ai4s.jobq.views.signs import AT_ONCE
from tests.support.faults import Faults, FaultyServices
from tests.support.schemas import check_schema
from tests.support.small import DIAMOND, many, workflow

CLOCK = SystemClock()
COORDINATE = "ai4s-jobq workflow local/Test coordinator"
WORK = "JOBQ_WORKFLOW_PREFIX=local/Test ai4s-jobq local/default worker"
RETRY = "ai4s-jobq workflow local/Test retry w1"


class Scene:
    """One workflow, w1, in whatever state a test puts it."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.store = WorkflowStore(services, account="local", prefix="Test")
        self.faults = Faults()

    async def explain(self, task: str | None = None) -> Explanation:
        store = WorkflowStore(FaultyServices(self.services, self.faults), account="local", prefix="Test")
        return await explain_workflow(store, Target("local", "Test"), "w1", task=task, patience=AT_ONCE)

    async def submit(self, tasks: dict[str, list[str]] | None = None, *, private: str = "", **options: Any) -> Header:
        definition = workflow(DIAMOND if tasks is None else tasks, **options)
        await self.store.submit(definition, now=CLOCK.now(), workflow_id="w1", private=private)
        return await self.set_header(state=WorkflowState.RUNNING)

    async def set_header(self, **changes: Any) -> Header:
        stored = await self.store.read_header("w1")
        assert stored is not None
        header = replace(stored.header, rev=stored.header.rev + 1, commit=f"c{stored.header.rev}", **changes)
        await write(self.store.table, stored, header)
        return header

    async def set_task(self, number: int, state: TaskState, *, error: str = "", **facts: Any) -> None:
        await self.set_job(task_row(number), state, error=error, **facts)

    async def set_job(self, row: str, state: TaskState, *, error: str = "", **facts: Any) -> None:
        now = iso(CLOCK.now() - timedelta(minutes=5))
        times = {"ready_at": now} | ({"started_at": now} if state is not TaskState.READY else {})
        values: dict[str, Value] = {
            "v": 1,
            "state": str(state),
            "life": 1,
            "attempt": 1,
            "facts": json.dumps(times | facts),
            "error": error,
        }
        await self.store.table.transact("w1", [Merge(row, values)])

    async def coordinator(self) -> None:
        assert await CoordinatorLease(self.store.index.table, "leader", "host-c", CLOCK).try_hold()

    async def worker(self, *executions: str, silent: timedelta = timedelta(0), queue: str = "default") -> None:
        now = CLOCK.now()
        record = WorkerRecord(
            worker_id="worker-1",
            queue=queue,
            host="host-w",
            pid=1,
            slots=2,
            version="1",
            started_at=now,
            seen_at=now - silent,
            asked_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            executions=executions,
        )
        await WorkerRegistry(self.services, self.store.names).announce(record)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_local(tmp_path / "store") as services:
        yield Scene(services)


def texts(found: Explanation) -> list[str]:
    return [reason.text for reason in found.reasons]


async def test_without_a_coordinator_nothing_is_decided(scene: Scene) -> None:
    await scene.submit()

    found = await scene.explain()

    assert texts(found)[0] == "no coordinator is running"
    assert found.command == COORDINATE


async def test_the_last_sign_of_a_silent_coordinator_is_told(scene: Scene) -> None:
    await scene.submit()

    class Earlier(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=10)

    assert await CoordinatorLease(scene.store.index.table, "leader", "host-c", Earlier()).try_hold()

    assert texts(await scene.explain())[0] == "no coordinator is running; the last one, on host-c, was seen 10m ago"


async def test_a_queue_without_a_live_worker_is_told_with_the_command_that_helps(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.set_task(0, TaskState.READY)
    await scene.worker(silent=timedelta(minutes=7))

    found = await scene.explain()

    assert texts(found) == [
        "no live worker serves queue 'default' (the last one, on host-w, was seen 7m ago): 1 task waits for one",
        "3 tasks wait for others: 'b' for 'a' (ready for 5m)",
    ]
    assert found.command == WORK


async def test_a_task_in_line_is_told_how_busy_its_queue_is(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.set_task(0, TaskState.READY)
    await scene.worker("w2/t000000")

    found = await scene.explain("a")

    assert found.summary == "'a' (ready for 5m) is dispatched and waits for a worker of 'default'"
    (text,) = texts(found)
    assert text == (
        "'a' waits for its turn: queue 'default' has 0 messages and 1 live worker "
        "(1 of 2 slots taken, last asked at 03:04:05 UTC)"
    )
    assert found.command is None
    assert found.detail["queues"]["default"]["last_asked_at"] == "2026-01-02T03:04:05.000Z"
    assert found.detail["enqueued_min_ago"] == 5.0


async def test_a_message_that_is_still_to_be_sent_is_told(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.worker()
    await scene.set_task(0, TaskState.READY)
    await scene.set_header(outbox=(OutboxEntry(task_row(0), 1, "leader"),))

    assert texts(await scene.explain("a"))[0] == "the message of 'a' has been decided and is being sent"


async def test_a_waiting_task_is_explained_by_what_it_waits_for(scene: Scene) -> None:
    await scene.submit({"a": [], "b": ["a"], "c": ["b"], "d": ["c"]})
    await scene.coordinator()
    await scene.set_task(0, TaskState.RUNNING)
    await scene.worker("w1/t000000")

    found = await scene.explain("d")

    assert found.summary == "'d' (pending) waits: 0 of 1 parent ended"
    assert texts(found) == [
        "it waits for 'c' (pending)",
        "the chain begins at 'a' (running for 5m)",
        "'a' runs on host-w (worker worker-1)",
    ]
    assert found.detail["parents"] == {"c": "pending"}


async def test_a_chain_of_5000_is_followed(scene: Scene) -> None:
    names = [f"t{number}" for number in range(5000)]
    await scene.submit({name: names[max(number - 1, 0) : number] for number, name in enumerate(names)})
    await scene.coordinator()

    assert "the chain begins at 't0' (pending)" in texts(await scene.explain("t4999"))


async def test_a_running_task_that_nobody_claims_is_told(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.set_task(0, TaskState.RUNNING)
    await scene.worker(silent=timedelta(minutes=3))

    task, whole = await scene.explain("a"), await scene.explain()

    assert texts(task)[0].startswith("no live worker has 'a' (the last one, on host-w, was seen 3m ago): it runs again")
    assert task.command == WORK
    assert any(text.startswith("no live worker has 'a' (running for 5m): each runs again") for text in texts(whole))


async def test_max_parallelism_is_told_when_it_is_reached(scene: Scene) -> None:
    await scene.submit(many(3), max_parallelism=1)
    await scene.coordinator()
    await scene.set_task(0, TaskState.RUNNING)
    await scene.worker("w1/t000000")

    found = await scene.explain("t2")

    assert texts(found) == ["'t2' could run but for a limit: max_parallelism 1 is reached (1 task dispatched)"]
    assert "2 tasks could run but for a limit: max_parallelism 1 is reached (1 task dispatched)" in texts(
        await scene.explain()
    )


async def test_a_full_window_is_told(scene: Scene) -> None:
    await scene.submit(many(2))
    await scene.coordinator()
    await scene.set_task(0, TaskState.READY)
    await scene.worker()

    (text,) = texts(await scene.explain("t1"))
    assert text.startswith("'t1' could run but for a limit: the coordinator keeps queues shallow")


async def test_a_failed_task_is_told_with_its_error_and_its_used_retries(scene: Scene) -> None:
    await scene.submit(changes={"a": {"num_retries": 2}})
    await scene.set_task(
        0, TaskState.FAILED, error="exit code 3\nsome lines\noops", exit_code=3, cause="exit", charged=3
    )
    await scene.set_header(state=WorkflowState.FAILED, ended_at=CLOCK.now())

    found = await scene.explain("a")

    assert texts(found) == [
        "task 'a' failed (exit code 3, attempt 1): exit code 3; oops",
        "its retries are used up (2)",
    ]
    assert found.command == RETRY
    assert (found.detail["retries_used"], found.detail["retries_allowed"]) == (3, 2)
    assert found.detail["error"] == "exit code 3\nsome lines\noops"


async def test_an_upstream_failure_names_its_root_cause(scene: Scene) -> None:
    await scene.submit()
    await scene.set_task(0, TaskState.FAILED, error="exit code 3", exit_code=3, cause="exit", charged=1)
    await scene.set_header(state=WorkflowState.FAILED, ended_at=CLOCK.now())

    task, whole = await scene.explain("d"), await scene.explain()

    assert texts(task) == ["it cannot run: task 'a' failed (exit code 3, attempt 1): exit code 3"]
    assert task.detail["root_cause"] == "a"
    assert texts(whole) == [
        "task 'a' failed (exit code 3, attempt 1): exit code 3",
        "3 tasks cannot run because an earlier one failed",
    ]
    assert whole.command == RETRY


async def test_a_skipped_task_is_told_why(scene: Scene) -> None:
    await scene.submit({"a": [], "b": ["a"]}, changes={"a": {"condition": "1 == 2"}})
    await scene.coordinator()
    await scene.set_task(0, TaskState.SKIPPED, condition=False)

    assert texts(await scene.explain("a")) == ["its condition is false"]
    assert texts(await scene.explain("b")) == ["all its parents were skipped"]


async def test_a_cancelled_workflow_tells_what_is_still_being_stopped(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.set_task(0, TaskState.RUNNING)
    await scene.set_header(counts={TaskState.RUNNING: 1, TaskState.PENDING: 3})
    await scene.worker("w1/t000000")
    await cancel_workflow(scene.store, "w1", CLOCK)

    found = await scene.explain()

    assert found.status == "cancelled"
    assert texts(found)[0] == "it was cancelled, and 1 task still being stopped: workers ask every 30 s"
    assert texts(await scene.explain("a"))[0] == "'a' is being stopped: its worker asks every 30 s"
    assert texts(await scene.explain("d")) == ["the workflow was cancelled before it ended"]


async def test_a_parked_workflow_tells_the_coordinators_reason_and_no_limit(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.worker()
    await scene.set_header(state=WorkflowState.RUNNING)
    await scene.store.index.park("w1", "InternalError: changed 20 times")

    assert texts(await scene.explain()) == [
        "the coordinator sets it aside, for ten minutes at a time: InternalError: changed 20 times",
        "3 tasks wait for others: 'b' for 'a' (pending)",
    ]
    assert texts(await scene.explain("a")) == [
        "the coordinator sets it aside, for ten minutes at a time: InternalError: changed 20 times"
    ]


async def test_a_workflow_that_cannot_be_read_is_explained_by_what_the_coordinator_said(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.store.table.transact("w1", [Merge(task_row(1), {"v": 1, "state": "dancing"})])
    with pytest.raises(CorruptRecordError) as damage:
        await scene.store.load("w1")

    before = await scene.explain()
    await scene.store.index.park("w1", f"CorruptRecordError: {damage.value}")
    after = await scene.explain("a")

    assert texts(before) == [f"nobody can go on with it: {damage.value}"]
    assert texts(after) == [
        f"the coordinator sets it aside, for ten minutes at a time: CorruptRecordError: {damage.value}"
    ]
    assert after.summary == "pending (4 tasks) as far as the index knows, and its rows cannot be read"
    assert (before.command, after.command) == (None, None)
    check_schema("explain", after.to_json())


async def test_a_workflow_of_which_nothing_can_be_read_is_an_error(scene: Scene) -> None:
    await scene.submit()
    await scene.store.table.transact("w1", [Merge("header", {"facts": "{"})])
    await scene.store.index.table.transact("active", [Merge("w1", {"counts": "{"})])

    with pytest.raises(CorruptRecordError):
        await scene.explain()


async def test_a_private_run_depends_on_its_process_and_not_on_a_coordinator(scene: Scene) -> None:
    await scene.submit(private=f"{socket.gethostname()}/an-earlier-boot/1.1.1")

    found = await scene.explain()

    assert texts(found)[0] == "the 'workflow run' that it belongs to has ended"
    assert found.command == "ai4s-jobq workflow local/Test run --resume w1"


async def test_a_private_run_at_work_lacks_nothing(scene: Scene) -> None:
    await scene.submit({"a": []}, private=this_owner())
    await scene.set_task(0, TaskState.RUNNING)

    assert (await scene.explain()).command is None


async def test_a_completed_workflow_has_nothing_in_its_way(scene: Scene) -> None:
    await scene.submit({"a": []})
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_header(state=WorkflowState.COMPLETED, ended_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))

    found = await scene.explain()

    assert found.reasons == []
    assert found.summary == "completed, ended at 2026-01-02 03:04:05 UTC (1 task: 1 completed)"


async def test_a_queue_that_gives_no_answer_is_told_as_unknown(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.set_task(0, TaskState.READY)
    await scene.worker()
    scene.faults.refuse("queue.count", error=StorageUnavailableError("away"))

    assert "queue 'default' has an unknown number of messages" in texts(await scene.explain("a"))[0]


async def test_unknown_ids_and_tasks_are_told_with_near_ones(scene: Scene) -> None:
    with pytest.raises(WorkflowNotFoundError):
        await scene.explain()
    await scene.submit({"train": [], "test": []})
    with pytest.raises(UnknownTaskError, match=r"no task 'trian'\. Did you mean 'train'"):
        await scene.explain("trian")


async def test_the_json_has_every_promised_field(scene: Scene) -> None:
    await scene.submit()

    record = (await scene.explain()).to_json()

    assert record.keys() == {
        "workflow_id",
        "name",
        "status",
        "summary",
        "counts_by_state",
        "blockers",
        "command",
        "detail",
    }
    assert record["counts_by_state"] == {"pending": 4}
    assert (await scene.explain("a")).to_json()["task"] == "a"


async def test_a_paused_workflow_is_told_with_the_command_that_goes_on(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()
    await scene.worker()
    await scene.set_header(paused=True)

    found = await scene.explain()

    assert texts(found)[0] == "it is paused: what runs goes on, nothing new is dispatched"
    assert found.command == "ai4s-jobq workflow local/Test resume w1"
    assert (await scene.explain("a")).command == found.command


async def test_a_task_that_waits_for_a_signal_is_told_with_the_command_that_sends_it(scene: Scene) -> None:
    await scene.submit({"a": [], "b": ["a"]}, changes={"a": {"wait_for": WaitFor(signal="go")}})
    await scene.coordinator()
    await scene.set_task(0, TaskState.PENDING, waiting="signal", wait_until="2026-01-02T03:04:05.000Z")

    found = await scene.explain("b")

    assert texts(found) == [
        "it waits for 'a' (pending for 5m)",
        "'a' waits for signal 'go', at most until 2026-01-02 03:04:05 UTC",
    ]
    assert found.command == "ai4s-jobq workflow local/Test signal w1 go"
    assert (await scene.explain()).command == found.command


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        ("delay", "'a' is not to begin before 2026-01-02 03:04:05 UTC"),
        ("backoff", "'a' waits until 2026-01-02 03:04:05 UTC before it is tried again (attempt 1 failed)"),
    ],
)
async def test_a_task_that_waits_for_a_time_is_told_until_when(scene: Scene, waiting: str, told: str) -> None:
    await scene.submit({"a": []}, changes={"a": {"delay_s": 60}})
    await scene.coordinator()
    await scene.worker()
    await scene.set_task(0, TaskState.PENDING, waiting=waiting, wait_until="2026-01-02T03:04:05.000Z")

    found = await scene.explain("a")

    assert texts(found) == [told]
    assert found.detail["waiting"] == waiting
    assert texts(await scene.explain()) == [told]


async def test_a_wait_that_is_over_is_told_no_more(scene: Scene) -> None:
    await scene.submit({"a": []}, changes={"a": {"delay_s": 60}})
    await scene.set_task(0, TaskState.RUNNING, waiting="delay", wait_until="2026-01-02T03:04:05.000Z")

    found = await scene.explain("a")

    assert (found.detail["waiting"], found.detail["wait_until"]) == (None, None)


async def test_an_undo_job_that_waits_for_a_worker_is_told(scene: Scene) -> None:
    await scene.submit({"a": []}, changes={"a": {"undo": Job(kwargs={"cmd": "true"}, queue="undo")}})
    await scene.coordinator()
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_job("u000000", TaskState.READY)
    await scene.set_header(state=WorkflowState.COMPENSATING, stop=Stop.HALT)

    found = await scene.explain()

    assert texts(found) == [
        "what had completed is being undone",
        "no live worker serves queue 'undo' (none seen within a day): 1 task waits for one",
    ]
    assert found.command == "JOBQ_WORKFLOW_PREFIX=local/Test ai4s-jobq local/undo worker"


UNDO = {"undo": Job(kwargs={"cmd": "true"})}
UNDOABLE = {"a": UNDO, "c": UNDO}
CHAIN = {"a": [], "b": ["a"], "c": ["b"]}


async def test_an_undo_job_that_nobody_wants_yet_is_told_when_it_runs(scene: Scene) -> None:
    await scene.submit(CHAIN, changes=UNDOABLE)
    await scene.coordinator()
    await scene.worker()
    await scene.set_task(0, TaskState.COMPLETED)

    found = await scene.explain("undo:a")

    assert found.summary == "'undo:a' has not begun"
    assert texts(found) == ["'undo:a' runs when the workflow fails or is cancelled after 'a' has completed"]
    assert (found.task, found.detail["state"], found.detail["queue"]) == ("undo:a", "pending", "default")
    assert (found.detail["dep_policy"], found.detail["parents"]) == (None, {})
    check_schema("explain", found.to_json())


async def test_an_undo_job_waits_for_those_of_what_depends_on_its_task(scene: Scene) -> None:
    """Through a task that has nothing to undo."""
    await scene.submit(CHAIN, changes=UNDOABLE)
    await scene.coordinator()
    await scene.worker("w1/u000002")
    for number in range(3):
        await scene.set_task(number, TaskState.COMPLETED)
    await scene.set_job("u000002", TaskState.RUNNING)
    await scene.set_header(state=WorkflowState.COMPENSATING, stop=Stop.HALT)

    assert texts(await scene.explain("undo:a")) == [
        "'undo:a' waits for 'undo:c' (running for 5m): what depends on a task is undone before it"
    ]
    assert texts(await scene.explain("undo:c"))[-1] == "'undo:c' runs on host-w (worker worker-1)"


async def test_of_a_task_that_did_not_complete_nothing_is_undone(scene: Scene) -> None:
    await scene.submit(CHAIN, changes=UNDOABLE)
    await scene.coordinator()
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_task(1, TaskState.FAILED, cause="exit", exit_code=3)
    await scene.set_header(state=WorkflowState.COMPENSATING)

    assert texts(await scene.explain("undo:c")) == ["there is nothing to undo: 'c' (upstream_failed) did not complete"]


async def test_an_undo_job_that_was_given_up_says_so(scene: Scene) -> None:
    await scene.submit(CHAIN, changes=UNDOABLE)
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_header(
        state=WorkflowState.COMPENSATION_FAILED, stop=Stop.HALT, abandoned=True, ended_at=CLOCK.now()
    )

    found = await scene.explain("undo:a")

    assert found.detail["state"] == "cancelled"
    assert texts(found) == ["undoing was given up by a cancel"]


async def test_a_hook_is_told_when_it_runs(scene: Scene) -> None:
    await scene.submit({"a": []}, on_failure=Job(kwargs={"cmd": "true"}), on_end=Job(kwargs={"cmd": "true"}))
    await scene.coordinator()
    await scene.worker()

    assert texts(await scene.explain("hook:on_end")) == [
        "'hook:on_end' runs when the workflow ends: after all its tasks have ended"
    ]

    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_header(state=WorkflowState.COMPLETED, ended_at=CLOCK.now())

    assert texts(await scene.explain("hook:on_failure")) == [
        "'hook:on_failure' runs when the workflow fails; it is completed"
    ]


async def test_a_hook_that_failed_is_told_of_a_completed_workflow(scene: Scene) -> None:
    await scene.submit({"a": []}, on_end=Job(kwargs={"cmd": "false"}))
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_job("h000000", TaskState.FAILED, error="no mail server", cause="exit", exit_code=1)
    await scene.set_header(state=WorkflowState.COMPLETED, ended_at=CLOCK.now())

    told = "'hook:on_end' failed (exit code 1, attempt 1): no mail server"
    whole, hook = await scene.explain(), await scene.explain("hook:on_end")

    assert texts(whole) == [told]
    assert (whole.command, texts(hook), hook.command) == (None, [told], None)
    assert hook.detail["error"] == "no mail server"


async def test_of_a_completed_workflow_a_handled_failure_stands_in_nobodys_way(scene: Scene) -> None:
    await scene.submit({"a": [], "b": ["a"]}, changes={"b": {"dep_policy": "all_settled"}})
    await scene.set_task(0, TaskState.FAILED, cause="exit", exit_code=3)
    await scene.set_task(1, TaskState.COMPLETED)
    await scene.set_header(state=WorkflowState.COMPLETED, ended_at=CLOCK.now())

    found = await scene.explain()

    assert (texts(found), found.command) == ([], None)


async def test_an_undo_job_that_only_waits_for_room_says_so(scene: Scene) -> None:
    await scene.submit({"a": []}, changes={"a": UNDO})
    await scene.coordinator()
    await scene.worker()
    await scene.set_task(0, TaskState.COMPLETED)
    await scene.set_job("u000000", TaskState.PENDING)
    await scene.set_header(state=WorkflowState.COMPENSATING, stop=Stop.HALT)

    found = await scene.explain("undo:a")

    assert "waits to be dispatched" in found.summary
    assert "could run but for a limit" in texts(found)[0]


async def test_an_unknown_job_is_told_with_near_ones(scene: Scene) -> None:
    await scene.submit({"a": []}, on_end=Job(kwargs={"cmd": "true"}))

    with pytest.raises(UnknownTaskError, match="Did you mean 'hook:on_end'"):
        await scene.explain("hook:on_and")
