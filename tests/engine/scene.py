"""What engine tests are built from: short definitions, and a ``Scene`` that plays reports to a run and keeps its time.

A scene plays steps written as text, so that a test reads as a story::

    scene = Scene.of(task("a"), task("b", "a"))
    decision = scene.play("", "a started", "a ok")   # "" only looks what time and room allow

Steps: ``<job> started|ok|<cause>`` (of the current attempt; a job is a task, ``undo:<task>`` or a hook such as ``on_end``),
``cancel``, ``retry``, ``+<seconds>`` and ``""``. Then those that change the stored run as a client would, and go on with
what is loaded from there, as a coordinator that takes over does: ``reload``, ``pause``, ``resume``, ``abandon``,
``signal <name>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ai4s.jobq.definition.model import DepPolicy, Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
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
from ai4s.jobq.engine.run import WorkflowRun, deadline_of
from ai4s.jobq.engine.states import JobKind, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from tests.engine.stored import StoredRun

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = "00000000000000aa"
JOB = Job(kwargs={"cmd": "a job beside the tasks"})


def task(
    name: str,
    *parents: str,
    policy: DepPolicy | int = DepPolicy.ALL,
    retries: int = 0,
    **fields: Any,
) -> Task:
    """A task as written."""
    return Task(name=name, depends_on=parents, dep_policy=policy, num_retries=retries, **fields)


def undoable(name: str, *parents: str, **fields: Any) -> Task:
    """A task with an undo job."""
    return task(name, *parents, undo=JOB, **fields)


def chain(length: int) -> list[Task]:
    """Tasks ``t0``, ``t1``, … each of which needs the one before."""
    return [task(f"t{number}", *([f"t{number - 1}"] if number else [])) for number in range(length)]


def workflow(*tasks: Task, **fields: Any) -> WorkflowDefinition:
    """A definition of these tasks."""
    return WorkflowDefinition(name="scene", tasks=tasks, **fields)


def plenty(graph: Graph) -> Room:
    """Room for everything."""
    return Room(queues=dict.fromkeys(graph.queue_names, 1_000_000), dispatches=1_000_000)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A run, and the time it lives in."""

    run: WorkflowRun
    now: datetime = NOW
    numbers: Mapping[str, int] = field(init=False)
    stored: StoredRun = field(init=False)

    def __post_init__(self) -> None:
        graph = self.run.graph
        self.numbers = {**graph.numbers, **{self.name(number): number for number in graph.job_numbers()}}
        self.stored = StoredRun(run=self.run.run, deadline=self.run.deadline)

    @classmethod
    def of(cls, *tasks: Task, **fields: Any) -> Scene:
        """A fresh run of these tasks, in which nothing has been decided yet."""
        definition = workflow(*tasks, **fields)
        return cls(run=WorkflowRun(Graph(definition), run=RUN, deadline=deadline_of(definition, NOW)))

    # -- playing

    def play(self, *steps: str) -> Decision:
        """Play each step as one decision with room for everything; the last decision."""
        decision = Decision()
        for step in steps:
            decision = self.decide(*self.events(step))
        return decision

    def decide(self, *events: Event, room: Room | None = None, onto: Decision | None = None) -> Decision:
        """One decision, stored; room for everything unless given."""
        room = plenty(self.run.graph) if room is None else room
        decision = decide(self.run, events, now=self.now, room=room, onto=onto)
        self.stored.commit(self.run, decision)
        return decision

    def reload(self) -> None:
        """Go on with the run as it is stored."""
        self.run = self.stored.load(self.run.graph)

    def events(self, step: str) -> list[Event]:
        """The event a step stands for; what is no event has happened when this returns."""
        if step == "":
            return []
        if step.startswith("+"):
            self.now += timedelta(seconds=float(step[1:]))
            return []
        if step in ("cancel", "retry"):
            return [CancelRequested() if step == "cancel" else RetryRequested()]
        if step in ("reload", "pause", "resume", "abandon") or step.startswith("signal "):
            self._change(step)
            return []
        name, _, what = step.partition(" ")
        if what == "started":
            return [self.started(name)]
        return [self.succeeded(name) if what == "ok" else self.failed(name, Cause(what))]

    def _change(self, step: str) -> None:
        """What a client writes, and the loading that follows it."""
        if step in ("pause", "resume"):
            self.stored.paused = step == "pause"
        elif step == "abandon":
            self.stored.abandoned = True
        elif step != "reload":
            self.stored.signals.setdefault(step.removeprefix("signal "), f"data of {step}")
        self.reload()

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
        job = self.run.at(self.numbers[name])
        if job is None:
            raise KeyError(f"{name} has not come into being")
        return job

    def name(self, number: int) -> str:
        name, kind = self.run.graph.name(number), self.run.graph.kind(number)
        return f"undo:{name}" if kind is JobKind.UNDO else name

    def states(self) -> str:
        """All tasks with their states, in task order: ``a=completed b=ready``."""
        return " ".join(f"{self.name(one.number)}={one.state}" for one in self.run.tasks)

    def jobs(self) -> str:
        """The undo jobs and hooks that have been dispatched in this life, with their states."""
        begun = [job for _, job in sorted(self.run.jobs.items()) if job.stored is not None]
        return " ".join(f"{self.name(job.number)}={job.state}" for job in begun)

    def state(self, name: str) -> TaskState:
        return self[name].state

    def rows(self, decision: Decision) -> str:
        """The jobs whose rows a decision writes, in order of their numbers."""
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
