"""The numbered points of :class:`ai4s.jobq.ports.table.Table`, on every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ai4s.jobq.errors import EntityExistsError, EntityTooLargeError, StaleWriteError, UsageError
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Delete, Entity, ETag, Insert, Merge, Operation, Replace, Table, Value

P = "partition"
KIB = 1024


async def all_rows(
    table: Table, *, first: str | None = None, before: str | None = None, limit: int = 1000
) -> list[Entity]:
    """Every row of the range, following the continuation."""
    found: list[Entity] = []
    continuation = None
    while True:
        page = await table.query(P, first=first, before=before, limit=limit, continuation=continuation)
        found.extend(page.entities)
        continuation = page.continuation
        if continuation is None:
            return found


async def row_keys(table: Table, *, first: str | None = None, before: str | None = None) -> list[str]:
    return [entity.row for entity in await all_rows(table, first=first, before=before)]


async def insert_rows(table: Table, rows: Sequence[str]) -> None:
    for start in range(0, len(rows), 100):
        await table.transact(P, [Insert(row, {"n": 1}) for row in rows[start : start + 100]])


async def read(table: Table, row: str = "row") -> Entity:
    entity = await table.get(P, row)
    assert entity is not None
    return entity


# Point 1: a table that does not exist.


async def test_absent_table_reads_as_empty(table: Table) -> None:
    assert await table.get(P, "row") is None
    assert await table.get_many(P, ["row", "other"]) == {}
    assert await all_rows(table) == []


async def test_reading_creates_no_table(table: Table) -> None:
    await table.get(P, "row")
    await table.get_many(P, ["row"])
    await table.query(P)

    assert not await table.exists()


@pytest.mark.parametrize("operation", [Insert("row", {"n": 1}), Merge("row", {"n": 1})])
async def test_first_write_creates_the_table(table: Table, operation: Operation) -> None:
    await table.transact(P, [operation])

    assert await table.exists()
    assert dict((await read(table)).values) == {"n": 1}


async def test_dropping_an_absent_table_is_no_error(table: Table) -> None:
    await table.drop()

    assert not await table.exists()


async def test_dropped_table_reads_as_empty(table: Table) -> None:
    await insert_rows(table, [f"r{n:04}" for n in range(1100)])

    await table.drop()

    assert not await table.exists()
    assert await all_rows(table) == []


async def test_dropping_a_table_leaves_others(table: Table, services: Services, unique: str) -> None:
    other = services.table(f"Other{unique}")
    await other.transact(P, [Insert("row", {"n": 1})])
    await table.transact(P, [Insert("row", {"n": 1})])

    await table.drop()

    assert await other.get(P, "row") is not None
    await other.drop()


# Point 2: transactions and their limits.


@pytest.mark.parametrize("count", [1, 99, 100])
async def test_up_to_100_operations_make_one_transaction(table: Table, count: int) -> None:
    etags = await table.transact(P, [Insert(f"t{n:06}", {"n": n}) for n in range(count)])

    assert len(etags) == count
    assert len(await row_keys(table)) == count


async def test_101_operations_are_refused_before_anything_is_written(table: Table) -> None:
    with pytest.raises(EntityTooLargeError, match="101"):
        await table.transact(P, [Insert(f"t{n:06}", {"n": n}) for n in range(101)])

    assert await row_keys(table) == []


async def test_more_than_4_mib_are_refused_before_anything_is_written(table: Table) -> None:
    half_mib = {f"p{n}": b"x" * 64 * KIB for n in range(8)}

    with pytest.raises(EntityTooLargeError, match="4 MiB"):
        await table.transact(P, [Insert(f"t{n}", half_mib) for n in range(9)])

    assert await row_keys(table) == []


async def test_entity_of_more_than_1_mib_is_refused(table: Table) -> None:
    with pytest.raises(EntityTooLargeError, match="1 MiB"):
        await table.transact(P, [Insert("row", {f"p{n}": b"x" * 64 * KIB for n in range(16)})])


@pytest.mark.parametrize("value", ["x" * 32 * KIB, "é" * 32 * KIB, "🏥" * 16 * KIB, b"\0" * 64 * KIB])
async def test_property_of_64_kib_comes_back(table: Table, value: Value) -> None:
    await table.transact(P, [Insert("row", {"p": value})])

    assert (await read(table)).values["p"] == value


@pytest.mark.parametrize("value", ["x" * (32 * KIB + 1), "🏥" * (16 * KIB + 1), b"\0" * (64 * KIB + 1)])
async def test_larger_property_is_refused(table: Table, value: Value) -> None:
    with pytest.raises(EntityTooLargeError, match="'p' of row 'row'"):
        await table.transact(P, [Insert("row", {"p": value})])


async def test_more_than_252_properties_are_refused(table: Table) -> None:
    with pytest.raises(EntityTooLargeError, match="253"):
        await table.transact(P, [Insert("row", {f"p{n}": n for n in range(253)})])


async def test_changing_a_row_twice_in_one_transaction_is_a_bug_of_the_caller(table: Table) -> None:
    with pytest.raises(ValueError, match="twice"):
        await table.transact(P, [Insert("row", {}), Merge("row", {"n": 1})])


async def test_empty_transaction_is_a_bug_of_the_caller(table: Table) -> None:
    with pytest.raises(ValueError, match="empty"):
        await table.transact(P, [])


async def test_etags_come_back_in_the_order_of_the_operations(table: Table) -> None:
    await insert_rows(table, ["gone", "old"])

    etags = await table.transact(P, [Merge("old", {"n": 2}), Delete("gone"), Insert("a", {"n": 3})])

    assert etags == [(await read(table, "old")).etag, "", (await read(table, "a")).etag]


# Point 3: conditions.


async def test_insert_of_an_existing_row_is_refused(table: Table) -> None:
    await table.transact(P, [Insert("row", {"n": 1})])

    with pytest.raises(EntityExistsError):
        await table.transact(P, [Insert("row", {"n": 2})])

    assert (await read(table)).values == {"n": 1}


async def test_replace_with_the_current_etag_replaces_all_properties(table: Table) -> None:
    [etag] = await table.transact(P, [Insert("row", {"n": 1, "m": 1})])

    await table.transact(P, [Replace("row", {"n": 2}, etag)])

    assert dict((await read(table)).values) == {"n": 2}


async def test_replace_with_an_old_etag_is_stale(table: Table) -> None:
    [old] = await table.transact(P, [Insert("row", {"n": 1})])
    await table.transact(P, [Merge("row", {"n": 2})])

    with pytest.raises(StaleWriteError):
        await table.transact(P, [Replace("row", {"n": 3}, old)])

    assert (await read(table)).values["n"] == 2


async def test_replace_of_a_deleted_row_is_stale(table: Table) -> None:
    [etag] = await table.transact(P, [Insert("row", {"n": 1})])
    await table.transact(P, [Delete("row")])

    with pytest.raises(StaleWriteError):
        await table.transact(P, [Replace("row", {"n": 2}, etag)])


async def test_etag_of_a_deleted_row_does_not_fit_its_successor(table: Table) -> None:
    [old] = await table.transact(P, [Insert("row", {"n": 1})])
    await table.transact(P, [Delete("row")])
    await table.transact(P, [Insert("row", {"n": 1})])

    with pytest.raises(StaleWriteError):
        await table.transact(P, [Replace("row", {"n": 2}, old)])


async def test_every_write_changes_the_etag_even_if_no_property_changed(table: Table) -> None:
    [inserted] = await table.transact(P, [Insert("row", {"n": 1})])
    [replaced] = await table.transact(P, [Replace("row", {"n": 1}, inserted)])
    [merged] = await table.transact(P, [Merge("row", {"n": 1})])

    assert len({inserted, replaced, merged}) == 3


async def test_merge_keeps_the_other_properties(table: Table) -> None:
    await table.transact(P, [Insert("row", {"kept": b"\0\xff", "changed": 1})])

    await table.transact(P, [Merge("row", {"changed": "text", "added": True})])

    assert dict((await read(table)).values) == {"kept": b"\0\xff", "changed": "text", "added": True}


async def test_delete_with_the_current_etag_deletes(table: Table) -> None:
    [etag] = await table.transact(P, [Insert("row", {"n": 1})])

    await table.transact(P, [Delete("row", etag)])

    assert await table.get(P, "row") is None


async def test_delete_with_an_old_etag_is_stale(table: Table) -> None:
    [old] = await table.transact(P, [Insert("row", {"n": 1})])
    await table.transact(P, [Merge("row", {"n": 2})])

    with pytest.raises(StaleWriteError):
        await table.transact(P, [Delete("row", old)])

    assert await table.get(P, "row") is not None


@pytest.mark.parametrize("etag", [None, ETag("W/\"datetime'2026-01-01T00%3A00%3A00.0000000Z'\"")])
async def test_delete_of_an_absent_row_is_stale(table: Table, etag: ETag | None) -> None:
    await table.transact(P, [Insert("other", {"n": 1})])

    with pytest.raises(StaleWriteError):
        await table.transact(P, [Delete("row", etag)])


async def test_one_failed_condition_undoes_the_whole_transaction(table: Table) -> None:
    [old, _] = await table.transact(P, [Insert("header", {"rev": 1}), Insert("deleted", {"n": 1})])
    await table.transact(P, [Merge("header", {"rev": 2})])

    with pytest.raises(StaleWriteError):
        await table.transact(
            P,
            [Insert("a", {}), Merge("b", {}), Delete("deleted"), Replace("header", {"rev": 9}, old), Insert("c", {})],
        )

    assert await row_keys(table) == ["deleted", "header"]
    assert (await read(table, "header")).values["rev"] == 2


async def test_concurrent_conditional_writes_of_one_row_lose_none(table: Table) -> None:
    await table.transact(P, [Insert("row", {"n": 0})])

    async def count_up() -> None:
        for _ in range(20):
            while True:
                entity = await read(table)
                try:
                    await table.transact(P, [Replace("row", {"n": int(entity.values["n"]) + 1}, entity.etag)])
                    break
                except StaleWriteError:
                    continue

    await asyncio.gather(*(count_up() for _ in range(8)))

    assert (await read(table)).values["n"] == 160


async def test_one_of_many_concurrent_inserts_of_a_row_wins(table: Table) -> None:
    answers = await asyncio.gather(
        *(table.transact(P, [Insert("row", {"n": n})]) for n in range(8)), return_exceptions=True
    )

    winners = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    assert winners == [(await read(table)).values["n"]]
    assert sum(isinstance(answer, EntityExistsError) for answer in answers) == 7


# Point 4: unknown ends.


async def test_cancelled_transaction_happened_whole_or_not_at_all(table: Table) -> None:
    await table.transact(P, [Insert("before", {})])
    transaction = asyncio.create_task(table.transact(P, [Insert("a", {}), Insert("b", {})]))
    await asyncio.sleep(0)

    transaction.cancel()
    await asyncio.wait([transaction])

    assert await row_keys(table) in (["before"], ["a", "b", "before"])


# Point 5: reads see what was acknowledged.


async def test_acknowledged_transaction_is_seen_by_every_kind_of_read(table: Table) -> None:
    for n in range(10):
        await table.transact(P, [Merge("row", {"n": n})])

        assert (await read(table)).values["n"] == n
        assert (await table.get_many(P, ["row"]))["row"].values["n"] == n
        assert [entity.values["n"] for entity in await all_rows(table)] == [n]


# Point 6: queries.


async def test_query_of_more_than_1000_rows_is_complete_and_in_order(table: Table) -> None:
    rows = [f"t{n:06}" for n in range(2345)]
    await insert_rows(table, rows[::-1])

    assert await row_keys(table) == rows


async def test_page_has_at_most_1000_rows_and_a_continuation(table: Table) -> None:
    await insert_rows(table, [f"t{n:06}" for n in range(1001)])

    page = await table.query(P)

    assert 0 < len(page.entities) <= 1000
    assert page.continuation is not None


async def test_limit_bounds_a_page(table: Table) -> None:
    await insert_rows(table, list("abcde"))

    page = await table.query(P, limit=2)

    assert [entity.row for entity in page.entities] == ["a", "b"]
    assert [entity.row for entity in await all_rows(table, limit=2)] == list("abcde")


async def test_range_includes_first_and_excludes_before(table: Table) -> None:
    await insert_rows(table, ["d:1", "header", "t000001", "t000002", "u000001"])

    assert await row_keys(table, first="t", before="u") == ["t000001", "t000002"]
    assert await row_keys(table, first="t000002") == ["t000002", "u000001"]
    assert await row_keys(table, before="t000002") == ["d:1", "header", "t000001"]
    assert await row_keys(table, first="v") == []


async def test_range_is_kept_over_continuations(table: Table) -> None:
    await insert_rows(table, [*(f"t{n:06}" for n in range(1500)), "u1"])

    assert len(await row_keys(table, first="t000100", before="u")) == 1400


async def test_rows_are_ordered_by_code_point(table: Table) -> None:
    rows = ["!", "1", "10", "2", "A", "B", "_", "a", "aa", "b", "é", "ж"]
    await insert_rows(table, rows[::-1])

    assert await row_keys(table) == rows


async def test_query_sees_its_own_partition_only(table: Table) -> None:
    await table.transact(P, [Insert("mine", {})])
    await table.transact("partition2", [Insert("other", {})])

    assert await row_keys(table) == ["mine"]


@pytest.mark.parametrize("count", [1, 130, 620])
async def test_get_many_finds_the_rows_that_exist_whatever_the_number(table: Table, count: int) -> None:
    rows = [f"t{n:06}" for n in range(count)]
    await insert_rows(table, rows)

    found = await table.get_many(P, [*rows, "absent"])

    assert sorted(found) == rows
    assert {entity.row for entity in found.values()} == set(rows)


async def test_get_many_of_no_rows_is_empty(table: Table) -> None:
    assert await table.get_many(P, []) == {}


# Point 7: selection.


async def test_select_limits_the_properties_and_leaves_out_absent_ones(table: Table) -> None:
    [etag] = await table.transact(P, [Insert("row", {"a": 1, "b": b"x", "c": "text"})])
    wanted = ["a", "c", "absent"]

    one = await table.get(P, "row", select=wanted)
    many = (await table.get_many(P, ["row"], select=wanted))["row"]
    [queried] = (await table.query(P, select=wanted)).entities

    assert one == many == queried == Entity(partition=P, row="row", etag=etag, values={"a": 1, "c": "text"})


# Point 8: names, keys and values.


async def test_keys_differing_in_case_are_different_rows(table: Table) -> None:
    await table.transact(P, [Insert("Train", {"n": 1}), Insert("train", {"n": 2})])
    await table.transact(P.upper(), [Insert("train", {"n": 3})])

    assert (await read(table, "Train")).values["n"] == 1
    assert (await read(table, "train")).values["n"] == 2
    assert await row_keys(table) == ["Train", "train"]


@pytest.mark.parametrize("key", ["it's", "a b", "50%", "a+b&c=d", "(1,2)", "x" * 512, "é" * 255, "🏥", "a:b.c_d-e~f"])
async def test_legal_keys_come_back_unchanged(table: Table, key: str) -> None:
    await table.transact(key, [Insert(key, {"n": 1})])

    entity = await table.get(key, key)
    assert entity is not None
    assert (entity.partition, entity.row) == (key, key)
    assert list(await table.get_many(key, [key])) == [key]
    assert [found.row for found in (await table.query(key, first=key)).entities] == [key]


@pytest.mark.parametrize("key", ["", "etl/load", "a\\b", "a#1", "why?", "tab\t", "line\n", "\x7f", "\x80", "x" * 513])
async def test_illegal_keys_are_refused_everywhere(table: Table, key: str) -> None:
    for request in (
        table.get(P, key),
        table.get(key, "row"),
        table.get_many(P, [key]),
        table.query(key),
        table.transact(P, [Insert(key, {})]),
        table.transact(P, [Delete(key)]),
        table.transact(key, [Insert("row", {})]),
    ):
        with pytest.raises(UsageError, match="is no table key"):
            await request


@pytest.mark.parametrize(
    "value",
    [
        0, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63),
        0.0, 1.0, -2.5, 0.1, 1e300, 5e-324, 2.0**60,
        True, False,
        "", "text", "5", "true", " blanks ", "two\nlines\t", "quote ' \" \\", "<&>", "é 🏥",
        b"", b"text", bytes(range(256)),
    ],
)  # fmt: skip
async def test_value_comes_back_exactly_and_with_its_type(table: Table, value: Value) -> None:
    await table.transact(P, [Insert("row", {"p": value})])

    stored = (await read(table)).values["p"]
    assert (type(stored), stored) == (type(value), value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
async def test_integer_beyond_64_bits_is_refused(table: Table, value: int) -> None:
    with pytest.raises(EntityTooLargeError, match="64-bit"):
        await table.transact(P, [Insert("row", {"p": value})])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
async def test_float_that_is_not_finite_is_a_bug_of_the_caller(table: Table, value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        await table.transact(P, [Insert("row", {"p": value})])


async def test_none_is_no_value(table: Table) -> None:
    with pytest.raises(TypeError, match="NoneType"):
        await table.transact(P, [Insert("row", {"p": None})])  # type: ignore[dict-item]  # what is tested


@pytest.mark.parametrize("name", ["", "two words", "a-b", "1st"])
async def test_property_name_that_is_no_identifier_is_a_bug_of_the_caller(table: Table, name: str) -> None:
    with pytest.raises(ValueError, match="identifier"):
        await table.transact(P, [Insert("row", {name: 1})])


async def test_row_without_properties_is_a_row(table: Table) -> None:
    await table.transact(P, [Insert("row", {})])

    assert dict((await read(table)).values) == {}


# Partitions.


async def test_partitions_of_a_missing_table_are_none(table: Table) -> None:
    assert [partition async for partition in table.partitions()] == []
    assert not await table.exists()


async def test_every_partition_is_listed_once_in_order_however_many_rows_it_has(table: Table) -> None:
    for partition in ("b", "a.1", "Z", "it's", "a"):
        await table.transact(partition, [Insert(f"row{number}", {"p": number}) for number in range(3)])

    assert [partition async for partition in table.partitions()] == ["Z", "a", "a.1", "b", "it's"]


# The services behind the tables.


@pytest.mark.parametrize("name", ["", "ab", "1st", "with-dash", "under_score", "x" * 64, "tables", "Tables"])
def test_illegal_table_name_is_refused_when_the_handle_is_made(services: Services, name: str) -> None:
    with pytest.raises(UsageError, match="is no table name"):
        services.table(name)


def test_same_name_gives_the_same_handle(services: Services, table: Table) -> None:
    assert services.table(table.name) is table


async def test_this_machine_and_the_service_agree_about_the_time(services: Services, table: Table) -> None:
    await table.get(P, "row")

    assert services.clock_ahead_s is not None
    assert abs(services.clock_ahead_s) < 60


async def test_requests_are_counted_by_kind(services: Services, table: Table) -> None:
    await table.transact(P, [Insert("row", {})])
    await table.get(P, "row")
    await table.query(P)

    assert services.requests["table.get"] >= 1
    assert services.requests["table.query"] >= 1
    assert services.requests["table.transact"] >= 1
