"""The plain queue: jobs without a workflow, put on one queue for whichever worker comes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ai4s.jobq.errors import UsageError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.queue import OutgoingMessage, Queue
from ai4s.jobq.store.wire import PlainJob, encode_job

SENT_AT_ONCE = 100  # messages handed to the queue together; the adapter sends them in parallel


def job_kwargs(line: str, *, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The kwargs of a job from one line: a JSON object when it begins with a brace, else a shell command.

    ``env`` is added, the line's own ``env`` wins. Raises: ``UsageError``: the line is no JSON object.
    """
    kwargs: dict[str, Any] = _json_object(line) if line.lstrip().startswith("{") else {"cmd": line}
    if env:
        kwargs["env"] = {**env, **(kwargs.get("env") or {})}
    return kwargs


async def push_jobs(queue: Queue, jobs: Sequence[Mapping[str, Any]], *, num_retries: int = 0) -> list[str]:
    """Put jobs, given as kwargs, on the queue; their ids. The same job pushed twice has the same id.

    A failure on the way may leave some of them sent.
    """
    sent: list[str] = []
    for start in range(0, len(jobs), SENT_AT_ONCE):
        batch = [_plain_job(kwargs, num_retries) for kwargs in jobs[start : start + SENT_AT_ONCE]]
        messages = [OutgoingMessage(body=encode_job(job), message_id=f"{job.job_id}-{new_nonce()}") for job in batch]
        await queue.send(messages)
        sent += [job.job_id for job in batch]
    return sent


def _plain_job(kwargs: Mapping[str, Any], num_retries: int) -> PlainJob:
    text = json.dumps([kwargs, num_retries], sort_keys=True)
    job_id = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return PlainJob(job_id=job_id, kwargs=kwargs, num_retries=num_retries)


def _json_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as exc:
        raise UsageError(f"this job begins like JSON but is none ({exc}): {line[:80]!r}") from exc
    if not isinstance(record, dict):  # nothing else begins with a brace, but a reader need not know that
        raise UsageError(f"a job is a JSON object, this is none: {line[:80]!r}")
    return record
