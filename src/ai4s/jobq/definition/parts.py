"""The smaller values of a definition: jobs, retries, waiting for a signal, params.

Each knows its JSON form: ``to_json`` leaves out what is at its default, ``from_json`` trusts what ``to_json`` made (user
input goes through ``load``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any


class Backoff(StrEnum):
    """How the delay grows from one retry to the next."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class OnTimeout(StrEnum):
    """What becomes of a task whose signal did not come in time."""

    FAIL = "fail"
    SKIP = "skip"


class FailFast(Enum):
    """What the first failure that nothing handles does to the rest. The values are the JSON form; only OFF is false."""

    OFF = False
    ON = True
    KILL = "kill"

    def __bool__(self) -> bool:
        return self is not FailFast.OFF


class ParamType(StrEnum):
    """The JSON type of a param's values."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command beside the tasks: an undo job or a hook.

    ``queue`` is None where a default applies: the task's queue for an undo job, the workflow's for a hook. ``timeout_s`` is
    None where the workflow's ``default_task_timeout_s`` applies.
    """

    kwargs: Mapping[str, Any]
    queue: str | None = None
    timeout_s: int | None = None
    num_retries: int = 0

    def to_json(self) -> dict[str, Any]:
        """The job as it is written: the keys of ``kwargs`` beside the others."""
        record: dict[str, Any] = dict(self.kwargs)
        if self.queue is not None:
            record["queue"] = self.queue
        if self.timeout_s is not None:
            record["timeout_s"] = self.timeout_s
        if self.num_retries:
            record["num_retries"] = self.num_retries
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Job:
        """A job from its written form; what is no field of its own belongs to ``kwargs``."""
        own = {key: record[key] for key in ("queue", "timeout_s", "num_retries") if key in record}
        return cls(kwargs={key: value for key, value in record.items() if key not in own}, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a failed task is tried again: up to ``max`` more attempts.

    ``delay_s`` comes before the first of them; ``exponential`` doubles it each time, up to ``max_delay_s``. ``jitter`` is
    the share of the delay (0 to 1) that is left to chance. ``on_exit_codes``: retry after these only (negative: signals),
    after any when empty.
    """

    max: int
    delay_s: float = 0
    backoff: Backoff = Backoff.FIXED
    max_delay_s: float | None = None
    jitter: float = 0
    on_exit_codes: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The policy as a JSON object."""
        record: dict[str, Any] = {"max": self.max}
        if self.delay_s:
            record["delay_s"] = self.delay_s
        if self.backoff is not Backoff.FIXED:
            record["backoff"] = str(self.backoff)
        if self.max_delay_s is not None:
            record["max_delay_s"] = self.max_delay_s
        if self.jitter:
            record["jitter"] = self.jitter
        if self.on_exit_codes:
            record["on_exit_codes"] = list(self.on_exit_codes)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Retry:
        """A policy from its JSON object."""
        return cls(
            max=record["max"],
            delay_s=record.get("delay_s", 0),
            backoff=Backoff(record.get("backoff", Backoff.FIXED)),
            max_delay_s=record.get("max_delay_s"),
            jitter=record.get("jitter", 0),
            on_exit_codes=tuple(record.get("on_exit_codes", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """A signal that a task waits for; its data is the task's output. ``timeout_s`` None: for ever."""

    signal: str
    timeout_s: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL

    def to_json(self) -> dict[str, Any]:
        """The wait as a JSON object."""
        record: dict[str, Any] = {"signal": self.signal}
        if self.timeout_s is not None:
            record["timeout_s"] = self.timeout_s
        if self.on_timeout is not OnTimeout.FAIL:
            record["on_timeout"] = str(self.on_timeout)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> WaitFor:
        """A wait from its JSON object."""
        return cls(
            signal=record["signal"],
            timeout_s=record.get("timeout_s"),
            on_timeout=OnTimeout(record.get("on_timeout", OnTimeout.FAIL)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A value that is chosen at submit. ``default`` None: there is none; then a param that is not required is null."""

    type: ParamType
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] = field(default=(), hash=False)
    description: str = ""

    def to_json(self) -> dict[str, Any]:
        """The param as a JSON object."""
        record: dict[str, Any] = {"type": str(self.type)}
        if self.default is not None:
            record["default"] = self.default
        record["required"] = self.required
        if self.choices:
            record["choices"] = list(self.choices)
        if self.description:
            record["description"] = self.description
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Param:
        """A param from its JSON object."""
        return cls(
            type=ParamType(record["type"]),
            default=record.get("default"),
            required=record["required"],
            choices=tuple(record.get("choices", ())),
            description=record.get("description", ""),
        )


def utc_text(moment: datetime) -> str:
    """The moment as ISO 8601 text in UTC: one text for one instant."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def utc_moment(text: str) -> datetime:
    """The moment in a text that ``utc_text`` made."""
    return datetime.fromisoformat(text)
