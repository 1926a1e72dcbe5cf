"""Small parts of sentences for people."""

from __future__ import annotations

from collections.abc import Sequence

from ai4s.jobq.durations import span

NAMED = 3  # of many, by name


def named(names: Sequence[str]) -> str:
    """The first few by name, the others by their number."""
    more = f", … (+{len(names) - NAMED} more)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def count(number: int, word: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number} {word}{'s' * (number != 1)}"


def ago(age_s: float | None) -> str:
    """`` 5m ago`` with the blank before it; nothing when the age is not known."""
    return "" if age_s is None else f" {span(age_s)} ago"
