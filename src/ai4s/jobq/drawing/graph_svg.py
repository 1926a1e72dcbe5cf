"""The picture of a workflow's graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ai4s.jobq.drawing.graph_text import UNDOABLE_MARK, WORDS
from ai4s.jobq.drawing.layered import Layout, layout
from ai4s.jobq.drawing.palette import EDGE, FAINT_INK, INK, UNDO_DASH, colour_of, draw_legend
from ai4s.jobq.drawing.svg import Svg, bold_px, point, shortened, text_px
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.views.graph import Node, TaskGraph

MARGIN = 24.0
TITLE_PX = 58.0
BOX_HEIGHT = 26.0
GROUP_HEIGHT = 40.0
LABEL_PX = 190.0  # longest label
PADDING = 12.0
GAP = 12.0
RANK_GAP = 64.0
LEAST_SHARE_PX = 3.0
WAYPOINT_PX = 10.0  # thickness of a rank that holds no node
WIDEST = 1800.0  # from left to right; wider pictures run from top to bottom if that makes them less wide


def graph_svg(graph: TaskGraph) -> str:
    """The graph as an SVG document: tasks from left to right or top to bottom, coloured by state.

    Dashed lines lead to undo jobs, whose boxes are dashed too, and to hooks, whose boxes are round at both ends.
    """
    svg = Svg()
    picture = _picture(graph)
    dashed = _ends_of_dashed(graph, picture.layout)
    for route in picture.layout.routes:
        picture.draw_route(svg, route, dash=UNDO_DASH if route[-1] in dashed else "")
    for number, node in enumerate(graph.nodes):
        picture.draw_node(svg, number, node)
    _draw_junctions(svg, picture)
    width = max(picture.width, _draw_title(svg, graph))
    return svg.document(width + 2 * MARGIN, picture.height + TITLE_PX + MARGIN, title=graph.name)


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """A layout with its measures. ``along`` is the middle of each rank; ``flat``: ranks follow each other to the right."""

    layout: Layout
    widths: Sequence[float]
    heights: Sequence[float]
    along: Sequence[float]
    thickness: Sequence[float]
    rank_of: Mapping[int, int]
    flat: bool

    @property
    def width(self) -> float:
        return self._length if self.flat else self._breadth(self.widths)

    @property
    def height(self) -> float:
        return self._breadth(self.heights) if self.flat else self._length

    @property
    def _length(self) -> float:
        return self.along[-1] + self.thickness[-1] / 2 if self.along else 0.0

    def _breadth(self, sizes: Sequence[float]) -> float:
        ends = [at + size / 2 for at, size in zip(self.layout.centre, sizes, strict=False)]
        return max([*ends, *self.layout.centre], default=0.0)

    def centre(self, vertex: int) -> tuple[float, float]:
        along, across = self.along[self.rank_of[vertex]], self.layout.centre[vertex]
        x, y = (along, across) if self.flat else (across, along)
        return x + MARGIN, y + TITLE_PX

    def draw_route(self, svg: Svg, route: Sequence[int], *, dash: str) -> None:
        """A smooth line that enters and leaves every rank straight."""
        start = self._sides(route[0])[1]
        commands = [f"M{point(*start)}"]
        for vertex in route[1:]:
            ahead, behind = self._sides(vertex)
            commands.append(self._curve(start, ahead))
            if vertex != route[-1] and behind != ahead:
                commands.append(f"L{point(*behind)}")
            start = behind
        svg.path(commands, stroke=EDGE, dash=dash, arrow=self.layout.is_node(route[-1]))

    def _sides(self, vertex: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where a line enters a vertex, and where it leaves it."""
        x, y = self.centre(vertex)
        reach = self._reach(vertex)
        return ((x - reach, y), (x + reach, y)) if self.flat else ((x, y - reach), (x, y + reach))

    def _reach(self, vertex: int) -> float:
        """Half of what the vertex takes along the ranks; a waypoint passes the whole rank."""
        if self.layout.is_node(vertex):
            return (self.widths if self.flat else self.heights)[vertex] / 2
        return self.thickness[self.rank_of[vertex]] / 2 if self.layout.is_waypoint(vertex) else 0.0

    def _curve(self, start: tuple[float, float], end: tuple[float, float]) -> str:
        if self.flat:
            middle = (start[0] + end[0]) / 2
            return f"C{point(middle, start[1])} {point(middle, end[1])} {point(*end)}"
        middle = (start[1] + end[1]) / 2
        return f"C{point(start[0], middle)} {point(end[0], middle)} {point(*end)}"

    def draw_node(self, svg: Svg, number: int, node: Node) -> None:
        x, y = self.centre(number)
        width, height = self.widths[number], self.heights[number]
        left, top = x - width / 2, y - height / 2
        colour = colour_of(node.state)
        radius = height / 2 if node.role is JobRole.HOOK else 5
        title = _title(node)
        svg.rect(
            left,
            top,
            width,
            height,
            fill=colour.area,
            stroke=colour.strong,
            radius=radius,
            dash=_dash(node),
            title=title,
        )
        if node.undoable:
            svg.text(left + width - 3, top + 10, UNDOABLE_MARK, anchor="end", fill=FAINT_INK, size=10)
        if node.jobs == 1:
            svg.text(x, y + 4, shortened(node.label, LABEL_PX), anchor="middle", fill=INK)
            return
        svg.text(x, top + 16, shortened(node.label, LABEL_PX), anchor="middle", fill=INK)
        svg.text(x, top + 28, f"{node.jobs:,} {WORDS[node.role]}", anchor="middle", fill=FAINT_INK, size=10)
        if node.counts:
            _draw_shares(svg, node, left + 6, top + height - 8, width - 12)


def _dash(node: Node) -> str:
    if node.role is JobRole.UNDO:
        return UNDO_DASH
    return "4 3" if node.state in (TaskState.SKIPPED, TaskState.PENDING) else ""


def _ends_of_dashed(graph: TaskGraph, made: Layout) -> frozenset[int]:
    """The vertices in which dashed lines end: all nodes but tasks, and the junctions on the way to them."""
    others = {number for number, node in enumerate(graph.nodes) if node.role is not JobRole.TASK}
    before = {route[0] for route in made.routes if route[-1] in others and not made.is_node(route[0])}
    return frozenset(others | before)


def _picture(graph: TaskGraph) -> _Picture:
    """From left to right, unless that would be too wide and top to bottom is less so."""
    flat = _laid_out(graph, flat=True)
    if flat.width <= WIDEST:
        return flat
    upright = _laid_out(graph, flat=False)
    return upright if upright.width < flat.width else flat


def _laid_out(graph: TaskGraph, *, flat: bool) -> _Picture:
    widths = [
        max(text_px(shortened(node.label, LABEL_PX)), 60 if node.jobs > 1 else 24) + 2 * PADDING for node in graph.nodes
    ]
    heights = [BOX_HEIGHT if node.jobs == 1 else GROUP_HEIGHT + 6 * bool(node.counts) for node in graph.nodes]
    made = layout(graph.parents, heights if flat else widths, gap=GAP)
    lengths = widths if flat else heights
    thickness = [
        max((lengths[vertex] for vertex in rank if vertex < made.nodes), default=WAYPOINT_PX) for rank in made.ranks
    ]
    along, at = [], 0.0
    for thick in thickness:
        along.append(at + thick / 2)
        at += thick + (RANK_GAP if flat else RANK_GAP * 0.7)
    return _Picture(
        layout=made,
        widths=widths,
        heights=heights,
        along=along,
        thickness=thickness,
        rank_of={vertex: number for number, rank in enumerate(made.ranks) for vertex in rank},
        flat=flat,
    )


def _draw_junctions(svg: Svg, picture: _Picture) -> None:
    made = picture.layout
    for vertex in range(made.nodes, made.nodes + made.junctions):
        x, y = picture.centre(vertex)
        svg.rect(x - 2.5, y - 2.5, 5, 5, fill=EDGE, radius=2.5)


def _draw_title(svg: Svg, graph: TaskGraph) -> float:
    """Name, size and legend above the picture; how wide they are."""
    svg.text(MARGIN, 24, graph.name, bold=True, size=15)
    size = f"{graph.tasks:,} tasks" if graph.tasks != 1 else "1 task"
    size += f" in {graph.groups} groups" if graph.is_rolled_up else ""
    name_px = bold_px(graph.name, 15)
    svg.text(MARGIN + name_px + 12, 24, size, fill=FAINT_INK)
    legend = {f"{state} {count:,}": colour_of(state).strong for state, count in graph.counts.items()}
    return max(draw_legend(svg, MARGIN, 44, legend), MARGIN + name_px + 12 + text_px(size)) - MARGIN


def _draw_shares(svg: Svg, node: Node, x: float, y: float, width: float) -> None:
    """A bar that shows how many of a group's tasks are in each state; one failure among thousands is seen too."""
    shares = {state: max(width * node.counts[state] / node.jobs, LEAST_SHARE_PX) for state in node.counts}
    scale = width / sum(shares.values())
    for state in TaskState:
        if state in shares:
            svg.rect(x, y, shares[state] * scale, 4, fill=colour_of(state).strong)
            x += shares[state] * scale


def _title(node: Node) -> str:
    """What the pointer tells of a node."""
    states = ", ".join(f"{node.counts[state]:,} {state}" for state in TaskState if node.counts.get(state))
    told = f"{node.label}: {states}" if node.counts and node.jobs > 1 else f"{node.label}  {node.state or ''}".rstrip()
    return f"{told}\nhas an undo command" if node.undoable else told
