"""Limits of the Azure services, as pure checks that every adapter calls before it sends.

A local store has none of these limits; it enforces them all the same, so that a workflow which ran on a laptop also
runs on Azure. Sizes are counted as the services count them: strings as UTF-16, bodies as encoded bytes.

Sources (read 2026-11):
https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model (keys, properties)
https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions (100 operations, 4 MiB)
https://learn.microsoft.com/azure/storage/queues/scalability-targets (64 KiB per message, visibility up to 7 days)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ai4s.jobq.errors import EntityTooLargeError, MessageTooLargeError, UsageError
from ai4s.jobq.ports.table import Delete, Insert, Merge, Operation, Replace, Value

MAX_KEY_UTF16 = 512
MAX_PROPERTY_BYTES = 64 * 1024
MAX_ENTITY_BYTES = 1024 * 1024
MAX_PROPERTIES = 252
MAX_OPERATIONS = 100
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_MESSAGE_BYTES = 64 * 1024
MAX_VISIBILITY_S = 7 * 24 * 3600
MAX_RECEIVE = 32
MAX_BLOB_NAME = 1024

_BAD_IN_KEY = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BAD_IN_BLOB_NAME = re.compile(r"[\\\x00-\x1f\x7f\ud800-\udfff]")
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_QUEUE_NAME = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
STORABLE = (str, int, float, bytes)  # types of a property value


def check_table_name(name: str) -> None:
    """Raise ``UsageError`` unless Azure takes this table name: 3-63 letters and digits, a letter first."""
    if not _TABLE_NAME.fullmatch(name) or name.lower() == "tables":
        raise UsageError(f"{name!r} is no table name: 3 to 63 letters and digits, beginning with a letter")


def check_queue_name(name: str) -> None:
    """Raise ``UsageError`` unless Azure takes this queue name (the same rule holds for containers)."""
    if not _QUEUE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no queue name: 3 to 63 lower-case letters, digits and single dashes, "
            "beginning and ending with a letter or digit"
        )


def check_container_name(name: str) -> None:
    """Raise ``UsageError`` unless Azure takes this blob container name."""
    if not _QUEUE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no container name: 3 to 63 lower-case letters, digits and single dashes, "
            "beginning and ending with a letter or digit"
        )


def check_blob_name(name: str) -> None:
    """Raise ``UsageError`` unless the name is 1-1024 characters of non-empty segments, none of them a dot path."""
    segments = name.split("/")
    if len(name) > MAX_BLOB_NAME or any(part in ("", ".", "..") for part in segments) or _BAD_IN_BLOB_NAME.search(name):
        raise UsageError(
            f"{name[:80]!r} is no blob name: 1 to 1024 characters without \\ and control characters, "
            "no segment between two / empty, . or .."
        )


def check_key(key: str) -> None:
    """Raise ``UsageError`` unless Azure takes this partition or row key."""
    if not key or _BAD_IN_KEY.search(key) or utf16_units(key) > MAX_KEY_UTF16:
        raise UsageError(f"{key[:80]!r} is no table key: 1 to 512 characters without / \\ # ? and control characters")


def utf16_units(text: str) -> int:
    """Length of a text in UTF-16 code units, which is how Azure counts strings."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def value_bytes(value: Value) -> int:
    """Bytes one property value counts for in Azure Tables."""
    if isinstance(value, str):
        return 2 * utf16_units(value)
    if isinstance(value, bytes):
        return len(value)
    return 8


def entity_bytes(row: str, values: Mapping[str, Value]) -> int:
    """Bytes one entity counts for: keys, names and values."""
    return _keys_bytes(row) + sum(_name_bytes(name) + value_bytes(value) for name, value in values.items())


def _keys_bytes(row: str) -> int:
    return 4 + 2 * (len(row) + MAX_KEY_UTF16)


def _name_bytes(name: str) -> int:
    return 8 + 2 * len(name)


def check_entity(row: str, values: Mapping[str, Value]) -> int:
    """The entity's size; raises ``EntityTooLargeError`` when Azure would refuse it for that.

    Raises: ``ValueError`` for a property name that is no identifier and for a float that is not finite, ``TypeError`` for a
    value that cannot be stored (a caller's bug).
    """
    check_key(row)
    if len(values) > MAX_PROPERTIES:
        raise EntityTooLargeError(f"row {row!r} has {len(values)} properties, at most {MAX_PROPERTIES} are stored")
    size = _keys_bytes(row)
    for name, value in values.items():
        if not name.isidentifier():
            raise ValueError(f"property {name!r} of row {row!r} is no identifier")
        if not isinstance(value, STORABLE):
            raise TypeError(f"property {name!r} of row {row!r} is {type(value).__name__}: text, number or bytes only")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise EntityTooLargeError(f"property {name!r} of row {row!r} is no 64-bit integer")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"property {name!r} of row {row!r} is {value}, not a finite number")
        of_value = value_bytes(value)
        if of_value > MAX_PROPERTY_BYTES:
            raise EntityTooLargeError(f"property {name!r} of row {row!r} is larger than 64 KiB")
        size += _name_bytes(name) + of_value
    if size > MAX_ENTITY_BYTES:
        raise EntityTooLargeError(f"row {row!r} is {size} bytes, at most 1 MiB is stored")
    return size


def check_transaction(partition: str, operations: Sequence[Operation]) -> None:
    """Raise when Azure would refuse this transaction for its shape or size.

    Raises: ``ValueError`` for an empty transaction or a row changed twice (a caller's bug); ``EntityTooLargeError`` for
    more than 100 operations or 4 MiB.
    """
    check_key(partition)
    if not operations:
        raise ValueError("an empty transaction")
    if len(operations) > MAX_OPERATIONS:
        raise EntityTooLargeError(f"{len(operations)} operations in one transaction, at most {MAX_OPERATIONS}")
    if len({operation.row for operation in operations}) != len(operations):
        raise ValueError("a row is changed twice in one transaction")
    size = 0
    for operation in operations:
        match operation:
            case Insert() | Replace() | Merge():
                size += check_entity(operation.row, operation.values)
            case Delete():
                check_key(operation.row)
    if size > MAX_TRANSACTION_BYTES:
        raise EntityTooLargeError(f"a transaction of {size} bytes, at most 4 MiB")


def check_bodies(bodies: Sequence[str], *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Raise ``MessageTooLargeError`` (naming the index) when a body is larger than the service takes."""
    for index, body in enumerate(bodies):
        size = len(body) if body.isascii() else len(body.encode())
        if size > max_bytes:
            raise MessageTooLargeError(f"message {index} is {size} bytes, the queue takes {max_bytes}")
