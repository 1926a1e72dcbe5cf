"""What must hold after any decision whatever."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from ai4s.jobq.engine.events import Decision, Room
from ai4s.jobq.engine.outcome import outcome_of
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import WORKFLOW_TRANSITIONS, Stop, TaskState, WorkflowState
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

    @classmethod
    def of(cls, run: WorkflowRun) -> Before:
        return cls(run.life, run.state, run.stop, run.ended_at, [replace(task) for task in run.tasks])


def check(
    before: Before, run: WorkflowRun, decision: Decision, *, granted: Room, left: Room, stored: StoredRun
) -> None:
    """Check one decision: what it did to the run, what it dispatched, what it stored."""
    _run_moved_by_its_table(before, run)
    _nothing_terminal_changed(before, run)
    _attempts_only_grow(before, run, decision)
    _counts_are_right(run)
    _dispatches_were_due(run, decision)
    _limits_hold(run, decision, granted)
    _no_room_was_left_unused(run, left)
    _stored_is_what_is(run, stored)


def _run_moved_by_its_table(before: Before, run: WorkflowRun) -> None:
    steps = {before.state, *WORKFLOW_TRANSITIONS[before.state]}
    if run.life != before.life:
        assert (before.ended_at is not None, run.life) == (True, before.life + 1)
        steps = {WorkflowState.RUNNING, *WORKFLOW_TRANSITIONS[WorkflowState.RUNNING]}
    assert run.state in steps, f"{before.state} became {run.state}"
    assert run.ended_at is None or run.state.is_terminal


def _nothing_terminal_changed(before: Before, run: WorkflowRun) -> None:
    if run.life != before.life:
        for old, new in zip(before.tasks, run.tasks, strict=True):
            assert old.stored is not TaskState.COMPLETED or new.state is TaskState.COMPLETED
        return
    if before.ended_at is not None:
        assert (run.state, run.stop, run.ended_at) == (before.state, before.stop, before.ended_at)
        assert [facts(task) for task in run.tasks] == [facts(task) for task in before.tasks]
    for old, new in zip(before.tasks, run.tasks, strict=True):
        if old.stored in GONE:
            assert (new.state, new.stored, new.ended_at) == (old.state, old.stored, old.ended_at)
        elif old.state in GONE and before.stop is run.stop:
            is_ghost = old.state is TaskState.CANCELLED and old.stored is TaskState.READY
            assert is_ghost or new.state is old.state


def _attempts_only_grow(before: Before, run: WorkflowRun, decision: Decision) -> None:
    dispatched = {dispatch.number: dispatch.attempt for dispatch in decision.dispatches}
    assert len(dispatched) == len(decision.dispatches)
    for old, new in zip(before.tasks, run.tasks, strict=True):
        assert new.attempt == old.attempt + (new.number in dispatched)
        assert dispatched.get(new.number, new.attempt) == new.attempt


def _counts_are_right(run: WorkflowRun) -> None:
    states = Counter(task.state for task in run.tasks)
    queues = run.graph.queues
    ready = Counter(queues[task.number] for task in run.tasks if task.state is TaskState.READY)
    eligible = Counter(queues[task.number] for task in run.tasks if task.eligible)
    assert run.counts == dict(states)
    assert run.ready_counts() == dict(ready)
    assert run.eligible_counts() == dict(eligible)
    assert run.active == states[TaskState.READY] + states[TaskState.RUNNING]
    assert run.unsettled == sum(count for state, count in states.items() if state not in GONE)
    assert run.ghosts == sum(task.state is TaskState.CANCELLED and task.stored is TaskState.READY for task in run.tasks)


def _dispatches_were_due(run: WorkflowRun, decision: Decision) -> None:
    if decision.dispatches:
        assert run.stop is Stop.NONE
        assert run.state is WorkflowState.RUNNING
    for dispatch in decision.dispatches:
        task = run.graph.definition.tasks[dispatch.number]
        assert may_run(task.dep_policy, [str(state) for state in run.parent_states(dispatch.number)])
        assert task.condition is None or run.tasks[dispatch.number].condition is True


def _limits_hold(run: WorkflowRun, decision: Decision, granted: Room) -> None:
    queues = Counter(run.graph.queues[dispatch.number] for dispatch in decision.dispatches)
    assert all(count <= granted.queues[queue] for queue, count in queues.items())
    assert len(decision.dispatches) <= granted.dispatches
    assert run.active <= (run.graph.definition.max_parallelism or len(run.tasks))


def _no_room_was_left_unused(run: WorkflowRun, left: Room) -> None:
    """A slot that is free after the decision is one that nobody waits for."""
    if left.dispatches > 0 and run.active < (run.graph.definition.max_parallelism or len(run.tasks)):
        assert not [queue for queue in run.eligible_counts() if left.queues[queue] > 0]


def _stored_is_what_is(run: WorkflowRun, stored: StoredRun) -> None:
    """Whoever loads the run now sees the same in every detail."""
    loaded = stored.load(run.graph)
    assert (loaded.life, loaded.state, loaded.stop) == (run.life, run.state, run.stop)
    assert (loaded.stopped_at, loaded.ended_at) == (run.stopped_at, run.ended_at)
    assert [facts(task) for task in loaded.tasks] == [facts(task) for task in run.tasks]
    assert loaded.counts == run.counts
    assert loaded.ready_counts() == run.ready_counts()
    assert loaded.eligible_counts() == run.eligible_counts()
    assert set(loaded.unresolved) == set(run.unresolved)
    assert (loaded.active, loaded.ghosts, loaded.unsettled) == (run.active, run.ghosts, run.unsettled)
    assert outcome_of(loaded) == outcome_of(run)
