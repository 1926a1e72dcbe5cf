"""Bugs that the model check found, or that were seen while it was built: one test each, as small as it can be."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.engine.decide import GHOST_GRACE, decide
from ai4s.jobq.engine.events import Room
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.store.records import TaskRecord
from ai4s.jobq.store.wire import TaskMessage
from ai4s.jobq.worker.assignment import Assignment, Ending
from ai4s.jobq.worker.precheck import is_past
from ai4s.jobq.worker.slots import Slots
from tests.model.virtual_time import EPOCH

if TYPE_CHECKING:
    from ai4s.jobq.worker.heartbeat import Heartbeat
    from ai4s.jobq.worker.lease import Lease


class _Nobody:
    """Stands for a heartbeat that need not beat, and for a lease that is lost to nobody."""

    lost = False

    def hold(self, lease: object) -> None:
        pass

    def release(self, lease: object) -> None:
        pass


async def test_a_worker_that_is_killed_before_a_message_was_looked_at_frees_its_slot() -> None:
    endings: list[Ending] = []

    def on_end(assignment: Assignment | None, ending: Ending) -> None:
        endings.append(ending)

    async def work() -> Ending:
        await asyncio.sleep(3600)
        return Ending.SUCCEEDED

    slots = Slots(1, heartbeat=cast("Heartbeat", _Nobody()), on_end=on_end)
    slots.start(cast("Lease", _Nobody()), work())

    slots.kill()  # in the same turn of the event loop, as a signal handler does
    for _ in range(5):
        await asyncio.sleep(0)

    assert slots.empty
    assert endings == [Ending.LOST]


def test_a_cancel_from_a_machine_whose_clock_is_ahead_does_not_delay_the_end() -> None:
    definition = WorkflowDefinition(name="one", tasks=(Task(name="a"),))
    ghost = TaskRun(number=0, stored=TaskState.READY, attempt=1)
    run = WorkflowRun(
        Graph(definition),
        run="r",
        state=WorkflowState.CANCELLED,
        stop=Stop.HALT,
        stopped_at=EPOCH + timedelta(hours=1),
        tasks=[ghost],
    )

    first = decide(run, [], now=EPOCH, room=Room(queues={}, dispatches=0))
    decide(run, [], now=EPOCH + GHOST_GRACE, room=Room(queues={}, dispatches=0))

    assert first.wake_at == EPOCH + GHOST_GRACE
    assert run.ended_at == EPOCH + GHOST_GRACE


def test_a_second_message_of_an_attempt_that_ended_and_waits_for_the_next_is_forgotten() -> None:
    task = TaskMessage(store="s", workflow_id="w", run="r", life=1, row="t000000", task_name="a", attempt=1)
    waiting = TaskRecord(run=TaskRun(number=0, stored=TaskState.PENDING, attempt=1, charged=1), life=1)

    assert is_past(task, waiting)
