"""The graph of a workflow as it is drawn: a node per task, or, for a large workflow, a node per layer of tasks.

A graph is drawn whole up to 200 tasks. Beyond that its nodes are layers, as ``layers`` names them, when there are few enough
and they depend on each other without a cycle; else the tasks at the same depth are one node, which always works.

After the tasks come what else a run does: its undo jobs, a node for each node of tasks that has some, and its hooks. Of a
definition, or of a run that goes well, nobody knows what will be undone: tasks with an undo command are only marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.job_names import JobRole, job_name
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import SATISFIED, TaskState
from ai4s.jobq.views.layers import layer_of
from ai4s.jobq.views.other_jobs import has_begun, is_undoing, job_state, undo_job

MOST_NODES = 200
_TOLD_FIRST = (TaskState.RUNNING, TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A job, or ``jobs`` of them. ``counts`` are per state, and empty when no run was asked about.

    ``undoable``: there are tasks that have an undo command, and it is not known yet whether it will run.
    """

    label: str
    role: JobRole = JobRole.TASK
    jobs: int = 1
    counts: Mapping[TaskState, int]
    undoable: bool = False

    @property
    def state(self) -> TaskState | None:
        """The state that tells most of its jobs; None when no run was asked about."""
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
    """Nodes, first of tasks, then of undo jobs, then of hooks, and edges as pairs of node numbers. It has no cycle.

    Edges lead from parent to child, from tasks to their undo jobs, and from all that nothing follows to the hooks.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def tasks(self) -> int:
        """How many tasks there are."""
        return sum(node.jobs for node in self._task_nodes)

    @property
    def groups(self) -> int:
        """How many nodes stand for tasks."""
        return len(self._task_nodes)

    @property
    def is_rolled_up(self) -> bool:
        """Whether nodes stand for several tasks."""
        return self.groups < self.tasks

    @cached_property
    def parents(self) -> list[list[int]]:
        """The nodes from which an edge leads to each node."""
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

    @property
    def layers(self) -> int:
        """How many tasks follow each other at most."""
        return max(self.depths[: self.groups], default=-1) + 1

    @cached_property
    def counts(self) -> dict[TaskState, int]:
        """All tasks per state."""
        total: Counter[TaskState] = Counter()
        for node in self._task_nodes:
            total.update(node.counts)
        return {state: total[state] for state in TaskState if total[state]}

    @cached_property
    def _task_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.role is JobRole.TASK]


@dataclass(frozen=True, slots=True)
class _Grouping:
    """Which node each task belongs to, and what the nodes are called."""

    group_of: Sequence[int]
    labels: Sequence[str]


def graph_of(definition: WorkflowDefinition, run: WorkflowRun | None = None) -> TaskGraph:
    """The graph of a definition, with the states of a run of it where one is given."""
    numbers = {task.name: number for number, task in enumerate(definition.tasks)}
    parents = [[numbers[name] for name in task.depends_on] for task in definition.tasks]
    grouping = _grouping(list(numbers), parents)
    nodes = _task_nodes(definition, run, grouping)
    above = _group_parents(grouping.group_of, parents)
    undone = {} if run is None else _undo_nodes(run, grouping)
    nodes += undone.values()
    above += [[group] for group in undone]
    hooks = _hook_nodes(definition, run)
    last = sorted(set(range(len(nodes))).difference(*above))
    return TaskGraph(
        name=definition.name,
        nodes=(*nodes, *hooks),
        edges=tuple(
            (parent, child) for child, found in enumerate([*above, *(last for _ in hooks)]) for parent in found
        ),
    )


def _grouping(names: Sequence[str], parents: Sequence[Sequence[int]]) -> _Grouping:
    """A node for each task while they are few; else for each layer, or for each depth."""
    if len(names) <= MOST_NODES:
        return _Grouping(range(len(names)), names)
    layers = _group_numbers(map(layer_of, names))
    if max(layers) < MOST_NODES and depths_of(_group_parents(layers, parents)) is not None:
        return _Grouping(layers, list(dict.fromkeys(map(layer_of, names))))
    depths = depths_of(parents)
    assert depths is not None  # definitions are checked for cycles
    step = -(-(max(depths) + 1) // MOST_NODES)  # a very deep graph has a node for several depths
    groups = [depth // step for depth in depths]
    first: dict[int, str] = {}
    for name, group in zip(names, groups, strict=True):
        first.setdefault(group, name)
    return _Grouping(groups, [f"{first[group]} …" for group in sorted(first)])


def _task_nodes(definition: WorkflowDefinition, run: WorkflowRun | None, grouping: _Grouping) -> list[Node]:
    sizes = Counter(grouping.group_of)
    counts: list[Counter[TaskState]] = [Counter() for _ in grouping.labels]
    if run is not None:
        for group, task in zip(grouping.group_of, run.tasks, strict=True):
            counts[group][task.state] += 1
    may_be_undone = run is None or (run.ended_at is None and not is_undoing(run.state))
    tasks = zip(grouping.group_of, definition.tasks, strict=True)
    undoable = {group for group, task in tasks if task.undo is not None and may_be_undone}
    return [
        Node(label=label, jobs=sizes[group], counts=counts[group], undoable=group in undoable)
        for group, label in enumerate(grouping.labels)
    ]


def _undo_nodes(run: WorkflowRun, grouping: _Grouping) -> dict[int, Node]:
    """A node of undo jobs for each node of tasks of which some are wanted."""
    counts: dict[int, Counter[TaskState]] = {}
    for number, group in enumerate(grouping.group_of):
        job = undo_job(run, number)
        if job is not None:
            counts.setdefault(group, Counter())[job_state(run, job)] += 1
    return {
        group: Node(
            label=job_name(grouping.labels[group], JobRole.UNDO),
            role=JobRole.UNDO,
            jobs=states.total(),
            counts=states,
        )
        for group, states in sorted(counts.items())
    }


def _hook_nodes(definition: WorkflowDefinition, run: WorkflowRun | None) -> list[Node]:
    """The hooks of a definition; of a run those that have begun or still may."""
    if run is None:
        names = [job_name(name, JobRole.HOOK) for name in definition.hooks()]
        return [Node(label=name, role=JobRole.HOOK, counts={}) for name in names]
    first = 2 * len(run.tasks)
    numbers = range(first, first + len(run.graph.hooks))
    return [
        Node(label=run.graph.job_name(number), role=JobRole.HOOK, counts={job_state(run, number): 1})
        for number in numbers
        if run.ended_at is None or has_begun(run, number)
    ]


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
