"""Finds cycles in a graph given as lists of parents. Iterative, so that depth has no limit, and linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def find_cycles(parents: Sequence[Sequence[int]]) -> list[list[int]]:
    """Cycles without a common node, at least one in every knot; each in running order, its smallest number first."""
    search = _Search(parents)
    for start in range(len(parents)):
        search.visit(start)
    return search.cycles


class _Search:
    """A depth-first search from children to parents. An edge back to a node of the trail closes a cycle."""

    def __init__(self, parents: Sequence[Sequence[int]]) -> None:
        self.cycles: list[list[int]] = []
        self._parents = parents
        self._visited = bytearray(len(parents))
        self._trail: list[int] = []
        self._position: dict[int, int] = {}  # on the trail
        self._reported: list[int] = []  # per trail position: the last one up to here that is in a reported cycle, or -1

    def visit(self, start: int) -> None:
        if self._visited[start]:
            return
        pending: list[Iterator[int]] = [self._enter(start)]
        while pending:
            parent = next(pending[-1], None)
            if parent is None:
                pending.pop()
                self._leave()
            elif parent in self._position:
                self._report(self._position[parent])
            elif not self._visited[parent]:
                pending.append(self._enter(parent))

    def _enter(self, node: int) -> Iterator[int]:
        self._visited[node] = 1
        self._position[node] = len(self._trail)
        self._trail.append(node)
        self._reported.append(self._reported[-1] if self._reported else -1)
        return iter(self._parents[node])

    def _leave(self) -> None:
        del self._position[self._trail.pop()]
        self._reported.pop()

    def _report(self, first: int) -> None:
        if self._reported[-1] >= first:
            return  # it shares a node with a cycle that is reported already
        end = len(self._trail)
        self._reported[first:end] = range(first, end)
        nodes = self._trail[first:][::-1]
        smallest = nodes.index(min(nodes))
        self.cycles.append(nodes[smallest:] + nodes[:smallest])
