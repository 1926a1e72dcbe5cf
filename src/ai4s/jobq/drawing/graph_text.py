"""A workflow's graph as text: plain layers for a terminal, Mermaid and DOT for other tools."""

from __future__ import annotations

from collections.abc import Iterator

from ai4s.jobq.drawing.palette import UNDO_DASH, colour_of
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.views.graph import Node, TaskGraph

NAMED_PARENTS = 4
UNDOABLE_MARK = "↶"

WORDS = {JobRole.TASK: "tasks", JobRole.UNDO: "undo jobs", JobRole.HOOK: "hooks"}
_AFTER_LAYERS = {JobRole.UNDO: "undo", JobRole.HOOK: "end"}


def layer_rows(graph: TaskGraph) -> list[tuple[str, str, str, str]]:
    """A row per node, layer after layer, then undo jobs and hooks: layer (once), label, state, what it waits for."""
    tasks = sorted(range(graph.groups), key=lambda number: graph.depths[number])
    rows, before = [], ""
    for number in (*tasks, *range(graph.groups, len(graph.nodes))):
        node = graph.nodes[number]
        layer = _AFTER_LAYERS.get(node.role, str(graph.depths[number] + 1))
        rows.append((layer if layer != before else "", label_of(node), states_of(node), _above(graph, number)))
        before = layer
    return rows


def label_of(node: Node) -> str:
    """What a node is called in text."""
    label = node.label if node.jobs == 1 else f"{node.label} ({node.jobs:,} {WORDS[node.role]})"
    return f"{label} {UNDOABLE_MARK}" if node.undoable else label


def states_of(node: Node) -> str:
    """The state of a job, or how many of a group's jobs are in each."""
    if node.jobs == 1:
        return "" if node.state is None else str(node.state)
    return ", ".join(f"{node.counts[state]:,} {state}" for state in TaskState if node.counts.get(state))


def mermaid(graph: TaskGraph) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    yield "---"
    yield f"title: {_mermaid_title(graph.name)}"
    yield "---"
    yield "flowchart LR"
    for number, node in enumerate(graph.nodes):
        begin, end = ("([", "])") if node.role is JobRole.HOOK else ("[", "]")
        mark = "" if node.state is None else f":::{node.state}"
        yield f'  t{number}{begin}"{_mermaid_text(_label_with_states(node))}"{end}{mark}'
    for parent, child in graph.edges:
        arrow = "-->" if graph.nodes[child].role is JobRole.TASK else "-.->"
        yield f"  t{parent} {arrow} t{child}"
    for state in _states(graph):
        colour = colour_of(state)
        yield f"  classDef {state} fill:{colour.area},stroke:{colour.strong},color:#1f2328"
    undo = [f"t{number}" for number, node in enumerate(graph.nodes) if node.role is JobRole.UNDO]
    if undo:
        yield f"  classDef undo stroke-dasharray:{UNDO_DASH}"
        yield f"  class {','.join(undo)} undo"


def dot(graph: TaskGraph) -> Iterator[str]:
    """The lines of a Graphviz digraph."""
    yield f"digraph {_dot_text(graph.name)} {{"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style="rounded,filled", fontname="sans-serif", fillcolor="#f6f8fa", color="#8c959f"];'
    for number, node in enumerate(graph.nodes):
        colour = colour_of(node.state)
        paint = "" if node.state is None else f', fillcolor="{colour.area}", color="{colour.strong}"'
        yield f"  t{number} [label={_dot_text(_label_with_states(node))}{_DOT_SHAPES[node.role]}{paint}];"
    for parent, child in graph.edges:
        yield f"  t{parent} -> t{child}{'' if graph.nodes[child].role is JobRole.TASK else ' [style=dashed]'};"
    yield "}"


_DOT_SHAPES = {
    JobRole.TASK: "",
    JobRole.UNDO: ', style="rounded,filled,dashed"',
    JobRole.HOOK: ', shape=oval, style="filled"',
}


def _above(graph: TaskGraph, number: int) -> str:
    if graph.nodes[number].role is JobRole.HOOK:
        return "everything"
    parents = graph.parents[number]
    named = ", ".join(graph.nodes[parent].label for parent in parents[:NAMED_PARENTS])
    more = len(parents) - NAMED_PARENTS
    return named + (f", +{more} more" if more > 0 else "") if parents else "—"


def _label_with_states(node: Node) -> str:
    states = states_of(node)
    return f"{label_of(node)}\n{states}" if node.jobs > 1 and states else label_of(node)


def _states(graph: TaskGraph) -> list[TaskState]:
    found = {node.state for node in graph.nodes}
    return [state for state in TaskState if state in found]


def _mermaid_text(text: str) -> str:
    """Text in quotes: what Mermaid or HTML would take for markup is written as entities."""
    shown = "".join(f"#{ord(char)};" if char in '"<>&#`\\' or (char < " " and char != "\n") else char for char in text)
    return shown.replace("\n", "<br/>")


def _mermaid_title(text: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
