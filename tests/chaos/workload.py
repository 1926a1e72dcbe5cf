"""Random and real-shaped workflows whose tasks have a scripted end, however often they are started.

A task may be quick, slow, leave children behind, print megabytes, write a small or a large output, fail once, fail until it
is mended, or outlast its time limit. None of that depends on how many of its executions are killed on the way, so the state
that every task must come to is known before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.definition.load import from_mapping
from tests.model.reference import Expectation, TaskResult, expected
from tests.support.dags import fan, mosaic, sequencing

QUEUES = ("default", "pool-1", "pool-2")
LARGE = """python3 -c 'print("[" + "1," * 30000 + "1]")' > "$JOBQ_OUTPUT_FILE\""""
UNTIL_MENDED = 'test -e "$ATTEMPTS-mended-$JOBQ_WORKFLOW_ID" ||'

_SCRIPTS: Mapping[str, tuple[int, dict[str, Any]]] = {
    # kind: (weight, changes of the task); the command comes first
    "quick": (45, {"cmd": "true"}),
    "slow": (14, {"cmd": "sleep 1.7"}),
    "small output": (8, {"cmd": """echo '{"v": 1}' > "$JOBQ_OUTPUT_FILE\""""}),
    "large output": (4, {"cmd": LARGE}),
    "forking": (8, {"cmd": "(sleep 900 & sleep 901 &) ; sleep 902 & sleep 0.2"}),
    "output-heavy": (5, {"cmd": "head -c 2000000 /dev/urandom | base64"}),
    "flaky": (
        8,
        {"cmd": 'if mkdir "$ATTEMPTS-$JOBQ_WORKFLOW_ID-$JOBQ_WORKFLOW_TASK"; then exit 7; fi', "num_retries": 1},
    ),
    "failing": (5, {"cmd": f"{UNTIL_MENDED} exit 3"}),
    "outlasting": (3, {"cmd": f"{UNTIL_MENDED} sleep 900", "timeout_s": 1}),
}
FAILING = frozenset({"failing", "outlasting"})


@dataclass(frozen=True, slots=True)
class Workload:
    """One workflow: its definition, and what kind of script each of its tasks follows."""

    definition: dict[str, Any]
    kinds: Mapping[str, str]

    def expected(self, *, mended: bool = False, kept: tuple[str, ...] = ()) -> Expectation:
        """The end to which it must come when nobody cancels it; ``kept`` had completed in an earlier life."""

        def result_of(name: str) -> TaskResult:
            return TaskResult(succeeds=mended or self.kinds[name] not in FAILING)

        return expected(from_mapping(self.definition), result_of, dict.fromkeys(kept), {})


def draw(rng: random.Random) -> Workload:
    """A workflow of a few to a few dozen tasks."""
    definition = rng.choice(_SHAPES)(rng)
    kinds = {task["name"]: _kind(rng) for task in definition["tasks"]}
    tasks = [_scripted(task, kinds[task["name"]]) for task in definition["tasks"]]
    return Workload({**definition, "tasks": tasks}, kinds)


def _kind(rng: random.Random) -> str:
    return rng.choices(list(_SCRIPTS), [weight for weight, _ in _SCRIPTS.values()])[0]


def _scripted(task: dict[str, Any], kind: str) -> dict[str, Any]:
    fields = dict(_SCRIPTS[kind][1])
    return {**task, "kwargs": {"cmd": fields.pop("cmd")}, **fields}


def _random(rng: random.Random) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = []
    for number in range(rng.randint(2, 16)):
        parents = [
            f"t{parent}" for parent in sorted(rng.sample(range(number), min(number, rng.choice((0, 1, 1, 2, 3)))))
        ]
        task: dict[str, Any] = {"name": f"t{number}", "kwargs": {"cmd": "true"}, "queue": rng.choice(QUEUES)}
        if parents:
            task |= {"depends_on": parents, "dep_policy": rng.choices(("all", "any", "all_settled"), (70, 15, 15))[0]}
        tasks.append(task)
    definition: dict[str, Any] = {"name": "random", "tasks": tasks}
    if rng.random() < 0.3:
        definition["max_parallelism"] = rng.randint(1, 4)
    return definition


_SHAPES: tuple[Callable[[random.Random], dict[str, Any]], ...] = (
    _random,
    _random,
    _random,
    lambda rng: fan(rng.randint(3, 20)),
    lambda rng: mosaic(rng.randint(3, 6), seed=rng.randint(0, 999)),
    lambda rng: sequencing(1, seed=rng.randint(0, 999)),
)
