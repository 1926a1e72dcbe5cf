"""A18, K10: each fault in turn is named, a healthy project passes, and an examination changes nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
from ai4s.jobq.doctor.examine import config_failure, examine, examine_store
from ai4s.jobq.doctor.finding import Finding, Report, Verdict
from ai4s.jobq.doctor.repair import SUBMIT_S, repair_index
from ai4s.jobq.doctor.site import Thresholds
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import AccessDeniedError, SettingsError, StorageUnavailableError
from ai4s.jobq.owner import this_owner
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Delete, Merge, Value
from ai4s.jobq.settings import Source, Target
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import ACTIVE, HEADER, task_row
from ai4s.jobq.store.lease import TTL_S, CoordinatorLease
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workers import WorkerRecord, WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.signs import Patience
from tests.coordinator.stage import Stage
from tests.support.faults import Faults, FaultyServices
from tests.support.small import DIAMOND, workflow
from tests.support.waiting import until

QUICK = Patience(worker_s=0.05, lease_s=0.05, look_s=0.01)
HOST = "another-host"


class ShiftedClock(SystemClock):
    """A clock that is wrong by a while, or the machine's own a while later."""

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        return super().now() + self._shift


@dataclass
class Scene:
    """A project on which faults are staged."""

    services: Services
    folder: Path
    faults: Faults = field(default_factory=Faults)
    clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.store = WorkflowStore(self.services, account="local", prefix="Test")
        self.target = Target("local", "Test", local_dir=self.folder)

    async def findings(self, *, later: timedelta = timedelta(0), **thresholds: float) -> dict[str, Finding]:
        """What doctor finds, by check."""
        seen = WorkflowStore(FaultyServices(self.services, self.faults), account="local", prefix="Test")
        found = await examine_store(
            seen,
            self.target,
            thresholds=Thresholds(**thresholds),
            clock=ShiftedClock(later),
            patience=QUICK,
        )
        return {finding.name: finding for finding in found}

    async def submit(self, workflow_id: str = "w1", **options: Any) -> Header:
        definition = workflow(DIAMOND)
        await self.store.submit(definition, now=self.clock.now(), workflow_id=workflow_id, **options)
        return await self.header(workflow_id)

    async def header(self, workflow_id: str) -> Header:
        header = await self.store.header(workflow_id)
        assert header is not None
        return header

    async def change(self, workflow_id: str, **changes: Any) -> None:
        """Rewrite the header and the active row, as a coordinator does."""
        stored = await self.store.read_header(workflow_id)
        assert stored is not None
        header = replace(stored.header, rev=stored.header.rev + 1, commit=f"c{stored.header.rev}", **changes)
        await write(self.store.table, stored, header)
        if header.ended_at is None:
            await self.store.index.refresh(index_record(header))
        else:
            await self.store.index.retire(index_record(header))

    async def run_first_task(self, workflow_id: str = "w1") -> None:
        """The first task has been running since just now."""
        facts = f'{{"started_at":"{iso(self.clock.now())}","worker":"w"}}'
        row: dict[str, Value] = {"v": 1, "state": "running", "life": 1, "attempt": 1, "facts": facts}
        await self.store.table.transact(workflow_id, [Merge(task_row(0), row)])
        counts = {TaskState.RUNNING: 1, TaskState.PENDING: 3}
        await self.change(workflow_id, state=WorkflowState.RUNNING, counts=counts, queues={})

    async def wait_on_queue(self, workflow_id: str = "w1", queue: str = "default") -> None:
        """A task has been dispatched."""
        await self.change(workflow_id, state=WorkflowState.RUNNING, queues={queue: (0, 1)})

    async def worker(self, queue: str = "default", *, seen_at: datetime | None = None, **changes: Any) -> WorkerRecord:
        record = WorkerRecord(
            worker_id=f"{HOST}-1-{queue}",
            queue=queue,
            host=HOST,
            pid=1,
            slots=2,
            version="1",
            started_at=self.clock.now(),
            seen_at=seen_at or self.clock.now(),
        )
        record = replace(record, **changes)
        await WorkerRegistry(self.services, self.store.names).announce(record)
        return record

    async def coordinator(self, clock: SystemClock | None = None, *, ttl_s: float = TTL_S) -> CoordinatorLease:
        lease = CoordinatorLease(self.store.index.table, "leader", HOST, clock or self.clock, ttl_s=ttl_s)
        assert await lease.try_hold()
        return lease


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_local(tmp_path / "store") as services:
        yield Scene(services, tmp_path / "store")


def verdicts(findings: dict[str, Finding]) -> dict[str, Verdict]:
    return {name: finding.verdict for name, finding in findings.items() if finding.verdict is not Verdict.PASS}


async def test_a_project_never_used_has_no_faults(scene: Scene) -> None:
    """K07."""
    findings = await scene.findings()

    assert verdicts(findings) == {"Coordinator": Verdict.INFO}
    assert findings["Workflow store"].message == "reachable, nothing was ever submitted (prefix=Test)"
    assert findings["Completion queue"].message == "not created yet: test-workflow-completions on local"


async def test_a_project_at_work_has_no_faults(scene: Scene) -> None:
    await scene.submit()
    await scene.run_first_task()
    await scene.wait_on_queue()
    await scene.coordinator()
    await scene.worker(executions=("w1/t000000",))

    findings = await scene.findings()

    assert verdicts(findings) == {"Active queues": Verdict.INFO}
    assert findings["Active queues"].message == "default: 1"
    assert findings["Completion queue"].message == "reachable: test-workflow-completions on local"


async def test_nothing_is_created(tmp_path: Path) -> None:
    """K10, COMPAT 9.34."""
    async with open_local(tmp_path / "store") as services:
        scene = Scene(services, tmp_path / "store")

        await scene.findings()

        tables = [scene.store.table, scene.store.index.table]
        assert [await table.exists() for table in tables] == [False, False]
        assert not await services.queue(scene.store.names.completion_queue).exists()
        assert not await services.blobs(scene.store.outputs_store.container).exists()


async def test_nothing_is_written_or_taken(scene: Scene) -> None:
    await scene.submit()
    await scene.wait_on_queue()
    await scene.worker(seen_at=scene.clock.now() - timedelta(minutes=5))

    await scene.findings()

    writing = (
        "transact",
        "drop",
        "send",
        "receive",
        "complete",
        "abandon",
        "dead_letter",
        "clear",
        "put",
        "delete_prefix",
    )
    assert {call.kind for call in scene.faults.calls if call.kind.split(".")[1] in writing} == set()


async def test_a_local_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    target = Target("local", "Test", local_dir=tmp_path / "nowhere")

    report = await examine(target)

    assert not report.has_failed
    assert report.findings[1].message == "reachable, nothing was ever submitted (prefix=Test)"
    assert not (tmp_path / "nowhere").exists()


async def test_a_workflow_that_nobody_began_is_named(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator(ShiftedClock(timedelta(minutes=3)))

    finding = (await scene.findings(later=timedelta(minutes=3)))["Pending workflows"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == "1 stuck in 'pending' >120s: w1"
    assert (await scene.findings(stale_pending_s=3600))["Pending workflows"].verdict is Verdict.PASS


async def test_of_many_pending_workflows_three_are_named(scene: Scene) -> None:
    for number in range(5):
        await scene.submit(f"w{number}")

    finding = (await scene.findings(later=timedelta(minutes=3)))["Pending workflows"]

    assert finding.message == "5 stuck in 'pending' >120s: w0, w1, w2, … (+2 more)"


async def test_no_coordinator_is_a_failure_when_there_is_work(scene: Scene) -> None:
    await scene.submit()

    finding = (await scene.findings())["Coordinator"]

    assert finding.verdict is Verdict.FAIL
    assert finding.message == "none running, and 1 unfinished workflow waits for one"
    assert finding.hint == "Start one: ai4s-jobq workflow local/Test coordinator"


async def test_a_coordinator_that_fell_silent_is_a_failure(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()

    finding = (await scene.findings(later=timedelta(minutes=5)))["Coordinator"]

    assert finding.verdict is Verdict.FAIL
    assert finding.message.startswith("none alive, the last sign 5m ago is of leader (leads since ")


async def test_a_coordinator_whose_clock_is_wrong_is_alive_if_it_renews_its_lease(scene: Scene) -> None:
    """M01."""
    await scene.submit()
    lease = await scene.coordinator(ShiftedClock(timedelta(hours=-1)))
    renewing = asyncio.create_task(_again_and_again(lease.try_hold))

    findings = await scene.findings()
    renewing.cancel()

    assert findings["Coordinator"].verdict is Verdict.PASS
    assert findings["Clocks"].message == f"differences seen: coordinator on {HOST} (about 60m behind)"


async def test_a_coordinator_that_renews_a_long_lease_seldom_is_alive(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator(ttl_s=600)

    findings = await scene.findings(later=timedelta(seconds=100))

    assert findings["Coordinator"].verdict is Verdict.PASS
    assert findings["Clocks"].verdict is Verdict.PASS


async def test_a_long_task_with_its_worker_is_no_warning(scene: Scene) -> None:
    """K10: a healthy 2-hour task."""
    await scene.submit()
    await scene.run_first_task()
    later = timedelta(hours=2)
    await scene.coordinator(ShiftedClock(later))
    await scene.worker(seen_at=scene.clock.now() + later, executions=("w1/t000000",))

    findings = await scene.findings(later=later)

    assert findings["Running tasks"].verdict is Verdict.PASS
    assert findings["Running tasks"].message == "none stuck (1 task >60m, each in the hands of a live worker)"


async def test_a_long_task_without_a_worker_is_named(scene: Scene) -> None:
    await scene.submit()
    await scene.run_first_task()

    finding = (await scene.findings(later=timedelta(minutes=61)))["Running tasks"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == "1 task running >60m without a live worker: w1/a (61m)"


async def test_tasks_on_a_queue_without_a_live_worker_are_told_with_the_command_that_helps(scene: Scene) -> None:
    await scene.submit()
    await scene.wait_on_queue(queue="gpu")
    await scene.worker("gpu", seen_at=scene.clock.now() - timedelta(minutes=5))

    finding = (await scene.findings())["Workers"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == f"no live worker on: gpu (1 task; last seen: {HOST} 5m ago)"
    assert finding.hint == "Start one: JOBQ_WORKFLOW_PREFIX=local/Test ai4s-jobq local/gpu worker"


async def test_every_queue_without_a_worker_gets_its_command(scene: Scene) -> None:
    for queue in ("gpu", "cpu"):
        await scene.submit(workflow_id=f"on-{queue}")
        await scene.wait_on_queue(queue=queue, workflow_id=f"on-{queue}")

    finding = (await scene.findings())["Workers"]

    assert finding.message == "no live worker on: cpu (1 task; none seen), gpu (1 task; none seen)"
    assert finding.hint == (
        "Start one for each: JOBQ_WORKFLOW_PREFIX=local/Test ai4s-jobq local/cpu worker, "
        "JOBQ_WORKFLOW_PREFIX=local/Test ai4s-jobq local/gpu worker"
    )


async def test_tasks_left_behind_by_a_dead_worker_are_told_though_none_waits(scene: Scene) -> None:
    await scene.submit()
    await scene.run_first_task()
    await scene.worker(seen_at=scene.clock.now() - timedelta(seconds=70))

    finding = (await scene.findings())["Workers"]

    assert finding.message == f"no live worker on: default (1 task; last seen: {HOST} 1m ago)"
    await scene.worker(worker_id="another")
    assert (await scene.findings())["Workers"].message == "every queue with tasks has one (default)"


async def test_undo_jobs_left_behind_are_told_though_no_task_runs(scene: Scene) -> None:
    job = Job(kwargs={"cmd": "x"}, queue="disk")
    definition = WorkflowDefinition(name="flow", tasks=(Task(name="a", undo=job),))
    await scene.store.submit(definition, now=scene.clock.now(), workflow_id="w1")
    row: dict[str, Value] = {"v": 1, "life": 1, "attempt": 1, "facts": "{}"}
    rows = [Merge("t000000", {**row, "state": "completed"}), Merge("u000000", {**row, "state": "running"})]
    await scene.store.table.transact("w1", rows)
    await scene.change("w1", state=WorkflowState.COMPENSATING, counts={TaskState.COMPLETED: 1}, queues={})

    assert (await scene.findings())["Workers"].message == "no live worker on: disk (1 task; none seen)"


async def test_a_worker_that_fell_silent_on_another_host_is_told_within_a_minute(scene: Scene) -> None:
    """Half a minute after its last sign it is watched, for less than another half."""
    await scene.submit()
    await scene.wait_on_queue()
    await scene.worker()

    assert (await scene.findings(later=timedelta(seconds=29)))["Workers"].verdict is Verdict.PASS
    assert (await scene.findings(later=timedelta(seconds=31)))["Workers"].verdict is Verdict.WARN


async def test_a_worker_of_this_host_is_told_at_once_when_its_process_has_ended(scene: Scene) -> None:
    await scene.submit()
    await scene.wait_on_queue()
    await scene.worker(process=f"{this_owner()}0")

    assert (await scene.findings())[
        "Workers"
    ].message == f"no live worker on: default (1 task; last seen: {HOST} 0s ago)"


async def test_a_worker_whose_clock_is_wrong_is_alive_if_its_row_changes(scene: Scene) -> None:
    """M01."""
    await scene.submit()
    await scene.wait_on_queue()
    wrong = scene.clock.now() + timedelta(hours=1)
    await scene.worker(seen_at=wrong)
    announcing = asyncio.create_task(_again_and_again(lambda: scene.worker(seen_at=wrong)))

    findings = await scene.findings()
    announcing.cancel()

    assert findings["Workers"].verdict is Verdict.PASS
    assert findings["Clocks"].verdict is Verdict.WARN
    assert f"worker on {HOST} (about" in findings["Clocks"].message


async def test_a_parked_workflow_is_named_with_its_reason(scene: Scene) -> None:
    """H04."""
    await scene.submit()
    await scene.store.index.park("w1", "CorruptRecordError: row 't000001' is damaged\nTraceback")

    finding = (await scene.findings())["Troubled workflows"]

    assert finding.message == (
        "1 workflow set aside by the coordinator: w1 (CorruptRecordError: row 't000001' is damaged)"
    )


async def test_a_workflow_that_a_living_coordinator_set_aside_needs_no_coordinator_started(scene: Scene) -> None:
    """It was never begun, for its first turn fails."""
    await scene.submit()
    await scene.store.table.transact("w1", [Merge(task_row(0), {"v": 1, "state": "dancing"})])

    async with Stage(scene.services).coordinator():
        await until(lambda: _is_parked(scene, "w1"))
        findings = await scene.findings(stale_pending_s=0)

    assert findings["Pending workflows"].verdict is Verdict.PASS
    assert findings["Pending workflows"].message == "none stuck (>0s in 'pending'), beside 1 set aside"
    assert findings["Coordinator"].verdict is Verdict.PASS
    assert findings["Troubled workflows"].message.startswith("1 workflow set aside by the coordinator: w1 (CorruptRec")
    assert [finding.name for finding in findings.values() if "Start one" in (finding.hint or "")] == []


async def _is_parked(scene: Scene, workflow_id: str) -> bool:
    row = await scene.store.index.get(workflow_id)
    return row is not None and row.parked != ""


async def test_what_a_living_coordinator_does_not_begin_is_to_be_looked_up_in_its_log(scene: Scene) -> None:
    await scene.submit()
    await scene.coordinator()

    finding = (await scene.findings(stale_pending_s=0))["Pending workflows"]

    assert finding.message == "1 stuck in 'pending' >0s: w1"
    assert finding.hint == (
        "The coordinator is alive and sees them within seconds: look at its log for what holds it up, or ask: "
        "ai4s-jobq workflow local/Test explain w1"
    )


async def test_damaged_rows_hide_no_parked_workflow(scene: Scene) -> None:
    await scene.submit("w1")
    await scene.submit("w2")
    await scene.store.index.park("w1", "InternalError: changed 20 times")
    await scene.store.table.transact("w2", [Merge(HEADER, {"state": "?"})])

    assert (await scene.findings())["Troubled workflows"].message == (
        "1 workflow with damaged rows: w2; 1 workflow set aside by the coordinator: w1 (InternalError: changed 20 times)"
    )


async def test_damaged_rows_are_named(scene: Scene) -> None:
    """H04."""
    await scene.submit("w1")
    await scene.submit("w2")
    await scene.store.table.transact("w1", [Merge(HEADER, {"state": "?"})])
    await scene.store.index.table.transact(ACTIVE, [Merge("w2", {"counts": "{"})])

    finding = (await scene.findings())["Troubled workflows"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == "2 workflows with damaged rows: w1, w2"


async def test_dead_letters_of_all_queues_are_counted(scene: Scene) -> None:
    """A23, D07."""
    await scene.submit()
    for name, bodies in (("default", 2), (scene.store.names.completion_queue, 1)):
        queue = scene.services.queue(name)
        await queue.clear()
        await queue.send([OutgoingMessage(body="junk", message_id=str(number)) for number in range(bodies)])
        for message in await queue.receive(10, visibility_s=30):
            await queue.dead_letter(message, reason="no JSON")

    finding = (await scene.findings())["Dead letters"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == "3 set aside: test-workflow-completions: 1, default: 2"


async def test_a_run_whose_process_died_is_told_with_the_command_that_goes_on(scene: Scene) -> None:
    await scene.submit("gone", private=f"{socket.gethostname()}/an-earlier-boot/1.1.1")
    await scene.submit("here", private=this_owner())

    findings = await scene.findings(later=timedelta(hours=2))

    assert findings["Interrupted runs"].message == "1 run of 'workflow run' left unfinished: gone"
    assert findings["Interrupted runs"].hint == "Go on with one: ai4s-jobq workflow local/Test run --resume gone"
    assert verdicts(findings).keys() == {"Interrupted runs", "Coordinator"}
    assert findings["Coordinator"].verdict is Verdict.INFO


async def test_a_deleted_completion_queue_is_told(scene: Scene) -> None:
    await scene.submit()
    await scene.services.queue(scene.store.names.completion_queue).drop()

    finding = (await scene.findings())["Completion queue"]

    assert finding.verdict is Verdict.WARN
    assert finding.message == "missing: test-workflow-completions on local"


# Services that refuse.


async def test_an_unreachable_store_is_the_one_finding(scene: Scene) -> None:
    scene.faults.refuse("table.query", times=99)

    findings = await scene.findings()

    assert verdicts(findings) == {"Workflow store": Verdict.FAIL}
    assert findings.keys() == {"Workflow store"}
    assert findings["Workflow store"].message.startswith("unreachable: ")


async def test_a_store_that_never_answers_is_given_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """K10: hangs when storage is down."""
    monkeypatch.setattr("ai4s.jobq.doctor.examine.STORE_S", 0.05)

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    scene.faults.hook("table.query", hook=never, times=99)

    finding = (await scene.findings())["Workflow store"]

    assert (finding.verdict, finding.message) == (Verdict.FAIL, "unreachable: no answer in time")


async def test_a_check_that_never_ends_does_not_hold_up_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ai4s.jobq.doctor.examine.DEADLINE_S", 0.5)

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    scene.faults.hook("blob.exists", hook=never, times=99)

    assert verdicts(await scene.findings()) == {"Blob storage": Verdict.FAIL, "Coordinator": Verdict.INFO}


async def test_a_missing_role_is_named_for_whom(scene: Scene) -> None:
    """COMPAT 9.54."""
    error = AccessDeniedError(
        "This identity may not use queue 'q'. Assign it the role 'Storage Queue Data Contributor'"
    )
    scene.faults.refuse("queue.exists", error=error, times=99)

    finding = (await scene.findings())["Completion queue"]

    assert finding.verdict is Verdict.FAIL
    assert finding.message == f"no access: {error}"
    assert finding.hint is not None
    assert "'Storage Table Data Contributor'" in finding.hint
    assert "coordinator and workers" in finding.hint


@pytest.mark.parametrize("error", [AccessDeniedError("no"), StorageUnavailableError("away")])
async def test_blob_storage_that_cannot_be_used_is_a_warning(scene: Scene, error: Exception) -> None:
    scene.faults.refuse("blob.exists", error=error)

    assert (await scene.findings())["Blob storage"].verdict is Verdict.WARN


async def test_a_clock_that_differs_from_the_services_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyServices, "clock_ahead_s", 95.0)

    finding = (await scene.findings())["Clocks"]

    assert finding.message == "differences seen: this machine, against the storage service (about 1m ahead)"


# The report.


def test_what_is_configured_by_the_environment_is_told() -> None:
    from ai4s.jobq.doctor.examine import config_finding

    env = dict.fromkeys(("storage", "prefix", "blobs"), Source.ENV) | {"queues": Source.FLAG}
    target = Target("acct", "Proj", queues="other", blobs="acct/box", sources=env)

    assert config_finding(target).message == (
        "account=acct, prefix=Proj, JOBQ_WORKFLOW_PREFIX=acct/Proj, queues=other (flag), JOBQ_WORKFLOW_BLOBS=acct/box"
    )


def test_a_configuration_that_cannot_be_used_is_a_failure() -> None:
    report = Report([config_failure(SettingsError("no prefix"))])

    assert report.has_failed
    assert report.to_json()["summary"] == {"pass": 0, "warn": 0, "fail": 1}


# Repair.


async def test_the_index_is_made_anew_from_the_headers(scene: Scene) -> None:
    await scene.submit("active")
    await scene.submit("over")
    await scene.change("over", ended_at=scene.clock.now().replace(microsecond=0), state=WorkflowState.COMPLETED)
    before = [record async for record in scene.store.index.ended()]
    await scene.store.index.table.drop()

    repair = await repair_index(scene.store, scene.clock)

    assert (repair.workflows, repair.removed, repair.damaged) == (2, 0, [])
    assert [record.workflow_id async for record in scene.store.index.active()] == ["active"]
    assert [replace(record, etag=None) async for record in scene.store.index.ended()] == [
        replace(record, etag=None) for record in before
    ]


async def test_rows_that_speak_of_nothing_are_removed_and_a_submit_under_way_is_not(scene: Scene) -> None:
    header = await scene.submit("w1")
    await scene.store.table.transact("w1", [Delete(HEADER)])

    assert (await repair_index(scene.store, scene.clock)).removed == 0
    later = ShiftedClock(timedelta(seconds=SUBMIT_S + 1))
    assert (await repair_index(scene.store, later)).removed == 1
    assert await scene.store.index.get(header.workflow_id) is None


async def test_damaged_rows_are_mended_and_damaged_headers_left_alone(scene: Scene) -> None:
    await scene.submit("w1")
    await scene.submit("w2")
    await scene.store.index.table.transact(ACTIVE, [Merge("w1", {"counts": "{"})])
    await scene.store.table.transact("w2", [Merge(HEADER, {"state": "?"})])

    repair = await repair_index(scene.store, scene.clock)

    assert repair.damaged == ["w2"]
    assert (await scene.findings())["Troubled workflows"].message == "1 workflow with damaged rows: w2"


async def test_an_end_that_a_retry_undid_is_removed(scene: Scene) -> None:
    await scene.submit("w1")
    ended_at = scene.clock.now().replace(microsecond=0)
    await scene.change("w1", ended_at=ended_at, state=WorkflowState.FAILED)
    await scene.change("w1", ended_at=None, state=WorkflowState.RUNNING, life=2)

    assert (await repair_index(scene.store, scene.clock)).removed == 1
    assert [record.workflow_id async for record in scene.store.index.active()] == ["w1"]
    assert [record async for record in scene.store.index.ended()] == []


async def _again_and_again(act: Any) -> None:
    while True:
        await asyncio.sleep(0.005)
        await act()
