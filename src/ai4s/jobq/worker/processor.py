"""What runs a job: the ``Processor`` protocol, and the values that go in and out.

A processor knows nothing of queues, leases and workflows. It gets a :class:`Job` and answers a :class:`JobResult`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from ai4s.jobq.store.task_logs import Stream
from ai4s.jobq.store.wire import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """Why a running job has to end, and how many seconds it has for that before it is killed."""

    cause: Cause
    grace_s: float


class OutputLog(Protocol):
    """Where what a job prints is kept. ``feed`` returns at once, and never fails."""

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take what was printed next on ``stream``."""
        ...


class StopSignal:
    """Asks one job, politely, to end. The first request counts; a later one changes nothing."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked: asyncio.Future[StopRequest] = asyncio.get_running_loop().create_future()

    def ask(self, cause: Cause, *, grace_s: float) -> None:
        """End the job, within ``grace_s`` seconds."""
        if not self.asked.done():
            self.asked.set_result(StopRequest(cause=cause, grace_s=grace_s))

    @property
    def request(self) -> StopRequest | None:
        """What was asked, or None while nothing was."""
        return self.asked.result() if self.asked.done() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One execution, ready to run.

    ``label`` says in logs whose it is. ``variables`` are set for the command and win over everything the user sets.
    ``timeout_s`` counts from the start of the command; None means no limit. ``on_start`` is called when it has started.
    ``log`` is None where nothing keeps what the job prints.
    """

    label: str
    kwargs: Mapping[str, object]
    variables: Mapping[str, str]
    timeout_s: float | None
    stop: StopSignal
    on_start: Callable[[], None] = lambda: None
    log: OutputLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job ended. ``cause`` is None for success.

    ``exit_code`` is the exit status, or the negative number of the signal that ended the command, or None when nothing
    was started. ``error`` is text for people: valid Unicode without control characters, at most 4 KiB. ``value`` is JSON
    text of what it returned, or None where it returns nothing but its exit code.
    """

    cause: Cause | None = None
    exit_code: int | None = None
    error: str | None = None
    duration_s: float = 0.0
    value: str | None = None


class Processor(Protocol):
    """Runs jobs, several at a time.

    The contract:

    1. It is opened by ``async with`` before its first job and closed after its last.
    2. A call answers for every ending of a job, failures included; it raises only for bugs.
    3. When ``job.stop`` asks, the job ends within the grace time, and the result carries the cause that was asked.
    4. When the call is cancelled, the job is killed at once, with all it started.
    5. ``job.on_start`` is called once, when the job begins to run, and not while it waits for something.
    """

    @property
    def name(self) -> str:
        """What the start-up line calls it."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def __call__(self, job: Job) -> JobResult: ...
