"""The state of one run in memory: its graph, its jobs, and the counts that make every event cheap.

``WorkflowRun`` is changed in place, and only from inside ``engine``: rebuilding it per event would cost as much as the
workflow is large. Each change of a job's state goes through ``move``, which keeps all counts right and remembers which
dependents have to be looked at; nothing ever walks over all tasks but ``rederive``, which runs once after loading and at
a stop or retry, and the look at how a settled run ended.

Undo jobs and hooks are in ``jobs``; they count as active, but not among the tasks.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.compensation import Compensation
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.outcome import Outcome
from ai4s.jobq.engine.policy import Verdict, judge
from ai4s.jobq.engine.states import SATISFIED, JobKind, Step, Stop, TaskState, Waiting, WorkflowState, after
from ai4s.jobq.engine.task_run import TaskRun


class WorkflowRun:
    """One life of one submission of a workflow.

    ``tasks`` are the jobs that have rows, with ``stored``, ``life``, ``attempt`` and the rest as their rows say (see
    ``store.records``); rows of an earlier life that a retry does not keep are forgotten here. After construction every
    derived state and count is right. ``signals`` are the first of each name, as output tokens.
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
        paused: bool = False,
        abandoned: bool = False,
        deadline: datetime | None = None,
        failure: str = "",
        signals: Mapping[str, object | None] | None = None,
        tasks: Iterable[TaskRun] = (),
    ) -> None:
        self.graph = graph
        self.run = run
        self.life = life
        self.state = state
        self.stop = stop
        self.stopped_at = stopped_at
        self.ended_at = ended_at
        self.paused = paused
        self.abandoned = abandoned  # undoing was given up
        self.deadline = deadline
        self.failure = failure  # why the whole run counts as failed, beside its tasks
        self.signals: Mapping[str, object | None] = signals or {}
        self.tasks: list[TaskRun] = [TaskRun(number) for number in range(len(graph))]
        self.jobs: dict[int, TaskRun] = {}
        for task in tasks:
            if task.number < len(graph):
                self.tasks[task.number] = task
            else:
                self.jobs[task.number] = task
        self._forget_earlier_lives()
        self.rederive()

    # -- questions

    @property
    def counts(self) -> dict[TaskState, int]:
        """How many tasks are in each state, derived ones included; zero counts left out."""
        return {state: count for state, count in self._counts.items() if count}

    @property
    def active(self) -> int:
        """Jobs dispatched or running, undo jobs and hooks included."""
        return self._active

    @property
    def ghosts(self) -> int:
        """Tasks that a stop cancelled while their message was on a queue: a worker may just have begun them."""
        return self._ghosts

    @property
    def unsettled(self) -> int:
        """Tasks in no terminal state."""
        return len(self.tasks) - self._terminal

    @property
    def handled(self) -> int:
        """Failures that count for nothing because they were handled; known at the end."""
        return 0 if self.outcome is None else self.outcome.handled

    def at(self, number: int) -> TaskRun | None:
        """The job of this number, or None when it has not come into being."""
        return self.tasks[number] if 0 <= number < len(self.tasks) else self.jobs.get(number)

    def ready_counts(self) -> dict[str, int]:
        """Jobs in state ready, per queue."""
        return {queue: count for queue, count in self._ready.items() if count}

    def eligible_counts(self) -> dict[str, int]:
        """Jobs that only wait for room, per queue."""
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

    def is_undone(self, number: int) -> bool:
        """Whether a completed task's undo job has begun since it completed."""
        undo = self.jobs.get(self.graph.undo_of(number))
        return (
            undo is not None and undo.attempt > 0 and undo.stored is not None and undo.life >= self.tasks[number].life
        )

    # -- changes (engine only)

    def move(self, task: TaskRun, step: Step, *, store: bool = True) -> None:
        """Take one step: the job's state, all counts, and the list of dependents to look at follow.

        ``store`` False leaves ``stored`` alone: the new state is a derived one. Raises ``InvalidTransitionError``.
        """
        old, new = task.state, after(task.state, step)
        if self._is_ghost(task):
            self._ghosts -= 1
        self._count(task, old, -1)
        task.state = new
        self._count(task, new, +1)
        if store:
            task.stored, task.life = new, self.life
        if self._is_ghost(task):
            self._ghosts += 1
        if task.number >= len(self.tasks):
            if new.is_terminal and self.compensation is not None and self.graph.kind(task.number) is JobKind.UNDO:
                self.compensation.job_ended(task.number - len(self.tasks))
            return
        if old.is_terminal and self.outcome is not None:
            self.rederive()  # so late that undo jobs and hooks have been planned
            return
        if old.is_terminal:
            self._came_to_life(task)
        if new.is_terminal:
            self._settled.append(task.number)

    def propagate(self) -> list[TaskRun]:
        """Look at the dependents of all tasks that ended, until nothing changes; the tasks that failed for good."""
        failed: list[TaskRun] = []
        while self._settled:
            ended = self.tasks[self._settled.pop()]
            if ended.state is TaskState.FAILED:
                failed.append(ended)
            if self.stop is Stop.HALT:
                continue  # whatever had not started is cancelled
            for number in self.graph.children[ended.number]:
                child = self.tasks[number]
                self._count_parent(child, ended.state)
                self.consider(child)
        return failed

    def consider(self, task: TaskRun) -> None:
        """Let the parents decide about a task that has not been decided yet."""
        if task.state is not TaskState.PENDING or task.eligible or task.number in self.unresolved:
            return
        match self._verdict(task):
            case Verdict.RUN if task.number in self.graph.conditions and task.condition is None:
                self.unresolved[task.number] = None
            case Verdict.RUN:
                self.decided(task)
            case Verdict.SKIP:
                self.move(task, Step.PARENTS_SKIPPED, store=False)
            case Verdict.FAIL:
                self.move(task, Step.PARENTS_FAILED, store=False)
            case Verdict.WAIT:
                pass

    def decided(self, task: TaskRun) -> None:
        """Parents and condition let the task run: it waits for what its row or definition says, or only for room."""
        spec = self.graph.definition.tasks[task.number]
        if task.waiting is not None:
            self.keep_waiting(task)
        elif spec.delay_s or spec.not_before is not None or spec.wait_for is not None:
            self.unarranged[task.number] = None
        else:
            self.make_eligible(task)

    def keep_waiting(self, task: TaskRun) -> None:
        """Note what a waiting task waits for, so that the timer or the signal finds it."""
        if task.wait_until is not None:
            heapq.heappush(self.timers, (task.wait_until, task.number))
        if task.waiting is Waiting.SIGNAL:
            wait_for = self.graph.definition.tasks[task.number].wait_for
            if wait_for is not None:
                self.awaiting.setdefault(wait_for.signal, {})[task.number] = None

    def make_eligible(self, task: TaskRun) -> None:
        """The job now only waits for room on its queue."""
        task.eligible = True
        heapq.heappush(self._eligible.setdefault(self.graph.queue(task.number), []), self._rank(task.number))

    def next_eligible(self, queues: Sequence[str]) -> TaskRun | None:
        """Take the first job in line on any of these queues."""
        heads = [(self._eligible[queue][0], queue) for queue in queues if self._eligible.get(queue)]
        if not heads:
            return None
        task = self.at(heapq.heappop(self._eligible[min(heads)[1]])[-1])
        assert task is not None
        task.eligible = False
        return task

    def add_job(self, number: int) -> TaskRun:
        """Bring an undo job or a hook into being, or take it up again."""
        if number not in self.jobs:
            self.jobs[number] = TaskRun(number, life=self.life)
        return self.jobs[number]

    def halt(self, now: datetime) -> None:
        """Stop everything: what has not started is cancelled."""
        self.stop_forward(Stop.HALT, now)
        self.state = WorkflowState.CANCELLED
        self.paused = False

    def stop_forward(self, stop: Stop, now: datetime, failure: str = "") -> None:
        """Stop what ``stop`` bars."""
        self.stop, self.stopped_at = stop, now
        self.failure = self.failure or failure
        self.rederive()

    def begin_next_life(self, now: datetime) -> None:
        """Keep what completed and forget the rest, for a retry."""
        self.life += 1
        self.stop = Stop.NONE
        self.stopped_at = self.ended_at = None
        self.paused = self.abandoned = False
        self.failure = ""
        self.state = WorkflowState.RUNNING
        self.deadline = deadline_of(self.graph.definition, now, is_retry=True)
        self._forget_earlier_lives()
        self.rederive()

    def rederive(self) -> None:
        """Compute every derived state and count anew from what is stored. Costs as much as the workflow is large."""
        self._counts: Counter[TaskState] = Counter()
        self._ready: Counter[str] = Counter()
        self._eligible: dict[str, list[tuple[int, ...]]] = {}
        self.unresolved: dict[int, None] = {}  # tasks whose condition waits for outputs; a set that keeps its order
        self.unarranged: dict[int, None] = {}  # tasks whose waiting has to be arranged when the time is known
        self.timers: list[tuple[datetime, int]] = []
        self.awaiting: dict[str, dict[int, None]] = {}
        self.outcome: Outcome | None = None  # known when all tasks have ended
        self.compensation: Compensation | None = None
        self._settled: list[int] = []
        self._terminal = self._ghosts = self._active = 0
        for task in self.tasks:
            self._reset(task)
        for job in self.jobs.values():
            self._reset(job)
        if self.stop is Stop.HALT:
            return
        for task in self.tasks:
            if task.state.is_terminal:
                for number in self.graph.children[task.number]:
                    self._count_parent(self.tasks[number], task.state)
        for task in self.tasks:
            self.consider(task)
        self.propagate()

    # -- inside

    def _forget_earlier_lives(self) -> None:
        """Forget what earlier lives left, but forward tasks that completed and were not undone."""
        undone = [task for task in self.tasks if task.life < self.life and self._was_undone(task.number)]
        for task in self.tasks:
            if task.life < self.life:
                kept = task.stored is TaskState.COMPLETED and self.graph.kind(task.number) is JobKind.FORWARD
                if not kept:
                    task.forget()
        for task in undone:
            task.forget()
        for job in self.jobs.values():
            if job.life < self.life:
                job.forget()

    def _came_to_life(self, ghost: TaskRun) -> None:
        """Take back what followed from the end of a task that a worker had begun after all."""
        if self.stop is Stop.HALT:
            return  # nothing follows from anything
        for number in self.graph.children[ghost.number]:
            child = self.tasks[number]
            child.bad_parents -= 1
            if child.state is TaskState.PENDING:
                self._undecide(child)

    def _undecide(self, task: TaskRun) -> None:
        """Let a task that has not been dispatched wait for its parents again."""
        self.unresolved.pop(task.number, None)
        self.unarranged.pop(task.number, None)
        if task.waiting is not None:
            self.timers = [timer for timer in self.timers if timer[1] != task.number]
            heapq.heapify(self.timers)
            for waiting in self.awaiting.values():
                waiting.pop(task.number, None)
        if task.eligible:
            task.eligible = False
            heap = self._eligible[self.graph.queue(task.number)]
            heap.remove(self._rank(task.number))
            heapq.heapify(heap)

    def _was_undone(self, number: int) -> bool:
        """Whether an earlier life has undone a task; what this life undoes stays completed until the next."""
        undo = self.jobs.get(self.graph.undo_of(number))
        return undo is not None and undo.life < self.life and self.is_undone(number)

    def _reset(self, task: TaskRun) -> None:
        task.eligible = False
        task.completed_parents = task.skipped_parents = task.bad_parents = 0
        task.state = task.stored or TaskState.PENDING
        barred = self.stop.bars(self.graph.kind(task.number))
        if barred and task.state in (TaskState.PENDING, TaskState.READY):
            task.state = TaskState.CANCELLED
        if self._is_ghost(task):
            self._ghosts += 1
        self._count(task, task.state, +1)
        given_up = self.abandoned and self.graph.kind(task.number) is JobKind.UNDO
        if task.number >= len(self.tasks) and task.stored is TaskState.PENDING and not given_up:
            self.make_eligible(task)

    def _is_ghost(self, task: TaskRun) -> bool:
        return task.state is TaskState.CANCELLED and task.stored is TaskState.READY

    def _count(self, task: TaskRun, state: TaskState, change: int) -> None:
        if state in _ACTIVE:
            self._active += change
        if state is TaskState.READY:
            self._ready[self.graph.queue(task.number)] += change
        if task.number < len(self.tasks):
            self._counts[state] += change
            if state.is_terminal:
                self._terminal += change

    def _count_parent(self, child: TaskRun, state: TaskState) -> None:
        if state is TaskState.SKIPPED:
            child.skipped_parents += 1
        elif state in SATISFIED:
            child.completed_parents += 1
        else:
            child.bad_parents += 1

    def _rank(self, number: int) -> tuple[int, ...]:
        """A job's place in line: undo jobs first, then by priority, then in file order."""
        if number >= len(self.tasks):
            return (0, 0, number)
        return (1, -self.graph.definition.tasks[number].priority, number)

    def _verdict(self, task: TaskRun) -> Verdict:
        return judge(
            self.graph.definition.tasks[task.number].dep_policy,
            parents=len(self.graph.parents[task.number]),
            completed=task.completed_parents,
            skipped=task.skipped_parents,
            failed=task.bad_parents,
        )


def deadline_of(definition: WorkflowDefinition, now: datetime, *, is_retry: bool = False) -> datetime | None:
    """When the time of a life that begins now is up, or None when it has no limit.

    A deadline that has passed does not bind a retry: who asks for one then wants it done all the same.
    """
    limits = [] if definition.deadline is None or (is_retry and definition.deadline <= now) else [definition.deadline]
    if definition.timeout_s is not None:
        limits.append(now + timedelta(seconds=definition.timeout_s))
    return min(limits, default=None)


_ACTIVE = frozenset({TaskState.READY, TaskState.RUNNING})
