"""What engine tests are built from: short definitions, and a ``Scene`` that plays reports to a run and keeps its time.

A scene plays steps written as text, so that a test reads as a story::

    scene = Scene.of(task("a"), task("b", "a"))
    decision = scene.play("", "a started", "a ok")   # "" only looks what time and room allow

Steps: ``<task> started|ok|<cause>`` (of the current attempt), ``cancel``, ``retry``, ``+<seconds>`` and ``""``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import (
    CancelRequested,
    Cause,
    Decision,
    Event,
    OutputsResolved,
    RetryRequested,
    Room,
    TaskFailed,
    TaskStarted,
    TaskSucceeded,
)
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = "00000000000000aa"


def task(
    name: str,
    *parents: str,
    policy: DepPolicy | int = DepPolicy.ALL,
    retries: int = 0,
    condition: str | None = None,
    queue: str | None = None,
) -> Task:
    """A task as written."""
    return Task(name=name, depends_on=parents, dep_policy=policy, num_retries=retries, condition=condition, queue=queue)


def chain(length: int) -> list[Task]:
    """Tasks ``t0``, ``t1``, … each of which needs the one before."""
    return [task(f"t{number}", *([f"t{number - 1}"] if number else [])) for number in range(length)]


def workflow(
    *tasks: Task,
    max_parallelism: int | None = None,
    result_policy: ResultPolicy = ResultPolicy.ALL_SINKS_SUCCEED,
) -> WorkflowDefinition:
    """A definition of these tasks."""
    return WorkflowDefinition(name="scene", tasks=tasks, max_parallelism=max_parallelism, result_policy=result_policy)


def plenty(graph: Graph) -> Room:
    """Room for everything."""
    return Room(queues=dict.fromkeys(graph.queue_names, 1_000_000), dispatches=1_000_000)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A run, and the time it lives in."""

    run: WorkflowRun
    now: datetime = NOW
    numbers: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = self.run.graph.numbers

    @classmethod
    def of(
        cls,
        *tasks: Task,
        max_parallelism: int | None = None,
        result_policy: ResultPolicy = ResultPolicy.ALL_SINKS_SUCCEED,
    ) -> Scene:
        """A fresh run of these tasks, in which nothing has been decided yet."""
        definition = workflow(*tasks, max_parallelism=max_parallelism, result_policy=result_policy)
        return cls(run=WorkflowRun(Graph(definition), run=RUN))

    # -- playing

    def play(self, *steps: str) -> Decision:
        """Play each step as one decision with room for everything; the last decision."""
        decision = Decision()
        for step in steps:
            decision = self.decide(*self.events(step))
        return decision

    def decide(self, *events: Event, room: Room | None = None, onto: Decision | None = None) -> Decision:
        """One decision; room for everything unless given."""
        room = plenty(self.run.graph) if room is None else room
        return decide(self.run, events, now=self.now, room=room, onto=onto)

    def events(self, step: str) -> list[Event]:
        """The event a step stands for; a step of time has passed when this returns."""
        if step == "":
            return []
        if step.startswith("+"):
            self.now += timedelta(seconds=float(step[1:]))
            return []
        if step in ("cancel", "retry"):
            return [CancelRequested() if step == "cancel" else RetryRequested()]
        name, _, what = step.partition(" ")
        if what == "started":
            return [self.started(name)]
        return [self.succeeded(name) if what == "ok" else self.failed(name, Cause(what))]

    # -- reports of the current attempt, unless told otherwise

    def started(self, name: str, **other: Any) -> TaskStarted:
        return TaskStarted(**self._attempt(name, other))

    def succeeded(self, name: str, **other: Any) -> TaskSucceeded:
        return TaskSucceeded(**self._attempt(name, other))

    def failed(self, name: str, cause: Cause = Cause.EXIT, **other: Any) -> TaskFailed:
        return TaskFailed(cause=cause, **self._attempt(name, {"exit_code": 1, "error": f"{cause} of {name}", **other}))

    def resolved(self, name: str, error: str = "", **values: Any) -> OutputsResolved:
        return OutputsResolved(number=self.numbers[name], values=values, error=error)

    def _attempt(self, name: str, other: Mapping[str, Any]) -> dict[str, Any]:
        current = {
            "run": self.run.run,
            "life": self.run.life,
            "number": self.numbers[name],
            "attempt": self[name].attempt,
            "execution": f"{name}-{self[name].attempt}",
            "worker": "w1",
        }
        return {**current, **other}

    # -- looking

    def __getitem__(self, name: str) -> TaskRun:
        return self.run.tasks[self.numbers[name]]

    def name(self, number: int) -> str:
        return self.run.graph.definition.tasks[number].name

    def states(self) -> str:
        """All tasks with their states, in task order: ``a=completed b=ready``."""
        return " ".join(f"{self.name(one.number)}={one.state}" for one in self.run.tasks)

    def state(self, name: str) -> TaskState:
        return self[name].state

    def rows(self, decision: Decision) -> str:
        """The tasks whose rows a decision writes, in task order."""
        return " ".join(self.name(number) for number in sorted(decision.rows))

    def dispatches(self, decision: Decision) -> str:
        """What a decision dispatches, in order: ``a#1 b#3``."""
        return " ".join(f"{self.name(one.number)}#{one.attempt}" for one in decision.dispatches)


def room(dispatches: int = 1_000_000, **queues: int) -> Room:
    """Room on these queues only (``default`` is where tasks go that name none)."""
    return Room(queues=queues, dispatches=dispatches)


def facts(one: TaskRun) -> Sequence[Any]:
    """Everything about a task that must agree between two ways to the same point."""
    return [getattr(one, name) for name in TaskRun.__slots__]
