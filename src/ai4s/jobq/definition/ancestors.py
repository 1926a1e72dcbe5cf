"""Which tasks come before which: answers many such questions about a large graph at once.

Iterative, and about linear in the graph for each few thousand tasks that are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_AT_ONCE = 2048  # tasks asked about per pass: one bit each in a number per task, 256 bytes


def not_before(pairs: Iterable[tuple[int, int]], parents: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Of pairs (task, other): those in which the other is no ancestor of the task.

    Tasks in or behind a cycle are left out.
    """
    others: dict[int, set[int]] = {}
    for task, other in pairs:
        others.setdefault(task, set()).add(other)
    open_pairs = {(task, other) for task, wanted in others.items() for other in wanted.difference(parents[task])}
    if not open_pairs:
        return set()
    order = _running_order(parents)
    ordered = set(order)
    asked = sorted({other for _, other in open_pairs})
    found: set[tuple[int, int]] = set()
    for start in range(0, len(asked), _AT_ONCE):
        bits = {other: 1 << index for index, other in enumerate(asked[start : start + _AT_ONCE])}
        before = _ancestors_among(bits, order, parents)
        found.update(
            (task, other)
            for task, other in open_pairs
            if other in bits and task in ordered and not before[task] & bits[other]
        )
    return found


def _ancestors_among(bits: dict[int, int], order: Sequence[int], parents: Sequence[Sequence[int]]) -> list[int]:
    """For each task, the bits of its ancestors."""
    before = [0] * len(parents)
    for task in order:
        known = 0
        for parent in parents[task]:
            known |= before[parent] | bits.get(parent, 0)
        before[task] = known
    return before


def _running_order(parents: Sequence[Sequence[int]]) -> list[int]:
    """The tasks, each after all its parents; without those that are in or behind a cycle."""
    children: list[list[int]] = [[] for _ in parents]
    waiting = [len(each) for each in parents]
    for task, each in enumerate(parents):
        for parent in each:
            children[parent].append(task)
    order = [task for task, count in enumerate(waiting) if not count]
    for task in order:
        for child in children[task]:
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    return order
