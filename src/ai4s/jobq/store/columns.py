"""How single values stand in a row: versions, times, whole numbers, texts that must be short. What rows mean is elsewhere.

Whatever reads a row translates what is wrong with it: ``CorruptRecordError`` for damage, ``NewerVersionError`` for a later
release's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.table import Entity, Value

VERSION = 1

DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged record raises before it is translated into ``CorruptRecordError``."""


def iso(time: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds and ``Z``, or None."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shortened(text: str, most_bytes: int) -> str:
    """The text, its middle replaced by a mark where its UTF-8 form is longer than ``most_bytes``."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    mark = f"\n… {len(data) - most_bytes} bytes left out …\n"
    half = (most_bytes - len(mark.encode())) // 2
    return data[:half].decode("utf-8", "ignore") + mark + data[-half:].decode("utf-8", "ignore")


def check_version(entity: Entity) -> None:
    """Raise ``NewerVersionError`` for a row that a later release wrote, which is then left alone. Damaged ones pass."""
    try:
        checked_values(entity)
    except NewerVersionError:
        raise
    except CorruptRecordError:
        return


def checked_values(entity: Entity) -> Mapping[str, Value]:
    """The properties of a row of this release. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    version = entity.values.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptRecordError(f"row {entity.row!r} of {entity.partition!r} has no readable version")
    if version > VERSION:
        raise NewerVersionError(
            f"row {entity.row!r} of {entity.partition!r} has version {version}, this release reads up to {VERSION}: upgrade it"
        )
    return entity.values


def damaged(entity: Entity, exc: Exception) -> CorruptRecordError:
    """What to raise for a row that reading failed on with one of ``DAMAGE``."""
    return CorruptRecordError(
        f"row {entity.row!r} of {entity.partition!r} is damaged ({type(exc).__name__}: {exc}); "
        "it was edited by hand, or is cut"
    )


def without_none(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that there are: what is None is left out of a row."""
    return {name: value for name, value in facts.items() if value is not None}


def whole_number(value: Value) -> int:
    """The value, if it is a whole number. Raises ``TypeError``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def time_of(text: str) -> datetime:
    """The time that ``iso`` wrote. Raises ``ValueError``."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time


def optional_time(text: Value | None) -> datetime | None:
    """The time that ``iso`` wrote, or None for none. Raises ``ValueError``."""
    return time_of(str(text)) if text else None
