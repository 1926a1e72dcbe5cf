"""Jobs of the plain queue: from what users write to messages."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ai4s.jobq.errors import UsageError
from ai4s.jobq.store.wire import PlainJob, encode_job

DETERMINISTIC_IDS = "JOBQ_DETERMINISTIC_IDS"
_NO = frozenset({"0", "false", "no", "off"})


def job_kwargs(line: str, *, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The kwargs of a job from one line: a JSON object when it begins with a brace, else a shell command.

    ``env`` is added, the line's own ``env`` wins. Raises: ``UsageError``: the line is no JSON object.
    """
    kwargs: dict[str, Any] = _json_object(line) if line.lstrip().startswith("{") else {"cmd": line}
    if env:
        kwargs["env"] = {**env, **(kwargs.get("env") or {})}
    return kwargs


def plain_job(
    kwargs: Mapping[str, Any], num_retries: int, *, reply_requested: bool = False, job_id: str | None = None
) -> PlainJob:
    """The job with these kwargs. Its id is the MD5 of everything else, unless it is given or the environment says no.

    A reply is for one push alone, so a job that wants one has an id of its own.

    Raises: ``UsageError``: ``kwargs`` are no JSON.
    """
    job = PlainJob(job_id="", kwargs=kwargs, num_retries=num_retries, reply_requested=reply_requested)
    try:
        record = json.loads(encode_job(job))
    except (TypeError, ValueError) as exc:
        raise UsageError(f"the arguments of a job must be JSON: {exc}") from exc
    if job_id is None and (reply_requested or os.environ.get(DETERMINISTIC_IDS, "").strip().lower() in _NO):
        job_id = uuid.uuid4().hex
    del record["id"]
    digest = hashlib.md5(json.dumps(record, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    return replace(job, job_id=digest if job_id is None else job_id)


def _json_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as exc:
        raise UsageError(f"this job begins like JSON but is none ({exc}): {line[:80]!r}") from exc
    if not isinstance(record, dict):  # nothing else begins with a brace, but a reader need not know that
        raise UsageError(f"a job is a JSON object, this is none: {line[:80]!r}")
    return record
