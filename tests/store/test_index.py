"""The index: hints that are never ahead of what they hint at, and that heal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.index import WorkflowIndex
from ai4s.jobq.store.index_rows import IndexRecord, index_record
from ai4s.jobq.store.layout import ACTIVE, ENDED, ended_row
from ai4s.jobq.store.workflows import WorkflowStore
from tests.support.faults import Call, Faults

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def record(workflow_id: str = "w", *, run: str = "r1", rev: int = 1, life: int = 1, poke: str = "") -> IndexRecord:
    return IndexRecord(
        workflow_id=workflow_id,
        name="n",
        run=run,
        rev=rev,
        life=life,
        state=WorkflowState.RUNNING,
        created_at=NOW,
        updated_at=NOW,
        task_count=1,
        poke=poke,
    )


def ended(base: IndexRecord, *, after_s: float = 10) -> IndexRecord:
    return replace(base, state=WorkflowState.COMPLETED, ended_at=NOW + timedelta(seconds=after_s))


async def ended_header(store: WorkflowStore, workflow_id: str) -> None:
    """Write the end of a workflow and move its row, as a coordinator does."""
    stored = await store.read_header(workflow_id)
    assert stored is not None
    header = replace(
        stored.header, state=WorkflowState.COMPLETED, ended_at=NOW, rev=stored.header.rev + 1, commit=new_nonce()
    )
    await write(store.table, stored, header)
    await store.index.retire(index_record(header))


@pytest.fixture
def index(store: WorkflowStore) -> WorkflowIndex:
    return store.index


async def active(index: WorkflowIndex) -> list[str]:
    return [row.workflow_id async for row in index.active()]


async def ended_ids(index: WorkflowIndex) -> list[str]:
    return [row.workflow_id async for row in index.ended()]


async def test_an_announced_workflow_is_active(index: WorkflowIndex) -> None:
    await index.announce(record())

    assert await index.get("w") is not None
    assert await active(index) == ["w"]


async def test_a_refresh_brings_a_row_up_to_date_and_keeps_its_poke(index: WorkflowIndex) -> None:
    await index.announce(record(poke="p"))
    await index.refresh(replace(record(rev=5), task_count=9))

    row = await index.get("w")
    assert row is not None
    assert (row.rev, row.task_count, row.poke) == (5, 9, "p")


async def test_a_refresh_does_not_set_the_clock_back(index: WorkflowIndex) -> None:
    await index.announce(record(rev=5))
    await index.refresh(record(rev=4))

    row = await index.get("w")
    assert row is not None
    assert row.rev == 5


async def test_a_refresh_of_another_submission_replaces_the_row(index: WorkflowIndex) -> None:
    await index.announce(record(run="old", rev=50))
    await index.refresh(record(run="new", rev=1))

    row = await index.get("w")
    assert row is not None
    assert row.run == "new"


async def test_a_refresh_restores_a_row_that_is_gone(index: WorkflowIndex) -> None:
    await index.refresh(record())

    assert await active(index) == ["w"]


async def test_a_refresh_that_meets_a_poke_gives_way(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    await store.index.announce(record())

    async def poke(_: Call) -> None:
        await store.index.poke("w")

    faults.hook("table.transact", hook=poke)
    await faulty.index.refresh(record(rev=2))

    row = await store.index.get("w")
    assert row is not None
    assert (row.rev, bool(row.poke)) == (1, True)


async def test_every_poke_is_another_mark(index: WorkflowIndex) -> None:
    await index.announce(record())
    marks = set()
    for _ in range(3):
        await index.poke("w")
        row = await index.get("w")
        assert row is not None
        marks.add(row.poke)

    assert len(marks) == 3


async def test_a_poke_of_nothing_does_nothing(index: WorkflowIndex) -> None:
    await index.poke("nobody")

    assert await active(index) == []


async def test_an_ended_workflow_moves_and_moving_it_again_changes_nothing(index: WorkflowIndex) -> None:
    await index.announce(record())
    for _ in range(2):
        await index.retire(ended(record(rev=2)))

    assert (await active(index), await ended_ids(index)) == ([], ["w"])


async def test_a_move_leaves_the_active_row_of_a_later_life(index: WorkflowIndex) -> None:
    await index.announce(record(life=2))
    await index.retire(ended(record(life=1)))

    assert await active(index) == ["w"]


async def test_a_move_leaves_the_active_row_of_another_submission(index: WorkflowIndex) -> None:
    await index.announce(record(run="new"))
    await index.retire(ended(record(run="old")))

    assert await active(index) == ["w"]


async def test_a_workflow_is_never_in_neither_partition_while_it_moves(
    store: WorkflowStore, faulty: WorkflowStore, faults: Faults
) -> None:
    await store.index.announce(record())
    seen: list[int] = []

    async def look(_: Call) -> None:
        seen.append(len(await active(store.index)) + len(await ended_ids(store.index)))

    faults.hook("table.transact", hook=look, times=9)
    await faulty.index.retire(ended(record()))

    assert seen == [1, 2]


async def test_ended_workflows_are_listed_newest_first(index: WorkflowIndex) -> None:
    for number, after_s in enumerate([30, 10, 20]):
        await index.retire(ended(record(f"w{number}"), after_s=after_s))

    assert await ended_ids(index) == ["w0", "w2", "w1"]


async def test_forgetting_an_ended_row_twice_is_harmless(index: WorkflowIndex) -> None:
    end = ended(record())
    await index.retire(end)
    assert end.ended_at is not None
    for _ in range(2):
        await index.forget_ended(ended_row(end.ended_at, "w"))

    assert await ended_ids(index) == []


async def test_an_active_row_that_changed_since_it_was_read_is_not_forgotten(index: WorkflowIndex) -> None:
    await index.announce(record())
    row = await index.get("w")
    assert row is not None
    await index.poke("w")
    await index.forget_active(row)

    assert await active(index) == ["w"]


async def test_withdrawing_takes_back_only_what_one_announced_oneself(index: WorkflowIndex) -> None:
    await index.announce(record(run="theirs"))
    await index.withdraw(record(run="ours"))
    assert await active(index) == ["w"]

    await index.withdraw(record(run="theirs"))
    assert await active(index) == []


async def test_a_parked_row_says_why_until_the_next_refresh(index: WorkflowIndex) -> None:
    await index.announce(record())
    await index.park("w", "é" * 10_000)
    parked = await index.get("w")
    await index.refresh(record(rev=2))
    refreshed = await index.get("w")

    assert parked is not None
    assert refreshed is not None
    assert (parked.parked.startswith("é"), refreshed.parked) == (True, "")


async def test_more_rows_than_a_page_holds_are_all_listed(index: WorkflowIndex) -> None:
    ids = [f"w{number:04d}" for number in range(1200)]
    for start in range(0, len(ids), 100):
        operations = [Merge(workflow_id, record(workflow_id).values()) for workflow_id in ids[start : start + 100]]
        await index.table.transact(ACTIVE, operations)

    assert await active(index) == ids


# -- damage


async def test_damaged_rows_are_left_out_and_told(index: WorkflowIndex) -> None:
    await index.announce(record("good"))
    await index.table.transact(ACTIVE, [Merge("bad", {"v": 1, "state": "dancing"})])
    await index.table.transact(ENDED, [Merge("0-bad", {"v": 1})])
    damaged: list[str] = []

    rows = [row.workflow_id async for row in index.active(damaged=damaged.append)]

    assert (rows, damaged, await ended_ids(index)) == (["good"], ["bad"], [])


async def test_a_damaged_row_is_logged_once_until_it_changes(
    index: WorkflowIndex, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep looks every few seconds; the log shall not fill with what nobody has mended yet."""

    async def look() -> int:
        assert [row async for row in index.active()] == []
        return len(caplog.records)

    await index.table.transact(ACTIVE, [Merge("bad", {"v": 1, "state": "dancing"})])
    first_look = await look()
    second_look = await look()
    await index.table.transact(ACTIVE, [Merge("bad", {"v": 1, "state": "singing"})])

    assert (first_look, second_look, await look()) == (1, 1, 2)


async def test_a_refresh_mends_a_damaged_row(index: WorkflowIndex) -> None:
    await index.table.transact(ACTIVE, [Merge("w", {"v": 1, "state": "dancing"})])
    await index.refresh(record())

    assert await active(index) == ["w"]


async def test_a_move_removes_a_damaged_row(index: WorkflowIndex) -> None:
    await index.table.transact(ACTIVE, [Merge("w", {"v": 1, "state": "dancing"})])
    await index.retire(ended(record()))

    assert await index.table.get(ACTIVE, "w") is None


async def test_a_row_of_a_newer_release_is_neither_refreshed_nor_moved(index: WorkflowIndex) -> None:
    await index.table.transact(ACTIVE, [Merge("w", {"v": 2, "shape": "unknown"})])
    await index.refresh(record())
    await index.retire(ended(record()))

    entity = await index.table.get(ACTIVE, "w")
    assert entity is not None
    assert entity.values == {"v": 2, "shape": "unknown"}
