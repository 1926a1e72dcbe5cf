"""One job of a run: a task, an undo job or a hook, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import TaskState, Waiting


@dataclass(slots=True)
class TaskRun:
    """One job of a run.

    ``state`` is what everybody sees; ``stored`` is what its row says in this life, or None when it has none. They differ
    only where the state is derived. ``life`` is the life its row was written in. ``attempt`` is 0 before the first dispatch
    and never goes back, not even by a retry; ``charged`` counts the attempts charged to the retries and ``losses`` those
    charged to the loss budget, in this life. ``execution`` is the start of the current attempt that was reported last.
    ``waiting`` says what it waited for last beside its parents, ``wait_until`` until when at most (None: for ever).
    """

    number: int
    state: TaskState = TaskState.PENDING
    stored: TaskState | None = None
    life: int = 1
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
    waiting: Waiting | None = None
    wait_until: datetime | None = None
    eligible: bool = False  # parents, condition and waits are done with; only room is missing
    completed_parents: int = 0
    skipped_parents: int = 0
    bad_parents: int = 0

    @property
    def awaits(self) -> Waiting | None:
        """What it waits for now beside its parents."""
        return self.waiting if self.state is TaskState.PENDING and not self.eligible else None

    def forget(self) -> None:
        """What a retry makes of a job that it does not keep: as new, but for the attempt number."""
        self.stored = None
        self.charged = self.losses = 0
        self.execution = self.worker = ""
        self.ready_at = self.started_at = self.ended_at = None
        self.exit_code = self.cause = self.condition = None
        self.waiting = self.wait_until = None
        self.has_output = False
