"""From a schedule that fails to a short script: leave out whatever the failure does not need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.model.scenario import Plan, Scenario
from tests.model.simulation import Verdict, run

T = TypeVar("T")


def shrunk(verdict: Verdict, *, most_runs: int = 400) -> Scenario:
    """A smaller scenario that fails too, its faults written down one by one."""
    search = _Search(most_runs)
    scenario = replace(verdict.scenario, faults=list(verdict.injected))
    if not search.fails(scenario):
        return scenario  # left as it is: something of it is not in the scenario
    while search.runs_left:
        smaller = _one_round(scenario, search)
        if smaller == scenario:
            break
        scenario = smaller
    return scenario


class _Search:
    def __init__(self, most_runs: int) -> None:
        self.runs_left = most_runs

    def fails(self, scenario: Scenario) -> bool:
        self.runs_left -= 1
        return bool(run(scenario).problems)

    def fewest(self, items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
        """A small part of ``items`` with which it still fails: ever smaller pieces are left out, one at a time."""
        kept, size = list(items), max(len(items) // 2, 1)
        while kept and self.runs_left > 0:
            for start in range(0, len(kept), size):
                fewer = kept[:start] + kept[start + size :]
                if self.runs_left > 0 and fails(fewer):
                    kept = fewer
                    break
            else:
                if size == 1:
                    break
                size = max(size // 2, 1)
        return kept


def _one_round(scenario: Scenario, search: _Search) -> Scenario:
    faults = search.fewest(scenario.faults or [], lambda fewer: search.fails(replace(scenario, faults=fewer)))
    scenario = replace(scenario, faults=faults)
    for simpler in _simpler(scenario):
        if search.runs_left > 0 and search.fails(simpler):
            return simpler
    return scenario


def _simpler(scenario: Scenario) -> list[Scenario]:
    """The scenario with one thing less, in several ways."""
    plans = scenario.plans
    ways = [replace(scenario, plans=plans[:i] + plans[i + 1 :]) for i in range(len(plans)) if len(plans) > 1]
    ways += [
        replace(scenario, plans=[*plans[:i], p, *plans[i + 1 :]]) for i, plan in enumerate(plans) for p in _plans(plan)
    ]
    machines = scenario.machines
    ways += [
        replace(scenario, machines=machines[:i] + machines[i + 1 :])
        for i, machine in enumerate(machines)
        if any(other.queue == machine.queue for other in machines[:i])
    ]
    calm = Scenario(seed=scenario.seed, plans=plans, machines=machines)
    for name in ("coordinators", "all_lead", "window", "rows_per_commit", "outbox", "page", "skew_s", "incidents"):
        value = getattr(calm, name)
        if getattr(scenario, name) != value and not (name == "coordinators" and scenario.all_lead):
            ways.append(replace(scenario, **{name: value}))
    return ways


def _plans(plan: Plan) -> list[Plan]:
    """The plan with one thing less, in several ways. A task goes only when no other waits for it."""
    ways = []
    tasks = plan.definition["tasks"]
    needed = {parent for task in tasks for parent in task.get("depends_on", ())}
    for number, task in enumerate(tasks):
        if task["name"] not in needed and len(tasks) > 1:
            definition = {**plan.definition, "tasks": tasks[:number] + tasks[number + 1 :]}
            ways.append(
                replace(plan, definition=definition, outcomes=plan.outcomes[:number] + plan.outcomes[number + 1 :])
            )
    if plan.cancels_at:
        ways.append(replace(plan, cancels_at=plan.cancels_at[1:]))
    if plan.retries:
        ways.append(replace(plan, retries=plan.retries - 1))
    if plan.submits > 1:
        ways.append(replace(plan, submits=1))
    return ways
