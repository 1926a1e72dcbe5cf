"""The state of one run in memory: its graph, its tasks, and the counts that make every event cheap.

``WorkflowRun`` is changed in place, and only from inside ``engine``: rebuilding it per event would cost as much as the
workflow is large. Each change of a task's state goes through ``move``, which keeps all counts right and remembers which
dependents have to be looked at; nothing ever walks over all tasks but ``rederive``, which runs once after loading and at
a cancel or retry.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from ai4s.jobq.definition.expressions import Condition
from ai4s.jobq.definition.expressions import parse as parse_condition
from ai4s.jobq.definition.model import ResultPolicy, WorkflowDefinition
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.policy import Verdict, judge
from ai4s.jobq.engine.states import SATISFIED, Step, Stop, TaskState, WorkflowState, after


class Graph:
    """The shape of a definition as task numbers."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.definition = definition
        numbers = {task.name: number for number, task in enumerate(definition.tasks)}
        self.parents: list[tuple[int, ...]] = [
            tuple(numbers[name] for name in task.depends_on) for task in definition.tasks
        ]
        self.children: list[list[int]] = [[] for _ in definition.tasks]
        for number, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(number)
        self.queues: list[str] = [definition.queue_of(task) for task in definition.tasks]
        self.queue_names: list[str] = sorted(set(self.queues))
        self.numbers = numbers

    @cached_property
    def conditions(self) -> dict[int, Condition]:
        """The parsed conditions by task number."""
        return {
            number: parse_condition(task.condition, parents=task.depends_on)
            for number, task in enumerate(self.definition.tasks)
            if task.condition is not None
        }


@dataclass(slots=True)
class TaskRun:
    """One task of a run.

    ``state`` is what everybody sees; ``stored`` is what its row says in this life, or None when it has none. They differ
    only where the state is derived. ``attempt`` is 0 before the first dispatch and never goes back, not even by a
    retry; ``charged`` counts the attempts charged to ``num_retries`` and ``losses`` those charged to the loss budget,
    in this life. ``execution`` is the start of the current attempt that was reported last.
    """

    number: int
    state: TaskState = TaskState.PENDING
    stored: TaskState | None = None
    attempt: int = 0
    charged: int = 0
    losses: int = 0
    execution: str = ""
    worker: str = ""
    ready_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    cause: Cause | None = None
    condition: bool | None = None
    has_output: bool = False
    eligible: bool = False  # policy and condition are met; waits for room
    completed_parents: int = 0
    skipped_parents: int = 0
    bad_parents: int = 0

    def forget(self) -> None:
        """What a retry makes of a task that it does not keep: as new, but for the attempt number."""
        self.stored = None
        self.charged = self.losses = 0
        self.execution = self.worker = ""
        self.ready_at = self.started_at = self.ended_at = None
        self.exit_code = self.cause = self.condition = None
        self.has_output = False


class WorkflowRun:
    """One life of one submission of a workflow.

    ``tasks`` come with ``stored``, ``attempt`` and the rest as their rows say (see ``store.records``); after construction
    every derived state and count is right.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        run: str,
        life: int = 1,
        state: WorkflowState = WorkflowState.PENDING,
        stop: Stop = Stop.NONE,
        stopped_at: datetime | None = None,
        ended_at: datetime | None = None,
        tasks: Iterable[TaskRun] = (),
    ) -> None:
        self.graph = graph
        self.run = run
        self.life = life
        self.state = state
        self.stop = stop
        self.stopped_at = stopped_at
        self.ended_at = ended_at
        self.tasks: list[TaskRun] = [TaskRun(number) for number in range(len(graph.parents))]
        for task in tasks:
            self.tasks[task.number] = task
        self.rederive()

    # -- questions

    @property
    def counts(self) -> dict[TaskState, int]:
        """How many tasks are in each state, derived ones included; zero counts left out."""
        return {state: count for state, count in self._counts.items() if count}

    @property
    def active(self) -> int:
        """Tasks dispatched or running."""
        return self._counts[TaskState.READY] + self._counts[TaskState.RUNNING]

    @property
    def ghosts(self) -> int:
        """Tasks that a stop cancelled while their message was on a queue: a worker may just have begun them."""
        return self._ghosts

    @property
    def unsettled(self) -> int:
        """Tasks in no terminal state."""
        return len(self.tasks) - self._terminal

    def ready_counts(self) -> dict[str, int]:
        """Tasks in state ready, per queue."""
        return {queue: count for queue, count in self._ready.items() if count}

    def eligible_counts(self) -> dict[str, int]:
        """Tasks that only wait for room, per queue."""
        return {queue: len(heap) for queue, heap in self._eligible.items() if heap}

    def parent_states(self, number: int) -> list[TaskState]:
        """The states of a task's parents, in ``depends_on`` order."""
        return [self.tasks[parent].state for parent in self.graph.parents[number]]

    def root_cause(self, number: int) -> int | None:
        """The task whose own failure made this one ``upstream_failed``: the first one found going up; None if none."""
        seen = {number}
        while self.tasks[number].state is TaskState.UPSTREAM_FAILED:
            bad = [parent for parent in self.graph.parents[number] if self.tasks[parent].state.is_bad]
            number = next((parent for parent in bad if self.tasks[parent].state is TaskState.FAILED), bad[0])
            if number in seen:
                return None
            seen.add(number)
        return number if self.tasks[number].state.is_bad else None

    # -- changes (engine only)

    def move(self, task: TaskRun, step: Step, *, store: bool = True) -> None:
        """Take one step: the task's state, all counts, and the list of dependents to look at follow.

        ``store`` False leaves ``stored`` alone: the new state is a derived one. Raises ``InvalidTransitionError``.
        """
        old, new = task.state, after(task.state, step)
        if self._is_ghost(task):
            self._ghosts -= 1
        self._count(task, old, -1)
        task.state = new
        self._count(task, new, +1)
        if store:
            task.stored = new
        if self._is_ghost(task):
            self._ghosts += 1
        if new.is_terminal and not old.is_terminal:
            self._settled.append(task.number)

    def propagate(self) -> None:
        """Look at the dependents of all tasks that ended, until nothing changes."""
        while self._settled:
            ended = self.tasks[self._settled.pop()]
            if self.stop is not Stop.NONE:
                continue  # whatever had not started is cancelled
            for number in self.graph.children[ended.number]:
                child = self.tasks[number]
                self._count_parent(child, ended.state)
                self.consider(child)

    def consider(self, task: TaskRun) -> None:
        """Let the parents decide about a task that has not been decided yet."""
        if task.state is not TaskState.PENDING or task.eligible or task.number in self.unresolved:
            return
        match self._verdict(task):
            case Verdict.RUN if task.number in self.graph.conditions and task.condition is None:
                self.unresolved[task.number] = None
            case Verdict.RUN:
                self.make_eligible(task)
            case Verdict.SKIP:
                self.move(task, Step.PARENTS_SKIPPED, store=False)
            case Verdict.FAIL:
                self.move(task, Step.PARENTS_FAILED, store=False)
            case Verdict.WAIT:
                pass

    def make_eligible(self, task: TaskRun) -> None:
        """The task now only waits for room on its queue."""
        task.eligible = True
        heapq.heappush(self._eligible.setdefault(self.graph.queues[task.number], []), task.number)

    def next_eligible(self, queues: Sequence[str]) -> TaskRun | None:
        """Take the first task in line on any of these queues."""
        heads = [(self._eligible[queue][0], queue) for queue in queues if self._eligible.get(queue)]
        if not heads:
            return None
        task = self.tasks[heapq.heappop(self._eligible[min(heads)[1]])]
        task.eligible = False
        return task

    def halt(self, now: datetime) -> None:
        """Stop everything: what has not started is cancelled."""
        self.stop = Stop.HALT
        self.stopped_at = now
        self.state = WorkflowState.CANCELLED
        self.rederive()

    def begin_next_life(self) -> None:
        """Keep what completed and forget the rest, for a retry."""
        self.life += 1
        self.stop = Stop.NONE
        self.stopped_at = self.ended_at = None
        self.state = WorkflowState.RUNNING
        for task in self.tasks:
            if task.stored is not TaskState.COMPLETED:
                task.forget()
        self.rederive()

    def rederive(self) -> None:
        """Compute every derived state and count anew from what is stored. Costs as much as the workflow is large."""
        self._counts: Counter[TaskState] = Counter()
        self._ready: Counter[str] = Counter()
        self._eligible: dict[str, list[int]] = {}
        self.unresolved: dict[int, None] = {}  # tasks whose condition waits for outputs; a set that keeps its order
        self._settled: list[int] = []
        self._terminal = self._ghosts = self._bad = self._bad_sinks = 0
        for task in self.tasks:
            self._reset(task)
        if self.stop is not Stop.NONE:
            return
        for task in self.tasks:
            if task.state.is_terminal:
                for number in self.graph.children[task.number]:
                    self._count_parent(self.tasks[number], task.state)
        for task in self.tasks:
            self.consider(task)
        self.propagate()

    def outcome(self) -> WorkflowState:
        """How a run whose tasks have all ended ended."""
        if self.graph.definition.result_policy is ResultPolicy.ALL_TASKS_SUCCEED:
            failed = self._bad > 0
        else:
            failed = self._bad_sinks > 0 or self._bad == len(self.tasks)
        return WorkflowState.FAILED if failed else WorkflowState.COMPLETED

    # -- inside

    def _reset(self, task: TaskRun) -> None:
        task.eligible = False
        task.completed_parents = task.skipped_parents = task.bad_parents = 0
        task.state = task.stored or TaskState.PENDING
        if self.stop is not Stop.NONE and task.state in (TaskState.PENDING, TaskState.READY):
            task.state = TaskState.CANCELLED
        if self._is_ghost(task):
            self._ghosts += 1
        self._count(task, task.state, +1)

    def _is_ghost(self, task: TaskRun) -> bool:
        return task.state is TaskState.CANCELLED and task.stored is TaskState.READY

    def _count(self, task: TaskRun, state: TaskState, change: int) -> None:
        self._counts[state] += change
        if state is TaskState.READY:
            self._ready[self.graph.queues[task.number]] += change
        if state.is_terminal:
            self._terminal += change
        if state.is_bad:
            self._bad += change
            if not self.graph.children[task.number]:
                self._bad_sinks += change

    def _count_parent(self, child: TaskRun, state: TaskState) -> None:
        if state is TaskState.SKIPPED:
            child.skipped_parents += 1
        elif state in SATISFIED:
            child.completed_parents += 1
        else:
            child.bad_parents += 1

    def _verdict(self, task: TaskRun) -> Verdict:
        return judge(
            self.graph.definition.tasks[task.number].dep_policy,
            parents=len(self.graph.parents[task.number]),
            completed=task.completed_parents,
            skipped=task.skipped_parents,
            failed=task.bad_parents,
        )
