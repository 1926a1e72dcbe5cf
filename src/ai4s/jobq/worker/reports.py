"""Posts reports to the coordinator; those of one run that end close together share a message.

There is no timer: while a send is under way, what comes in waits and goes with the next one. A single report goes at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial

from ai4s.jobq.errors import MessageTooLargeError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES
from ai4s.jobq.ports.queue import OutgoingMessage, Queue
from ai4s.jobq.store.wire import (
    MAX_REPORT_BYTES,
    Cause,
    CompletionMessage,
    Outcome,
    Report,
    TaskMessage,
    encode_completion,
)
from ai4s.jobq.worker.patience import Patience

FRAME_BYTES = 512  # of a report without its texts, and of the message around it


@dataclass(frozen=True, slots=True)
class _Waiting:
    report: Report
    posted: asyncio.Future[None]


class Reporter:
    """Sends reports to one completion queue, keeping their order per run."""

    def __init__(self, queue: Queue, *, patience: Patience) -> None:
        self._queue = queue
        self._patience = patience
        self._waiting: dict[CompletionMessage, list[_Waiting]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    def post(self, task: TaskMessage, report: Report) -> asyncio.Future[None]:
        """Send a report; the future is done when it is on the queue. Cancelling the future takes the report back."""
        posted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        address = CompletionMessage(store=task.store, workflow_id=task.workflow_id, run=task.run)
        waiting = self._waiting.get(address)
        if waiting is None:
            self._waiting[address] = [_Waiting(report, posted)]
            self._start(self._send_all(address))
        else:
            waiting.append(_Waiting(report, posted))
        return posted

    async def close(self) -> None:
        """Give up what is still unsent."""
        for sender in tuple(self._senders):
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    def _start(self, sending: Coroutine[None, None, None]) -> None:
        sender = asyncio.create_task(sending)
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_all(self, address: CompletionMessage) -> None:
        """Send until nothing of this run waits."""
        waiting = self._waiting[address]
        try:
            while batch := self._next_batch(waiting):
                await self._patience.until_done("post reports", partial(self._send, address, batch))
                del waiting[: len(batch)]
                for entry in batch:
                    if not entry.posted.done():
                        entry.posted.set_result(None)
        except Exception as exc:  # a bug; those who wait are told, and give their messages back
            for entry in waiting:
                if not entry.posted.done():
                    entry.posted.set_exception(exc)
        finally:
            del self._waiting[address]

    def _next_batch(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """The reports, from the oldest, that fit one message; those taken back are dropped."""
        waiting[:] = [entry for entry in waiting if not entry.posted.cancelled()]
        size, batch = 0, list[_Waiting]()
        for entry in waiting:
            size += report_bytes(entry.report)
            if batch and size > MAX_REPORT_BYTES:
                break
            batch.append(entry)
        return batch

    async def _send(self, address: CompletionMessage, batch: list[_Waiting]) -> None:
        reports = tuple(entry.report for entry in batch if not entry.posted.cancelled())
        if not reports:
            return
        body = encode_completion(replace(address, reports=reports))
        try:
            await self._queue.send([OutgoingMessage(body=body, message_id=new_nonce() + new_nonce())])
        except MessageTooLargeError:
            bodies = [_fitting(address, report) for report in reports]
            await self._queue.send(
                [OutgoingMessage(body=body, message_id=new_nonce() + new_nonce()) for body in bodies]
            )


def report_bytes(report: Report) -> int:
    """At most what a report adds to a message before it is deflated."""
    texts = (report.error, report.output if isinstance(report.output, str) else None)
    return FRAME_BYTES + sum(len(json.dumps(text)) for text in texts if text)


def _fitting(address: CompletionMessage, report: Report) -> str:
    """The report in a message of its own. An output that does not fit even there fails its attempt, and says so."""
    body = encode_completion(replace(address, reports=(report,)))
    if len(body) <= MAX_MESSAGE_BYTES:
        return body
    failure = replace(
        report,
        outcome=Outcome.FAILED,
        cause=Cause.EXIT,
        output=None,
        error="the output does not fit a queue message, though it is small: it cannot be compressed. "
        "Write it to a file and output its path.",
    )
    return encode_completion(replace(address, reports=(failure,)))
