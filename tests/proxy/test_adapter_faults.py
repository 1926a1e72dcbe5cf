"""The Azure adapters: every kind of request meets every fault, once and for ever.

What must come out: success, or the error the port's contract names; after a bounded number of requests; and what was called
a success must have happened.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ai4s.jobq.adapters.azure import creation
from ai4s.jobq.adapters.azure.services import AzureServices
from ai4s.jobq.adapters.azure.transport import RetryPolicy
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.errors import (
    AccessDeniedError,
    MessageLostError,
    NothingSentError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
)
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.lease import CoordinatorLease
from ai4s.jobq.store.workflows import WorkflowStore
from tests.proxy.calls import CALLS, PortCall, Scene
from tests.proxy.conftest import QUICK, services_at
from tests.support.fault_proxy import (
    BEING_DELETED,
    BROKEN,
    BUSY,
    FORBIDDEN,
    THROTTLED,
    UNKNOWN_IDENTITY,
    Answer,
    Fault,
    FaultProxy,
    Garbage,
    Mute,
    ResetAfter,
    ResetBefore,
    Slow,
    Truncated,
    fault_name,
)

pytestmark = pytest.mark.azurite

IMPATIENT = RetryPolicy(first_pause_s=0.002, max_pause_s=0.01, read_timeout_s=0.1, attempt_timeout_s=1.0)
"""For faults that are waited out: an Azurite that is slower than this only adds a retry."""

PASSING: list[Fault] = [
    Answer(503, "ServerBusy", retry_after="nonsense"),
    THROTTLED,
    BROKEN,
    ResetBefore(),
    Mute(),
    Slow(0.05),
]
LOSING: list[Fault] = [ResetAfter(), Truncated(), Slow(0.5)]
"""Executed, and the answer does not come (in time)."""
MEANINGLESS: list[Fault] = [
    Garbage(),
    Garbage(b"", "application/json"),
    Garbage(b"[]", "application/json"),
    Garbage(b'{"value": 7}', "application/json"),
    Garbage(b"<a/>", "application/xml"),
    Garbage(b"--x\r\nHTTP/1.1 9", "multipart/mixed; boundary=x"),
    Garbage(b"{", "application/json", foreign=False),
    Garbage(b"<a", "application/xml", foreign=False),
    Garbage(b"\xff\x00\xfe", "application/xml", foreign=False),
    Garbage(b"\xff\x00\xfe", "application/json", foreign=False),
]


def _policy(fault: Fault) -> RetryPolicy:
    return IMPATIENT if isinstance(fault, Mute | Slow) else QUICK


def _id(value: object) -> str:
    if isinstance(value, Garbage):
        return f"garbage-{MEANINGLESS.index(value)}"
    return fault_name(value) if isinstance(value, Fault) else str(value)


@pytest.mark.parametrize("fault", PASSING, ids=_id)
@pytest.mark.parametrize("name", CALLS)
async def test_a_fault_that_passes_is_not_seen_by_the_caller(
    name: str, fault: Fault, proxy: FaultProxy, unique: str
) -> None:
    """One or two failures in a row, and the call succeeds as if there had been none."""
    call = CALLS[name]
    async with services_at(proxy.ports) as plain, services_at(proxy.ports, policy=_policy(fault)) as services:
        scene = await _scene(call, plain, services, unique)
        rule = proxy.inject(call.kind, fault, times=2)

        await call.make(scene)

        assert rule.hits >= 1
        proxy.clear()
        assert await call.happened(scene)


@pytest.mark.parametrize("fault", LOSING, ids=_id)
@pytest.mark.parametrize("name", CALLS)
async def test_a_request_whose_answer_was_lost_has_happened_whatever_the_caller_is_told(
    name: str, fault: Fault, proxy: FaultProxy, unique: str
) -> None:
    """Success, or the one error that the contract allows for it; the effect is there either way."""
    call = CALLS[name]
    async with services_at(proxy.ports) as plain, services_at(proxy.ports, policy=_policy(fault)) as services:
        scene = await _scene(call, plain, services, unique)
        rule = proxy.inject(call.kind, fault, times=1)

        succeeded = await _succeeds(call, scene, call.after_lost_answer)

        assert rule.hits == 1
        proxy.clear()
        assert not succeeded or await call.happened(scene)


@pytest.mark.parametrize("fault", [BUSY, BROKEN, ResetBefore(), ResetAfter(), Mute()], ids=_id)
@pytest.mark.parametrize("name", CALLS)
async def test_a_fault_that_stays_is_an_outage_after_a_bounded_number_of_requests(
    name: str, fault: Fault, proxy: FaultProxy, unique: str
) -> None:
    call = CALLS[name]
    async with services_at(proxy.ports) as plain, services_at(proxy.ports, policy=_policy(fault)) as services:
        scene = await _scene(call, plain, services, unique)
        before = proxy.requests[call.kind]
        proxy.inject(call.kind, fault)

        succeeded = await _succeeds(call, scene, (StorageUnavailableError, *call.after_lost_answer))

        assert not succeeded
        sent_again_by_aiohttp = 1 if isinstance(fault, ResetBefore | ResetAfter) else 0
        assert proxy.requests[call.kind] - before <= (QUICK.retries + 1) * (1 + sent_again_by_aiohttp)


@pytest.mark.parametrize("fault", MEANINGLESS, ids=_id)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.reads_its_answer])
async def test_an_answer_without_meaning_is_an_outage(name: str, fault: Fault, proxy: FaultProxy, unique: str) -> None:
    """Somebody between us and the service says 200 to everything: never our bug, never an empty result."""
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.inject(call.kind, fault)

        assert not await _succeeds(call, scene, (StorageUnavailableError,))


@pytest.mark.parametrize("status", [201, 204, 301, 400, 403, 404, 407, 409, 412])
@pytest.mark.parametrize("name", ["merge", "get", "complete", "get_blob"])
async def test_a_status_that_is_not_the_services_own_is_an_outage(
    name: str, status: int, proxy: FaultProxy, unique: str
) -> None:
    """Else somebody's 404 would read as "there is no such workflow", and a worker would throw its message away."""
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.inject(call.kind, Garbage(status=status))

        assert not await _succeeds(call, scene, (StorageUnavailableError,))


@pytest.mark.parametrize("fault", [FORBIDDEN, UNKNOWN_IDENTITY], ids=_id)
@pytest.mark.parametrize("name", CALLS)
async def test_a_refused_identity_is_told_with_the_missing_role_and_not_asked_again(
    name: str, fault: Fault, proxy: FaultProxy, unique: str
) -> None:
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        before = proxy.requests[call.kind]
        proxy.inject(call.kind, fault)

        with pytest.raises((AccessDeniedError, NothingSentError), match=r"Storage .* Data Contributor"):
            await call.make(scene)

        assert proxy.requests[call.kind] - before == 1


@pytest.mark.parametrize("name", CALLS)
async def test_a_wait_longer_than_our_budget_is_handed_to_the_caller_at_once(
    name: str, proxy: FaultProxy, unique: str
) -> None:
    """Retry-After is honoured: rather than asking too soon, nothing more is asked."""
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        before = proxy.requests[call.kind]
        proxy.inject(call.kind, Answer(BUSY.status, BUSY.code, retry_after="300"))

        with pytest.raises(StorageUnavailableError) as raised:
            await call.make(scene)

        assert raised.value.retry_after_s == 300
        assert proxy.requests[call.kind] - before == 1


@pytest.mark.parametrize("status", [429, 503, 500])
async def test_a_transaction_refused_by_one_of_its_parts_for_a_while_is_an_outage(
    status: int, proxy: FaultProxy, unique: str
) -> None:
    """The service may say "busy" inside a 202."""
    call = CALLS["merge"]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.inject(call.kind, Answer(status, "ServerBusy", inside=True))

        assert not await _succeeds(call, scene, (StorageUnavailableError,))


@pytest.mark.parametrize("name", CALLS)
async def test_a_service_that_is_cut_off_is_an_outage_and_works_again_on_the_same_handles(
    name: str, proxy: FaultProxy, unique: str
) -> None:
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.cut_off(call.service)
        assert not await _succeeds(call, scene, (StorageUnavailableError,))
        proxy.restore(call.service)

        await call.make(scene)

        assert await call.happened(scene)


@pytest.mark.parametrize("code", ["MessageNotFound:404", "PopReceiptMismatch:400"])
@pytest.mark.parametrize("name", ["renew", "abandon", "complete"])
async def test_every_face_of_a_lost_message_is_one_error(name: str, code: str, proxy: FaultProxy, unique: str) -> None:
    call = CALLS[name]
    word, _, status = code.partition(":")
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.inject(call.kind, Answer(int(status), word), times=1)

        with pytest.raises(MessageLostError):
            await call.make(scene)


@pytest.mark.parametrize("inside", [True, False])
async def test_a_condition_that_does_not_hold_is_a_stale_write(inside: bool, proxy: FaultProxy, unique: str) -> None:
    call = CALLS["merge"]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        before = proxy.requests["table.transact"]
        proxy.inject("table.transact", Answer(412, "UpdateConditionNotSatisfied", inside=inside))

        with pytest.raises(StaleWriteError):
            await scene.table.transact("p", [Merge("a", {"n": 3})])

        assert proxy.requests["table.transact"] - before == 1


@pytest.mark.parametrize("name", ["merge", "send", "put", "append"])
async def test_a_name_that_is_still_being_deleted_is_waited_for(
    name: str, proxy: FaultProxy, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write after a deletion: refused, then refused to be created, then written."""
    monkeypatch.setattr(creation, "_pauses", lambda: iter([0.01] * 10))
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        deleted = BEING_DELETED[call.service]
        write = proxy.inject(call.kind, deleted, times=3)
        create = proxy.inject(f"{call.service}.create", deleted, times=3)

        await call.make(scene)

        assert (write.hits, create.hits) == (3, 3)
        assert await call.happened(scene)


@pytest.mark.parametrize("name", ["merge", "send", "put"])
async def test_a_name_that_never_comes_free_is_an_outage(
    name: str, proxy: FaultProxy, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "_pauses", lambda: iter([0.01] * 10))
    call = CALLS[name]
    async with services_at(proxy.ports) as services:
        scene = await _scene(call, services, services, unique)
        proxy.inject(call.kind, BEING_DELETED[call.service])
        proxy.inject(f"{call.service}.create", BEING_DELETED[call.service])

        with pytest.raises(StorageUnavailableError, match="Try again in some minutes"):
            await call.make(scene)


async def test_pauses_between_attempts_are_drawn_at_random() -> None:
    """Many clients that failed together do not come back together."""
    drawn = {QUICK.pause_s(2, advice_s=None, never_sent=False, elapsed_s=0) for _ in range(20)}

    assert len(drawn) > 10


async def test_a_commit_whose_answer_was_lost_is_no_conflict(proxy: FaultProxy, unique: str) -> None:
    """The store knows its own commit again, however the answer went missing."""
    definition = WorkflowDefinition(name="one", tasks=(Task(name="a", kwargs={"cmd": "true"}),))
    async with services_at(proxy.ports) as services:
        store = WorkflowStore(services, account="devstoreaccount1", prefix=f"P{unique}")
        submission = await store.submit(definition, now=datetime.now(UTC))
        for fault in (ResetAfter(), Truncated()):
            stored = await store.read_header(submission.workflow_id)
            assert stored is not None
            header = replace(stored.header, rev=stored.header.rev + 1, commit=new_nonce())
            rule = proxy.inject("table.transact", fault, times=1)

            etag = await write(store.table, stored, header)

            assert rule.hits == 1
            found = await store.read_header(submission.workflow_id)
            assert found is not None
            assert (found.etag, found.header.commit) == (etag, header.commit)


@pytest.mark.parametrize("fault", [ResetAfter(), Truncated()], ids=_id)
async def test_a_submit_any_of_whose_answers_is_lost_submits_once(fault: Fault, proxy: FaultProxy, unique: str) -> None:
    definition = WorkflowDefinition(name="one", tasks=(Task(name="a", kwargs={"cmd": "true"}),))
    async with services_at(proxy.ports) as services:
        store = WorkflowStore(services, account="devstoreaccount1", prefix=f"P{unique}")
        for lost in range(6):
            rule = proxy.inject("*.*", fault, times=1, skip=lost)

            submission = await store.submit(definition, now=datetime.now(UTC), workflow_id=f"w{lost}")

            assert submission.created
            rule.clear()
        assert {record.workflow_id async for record in store.index.active()} == {f"w{lost}" for lost in range(6)}


@pytest.mark.parametrize("fault", [ResetAfter(), Truncated()], ids=_id)
async def test_a_lease_whose_write_lost_its_answer_is_held(fault: Fault, proxy: FaultProxy, unique: str) -> None:
    async with services_at(proxy.ports) as services:
        table = services.table(f"T{unique}")
        lease = CoordinatorLease(table, "me", "host", SystemClock())
        for _ in range(2):  # taken, then renewed
            rule = proxy.inject("table.transact", fault, times=1)
            assert await lease.try_hold()
            rule.clear()
        other = CoordinatorLease(table, "you", "host", SystemClock())
        assert not await other.try_hold()


async def _scene(call: PortCall, plain: AzureServices, services: AzureServices, unique: str) -> Scene:
    """Set up through ``plain``, then seen through ``services``."""
    first = Scene(plain, unique)
    await first.set_up(call.service)
    return Scene(services, unique, first.messages)


async def _succeeds(call: PortCall, scene: Scene, allowed: tuple[type[OperationalError], ...]) -> bool:
    """Whether the call succeeded; an error that is not allowed is raised on."""
    try:
        await call.make(scene)
    except allowed:
        return False
    return True
