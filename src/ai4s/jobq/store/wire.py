"""Messages to and from bytes: what travels on the task and completion queues, versioned.

Bodies are compact ASCII JSON; above 16 KiB they are deflated and wrapped as ``{"z": "<base64>"}``, because a legal
32 KB output written as escaped JSON would not fit a 64 KiB message. Decoding trusts nothing: it bounds what it
inflates, raises ``CorruptRecordError`` for what it does not understand, ``NewerVersionError`` for a later version.

The plain queue's envelope (version 0 and 1) is the one users of the plain queue have shared for years.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from ai4s.jobq.engine.events import Cause as Cause
from ai4s.jobq.engine.states import JobKind
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, UsageError
from ai4s.jobq.ids import check_workflow_id

VERSION = 1
DEFLATE_ABOVE_BYTES = 16 * 1024
MAX_INFLATED_BYTES = 4 * 1024 * 1024  # far above any legal message; bounds a hostile one
MAX_KWARGS_BYTES = 24 * 1024  # larger kwargs stay in the definition chunk and are read from there
MAX_REPORT_BYTES = 48 * 1024  # completions sharing one message; leaves room for base64 below 64 KiB
MAX_OUTPUT_BYTES = 60 * 1024  # of an inline output in a report: a property holds 64 KiB, workers send up to 32 KiB
MAX_NAME = 512  # characters of an execution's, a worker's or a blob's name in a report
MAX_DURATION_S = 1e9  # 30 years


class Outcome(StrEnum):
    """What a report says of one execution."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ParentState(StrEnum):
    """State of a parent as one letter of a task message, in ``depends_on`` order."""

    COMPLETED = "c"  # completed without an output
    OUTPUT = "o"  # completed with an output
    SKIPPED = "s"
    FAILED = "f"
    UPSTREAM_FAILED = "u"
    CANCELLED = "x"
    OPEN = "p"  # not ended yet (dep_policy any or N)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """One attempt of one task, to be run by a worker.

    ``store`` is the ``account/prefix`` whose tables hold the workflow. ``kwargs`` is None when they are too large for
    a message: the worker then reads them from the definition. ``parents`` has one ``ParentState`` letter per parent
    and is empty when there are none. ``workflow_status`` is told to hooks: the state the workflow ended in.
    """

    store: str
    workflow_id: str
    run: str
    life: int
    row: str
    task_name: str
    attempt: int
    kind: JobKind = JobKind.FORWARD
    timeout_s: int | None = None
    kwargs: Mapping[str, Any] | None = None
    parents: str = ""
    workflow_status: str = ""

    @property
    def message_id(self) -> str:
        """Equal for two copies of the same attempt, different for everything else; 64 characters."""
        return hashlib.sha256(f"{self.run}/{self.row}/{self.attempt}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """An output kept as a blob: its name in the outputs container, its size and MD5 (hex)."""

    blob: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a worker says of one execution of one attempt.

    ``output`` is JSON text as the task wrote it, a ``BlobRef``, or None for no output. ``execution`` names one start
    of one attempt (``<attempt>-<nonce>``). ``at`` is the worker's wall clock (ISO 8601 UTC) when the thing reported
    happened, ``duration_s`` is measured on its monotonic clock from the start of the command.
    """

    row: str
    life: int
    attempt: int
    execution: str
    outcome: Outcome
    cause: Cause | None = None
    exit_code: int | None = None
    error: str | None = None
    output: str | BlobRef | None = None
    worker: str = ""
    at: str = ""
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionMessage:
    """Reports about one run. Without reports it is a hint: "look at this workflow now"."""

    store: str
    workflow_id: str
    run: str
    reports: Sequence[Report] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainJob:
    """A message of the plain queue: one job without a workflow. ``kwargs`` usually holds ``cmd``."""

    job_id: str
    kwargs: Mapping[str, Any]
    num_retries: int = 0
    reply_requested: bool = False


def encode_task(message: TaskMessage) -> str:
    """The body of a task message."""
    record: dict[str, Any] = {
        "v": VERSION,
        "store": message.store,
        "workflow": message.workflow_id,
        "run": message.run,
        "life": message.life,
        "row": message.row,
        "task": message.task_name,
        "attempt": message.attempt,
        "kind": str(message.kind),
    }
    if message.timeout_s is not None:
        record["timeout_s"] = message.timeout_s
    if message.kwargs is not None:
        record["kwargs"] = dict(message.kwargs)
    if message.parents:
        record["parents"] = message.parents
    if message.workflow_status:
        record["status"] = message.workflow_status
    return pack(record)


def encode_completion(message: CompletionMessage) -> str:
    """The body of a completion message."""
    return pack(
        {
            "v": VERSION,
            "store": message.store,
            "workflow": message.workflow_id,
            "run": message.run,
            "reports": [_report_record(report) for report in message.reports],
        }
    )


def encode_job(job: PlainJob) -> str:
    """The body of a plain job, in the envelope that older releases of the plain queue read."""
    return json.dumps(
        {
            "version": 1,
            "reply_requested": job.reply_requested,
            "kwargs": json.dumps(dict(job.kwargs), separators=(",", ":")),
            "num_retries": job.num_retries,
            "id": job.job_id,
        },
        separators=(",", ":"),
    )


def decode_queue_message(body: str) -> TaskMessage | PlainJob:
    """What a message found on a task queue is: an attempt of a workflow task, or a plain job.

    Raises: CorruptRecordError: neither. NewerVersionError: written by a later release.
    """
    record = unpack(body)
    if "v" in record and "workflow" in record:
        _check_version(record)
        return _read(_task_message, record, "task message")
    if "version" in record and "kwargs" in record:
        return _read(_plain_job, record, "job message")
    raise CorruptRecordError("the message is neither a workflow task nor a job")


def decode_completion(body: str) -> CompletionMessage:
    """What a message found on a completion queue says.

    Raises: CorruptRecordError: it is no completion. NewerVersionError: written by a later release.
    """
    record = unpack(body)
    if "v" not in record:
        raise CorruptRecordError("the message is no completion")
    _check_version(record)
    return _read(_completion_message, record, "completion message")


def pack(record: Mapping[str, Any]) -> str:
    """A JSON object as ASCII text, deflated when it is long."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    if len(text) <= DEFLATE_ABOVE_BYTES:
        return text
    packed = base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")
    return json.dumps({"z": packed})


def unpack(body: str) -> dict[str, Any]:
    """The JSON object that ``pack`` was given. Raises ``CorruptRecordError``."""
    record = _loads(body)
    if set(record) == {"z"} and isinstance(record["z"], str):
        record = _loads(_inflate(record["z"]))
    return record


def _loads(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CorruptRecordError(f"the message is no JSON: {type(exc).__name__}") from exc
    if not isinstance(record, dict):
        raise CorruptRecordError("the message is no JSON object")
    return record


def _inflate(packed: str) -> str:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(packed, validate=True), MAX_INFLATED_BYTES)
    except (binascii.Error, ValueError, zlib.error) as exc:
        raise CorruptRecordError("the message cannot be inflated") from exc
    if inflater.unconsumed_tail or not inflater.eof:
        raise CorruptRecordError("the message is cut, or inflates to more than 4 MiB")
    return data.decode("ascii", "replace")


def _check_version(record: Mapping[str, Any]) -> None:
    version = record["v"]
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 2**53:
        raise CorruptRecordError("the message has no readable version")
    if version > VERSION:
        raise NewerVersionError(f"the message has version {version}, this release reads up to {VERSION}: upgrade it")


T = TypeVar("T")


def _read(reader: Callable[[Mapping[str, Any]], T], record: Mapping[str, Any], what: str) -> T:
    try:
        return reader(record)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError) as exc:
        raise CorruptRecordError(f"the {what} is damaged: {type(exc).__name__}: {str(exc)[:200]}") from exc


def _task_message(record: Mapping[str, Any]) -> TaskMessage:
    kwargs = record.get("kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError("kwargs is no object")
    return TaskMessage(
        store=_text(record, "store"),
        workflow_id=check_workflow_id(_text(record, "workflow")),
        run=_text(record, "run"),
        life=_count(record, "life"),
        row=_text(record, "row"),
        task_name=_text(record, "task"),
        attempt=_count(record, "attempt"),
        kind=JobKind(record["kind"]),
        timeout_s=_count(record, "timeout_s") if record.get("timeout_s") is not None else None,
        kwargs=kwargs,
        parents=_optional_text(record, "parents") or "",
        workflow_status=_optional_text(record, "status") or "",
    )


def _completion_message(record: Mapping[str, Any]) -> CompletionMessage:
    return CompletionMessage(
        store=_text(record, "store"),
        workflow_id=check_workflow_id(_text(record, "workflow")),
        run=_text(record, "run"),
        reports=tuple(_report(report) for report in record["reports"]),
    )


def _plain_job(record: Mapping[str, Any]) -> PlainJob:
    if record["version"] not in (0, 1):
        raise NewerVersionError(f"the job message has version {record['version']!r}, this release reads 0 and 1")
    kwargs = json.loads(record["kwargs"])
    if not isinstance(kwargs, dict):
        raise TypeError("kwargs is no object")
    return PlainJob(
        job_id=_text(record, "id"),
        kwargs=kwargs,
        num_retries=int(record["num_retries"]),
        reply_requested=bool(record.get("reply_requested", False)),
    )


def _report_record(report: Report) -> dict[str, Any]:
    """The report as JSON, absent facts left out."""
    output = report.output
    record = {
        "row": report.row,
        "life": report.life,
        "attempt": report.attempt,
        "execution": report.execution,
        "outcome": str(report.outcome),
        "cause": report.cause and str(report.cause),
        "exit_code": report.exit_code,
        "error": report.error,
        "output": output if isinstance(output, str) else None,
        "blob": [output.blob, output.size_bytes, output.md5] if isinstance(output, BlobRef) else None,
        "worker": report.worker or None,
        "at": report.at or None,
        "duration_s": report.duration_s,
    }
    return {name: value for name, value in record.items() if value is not None}


def _report(record: Mapping[str, Any]) -> Report:
    """A report that can be stored: whatever it claims fits a row, so that one bad report cannot block its workflow."""
    exit_code = record.get("exit_code")
    return Report(
        row=_text(record, "row"),
        life=_count(record, "life"),
        attempt=_count(record, "attempt"),
        execution=_name(_text(record, "execution")),
        outcome=Outcome(record["outcome"]),
        cause=Cause(record["cause"]) if record.get("cause") is not None else None,
        exit_code=None if exit_code is None else int(exit_code),
        error=_optional_text(record, "error"),
        output=_output(record),
        worker=_name(_optional_text(record, "worker") or ""),
        at=_optional_text(record, "at") or "",
        duration_s=_duration(record.get("duration_s")),
    )


def _output(record: Mapping[str, Any]) -> str | BlobRef | None:
    if record.get("blob") is not None:
        blob, size_bytes, md5 = record["blob"]
        return BlobRef(blob=_name(str(blob)), size_bytes=int(size_bytes), md5=_name(str(md5)))
    output = _optional_text(record, "output")
    if output is not None and len(output.encode()) > MAX_OUTPUT_BYTES:
        raise ValueError("the output is larger than a row holds")
    return output


def _duration(value: Any) -> float | None:
    if value is None:
        return None
    duration_s = float(value)
    if not math.isfinite(duration_s) or not 0 <= duration_s <= MAX_DURATION_S:
        raise ValueError("duration_s is no duration")
    return duration_s


def _name(text: str) -> str:
    if len(text) > MAX_NAME:
        raise ValueError(f"a name of {len(text)} characters")
    text.encode()  # half of a surrogate pair cannot be stored
    return text


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _optional_text(record: Mapping[str, Any], name: str) -> str | None:
    return None if record.get(name) is None else _text(record, name)


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise TypeError(f"{name} is no whole number")
    return value
