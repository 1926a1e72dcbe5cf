"""Random workflows together with what will happen to each of their tasks, and in which order it is reported.

A ``Plan`` fixes every task's outcome, so that the end of a run is known before it is played (see ``reference``); a ``Tape``
fixes the order, the repetitions and the interruptions. Both shrink well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition
from ai4s.jobq.definition.parts import FailFast, Job, OnTimeout, Retry, WaitFor
from ai4s.jobq.engine.events import Cause
from tests.engine.scene import NOW

MAX_TASKS = 8
LIVES = 3
QUEUES = ("cpu", "gpu")
SIGNALS = ("green", "red")
HOOKS = ("on_success", "on_failure", "on_end")
CLEANUP = (DepPolicy.ALWAYS, DepPolicy.ON_FAILURE)
JOB = Job(kwargs={"cmd": "undo, or tell"}, num_retries=1)


class Question(Enum):
    """What kind of condition a task has, and its text; ``READS`` follows the output of the first parent."""

    NONE = ""
    ALWAYS = "exists(inputs.{parent}) or true"
    NEVER = "exists(inputs.{parent}) and false"
    BROKEN = "inputs.{parent}.nothing == 1"
    READS = "default(inputs.{parent}.go, false)"


@dataclass(frozen=True, slots=True)
class Output:
    """What a task sets: whether a condition that reads it holds, and whether it can be read at all."""

    go: bool
    readable: bool


@dataclass(frozen=True, slots=True)
class Script:
    """What happens to one task in one life: its first attempts end like this, every later one well or badly."""

    failures: tuple[Cause, ...]
    succeeds: bool
    output: Output

    def ending(self, index: int) -> Cause | None:
        """How the attempt of this index (from 0) in its life ends; None for a success."""
        if index < len(self.failures):
            return self.failures[index]
        return None if self.succeeds else Cause.EXIT


@dataclass(frozen=True, slots=True)
class Plan:
    """A definition, the scripts of its tasks by life (from 0) and number, and those of its undo jobs and hooks."""

    definition: WorkflowDefinition
    questions: tuple[Question, ...]
    lives: tuple[tuple[Script, ...], ...]
    jobs: tuple[Script, ...]

    def script(self, life: int, number: int) -> Script:
        """What happens to a task, undo job or hook in a life (from 0)."""
        count = len(self.definition.tasks)
        return self.lives[life][number] if number < count else self.jobs[number - count]


class Tape:
    """Choices, one after the other; when it has run out, always the first possibility."""

    def __init__(self, values: Iterable[int]) -> None:
        self._values = list(values)[::-1]

    @property
    def has_more(self) -> bool:
        return bool(self._values)

    def choose(self, possibilities: int) -> int:
        """A whole number below ``possibilities``."""
        return self._values.pop() % possibilities if self._values else 0


_UNCHARGED = (Cause.LOST, Cause.PREEMPTED, Cause.CANCELLED)
_FAILURES = st.lists(
    st.sampled_from([Cause.EXIT, Cause.TIMEOUT, *_UNCHARGED, Cause.DISPATCH, Cause.CONDITION]), max_size=3
).map(tuple)
_SCRIPTS = st.builds(
    Script,
    _FAILURES,
    st.sampled_from([True, True, False]),
    st.builds(Output, st.booleans(), st.sampled_from([True, True, True, False])),
)


def schedules() -> st.SearchStrategy[list[int]]:
    """What to put on a tape: a few choices, or enough of them for whole lives."""
    choices = st.integers(0, 999)
    return st.one_of(st.lists(choices, max_size=20), st.lists(choices, min_size=50, max_size=150))


DATA = Output(go=True, readable=True)  # what every signal brings
_NOTHING = Output(go=False, readable=True)
_JOB_SCRIPTS = st.sampled_from(
    [
        Script((), True, _NOTHING),
        Script((Cause.LOST, Cause.EXIT), True, _NOTHING),
        Script((Cause.PREEMPTED,), False, _NOTHING),
        Script((), False, _NOTHING),
    ]
)


@st.composite
def plans(draw: st.DrawFn, *, rough: bool = False) -> Plan:
    """A workflow of a few tasks, numbered in any order, with a script for every task and life.

    ``rough`` ones may also stop themselves and give up waiting: their end depends on the order of events.
    """
    count = draw(st.integers(1, MAX_TASKS))
    order = draw(st.permutations(range(count)))
    tasks: dict[int, Task] = {}
    questions: dict[int, Question] = {}
    for place, number in enumerate(order):
        parents = draw(st.lists(st.sampled_from(order[:place]), unique=True, max_size=4)) if place else []
        questions[number], tasks[number] = draw(_tasks(number, parents, rough=rough))
    definition = WorkflowDefinition(
        name="random",
        tasks=tuple(tasks[number] for number in range(count)),
        max_parallelism=draw(st.sampled_from([None, None, 1, 2, 3])),
        result_policy=draw(st.sampled_from(ResultPolicy)),
        **draw(_HOOKS),
        **(draw(_LIMITS) if rough else {}),
    )
    life = st.lists(_SCRIPTS, min_size=count, max_size=count).map(tuple)
    lives = tuple(draw(life) for _ in range(LIVES))
    jobs = draw(st.lists(_JOB_SCRIPTS, min_size=count + len(HOOKS), max_size=count + len(HOOKS)).map(tuple))
    return Plan(definition, tuple(questions[number] for number in range(count)), lives, jobs)


_HOOKS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, dict.fromkeys(HOOKS, JOB), *({hook: JOB} for hook in HOOKS)]
)
_LIMITS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "fail_fast": st.sampled_from(FailFast),
        "timeout_s": st.sampled_from([None, None, 10, 30]),
        "undo_on_cancel": st.sampled_from([True, True, False]),
    }
)


@st.composite
def _tasks(draw: st.DrawFn, number: int, parents: list[int], *, rough: bool) -> tuple[Question, Task]:
    policies: list[DepPolicy | int] = [DepPolicy.ALL, DepPolicy.ALL, *DepPolicy]
    policy = draw(st.sampled_from([*policies, *range(1, len(parents) + 1)]))
    question = draw(st.sampled_from(_possible_questions(policy))) if parents else Question.NONE
    return question, Task(
        name=f"t{number}",
        depends_on=tuple(f"t{parent}" for parent in parents),
        queue=draw(st.sampled_from(QUEUES)),
        dep_policy=policy,
        condition=question.value.format(parent=f"t{parents[0]}") if question is not Question.NONE else None,
        allow_failure=draw(st.sampled_from([False, False, True])),
        undo=draw(st.sampled_from([None, JOB])),
        priority=draw(st.integers(-1, 1)),
        **draw(_retries()),
        **draw(_waits(rough=rough)),
    )


def _retries() -> st.SearchStrategy[dict[str, Any]]:
    """No retries, some, or some after a while."""
    retry = st.builds(Retry, max=st.integers(1, 2), delay_s=st.sampled_from([0, 3]), jitter=st.sampled_from([0, 1]))
    return st.one_of(
        st.integers(0, 2).map(lambda count: {"num_retries": count}), retry.map(lambda value: {"retry": value})
    )


def _waits(*, rough: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Mostly nothing to wait for; a rough task may stop waiting for its signal."""
    limits: list[dict[str, Any]] = [{}]
    if rough:
        limits = [{}, *({"timeout_s": 5, "on_timeout": what} for what in OnTimeout)]
    waits: list[dict[str, Any]] = [
        {"delay_s": 2},
        {"not_before": NOW + timedelta(seconds=4)},
        *({"wait_for": WaitFor(signal=signal, **limit)} for signal in SIGNALS for limit in limits),
        {"delay_s": 2, "wait_for": WaitFor(signal=SIGNALS[0], **limits[-1])},
    ]
    return st.sampled_from([*({} for _ in waits), *({} for _ in waits), *waits])


def _possible_questions(policy: DepPolicy | int) -> list[Question]:
    """The questions whose answer cannot depend on which parent ends first."""
    some = [Question.NONE, Question.NONE, Question.ALWAYS, Question.NEVER, Question.BROKEN]
    is_patient = policy in (DepPolicy.ALL, DepPolicy.ALL_SETTLED, *CLEANUP)
    return [*some, Question.READS, Question.READS] if is_patient else some
