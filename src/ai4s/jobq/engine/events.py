"""What goes into the engine (events) and what comes out (a decision): plain values.

Events say what *happened*, commands say what is *to be done*. Times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

OutputToken = object
"""An output as the store wants it back. The engine passes it through unseen; it holds no outputs."""


class Cause(StrEnum):
    """Why an attempt ended badly.

    ``exit`` and ``timeout`` are charged to ``num_retries``; ``lost`` has a budget of its own; ``preempted`` and
    ``cancelled`` are charged to nobody; ``dispatch`` and ``condition`` end the task at once, for they would fail again.
    """

    EXIT = "exit"
    TIMEOUT = "timeout"
    LOST = "lost"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    DISPATCH = "dispatch"
    CONDITION = "condition"


# -- events


@dataclass(frozen=True, slots=True, kw_only=True)
class OfAttempt:
    """An event of one attempt of one task. Of another run, life or attempt than the current one it changes nothing.

    ``execution`` names one start of the attempt, or is empty when the reporter is not a worker. ``at`` is when it
    happened by the reporter's clock, ``duration_s`` the time since the command started.
    """

    run: str
    number: int
    life: int
    attempt: int
    execution: str = ""
    worker: str = ""
    at: datetime | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(OfAttempt):
    """A worker runs the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSucceeded(OfAttempt):
    """The task's command ended well, with this output (None: it set none)."""

    output: OutputToken | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(OfAttempt):
    """The attempt ended badly. ``exit_code`` is negative for a signal, None when there was no process."""

    cause: Cause
    exit_code: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsResolved:
    """The answer to ``ResolveOutputs``: the outputs of those parents as JSON values, by task name.

    Parents that have none, or did not complete, are None. ``error`` says why an output that is there could not be read.
    """

    number: int
    values: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody wants the run stopped. Of an ended run it changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequested:
    """Somebody wants what ended badly done again. Of a run that has not ended it changes nothing."""


Event = TaskStarted | TaskSucceeded | TaskFailed | OutputsResolved | CancelRequested | RetryRequested


# -- commands and decision


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTask:
    """Put this attempt of this task on its queue."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveOutputs:
    """Read the outputs of these parents and answer with ``OutputsResolved``: a condition needs them."""

    number: int
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt that is over, for the history of its task. ``cause`` is None for a success."""

    number: int
    attempt: int
    execution: str
    worker: str
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime
    cause: Cause | None
    exit_code: int | None
    error: str


@dataclass(slots=True, kw_only=True)
class Room:
    """How much may be dispatched now: per queue, and in all. ``decide`` takes from it what it uses."""

    queues: dict[str, int]
    dispatches: int


@dataclass(slots=True, kw_only=True)
class Decision:
    """What ``decide`` decided. The run has already changed; the store now has to follow.

    ``rows`` are the numbers of the tasks whose row must be written, in order of change; ``outputs`` and ``errors`` belong
    to those rows. ``header`` says whether the run's own facts changed. ``ignored`` counts events that changed nothing.
    Conditions beyond the first ``resolves`` are asked for when those have been answered.
    """

    rows: dict[int, None] = field(default_factory=dict)
    header: bool = False
    outputs: dict[int, OutputToken | None] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    attempts: list[AttemptRecord] = field(default_factory=list)
    dispatches: list[DispatchTask] = field(default_factory=list)
    resolves: list[ResolveOutputs] = field(default_factory=list)
    wake_at: datetime | None = None
    ignored: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self.rows and not self.header
