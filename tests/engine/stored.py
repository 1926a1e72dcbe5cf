"""What a table would hold of a run: the header's facts, and the row of every task a decision named.

It is filled from ``Decision`` alone, so that a change the engine forgets to announce is missing after a reload.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from ai4s.jobq.engine.events import Decision
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun

ROW_FACTS = (
    "number", "stored", "attempt", "charged", "losses", "execution", "worker", "ready_at", "started_at", "ended_at",
    "exit_code", "cause", "condition", "has_output", "waiting", "wait_until",
)  # fmt: skip


@dataclass(slots=True)
class StoredRow:
    """A task row: the facts of the task, and the life it was written in."""

    task: TaskRun
    life: int


@dataclass(slots=True)
class StoredRun:
    """The header, the rows and the signals of one run."""

    run: str
    life: int = 1
    state: WorkflowState = WorkflowState.PENDING
    stop: Stop = Stop.NONE
    stopped_at: datetime | None = None
    ended_at: datetime | None = None
    paused: bool = False
    abandoned: bool = False
    deadline: datetime | None = None
    failure: str = ""
    signals: dict[str, object | None] = field(default_factory=dict)
    rows: dict[int, StoredRow] = field(default_factory=dict)

    def commit(self, run: WorkflowRun, decision: Decision) -> None:
        """Write what a decision says has to be written. A header goes along with every row."""
        if decision.is_empty:
            return
        self.life, self.state, self.stop = run.life, run.state, run.stop
        self.stopped_at, self.ended_at = run.stopped_at, run.ended_at
        self.paused, self.abandoned = run.paused, run.abandoned
        self.deadline, self.failure = run.deadline, run.failure
        for number in decision.rows:
            job = run.at(number)
            assert job is not None
            self.rows[number] = StoredRow(_row_of(job), run.life)

    def load(self, graph: Graph) -> WorkflowRun:
        """The run that is stored, every derived state and count computed anew."""
        return WorkflowRun(
            graph,
            run=self.run,
            life=self.life,
            state=self.state,
            stop=self.stop,
            stopped_at=self.stopped_at,
            ended_at=self.ended_at,
            paused=self.paused,
            abandoned=self.abandoned,
            deadline=self.deadline,
            failure=self.failure,
            signals=dict(self.signals),
            tasks=[replace(row.task, life=row.life) for row in self.rows.values()],
        )


def _row_of(task: TaskRun) -> TaskRun:
    """The task with nothing but what a row holds."""
    row = TaskRun(**{name: getattr(task, name) for name in ROW_FACTS})
    row.stored = row.stored or TaskState.PENDING
    return row
