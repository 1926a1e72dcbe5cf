"""What must hold after any decision whatever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from ai4s.jobq.engine.decide import GHOST_GRACE, decide
from ai4s.jobq.engine.events import Decision, Room
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import WORKFLOW_TRANSITIONS, JobKind, Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from tests.engine.reference import may_run
from tests.engine.scene import facts
from tests.engine.stored import StoredRun

GONE = (TaskState.COMPLETED, TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.SKIPPED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Before:
    """A run as it was before a decision."""

    life: int
    state: WorkflowState
    stop: Stop
    ended_at: datetime | None
    tasks: list[TaskRun]
    jobs: dict[int, TaskRun]

    @classmethod
    def of(cls, run: WorkflowRun) -> Before:
        tasks = [replace(task) for task in run.tasks]
        jobs = {number: replace(job) for number, job in run.jobs.items()}
        return cls(run.life, run.state, run.stop, run.ended_at, tasks, jobs)


def check(
    before: Before,
    run: WorkflowRun,
    decision: Decision,
    *,
    now: datetime,
    granted: Room,
    left: Room,
    stored: StoredRun,
) -> None:
    """Check one decision: what it did to the run, what it dispatched, what it stored."""
    _run_moved_by_its_table(before, run)
    if run.life == before.life:
        _nothing_terminal_changed(before, run)
    else:
        _life_began_with_what_is_kept(before, run)
    _attempts_only_grow(before, run, decision)
    _counts_are_right(run)
    _dispatches_were_allowed(before, run, decision)
    _tasks_were_due(run, decision, now)
    _undo_jobs_were_due(before, run, decision)
    _hooks_were_due(before, run, decision)
    _limits_hold(run, decision, granted)
    _no_room_was_left_unused(run, left, now)
    _stored_is_what_is(run, decision, stored, now)


def _jobs(run: WorkflowRun) -> Iterator[TaskRun]:
    """Tasks, undo jobs and hooks."""
    yield from run.tasks
    yield from run.jobs.values()


def _run_moved_by_its_table(before: Before, run: WorkflowRun) -> None:
    steps = {before.state, *WORKFLOW_TRANSITIONS[before.state]}
    if before.state is WorkflowState.PENDING or run.life != before.life:  # it may have gone on at once
        steps |= {WorkflowState.RUNNING, *WORKFLOW_TRANSITIONS[WorkflowState.RUNNING]}
    assert run.state in steps, f"{before.state} became {run.state}"
    assert run.ended_at is None or run.state.is_terminal


def _life_began_with_what_is_kept(before: Before, run: WorkflowRun) -> None:
    """Forward tasks that completed and were not undone, and nothing else."""
    assert (before.ended_at is not None, run.life) == (True, before.life + 1)
    for old, new in zip(before.tasks, run.tasks, strict=True):
        undo = before.jobs.get(run.graph.undo_of(old.number))
        is_undone = undo is not None and undo.stored is not None
        is_forward = run.graph.kind(old.number) is JobKind.FORWARD
        if old.stored is TaskState.COMPLETED and is_forward and not is_undone:
            assert facts(new)[:5] == facts(old)[:5]
        else:
            assert new.stored is not TaskState.COMPLETED or new.life == run.life


def _nothing_terminal_changed(before: Before, run: WorkflowRun) -> None:
    if before.ended_at is not None:
        assert (run.state, run.stop, run.ended_at) == (before.state, before.stop, before.ended_at)
        assert [facts(task) for task in run.tasks] == [facts(task) for task in before.tasks]
    for old in (*before.tasks, *before.jobs.values()):
        new = run.at(old.number)
        assert new is not None
        if old.stored in GONE:
            assert (new.state, new.stored, new.ended_at) == (old.state, old.stored, old.ended_at)
        elif old.state in GONE and before.stop is run.stop:
            is_ghost = old.state is TaskState.CANCELLED and old.stored is TaskState.READY
            assert is_ghost or new.state is old.state


def _attempts_only_grow(before: Before, run: WorkflowRun, decision: Decision) -> None:
    dispatched = {dispatch.number: dispatch.attempt for dispatch in decision.dispatches}
    assert len(dispatched) == len(decision.dispatches)
    old = {job.number: job.attempt for job in (*before.tasks, *before.jobs.values())}
    for job in _jobs(run):
        assert job.attempt == old.pop(job.number, 0) + (job.number in dispatched)
        assert dispatched.get(job.number, job.attempt) == job.attempt
    assert not old


def _counts_are_right(run: WorkflowRun) -> None:
    states = Counter(task.state for task in run.tasks)
    ready = Counter(run.graph.queue(job.number) for job in _jobs(run) if job.state is TaskState.READY)
    eligible = Counter(run.graph.queue(job.number) for job in _jobs(run) if job.eligible)
    assert run.counts == dict(states)
    assert run.ready_counts() == dict(ready)
    assert run.eligible_counts() == dict(eligible)
    assert run.active == sum(job.state in (TaskState.READY, TaskState.RUNNING) for job in _jobs(run))
    assert run.unsettled == sum(count for state, count in states.items() if state not in GONE)
    assert run.ghosts == sum(task.state is TaskState.CANCELLED and task.stored is TaskState.READY for task in run.tasks)


def _dispatches_were_allowed(before: Before, run: WorkflowRun, decision: Decision) -> None:
    """Nothing in a pause, nothing that a stop bars (but what was dispatched before an answer led to that stop)."""
    kinds = {run.graph.kind(dispatch.number) for dispatch in decision.dispatches}
    assert not (kinds and run.paused)
    if (before.life, before.stop) == (run.life, run.stop):
        assert not any(run.stop.bars(kind) for kind in kinds)
    if kinds & {JobKind.FORWARD, JobKind.CLEANUP}:
        assert run.state is WorkflowState.RUNNING
    if JobKind.UNDO in kinds:
        assert run.state is WorkflowState.COMPENSATING
        assert not run.abandoned


def _tasks_were_due(run: WorkflowRun, decision: Decision, now: datetime) -> None:
    numbers = [dispatch.number for dispatch in decision.dispatches if dispatch.number < len(run.tasks)]
    for number in numbers:
        written, task = run.graph.definition.tasks[number], run.tasks[number]
        assert may_run(written.dep_policy, [str(state) for state in run.parent_states(number)])
        assert written.condition is None or task.condition is True
        assert written.wait_for is None
        assert task.wait_until is None or task.wait_until <= now
        assert written.not_before is None or written.not_before <= now


def _undo_jobs_were_due(before: Before, run: WorkflowRun, decision: Decision) -> None:
    """An undo job begins when those of all tasks that depend on its own, however far away, have ended."""
    for dispatch in decision.dispatches:
        if run.graph.kind(dispatch.number) is not JobKind.UNDO:
            continue
        if _had_begun(before, dispatch.number):
            continue
        task = dispatch.number - len(run.tasks)
        assert run.tasks[task].state is TaskState.COMPLETED
        for dependent in _dependents(run, task) & run.graph.undoable:
            if run.tasks[dependent].state is TaskState.COMPLETED:
                assert run.jobs[run.graph.undo_of(dependent)].stored in GONE


def _dependents(run: WorkflowRun, number: int) -> set[int]:
    """All tasks that depend on this one, directly or through others."""
    found: set[int] = set()
    work = [number]
    while work:
        new = set(run.graph.children[work.pop()]) - found
        found |= new
        work += new
    return found


def _had_begun(before: Before, number: int) -> bool:
    """Whether this is another attempt; a task that was silent for long may have come to life since the first."""
    old = before.jobs.get(number)
    return old is not None and old.stored is not None


def _hooks_were_due(before: Before, run: WorkflowRun, decision: Decision) -> None:
    """Hooks begin when all tasks and undo jobs have ended, and the run ends after them."""
    undo_jobs = [job for job in run.jobs.values() if run.graph.kind(job.number) is JobKind.UNDO]
    hooks = [job for job in run.jobs.values() if run.graph.kind(job.number) is JobKind.HOOK]
    dispatched = {dispatch.number for dispatch in decision.dispatches}
    if any(hook.number in dispatched and not _had_begun(before, hook.number) for hook in hooks):
        assert run.state.is_terminal
        assert not run.unsettled
        assert not any(job.state in (TaskState.READY, TaskState.RUNNING) for job in undo_jobs)
    if run.ended_at is not None:
        assert not run.unsettled
        assert all(hook.stored in (None, *GONE) for hook in hooks)
        assert run.abandoned or all(job.stored in (None, *GONE) for job in undo_jobs)


def _limits_hold(run: WorkflowRun, decision: Decision, granted: Room) -> None:
    queues = Counter(run.graph.queue(dispatch.number) for dispatch in decision.dispatches)
    assert all(count <= granted.queues[queue] for queue, count in queues.items())
    assert len(decision.dispatches) <= granted.dispatches
    assert not decision.dispatches or run.active <= _parallelism(run)


def _parallelism(run: WorkflowRun) -> int:
    return run.graph.definition.max_parallelism or 1_000


def _no_room_was_left_unused(run: WorkflowRun, left: Room, now: datetime) -> None:
    """A slot that is free after the decision is one that nobody waits for, unless nothing may be dispatched."""
    in_grace = run.ghosts and run.stopped_at is not None and now < run.stopped_at + GHOST_GRACE
    if left.dispatches > 0 and run.active < _parallelism(run) and not (run.paused or in_grace):
        assert not [queue for queue in run.eligible_counts() if left.queues[queue] > 0]


def _stored_is_what_is(run: WorkflowRun, decision: Decision, stored: StoredRun, now: datetime) -> None:
    """Whoever loads the run now has nothing to store, and then sees the same in every detail."""
    loaded = stored.load(run.graph)
    looked = decide(loaded, [], now=now, room=Room(queues={}, dispatches=0))
    assert looked.is_empty
    assert (looked.wake_at, looked.resolves) == (decision.wake_at, decision.resolves)
    for name in ("life", "state", "stop", "stopped_at", "ended_at", "paused", "abandoned", "deadline", "failure"):
        assert getattr(loaded, name) == getattr(run, name)
    assert [facts(task) for task in loaded.tasks] == [facts(task) for task in run.tasks]
    assert _begun_or_eligible(loaded) == _begun_or_eligible(run)
    assert loaded.counts == run.counts
    assert loaded.ready_counts() == run.ready_counts()
    assert loaded.eligible_counts() == run.eligible_counts()
    assert set(loaded.unresolved) == set(run.unresolved)
    assert (loaded.active, loaded.ghosts, loaded.unsettled) == (run.active, run.ghosts, run.unsettled)
    assert run.ended_at is not None or loaded.outcome == run.outcome


def _begun_or_eligible(run: WorkflowRun) -> dict[int, object]:
    """Undo jobs and hooks; those of which nothing is stored and that wait for nothing are as good as absent."""
    return {job.number: facts(job) for job in run.jobs.values() if job.attempt or job.eligible}
