"""The model check itself: it repeats itself, it is faithful where that matters, and it shrinks what it finds."""

from __future__ import annotations

import asyncio
import pprint
import random
from ast import literal_eval
from dataclasses import replace

import pytest

from ai4s.jobq.definition.model import DepPolicy, Task, WorkflowDefinition
from ai4s.jobq.errors import MessageLostError
from ai4s.jobq.ports.queue import OutgoingMessage
from tests.model import virtual_time
from tests.model.cloud import Cloud
from tests.model.mutations import MUTATIONS
from tests.model.reference import TaskResult, expected, policy
from tests.model.scenario import KINDS, Scenario, draw, from_literal
from tests.model.shrink import shrunk
from tests.model.simulation import Verdict, run


def test_a_seed_takes_the_same_course_every_time() -> None:
    scenario = replace(draw(3), fault_rate=0.08, fault_kinds=list(KINDS))

    first, second = run(scenario, trace=True), run(scenario, trace=True)

    assert first.injected
    assert first.trace == second.trace


def test_a_script_of_injected_faults_repeats_the_drawn_schedule() -> None:
    drawn = run(replace(draw(3), fault_rate=0.08, fault_kinds=list(KINDS)), trace=True)

    scripted = run(replace(drawn.scenario, faults=drawn.injected), trace=True)

    assert scripted.trace == drawn.trace


def test_every_kind_of_fault_is_injected() -> None:
    injected = set()
    for seed in range(60):
        scenario = replace(draw(seed), fault_rate=0.1, fault_kinds=list(KINDS), most_faults=40)
        injected |= {fault.kind for fault in run(scenario).injected}

    assert injected == set(KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_a_scenario_survives_being_written_down(seed: int) -> None:
    scenario = draw(seed)

    assert from_literal(literal_eval(pprint.pformat(scenario.literal()))) == scenario


def test_time_passes_only_when_nothing_can_run() -> None:
    loop = virtual_time.VirtualLoop()

    async def main() -> list[float]:
        times = []
        for pause_s in (3600.0, 0.0, 0.5):
            await asyncio.sleep(pause_s)
            times.append(loop.time())
        return times

    assert virtual_time.run(main(), loop) == [3600.0, 3600.0, 3600.5]


def test_a_program_in_which_nothing_can_happen_any_more_is_stopped() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(virtual_time.Stuck):
        virtual_time.run(main(), virtual_time.VirtualLoop())


def test_a_message_that_was_not_settled_in_time_comes_back() -> None:
    loop = virtual_time.VirtualLoop()

    async def main() -> None:
        cloud = Cloud(loop, random.Random(1), page=10, deduplicates=False)
        cloud.send("cpu-a", [OutgoingMessage(body="{}", message_id="m")])
        (first,) = cloud.receive("cpu-a", 5, 30.0, "worker")
        assert cloud.receive("cpu-a", 5, 30.0, "worker") == []

        await asyncio.sleep(30.0)
        (second,) = cloud.receive("cpu-a", 5, 30.0, "worker")

        assert second.delivery_count == 2
        with pytest.raises(MessageLostError):
            cloud.complete("cpu-a", first, "worker")

    virtual_time.run(main(), loop)


def test_shrinking_keeps_only_what_a_failure_needs() -> None:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == "lost replies taken for conflicts")

    with mutation.applied():
        verdict = _first_failure(mutation.focus)
        scenario = shrunk(verdict, most_runs=200)
        problems = run(scenario).problems

    assert problems
    assert scenario.faults is not None
    assert len(scenario.faults) == 1
    assert [fault.kind for fault in scenario.faults] == ["repeated"]


def _first_failure(focus: object) -> Verdict:
    assert isinstance(focus, dict)
    verdicts = (run(replace(draw(seed), **focus)) for seed in range(300))
    return next(verdict for verdict in verdicts if verdict.problems)


# -- the reference

STATES = {"s": "completed", "f": "failed", "o": "pending"}


@pytest.mark.parametrize(
    ("parents", "verdicts"),
    [  # all, any, 1, 2, 3, all_settled: run, upstream (failed) or wait
        ("ooo", "wwwwww"),
        ("foo", "uwwwuw"),
        ("ffo", "uwwuuw"),
        ("fff", "uuuuuu"),
        ("soo", "wrrwww"),
        ("sfo", "urrwuw"),
        ("sff", "urruur"),
        ("sso", "wrrrww"),
        ("ssf", "urrrur"),
        ("sss", "rrrrrr"),
    ],
)
def test_the_reference_has_the_documented_policies(parents: str, verdicts: str) -> None:
    states = {f"p{number}": STATES[letter] for number, letter in enumerate(parents)}
    policies = (DepPolicy.ALL, DepPolicy.ANY, 1, 2, 3, DepPolicy.ALL_SETTLED)

    found = [policy(Task(name="t", depends_on=tuple(states), dep_policy=one), states)[0] for one in policies]

    assert "".join(found) == verdicts


def test_the_reference_keeps_what_completed_before_a_retry() -> None:
    definition = WorkflowDefinition(name="w", tasks=(Task(name="a"), Task(name="b", depends_on=("a",))))

    end = expected(definition, lambda name: TaskResult(succeeds=name != "a"), {"a": 7}, {})

    assert end.states == {"a": "completed", "b": "completed"}
    assert end.result == "completed"


def test_a_scenario_without_faults_injects_none() -> None:
    scenario = Scenario(seed=1, plans=draw(1).plans, machines=draw(1).machines)

    assert run(scenario).injected == []
