"""Storage that is away for a while, or says no: what runs goes on, what ended is told later, and everybody comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.adapters.azure import creation
from ai4s.jobq.coordinator.cycle import Stats, WorkflowCycle
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import AccessDeniedError
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.settings import WorkerSettings
from tests.proxy.conftest import services_at
from tests.proxy.plant import (
    PROMPT,
    check_all_ran_after_their_parents,
    counted_logs,
    diamonds,
    executions,
    plant,
)
from tests.support.azurite import Azurite
from tests.support.fault_proxy import BEING_DELETED, BUSY, FORBIDDEN, SERVICES, UNKNOWN_IDENTITY, FaultProxy, ResetAfter
from tests.support.fork_server import shared_fork_server
from tests.support.project import project, until

pytestmark = pytest.mark.azurite


def until_released(folder: Path) -> str:
    """A command that runs until the test says so."""
    return f"until test -e {folder}/release; do sleep 0.05; done"


def release(folder: Path) -> None:
    (folder / "release").touch()


def one_task(queue: str, cmd: str) -> dict[str, Any]:
    return {"name": "one", "default_queue": queue, "tasks": [{"name": "long", "kwargs": {"cmd": cmd}}]}


@pytest.mark.parametrize("when", ["at_idle", "in_a_wave"])
async def test_tables_that_go_away_and_return_find_everybody_at_work(
    when: str, azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """Longer than the coordinator's lease."""
    definition = diamonds(f"q-{unique}")
    async with plant(azurite, proxy, tmp_path, unique) as here:
        coordinator = await here.coordinator()
        await here.worker(f"q-{unique}")
        workflow_id = await here.submit(definition) if when == "in_a_wave" else ""
        if when == "in_a_wave":
            await here.until(lambda: len(executions(here.trace)) >= 5, "some tasks to run")
        else:
            await here.until(lambda: coordinator.is_leading, "the coordinator to lead")
        with counted_logs() as logged:
            proxy.cut_off("table")
            await here.until(lambda: not coordinator.is_leading, "the lease to run out")
            proxy.restore("table")
            workflow_id = workflow_id or await here.submit(definition)

            assert await here.ended(workflow_id) is WorkflowState.COMPLETED

        check_all_ran_after_their_parents(definition, here.trace)
        assert Counter((await here.tasks(workflow_id)).values()) == {(TaskState.COMPLETED, 1): 40}
        assert logged["loop_failed"] <= 4  # one line for each of the coordinator's loops
        assert logged.total() < 20
        assert logged["traceback"] == 0


async def test_a_command_outlives_an_outage_of_everything_during_its_renewals(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """The outage begins after the answer to a renewal, which is the next receipt, and is over before the lease is."""
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}", visibility_s=20)
        workflow_id = await here.submit(one_task(f"q-{unique}", until_released(tmp_path)))
        await here.until(lambda: proxy.answers["queue.renew"] >= 1, "the answer to a first renewal")
        with counted_logs() as logged:
            proxy.cut_off(*SERVICES)
            await here.until(
                lambda: logged["service_unavailable"] >= 1 and logged["loop_failed"] >= 3, "the outage to be felt"
            )
            proxy.restore(*SERVICES)
            seen = proxy.requests["queue.renew"]
            await here.until(lambda: proxy.requests["queue.renew"] > seen, "renewals to go on")
        release(tmp_path)

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert executions(here.trace) == {"long": 1}


async def test_one_message_that_cannot_be_renewed_takes_no_other_with_it(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """One renewal's answer is lost, and with it the receipt: that task alone is run again."""
    tasks = [{"name": f"t{number}", "kwargs": {"cmd": until_released(tmp_path)}} for number in range(4)]
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}", slots=5)
        rule = proxy.inject("queue.renew", ResetAfter(), times=1, resource=f"q-{unique}")
        workflow_id = await here.submit({"name": "four", "default_queue": f"q-{unique}", "tasks": tasks})
        await here.until(lambda: executions(here.trace).total() == 5, "the one task to run again")
        release(tmp_path)

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert rule.hits == 1
        assert sorted(executions(here.trace).values()) == [1, 1, 1, 2]
        here.check_alive()


async def test_a_report_that_cannot_be_sent_for_longer_than_the_lease_is_sent_later(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """Only the completion queue is blocked: the worker holds the task's message by renewing it, and tries on."""
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}", visibility_s=3)
        blocked = proxy.inject("queue.send", BUSY, resource=here.direct.names.completion_queue)
        workflow_id = await here.submit(one_task(f"q-{unique}", "true"))
        await here.until(lambda: blocked.hits > PROMPT.retries, "the report to be refused")
        held = proxy.requests["queue.renew"]
        await here.until(lambda: proxy.requests["queue.renew"] >= held + 4, "renewals for longer than the lease")
        assert await here.tasks(workflow_id) == {0: (TaskState.READY, 1)}
        blocked.clear()

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert executions(here.trace) == {"long": 1}


async def test_a_report_that_was_lost_with_the_lease_is_made_up_for_by_a_second_execution(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """All queues away for longer than the lease while the task ends: it runs again, and is counted once."""
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}", visibility_s=3)
        workflow_id = await here.submit(one_task(f"q-{unique}", until_released(tmp_path)))
        await here.until(lambda: executions(here.trace).total() == 1, "the task to start")
        with counted_logs() as logged:
            proxy.cut_off("queue")
            release(tmp_path)
            await here.until(lambda: logged["lease_lost"] == 1, "the lease to be given up")
            proxy.restore("queue")

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert executions(here.trace) == {"long": 2}
        assert await here.tasks(workflow_id) == {0: (TaskState.COMPLETED, 1)}


async def test_a_queue_that_is_forbidden_fails_its_own_tasks_only(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    tasks = [
        {"name": f"{queue}{number}", "queue": f"{queue}-{unique}", "kwargs": {"cmd": "true"}}
        for queue in ("open", "shut")
        for number in range(3)
    ]
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"open-{unique}")
        proxy.inject("queue.send", FORBIDDEN, resource=f"shut-{unique}")
        workflow_id = await here.submit({"name": "two", "tasks": tasks})

        assert await here.ended(workflow_id) is WorkflowState.FAILED

        records = [record async for record in here.direct.tasks(workflow_id, life=1)]
        assert [record.state for record in records] == [TaskState.COMPLETED] * 3 + [TaskState.FAILED] * 3
        assert {str(record.run.cause) for record in records[3:]} == {"dispatch"}
        assert all("Storage Queue Data Contributor" in record.error for record in records[3:])


async def test_an_identity_that_is_refused_for_a_while_fails_no_task(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """401: not a missing role but a token that has ended, or a clock; it passes."""
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}")
        rule = proxy.inject("queue.send", UNKNOWN_IDENTITY, times=2, resource=f"q-{unique}")
        workflow_id = await here.submit(diamonds(f"q-{unique}"))

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert rule.hits == 2
        assert set(executions(here.trace).values()) == {1}


async def test_a_worker_without_its_role_says_which_one_and_leaves(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    proxy.inject("queue.receive", FORBIDDEN, resource=f"q-{unique}")
    async with services_at(proxy.ports) as services:
        worker = Worker(services, WorkerSettings(queue=f"q-{unique}"), clock=SystemClock())

        with pytest.raises(AccessDeniedError, match="Storage Queue Data Contributor"):
            await worker.run()


async def test_tables_that_are_still_being_deleted_are_waited_for_by_everybody(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "_pauses", lambda: iter([0.05] * 100))
    async with plant(azurite, proxy, tmp_path, unique) as here, services_at(proxy.ports, policy=PROMPT) as services:
        rules = [proxy.inject(f"{service}.create", BEING_DELETED[service], times=8) for service in ("table", "queue")]
        rules.append(proxy.inject("table.*", BEING_DELETED["table"], times=30))
        await here.coordinator()
        await here.worker(f"q-{unique}")
        submitting = type(here.direct)(services, account="devstoreaccount1", prefix=here.direct.names.prefix)
        here.direct, direct = submitting, here.direct
        workflow_id = await here.submit(diamonds(f"q-{unique}"))
        here.direct = direct

        assert await here.ended(workflow_id) is WorkflowState.COMPLETED
        assert [rule.hits for rule in rules] == [8, 8, 30]
        assert set(executions(here.trace).values()) == {1}


async def test_a_coordinator_that_leads_again_doubts_what_it_had_to_send(azurite: Azurite, unique: str) -> None:
    """It forgot what was sent when it lost the lease; workers have to look whether the task has run."""
    definition = WorkflowDefinition(name="one", tasks=(Task(name="a", kwargs={"cmd": "true"}),))
    async with services_at(azurite.ports) as services:
        store = WorkflowStore(services, account="devstoreaccount1", prefix=f"P{unique}")
        submission = await store.submit(definition, now=SystemClock().now())
        for leads_again in (False, True):
            cycle = WorkflowCycle(
                store,
                submission.workflow_id,
                owner="me",
                windows=QueueWindows(100),
                clock=SystemClock(),
                stats=Stats(),
            )
            await cycle.settle([])

            assert cycle.loaded is not None
            assert cycle.loaded.header.recheck is leads_again
            await cycle.outbox.send(cycle.loaded, 0)


async def test_a_message_whose_deletion_was_not_answered_is_not_called_lost(proxy: FaultProxy, unique: str) -> None:
    """A renewal that finds it gone, while we are trying to delete it, finds our own work."""
    lost: list[str] = []
    async with services_at(proxy.ports, policy=PROMPT) as services:
        queue = services.queue(f"q-{unique}")
        await queue.send([OutgoingMessage(body="one", message_id="1")])
        (message,) = await queue.receive(1, visibility_s=60)
        patience = Patience(SystemClock())
        lease = Lease(message, queue=queue, leased_at=0, patience=patience, on_lost=lambda: lost.append("lost"))
        proxy.inject("queue.complete", ResetAfter(), times=1)
        busy = proxy.inject("queue.complete", BUSY)
        completing = asyncio.create_task(lease.complete())
        await asyncio.to_thread(until, lambda: busy.hits > PROMPT.retries, "the deletion to be given up once")

        await lease.renew(visibility_s=60, now=1)

        assert lease.settled
        await completing
        assert not lost


@pytest.mark.long
def test_azurite_killed_and_restarted_with_its_data_is_worked_on(tmp_path: Path) -> None:
    """Real processes. Its data is on disk and eleven commands run when it dies; they end while it is away."""
    folder, data = tmp_path / "project", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    wave = f"case $JOBQ_WORKFLOW_TASK in l0-*) {until_released(folder)};; esac"
    definition = diamonds("default", cmd=f"echo $JOBQ_WORKFLOW_TASK >> {folder}/runs; {wave}", depth=1)
    forks = shared_fork_server()
    with Azurite(location=data) as azurite, project(folder, "devstoreaccount1", _ports(azurite), forks=forks) as here:
        (folder / "workflow.json").write_text(json.dumps(definition))
        here.coordinator("--lease-ttl-s", "3", "--sweep-s", "1")
        here.worker("default", "-n", "12")
        workflow_id = here.workflow("submit", "workflow.json").strip()
        until(lambda: len(_runs(folder)) >= 12, "the wave to run")
        until(lambda: here.status(workflow_id)["running"] == 11, "everybody to know that it runs")
        _wait_until_saved(data)

        azurite.stop()
        release(folder)
        until(lambda: "Cannot post reports" in (folder / "worker-default.log").read_text(), "the outage to be felt")
        azurite.restart()

        assert here.finished(workflow_id) == "completed"
        assert sorted(_runs(folder)) == sorted(task["name"] for task in definition["tasks"])


def _ports(azurite: Azurite) -> dict[str, str]:
    return {f"JOBQ_AZURITE_{service.upper()}_PORT": str(azurite.port(service)) for service in SERVICES}


def _runs(folder: Path) -> list[str]:
    """Which commands have begun, in order."""
    log = folder / "runs"
    return log.read_text().split() if log.exists() else []


def _wait_until_saved(data: Path) -> None:
    """Azurite writes its tables and queues to disk every few seconds; until it has done so from now on."""
    since = time.time()
    files = [next(data.glob(f"*{service}*.json")) for service in ("table", "queue")]
    until(lambda: all(file.stat().st_mtime > since for file in files), "Azurite to save its data")
