"""C4, COMPAT layers: how graphs are rolled up, laid out and drawn."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
from ai4s.jobq.drawing.graph_svg import graph_svg
from ai4s.jobq.drawing.graph_text import dot, layer_rows, mermaid
from ai4s.jobq.drawing.layered import layout
from ai4s.jobq.drawing.svg import Svg, shortened, text_px
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.views.graph import MOST_NODES, Node, TaskGraph, depths_of, graph_of
from ai4s.jobq.views.layers import layer_of, layers_of

SVG = "{http://www.w3.org/2000/svg}"
GAP = 10.0


def workflow(parents: Mapping[str, tuple[str, ...]]) -> WorkflowDefinition:
    tasks = tuple(Task(name=name, depends_on=above) for name, above in parents.items())
    return WorkflowDefinition(name="flow", tasks=tasks)


def chain(length: int, name: str = "link {}") -> WorkflowDefinition:
    return workflow({name.format(n): (name.format(n - 1),) if n else () for n in range(length)})


@pytest.mark.parametrize(
    ("task", "layer"),
    [
        ("train-0001", "train"),
        ("train-0001_3", "train"),
        ("a-b-123", "a-b"),
        ("train-01", "train-01"),
        ("train0001", "train0001"),
        ("train-0001_x", "train-0001_x"),
        ("train[lr=0.1]", "train"),
        ("train[lr=0.1,seed=[2]]", "train"),
        ("note[1]", "note[1]"),
        ("-001", "-001"),
        ("train-٠٠١", "train-٠٠١"),
    ],
)
def test_a_layer_is_a_name_without_its_number(task: str, layer: str) -> None:
    assert layer_of(task) == layer


def test_layers_count_the_states_of_their_tasks() -> None:
    definition = workflow({"a-001": (), "a-002": (), "b": ("a-001",)})
    run = WorkflowRun(Graph(definition), run="r")
    run.tasks[0].state = TaskState.COMPLETED

    first, second = layers_of(run)

    assert (first.layer, first.total, dict(first.counts)) == ("a", 2, {TaskState.COMPLETED: 1, TaskState.PENDING: 1})
    assert (second.layer, second.settled, second.failed) == ("b", 0, 0)


def test_up_to_200_tasks_every_task_is_a_node() -> None:
    graph = graph_of(chain(MOST_NODES))

    assert len(graph.nodes) == MOST_NODES
    assert not graph.is_rolled_up
    assert graph.edges == tuple(pairwise(range(MOST_NODES)))


def test_beyond_that_alike_tasks_are_one_node() -> None:
    names = {f"fit-{n:04}": ("start",) for n in range(250)}
    graph = graph_of(workflow({"start": (), **names, "end": tuple(names)}))

    assert [(node.label, node.jobs) for node in graph.nodes] == [("start", 1), ("fit", 250), ("end", 1)]
    assert graph.edges == ((0, 1), (1, 2))


def test_layers_that_depend_on_each_other_in_a_circle_are_replaced_by_depths() -> None:
    links = {f"{'ab'[n % 2]}-{n:04}": (f"{'ab'[1 - n % 2]}-{n - 1:04}",) if n else () for n in range(250)}
    graph = graph_of(workflow(links))

    assert graph.is_rolled_up
    assert len(graph.nodes) <= MOST_NODES
    assert graph.edges == tuple(pairwise(range(len(graph.nodes))))
    assert sum(node.jobs for node in graph.nodes) == 250


@pytest.mark.parametrize("length", [201, 5000])
def test_a_long_chain_of_different_names_is_rolled_up_by_depth(length: int) -> None:
    graph = graph_of(chain(length))

    assert len(graph.nodes) <= MOST_NODES
    assert sum(node.jobs for node in graph.nodes) == length


def test_depths_of_a_circle_are_none() -> None:
    assert depths_of([[1], [0]]) is None
    assert depths_of([[], [0], [0, 1]]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, None),
        ({TaskState.PENDING: 2}, TaskState.PENDING),
        ({TaskState.PENDING: 1, TaskState.COMPLETED: 1}, TaskState.READY),
        ({TaskState.RUNNING: 1, TaskState.FAILED: 5}, TaskState.RUNNING),
        ({TaskState.FAILED: 1, TaskState.COMPLETED: 9}, TaskState.FAILED),
        ({TaskState.SKIPPED: 1, TaskState.COMPLETED: 9}, TaskState.COMPLETED),
        ({TaskState.SKIPPED: 2}, TaskState.SKIPPED),
    ],
)
def test_a_node_of_many_tasks_shows_the_state_that_matters(
    counts: dict[TaskState, int], state: TaskState | None
) -> None:
    assert Node(label="x", jobs=sum(counts.values()) or 1, counts=counts).state is state


@st.composite
def dags(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 40))
    return [draw(st.lists(st.integers(0, n - 1), max_size=6, unique=True)) if n else [] for n in range(size)]


@given(dags())
def test_every_edge_leads_to_a_later_rank_and_nothing_overlaps(parents: list[list[int]]) -> None:
    sizes = [20.0 + 7 * (number % 5) for number in range(len(parents))]

    made = layout(parents, sizes, gap=GAP)

    rank_of = {vertex: number for number, rank in enumerate(made.ranks) for vertex in rank}
    for route in made.routes:
        ranks = [rank_of[vertex] for vertex in route]
        assert all(later == earlier + 1 for earlier, later in pairwise(ranks))
    for rank in made.ranks:
        for left, right in pairwise(vertex for vertex in rank):
            half = [sizes[vertex] / 2 if made.is_node(vertex) else 0 for vertex in (left, right)]
            assert made.centre[right] - made.centre[left] >= sum(half) + GAP - 1e-6
    assert reached(made.routes, len(parents)) == {
        (parent, child) for child, above in enumerate(parents) for parent in above
    }


def reached(routes: tuple[tuple[int, ...], ...], nodes: int) -> set[tuple[int, int]]:
    """The pairs of nodes that routes join, by way of junctions too."""
    into: dict[int, list[int]] = {}
    for route in routes:
        if route[-1] >= nodes:
            into.setdefault(route[-1], []).append(route[0])
    return {(start, route[-1]) for route in routes if route[-1] < nodes for start in into.get(route[0], [route[0]])}


def test_layers_that_all_depend_on_all_need_few_edges() -> None:
    parents: list[list[int]] = [[] for _ in range(30)] + [list(range(30)) for _ in range(30)]

    made = layout(parents, [20.0] * 60, gap=GAP)

    assert made.junctions == 1
    assert len(made.routes) == 60


def test_a_tree_is_drawn_without_a_crossing() -> None:
    parents: list[list[int]] = [[], *([(number - 1) // 3] for number in range(1, 40))]
    random.Random(5).shuffle(parents[13:])

    made = layout(parents, [20.0] * 40, gap=GAP)

    places = {vertex: index for rank in made.ranks for index, vertex in enumerate(rank)}
    for rank in made.ranks[1:]:
        assert [places[parents[vertex][0]] for vertex in rank] == sorted(places[parents[vertex][0]] for vertex in rank)


def test_a_graph_with_every_edge_there_can_be_is_drawn() -> None:
    graph = graph_of(workflow({f"n{n}": tuple(f"n{m}" for m in range(n)) for n in range(MOST_NODES)}))

    drawing = ET.fromstring(graph_svg(graph))

    assert len(drawing.findall(f"{SVG}path")) == len(graph.edges)


def test_the_picture_has_a_box_per_task_in_the_colour_of_its_state() -> None:
    definition = workflow({"a": (), "b": ("a",)})
    run = WorkflowRun(Graph(definition), run="r")
    run.tasks[0].state = TaskState.FAILED

    drawing = ET.fromstring(graph_svg(graph_of(definition, run)))

    titles = [box.findtext(f"{SVG}title") for box in drawing.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    legend = [text.text for text in drawing.iter(f"{SVG}text")]
    assert titles == ["a  failed", "b  pending"]
    assert {"pending 1", "failed 1"} <= set(legend)


def test_everything_drawn_is_on_the_paper() -> None:
    graph = graph_of(workflow({"root": (), **{f"leaf {n}": ("root",) for n in range(150)}}))

    drawing = ET.fromstring(graph_svg(graph))

    width, height = float(drawing.attrib["width"]), float(drawing.attrib["height"])
    for box in drawing.findall(f"{SVG}rect")[1:]:
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert x >= 0
        assert y >= 0
        assert x + float(box.attrib["width"]) <= width
        assert y + float(box.attrib["height"]) <= height


def test_a_deep_graph_runs_from_top_to_bottom() -> None:
    drawing = ET.fromstring(graph_svg(graph_of(chain(100))))

    assert float(drawing.attrib["width"]) < 400


@pytest.mark.parametrize("text", ["\x00\x1b[2J", "\ud800", "<&>\"'", "]]>", "\ufffe", "a\tb"])
def test_any_text_makes_well_formed_svg(text: str) -> None:
    svg = Svg()
    svg.text(0, 0, text)
    svg.rect(0, 0, 1, 1, fill="#fff", title=text)

    ET.fromstring(svg.document(10, 10, title=text))


@given(st.text(st.characters(codec="utf-8"), max_size=80), st.integers(40, 300))
def test_a_shortened_text_fits(text: str, most_px: int) -> None:
    assert text_px(shortened(text, most_px)) <= most_px or len(shortened(text, most_px)) <= 3


def test_text_names_parents_and_says_how_many_more() -> None:
    names = tuple(f"p{n}" for n in range(6))
    rows = layer_rows(graph_of(workflow({**dict.fromkeys(names, ()), "end": names})))

    assert rows[0] == ("1", "p0", "", "—")
    assert rows[1][0] == ""
    assert rows[-1] == ("2", "end", "", "p0, p1, p2, p3, +2 more")


def test_mermaid_and_dot_escape_what_means_something_to_them() -> None:
    node = Node(label='a"]\n<b>&#\\', counts={})
    graph = TaskGraph(name='the "flow"\\', nodes=(node,), edges=())

    assert '  t0["a#34;]<br/>#60;b#62;#38;#35;#92;"]' in list(mermaid(graph))
    assert next(iter(dot(graph))) == 'digraph "the \\"flow\\"\\\\" {'
    assert '  t0 [label="a\\"]\\n<b>&#\\\\"];' in list(dot(graph))


# Undo jobs and hooks.

JOB = Job(kwargs={"cmd": "x"})


def undoable(
    names: Mapping[str, tuple[str, ...]], *, kept: str, on_success: Job | None = None, on_end: Job | None = None
) -> WorkflowDefinition:
    """Tasks with undo jobs, but for the one that is kept."""
    tasks = tuple(
        Task(name=name, depends_on=above, undo=None if name == kept else JOB) for name, above in names.items()
    )
    return WorkflowDefinition(name="flow", tasks=tasks, on_success=on_success, on_end=on_end)


def run_of(definition: WorkflowDefinition, state: WorkflowState, **jobs: TaskState) -> WorkflowRun:
    """A run in which all tasks have completed, and jobs, by number such as ``j3``, stand so."""
    numbers = dict.fromkeys(range(len(definition.tasks)), TaskState.COMPLETED)
    numbers |= {int(name.removeprefix("j")): job for name, job in jobs.items()}
    return WorkflowRun(
        Graph(definition),
        run="r",
        state=state,
        tasks=[TaskRun(number, stored=stored, attempt=1) for number, stored in numbers.items()],
    )


def edges_of(graph: TaskGraph) -> set[tuple[str, str]]:
    return {(graph.nodes[parent].label, graph.nodes[child].label) for parent, child in graph.edges}


def test_of_a_definition_tasks_with_an_undo_command_are_marked_and_hooks_come_after_everything() -> None:
    graph = graph_of(undoable({"a": (), "b": ("a",), "c": ("a",)}, kept="b", on_success=JOB, on_end=JOB))

    assert [(node.label, node.undoable) for node in graph.nodes] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("hook:on_success", False),
        ("hook:on_end", False),
    ]
    assert edges_of(graph) >= {("b", "hook:on_end"), ("c", "hook:on_end")}
    assert ("a", "hook:on_end") not in edges_of(graph)
    assert (graph.tasks, graph.groups, graph.layers) == (3, 3, 2)


def test_undo_jobs_are_drawn_once_they_are_wanted() -> None:
    definition = undoable({"a": (), "b": ("a",)}, kept="b")

    before = graph_of(definition, run_of(definition, WorkflowState.RUNNING))
    after = graph_of(definition, run_of(definition, WorkflowState.COMPENSATING, j2=TaskState.RUNNING))

    assert [(node.label, node.undoable) for node in before.nodes] == [("a", True), ("b", False)]
    assert [(node.label, node.role, node.undoable) for node in after.nodes] == [
        ("a", JobRole.TASK, False),
        ("b", JobRole.TASK, False),
        ("undo:a", JobRole.UNDO, False),
    ]
    assert after.nodes[2].state is TaskState.RUNNING
    assert edges_of(after) == {("a", "b"), ("a", "undo:a")}
    assert after.counts == {TaskState.COMPLETED: 2}


def test_of_a_run_that_has_ended_only_hooks_that_ran_are_drawn() -> None:
    definition = undoable({"a": ()}, kept="a", on_success=JOB, on_end=JOB)

    going_on = run_of(definition, WorkflowState.RUNNING)
    ended = run_of(definition, WorkflowState.COMPLETED, j3=TaskState.COMPLETED)
    ended.ended_at = datetime.now(UTC)

    assert [(node.label, node.state) for node in graph_of(definition, going_on).nodes[1:]] == [
        ("hook:on_success", TaskState.PENDING),
        ("hook:on_end", TaskState.PENDING),
    ]
    assert [node.label for node in graph_of(definition, ended).nodes] == ["a", "hook:on_end"]


def test_undo_jobs_of_many_alike_tasks_are_one_node() -> None:
    names = {f"fit-{n:04}": ("start",) for n in range(250)}
    definition = undoable({"start": (), **names}, kept="start")
    run = run_of(definition, WorkflowState.COMPENSATING, j252=TaskState.FAILED)

    graph = graph_of(definition, run)

    assert [(node.label, node.jobs) for node in graph.nodes] == [("start", 1), ("fit", 250), ("undo:fit", 250)]
    assert dict(graph.nodes[2].counts) == {TaskState.FAILED: 1, TaskState.PENDING: 249}
    assert layer_rows(graph)[2] == ("undo", "undo:fit (250 undo jobs)", "249 pending, 1 failed", "fit")
    assert graph.tasks == 251


def test_the_picture_dashes_undo_jobs_and_rounds_hooks() -> None:
    definition = undoable({"a": (), "b": ("a",)}, kept="b", on_end=JOB)
    drawing = ET.fromstring(graph_svg(graph_of(definition, run_of(definition, WorkflowState.COMPENSATING))))

    boxes = [box for box in drawing.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert [(box.attrib.get("rx"), box.attrib.get("stroke-dasharray")) for box in boxes] == [
        ("5", None),
        ("5", None),
        ("5", "3 2"),
        ("13", "4 3"),  # pending, as for tasks
    ]
    lines = [path.attrib.get("stroke-dasharray") for path in drawing.findall(f"{SVG}path")]
    assert lines == [None, "3 2", "3 2", "3 2"]


def test_mermaid_and_dot_tell_undo_jobs_and_hooks_from_tasks() -> None:
    definition = undoable({"a": (), "b": ("a",)}, kept="b", on_end=JOB)
    graph = graph_of(definition, run_of(definition, WorkflowState.COMPENSATING))

    assert {'  t2["undo:a"]:::pending', '  t3(["hook:on_end"]):::pending', "  t0 -.-> t2", "  class t2 undo"} <= set(
        mermaid(graph)
    )
    assert {"  t0 -> t1;", "  t0 -> t2 [style=dashed];"} <= set(dot(graph))
    assert any(line.startswith('  t2 [label="undo:a", style="rounded,filled,dashed"') for line in dot(graph))
    assert any(line.startswith('  t3 [label="hook:on_end", shape=oval') for line in dot(graph))
