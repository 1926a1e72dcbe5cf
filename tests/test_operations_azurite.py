"""A18, A19 on the emulator: what the local store cannot show, such as requests that create."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from ai4s.jobq.doctor.examine import examine_store
from ai4s.jobq.doctor.finding import Verdict
from ai4s.jobq.doctor.repair import repair_index
from ai4s.jobq.explain.explain import explain_workflow
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.purge.plan import Selection, make_plan
from ai4s.jobq.purge.purge import drop_everything, purge_workflows
from ai4s.jobq.settings import Target
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.signs import AT_ONCE
from tests.contract.azurite_services import azurite_services
from tests.support.small import many, workflow

pytestmark = pytest.mark.azurite

CLOCK = SystemClock()
READS = {
    "table.get",
    "table.get_many",
    "table.query",
    "table.exists",
    "queue.exists",
    "queue.count",
    "queue.peek",
    "blob.exists",
}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with azurite_services() as services:
        yield services


@pytest.fixture
def store(services: Services) -> WorkflowStore:
    return WorkflowStore(services, account="devstoreaccount1", prefix=f"Ops{secrets.token_hex(4)}")


def target(store: WorkflowStore) -> Target:
    return Target("devstoreaccount1", store.names.prefix)


async def test_doctor_and_explain_only_read(services: Services, store: WorkflowStore) -> None:
    """K10, COMPAT 9.34."""
    await examine_store(store, target(store), patience=AT_ONCE)
    kinds_before_any_write = set(services.requests)
    await store.submit(workflow(many(3)), now=CLOCK.now(), workflow_id="w1")
    before = dict(services.requests)

    findings = await examine_store(store, target(store), patience=AT_ONCE)
    await explain_workflow(store, target(store), "w1", patience=AT_ONCE)

    assert kinds_before_any_write <= READS
    assert {kind for kind, count in services.requests.items() if count > before.get(kind, 0)} <= READS
    assert {finding.name for finding in findings if finding.verdict is Verdict.FAIL} == {"Coordinator"}
    assert "no difference seen" in {finding.message for finding in findings}


async def test_a_purge_leaves_nothing_and_costs_few_requests(services: Services, store: WorkflowStore) -> None:
    """M05."""
    await store.submit(workflow(many(300)), now=CLOCK.now(), workflow_id="w1")
    facts: dict[str, str | int] = {"v": 1, "state": "completed", "life": 1, "attempt": 1, "facts": "{}"}
    for start in range(0, 300, 100):
        await store.table.transact("w1", [Merge(task_row(number), facts) for number in range(start, start + 100)])
    container = services.blobs(store.outputs_store.container)
    run = (await store.header("w1") or pytest.fail("no header")).run
    await container.put(store.names.output_blob("w1", run, task_row(0), "x"), b"1")
    before = sum(services.requests.values())

    plan = await make_plan(store, Selection(ids=["w1"]), CLOCK)
    purged = await purge_workflows(store, plan, CLOCK, stop_s=0)

    assert (purged.workflows, purged.task_rows, purged.blobs) == (1, 300, 1)
    assert (await store.table.query("w1")).entities == []
    assert [record async for record in store.index.active()] == []
    assert sum(services.requests.values()) - before < 40


async def test_dropped_tables_are_gone_and_made_again(store: WorkflowStore) -> None:
    await store.submit(workflow(many(3)), now=CLOCK.now(), workflow_id="w1")

    await drop_everything(store)

    assert await store.header("w1") is None
    assert (await store.submit(workflow(many(3)), now=CLOCK.now(), workflow_id="w1")).created


async def test_the_index_is_repaired(store: WorkflowStore) -> None:
    for number in range(3):
        await store.submit(workflow(many(2)), now=CLOCK.now(), workflow_id=f"w{number}")
    await store.index.table.drop()

    assert (await repair_index(store, CLOCK)).workflows == 3
    assert len([record async for record in store.index.active()]) == 3
