"""Completion messages as the coordinator handles them, and their translation into the engine's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from ai4s.jobq.engine.events import Cause, Event, TaskFailed, TaskStarted, TaskSucceeded
from ai4s.jobq.ports.queue import Message
from ai4s.jobq.store.layout import job_number
from ai4s.jobq.store.wire import CompletionMessage, Outcome, Report


@dataclass(slots=True)
class Delivery:
    """A completion message in hand, not yet acknowledged. ``received_at`` is on the monotonic clock."""

    message: Message
    completion: CompletionMessage
    received_at: float
    renewed_at: float


def events_of(deliveries: Iterable[Delivery], tasks: int) -> list[Event]:
    """The events that these deliveries report to a run of so many tasks, in order. Rows that are no job's are left out."""
    return [
        event
        for delivery in deliveries
        for report in delivery.completion.reports
        if (event := event_of(delivery.completion.run, report, tasks)) is not None
    ]


def event_of(run: str, report: Report, tasks: int) -> Event | None:
    """One report as an event, or None when its row is no job's."""
    try:
        number = job_number(report.row, tasks)
    except ValueError:
        return None
    who = {
        "run": run,
        "number": number,
        "life": report.life,
        "attempt": report.attempt,
        "execution": report.execution,
        "worker": report.worker,
        "at": _time(report.at),
        "duration_s": report.duration_s,
    }
    match report.outcome:
        case Outcome.STARTED:
            return TaskStarted(**who)  # type: ignore[arg-type]  # one mapping for three events
        case Outcome.SUCCEEDED:
            return TaskSucceeded(output=report.output, **who)  # type: ignore[arg-type]
        case Outcome.FAILED:
            return TaskFailed(
                cause=report.cause or Cause.EXIT,
                exit_code=report.exit_code,
                error=report.error or "",
                **who,  # type: ignore[arg-type]
            )
        case _:
            assert_never(report.outcome)


def _time(text: str) -> datetime | None:
    """A reporter's time, or None when it gave none that can be read."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
