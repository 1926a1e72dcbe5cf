"""Schedules that once failed, shrunk, by the name of what they showed. ``test_regressions.py`` replays them all.

Take in what the explorer prints as it is, under a name that says what went wrong.
"""

from __future__ import annotations

from typing import Any

REGRESSIONS: dict[str, dict[str, Any]] = {}
