"""Where the nodes of a graph go when it is drawn in ranks: every edge leads to a later rank.

The usual four steps, each bounded in time: ranks by longest path; *waypoints* where an edge passes a rank; an order within
each rank by which few edges cross (barycentres, a fixed number of sweeps, the best one counts); and positions that keep this
order and are near those of the neighbours (isotonic regression, which is exact for one rank).

Where several nodes have the same several parents, the edges meet in a *junction* between them: a layer of thirty tasks
that all depend on the thirty before is drawn with sixty edges instead of nine hundred.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MOST_WAYPOINTS = 4000  # beyond that long edges are drawn straight: there are too many to be followed by eye anyway
ORDER_SWEEPS = 12
PLACE_SWEEPS = 10
_WAYPOINT_WEIGHT = 4.0  # how much straighter a long edge is than a short one
_CHILDREN_OF_JUNCTION = 2
_PARENTS_OF_JUNCTION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A drawing in ranks. Vertices are numbered: first the nodes, then the junctions, then the waypoints.

    ``ranks`` holds the vertices of each rank in order, ``centre`` the place of each vertex across the ranks. ``routes`` are
    the edges, each as the vertices it passes.
    """

    ranks: tuple[tuple[int, ...], ...]
    centre: tuple[float, ...]
    routes: tuple[tuple[int, ...], ...]
    nodes: int
    junctions: int

    def is_node(self, vertex: int) -> bool:
        return vertex < self.nodes

    def is_waypoint(self, vertex: int) -> bool:
        return vertex >= self.nodes + self.junctions


def layout(parents: Sequence[Sequence[int]], sizes: Sequence[float], *, gap: float) -> Layout:
    """Lay out a graph without cycles. ``sizes`` are across the ranks, ``gap`` is the least distance between two nodes."""
    builder = _Builder(len(parents))
    edges = _with_junctions(parents, builder)
    builder.set_ranks(_ranks(len(builder.rank), edges))
    routes = [builder.route(parent, child, straight=False) for parent, child in edges]
    if builder.waypoints > MOST_WAYPOINTS:
        builder.remove_waypoints()
        routes = [builder.route(parent, child, straight=True) for parent, child in edges]
    ranks = _ordered(builder, routes)
    extents = [*sizes, *[0.0] * (len(builder.rank) - len(sizes))]
    return Layout(
        ranks=tuple(tuple(rank) for rank in ranks),
        centre=tuple(_placed(ranks, builder.neighbours(routes), extents, gap=gap, nodes=len(sizes))),
        routes=tuple(tuple(route) for route in routes),
        nodes=len(sizes),
        junctions=builder.junctions,
    )


@dataclass(slots=True)
class _Builder:
    """The vertices so far, and their ranks."""

    nodes: int
    rank: list[int] = field(init=False)
    junctions: int = 0

    def __post_init__(self) -> None:
        self.rank = [0] * self.nodes

    def add_junction(self) -> int:
        self.rank.append(0)
        self.junctions += 1
        return len(self.rank) - 1

    def set_ranks(self, ranks: Sequence[int]) -> None:
        self.rank = list(ranks)

    @property
    def waypoints(self) -> int:
        return len(self.rank) - self.nodes - self.junctions

    def remove_waypoints(self) -> None:
        del self.rank[self.nodes + self.junctions :]

    def route(self, parent: int, child: int, *, straight: bool) -> list[int]:
        """An edge by way of a fresh waypoint in each rank it passes."""
        between = () if straight or self.waypoints > MOST_WAYPOINTS else range(self.rank[parent] + 1, self.rank[child])
        passed = []
        for rank in between:
            self.rank.append(rank)
            passed.append(len(self.rank) - 1)
        return [parent, *passed, child]

    def neighbours(self, routes: Sequence[Sequence[int]]) -> list[list[int]]:
        """The vertices that each one is joined to."""
        found: list[list[int]] = [[] for _ in self.rank]
        for route in routes:
            for vertex, after in pairwise(route):
                found[vertex].append(after)
                found[after].append(vertex)
        return found


def _with_junctions(parents: Sequence[Sequence[int]], builder: _Builder) -> list[tuple[int, int]]:
    """The edges, those between many parents and many children by way of a junction."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for child, above in enumerate(parents):
        alike.setdefault(tuple(sorted(set(above))), []).append(child)
    edges: list[tuple[int, int]] = []
    for above, children in alike.items():
        if len(above) >= _PARENTS_OF_JUNCTION and len(children) >= _CHILDREN_OF_JUNCTION:
            junction = builder.add_junction()
            edges += [(parent, junction) for parent in above]
            edges += [(junction, child) for child in children]
        else:
            edges += [(parent, child) for child in children for parent in above]
    return edges


def _ranks(vertices: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The rank of each vertex: as early as its parents allow; what has no parent stands right before its first child."""
    above: list[list[int]] = [[] for _ in range(vertices)]
    below: list[list[int]] = [[] for _ in range(vertices)]
    for parent, child in edges:
        above[child].append(parent)
        below[parent].append(child)
    waiting = [len(found) for found in above]
    ranks = [0] * vertices
    ready = [vertex for vertex in range(vertices) if waiting[vertex] == 0]
    for vertex in ready:  # grows while it is walked
        for child in below[vertex]:
            ranks[child] = max(ranks[child], ranks[vertex] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    for vertex in range(vertices):
        if below[vertex] and not above[vertex]:
            ranks[vertex] = min(ranks[child] for child in below[vertex]) - 1
    return ranks


def _ordered(builder: _Builder, routes: Sequence[Sequence[int]]) -> list[list[int]]:
    """The vertices of each rank, in the best order that the sweeps found."""
    ranks: list[list[int]] = [[] for _ in range(max(builder.rank, default=-1) + 1)]
    for vertex, rank in enumerate(builder.rank):
        ranks[rank].append(vertex)
    after, before = _directed(len(builder.rank), routes)
    best, fewest = ranks, _crossings(ranks, after)
    for sweep in range(ORDER_SWEEPS):
        if fewest == 0:
            break
        forwards = sweep % 2 == 0
        ranks = _swept(ranks, before if forwards else after, forwards=forwards)
        crossings = _crossings(ranks, after)
        if crossings < fewest:
            best, fewest = ranks, crossings
    return best


def _directed(vertices: int, routes: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """For each vertex those after and those before it."""
    after: list[list[int]] = [[] for _ in range(vertices)]
    before: list[list[int]] = [[] for _ in range(vertices)]
    for route in routes:
        for vertex, following in pairwise(route):
            after[vertex].append(following)
            before[following].append(vertex)
    return after, before


def _swept(ranks: Sequence[Sequence[int]], fixed: Sequence[Sequence[int]], *, forwards: bool) -> list[list[int]]:
    """Each rank sorted by the mean place of its neighbours in the rank before, seen in the direction of the sweep."""
    place: dict[int, float] = {}
    swept: list[list[int]] = [[] for _ in ranks]
    numbers = range(len(ranks)) if forwards else range(len(ranks) - 1, -1, -1)
    for number in numbers:
        old = {vertex: float(index) for index, vertex in enumerate(ranks[number])}
        wanted = {vertex: _mean([place[other] for other in fixed[vertex]], old[vertex]) for vertex in ranks[number]}
        swept[number] = sorted(ranks[number], key=lambda vertex: (wanted[vertex], old[vertex]))
        place.update({vertex: float(index) for index, vertex in enumerate(swept[number])})
    return swept


def _crossings(ranks: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    """How often edges between neighbouring ranks cross."""
    place = {vertex: index for rank in ranks for index, vertex in enumerate(rank)}
    total = 0
    for rank in ranks:
        ends = [end for vertex in rank for end in sorted(place[other] for other in after[vertex])]
        seen: list[int] = []
        for end in ends:
            total += len(seen) - bisect_left(seen, end + 1)
            insort(seen, end)
    return total


def _placed(
    ranks: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    extents: Sequence[float],
    *,
    gap: float,
    nodes: int,
) -> list[float]:
    """The centre of each vertex: near its neighbours, in the order of its rank, nothing overlapping."""
    centre = [0.0] * len(extents)
    for rank in ranks:
        offsets = _offsets(rank, extents, gap)
        for vertex, offset in zip(rank, offsets, strict=True):
            centre[vertex] = offset - offsets[-1] / 2
    for sweep in range(PLACE_SWEEPS):
        for rank in ranks if sweep % 2 == 0 else reversed(ranks):
            offsets = _offsets(rank, extents, gap)
            wanted = [_mean([centre[other] for other in neighbours[vertex]], centre[vertex]) for vertex in rank]
            weights = [_WAYPOINT_WEIGHT if vertex >= nodes else 1.0 for vertex in rank]
            free = _isotonic([want - offset for want, offset in zip(wanted, offsets, strict=True)], weights)
            for vertex, offset, value in zip(rank, offsets, free, strict=True):
                centre[vertex] = offset + value
    least = min((at - extent / 2 for at, extent in zip(centre, extents, strict=True)), default=0.0)
    return [at - least for at in centre]


def _offsets(rank: Sequence[int], extents: Sequence[float], gap: float) -> list[float]:
    """The centres of a rank when it is packed as closely as it may be."""
    offsets: list[float] = []
    for index, vertex in enumerate(rank):
        if index == 0:
            offsets.append(0.0)
        else:
            offsets.append(offsets[-1] + (extents[rank[index - 1]] + extents[vertex]) / 2 + gap)
    return offsets


def _isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to ``values`` by weighted squares: neighbours in the wrong order are pooled."""
    pools: list[tuple[float, float, int]] = []  # value, weight, length
    for value, weight in zip(values, weights, strict=True):
        length = 1
        while pools and pools[-1][0] > value:
            other, other_weight, other_length = pools.pop()
            value = (value * weight + other * other_weight) / (weight + other_weight)
            weight += other_weight
            length += other_length
        pools.append((value, weight, length))
    return [value for value, _, length in pools for _ in range(length)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
