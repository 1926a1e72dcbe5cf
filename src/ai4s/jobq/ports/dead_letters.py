"""The body of a dead letter: the poison message, why it was set aside, and its id, in one queue message.

Every adapter without a dead-letter queue of its own keeps dead letters in an ordinary queue, in this form, so that
one reader understands them all. A body always fits a message, whatever the poison was: it is kept as it is when it
fits, deflated when it does not, and cut with a mark when even that is too large.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES
from ai4s.jobq.ports.queue import Message

VERSION = 1
MAX_REASON = (
    500  # characters: 6 KB when every one of them needs a \\u escape, which leaves most of the room to the body
)
MAX_MESSAGE_ID = 200  # characters
MAX_QUEUE_NAME = 63
SUFFIX = "-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that was set aside. ``body`` ends in a mark when it had to be cut."""

    message_id: str
    reason: str
    body: str


def dead_letter_queue_name(queue_name: str) -> str:
    """The queue that keeps the dead letters of this one: ``<name>-failed``, shortened by a hash when too long."""
    if len(queue_name) + len(SUFFIX) <= MAX_QUEUE_NAME:
        return queue_name + SUFFIX
    digest = hashlib.sha256(queue_name.encode()).hexdigest()[:8]
    return f"{queue_name[: MAX_QUEUE_NAME - len(SUFFIX) - 9].rstrip('-')}-{digest}{SUFFIX}"


def dead_letter_body(message: Message, reason: str) -> str:
    """The dead letter as ASCII JSON of at most 64 KiB."""
    frame = {"v": VERSION, "message_id": message.message_id[:MAX_MESSAGE_ID], "reason": reason[:MAX_REASON]}
    plain = _dumps(frame | {"body": message.body})
    if len(plain) <= MAX_MESSAGE_BYTES:
        return plain
    return _deflated(frame, message.body)


def read_dead_letter(body: str) -> DeadLetter:
    """The dead letter in a message body.

    Raises: ``CorruptRecordError`` when it is none; ``NewerVersionError`` when a later release wrote it.
    """
    try:
        record = json.loads(body)
        version = record["v"]
        if version == VERSION:
            return DeadLetter(message_id=record["message_id"], reason=record["reason"], body=_body(record))
    except (ValueError, KeyError, TypeError, zlib.error, binascii.Error) as exc:
        raise CorruptRecordError(f"not a dead letter: {body[:80]!r}. Look at it, then delete it by hand") from exc
    if isinstance(version, int) and version > VERSION:
        raise NewerVersionError(f"a dead letter of version {version}, this release reads {VERSION}. Upgrade ai4s-jobq")
    raise CorruptRecordError(f"a dead letter of version {version!r}, which never existed. Delete it by hand")


def _deflated(frame: dict[str, Any], body: str) -> str:
    whole = len(body)
    kept, text = whole, body
    while True:
        packed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
        letter = _dumps(frame | {"deflated": packed})
        if len(letter) <= MAX_MESSAGE_BYTES:
            return letter
        kept = int(kept * 0.97 * MAX_MESSAGE_BYTES / len(letter))
        text = f"{body[:kept]} [cut from {whole} characters]"


def _body(record: dict[str, Any]) -> str:
    if "deflated" not in record:
        return str(record["body"])
    return zlib.decompress(base64.b64decode(record["deflated"], validate=True)).decode("utf-8", "surrogatepass")


def _dumps(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))
