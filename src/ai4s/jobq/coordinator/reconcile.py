"""Lost messages: tasks that are dispatched but have no message any more, and halted tasks nobody holds.

A message can vanish without a trace: a queue was cleared, a message expired on another service, a machine died between two
steps of a purge. Evidence, in this order, is needed before a task counts as lost: its queue's count (which includes hidden
messages) was 0 on two looks a visibility timeout apart, the completion queue was seen empty after the second, and no live
worker claims the task. Then a *new attempt* follows, so that duplicate detection cannot swallow it.

A queue that is never empty gives no such evidence. There a task counts as lost when it has been dispatched for an hour,
nobody claims it, and two windows of tasks that were dispatched *later* have ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ai4s.jobq.engine.events import Cause, TaskFailed
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.store.layout import job_row
from ai4s.jobq.store.workers import LIVE_S, SeenWorker

OVERTAKEN_AFTER = timedelta(hours=1)

_HELD = frozenset({TaskState.READY, TaskState.RUNNING})


@dataclass(slots=True)
class LiveWorkers:
    """Which workers live: those whose row was seen to change within a minute of our own monotonic clock."""

    _changed_at: dict[str, tuple[str, float]] = field(default_factory=dict)
    _live: list[SeenWorker] = field(default_factory=list)

    def look(self, workers: Iterable[SeenWorker], now: float) -> None:
        """Note what the registry says now. A row seen for the first time counts as changed."""
        seen = {worker.record.worker_id: worker for worker in workers}
        self._changed_at = {
            worker_id: self._changed(worker_id, str(worker.etag), now) for worker_id, worker in seen.items()
        }
        self._live = [worker for worker_id, worker in seen.items() if now - self._changed_at[worker_id][1] < LIVE_S]

    def slots(self) -> dict[str, int]:
        """Live slots per queue."""
        slots: dict[str, int] = {}
        for worker in self._live:
            slots[worker.record.queue] = slots.get(worker.record.queue, 0) + worker.record.slots
        return slots

    def silent_for(self, seconds: float, now: float) -> list[str]:
        """The workers whose row has not changed for so long."""
        return [worker_id for worker_id, (_, changed_at) in self._changed_at.items() if now - changed_at >= seconds]

    def claims(self) -> frozenset[str]:
        """``<workflow id>/<task row>`` of everything a live worker has in hand."""
        return frozenset(execution for worker in self._live for execution in worker.record.executions)

    def _changed(self, worker_id: str, etag: str, now: float) -> tuple[str, float]:
        before = self._changed_at.get(worker_id)
        return before if before is not None and before[0] == etag else (etag, now)


@dataclass(slots=True)
class EmptyQueues:
    """Which queues have been seen without any message, and when: all looks since the last one that saw some."""

    _looks: dict[str, deque[tuple[float, datetime]]] = field(default_factory=dict)

    def look(self, counts: Mapping[str, int], now: float, wall: datetime) -> None:
        """Note the approximate counts just read."""
        for queue, count in counts.items():
            if count:
                self._looks.pop(queue, None)
            else:
                self._looks.setdefault(queue, deque()).append((now, wall))

    def proven(self, counts: Mapping[str, int], *, apart_s: float, completions_empty_at: float) -> dict[str, datetime]:
        """Queues empty now and on two earlier looks so far apart, the later one before the completion queue was empty.

        By queue, the wall-clock time of the first look. It moves on with time: what is dispatched and vanishes between two
        looks is missed later, but not for ever.
        """
        found = {}
        for queue, looks in self._looks.items():
            last = looks[-1][0]
            while len(looks) > 1 and last - looks[1][0] >= apart_s:
                looks.popleft()
            first, wall = looks[0]
            if counts.get(queue) == 0 and last - first >= apart_s and completions_empty_at >= last:
                found[queue] = wall
        return found


@dataclass(slots=True)
class UnclaimedTasks:
    """Since when tasks of halted runs have been claimed by no live worker."""

    _since: dict[str, float] = field(default_factory=dict)

    def look(self, unclaimed: Iterable[str], now: float) -> None:
        """Note which tasks nobody claims now."""
        self._since = {key: self._since.get(key, now) for key in unclaimed}

    def for_at_least(self, key: str, seconds: float, now: float) -> bool:
        return key in self._since and now - self._since[key] >= seconds


def lost_tasks(
    workflow_id: str,
    run: WorkflowRun,
    emptied: Mapping[str, datetime],
    claims: frozenset[str],
    *,
    unsent: Set[str] = frozenset(),
) -> list[TaskFailed]:
    """Tasks dispatched before their queue (``{queue: first seen empty}``) was empty, that no worker claims.

    ``unsent`` are the rows whose message is still to be sent.
    """
    return [
        _lost(run, task, "its message vanished from the queue")
        for task in _held(run)
        if run.graph.queue(task.number) in emptied
        and task.ready_at is not None
        and task.ready_at < emptied[run.graph.queue(task.number)]
        and key_of(workflow_id, run, task) not in claims
        and job_row(task.number, len(run.graph)) not in unsent
    ]


def overtaken_tasks(
    runs: Mapping[str, WorkflowRun], claims: Set[str], *, now: datetime, window: Callable[[str], int]
) -> dict[str, list[TaskFailed]]:
    """By workflow, the tasks that so many later ones have overtaken on their queue that their message must have vanished.

    ``claims`` are the jobs that live workers have in hand or whose message is still to be sent.
    """
    waiting: dict[str, list[tuple[datetime, str, TaskRun]]] = defaultdict(list)
    for workflow_id, run in runs.items():
        for job in _held(run):
            is_old = job.ready_at is not None and now - job.ready_at >= OVERTAKEN_AFTER
            if is_old and job.ready_at and job.state is TaskState.READY and key_of(workflow_id, run, job) not in claims:
                waiting[run.graph.queue(job.number)].append((job.ready_at, workflow_id, job))
    found: dict[str, list[TaskFailed]] = defaultdict(list)
    for queue, jobs in waiting.items():
        ended = sorted(_dispatch_times_of_ended(runs.values(), queue))
        for ready_at, workflow_id, job in jobs:
            if len(ended) - bisect_right(ended, ready_at) >= 2 * window(queue):
                found[workflow_id].append(_lost(runs[workflow_id], job, "two windows of later tasks have overtaken it"))
    return found


def _dispatch_times_of_ended(runs: Iterable[WorkflowRun], queue: str) -> Iterator[datetime]:
    """When the tasks of a queue that have ended were dispatched."""
    for run in runs:
        for job in (*run.tasks, *run.jobs.values()):
            if job.state.is_terminal and job.ready_at is not None and run.graph.queue(job.number) == queue:
                yield job.ready_at


def unclaimed(workflow_id: str, run: WorkflowRun, claims: frozenset[str]) -> list[str]:
    """Keys of the running tasks of a halted run that no live worker has in hand."""
    stopped = (task for task in _held(run) if run.stop.ends(run.graph.kind(task.number)))
    keys = (key_of(workflow_id, run, task) for task in stopped if task.state is TaskState.RUNNING)
    return [key for key in keys if key not in claims]


def abandoned_tasks(
    workflow_id: str, run: WorkflowRun, since: UnclaimedTasks, *, after_s: float, now: float
) -> list[TaskFailed]:
    """Running tasks of a halted run that nobody has claimed for so long that nobody runs them."""
    return [
        _lost(run, task, "no live worker has it")
        for task in _held(run)
        if since.for_at_least(key_of(workflow_id, run, task), after_s, now)
    ]


def key_of(workflow_id: str, run: WorkflowRun, task: TaskRun) -> str:
    """The job as worker records name it."""
    return f"{workflow_id}/{job_row(task.number, len(run.graph))}"


def _held(run: WorkflowRun) -> list[TaskRun]:
    return [task for task in (*run.tasks, *run.jobs.values()) if task.state in _HELD] if run.active else []


def _lost(run: WorkflowRun, task: TaskRun, why: str) -> TaskFailed:
    return TaskFailed(
        run=run.run,
        number=task.number,
        life=run.life,
        attempt=task.attempt,
        execution=task.execution,
        worker=task.worker,
        cause=Cause.LOST,
        error=why,
    )
