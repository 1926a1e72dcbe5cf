"""The outbox of one workflow: task messages that are decided and stored, and how they get onto their queues.

Sent after the commit that decided them, removed from the header by a later one. Whoever committed an entry sends it; when
another coordinator finds it in a header, its owner is dead, and the message may exist already: then, as after a send
whose result is unknown, ``recheck`` has to be stored first, which makes workers look at the task's row before they run it.

A queue in trouble is left alone for a while, longer each time, and the other queues go on.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ai4s.jobq.engine.events import Cause, TaskFailed
from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import JobKind, TaskState
from ai4s.jobq.errors import AccessDeniedError, MessageTooLargeError, NothingSentError, StorageUnavailableError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.commit import MAX_OUTBOX
from ai4s.jobq.store.layout import job_number, task_queue
from ai4s.jobq.store.records import Header, OutboxEntry
from ai4s.jobq.store.wire import MAX_KWARGS_BYTES, ParentState, TaskMessage, encode_task
from ai4s.jobq.store.workflows import LoadedRun, WorkflowStore

LOG = logging.getLogger(__name__)

MAX_OF_ONE_QUEUE = MAX_OUTBOX * 2 // 3  # entries, where a workflow uses several: one in trouble leaves room to others
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0  # between tries of a queue in trouble

_LETTERS = {
    TaskState.SKIPPED: ParentState.SKIPPED,
    TaskState.FAILED: ParentState.FAILED,
    TaskState.UPSTREAM_FAILED: ParentState.UPSTREAM_FAILED,
    TaskState.CANCELLED: ParentState.CANCELLED,
}


@dataclass(slots=True)
class Trouble:
    """A queue that could not be reached: when (monotonic) it is tried again, and the pause after that."""

    until: float
    next_pause_s: float


@dataclass(slots=True)
class Outbox:
    """What one coordinator still has to send for one workflow."""

    store: WorkflowStore
    owner: str
    unsent: list[OutboxEntry]
    doubtful: bool = False
    """Whether an unsent message may exist already."""
    _sent: set[tuple[str, int]] = field(default_factory=set)
    _run: str = ""
    _troubles: dict[str, Trouble] = field(default_factory=dict)

    def adopt(self, header: Header) -> None:
        """Take over what a freshly read header holds and we have not sent."""
        if header.run != self._run:
            self._sent, self._run = set(), header.run
        unsent = [entry for entry in header.outbox if (entry.row, entry.attempt) not in self._sent]
        self.doubtful = self.doubtful or any(entry.owner != self.owner for entry in unsent)
        self.unsent = [replace(entry, owner=self.owner) for entry in unsent]

    def committed(self, header: Header) -> None:
        """A commit was stored; its outbox is what has to be sent."""
        self.unsent = list(header.outbox)
        self._sent = set()

    def distrust(self) -> None:
        """Take nothing for sent that a header still lists: what became of it was forgotten."""
        self._sent, self.doubtful = set(), True

    def prune(self, run: WorkflowRun) -> None:
        """Drop what needs no sending any more: attempts that are over, or that a stop overtook."""
        self.unsent = [entry for entry in self.unsent if _is_wanted(run, entry)]

    def is_stored_by(self, header: Header) -> bool:
        """Whether the header lists exactly what is unsent, so that nothing has to be cleared from it."""
        return len(header.outbox) == len(self.unsent)

    def room(self, run: WorkflowRun, now: float) -> dict[str, int]:
        """How many more tasks may be dispatched to each queue, by the definition's name of it."""
        names = run.graph.queue_names
        most = MAX_OUTBOX if len(names) == 1 else MAX_OF_ONE_QUEUE
        taken = Counter(_queue_of(run, entry) for entry in self.unsent)
        for queue in [queue for queue in self._troubles if not taken[queue] and not self._is_in_trouble(queue, now)]:
            del self._troubles[queue]  # nothing is left to try again
        return {queue: 0 if self._is_in_trouble(queue, now) else max(most - taken[queue], 0) for queue in names}

    @property
    def next_try_at(self) -> float:
        """When (monotonic) a queue in trouble may be tried again; infinity when there is none."""
        return min((trouble.until for trouble in self._troubles.values()), default=inf)

    async def send(self, loaded: LoadedRun, now: float) -> list[TaskFailed]:
        """Send what is unsent, queue by queue; permanent refusals as events for the engine.

        What is not known to be sent stays in ``unsent`` and is ``doubtful`` from then on; its queue is in trouble.
        """
        failures: list[TaskFailed] = []
        for queue, entries in self._by_queue(loaded).items():
            if self._is_in_trouble(queue, now):
                continue
            try:
                failures += await self._send_to(queue, entries, loaded)
            except (StorageUnavailableError, AccessDeniedError) as exc:  # an identity may be refused for a while
                self._note_trouble(queue, exc, now, loaded.workflow_id)
                continue
            self._troubles.pop(queue, None)
            self._done(entries)
        return failures

    async def _send_to(self, queue: str, entries: Sequence[OutboxEntry], loaded: LoadedRun) -> list[TaskFailed]:
        """Send these; those that the queue refuses for good as events. One that is too large takes no other with it."""
        graph, header = loaded.run.graph, loaded.header
        name = task_queue(queue, private=header.private, run=header.run, queues=graph.queue_names)
        messages = [task_message(self.store.name, loaded, entry) for entry in entries]
        try:
            await self.store.services.queue(name).send(
                [OutgoingMessage(body=encode_task(message), message_id=message.message_id) for message in messages]
            )
        except MessageTooLargeError as exc:
            if len(entries) == 1:
                return [_refused(loaded, entries[0], exc)]
            return [failure for entry in entries for failure in await self._send_to(queue, [entry], loaded)]
        except NothingSentError as exc:
            self.doubtful = True  # a service without batches may have taken some before it changed its mind
            return [_refused(loaded, entry, exc) for entry in entries]
        return []

    def _by_queue(self, loaded: LoadedRun) -> dict[str, list[OutboxEntry]]:
        groups: defaultdict[str, list[OutboxEntry]] = defaultdict(list)
        for entry in self.unsent:
            groups[_queue_of(loaded.run, entry)].append(entry)
        return groups

    def _note_trouble(self, queue: str, exc: Exception, now: float, workflow_id: str) -> None:
        self.doubtful = True
        pause_s = self._troubles[queue].next_pause_s if queue in self._troubles else FIRST_PAUSE_S
        self._troubles[queue] = Trouble(now + pause_s, min(2 * pause_s, LONGEST_PAUSE_S))
        LOG.warning(
            "Tasks of workflow %s cannot be put on queue %s: %s; next try in %.1f s",
            workflow_id,
            queue,
            exc,
            pause_s,
            extra={"event": "dispatch_held", "workflow_id": workflow_id, "queue": queue},
        )

    def _is_in_trouble(self, queue: str, now: float) -> bool:
        return queue in self._troubles and now < self._troubles[queue].until

    def _done(self, entries: Iterable[OutboxEntry]) -> None:
        self._sent |= {(entry.row, entry.attempt) for entry in entries}
        self.unsent = [entry for entry in self.unsent if (entry.row, entry.attempt) not in self._sent]


def _is_wanted(run: WorkflowRun, entry: OutboxEntry) -> bool:
    job = run.at(job_number(entry.row, len(run.graph)))
    return job is not None and job.state is TaskState.READY and job.attempt == entry.attempt


def _queue_of(run: WorkflowRun, entry: OutboxEntry) -> str:
    return run.graph.queue(job_number(entry.row, len(run.graph)))


def task_message(store: str, loaded: LoadedRun, entry: OutboxEntry) -> TaskMessage:
    """The message that carries one attempt of a task to a worker."""
    graph = loaded.run.graph
    number = job_number(entry.row, len(graph))
    work, kind = graph.work(number), graph.kind(number)
    kwargs = dict(work.kwargs)
    fits = len(json.dumps(kwargs, separators=(",", ":"))) <= MAX_KWARGS_BYTES
    return TaskMessage(
        store=store,
        workflow_id=loaded.workflow_id,
        run=loaded.header.run,
        life=loaded.run.life,
        row=entry.row,
        task_name=graph.name(number),
        attempt=entry.attempt,
        kind=kind,
        timeout_s=graph.definition.timeout_of(work),
        kwargs=kwargs if fits else None,
        parents=parent_letters(loaded.run, number),
        workflow_status=str(loaded.run.state) if kind is JobKind.HOOK else "",
    )


def parent_letters(run: WorkflowRun, number: int) -> str:
    """The states of a job's parents as a task message carries them; an undo job has one, the task it undoes."""
    return "".join(_letter(run, parent) for parent in run.graph.inputs(number))


def _letter(run: WorkflowRun, number: int) -> str:
    task = run.tasks[number]
    if task.state is TaskState.COMPLETED:
        return ParentState.OUTPUT if task.has_output else ParentState.COMPLETED
    return _LETTERS.get(task.state, ParentState.OPEN)


def _refused(loaded: LoadedRun, entry: OutboxEntry, exc: Exception) -> TaskFailed:
    queue = _queue_of(loaded.run, entry)
    return TaskFailed(
        run=loaded.header.run,
        number=job_number(entry.row, len(loaded.run.graph)),
        life=loaded.run.life,
        attempt=entry.attempt,
        cause=Cause.DISPATCH,
        error=f"the task could not be put on queue {queue!r}: {exc}",
    )
