"""Random workflows together with what will happen to each of their tasks, and in which order it is reported.

A ``Plan`` fixes every task's outcome, so that the end of a run is known before it is played (see ``reference``); a ``Tape``
fixes the order, the repetitions and the interruptions. Both shrink well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition
from ai4s.jobq.engine.events import Cause

MAX_TASKS = 8
LIVES = 3
QUEUES = ("cpu", "gpu")


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
    """A definition, and the scripts of its tasks by life (from 0) and number."""

    definition: WorkflowDefinition
    questions: tuple[Question, ...]
    lives: tuple[tuple[Script, ...], ...]


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


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A workflow of a few tasks, numbered in any order, with a script for every task and life."""
    count = draw(st.integers(1, MAX_TASKS))
    order = draw(st.permutations(range(count)))
    tasks: dict[int, Task] = {}
    questions: dict[int, Question] = {}
    for place, number in enumerate(order):
        parents = draw(st.lists(st.sampled_from(order[:place]), unique=True, max_size=4)) if place else []
        questions[number], tasks[number] = draw(_tasks(number, parents))
    definition = WorkflowDefinition(
        name="random",
        tasks=tuple(tasks[number] for number in range(count)),
        max_parallelism=draw(st.sampled_from([None, None, 1, 2, 3])),
        result_policy=draw(st.sampled_from(ResultPolicy)),
    )
    life = st.lists(_SCRIPTS, min_size=count, max_size=count).map(tuple)
    lives = tuple(draw(life) for _ in range(LIVES))
    return Plan(definition, tuple(questions[number] for number in range(count)), lives)


@st.composite
def _tasks(draw: st.DrawFn, number: int, parents: list[int]) -> tuple[Question, Task]:
    policies: list[DepPolicy | int] = [DepPolicy.ALL, DepPolicy.ALL, DepPolicy.ANY, DepPolicy.ALL_SETTLED]
    policy = draw(st.sampled_from([*policies, *range(1, len(parents) + 1)]))
    question = draw(st.sampled_from(_possible_questions(policy))) if parents else Question.NONE
    return question, Task(
        name=f"t{number}",
        depends_on=tuple(f"t{parent}" for parent in parents),
        queue=draw(st.sampled_from(QUEUES)),
        dep_policy=policy,
        num_retries=draw(st.integers(0, 2)),
        condition=question.value.format(parent=f"t{parents[0]}") if question is not Question.NONE else None,
    )


def _possible_questions(policy: DepPolicy | int) -> list[Question]:
    """The questions whose answer cannot depend on which parent ends first."""
    some = [Question.NONE, Question.NONE, Question.ALWAYS, Question.NEVER, Question.BROKEN]
    return [*some, Question.READS, Question.READS] if policy in (DepPolicy.ALL, DepPolicy.ALL_SETTLED) else some
