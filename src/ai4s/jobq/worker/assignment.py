"""One message in hand and what this worker makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ai4s.jobq.engine.job_names import job_name, role_of
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.store.wire import Cause, PlainJob, TaskMessage
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.processor import StopSignal
from ai4s.jobq.worker.scratch import ExecutionFiles


class Ending(Enum):
    """How an assignment ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    DROPPED = "dropped"  # it was not to be run (any more)
    GIVEN_BACK = "given back"
    LOST = "lost"  # somebody else may have it


@dataclass(slots=True, eq=False)
class TaskAssignment:
    """An attempt of a workflow task, an undo job or a hook. ``started``: from here on it is no longer simply given back."""

    task: TaskMessage
    lease: Lease
    files: ExecutionFiles
    execution: str
    stop: StopSignal = field(default_factory=StopSignal)
    started: bool = False

    @property
    def label(self) -> str:
        """Whose it is, for people."""
        return f"{self.task.workflow_id}/{job_name(self.task.task_name, role_of(self.task.kind))}"

    @property
    def key(self) -> str:
        """Whose it is, for the worker registry."""
        return f"{self.task.workflow_id}/{self.task.row}"

    def cancel(self, *, grace_s: float) -> None:
        """The workflow wants it to end."""
        self.files.raise_flag()
        self.stop.ask(Cause.CANCELLED, grace_s=grace_s)


@dataclass(slots=True, eq=False)
class JobAssignment:
    """A plain job."""

    job: PlainJob
    lease: Lease
    stop: StopSignal = field(default_factory=StopSignal)
    started: bool = False

    @property
    def label(self) -> str:
        """Whose it is, for people."""
        return f"job {self.job.job_id}"


Assignment = TaskAssignment | JobAssignment


def new_execution(task: TaskMessage) -> str:
    """A name for one start of this attempt, that no other start has."""
    return f"{task.attempt}-{new_nonce()}"
