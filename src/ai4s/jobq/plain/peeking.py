"""What is on a queue, for people: jobs, dead letters, and messages of other kinds, with the values of ``env`` hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.ports.dead_letters import read_dead_letter
from ai4s.jobq.ports.queue import Message
from ai4s.jobq.store.columns import iso
from ai4s.jobq.store.wire import PlainJob, decode_queue_message

HIDDEN = "***"
SHOWN_BODY = 200  # characters of a message that nobody understands


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedJob:
    """A message that was looked at and left where it is.

    ``job_id`` is empty for what is neither a job nor a task. ``workflow_id`` is set for a workflow's task. ``error`` is why
    a dead letter was set aside. ``kwargs`` hold secrets; ``to_json`` does not.
    """

    message_id: str
    sent_at: datetime
    delivery_count: int
    job_id: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    num_retries: int = 0
    reply_requested: bool = False
    workflow_id: str | None = None
    task: str | None = None
    error: str | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object, without the values of its ``env``."""
        return {
            "message_id": self.message_id,
            "id": self.job_id,
            "kwargs": without_env(self.kwargs),
            "num_retries": self.num_retries,
            "reply_requested": self.reply_requested,
            "sent_at": iso(self.sent_at),
            "delivery_count": self.delivery_count,
            "workflow_id": self.workflow_id,
            "task": self.task,
            "error": self.error,
            "problem": self.problem,
        }


def peeked(message: Message) -> PeekedJob:
    """What a message on a queue is, whatever it is."""
    body, error = message.body, None
    try:
        letter = read_dead_letter(body)
        body, error = letter.body, letter.reason
    except CorruptRecordError:
        pass  # no dead letter, as most messages
    facts: dict[str, Any] = {
        "message_id": message.message_id,
        "sent_at": datetime.fromtimestamp(message.sent_at_s, UTC),
        "delivery_count": message.delivery_count,
        "error": error,
    }
    try:
        work = decode_queue_message(body)
    except CorruptRecordError as exc:
        return PeekedJob(**facts, problem=f"{exc}: {body[:SHOWN_BODY]!r}")
    if isinstance(work, PlainJob):
        return PeekedJob(
            **facts,
            job_id=work.job_id,
            kwargs=work.kwargs,
            num_retries=work.num_retries,
            reply_requested=work.reply_requested,
        )
    return PeekedJob(
        **facts,
        job_id=f"{work.workflow_id}/{work.task_name}/{work.attempt}",
        kwargs=work.kwargs or {},
        workflow_id=work.workflow_id,
        task=work.task_name,
    )


def without_env(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The kwargs with the values of ``env`` hidden; its names stay."""
    env = kwargs.get("env")
    if not isinstance(env, Mapping):
        return dict(kwargs)
    return {**kwargs, "env": dict.fromkeys(env, HIDDEN)}
