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
    """The undoing of one run, as far as it has come. Made anew after each load; its cost follows the jobs that end."""

    def __init__(self, run: WorkflowRun) -> None:
        self._wanted = frozenset(
            number for number in run.graph.undoable if run.tasks[number].state is TaskState.COMPLETED
        )
        self._blocked_by = [len(children) for children in run.graph.children]
        self._reached = [number for number, count in enumerate(self._blocked_by) if not count]
        self._begun: set[int] = set()
        self._open = len(self._wanted)
        self.has_failed = False

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to undo."""
        return bool(self._wanted)

    @property
    def is_over(self) -> bool:
        """Whether all undo jobs have ended."""
        return not self._open

    def job_ended(self, number: int) -> None:
        """Note that the undo job of this task has ended, for the next ``advance``."""
        if number in self._begun:
            self._reached.append(number)

    def advance(self, run: WorkflowRun) -> None:
        """Start the undo jobs of all tasks whose dependents have nothing left to undo."""
        while self._reached:
            number = self._reached.pop()
            if number in self._wanted and not self._is_undone(run, number):
                continue
            for parent in run.graph.parents[number]:
                self._blocked_by[parent] -= 1
                if not self._blocked_by[parent]:
                    self._reached.append(parent)

    def _is_undone(self, run: WorkflowRun, number: int) -> bool:
        """Whether the undo job of a task has ended; starts it where it has not begun."""
        job = run.add_job(run.graph.undo_of(number))
        if job.state.is_terminal:
            self._open -= 1
            self.has_failed = self.has_failed or job.state is not TaskState.COMPLETED
            return True
        self._begun.add(number)
        if job.state is TaskState.PENDING and not job.eligible:
            run.make_eligible(job)
        return False
