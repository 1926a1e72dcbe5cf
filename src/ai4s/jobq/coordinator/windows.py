"""Queue windows: how many tasks may wait on each queue, and whose turn it is.

Shallow queues make a cancel quick and keep a large sweep from burying a small workflow. Pure bookkeeping: what is ready and
wanted comes from the runs, the size of a window from the live workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SMALLEST_WINDOW = 32
WINDOW_PER_SLOT = 2


@dataclass(slots=True)
class QueueWindows:
    """The room on all queues, shared by all workflows. ``largest`` bounds every window."""

    largest: int
    _slots: dict[str, int] = field(default_factory=dict)
    _ready: dict[str, dict[str, int]] = field(default_factory=dict)
    _taken: Counter[str] = field(default_factory=Counter)
    _wanting: dict[str, dict[str, int]] = field(default_factory=dict)
    """By queue, the workflows that wait for room, the longest waiting first, with their priorities."""

    def set_slots(self, slots: Mapping[str, int]) -> None:
        """Live worker slots per queue; queues left out have none that is known."""
        self._slots = dict(slots)

    def size(self, queue: str) -> int:
        """How many tasks may be ready on this queue at a time."""
        return min(max(WINDOW_PER_SLOT * self._slots.get(queue, 0), SMALLEST_WINDOW), self.largest)

    def room(self, workflow_id: str, queues: Iterable[str], *, priority: int = 0) -> dict[str, int]:
        """How many tasks this workflow may dispatch now, per queue.

        None where a workflow of higher priority waits; its fair share where others of its own priority do.
        """
        return {queue: self._share(workflow_id, queue, priority) for queue in queues}

    def settle(
        self, workflow_id: str, *, ready: Mapping[str, int], wanted: Iterable[str], priority: int = 0
    ) -> list[str]:
        """Note what a workflow has on the queues and where it wants more; the workflows whose turn it is now.

        ``wanted`` are the queues on which it would dispatch more if there were room.
        """
        left = {queue for queue, waiting in self._wanting.items() if waiting.pop(workflow_id, None) is not None}
        for queue in wanted:
            self._wanting.setdefault(queue, {})[workflow_id] = priority  # at the end of the line
            left.discard(queue)
        return list(dict.fromkeys((*self.release(workflow_id, ready), *self._next_in_line(left))))

    def release(self, workflow_id: str, ready: Mapping[str, int]) -> list[str]:
        """Note what a workflow has on the queues now; the workflows whose turn it is where that has become less."""
        before = self._ready.get(workflow_id, {})
        self._ready[workflow_id] = dict(ready)
        self._taken.subtract(before)
        self._taken.update(ready)
        return self._next_in_line(queue for queue, count in before.items() if ready.get(queue, 0) < count)

    def forget(self, workflow_id: str) -> list[str]:
        """Drop a workflow that ended or left; the workflows whose turn it is now."""
        turn = self.settle(workflow_id, ready={}, wanted=())
        self._ready.pop(workflow_id, None)
        return turn

    def _share(self, workflow_id: str, queue: str, priority: int) -> int:
        others = [waiting for other, waiting in self._wanting.get(queue, {}).items() if other != workflow_id]
        if max(others, default=priority) > priority:
            return 0
        return -(-self._free(queue) // (1 + others.count(priority)))

    def _free(self, queue: str) -> int:
        return max(self.size(queue) - self._taken[queue], 0)

    def _next_in_line(self, queues: Iterable[str]) -> list[str]:
        turn: dict[str, None] = {}
        for queue in queues:
            waiting = self._wanting.get(queue, {})
            line = sorted(waiting, key=lambda workflow_id: -waiting[workflow_id])  # stable: else the longest waiting
            turn.update(dict.fromkeys(line[: self._free(queue)]))
        return list(turn)
