"""Lengths of time as people write and read them: ``90s``, ``10m``, ``12h``, ``7d``, ``2w``."""

from __future__ import annotations

import re

from ai4s.jobq.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def duration_s(text: str) -> float:
    """A whole number and a unit, such as 90s, 10m, 12h, 7d or 2w, in seconds. Raises ``UsageError``."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r}. Expected format: <number>[smhdw], such as 90s or 10m.")
    return float(int(found[1]) * _SECONDS[found[2]])


def span(seconds: float) -> str:
    """About how long, in the largest unit of which there is one: ``45s``, ``61m`` (up to two hours), ``3h``, ``2d``."""
    for unit, size_s, from_s in (("d", 86_400, 2 * 86_400), ("h", 3600, 2 * 3600), ("m", 60, 60)):
        if seconds >= from_s:
            return f"{int(seconds // size_s)}{unit}"
    return f"{max(int(seconds), 0)}s"
