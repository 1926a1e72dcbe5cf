"""The graph of a workflow as it is drawn: a node per task, or, for a large workflow, a node per layer of tasks.

A graph is drawn whole up to 200 tasks. Beyond that its nodes are layers, as ``layers`` names them, when there are few enough
and they depend on each other without a cycle; else the tasks at the same depth are one node, which always works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import SATISFIED, TaskState
from ai4s.jobq.layers import layer_of

MOST_NODES = 200
_TOLD_FIRST = (TaskState.RUNNING, TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A task, or ``tasks`` of them. ``counts`` are per task state, and empty when no run was asked about."""

    label: str
    tasks: int = 1
    counts: Mapping[TaskState, int]

    @property
    def state(self) -> TaskState | None:
        """The state that tells most of its tasks; None when no run was asked about."""
        if not self.counts:
            return None
        for state in _TOLD_FIRST:
            if self.counts.get(state):
                return state
        if all(state in SATISFIED for state in self.counts):
            return TaskState.COMPLETED if self.counts.get(TaskState.COMPLETED) else TaskState.SKIPPED
        begun = any(state.is_terminal for state in self.counts)
        return TaskState.READY if self.counts.get(TaskState.READY) or begun else TaskState.PENDING


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Nodes, and edges from parent to child as pairs of node numbers. It has no cycle."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    tasks: int

    @property
    def is_rolled_up(self) -> bool:
        """Whether nodes stand for several tasks."""
        return len(self.nodes) < self.tasks

    @cached_property
    def parents(self) -> list[list[int]]:
        """The parents of each node."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for parent, child in self.edges:
            found[child].append(parent)
        return found

    @cached_property
    def depths(self) -> list[int]:
        """For each node the number of edges on the longest way to it."""
        depths = depths_of(self.parents)
        assert depths is not None  # a workflow has no cycle, and no roll-up makes one
        return depths

    @cached_property
    def counts(self) -> dict[TaskState, int]:
        """All tasks per state."""
        total: Counter[TaskState] = Counter()
        for node in self.nodes:
            total.update(node.counts)
        return {state: total[state] for state in TaskState if total[state]}


def graph_of(definition: WorkflowDefinition, run: WorkflowRun | None = None) -> TaskGraph:
    """The graph of a definition, with the states of a run of it where one is given."""
    numbers = {task.name: number for number, task in enumerate(definition.tasks)}
    parents = [[numbers[name] for name in task.depends_on] for task in definition.tasks]
    labels = [task.name for task in definition.tasks]
    states = None if run is None else [task.state for task in run.tasks]
    if len(labels) <= MOST_NODES:
        return _rolled_up(definition.name, labels, range(len(labels)), parents, states)
    layers = _group_numbers(map(layer_of, labels))
    if max(layers) < MOST_NODES and depths_of(_group_parents(layers, parents)) is not None:
        return _rolled_up(definition.name, [layer_of(label) for label in labels], layers, parents, states)
    depths = depths_of(parents)
    assert depths is not None  # definitions are checked for cycles
    return _by_depth(definition.name, labels, depths, parents, states)


def depths_of(parents: Sequence[Sequence[int]]) -> list[int] | None:
    """For each node the number of edges on the longest way to it; None when the graph has a cycle."""
    children: list[list[int]] = [[] for _ in parents]
    for child, above in enumerate(parents):
        for parent in above:
            children[parent].append(child)
    waiting = [len(above) for above in parents]
    depths = [0] * len(parents)
    ready = [number for number, count in enumerate(waiting) if count == 0]
    for number in ready:  # grows while it is walked
        for child in children[number]:
            depths[child] = max(depths[child], depths[number] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return depths if len(ready) == len(parents) else None


def _by_depth(
    name: str,
    labels: Sequence[str],
    depths: Sequence[int],
    parents: Sequence[Sequence[int]],
    states: Sequence[TaskState] | None,
) -> TaskGraph:
    """The tasks at each depth as one node, or, of a very deep graph, at a range of depths."""
    step = -(-(max(depths) + 1) // MOST_NODES)
    groups = [depth // step for depth in depths]
    first: dict[int, str] = {}
    for label, group in zip(labels, groups, strict=True):
        first.setdefault(group, label)
    named = [f"{first[group]} …" for group in groups]
    order = sorted(range(len(labels)), key=lambda number: groups[number])
    position = {number: place for place, number in enumerate(order)}
    return _rolled_up(
        name,
        [named[number] for number in order],
        [groups[number] for number in order],
        [[position[parent] for parent in parents[number]] for number in order],
        None if states is None else [states[number] for number in order],
    )


def _rolled_up(
    name: str,
    labels: Sequence[str],
    groups: Sequence[int],
    parents: Sequence[Sequence[int]],
    states: Sequence[TaskState] | None,
) -> TaskGraph:
    """A graph with a node per group; groups are numbered from 0, in the order of their first task."""
    sizes: Counter[int] = Counter()
    counts: dict[int, Counter[TaskState]] = {}
    named: dict[int, str] = {}
    for number, group in enumerate(groups):
        sizes[group] += 1
        named.setdefault(group, labels[number])
        counts.setdefault(group, Counter())
        if states is not None:
            counts[group][states[number]] += 1
    above = _group_parents(groups, parents)
    return TaskGraph(
        name=name,
        nodes=tuple(Node(label=named[group], tasks=sizes[group], counts=counts[group]) for group in sorted(named)),
        edges=tuple((parent, child) for child, found in enumerate(above) for parent in found),
        tasks=len(labels),
    )


def _group_numbers(names: Iterable[str]) -> list[int]:
    known: dict[str, int] = {}
    return [known.setdefault(name, len(known)) for name in names]


def _group_parents(groups: Sequence[int], parents: Sequence[Sequence[int]]) -> list[list[int]]:
    """The parents of each group, itself left out, in the order in which they are first met."""
    above: list[dict[int, None]] = [{} for _ in range(max(groups, default=-1) + 1)]
    for number, found in enumerate(parents):
        for parent in found:
            if groups[parent] != groups[number]:
                above[groups[number]][groups[parent]] = None
    return [list(found) for found in above]
