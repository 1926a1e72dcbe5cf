"""The outbox of one coordinator: what it sends, what it takes for sent, and how long it leaves a queue in trouble alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai4s.jobq.coordinator.outbox import LONGEST_PAUSE_S, MAX_OF_ONE_QUEUE, Outbox
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import CancelRequested, Cause, Room, TaskFailed, TaskSucceeded
from ai4s.jobq.errors import NothingSentError, StorageUnavailableError
from ai4s.jobq.store.commit import MAX_OUTBOX, commit
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import OutboxEntry
from ai4s.jobq.store.workflows import LoadedRun, WorkflowStore
from tests.coordinator.stage import Stage
from tests.support.faults import Faults
from tests.support.small import many, workflow

TWO_QUEUES = {"x": {"queue": "queue-x"}, "y": {"queue": "queue-y"}}


class Sender:
    """An outbox on a store with faults, and a run whose tasks have just been dispatched by ``owner``."""

    def __init__(self, stage: Stage, loaded: LoadedRun, faults: Faults) -> None:
        self.stage = stage
        self.loaded = loaded
        self.faults = faults
        self.store: WorkflowStore = stage.store_with(faults)
        self.outbox = self.new_outbox("me")

    def new_outbox(self, owner: str) -> Outbox:
        outbox = Outbox(self.store, owner, [])
        outbox.adopt(self.loaded.header)
        return outbox

    async def send(self, now: float) -> list[TaskFailed]:
        return await self.outbox.send(self.loaded, now)


async def dispatched(stage: Stage, *, owner: str = "me") -> Sender:
    await stage.submit(workflow({"x": [], "y": []}, changes=TWO_QUEUES), "w")
    loaded = await stage.store.load("w")
    assert loaded is not None
    now = stage.clock.now()
    decision = decide(loaded.run, [], now=now, room=Room(queues={"queue-x": 9, "queue-y": 9}, dispatches=9))
    await commit(stage.store.table, loaded, decision, now=now, outbox=(), owner=owner)
    return Sender(stage, loaded, Faults())


def rows(outbox: Outbox) -> list[str]:
    return [entry.row for entry in outbox.unsent]


async def test_what_was_sent_is_not_sent_again_after_a_reload(stage: Stage) -> None:
    sender = await dispatched(stage)
    await sender.send(0)
    sender.outbox.adopt(sender.loaded.header)

    assert sender.outbox.unsent == []


async def test_what_was_taken_over_and_sent_is_not_sent_again_after_a_reload(stage: Stage) -> None:
    """The header still names the dead owner, for nothing was committed since."""
    sender = await dispatched(stage, owner="dead")
    assert sender.outbox.doubtful
    await sender.send(0)
    sender.outbox.adopt(sender.loaded.header)

    assert sender.outbox.unsent == []


async def test_ones_own_entries_are_not_in_doubt(stage: Stage) -> None:
    sender = await dispatched(stage)

    assert not sender.outbox.doubtful


async def test_entries_of_another_submission_were_not_sent(stage: Stage) -> None:
    sender = await dispatched(stage)
    await sender.send(0)
    sender.outbox.adopt(replace(sender.loaded.header, run="0" * 16))

    assert rows(sender.outbox) == [task_row(0), task_row(1)]


async def test_after_distrust_everything_a_header_lists_is_sent_again(stage: Stage) -> None:
    sender = await dispatched(stage)
    await sender.send(0)
    sender.outbox.distrust()
    sender.outbox.adopt(sender.loaded.header)

    assert rows(sender.outbox) == [task_row(0), task_row(1)]
    assert sender.outbox.doubtful


@pytest.mark.parametrize("event", [TaskSucceeded, TaskFailed])
async def test_an_attempt_that_is_over_needs_no_sending(stage: Stage, event: type[TaskSucceeded | TaskFailed]) -> None:
    sender = await dispatched(stage)
    facts = {"run": sender.loaded.header.run, "number": 0, "life": 1, "attempt": 1}
    over = TaskSucceeded(**facts) if event is TaskSucceeded else TaskFailed(cause=Cause.LOST, **facts)  # type: ignore[arg-type]  # one mapping for both
    decide(sender.loaded.run, [over], now=stage.clock.now(), room=Room(queues={"queue-x": 9}, dispatches=9))
    sender.outbox.prune(sender.loaded.run)

    assert rows(sender.outbox) == [task_row(1)]


async def test_a_stop_leaves_nothing_to_send(stage: Stage) -> None:
    sender = await dispatched(stage)
    decide(sender.loaded.run, [CancelRequested()], now=stage.clock.now(), room=Room(queues={}, dispatches=0))
    sender.outbox.prune(sender.loaded.run)

    assert sender.outbox.unsent == []


async def test_a_queue_in_trouble_is_left_alone_longer_each_time(stage: Stage) -> None:
    sender = await dispatched(stage)
    sender.faults.refuse("queue.send", "queue-x", times=10**6)
    now, pauses = 0.0, []
    for _ in range(9):
        await sender.send(now)
        pauses.append(sender.outbox.next_try_at - now)
        now = sender.outbox.next_try_at

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert rows(sender.outbox) == [task_row(0)]


async def test_a_queue_in_trouble_is_not_tried_before_its_time(stage: Stage) -> None:
    sender = await dispatched(stage)
    sender.faults.refuse("queue.send", "queue-x", times=10**6)
    for now in (0.0, 0.1, 0.49):
        await sender.send(now)

    assert sender.faults.count("queue.send", "queue-x") == 1


async def test_nothing_is_dispatched_to_a_queue_in_trouble(stage: Stage) -> None:
    sender = await dispatched(stage)
    sender.faults.refuse("queue.send", "queue-x")
    await sender.send(0)

    assert sender.outbox.room(sender.loaded.run, 0.1) == {"queue-x": 0, "queue-y": MAX_OF_ONE_QUEUE}
    assert sender.outbox.room(sender.loaded.run, 0.5)["queue-x"] > 0


async def test_a_trouble_that_is_over_is_forgotten_when_nothing_is_left_to_send(stage: Stage) -> None:
    """Otherwise a turn would be due at once, again and again."""
    sender = await dispatched(stage)
    sender.faults.refuse("queue.send", "queue-x")
    await sender.send(0)
    sender.outbox.unsent = []
    sender.outbox.room(sender.loaded.run, 1.0)

    assert sender.outbox.next_try_at == float("inf")


async def test_one_queue_alone_may_fill_the_outbox(stage: Stage) -> None:
    await stage.submit(workflow(many(3)), "w")
    loaded = await stage.store.load("w")
    assert loaded is not None

    assert Outbox(stage.store, "me", []).room(loaded.run, 0) == {"default": MAX_OUTBOX}


@pytest.mark.parametrize("error", [NothingSentError("no such queue"), StorageUnavailableError("later")])
async def test_one_queues_refusal_and_anothers_trouble_are_told_apart(stage: Stage, error: Exception) -> None:
    sender = await dispatched(stage)
    sender.faults.refuse("queue.send", "queue-x", error=NothingSentError("no such queue"))
    sender.faults.refuse("queue.send", "queue-y", error=error)

    failures = await sender.send(0)

    permanent = isinstance(error, NothingSentError)
    assert [failure.number for failure in failures] == ([0, 1] if permanent else [0])
    assert sender.outbox.unsent == ([] if permanent else [OutboxEntry(task_row(1), 1, "me")])
