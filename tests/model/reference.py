"""What a definition implies, worked out in the plainest way: the reference that the engine is compared with.

Written from the documentation alone and sharing no code with ``engine``: every state is computed anew by looking at all
tasks until nothing changes, whatever that costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition

ENDED_WELL = {"completed", "skipped"}
ENDED_BADLY = {"failed", "upstream_failed", "cancelled"}
ENDED = ENDED_WELL | ENDED_BADLY

_CONDITION = re.compile(r"(?:default\(inputs\.(?P<lenient>\w+)\.v, 0\)|inputs\.(?P<strict>\w+)\.v) >= (?P<least>\d+)")


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a task ends once it is run to its end: ``value`` is the ``v`` of its output, None without output."""

    succeeds: bool
    value: int | None = None


@dataclass(slots=True)
class Expectation:
    """The end that a life of a run must come to."""

    states: dict[str, str]
    result: str
    values: dict[str, int | None] = field(default_factory=dict)


def expected(
    definition: WorkflowDefinition,
    result_of: Callable[[str], TaskResult],
    kept: Mapping[str, int | None],
    raced: Mapping[str, str],
) -> Expectation:
    """The end of a life in which nobody interferes.

    ``kept``: tasks that had completed in an earlier life, with their values. ``raced``: what became of conditions that
    legally depend on the order in which parents end (``run``, ``skip`` or ``fail``, see ``racing_answers``).
    """
    end = Expectation(dict.fromkeys((task.name for task in definition.tasks), "pending"), "", dict(kept))
    end.states.update(dict.fromkeys(kept, "completed"))
    changed = True
    while changed:
        changed = False
        for task in definition.tasks:
            if end.states[task.name] == "pending":
                end.states[task.name] = _settle(task, end, result_of, raced)
                changed = changed or end.states[task.name] != "pending"
    end.result = result(definition, end.states)
    return end


def _settle(task: Task, end: Expectation, result_of: Callable[[str], TaskResult], raced: Mapping[str, str]) -> str:
    verdict = policy(task, end.states)
    if verdict == "run" and task.condition is not None:
        verdict = raced.get(task.name) or answer(task.condition, end.states, end.values)
    if verdict != "run":
        return {"wait": "pending", "skip": "skipped", "upstream": "upstream_failed", "fail": "failed"}[verdict]
    outcome = result_of(task.name)
    if outcome.succeeds:
        end.values[task.name] = outcome.value
    return "completed" if outcome.succeeds else "failed"


def policy(task: Task, states: Mapping[str, str]) -> str:
    """``wait``, ``run``, ``skip`` or ``upstream`` (failed), by the states of the parents."""
    parents = [states[name] for name in task.depends_on]
    well, badly = sum(state in ENDED_WELL for state in parents), sum(state in ENDED_BADLY for state in parents)
    all_ended = well + badly == len(parents)
    if not parents:
        return "run"
    if all(state == "skipped" for state in parents):
        return "skip"
    if task.dep_policy == DepPolicy.ALL_SETTLED:
        return "wait" if not all_ended else ("run" if well else "upstream")
    if isinstance(task.dep_policy, DepPolicy):
        needed = len(parents) if task.dep_policy is DepPolicy.ALL else 1
    else:
        needed = task.dep_policy
    if len(parents) - badly < needed:
        return "upstream"
    if well >= needed and ("completed" in parents or all_ended):
        return "run"
    return "wait"


def answer(condition: str, states: Mapping[str, str], values: Mapping[str, int | None]) -> str:
    """``run``, ``skip`` or ``fail`` for one of the conditions that scenarios use."""
    match = _CONDITION.fullmatch(condition)
    assert match is not None, condition
    parent = match["strict"] or match["lenient"]
    value = values.get(parent) if states[parent] == "completed" else None
    if value is None and match["strict"]:
        return "fail"
    return "run" if (value or 0) >= int(match["least"]) else "skip"


def racing_answers(task: Task, states: Mapping[str, str], values: Mapping[str, int | None]) -> set[str]:
    """All answers that a condition may legally get: ``any`` and N may ask before a parent has ended, which then is null."""
    assert task.condition is not None
    answers = {answer(task.condition, states, values)}
    if task.dep_policy not in (DepPolicy.ALL, DepPolicy.ALL_SETTLED) and len(task.depends_on) > 1:
        answers.add(answer(task.condition, dict.fromkeys(states, "pending"), values))
    return answers


def derived(definition: WorkflowDefinition, stored: Mapping[str, str]) -> dict[str, str]:
    """The states people see, given those that are stored (``pending`` where nothing is)."""
    states = dict(stored)
    changed = True
    while changed:
        changed = False
        for task in definition.tasks:
            if states[task.name] == "pending" and (verdict := policy(task, states)) in ("skip", "upstream"):
                states[task.name] = "skipped" if verdict == "skip" else "upstream_failed"
                changed = True
    return states


def result(definition: WorkflowDefinition, states: Mapping[str, str]) -> str:
    """How a run ended whose tasks have all ended."""
    bad = {name for name, state in states.items() if state in ENDED_BADLY}
    inner = {parent for task in definition.tasks for parent in task.depends_on}
    if definition.result_policy is ResultPolicy.ALL_TASKS_SUCCEED:
        return "failed" if bad else "completed"
    return "failed" if bad - inner or len(bad) == len(states) else "completed"
