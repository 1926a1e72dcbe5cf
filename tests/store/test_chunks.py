"""Definitions cut into rows and put together again, however many tasks and however large one is."""

from __future__ import annotations

import base64
import json
import random
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition, canonical_json
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, UsageError
from ai4s.jobq.ports.limits import check_entity
from ai4s.jobq.ports.table import Entity, ETag, Insert, Value
from ai4s.jobq.store import chunks
from ai4s.jobq.store.chunks import definition_chunks, read_definition
from tests.support.small import DIAMOND, many, workflow

RUN = "00112233445566aa"


def entities(rows: list[Insert]) -> list[Entity]:
    return [Entity(partition="w", row=row.row, etag=ETag("1"), values=row.values) for row in rows]


def round_trip(definition: WorkflowDefinition) -> tuple[WorkflowDefinition, int]:
    rows = definition_chunks(definition, RUN)
    for row in rows:
        check_entity(row.row, row.values)
    return read_definition(entities(rows), chunks=len(rows)), len(rows)


def noise(size: int) -> str:
    """Text that hardly compresses."""
    return random.Random(size).randbytes(size // 2).hex()


def test_a_small_definition_is_one_chunk() -> None:
    assert round_trip(workflow(DIAMOND)) == (workflow(DIAMOND), 1)


def test_every_field_of_a_definition_is_kept() -> None:
    definition = WorkflowDefinition(
        name="träin 😀",
        default_queue="gpu",
        default_task_timeout_s=60,
        max_parallelism=3,
        result_policy=ResultPolicy.ALL_TASKS_SUCCEED,
        tasks=(
            Task(name="a", kwargs={"cmd": "true", "env": {"Ü": "ß"}}, queue="cpu", num_retries=2, timeout_s=5),
            Task(name="b", depends_on=("a",), dep_policy=DepPolicy.ANY, condition="inputs.a > 1"),
            Task(name="c", depends_on=("a", "b"), dep_policy=2),
        ),
    )

    assert round_trip(definition) == (definition, 1)


def test_ten_thousand_tasks_are_cut_into_whole_tasks_and_kept_in_order() -> None:
    definition = workflow({f"task-{number}": [f"task-{number - 1}"] * (number > 0) for number in range(10_000)})

    read, count = round_trip(definition)

    assert read == definition
    assert count > 1


def test_a_task_of_256_kib_is_a_chunk_of_its_own() -> None:
    frame = len(canonical_json(workflow({"t1": []}, changes={"t1": {"kwargs": {"cmd": ""}}}).tasks[0].to_json()))
    definition = workflow(many(3), changes={"t1": {"kwargs": {"cmd": noise(256 * 1024)[frame:]}}})

    assert len(canonical_json(definition.tasks[1].to_json())) == 256 * 1024

    assert round_trip(definition) == (definition, 3)


def test_a_definition_beyond_16_mib_compressed_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_COMPRESSED_BYTES", 100_000)

    with pytest.raises(UsageError, match="move large values"):
        definition_chunks(workflow(changes={"a": {"kwargs": {"cmd": noise(250_000)}}}), RUN)


def test_ten_thousand_parents_with_the_longest_names_fit_one_row() -> None:
    """A22: parents are kept as numbers."""
    text = noise(10_000 * 255)
    names = [text[start : start + 255] for start in range(0, len(text), 255)]
    definition = workflow({**{name: [] for name in names}, "join": names})

    read, _ = round_trip(definition)

    assert read == definition


def test_parents_may_come_later_in_the_file() -> None:
    definition = workflow({"last": ["first"], "first": []})

    assert round_trip(definition) == (definition, 1)


def test_the_rows_of_one_run_are_apart_from_those_of_another() -> None:
    [one] = definition_chunks(workflow(), "a" * 16)
    [other] = definition_chunks(workflow(), "b" * 16)

    assert one.row != other.row


@given(st.integers(1, 400), st.integers(200, 3000))
def test_no_chunk_holds_more_than_its_share(count: int, limit: int) -> None:
    definition = workflow(many(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", limit)
        rows = definition_chunks(definition, RUN)
        read = read_definition(entities(rows), chunks=len(rows))

    assert read == definition


# -- damage


def damaged(**values: Value) -> list[Entity]:
    [row] = definition_chunks(workflow(DIAMOND), RUN)
    return [Entity(partition="w", row=row.row, etag=ETag("1"), values={**row.values, **values})]


def packed(record: object) -> bytes:
    return zlib.compress(json.dumps(record).encode())


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"junk",
        zlib.compress(b"{}" * 10)[:-3],
        packed([]),
        packed({}),
        packed({"tasks": 7}),
        packed({"tasks": [7]}),
        packed({"tasks": [{}]}),
        packed({"tasks": [{"name": "a", "depends_on": 7}], "head": {"name": "w"}}),
        packed({"tasks": [{"name": "a", "depends_on": [1]}], "head": {"name": "w"}}),
        packed({"tasks": [{"name": "a", "depends_on": [-1]}], "head": {"name": "w"}}),
        packed({"tasks": [{"name": "a", "depends_on": [None]}], "head": {"name": "w"}}),
        packed({"tasks": [{"name": "a", "depends_on": [[]]}], "head": {"name": "w"}}),
        packed({"tasks": [{"name": "a", "dep_policy": "maybe"}], "head": {"name": "w"}}),
        packed({"tasks": []}),
        packed({"tasks": [], "head": 7}),
        packed({"tasks": [], "head": {"name": "w", "result_policy": "luck"}}),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b" " * (9 * 1024 * 1024)),
        "text",
        7,
    ],
)
def test_a_damaged_chunk_is_refused_and_named(piece: Value) -> None:
    with pytest.raises(CorruptRecordError, match="chunk"):
        read_definition(damaged(p0=piece), chunks=1)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_any_damage_to_a_chunk_is_read_or_refused_by_our_errors(at: int, junk: bytes) -> None:
    [row] = definition_chunks(workflow(DIAMOND), RUN)
    data = bytearray(row.values["p0"])  # type: ignore[arg-type]  # it is bytes, as written
    data[at % len(data) : at % len(data) + len(junk)] = junk

    with suppress(CorruptRecordError):  # anything else fails the test
        read_definition(damaged(p0=bytes(data)), chunks=1)


def test_a_missing_chunk_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="1 of its 2 chunks"):
        read_definition(damaged(), chunks=2)


def test_a_chunk_of_a_newer_release_is_told_apart_from_a_damaged_one() -> None:
    with pytest.raises(NewerVersionError):
        read_definition(damaged(v=3), chunks=1)


@pytest.mark.parametrize("version", ["1", 0, True])
def test_a_chunk_without_a_readable_version_is_refused(version: Value) -> None:
    with pytest.raises(CorruptRecordError):
        read_definition(damaged(v=version), chunks=1)


# What release 1 stored; later releases read it.
CHUNK_V1 = base64.b64decode(
    "eJw9i0EKgCAURO8ya1ctvUpE/PJTkZr5kwLx7ilEu8fMexkrk4HOcPSMgSJZy3YTB90peHIMjRtF4SLZBbrP2G+Ki7RmdjXFFRM347OpcobhwN7IePja1G34"
    "/wkKZ+LUeAkJZSgvsPIriw=="
)


def test_a_stored_chunk_of_version_1_is_read() -> None:
    entity = Entity(partition="w", row=f"d:{RUN}:00000", etag=ETag("1"), values={"v": 1, "p0": CHUNK_V1})

    assert read_definition([entity], chunks=1) == WorkflowDefinition(
        name="w",
        max_parallelism=2,
        tasks=(
            Task(name="a", kwargs={"cmd": "true"}),
            Task(name="b", depends_on=("a",), queue="gpu"),
        ),
    )


# What release 2 stored: parents as task numbers.
CHUNK_V2 = base64.b64decode(
    "eJw9jTEOgCAUQ+/SmUVHrmIM+cqPGgGRL9GEcHdxcWvTvrZgZbLQBZ4eEymRc+w28dC9QiDP0LhRFS6SXaCHAsuRgxVzhGa78a9NUDgz508vMTeoYL8pLfLtz77d"
    "4Eotrj9CqGN9AVx/Kxc="
)


def test_a_stored_chunk_of_version_2_is_read() -> None:
    entity = Entity(partition="w", row=f"d:{RUN}:00000", etag=ETag("1"), values={"v": 2, "p0": CHUNK_V2})

    assert read_definition([entity], chunks=1) == WorkflowDefinition(
        name="w",
        max_parallelism=2,
        tasks=(
            Task(name="b", depends_on=("a",), queue="gpu"),
            Task(name="a", kwargs={"cmd": "true"}),
        ),
    )
