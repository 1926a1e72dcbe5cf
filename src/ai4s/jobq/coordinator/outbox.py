"""The outbox of one workflow: task messages that are decided and stored, and how they get onto their queues.

Sent after the commit that decided them, removed from the header by a later one. Whoever committed an entry sends it; when
another coordinator finds it in a header, its owner is dead, and the message may exist already: then, as after a send
whose result is unknown, ``recheck`` has to be stored first, which makes workers look at the task's row before they run it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ai4s.jobq.engine.events import Cause, TaskFailed
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.errors import AccessDeniedError, MessageTooLargeError, NothingSentError, StorageUnavailableError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.layout import task_number, task_queue
from ai4s.jobq.store.records import Header, OutboxEntry
from ai4s.jobq.store.wire import MAX_KWARGS_BYTES, ParentState, TaskMessage, encode_task
from ai4s.jobq.store.workflows import LoadedRun, WorkflowStore

_LETTERS = {
    TaskState.SKIPPED: ParentState.SKIPPED,
    TaskState.FAILED: ParentState.FAILED,
    TaskState.UPSTREAM_FAILED: ParentState.UPSTREAM_FAILED,
    TaskState.CANCELLED: ParentState.CANCELLED,
}


@dataclass(slots=True)
class Outbox:
    """What one coordinator still has to send for one workflow."""

    store: WorkflowStore
    owner: str
    unsent: list[OutboxEntry]
    doubtful: bool = False
    """Whether an unsent message may exist already."""
    _sent: frozenset[OutboxEntry] = frozenset()

    def adopt(self, header: Header) -> None:
        """Take over what a freshly read header holds and we have not sent."""
        self.unsent = [replace(entry, owner=self.owner) for entry in header.outbox if entry not in self._sent]
        self.doubtful = self.doubtful or any(entry.owner != self.owner for entry in header.outbox)

    def committed(self, header: Header) -> None:
        """A commit was stored; its outbox is what has to be sent."""
        self.unsent = list(header.outbox)
        self._sent = frozenset()

    def is_stored_by(self, header: Header) -> bool:
        """Whether the header lists exactly what is unsent, so that nothing has to be cleared from it."""
        return len(header.outbox) == len(self.unsent)

    async def send(self, loaded: LoadedRun) -> list[TaskFailed]:
        """Send what is unsent, all queues side by side; permanent refusals as events for the engine.

        Raises ``StorageUnavailableError`` when a queue could not be reached, after the others were served; what is not
        known to be sent stays in ``unsent`` and is ``doubtful`` from then on.
        """
        failures: list[TaskFailed] = []
        trouble: StorageUnavailableError | None = None
        for queue, entries in self._by_queue(loaded).items():
            try:
                await self._send_to(queue, entries, loaded)
            except StorageUnavailableError as exc:
                trouble, self.doubtful = exc, True
                continue
            except (AccessDeniedError, NothingSentError, MessageTooLargeError) as exc:
                failures += [_refused(loaded, entry, exc) for entry in entries]
            self._done(entries)
        if trouble is not None:
            raise trouble
        return failures

    def _by_queue(self, loaded: LoadedRun) -> dict[str, list[OutboxEntry]]:
        graph, header = loaded.run.graph, loaded.header
        groups: defaultdict[str, list[OutboxEntry]] = defaultdict(list)
        for entry in self.unsent:
            queue = graph.queues[task_number(entry.row)]
            groups[task_queue(queue, private=header.private, run=header.run, queues=graph.queue_names)].append(entry)
        return groups

    async def _send_to(self, queue: str, entries: Sequence[OutboxEntry], loaded: LoadedRun) -> None:
        messages = [task_message(self.store.name, loaded, entry) for entry in entries]
        await self.store.services.queue(queue).send(
            [OutgoingMessage(body=encode_task(message), message_id=message.message_id) for message in messages]
        )

    def _done(self, entries: Sequence[OutboxEntry]) -> None:
        done = frozenset(entries)
        self._sent |= done
        self.unsent = [entry for entry in self.unsent if entry not in done]


def task_message(store: str, loaded: LoadedRun, entry: OutboxEntry) -> TaskMessage:
    """The message that carries one attempt of a task to a worker."""
    number = task_number(entry.row)
    definition = loaded.run.graph.definition
    task = definition.tasks[number]
    kwargs = dict(task.kwargs)
    fits = len(json.dumps(kwargs, separators=(",", ":"))) <= MAX_KWARGS_BYTES
    return TaskMessage(
        store=store,
        workflow_id=loaded.workflow_id,
        run=loaded.header.run,
        life=loaded.run.life,
        row=entry.row,
        task_name=task.name,
        attempt=entry.attempt,
        timeout_s=definition.timeout_of(task),
        kwargs=kwargs if fits else None,
        parents=parent_letters(loaded.run, number),
    )


def parent_letters(run: WorkflowRun, number: int) -> str:
    """The states of a task's parents as a task message carries them."""
    return "".join(_letter(run, parent) for parent in run.graph.parents[number])


def _letter(run: WorkflowRun, number: int) -> str:
    task = run.tasks[number]
    if task.state is TaskState.COMPLETED:
        return ParentState.OUTPUT if task.has_output else ParentState.COMPLETED
    return _LETTERS.get(task.state, ParentState.OPEN)


def _refused(loaded: LoadedRun, entry: OutboxEntry, exc: Exception) -> TaskFailed:
    queue = loaded.run.graph.queues[task_number(entry.row)]
    return TaskFailed(
        run=loaded.header.run,
        number=task_number(entry.row),
        life=loaded.run.life,
        attempt=entry.attempt,
        cause=Cause.DISPATCH,
        error=f"the task could not be put on queue {queue!r}: {exc}",
    )
