"""Rows survive the way to values and back; earlier lives read as the design says; damage is refused by our errors only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.engine.events import AttemptRecord, Cause
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.limits import check_entity, entity_bytes
from ai4s.jobq.ports.table import Entity, ETag, Value
from ai4s.jobq.store.columns import shortened
from ai4s.jobq.store.commit import MAX_OUTBOX
from ai4s.jobq.store.index_rows import IndexRecord, index_record, read_index
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import (
    KEPT_ATTEMPTS,
    MAX_ERROR_BYTES,
    Header,
    OutboxEntry,
    attempt_values,
    error_values,
    output_values,
    read_header,
    read_task,
    read_task_run,
    task_values,
)
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import HEADER_BYTES

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
NUMBER = st.integers(0, 2**31)
TIME = st.integers(0, 4 * 10**12).map(lambda ms: datetime(1990, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
MAYBE_TIME = st.none() | TIME
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
VALUE = st.text(max_size=30) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats() | st.binary(max_size=20)
COUNTS = st.dictionaries(st.sampled_from(TaskState), st.integers(1, 10**6))

HEADERS = st.builds(
    Header,
    workflow_id=st.just("w"),
    name=TEXT,
    run=TEXT,
    life=NUMBER,
    rev=NUMBER,
    commit=TEXT,
    state=st.sampled_from(WorkflowState),
    stop=st.sampled_from(Stop),
    created_at=TIME,
    updated_at=TIME,
    stopped_at=MAYBE_TIME,
    ended_at=MAYBE_TIME,
    next_wake=MAYBE_TIME,
    task_count=NUMBER,
    chunks=NUMBER,
    counts=COUNTS,
    queues=st.dictionaries(TEXT, st.tuples(NUMBER, NUMBER), max_size=4),
    recheck=st.booleans(),
    digest=TEXT,
    private=TEXT,
    stale_ended_row=TEXT,
    outbox=st.lists(st.builds(OutboxEntry, TEXT, NUMBER, TEXT), max_size=5).map(tuple),
)
RUNS = st.builds(
    TaskRun,
    number=st.integers(0, 249_999),
    stored=st.sampled_from(TaskState),
    attempt=NUMBER,
    charged=NUMBER,
    losses=NUMBER,
    execution=TEXT,
    worker=TEXT,
    ready_at=MAYBE_TIME,
    started_at=MAYBE_TIME,
    ended_at=MAYBE_TIME,
    exit_code=st.none() | st.integers(-255, 255),
    cause=st.none() | st.sampled_from(Cause),
    condition=st.none() | st.booleans(),
    has_output=st.booleans(),
)
INDEXES = st.builds(
    IndexRecord,
    workflow_id=st.just("w"),
    name=TEXT,
    run=TEXT,
    rev=NUMBER,
    life=NUMBER,
    state=st.sampled_from(WorkflowState),
    created_at=TIME,
    updated_at=TIME,
    ended_at=MAYBE_TIME,
    next_wake=MAYBE_TIME,
    task_count=NUMBER,
    counts=COUNTS,
    private=TEXT,
    poke=TEXT,
    parked=TEXT,
    etag=st.just(ETag("1")),
)


def entity(row: str, values: Mapping[str, Value]) -> Entity:
    return Entity(partition="w", row=row, etag=ETag("1"), values=values)


def row_of(task: TaskRun, *, life: int = 1) -> Entity:
    return entity(task_row(task.number), task_values(task, name="t", queue="default", life=life, rev=1))


@given(HEADERS)
def test_a_header_survives_the_way_there_and_back(header: Header) -> None:
    assert read_header(entity("header", header.values())) == header


@given(RUNS)
def test_a_task_survives_the_way_there_and_back(task: TaskRun) -> None:
    assert read_task_run(row_of(task), life=1) == task


@given(INDEXES)
def test_an_index_row_survives_the_way_there_and_back(record: IndexRecord) -> None:
    assert read_index(entity("w", record.values())) == record


@given(HEADERS)
def test_the_index_row_of_a_header_says_what_the_header_says(header: Header) -> None:
    record = index_record(header, poke="p")

    assert (record.run, record.rev, record.life, record.state) == (header.run, header.rev, header.life, header.state)
    assert (record.counts, record.ended_at, record.poke) == (header.counts, header.ended_at, "p")


# -- lives


@given(RUNS.filter(lambda task: task.stored is not TaskState.COMPLETED))
def test_a_row_of_an_earlier_life_reads_as_new_but_for_its_attempt(task: TaskRun) -> None:
    assert read_task_run(row_of(task, life=1), life=2) == TaskRun(task.number, attempt=task.attempt)


@given(RUNS)
def test_a_completed_row_of_an_earlier_life_counts(task: TaskRun) -> None:
    task.stored = TaskState.COMPLETED

    assert read_task_run(row_of(task, life=1), life=3) == task


@given(RUNS)
def test_a_row_of_a_later_life_than_asked_for_is_read_as_it_is(task: TaskRun) -> None:
    assert read_task_run(row_of(task, life=3), life=2) == replace(task, life=3)


# -- stored samples: rows that release 1 wrote; later releases read them

HEADER_V1: dict[str, Value] = {
    "v": 1,
    "name": "train",
    "run": "00112233445566aa",
    "life": 2,
    "rev": 17,
    "commit_id": "0badcafe",
    "state": "cancelled",
    "stop": "halt",
    "updated_at": "2026-01-02T03:04:05.678Z",
    "ended_at": "",
    "task_count": 4,
    "recheck": True,
    "digest": "abc",
    "private": "",
    "facts": '{"created_at":"2026-01-02T03:04:05.678Z","stopped_at":"2026-01-02T03:04:06.000Z","counts":{"cancelled":3,'
    '"running":1},"queues":{"default":[0,1]},"outbox":[["t000001",2,"h-1-x"]],"chunks":1}',
}
TASK_V1: dict[str, Value] = {
    "v": 1,
    "name": "a",
    "queue": "default",
    "state": "failed",
    "life": 1,
    "rev": 3,
    "attempt": 2,
    "facts": '{"charged":2,"execution":"2-x","worker":"h-1","ready_at":"2026-01-02T03:04:05.678Z",'
    '"ended_at":"2026-01-02T03:04:05.678Z","exit_code":1,"cause":"exit"}',
    "error": "no",
    "output": b"",
    "blob": "",
    "a01": '{"attempt":1,"ended_at":"2026-01-02T03:04:05.678Z","cause":"exit","exit_code":1,"error":"no"}',
}
INDEX_V1: dict[str, Value] = {
    "v": 1,
    "workflow_id": "w",
    "name": "train",
    "run": "00112233445566aa",
    "rev": 17,
    "life": 1,
    "state": "running",
    "created_at": "2026-01-02T03:04:05.678Z",
    "updated_at": "2026-01-02T03:04:05.678Z",
    "ended_at": "",
    "next_wake": "",
    "task_count": 4,
    "counts": '{"running": 1}',
    "private": "",
    "poke": "x",
    "parked": "",
}


def test_a_stored_header_of_version_1_is_read() -> None:
    header = read_header(entity("header", HEADER_V1))

    assert (header.state, header.stop, header.life, header.rev) == (WorkflowState.CANCELLED, Stop.HALT, 2, 17)
    assert (header.created_at, header.stopped_at, header.ended_at) == (NOW, NOW.replace(second=6, microsecond=0), None)
    assert header.outbox == (OutboxEntry("t000001", 2, "h-1-x"),)


def test_a_stored_task_row_of_version_1_is_read() -> None:
    record = read_task(entity("t000000", TASK_V1), life=1)

    assert (record.state, record.attempt, record.error, record.output) == (TaskState.FAILED, 2, "no", None)
    assert (record.run.cause, record.run.exit_code, record.run.ended_at) == (Cause.EXIT, 1, NOW)
    assert [attempt["attempt"] for attempt in record.history] == [1]


def test_a_stored_index_row_of_version_1_is_read() -> None:
    record = read_index(entity("w", INDEX_V1))

    assert (record.state, record.counts, record.poke) == (WorkflowState.RUNNING, {TaskState.RUNNING: 1}, "x")


@pytest.mark.parametrize(("read", "values"), [("header", HEADER_V1), ("task", TASK_V1), ("index", INDEX_V1)])
def test_a_row_of_a_newer_release_is_told_apart_from_a_damaged_one(read: str, values: dict[str, Value]) -> None:
    with pytest.raises(NewerVersionError):
        _read(read, {**values, "v": 2})


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0])
@pytest.mark.parametrize(("read", "values"), [("header", HEADER_V1), ("task", TASK_V1), ("index", INDEX_V1)])
def test_a_row_without_a_readable_version_is_refused(read: str, values: dict[str, Value], version: Value) -> None:
    with pytest.raises(CorruptRecordError):
        _read(read, {**values, "v": version})


@pytest.mark.parametrize(("read", "values"), [("header", HEADER_V1), ("task", TASK_V1), ("index", INDEX_V1)])
@given(data=st.data())
def test_any_damage_to_a_row_is_read_or_refused_by_our_errors(
    read: str, values: dict[str, Value], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(values)))
    damaged: dict[str, Value] = {**values, name: data.draw(VALUE | JSON.map(json.dumps))}
    if data.draw(st.booleans()):
        damaged.pop(data.draw(st.sampled_from(sorted(values))), None)

    _read_or_refuse(read, damaged)


@pytest.mark.parametrize(("read", "values"), [("header", HEADER_V1), ("task", TASK_V1)])
@given(data=st.data())
def test_any_damage_to_the_facts_of_a_row_is_read_or_refused_by_our_errors(
    read: str, values: dict[str, Value], data: st.DataObject
) -> None:
    facts = json.loads(str(values["facts"]))
    facts[data.draw(st.sampled_from(sorted(facts)))] = data.draw(JSON)

    _read_or_refuse(read, {**values, "facts": json.dumps(facts)})


@pytest.mark.parametrize("facts", ["[" * 50_000, '{"counts": {"ready": 1e999}}', "null", "", '{"z": "x"}'])
@pytest.mark.parametrize("read", ["header", "task"])
def test_facts_that_are_no_facts_are_refused(read: str, facts: str) -> None:
    values = HEADER_V1 if read == "header" else TASK_V1

    with pytest.raises(CorruptRecordError):
        _read(read, {**values, "facts": facts if read == "header" or facts[:1] != "{" else "[]"})


@pytest.mark.parametrize("slot", ["{", "[]", "{}", '{"attempt": "x"}', "[" * 50_000])
def test_a_damaged_history_is_refused(slot: str) -> None:
    with pytest.raises(CorruptRecordError):
        read_task(entity("t000000", {**TASK_V1, "a05": slot}), life=1)


def _read(what: str, values: Mapping[str, Value]) -> Any:
    if what == "header":
        return read_header(entity("header", values))
    if what == "index":
        return read_index(entity("w", values))
    return read_task(entity("t000000", values), life=1)


def _read_or_refuse(what: str, values: Mapping[str, Value]) -> None:
    with suppress(CorruptRecordError):  # anything else fails the test
        _read(what, values)


# -- sizes


def test_the_largest_header_fits_what_transactions_set_aside_for_it() -> None:
    owner = "h" * 253 + "-4194304-0badcafe"
    header = Header(
        workflow_id="w",
        name="é" * 255,
        run="f" * 16,
        created_at=NOW,
        updated_at=NOW,
        stopped_at=NOW,
        ended_at=NOW,
        next_wake=NOW,
        task_count=250_000,
        chunks=1000,
        counts=dict.fromkeys(TaskState, 250000),
        queues={f"{number:03d}-" + "q" * 59: (250_000, 1000) for number in range(100)},
        digest="f" * 64,
        private=owner,
        stale_ended_row="9" * 80,
        outbox=tuple(OutboxEntry(task_row(number * 2551), 1000 + number, owner) for number in range(MAX_OUTBOX)),
    )

    check_entity("header", header.values())
    assert entity_bytes("header", header.values()) <= HEADER_BYTES


def test_the_largest_task_row_fits_a_row() -> None:
    task = TaskRun(
        249_999,
        stored=TaskState.FAILED,
        attempt=1000,
        execution="x" * 500,
        worker="é" * 500,
        ready_at=NOW,
        started_at=NOW,
        ended_at=NOW,
        exit_code=-9,
        cause=Cause.EXIT,
        has_output=True,
    )
    values = task_values(task, name="漢" * 255, queue="q" * 63, life=9, rev=10**9)
    values |= error_values("é" * 10**6)
    values |= output_values("é" * 16_000)
    for attempt in range(KEPT_ATTEMPTS):
        values |= attempt_values(attempt_record(attempt, error="é" * 10**6, worker="é" * 500))

    check_entity(task_row(249_999), values)


def attempt_record(attempt: int, *, error: str = "", worker: str = "h-1") -> AttemptRecord:
    return AttemptRecord(
        number=0,
        attempt=attempt,
        execution=f"{attempt}-x",
        worker=worker,
        ready_at=NOW,
        started_at=NOW,
        ended_at=NOW,
        cause=Cause.EXIT,
        exit_code=1,
        error=error,
    )


def test_the_history_keeps_the_last_twenty_attempts_oldest_first() -> None:
    values = dict(TASK_V1)
    del values["a01"]
    for attempt in range(1, 46):
        values |= attempt_values(attempt_record(attempt))

    history = read_task(entity("t000000", values), life=1).history

    assert [attempt["attempt"] for attempt in history] == list(range(26, 46))


@given(st.text(max_size=3000), st.integers(100, 2000))
def test_a_shortened_text_fits(text: str, most_bytes: int) -> None:
    assert len(shortened(text, most_bytes).encode()) <= most_bytes


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_a_short_text_is_left_as_it_is(text: str) -> None:
    assert shortened(text, MAX_ERROR_BYTES) == text


def test_a_shortened_text_keeps_its_ends_and_says_how_much_is_missing() -> None:
    text = shortened("begin " + "é" * 5000 + " end", 400)

    assert text.startswith("begin")
    assert text.endswith("end")
    assert "bytes left out" in text


@pytest.mark.parametrize(
    "output", ['"x"', '"é"', "null", BlobRef(blob="p/w/r/t/1-x/output.json", size_bytes=40_000, md5="0" * 32)]
)
def test_an_output_survives_the_way_there_and_back(output: str | BlobRef) -> None:
    task = TaskRun(0, stored=TaskState.COMPLETED, attempt=1, has_output=True)
    values = task_values(task, name="a", queue="q", life=1, rev=1) | output_values(output)

    assert read_task(entity("t000000", values), life=1).output == output


def test_an_attempt_without_output_clears_the_one_of_an_earlier_attempt() -> None:
    values = output_values(BlobRef(blob="b", size_bytes=1, md5="m")) | output_values(None)
    task = TaskRun(0, stored=TaskState.COMPLETED, attempt=2)

    assert read_task(entity("t000000", {**row_of(task).values, **values}), life=1).output is None
