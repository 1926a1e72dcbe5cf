"""A coordinator and a worker finish real work while storage misbehaves.

Each kind of request in turn suffers every fault, longer than the adapter's own patience; then everything at once, by chance.
What must come out: the workflow completes, every command ran after its parents' had ended, every task has one outcome, no
loop has died, and the log stays readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai4s.jobq.engine.states import TaskState, WorkflowState
from tests.proxy.plant import (
    PROMPT,
    Plant,
    check_all_ran_after_their_parents,
    counted_logs,
    diamonds,
    plant,
)
from tests.support.azurite import Azurite
from tests.support.fault_proxy import (
    BROKEN,
    BUSY,
    THROTTLED,
    Answer,
    Fault,
    FaultProxy,
    Garbage,
    Mute,
    ResetAfter,
    ResetBefore,
    Rule,
    Slow,
    Truncated,
)

pytestmark = pytest.mark.azurite

IN_A_ROW = PROMPT.retries + 2  # one more than the adapter tries, so that its callers see the outage
A_FEW = 2
FAULTS: list[tuple[Fault, int]] = [
    (BUSY, IN_A_ROW),
    (ResetAfter(), A_FEW),
    (Garbage(status=404), A_FEW),
    (Answer(429, "TooManyRequests", retry_after="0.1"), A_FEW),
    (THROTTLED, A_FEW),
    (Truncated(), A_FEW),
    (BROKEN, A_FEW),
    (ResetBefore(), A_FEW),
    (Garbage(), A_FEW),
    (Mute(), A_FEW),
    (Garbage(status=403), IN_A_ROW),
    (Slow(0.2), A_FEW),
    (ResetAfter(), IN_A_ROW),
]
IN_BETWEEN = 2  # requests that pass, so that each fault meets a product that had recovered
KINDS = ["table.transact", "table.get", "table.query", "queue.send", "queue.receive", "queue.complete"]
MAY_REPEAT = frozenset({"queue.send", "queue.receive", "queue.complete"})
"""Kinds whose lost answer may cost an attempt its message: it is sent again, or seen again."""
MOST_LOG_LINES = 150


@pytest.mark.parametrize("kind", KINDS)
async def test_work_is_finished_whatever_happens_to_one_kind_of_request(
    kind: str, azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    definition = diamonds(f"q-{unique}")
    async with plant(azurite, proxy, tmp_path, unique) as here:
        await here.coordinator()
        await here.worker(f"q-{unique}")
        with counted_logs() as logged:
            rules = list(_one_after_another(proxy, kind))
            workflow_id = await here.submit(definition)

            assert await here.ended(workflow_id) is WorkflowState.COMPLETED

        await _check(here, workflow_id, definition, once=kind not in MAY_REPEAT)
        assert sum(rule.hits for rule in rules) > IN_A_ROW
        assert logged.total() <= MOST_LOG_LINES
        assert logged["traceback"] == 0


async def test_work_is_finished_whatever_happens_by_chance(
    azurite: Azurite, proxy: FaultProxy, tmp_path: Path, unique: str
) -> None:
    """A fifth of all requests fails, each in one of all ways; two coordinators, two workers."""
    definition = diamonds(f"q-{unique}")
    faults = {fault for fault, _ in FAULTS}
    async with plant(azurite, proxy, tmp_path, unique) as here:
        for number, fault in enumerate(sorted(faults, key=str)):
            proxy.inject("*", fault, share=0.2 / len(faults), seed=number)
        for _ in range(2):
            await here.coordinator()
            await here.worker(f"q-{unique}", slots=2)
        with counted_logs() as logged:
            workflow_id = await here.submit(definition)

            assert await here.ended(workflow_id) is WorkflowState.COMPLETED

        await _check(here, workflow_id, definition, once=False)
        assert proxy.faults.total() > 50
        assert logged.total() <= MOST_LOG_LINES
        assert logged["traceback"] == 0


def _one_after_another(proxy: FaultProxy, kind: str) -> Iterator[Rule]:
    """Every fault a few times in a row, with a pause of some requests before the next one."""
    for fault, times in FAULTS:
        proxy.inject(kind, Slow(0), times=IN_BETWEEN)
        yield proxy.inject(kind, fault, times=times)


async def _check(here: Plant, workflow_id: str, definition: dict[str, object], *, once: bool) -> None:
    """Every command ran, in order; every task has one outcome; ``once``: of its first attempt.

    That attempt may be begun twice: on a slow machine its message comes back before its report is stored.
    """
    here.check_alive()
    check_all_ran_after_their_parents(definition, here.trace)
    tasks = await here.tasks(workflow_id)
    assert Counter(state for state, _ in tasks.values()) == {TaskState.COMPLETED: 40}
    assert not once or {attempt for _, attempt in tasks.values()} == {1}
