"""How a life ends, computed from nothing but the plan: recursive, slow, and without a line of the engine's logic.

A task's final state follows from the final states of its parents and from its own script. No order of events occurs in
this definition, so whatever order the engine is told things in has to lead to the same end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.engine.events import Cause
from tests.engine.plans import Output, Plan, Question

GOOD = ("completed", "skipped")


def may_run(policy: DepPolicy | int, parents: list[str]) -> bool:
    """Whether a task with parents in these states (ended or not) may be dispatched."""
    if not parents:
        return True
    good = sum(state in GOOD for state in parents)
    ended = sum(state not in ("pending", "ready", "running") for state in parents)
    only_skipped = set(parents) == {"skipped"} or ("completed" not in parents and ended < len(parents))
    if policy is DepPolicy.ALL:
        return good == len(parents) and not only_skipped
    if policy is DepPolicy.ALL_SETTLED:
        return ended == len(parents) and good > 0 and not only_skipped
    return good >= (1 if policy is DepPolicy.ANY else int(policy)) and not only_skipped


@dataclass(slots=True)
class Ending:
    """A task's final state, and how many attempts its life took."""

    state: str
    attempts: int = 0


@dataclass(slots=True)
class Reference:
    """The end of one life (from 0). ``kept`` are the tasks that completed in an earlier one, with their outputs."""

    plan: Plan
    life: int
    kept: Mapping[int, Output]
    _known: dict[int, Ending] = field(default_factory=dict)

    def ending(self, number: int) -> Ending:
        if number not in self._known:
            self._known[number] = self._ending(number)
        return self._known[number]

    def result(self) -> str:
        """The final state of the run."""
        definition = self.plan.definition
        parents = {name for task in definition.tasks for name in task.depends_on}
        states = {task.name: self.ending(number).state for number, task in enumerate(definition.tasks)}
        judged = states if definition.result_policy is ResultPolicy.ALL_TASKS_SUCCEED else states.keys() - parents
        return "completed" if all(states[name] in GOOD for name in judged) else "failed"

    def _ending(self, number: int) -> Ending:
        if number in self.kept:
            return Ending("completed")
        task = self.plan.definition.tasks[number]
        states = [self.ending(self._number(name)).state for name in task.depends_on]
        if states and set(states) == {"skipped"}:
            return Ending("skipped")
        if not may_run(task.dep_policy, states):
            return Ending("upstream_failed")
        return self._judged(number) or self._run(number)

    def _judged(self, number: int) -> Ending | None:
        """How the task's condition ends it, or None when it does not."""
        match self.plan.questions[number]:
            case Question.NONE | Question.ALWAYS:
                return None
            case Question.NEVER:
                return Ending("skipped")
            case Question.BROKEN:
                return Ending("failed")
            case Question.READS:
                parent = self._number(self.plan.definition.tasks[number].depends_on[0])
                if self.ending(parent).state != "completed":
                    return Ending("skipped")
                output = self.kept.get(parent, self.plan.lives[self.life][parent].output)
                return Ending("failed") if not output.readable else None if output.go else Ending("skipped")

    def _run(self, number: int) -> Ending:
        """What the attempts come to."""
        script, charged, attempts = self.plan.lives[self.life][number], 0, 0
        while True:
            cause = script.ending(attempts)
            attempts += 1
            charged += cause in (Cause.EXIT, Cause.TIMEOUT)
            if cause is None:
                return Ending("completed", attempts)
            if cause in (Cause.DISPATCH, Cause.CONDITION):
                return Ending("failed", attempts)
            if charged > self.plan.definition.tasks[number].num_retries:
                return Ending("failed", attempts)

    def _number(self, name: str) -> int:
        return int(name.removeprefix("t"))
