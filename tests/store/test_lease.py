"""The coordinator's lease: one holder, by its own clock, whatever gets lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ai4s.jobq.errors import StaleWriteError, StorageUnavailableError
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.layout import LEASE
from ai4s.jobq.store.lease import ROW, CoordinatorLease
from ai4s.jobq.store.workflows import WorkflowStore
from tests.support.faults import Faults

TTL_S = 30.0


class HandClock:
    """A clock that stands still unless it is moved."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def lease(store: WorkflowStore, owner: str, clock: HandClock) -> CoordinatorLease:
    return CoordinatorLease(store.index.table, owner, f"host-{owner}", clock, ttl_s=TTL_S)


async def test_the_first_who_asks_leads(store: WorkflowStore, clock: HandClock) -> None:
    first = lease(store, "a", clock)

    assert not first.is_leading
    assert await first.try_hold()
    assert first.is_leading


async def test_a_second_one_stands_by_and_knows_who_leads(store: WorkflowStore, clock: HandClock) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    await first.try_hold()

    assert not await second.try_hold()
    assert not second.is_leading
    assert second.holder is not None
    assert (second.holder.owner, second.holder.host) == ("a", "host-a")


async def test_a_leader_stops_before_a_standby_may_begin(store: WorkflowStore, clock: HandClock) -> None:
    first = lease(store, "a", clock)
    await first.try_hold()
    clock.seconds += TTL_S * 2 / 3

    assert not first.is_leading


async def test_a_renewed_lease_is_never_taken_over(store: WorkflowStore, clock: HandClock) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    for _ in range(10):
        assert await first.try_hold()
        assert not await second.try_hold()
        clock.seconds += TTL_S - 1


async def test_a_standby_takes_over_when_the_row_stood_still_for_the_whole_time(
    store: WorkflowStore, clock: HandClock
) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    await first.try_hold()
    await second.try_hold()
    clock.seconds += TTL_S - 0.1
    early = await second.try_hold()
    clock.seconds += 0.1

    assert (early, await second.try_hold()) == (False, True)


async def test_a_standby_counts_from_when_it_saw_the_row_itself(store: WorkflowStore, clock: HandClock) -> None:
    """The two machines' clocks have nothing to do with each other."""
    first = lease(store, "a", clock)
    await first.try_hold()
    other = HandClock(10**9)
    second = lease(store, "b", other)

    assert not await second.try_hold()
    other.seconds += TTL_S
    assert await second.try_hold()


async def test_a_leader_that_was_taken_over_stands_by(store: WorkflowStore, clock: HandClock) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    await first.try_hold()
    await second.try_hold()
    clock.seconds += TTL_S
    await second.try_hold()

    assert not await first.try_hold()
    assert (first.is_leading, second.is_leading) == (False, True)


async def test_of_two_standbys_one_takes_over(store: WorkflowStore, clock: HandClock) -> None:
    leases = [lease(store, owner, clock) for owner in "abc"]
    for candidate in leases:
        await candidate.try_hold()
    clock.seconds += TTL_S

    assert [await candidate.try_hold() for candidate in leases[1:]] == [True, False]


async def test_a_released_lease_is_free_at_once(store: WorkflowStore, clock: HandClock) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    await first.try_hold()
    await second.try_hold()
    await first.release()

    assert not first.is_leading
    assert await second.try_hold()


async def test_a_release_does_not_take_the_lease_from_another(store: WorkflowStore, clock: HandClock) -> None:
    first, second = lease(store, "a", clock), lease(store, "b", clock)
    await first.try_hold()
    await second.try_hold()
    clock.seconds += TTL_S
    await second.try_hold()
    await first.release()

    assert await store.index.table.get(LEASE, ROW) is not None


async def test_releasing_what_was_never_held_does_nothing(store: WorkflowStore, clock: HandClock) -> None:
    await lease(store, "a", clock).try_hold()
    await lease(store, "b", clock).release()

    assert await store.index.table.get(LEASE, ROW) is not None


@pytest.mark.parametrize("renewal", [False, True])
async def test_a_lost_reply_that_the_adapter_repeated_is_a_success(
    faulty: WorkflowStore, faults: Faults, clock: HandClock, renewal: bool
) -> None:
    mine = lease(faulty, "a", clock)
    if renewal:
        await mine.try_hold()
    faults.lose_reply("table.transact", error=StaleWriteError("changed"))

    assert await mine.try_hold()
    assert await mine.try_hold()


async def test_a_leader_whose_reply_was_lost_goes_on_with_the_next_renewal(
    faulty: WorkflowStore, faults: Faults, clock: HandClock
) -> None:
    mine = lease(faulty, "a", clock)
    await mine.try_hold()
    faults.lose_reply("table.transact")

    with pytest.raises(StorageUnavailableError):
        await mine.try_hold()
    assert mine.is_leading
    assert await mine.try_hold()


async def test_a_failed_renewal_does_not_prolong_the_lease(
    faulty: WorkflowStore, faults: Faults, clock: HandClock
) -> None:
    mine = lease(faulty, "a", clock)
    await mine.try_hold()
    faults.refuse("table.transact", times=9)
    clock.seconds += TTL_S / 2
    with pytest.raises(StorageUnavailableError):
        await mine.try_hold()
    clock.seconds += TTL_S / 4

    assert not mine.is_leading


async def test_a_lease_row_that_cannot_be_read_is_waited_for_like_any_other(
    store: WorkflowStore, clock: HandClock
) -> None:
    await store.index.table.transact(LEASE, [Merge(ROW, {"owner": "x", "since": "yesterday"})])
    mine = lease(store, "a", clock)

    assert not await mine.try_hold()
    clock.seconds += TTL_S
    assert await mine.try_hold()


async def test_the_row_tells_since_when_one_has_led(store: WorkflowStore, clock: HandClock) -> None:
    mine = lease(store, "a", clock)
    await mine.try_hold()
    first = await store.index.table.get(LEASE, ROW)
    await mine.try_hold()
    second = await store.index.table.get(LEASE, ROW)

    assert first is not None
    assert second is not None
    assert first.values["since"] == second.values["since"]
    assert first.etag != second.etag
