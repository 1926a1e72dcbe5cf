"""Messages survive the way to bytes and back; whatever else comes is refused, by our errors only and within bounds."""

from __future__ import annotations

import base64
import json
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.engine.states import JobKind
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES
from ai4s.jobq.store.wire import (
    DEFLATE_ABOVE_BYTES,
    MAX_INFLATED_BYTES,
    BlobRef,
    Cause,
    CompletionMessage,
    Outcome,
    PlainJob,
    Report,
    TaskMessage,
    decode_completion,
    decode_queue_message,
    encode_completion,
    encode_job,
    encode_task,
    pack,
    unpack,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
NUMBER = st.integers(0, 2**53 - 1)
WORKFLOW_ID = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
KWARGS = st.dictionaries(
    TEXT,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)

TASKS = st.builds(
    TaskMessage,
    store=TEXT,
    workflow_id=WORKFLOW_ID,
    run=TEXT,
    life=NUMBER,
    row=TEXT,
    task_name=TEXT,
    attempt=NUMBER,
    kind=st.sampled_from(JobKind),
    timeout_s=st.none() | NUMBER,
    kwargs=st.none() | KWARGS,
    parents=st.text("coxsfup", max_size=100),
    workflow_status=st.sampled_from(["", "failed"]),
)
REPORTS = st.builds(
    Report,
    row=TEXT,
    life=NUMBER,
    attempt=NUMBER,
    execution=TEXT,
    outcome=st.sampled_from(Outcome),
    cause=st.none() | st.sampled_from(Cause),
    exit_code=st.none() | st.integers(-(2**31), 2**31),
    error=st.none() | TEXT,
    output=st.none() | TEXT | st.builds(BlobRef, blob=TEXT, size_bytes=NUMBER, md5=TEXT),
    worker=TEXT,
    at=TEXT,
    duration_s=st.none() | st.floats(0, 1e9),
)
COMPLETIONS = st.builds(
    CompletionMessage,
    store=TEXT,
    workflow_id=WORKFLOW_ID,
    run=TEXT,
    reports=st.lists(REPORTS, max_size=4).map(tuple),
)
JOBS = st.builds(PlainJob, job_id=TEXT, kwargs=KWARGS, num_retries=st.integers(0, 1000), reply_requested=st.booleans())

# What release 1 puts on queues. These never change: later releases read them.
TASK_V1 = (
    '{"v":1,"store":"local/Test","workflow":"w1","run":"00112233445566aa","life":2,"row":"t000007","task":"tr\\u00e4in",'
    '"attempt":3,"kind":"forward","timeout_s":60,"kwargs":{"cmd":"echo hi","env":{"A":"1"}},"parents":"co"}'
)
COMPLETION_V1 = (
    '{"v":1,"store":"local/Test","workflow":"w1","run":"00112233445566aa","reports":[{"row":"t000007","life":2,'
    '"attempt":3,"execution":"3-0badcafe","outcome":"failed","cause":"exit","exit_code":2,"error":"no","worker":"h-1",'
    '"at":"2026-01-02T03:04:05.678Z","duration_s":1.5},{"row":"t000008","life":2,"attempt":1,"execution":"1-x",'
    '"outcome":"succeeded","blob":["p/w1/r/t000008/1-x/output.json",40000,"d41d8cd98f00b204e9800998ecf8427e"]}]}'
)
HINT_V1 = '{"v":1,"store":"local/Test","workflow":"w1","run":"00112233445566aa","reports":[]}'
JOB_V0 = '{"version":0,"kwargs":"{\\"cmd\\":\\"true\\"}","num_retries":1,"id":"j1"}'
JOB_V1 = '{"version":1,"reply_requested":false,"kwargs":"{\\"cmd\\":\\"true\\"}","num_retries":1,"id":"j1"}'


@given(TASKS)
def test_a_task_message_survives_the_way_there_and_back(message: TaskMessage) -> None:
    assert decode_queue_message(encode_task(message)) == message


@given(COMPLETIONS)
def test_a_completion_survives_the_way_there_and_back(message: CompletionMessage) -> None:
    assert decode_completion(encode_completion(message)) == message


@given(JOBS)
def test_a_job_survives_the_way_there_and_back(job: PlainJob) -> None:
    assert decode_queue_message(encode_job(job)) == job


@given(
    st.dictionaries(st.text(max_size=10), st.text(max_size=3000), max_size=20).filter(lambda value: set(value) != {"z"})
)
def test_packing_is_undone_by_unpacking(record: dict[str, str]) -> None:
    body = pack(record)

    assert body.isascii()
    assert unpack(body) == record


def test_long_bodies_are_deflated_and_short_ones_are_not() -> None:
    short, long = pack({"k": "x" * 100}), pack({"k": "x" * DEFLATE_ABOVE_BYTES})

    assert short.startswith('{"k"')
    assert long.startswith('{"z"')
    assert len(long) < 1000


@pytest.mark.parametrize("character", ["x", "é", "漢", "😀"])
def test_the_largest_inline_output_fits_a_message(character: str) -> None:
    output = json.dumps(character * (32_000 // len(character.encode())), ensure_ascii=False)
    report = Report(row="t000000", life=1, attempt=1, execution="1-x", outcome=Outcome.SUCCEEDED, output=output)
    body = encode_completion(CompletionMessage(store="a/B", workflow_id="w", run="r" * 16, reports=[report]))

    assert len(body) <= MAX_MESSAGE_BYTES
    assert decode_completion(body).reports[0].output == output


def test_a_stored_task_message_of_version_1_is_read() -> None:
    assert decode_queue_message(TASK_V1) == TaskMessage(
        store="local/Test",
        workflow_id="w1",
        run="00112233445566aa",
        life=2,
        row="t000007",
        task_name="träin",
        attempt=3,
        timeout_s=60,
        kwargs={"cmd": "echo hi", "env": {"A": "1"}},
        parents="co",
    )


def test_a_stored_completion_of_version_1_is_read() -> None:
    failed, succeeded = decode_completion(COMPLETION_V1).reports

    assert (failed.outcome, failed.cause, failed.exit_code, failed.error) == (Outcome.FAILED, Cause.EXIT, 2, "no")
    assert (failed.worker, failed.at, failed.duration_s) == ("h-1", "2026-01-02T03:04:05.678Z", 1.5)
    assert succeeded.output == BlobRef(
        blob="p/w1/r/t000008/1-x/output.json", size_bytes=40000, md5="d41d8cd98f00b204e9800998ecf8427e"
    )


def test_a_stored_hint_of_version_1_is_read() -> None:
    assert decode_completion(HINT_V1).reports == ()


@pytest.mark.parametrize("body", [JOB_V0, JOB_V1])
def test_stored_jobs_of_the_plain_queue_are_read(body: str) -> None:
    assert decode_queue_message(body) == PlainJob(job_id="j1", kwargs={"cmd": "true"}, num_retries=1)


@pytest.mark.parametrize("body", [TASK_V1, COMPLETION_V1, HINT_V1])
def test_what_is_written_today_is_what_version_1_wrote(body: str) -> None:
    message = decode_queue_message(body) if '"task"' in body else decode_completion(body)
    encoded = encode_task(message) if isinstance(message, TaskMessage) else _encoded(message)

    assert json.loads(encoded) == json.loads(body)


def _encoded(message: object) -> str:
    assert isinstance(message, CompletionMessage)
    return encode_completion(message)


@pytest.mark.parametrize("body", [TASK_V1, JOB_V1.replace('"version"', '"v":1,"workflow":"w","version"')])
def test_a_task_message_of_a_newer_release_is_told_apart_from_a_damaged_one(body: str) -> None:
    with pytest.raises(NewerVersionError):
        decode_queue_message(body.replace('"v":1', '"v":2', 1))


def test_a_completion_of_a_newer_release_is_told_apart_from_a_damaged_one() -> None:
    with pytest.raises(NewerVersionError):
        decode_completion('{"v": 2, "anything": "else"}')


def test_a_job_of_a_newer_release_is_told_apart_from_a_damaged_one() -> None:
    with pytest.raises(NewerVersionError):
        decode_queue_message(JOB_V1.replace('"version":1', '"version":2'))


def _mutated(body: str, field: str, value: Any) -> str:
    record = json.loads(body)
    target = record["reports"][0] if "reports" in record and field in record["reports"][0] else record
    target[field] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workflow", "no/such"),
        ("workflow", ""),
        ("workflow", "x" * 65),
        ("life", -1),
        ("life", True),
        ("attempt", 2**53),
        ("attempt", 1.5),
        ("exit_code", float("inf")),
        ("exit_code", float("nan")),
        ("duration_s", float("nan")),
        ("duration_s", float("inf")),
        ("duration_s", -1),
        ("duration_s", 10**400),
        ("duration_s", 1e300),
        ("execution", "x" * 10_000),
        ("worker", "x" * 10_000),
        ("worker", "\ud800"),
        ("outcome", "danced"),
        ("outcome", []),
        ("cause", "bad luck"),
        ("row", None),
        ("v", 0),
        ("v", -1),
        ("v", 1.0),
        ("v", 10**400),
        ("reports", 7),
        ("reports", [7]),
        ("reports", "abc"),
    ],
)
def test_a_completion_that_could_not_be_stored_is_refused(field: str, value: Any) -> None:
    with pytest.raises(CorruptRecordError):
        decode_completion(_mutated(COMPLETION_V1, field, value))


@pytest.mark.parametrize("output", ["x" * 70_000, "é" * 40_000, "\ud800"])
def test_an_output_that_no_row_could_hold_is_refused(output: str) -> None:
    record = json.loads(HINT_V1)
    record["reports"] = [
        {"row": "t000000", "life": 1, "attempt": 1, "execution": "x", "outcome": "succeeded", "output": output}
    ]

    with pytest.raises(CorruptRecordError):
        decode_completion(pack(record))


@pytest.mark.parametrize("blob", [[], ["a"], ["a", float("inf"), "m"], ["x" * 9999, 1, "m"], 7, "abc", {"a": 1}])
def test_a_broken_blob_reference_is_refused(blob: Any) -> None:
    record = json.loads(COMPLETION_V1)
    record["reports"][1]["blob"] = blob

    with pytest.raises(CorruptRecordError):
        decode_completion(json.dumps(record))


@pytest.mark.parametrize(
    ("field", "value"),
    [("kwargs", "["), ("kwargs", "[" * 100_000), ("kwargs", 7), ("kwargs", "[]"), ("id", 7), ("num_retries", 1e999)],
)
def test_a_damaged_job_is_refused(field: str, value: Any) -> None:
    with pytest.raises(CorruptRecordError):
        decode_queue_message(_mutated(JOB_V1, field, value))


@given(st.text() | JSON.map(lambda value: json.dumps(value)))
def test_any_text_is_read_or_refused_by_our_errors(body: str) -> None:
    _read_or_refuse(body)


@given(st.sampled_from([TASK_V1, COMPLETION_V1, JOB_V1]), st.data())
def test_any_damage_to_a_message_is_read_or_refused_by_our_errors(body: str, data: st.DataObject) -> None:
    record = json.loads(body)
    target = record
    if "reports" in record and data.draw(st.booleans()):
        target = data.draw(st.sampled_from(record["reports"]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON)

    _read_or_refuse(json.dumps(record))


@given(st.sampled_from([TASK_V1, COMPLETION_V1]), st.integers(0, 400), st.binary(max_size=6))
def test_any_damage_to_a_deflated_message_is_read_or_refused_by_our_errors(body: str, at: int, junk: bytes) -> None:
    packed = bytearray(zlib.compress(body.encode()))
    packed[at % len(packed) : at % len(packed) + len(junk)] = junk

    _read_or_refuse(json.dumps({"z": base64.b64encode(packed).decode()}))


def _read_or_refuse(body: str) -> None:
    for decode in (decode_completion, decode_queue_message):
        with suppress(CorruptRecordError):  # anything else fails the test
            decode(body)


def test_a_message_nested_too_deeply_is_refused() -> None:
    with pytest.raises(CorruptRecordError):
        decode_completion("[" * 60_000)


@pytest.mark.parametrize("size", [MAX_INFLATED_BYTES + 1, 10 * MAX_INFLATED_BYTES])
def test_a_message_that_inflates_without_end_is_refused_unread(size: int) -> None:
    bomb = base64.b64encode(zlib.compress(b" " * size)).decode()

    with pytest.raises(CorruptRecordError, match="more than 4 MiB"):
        decode_completion(json.dumps({"z": bomb}))


def test_message_ids_differ_by_run_task_and_attempt_only() -> None:
    def message(run: str, row: str, attempt: int, life: int = 1) -> str:
        return TaskMessage(
            store="a/B", workflow_id="w", run=run, life=life, row=row, task_name="t", attempt=attempt
        ).message_id

    ids = {message(run, row, attempt) for run in "rs" for row in ("t000001", "t000002") for attempt in (1, 2)}
    assert len(ids) == 8
    assert message("r", "t000001", 1) in ids
