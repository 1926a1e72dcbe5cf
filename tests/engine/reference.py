"""How a life ends, computed from nothing but the plan: recursive, slow, and without a line of the engine's logic.

A task's final state follows from the final states of its parents and from its own script. No order of events occurs in
this definition, so whatever order the engine is told things in has to lead to the same end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.engine.events import Cause
from tests.engine.plans import CLEANUP, DATA, HOOKS, Output, Plan, Question, Script

GOOD = ("completed", "skipped")


def may_run(policy: DepPolicy | int, parents: list[str]) -> bool:
    """Whether a task with parents in these states (ended or not) may be dispatched."""
    if not parents:
        return True
    good = sum(state in GOOD for state in parents)
    ended = sum(state not in ("pending", "ready", "running") for state in parents)
    only_skipped = set(parents) == {"skipped"} or ("completed" not in parents and ended < len(parents))
    if policy in CLEANUP:
        return ended == len(parents) and (policy is DepPolicy.ALWAYS or good < ended)
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
        if not self._has_failed():
            return "completed"
        undone = [ending.state for ending in self.undo_jobs().values()]
        if not undone:
            return "failed"
        return "compensated" if set(undone) == {"completed"} else "compensation_failed"

    def handled(self) -> int:
        """How many failures were handled."""
        return sum(self.ending(number).state == "failed" and self._is_handled(number) for number in self._numbers())

    def undo_jobs(self) -> dict[int, Ending]:
        """The undo jobs that run, by number, and what becomes of them."""
        count = len(self.plan.definition.tasks)
        undoable = [number for number in self._numbers() if self.plan.definition.tasks[number].undo is not None]
        completed = [number for number in undoable if self.ending(number).state == "completed"]
        return {count + number: self._job(count + number) for number in completed} if self._has_failed() else {}

    def hooks(self) -> dict[int, Ending]:
        """The hooks that run, by number, and what becomes of them."""
        first = 2 * len(self.plan.definition.tasks)
        wanted = ("on_failure" if self._has_failed() else "on_success", "on_end")
        written = [hook for hook in HOOKS if getattr(self.plan.definition, hook) is not None]
        return {first + place: self._job(first + place) for place, hook in enumerate(written) if hook in wanted}

    def _job(self, number: int) -> Ending:
        return _attempted(self.plan.script(self.life, number), retries=1)

    def _has_failed(self) -> bool:
        """Whether a failure counts."""
        bad = [number for number in self._numbers() if self.ending(number).state not in GOOD]
        judge_all = self.plan.definition.result_policy is ResultPolicy.ALL_TASKS_SUCCEED
        return any(not self._is_handled(number) for number in bad if judge_all or self._is_sink(number))

    def _is_sink(self, number: int) -> bool:
        tasks = self.plan.definition.tasks
        forward = [task for task in tasks if task.dep_policy not in CLEANUP]
        return tasks[number] in forward and not any(tasks[number].name in task.depends_on for task in forward)

    def _is_handled(self, number: int) -> bool:
        """Whether the bad end of a task counts for nothing."""
        tasks = self.plan.definition.tasks
        handlers = [
            child
            for child, task in enumerate(tasks)
            if task.dep_policy is DepPolicy.ON_FAILURE and tasks[number].name in task.depends_on
        ]
        if any(self.ending(handler).state == "completed" for handler in handlers):
            return True
        if self.ending(number).state == "failed":
            return tasks[number].allow_failure
        parents = [self._number(name) for name in tasks[number].depends_on]
        return all(self._is_handled(parent) for parent in parents if self.ending(parent).state not in GOOD)

    def _numbers(self) -> range:
        return range(len(self.plan.definition.tasks))

    def _ending(self, number: int) -> Ending:
        if number in self.kept:
            return Ending("completed")
        task = self.plan.definition.tasks[number]
        states = [self.ending(self._number(name)).state for name in task.depends_on]
        if states and set(states) == {"skipped"} and task.dep_policy is not DepPolicy.ALWAYS:
            return Ending("skipped")
        if not may_run(task.dep_policy, states):
            return Ending("skipped" if task.dep_policy is DepPolicy.ON_FAILURE else "upstream_failed")
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
                output = self.kept.get(parent, self._output(parent))
                return Ending("failed") if not output.readable else None if output.go else Ending("skipped")

    def _output(self, number: int) -> Output:
        waits = self.plan.definition.tasks[number].wait_for is not None
        return DATA if waits else self.plan.lives[self.life][number].output

    def _run(self, number: int) -> Ending:
        """What the attempts come to; a signal that is waited for always comes in the end."""
        task = self.plan.definition.tasks[number]
        if task.wait_for is not None:
            return Ending("completed")
        return _attempted(self.plan.script(self.life, number), retries=task.max_retries)

    def _number(self, name: str) -> int:
        return int(name.removeprefix("t"))


def _attempted(script: Script, *, retries: int) -> Ending:
    """What the attempts of a script come to."""
    charged, attempts = 0, 0
    while True:
        cause = script.ending(attempts)
        attempts += 1
        charged += cause in (Cause.EXIT, Cause.TIMEOUT)
        if cause is None:
            return Ending("completed", attempts)
        if cause in (Cause.DISPATCH, Cause.CONDITION) or charged > retries:
            return Ending("failed", attempts)
