"""What happens in a schedule besides the code under test: workflows, scripted tasks, machines, people, and faults.

A ``Scenario`` is a plain value: drawn from a seed, or written down as a Python literal (``literal`` and ``from_literal``) by
the explorer when it has found and shrunk a failure.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

from ai4s.jobq.definition.model import WorkflowDefinition

QUEUES = ("cpu-a", "cpu-b", "gpu")

ANY_CALL = ("drop", "lose", "delay", "slow", "freeze", "crash_before", "crash_after", "deny")
WRITES = ("late", "crash_late")
EXTRA = {"transact": ("repeated", "touched"), "send": ("duplicate",), "complete": ("repeated",), "renew": ("repeated",)}
KINDS = (*ANY_CALL, *WRITES, "repeated", "touched", "duplicate")
WRITING = frozenset({"transact", "send", "complete", "renew", "abandon", "put"})


@dataclass(frozen=True, slots=True)
class Fault:
    """The ``nth`` call of this kind by this actor goes wrong in this way; ``seconds`` is for the kinds that need it."""

    actor: str
    call: str
    nth: int
    kind: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one charged attempt of a task ends: its exit code, after how long, and the ``v`` of its output.

    ``large`` outputs go through blob storage. A task that lasts longer than its time limit times out instead.
    """

    exit_code: int = 0
    seconds: float = 0.0
    value: int | None = None
    large: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One workflow: its definition, its tasks' outcomes, and what its client does.

    ``outcomes``: per task, per life (the last one stays), per attempt charged to ``num_retries``.
    """

    workflow_id: str
    definition: dict[str, Any]
    outcomes: list[list[list[Outcome]]]
    submit_at: float = 0.0
    submits: int = 1
    cancels_at: list[float] = field(default_factory=list)
    retries: int = 0
    cancels_retry_after: float | None = None

    @property
    def parsed(self) -> WorkflowDefinition:
        return WorkflowDefinition.from_json(self.definition)

    def outcome(self, number: int, *, life: int, charged: int) -> Outcome:
        """The script of a task's attempt."""
        lives = self.outcomes[number]
        attempts = lives[min(life, len(lives)) - 1]
        return attempts[min(charged, len(attempts) - 1)]


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker's place."""

    queue: str
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happens at a time: ``clear`` a queue, or tell a worker to ``stop`` politely."""

    at: float
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One schedule. ``faults`` None: drawn as ``seed``, ``fault_rate`` and ``fault_kinds`` say, until ``calm_at``."""

    seed: int
    plans: list[Plan]
    machines: list[Machine]
    coordinators: int = 1
    all_lead: bool = False
    window: int = 1000
    rows_per_commit: int = 98
    outbox: int = 98
    page: int = 1000
    skew_s: float = 0.0
    deduplicates: bool = False
    incidents: list[Incident] = field(default_factory=list)
    fault_rate: float = 0.0
    fault_kinds: list[str] = field(default_factory=list)
    calm_at: float = 60.0
    most_faults: int = 40
    faults: list[Fault] | None = None

    def literal(self) -> dict[str, Any]:
        """The scenario as nested dicts and lists, what is at its default left out."""
        return _trimmed(self)


def from_literal(record: dict[str, Any]) -> Scenario:
    """The scenario that ``literal`` wrote down."""
    plans = [
        Plan(
            **{**plan, "outcomes": [[[Outcome(**one) for one in life] for life in lives] for lives in plan["outcomes"]]}
        )
        for plan in record["plans"]
    ]
    faults = record.get("faults")
    changes: dict[str, Any] = {
        "plans": plans,
        "machines": [Machine(**machine) for machine in record["machines"]],
        "incidents": [Incident(**incident) for incident in record.get("incidents", [])],
        "faults": None if faults is None else [Fault(*fault) for fault in faults],
    }
    return Scenario(**{**record, **changes})


def _trimmed(scenario: Scenario) -> dict[str, Any]:
    record = asdict(scenario)
    blank = asdict(Scenario(seed=0, plans=[], machines=[]))
    kept = {
        name: value for name, value in record.items() if name in ("seed", "plans", "machines") or value != blank[name]
    }
    if scenario.faults is not None:
        kept["faults"] = [(f.actor, f.call, f.nth, f.kind, f.seconds) for f in scenario.faults]
    for plan in kept["plans"]:
        plan["outcomes"] = [
            [[_without(one, Outcome()) for one in life] for life in lives] for lives in plan["outcomes"]
        ]
    return kept


def _without(record: dict[str, Any], default: Outcome) -> dict[str, Any]:
    """The record without what is as in ``default``."""
    return {name: value for name, value in record.items() if value != getattr(default, name)}


# -- drawing one


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"scenario-{seed}")
    count = rng.choices((1, 2, 3), (75, 20, 5))[0]
    queues = list(QUEUES[: rng.choices((1, 2, 3), (60, 30, 10))[0]])
    rate = rng.choice((0.0, 0.003, 0.01, 0.03, 0.08))
    coordinators = rng.choices((1, 2, 3), (55, 30, 15))[0]
    return Scenario(
        seed=seed,
        plans=[_plan(rng, f"wf{number}", queues) for number in range(count)],
        machines=_machines(rng, queues),
        coordinators=coordinators,
        all_lead=coordinators > 1 and rng.random() < 0.5,
        window=rng.choice((1, 2, 3, 1000, 1000)),
        rows_per_commit=rng.choice((1, 2, 98, 98)),
        outbox=rng.choice((1, 2, 98, 98)),
        page=rng.choice((1, 3, 1000)),
        skew_s=rng.choice((0.0, 0.0, 3.0, 60.0)),
        deduplicates=rng.random() < 0.2,
        incidents=_incidents(rng, queues),
        fault_rate=rate,
        fault_kinds=_fault_kinds(rng),
        calm_at=rng.choice((15.0, 40.0, 90.0)),
        most_faults=rng.choice((3, 8, 25)),
    )


def _fault_kinds(rng: random.Random) -> list[str]:
    """A few kinds only, most of the time: rare combinations come up sooner that way."""
    if rng.random() < 0.25:
        return list(KINDS)
    return sorted(rng.sample(KINDS, rng.randint(1, 4)))


def _machines(rng: random.Random, queues: list[str]) -> list[Machine]:
    names = [*queues, *rng.choices(queues, k=rng.choice((0, 0, 1, 2)))][:4]
    return [Machine(queue, rng.choice((1, 1, 2, 3))) for queue in names]


def _incidents(rng: random.Random, queues: list[str]) -> list[Incident]:
    found = []
    if rng.random() < 0.08:
        found.append(Incident(rng.uniform(0, 40), "clear", rng.choice(queues)))
    if rng.random() < 0.2:
        found.append(Incident(rng.uniform(0, 40), "stop", "worker1"))
    return found


def _plan(rng: random.Random, workflow_id: str, queues: list[str]) -> Plan:
    tasks = _tasks(rng, queues)
    definition: dict[str, Any] = {"name": "model", "default_queue": queues[0], "tasks": tasks}
    if rng.random() < 0.3:
        definition["max_parallelism"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        definition["result_policy"] = "all_tasks_succeed"
    cancels = [rng.choice((0.5, 3.0, 10.0, 40.0)) * rng.random() for _ in range(rng.choices((0, 1, 2), (72, 23, 5))[0])]
    return Plan(
        workflow_id=workflow_id,
        definition=definition,
        outcomes=[_lives(rng, task) for task in tasks],
        submit_at=rng.choice((0.0, 0.0, 5.0)),
        submits=rng.choices((1, 2), (80, 20))[0],
        cancels_at=sorted(cancels),
        retries=rng.choices((0, 1, 2), (65, 25, 10))[0],
        cancels_retry_after=rng.uniform(0, 5) if rng.random() < 0.2 else None,
    )


def _tasks(rng: random.Random, queues: list[str]) -> list[dict[str, Any]]:
    count = rng.choices((1, 2, 3, 5, 8, 12), (10, 25, 30, 24, 8, 3))[0]
    tasks = []
    for number in range(count):
        parents = rng.sample(range(number), min(number, rng.choices((0, 1, 2, 3), (20, 40, 30, 10))[0]))
        tasks.append(_task(rng, number, [f"t{parent}" for parent in parents], queues))
    if rng.random() < 0.3:
        rng.shuffle(tasks)
    return tasks


def _task(rng: random.Random, number: int, parents: list[str], queues: list[str]) -> dict[str, Any]:
    task: dict[str, Any] = {"name": f"t{number}", "kwargs": {"cmd": "true"}}
    if parents:
        task["depends_on"] = parents
        policy = rng.choices(("all", "any", "all_settled", "number"), (50, 18, 16, 16))[0]
        if policy != "all":
            task["dep_policy"] = rng.randint(1, len(parents)) if policy == "number" else policy
        if rng.random() < 0.2:
            shape = rng.choice(("inputs.{}.v >= {}", "default(inputs.{}.v, 0) >= {}", "default(inputs.{}.v, 0) >= {}"))
            task["condition"] = shape.format(rng.choice(parents), rng.randint(1, 7))
    if rng.random() < 0.3:
        task["queue"] = rng.choice(queues)
    if rng.random() < 0.4:
        task["num_retries"] = rng.randint(1, 2)
    if rng.random() < 0.15:
        task["timeout_s"] = rng.randint(2, 8)
    return task


def _lives(rng: random.Random, task: dict[str, Any]) -> list[list[Outcome]]:
    weak = rng.random() < 0.35
    return [[_outcome(rng, task, weak) for _ in range(task.get("num_retries", 0) + 1)] for _ in range(3)]


def _outcome(rng: random.Random, task: dict[str, Any], weak: bool) -> Outcome:
    seconds = round(rng.choices((0.0, rng.random(), rng.uniform(1, 12), rng.uniform(12, 60)), (38, 42, 18, 2))[0], 2)
    if "timeout_s" in task and rng.random() < 0.3:
        seconds = task["timeout_s"] + 20.0
    if weak and rng.random() < 0.6:
        return Outcome(exit_code=rng.choice((1, 2, -9)), seconds=seconds)
    value = rng.choice((None, 0, 3, 5, 9))
    return Outcome(seconds=seconds, value=value, large=value is not None and rng.random() < 0.1)
