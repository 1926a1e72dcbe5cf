"""From a received message to the work it means; decides for whom a message is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.queue import Message, Queue
from ai4s.jobq.store.wire import PlainJob, TaskMessage, decode_queue_message
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import Ending, JobAssignment, TaskAssignment, new_execution
from ai4s.jobq.worker.lease import Lease
from ai4s.jobq.worker.patience import Patience
from ai4s.jobq.worker.plain import JobRunner
from ai4s.jobq.worker.precheck import HeaderReads
from ai4s.jobq.worker.scratch import Scratch
from ai4s.jobq.worker.slots import NEWER_VERSION_S, Slots
from ai4s.jobq.worker.tasks import TaskRunner

NOT_OURS_S = 60.0  # long enough not to take it again at once, short enough for the worker it is for


class Intake:
    """Puts received messages to work. ``store`` and ``tasks`` are None in a plain worker."""

    def __init__(
        self,
        queue: Queue,
        *,
        slots: Slots,
        scratch: Scratch,
        patience: Patience,
        jobs: JobRunner,
        store: WorkflowStore | None = None,
        tasks: TaskRunner | None = None,
        on_taken: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._scratch = scratch
        self._patience = patience
        self._jobs = jobs
        self._store = store
        self._tasks = tasks
        self._on_taken = on_taken

    def take(self, messages: Sequence[Message], *, leased_at: float) -> None:
        """Start working on the messages of one receive, which began at ``leased_at``. Calls ``on_taken`` then."""
        headers = None if self._store is None else HeaderReads(self._store)
        for message in messages:
            self._take(self._lease(message, leased_at), headers)
        self._on_taken()

    def _lease(self, message: Message, leased_at: float) -> Lease:
        lease = Lease(
            message,
            queue=self._queue,
            leased_at=leased_at,
            patience=self._patience,
            on_lost=lambda: self._slots.drop(lease),
        )
        return lease

    def _take(self, lease: Lease, headers: HeaderReads | None) -> None:
        try:
            work = decode_queue_message(lease.message.body)
        except NewerVersionError as exc:
            self._slots.warn_once("newer_version", "Left a message for a newer release: %s", exc)
            self._slots.start(lease, _give_back(lease, delay_s=NEWER_VERSION_S))
        except CorruptRecordError as exc:
            self._slots.start(lease, _set_aside(lease, str(exc)))
        else:
            if isinstance(work, PlainJob):
                job = JobAssignment(work, lease)
                self._slots.start(lease, self._jobs.run(job), job)
            else:
                self._take_task(lease, work, headers)

    def _take_task(self, lease: Lease, task: TaskMessage, headers: HeaderReads | None) -> None:
        if self._tasks is None or self._store is None or headers is None or task.store != self._store.name:
            self._refuse(lease, task)
            return
        execution = new_execution(task)
        files = self._scratch.files(f"{task.row}-{execution}")
        assignment = TaskAssignment(task, lease, files, execution)
        self._slots.start(lease, self._tasks.run(assignment, headers), assignment)

    def _refuse(self, lease: Lease, task: TaskMessage) -> None:
        """A task of another store, or any task at a plain worker, goes back unharmed."""
        ours = "a plain worker (JOBQ_WORKFLOW_PREFIX is not set)" if self._store is None else self._store.name
        self._slots.warn_once(
            "foreign_task",
            "Queue %s has tasks of %s, and this worker serves %s. They are given back. Start a worker for them with "
            "JOBQ_WORKFLOW_PREFIX=%s",
            self._queue.name,
            task.store,
            ours,
            task.store,
        )
        self._slots.start(lease, _give_back(lease, delay_s=NOT_OURS_S))


async def _give_back(lease: Lease, *, delay_s: float) -> Ending:
    await lease.give_back(delay_s=delay_s)
    return Ending.GIVEN_BACK


async def _set_aside(lease: Lease, reason: str) -> Ending:
    await lease.set_aside(reason)
    return Ending.DROPPED
