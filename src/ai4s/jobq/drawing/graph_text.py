"""A workflow's graph as text: plain layers for a terminal, Mermaid and DOT for other tools."""

from __future__ import annotations

from collections.abc import Iterator

from ai4s.jobq.drawing.palette import colour_of
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.graph import Node, TaskGraph

NAMED_PARENTS = 4
TASKS_WORD = "tasks"


def layer_rows(graph: TaskGraph) -> list[tuple[str, str, str, str]]:
    """A row per node, layer after layer: layer number (once), label, state, what it waits for."""
    order = sorted(range(len(graph.nodes)), key=lambda number: graph.depths[number])
    rows, before = [], -1
    for number in order:
        node, depth = graph.nodes[number], graph.depths[number]
        rows.append((str(depth + 1) if depth != before else "", label_of(node), states_of(node), _above(graph, number)))
        before = depth
    return rows


def label_of(node: Node) -> str:
    """What a node is called in text."""
    return node.label if node.tasks == 1 else f"{node.label} ({node.tasks:,} {TASKS_WORD})"


def states_of(node: Node) -> str:
    """The state of a task, or how many of a group's tasks are in each."""
    if node.tasks == 1:
        return "" if node.state is None else str(node.state)
    return ", ".join(f"{node.counts[state]:,} {state}" for state in TaskState if node.counts.get(state))


def mermaid(graph: TaskGraph) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    yield "---"
    yield f"title: {_mermaid_title(graph.name)}"
    yield "---"
    yield "flowchart LR"
    for number, node in enumerate(graph.nodes):
        mark = "" if node.state is None else f":::{node.state}"
        yield f'  t{number}["{_mermaid_text(_label_with_states(node))}"]{mark}'
    for parent, child in graph.edges:
        yield f"  t{parent} --> t{child}"
    for state in _states(graph):
        colour = colour_of(state)
        yield f"  classDef {state} fill:{colour.area},stroke:{colour.strong},color:#1f2328"


def dot(graph: TaskGraph) -> Iterator[str]:
    """The lines of a Graphviz digraph."""
    yield f"digraph {_dot_text(graph.name)} {{"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style="rounded,filled", fontname="sans-serif", fillcolor="#f6f8fa", color="#8c959f"];'
    for number, node in enumerate(graph.nodes):
        colour = colour_of(node.state)
        paint = "" if node.state is None else f', fillcolor="{colour.area}", color="{colour.strong}"'
        yield f"  t{number} [label={_dot_text(_label_with_states(node))}{paint}];"
    for parent, child in graph.edges:
        yield f"  t{parent} -> t{child};"
    yield "}"


def _above(graph: TaskGraph, number: int) -> str:
    parents = graph.parents[number]
    named = ", ".join(graph.nodes[parent].label for parent in parents[:NAMED_PARENTS])
    more = len(parents) - NAMED_PARENTS
    return named + (f", +{more} more" if more > 0 else "") if parents else "—"


def _label_with_states(node: Node) -> str:
    states = states_of(node)
    return f"{label_of(node)}\n{states}" if node.tasks > 1 and states else label_of(node)


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
