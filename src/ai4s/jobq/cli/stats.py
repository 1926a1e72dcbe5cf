"""``--stats``: what a command cost in requests to storage."""

from __future__ import annotations

from collections.abc import Mapping

from ai4s.jobq.cli.terminal import say


def say_requests(requests: Mapping[str, int], *, tasks: int) -> None:
    """Print requests by kind, in all, and per task."""
    for kind, count in sorted(requests.items()):
        say(f"  {kind:<24}{count}")
    total = sum(requests.values())
    per_task = f", {total / tasks:.1f} per task" if tasks else ""
    say(f"  {'requests':<24}{total}{per_task}")
