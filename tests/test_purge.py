"""A19, B12: purge deletes all of a workflow and nothing else, whenever it is interrupted and whoever works meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.control.lifecycle import retry_workflow
from ai4s.jobq.coordinator.retention import AT_A_TIME, Retention
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.engine.states import Stop, WorkflowState
from ai4s.jobq.errors import (
    NewerVersionError,
    OperationalError,
    SettingsError,
    StorageUnavailableError,
    WorkflowNotFoundError,
)
from ai4s.jobq.owner import this_owner
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Insert, Merge, Value
from ai4s.jobq.purge.erase import Victim, erase_workflow
from ai4s.jobq.purge.plan import Plan, Selection, make_plan
from ai4s.jobq.purge.purge import drain_queues, drop_everything, purge_workflows, queues_to_drain
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import HEADER, chunk_row, private_queue, task_row
from ai4s.jobq.store.records import PURGING, Header
from ai4s.jobq.store.workflows import WorkflowStore
from tests.coordinator.stage import QUICK, Stage
from tests.support.faults import Faults, FaultyServices, ProcessKilled
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import SUCCEED, Act, ScriptedWorker, always, by_name
from tests.worker.stage import open_stage

CLOCK = SystemClock()
DEAD_OWNER = f"{socket.gethostname()}/an-earlier-boot/1.1.1"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WorkflowStore]:
    async with open_local(tmp_path / "store") as services:
        yield WorkflowStore(services, account="local", prefix="Test")


async def submitted(store: WorkflowStore, workflow_id: str, *, tasks: int = 3, private: str = "") -> Header:
    """A workflow with a row for each task and a blob."""
    definition = workflow(many(tasks), name=f"flow-{tasks}")
    submission = await store.submit(definition, now=CLOCK.now(), workflow_id=workflow_id, private=private)
    facts: dict[str, Value] = {"v": 1, "state": "completed", "life": 1, "attempt": 1, "facts": "{}"}
    for start in range(0, tasks, 90):
        rows = [Merge(task_row(number), facts) for number in range(start, min(start + 90, tasks))]
        await store.table.transact(workflow_id, rows)
    name = store.names.output_blob(workflow_id, submission.run, task_row(0), "x1")
    await store.services.blobs(store.outputs_store.container).put(name, b"output")
    return await header_of(store, workflow_id)


async def ended(store: WorkflowStore, workflow_id: str, *, ago: timedelta = timedelta(0), tasks: int = 3) -> Header:
    """The same, ended; in the index among the ended ones."""
    await submitted(store, workflow_id, tasks=tasks)
    return await end(store, workflow_id, at=CLOCK.now() - ago)


async def end(store: WorkflowStore, workflow_id: str, *, at: datetime) -> Header:
    """Do what a coordinator does at the end of a workflow."""
    stored = await store.read_header(workflow_id)
    assert stored is not None
    at = at.replace(microsecond=0)
    header = replace(stored.header, state=WorkflowState.FAILED, ended_at=at, rev=1, commit="c1")
    await write(store.table, stored, header)
    await store.index.retire(index_record(header))
    return header


async def header_of(store: WorkflowStore, workflow_id: str) -> Header:
    header = await store.header(workflow_id)
    assert header is not None
    return header


async def left_of(store: WorkflowStore, workflow_id: str) -> list[str]:
    """Everything there still is of a workflow, by name."""
    rows = [entity.row for entity in (await store.table.query(workflow_id)).entities]
    container = store.services.blobs(store.outputs_store.container)
    rows += [blob.name async for blob in container.list(store.names.workflow_blobs(workflow_id))]
    rows += ["active row"] * (await store.index.get(workflow_id) is not None)
    rows += ["ended row" async for record in store.index.ended() if record.workflow_id == workflow_id]
    return rows


def victim(header: Header) -> Victim:
    return Victim(workflow_id=header.workflow_id, run=header.run, ended_at=header.ended_at)


async def purge(store: WorkflowStore, selection: Selection) -> Plan:
    plan = await make_plan(store, selection, CLOCK)
    await purge_workflows(store, plan, CLOCK, stop_s=0)
    return plan


async def test_a_purged_workflow_leaves_nothing_and_takes_nothing_of_others(store: WorkflowStore) -> None:
    other = await ended(store, "other")
    before = await left_of(store, "other")

    erased = await erase_workflow(store, victim(await ended(store, "w1")))

    assert (erased.task_rows, erased.blobs) == (3, 1)
    assert await left_of(store, "w1") == []
    assert await left_of(store, "other") == before
    assert await store.header("other") == other


async def test_a_workflow_of_2000_tasks_is_purged_whole(store: WorkflowStore) -> None:
    """G01, M05."""
    erased = await erase_workflow(store, victim(await ended(store, "large", tasks=2000)))

    assert erased.task_rows == 2000
    assert await left_of(store, "large") == []


async def test_a_purge_killed_at_any_call_is_finished_by_the_next_one(store: WorkflowStore) -> None:
    """M05."""
    for after in (False, True):
        for call in range(100):
            workflow_id = f"w{after:d}{call}"
            await ended(store, workflow_id, tasks=120)
            if not await killed_at(store, Selection(ids=[workflow_id]), call, after=after):
                break
            await purge(store, Selection())

            assert await left_of(store, workflow_id) == []
        assert call > 5, "a purge makes more calls than these"


async def killed_at(store: WorkflowStore, selection: Selection, call: int, *, after: bool) -> bool:
    """Purge in a process that dies at its call of this number; whether it got that far."""
    faults = Faults()
    process = WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="Test")
    plan = await make_plan(process, selection, CLOCK)
    counting = Counting(faults, call)
    for kind in ("table.get", "table.query", "table.transact", "blob.delete_prefix"):
        faults.hook(kind, hook=counting, after=after, times=10**9)
    try:
        await purge_workflows(process, plan, CLOCK)
    except BaseExceptionGroup:
        return True
    return False


class Counting:
    """Kills the process at its n-th call."""

    def __init__(self, faults: Faults, call: int) -> None:
        self._faults = faults
        self._left = call

    async def __call__(self, _: object) -> None:
        if self._left == 0:
            self._faults.dead = True
            raise ProcessKilled
        self._left -= 1


async def test_purges_at_the_same_time_do_not_harm_each_other(store: WorkflowStore) -> None:
    header = await ended(store, "w1", tasks=500)

    await asyncio.gather(*(erase_workflow(store, victim(header)) for _ in range(4)))

    assert await left_of(store, "w1") == []


async def test_a_slow_purge_never_touches_a_later_submission(store: WorkflowStore) -> None:
    """B09: the id is used again while an old purge is still at work."""
    old = await ended(store, "w1", tasks=150)
    faults = Faults()
    slow = WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="Test")

    async def overtake(_: object) -> None:
        await erase_workflow(store, victim(old))
        await submitted(store, "w1", tasks=5)

    faults.hook("table.transact", store.names.tasks_table, hook=overtake, skip=1)
    await erase_workflow(slow, victim(old))

    assert (await header_of(store, "w1")).task_count == 5
    assert len([row for row in await left_of(store, "w1") if row.startswith("t")]) == 5
    assert "active row" in await left_of(store, "w1")


async def test_definition_chunks_of_a_submission_in_progress_stay(store: WorkflowStore) -> None:
    header = await ended(store, "w1")
    foreign = chunk_row("f" * 16, 0)
    await store.table.transact("w1", [Insert(foreign, {"v": 1})])

    await erase_workflow(store, victim(header))

    assert await left_of(store, "w1") == [foreign]


async def test_a_workflow_retried_since_it_was_chosen_is_left_alone(store: WorkflowStore) -> None:
    chosen = victim(await ended(store, "w1"))
    facts: dict[str, Value] = {"v": 1, "state": "failed", "life": 1, "attempt": 1, "facts": "{}"}
    await store.table.transact("w1", [Merge(task_row(0), facts)])
    await retry_workflow(store, "w1", CLOCK)

    with pytest.raises(OperationalError, match="retried meanwhile"):
        await erase_workflow(store, chosen)

    assert (await header_of(store, "w1")).life == 2


async def test_another_submission_under_the_id_is_left_alone(store: WorkflowStore) -> None:
    chosen = victim(await ended(store, "w1"))
    await erase_workflow(store, chosen)
    await submitted(store, "w1")

    with pytest.raises(OperationalError, match="another one now"):
        await erase_workflow(store, chosen)

    assert await store.header("w1") is not None


async def test_what_a_later_release_wrote_is_left_alone(store: WorkflowStore) -> None:
    header = await ended(store, "w1")
    await store.table.transact("w1", [Merge(HEADER, {"v": 99})])

    with pytest.raises(NewerVersionError):
        await erase_workflow(store, victim(header))
    assert (await make_plan(store, Selection(ids=["w1"]), CLOCK)).left_alone.keys() == {"w1"}


async def test_a_purge_whose_answer_was_lost_finds_itself_done(store: WorkflowStore) -> None:
    for skip in range(4):
        header = await ended(store, f"w{skip}")
        faults = Faults()
        faults.lose_reply("table.transact", skip=skip)
        process = WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="Test")

        with pytest.raises(StorageUnavailableError):
            await erase_workflow(process, victim(header))
        await erase_workflow(process, victim(header))

        assert await left_of(store, f"w{skip}") == []


async def test_a_workflow_under_purge_is_gone_for_readers_and_its_id_is_not_free(store: WorkflowStore) -> None:
    header = await ended(store, "w1")
    await store.table.transact("w1", [Merge(HEADER, {PURGING: True})])

    assert await store.header("w1") is None
    assert await store.load("w1") is None
    with pytest.raises(OperationalError, match="purge w1"):
        await submitted(store, "w1")
    await erase_workflow(store, victim(header))
    await submitted(store, "w1")


async def test_a_damaged_workflow_can_still_be_purged(store: WorkflowStore) -> None:
    """H04."""
    await submitted(store, "w1")
    await store.table.transact("w1", [Merge(HEADER, {"facts": "{", "state": "?"})])

    plan = await make_plan(store, Selection(ids=["w1"]), CLOCK)
    await purge_workflows(store, plan, CLOCK)

    assert plan.active == plan.chosen
    assert await left_of(store, "w1") == []


# What is chosen.


async def test_ended_workflows_are_chosen_and_unfinished_ones_only_when_asked_for(store: WorkflowStore) -> None:
    await ended(store, "old")
    await submitted(store, "new")

    def chosen(plan: Plan) -> set[str]:
        return {chosen.victim.workflow_id for chosen in plan.chosen}

    assert chosen(await make_plan(store, Selection(), CLOCK)) == {"old"}
    everything = await make_plan(store, Selection(unfinished=True), CLOCK)
    assert chosen(everything) == {"old", "new"}
    assert [chosen.victim.workflow_id for chosen in everything.active] == ["new"]


async def test_filters_choose_by_state_and_age(store: WorkflowStore) -> None:
    await ended(store, "old", ago=timedelta(days=8))
    await ended(store, "young")

    week = await make_plan(store, Selection(older_than=timedelta(days=7)), CLOCK)
    failed = await make_plan(store, Selection(states=frozenset({WorkflowState.FAILED})), CLOCK)
    completed = await make_plan(store, Selection(states=frozenset({WorkflowState.COMPLETED})), CLOCK)

    assert [chosen.victim.workflow_id for chosen in week.chosen] == ["old"]
    assert len(failed.chosen) == 2
    assert completed.chosen == []


async def test_every_page_of_the_index_is_read(store: WorkflowStore) -> None:
    """G01."""
    header = await ended(store, "w")
    for start in range(0, 1200, 100):
        records = [index_record(replace(header, workflow_id=f"w{number}")) for number in range(start, start + 100)]
        rows = [Merge(f"{number:015d}-{record.workflow_id}", record.values()) for number, record in enumerate(records)]
        await store.index.table.transact("ended", rows)

    assert len((await make_plan(store, Selection(), CLOCK)).chosen) == 1201


async def test_an_unknown_id_is_told_with_near_ones(store: WorkflowStore) -> None:
    await ended(store, "training-1")

    with pytest.raises(WorkflowNotFoundError, match="training-1"):
        await make_plan(store, Selection(ids=["training-2"]), CLOCK)


async def test_an_interrupted_purge_of_an_unfinished_workflow_is_gone_on_with(store: WorkflowStore) -> None:
    await submitted(store, "w1")
    await store.table.transact("w1", [Merge(HEADER, {PURGING: True})])

    await purge(store, Selection())

    assert await left_of(store, "w1") == []


async def test_a_live_private_run_is_left_alone_and_one_whose_process_died_is_not(store: WorkflowStore) -> None:
    await submitted(store, "live", private=this_owner())
    dead = await submitted(store, "dead", private=DEAD_OWNER)
    queue = store.services.queue(private_queue(dead.run, 0))
    await queue.send([OutgoingMessage(body="{}", message_id="1")])
    plan = await make_plan(store, Selection(unfinished=True), CLOCK)

    assert plan.left_alone.keys() == {"live"}
    await purge_workflows(store, plan, CLOCK, stop_s=0)
    assert await store.header("live") is not None
    assert await left_of(store, "dead") == []
    assert not await queue.exists()


# An unfinished workflow.


async def test_an_unfinished_workflow_is_cancelled_first(store: WorkflowStore) -> None:
    await submitted(store, "w1")
    faults = Faults()
    process = WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="Test")
    seen: list[Stop] = []

    async def look(_: object) -> None:
        seen.append((await header_of(store, "w1")).stop)

    faults.hook("table.transact", store.names.tasks_table, hook=look, after=True)
    plan = await make_plan(process, Selection(ids=["w1"]), CLOCK)
    await purge_workflows(process, plan, CLOCK, stop_s=0)

    assert seen == [Stop.HALT]
    assert await left_of(store, "w1") == []


async def test_one_that_cannot_be_purged_takes_no_other_with_it(store: WorkflowStore) -> None:
    await ended(store, "w1")
    await ended(store, "w2")
    plan = await make_plan(store, Selection(), CLOCK)
    await store.table.transact("w1", [Merge(HEADER, {"v": 99})])

    purged = await purge_workflows(store, plan, CLOCK)

    assert purged.workflows == 1
    assert purged.left_alone.keys() == {"w1"}
    assert await left_of(store, "w2") == []


async def test_messages_of_a_purged_run_are_dropped_and_the_next_run_of_that_id_works(tmp_path: Path) -> None:
    """B09, with the real worker."""
    out = tmp_path / "out"
    async with open_stage(tmp_path / "store") as stage:
        for word in ("OLD", "NEW"):
            definition = workflow({"a": []}, changes={"a": {"kwargs": {"cmd": f"echo {word} >> {out}"}}})
            await stage.store.submit(definition, now=CLOCK.now(), workflow_id="w1")
            header = await header_of(stage.store, "w1")
            await stage.put(header)
            if word == "OLD":
                await purge(stage.store, Selection(ids=["w1"]))

        summary = await stage.run()

    assert out.read_text() == "NEW\n"
    assert (summary.dropped, summary.succeeded) == (1, 1)


async def test_a_running_worker_stops_and_writes_nothing_into_a_purged_run(tmp_path: Path) -> None:
    started = tmp_path / "started"
    async with open_stage(tmp_path / "store") as stage:
        message = await stage.put_command(f"touch {started}; exec sleep 600")
        working = asyncio.create_task(stage.run())
        await until(started.exists)

        await purge(stage.store, Selection(ids=[message.workflow_id]))
        await working

        assert [name for name in await left_of(stage.store, message.workflow_id) if "/log/" not in name] == []


# Tables and queues.


async def test_dropping_the_tables_leaves_nothing_of_the_prefix(store: WorkflowStore) -> None:
    await ended(store, "w1")
    await submitted(store, "w2")

    purged = await drop_everything(store)

    assert purged.blobs == 2
    assert not await store.table.exists()
    assert not await store.index.table.exists()
    assert not await store.services.queue(store.names.completion_queue).exists()
    await submitted(store, "w1")


async def test_a_table_that_is_still_being_deleted_is_waited_for(store: WorkflowStore) -> None:
    """G02."""
    await ended(store, "w1")
    faults = Faults()
    process = WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="Test")
    faults.refuse("table.exists", times=2)

    assert (await drop_everything(process)).tables_dropped
    assert faults.count("table.exists") == 4


async def test_queues_that_unfinished_workflows_use_are_not_drained(store: WorkflowStore) -> None:
    for workflow_id, queue in (("going", "cpu"), ("staying", "gpu")):
        definition = workflow({"a": [], "b": []}, changes={"b": {"queue": queue}}, default_queue="shared")
        await store.submit(definition, now=CLOCK.now(), workflow_id=workflow_id)
    await end(store, "going", at=CLOCK.now())
    plan = await make_plan(store, Selection(), CLOCK)

    assert await queues_to_drain(store, plan) == (["cpu"], ["shared"])


async def test_drained_queues_are_empty(store: WorkflowStore) -> None:
    await submitted(store, "w1")  # its hint is on the completion queue

    assert await drain_queues(store, [store.names.completion_queue]) == {store.names.completion_queue: 1}
    assert await store.services.queue(store.names.completion_queue).approximate_count() == 0


# Retention.


async def test_retention_purges_what_ended_long_ago_and_nothing_else(store: WorkflowStore) -> None:
    await ended(store, "old", ago=timedelta(days=8))
    await ended(store, "young", ago=timedelta(days=6))
    await submitted(store, "unfinished")

    await Retention(store, CLOCK, keep_s=7 * 86_400).once()

    assert await left_of(store, "old") == []
    assert await store.header("young") is not None
    assert await store.header("unfinished") is not None


async def test_retention_takes_a_bounded_portion_at_a_time(store: WorkflowStore) -> None:
    for number in range(AT_A_TIME + 3):
        await ended(store, f"w{number}", ago=timedelta(days=8))
    retention = Retention(store, CLOCK, keep_s=86_400)

    first_pause_s = await retention.once()
    left = [record async for record in store.index.ended()]
    last_pause_s = await retention.once()

    assert len(left) == 3
    assert first_pause_s < last_pause_s
    assert [record async for record in store.index.ended()] == []


async def test_retention_is_not_held_up_by_one_it_cannot_purge(store: WorkflowStore) -> None:
    await ended(store, "newer", ago=timedelta(days=2))
    await ended(store, "old", ago=timedelta(days=8))
    await store.table.transact("newer", [Merge(HEADER, {"v": 99})])

    await Retention(store, CLOCK, keep_s=86_400).once()

    assert await left_of(store, "old") == []


def test_retention_is_a_duration_or_never() -> None:
    assert CoordinatorSettings().retention_s is None
    assert CoordinatorSettings(retention="7d").retention_s == 7 * 86_400
    for wrong in ("7", "0d", "-1d", "soon", ""):
        with pytest.raises(SettingsError, match="retention"):
            CoordinatorSettings(retention=wrong)


async def test_a_coordinator_purges_what_is_older_than_its_retention(store: WorkflowStore) -> None:
    """B12."""
    await ended(store, "old", ago=timedelta(days=8))
    await ended(store, "young")
    stage = Stage(store.services)

    async with stage.coordinator(replace(QUICK, retention="7d")):
        await until(lambda: is_gone(store, "old"))

    assert await store.header("young") is not None


# A coordinator at work.


@pytest.mark.parametrize(
    ("kind", "table", "key"),
    [("table.get", "Workflows", "w1"), ("table.transact", "Workflows", "w1"), ("queue.send", "", "")],
)
async def test_a_coordinator_that_a_purge_overtakes_writes_nothing_back(
    store: WorkflowStore, kind: str, table: str, key: str
) -> None:
    """Between its commit and what it does next."""
    stage, faults, purged = Stage(store.services), Faults(), asyncio.Event()

    async def overtake(_: object) -> None:
        header = await header_of(store, "w1")
        await erase_workflow(store, Victim(workflow_id="w1", run=header.run, ended_at=None))
        purged.set()

    async def arm(_: object) -> None:
        faults.hook(kind, table, key=key, hook=overtake)

    faults.hook("table.transact", store.names.tasks_table, hook=arm, after=True)
    async with stage.coordinator(faults=faults), ScriptedWorker(store, always(SUCCEED)):
        await stage.submit(workflow(many(3)), "w1")
        await purged.wait()
        await stage.submit(workflow(many(3)), "w2")
        await stage.completed("w2")

    assert await left_of(store, "w1") == []


async def test_a_purge_with_force_ends_a_run_at_work_and_the_coordinator_goes_on(store: WorkflowStore) -> None:
    stage = Stage(store.services)
    held = asyncio.Event()
    started = asyncio.Event()

    async def hold() -> None:
        started.set()
        await held.wait()

    script = by_name({"slow": Act(says_started=True, first=hold)})
    async with stage.coordinator(), ScriptedWorker(store, script):
        await stage.submit(workflow({"slow": [], "next": ["slow"]}), "w1")
        await started.wait()
        await purge(store, Selection(ids=["w1"]))
        held.set()
        await stage.submit(workflow({"slow": []}), "w2")
        await stage.completed("w2")

    assert await left_of(store, "w1") == []


async def is_gone(store: WorkflowStore, workflow_id: str) -> bool:
    return await left_of(store, workflow_id) == []


# From Python.


async def test_a_client_purges_what_has_ended_and_refuses_the_rest(store: WorkflowStore) -> None:
    client = WorkflowClient(store)
    await ended(store, "old")
    await submitted(store, "new")
    seen: list[int] = []

    assert (await client.purge(on_progress=seen.append)).workflows == 1
    assert seen == [1]
    with pytest.raises(OperationalError, match="nothing was deleted: new"):
        await client.purge("new")
    with pytest.raises(OperationalError, match="nothing was deleted: new"):
        await client.purge(drop_tables=True)
    assert (await client.purge(drop_tables=True, terminal_only=False)).tables_dropped
    assert await client.list_workflows() == []
