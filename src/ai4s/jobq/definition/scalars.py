"""What a scalar means: as text, or as a JSON value.

A bare YAML word is a number, a truth value or null only where YAML 1.2 *and* people would say so. ``NO``, ``on``, ``012``,
``0x1F``, ``1_000``, ``1:30`` and ``.inf`` stay text: YAML 1.1 rewrites them silently, and that has cost people dearly.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ai4s.jobq.definition.document import MappingNode, Node, Scalar, Style, shown

MAX_DIGITS = 1000  # Python itself refuses to read decimal numbers of more than 4,300

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
INSTANT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})$(?!\n)"
)
_INSTANT = re.compile(INSTANT)
_FIRST_OF_NUMBER = frozenset("0123456789+-.")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def is_null(scalar: Scalar) -> bool:
    """Whether this is null: the word, ``~``, or nothing at all."""
    return scalar.style is not Style.QUOTED and _WORDS.get(scalar.text, False) is None


def text_of(scalar: Scalar) -> str | None:
    """The scalar as text, exactly as written, or None when it cannot be text."""
    if scalar.style is Style.LITERAL or is_null(scalar):
        return None
    return scalar.text


def value_of(scalar: Scalar) -> str | int | float | bool | None:
    """The scalar as a JSON value. Raises ``ValueError`` for a number that has none."""
    text = scalar.text
    if scalar.style is Style.QUOTED:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST_OF_NUMBER:
        return text
    if _WHOLE.fullmatch(text):
        return _whole(text)
    return _decimal(text) if _DECIMAL.fullmatch(text) else text


def instant_of(scalar: Scalar) -> datetime | None:
    """The instant that this ISO 8601 text with date, time and zone names, in UTC, or None when it is none."""
    text = text_of(scalar)
    if text is None or not _INSTANT.match(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def unicode_fault(text: str) -> str | None:
    """What keeps this text from being encoded, or None."""
    if text.isascii() or not (half := _SURROGATE.search(text)):
        return None
    return f"the character U+{ord(half.group()):04X} is half of a surrogate pair, not text"


def describe(node: Node) -> str:
    """What was found, for a message."""
    if not isinstance(node, Scalar):
        return "a mapping" if isinstance(node, MappingNode) else "a list"
    if is_null(node):
        return "null" if node.text else "nothing"
    if node.style is Style.QUOTED or not (node.text in _WORDS or _DECIMAL.fullmatch(node.text)):
        return f"the string {shown(node.text)}"
    return node.text if len(node.text) < 40 else f"{node.text[:20]}… ({len(node.text)} characters)"


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"this number has {len(text)} digits, at most {MAX_DIGITS} are read")
    return int(text)


def _decimal(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("this number is larger than any that can be stored")
    return value
