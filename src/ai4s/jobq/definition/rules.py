"""Rules: what a value in a definition may be. Each is read by ``read`` and turned into JSON Schema by ``schema``.

``fault`` functions say what is wrong with a text, or None. ``pattern`` is what a JSON Schema can express of the same rule
(ECMA 262 and Python's ``re`` alike; ``$(?!\\n)`` because Python's ``$`` also matches before a last newline).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string. ``normalise``: brought to Unicode NFC. ``better`` proposes a legal text near an illegal one.

    ``templated``: it may hold ``${{ … }}``; then only what comes out in the end has to be legal.
    """

    fault: Callable[[str], str | None]
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    normalise: bool = False
    better: Callable[[str], str] | None = None
    templated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AsWritten:
    """A string, or a number or truth value that is kept as the text it was written as."""

    fault: Callable[[str], str | None]
    pattern: str | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number in a range; never a truth value, a fraction or a quoted number."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number in a range, whole or not; 5.0 is read as 5."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """``true`` or ``false``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthOr:
    """``true``, ``false``, or one word."""

    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """An instant: ISO 8601 with date, time and zone. Read as a ``datetime`` in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Any JSON value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A string, number or truth value that is kept twice: as the value it is and as the text it was written as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the words of an enumeration."""

    words: type[StrEnum]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOrWhole:
    """One of some words, or a whole number."""

    choice: Choice
    whole: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list. ``plural`` names its items in messages."""

    item: Rule
    plural: str
    min_items: int = 0
    max_items: int | None = None
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping with any keys that have no fault; ``reserved`` and ``key_pattern`` say it to the schema.

    ``plural`` names its entries in the message about more than ``max_items``.
    """

    value: Rule
    key_fault: Callable[[str], str | None]
    key_pattern: str
    key_max_length: int | None = None
    reserved: tuple[str, ...] = ()
    min_items: int = 0
    max_items: int | None = None
    plural: str = "entries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a record. A ``nullable`` field that is null counts as left out. ``default`` is for the reader's eye."""

    name: str
    rule: Rule
    description: str
    required: bool = False
    nullable: bool = False
    default: str | int | bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A mapping with known keys only. ``noun`` names it in messages; ``hints`` say what to do about likely wrong keys.

    ``max_bytes`` bounds its canonical JSON without the field ``uncounted``. ``ignored`` keys are accepted and dropped.
    """

    noun: str
    fields: tuple[Field, ...]
    hints: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    max_bytes: int | None = None
    uncounted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A mapping with some known keys and any others, whose values are free JSON."""

    noun: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortForm:
    """A record, or (when it is no mapping) the value of its one field ``field``, which takes any JSON."""

    record: Record
    field: str


Rule = (
    Text
    | AsWritten
    | Whole
    | Number
    | Truth
    | TruthOr
    | Timestamp
    | Free
    | Labelled
    | Choice
    | ChoiceOrWhole
    | ListOf
    | MapOf
    | Record
    | OpenRecord
    | ShortForm
)


def expectation(rule: Rule) -> str:
    """What the rule wants, for a message."""
    match rule:
        case Text():
            return "a string"
        case AsWritten() | Labelled():
            return "a string, a number or a truth value"
        case Whole(minimum=minimum, maximum=maximum):
            return f"a whole number from {minimum} to {maximum:,}"
        case Number(minimum=minimum, maximum=maximum):
            return f"a number from {minimum} to {maximum:,}"
        case Truth():
            return "true or false"
        case TruthOr(word=word):
            return f"true, false or {word}"
        case Timestamp():
            return "a time with date and zone, such as 2030-01-31T08:00:00Z"
        case Free():
            return "a value"
        case Choice(words=words):
            return f"one of {', '.join(words)}"
        case ChoiceOrWhole(choice=choice, whole=whole):
            return f"{expectation(choice)}, or {expectation(whole)}"
        case ListOf(plural=plural):
            return f"a list of {plural}"
        case MapOf() | Record() | OpenRecord():
            return "a mapping"
        case ShortForm(record=record, field=field):
            return f"a {record.noun}: a mapping, or its {field} alone"
