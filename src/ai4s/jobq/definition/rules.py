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
    """A string. ``normalise``: brought to Unicode NFC. ``better`` proposes a legal text near an illegal one."""

    fault: Callable[[str], str | None]
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    normalise: bool = False
    better: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsWritten:
    """A string, or a number or truth value that is kept as the text it was written as."""

    fault: Callable[[str], str | None]
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number in a range; never a truth value, a fraction or a quoted number."""

    minimum: int
    maximum: int


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
    """A mapping with any keys that have no fault; ``reserved`` and ``key_pattern`` say it to the schema."""

    value: Rule
    key_fault: Callable[[str], str | None]
    key_pattern: str
    reserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a record. A ``nullable`` field that is null counts as left out. ``default`` is for the reader's eye."""

    name: str
    rule: Rule
    description: str
    required: bool = False
    nullable: bool = False
    default: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A mapping with known keys only. ``noun`` names it in messages; ``hints`` say what to do about likely wrong keys.

    ``max_bytes`` bounds its canonical JSON. ``ignored`` keys are accepted and dropped.
    """

    noun: str
    fields: tuple[Field, ...]
    hints: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A mapping with some known keys and any others, whose values are free JSON."""

    noun: str
    fields: tuple[Field, ...]


Rule = Text | AsWritten | Whole | Choice | ChoiceOrWhole | ListOf | MapOf | Record | OpenRecord


def expectation(rule: Rule) -> str:
    """What the rule wants, for a message."""
    match rule:
        case Text():
            return "a string"
        case AsWritten():
            return "a string, a number or a truth value"
        case Whole(minimum=minimum, maximum=maximum):
            return f"a whole number from {minimum} to {maximum:,}"
        case Choice(words=words):
            return f"one of {', '.join(words)}"
        case ChoiceOrWhole(choice=choice, whole=whole):
            return f"{expectation(choice)}, or {expectation(whole)}"
        case ListOf(plural=plural):
            return f"a list of {plural}"
        case MapOf() | Record() | OpenRecord():
            return "a mapping"
