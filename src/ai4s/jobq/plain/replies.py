"""Replies: what became of one job, sent to whoever asked for it when the job was pushed.

Each reply has a queue of its own, named after the job's queue and the job's id, so that nobody has to look through the
replies of others. Who has read a reply deletes its queue.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES

VERSION = 1
_NAME_KEPT = 36  # characters of the queue's name; with the digest 63 at most, which is what a queue name may have


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What became of a job. ``body`` is what it returned, or the error text when it failed."""

    is_success: bool
    body: Any = None


def reply_queue_name(queue_name: str, job_id: str) -> str:
    """The queue that the reply to a job goes to."""
    digest = hashlib.sha256(f"{queue_name}/{job_id}".encode()).hexdigest()[:16]
    return f"{queue_name[:_NAME_KEPT].rstrip('-')}-reply-{digest}"


def encode_response(*, is_success: bool, body: str) -> str:
    """The message of a reply; ``body`` is JSON text. One that does not fit a message is replaced by a failure."""
    text = json.dumps({"version": VERSION, "is_success": is_success, "body": body}, separators=(",", ":"))
    if len(text) <= MAX_MESSAGE_BYTES:
        return text
    error = f"the result is {len(body)} characters, too large for a message. Write it to a file and return its path."
    return encode_response(is_success=False, body=json.dumps(error))


def decode_response(text: str) -> Response:
    """The reply in a message. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    try:
        record = json.loads(text)
        version = record["version"]
        if version in (0, VERSION):
            return Response(is_success=bool(record["is_success"]), body=json.loads(record["body"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise CorruptRecordError(f"not a reply: {text[:80]!r}") from exc
    raise NewerVersionError(f"a reply of version {version!r}, this release reads up to {VERSION}. Upgrade ai4s-jobq")
