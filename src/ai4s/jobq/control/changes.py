"""Changes of a header by a client: tried again when somebody else was quicker, and made known to the coordinator.

A change that meets another writer is decided anew from what that writer left.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ai4s.jobq.errors import AccessDeniedError, OperationalError, StaleWriteError, StorageUnavailableError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import private_completion_queue
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import CompletionMessage, encode_completion
from ai4s.jobq.store.workflows import WorkflowStore

MAX_CONFLICTS = 20  # in a row; somebody else writing this often is a fault, not a race

T = TypeVar("T")


async def again_when_stale(workflow_id: str, change: Callable[[], Awaitable[T]]) -> T:
    """What the change answers, made anew where it raises ``StaleWriteError``; ``OperationalError`` after too many times."""
    for attempt in range(MAX_CONFLICTS):
        try:
            return await change()
        except StaleWriteError:
            await asyncio.sleep(random.uniform(0, 0.02 * 2 ** min(attempt, 6)))
    raise OperationalError(
        f"Workflow {workflow_id!r} was changed by others {MAX_CONFLICTS} times in a row. Nothing was done; try again."
    )


async def announce(store: WorkflowStore, header: Header) -> None:
    """Let ``list`` and the coordinator know of a header that was written."""
    if await store.index.get(header.workflow_id) is not None:
        await store.index.refresh(index_record(header))
    await store.index.poke(header.workflow_id)
    await store.hint(header)
    if header.private:
        await _hint_owner(store, header)


async def _hint_owner(store: WorkflowStore, header: Header) -> None:
    """Have the process look that runs a private workflow: no sweep does."""
    hint = CompletionMessage(store=store.name, workflow_id=header.workflow_id, run=header.run)
    queue = store.services.queue(private_completion_queue(header.run))
    with contextlib.suppress(StorageUnavailableError, AccessDeniedError):  # its next report makes it look as well
        await queue.send([OutgoingMessage(body=encode_completion(hint), message_id=new_nonce())])
