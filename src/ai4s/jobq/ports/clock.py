"""The clock port, and the real clock. Tests put a virtual one in its place."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two notions of time, never mixed: ``now`` to tell people, ``monotonic`` to measure durations."""

    def now(self) -> datetime:
        """Aware UTC wall-clock time; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences within one process have a meaning."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
