"""Reports on their way to the completion queue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from ai4s.jobq.errors import NothingSentError, StorageUnavailableError
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.store.wire import Outcome, Report, TaskMessage, decode_completion
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.reports import Reporter
from tests.worker.memory_queue import MemoryQueue


def task(workflow_id: str = "w") -> TaskMessage:
    return TaskMessage(
        store="local/Proj", workflow_id=workflow_id, run="r", life=1, row="t000000", task_name="t", attempt=1
    )


def report(number: int, *, output: str | None = None) -> Report:
    return Report(row=f"t{number:06d}", life=1, attempt=1, execution="1-a", outcome=Outcome.SUCCEEDED, output=output)


class SlowQueue(MemoryQueue):
    """A queue whose sends wait for ``open``."""

    def __init__(self) -> None:
        super().__init__("completions")
        self.open = asyncio.Event()

    async def send(self, messages: Sequence[OutgoingMessage]) -> None:
        await self.open.wait()
        await super().send(messages)

    def rows(self) -> list[list[str]]:
        return [[report.row for report in decode_completion(sent.body).reports] for sent in self.sent]


@pytest.fixture
def queue() -> SlowQueue:
    return SlowQueue()


@pytest.fixture
def reporter(queue: SlowQueue) -> Reporter:
    return Reporter(queue, patience=Patience(SystemClock()))


async def test_the_first_report_goes_alone_and_those_that_wait_share_the_next(
    reporter: Reporter, queue: SlowQueue
) -> None:
    first = reporter.post(task(), report(0))
    await asyncio.sleep(0)
    others = [reporter.post(task(), report(number)) for number in range(1, 5)]

    queue.open.set()
    await asyncio.gather(first, *others)

    assert queue.rows() == [["t000000"], ["t000001", "t000002", "t000003", "t000004"]]


async def test_reports_of_two_workflows_never_share_a_message(reporter: Reporter, queue: SlowQueue) -> None:
    queue.open.set()

    await asyncio.gather(*(reporter.post(task(workflow_id), report(0)) for workflow_id in ("a", "b")))

    assert [decode_completion(sent.body).workflow_id for sent in queue.sent] == ["a", "b"]


async def test_a_report_that_was_taken_back_is_not_sent(reporter: Reporter, queue: SlowQueue) -> None:
    first = reporter.post(task(), report(0))
    await asyncio.sleep(0)
    taken_back, last = reporter.post(task(), report(1)), reporter.post(task(), report(2))

    taken_back.cancel()
    queue.open.set()
    await asyncio.gather(first, last)

    assert queue.rows() == [["t000000"], ["t000002"]]


@pytest.mark.parametrize("alphabet", ["abcdefghijklmnop", "éàüöß", "語彙列挙", "🚀🛰🌍", "\"\\\n\t'"])
async def test_every_output_that_travels_inline_fits_a_message(
    reporter: Reporter, queue: SlowQueue, alphabet: str
) -> None:
    queue.open.set()
    text = "".join(random.Random(1).choices(alphabet, k=32 * 1024 // len(alphabet[0].encode())))

    await asyncio.gather(*(reporter.post(task(), report(number, output=text)) for number in range(3)))

    assert all(len(sent.body) <= MAX_MESSAGE_BYTES for sent in queue.sent)
    assert [found.output for sent in queue.sent for found in decode_completion(sent.body).reports] == [text] * 3


async def test_many_reports_are_spread_over_messages_that_fit(reporter: Reporter, queue: SlowQueue) -> None:
    posted = [reporter.post(task(), report(number, output='"' + "x" * 5000 + '"')) for number in range(40)]

    queue.open.set()
    await asyncio.gather(*posted)

    assert all(len(sent.body) <= MAX_MESSAGE_BYTES for sent in queue.sent)
    assert sorted(row for rows in queue.rows() for row in rows) == [f"t{number:06d}" for number in range(40)]


@pytest.mark.parametrize("failure", [StorageUnavailableError("down"), NothingSentError("no such queue")])
async def test_a_send_that_fails_is_tried_again_with_one_warning(
    reporter: Reporter, queue: SlowQueue, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([failure, failure])

    def fail(operation: str, message: Message | None) -> None:
        for error in failures:
            raise error

    queue.fault = fail
    queue.open.set()
    await reporter.post(task(), report(0))

    assert queue.rows() == [["t000000"]]
    assert len(caplog.records) == 1


async def test_a_bug_while_sending_reaches_those_who_wait(reporter: Reporter, queue: SlowQueue) -> None:
    def fail(operation: str, message: Message | None) -> None:
        raise ZeroDivisionError

    queue.fault = fail
    queue.open.set()

    with pytest.raises(ZeroDivisionError):
        await reporter.post(task(), report(0))


async def test_closing_gives_up_what_is_unsent(reporter: Reporter, queue: SlowQueue) -> None:
    reporter.post(task(), report(0))

    await reporter.close()

    assert queue.sent == []
