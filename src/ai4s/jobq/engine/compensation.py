"""Undoing: after a failure that counts, or a cancel, the undo jobs of completed tasks run in reverse order of dependency.

A task is undone when everything that depends on it, directly or through others, has been: undo jobs that nothing orders run
side by side. One that fails does not stop the others. All of it follows from the rows of the undo jobs, so a coordinator
that takes over goes on where the last one was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai4s.jobq.engine.states import TaskState

if TYPE_CHECKING:
    from ai4s.jobq.engine.run import WorkflowRun


class Compensation:
    """The undoing of one run, as far as it has come. Made anew after each load."""

    def __init__(self, run: WorkflowRun) -> None:
        self.tasks = [number for number in sorted(run.graph.undoable) if run.tasks[number].state is TaskState.COMPLETED]
        self._wanted = frozenset(self.tasks)
        self._blocked_by = [len(children) for children in run.graph.children]
        self._ripe = [number for number, count in enumerate(self._blocked_by) if not count]

    def advance(self, run: WorkflowRun) -> None:
        """Start the undo jobs of all tasks whose dependents have nothing left to undo."""
        work, self._ripe = self._ripe, []
        while work:
            number = work.pop()
            if not self._is_clear(run, number):
                self._ripe.append(number)
                continue
            for parent in run.graph.parents[number]:
                self._blocked_by[parent] -= 1
                if not self._blocked_by[parent]:
                    work.append(parent)

    def states(self, run: WorkflowRun) -> list[TaskState]:
        """The states of all undo jobs; ``pending`` where one has not come into being."""
        jobs = [run.jobs.get(run.graph.undo_of(number)) for number in self.tasks]
        return [TaskState.PENDING if job is None else job.state for job in jobs]

    def _is_clear(self, run: WorkflowRun, number: int) -> bool:
        """Whether nothing is left to undo of a ripe task; starts its undo job where there is one that has not begun."""
        if number not in self._wanted:
            return True
        job = run.add_job(run.graph.undo_of(number))
        if job.state is TaskState.PENDING and not job.eligible and job.waiting is None:
            run.make_eligible(job)
        return job.state.is_terminal
