"""The plain queue: jobs without a workflow, put on one queue for whichever worker comes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from ai4s.jobq.adapters.factory import open_services
from ai4s.jobq.errors import SettingsError, UsageError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.plain.errors import JobFailedError
from ai4s.jobq.plain.jobs import plain_job
from ai4s.jobq.plain.peeking import PeekedJob, peeked
from ai4s.jobq.plain.pulling import execute_one
from ai4s.jobq.plain.replies import Response, decode_response, reply_queue_name
from ai4s.jobq.ports.queue import OutgoingMessage, Queue
from ai4s.jobq.ports.services import Services
from ai4s.jobq.settings import PLAIN_PREFIX, Target, check_account, default_local_dir, emulator_ports
from ai4s.jobq.store.wire import PlainJob, encode_job
from ai4s.jobq.worker.settings import PLAIN_VISIBILITY_S

SENT_AT_ONCE = 100  # messages handed to the queue together; the adapter sends them in parallel
EMULATOR = "devstoreaccount1"
REPLY_VISIBILITY_S = 60.0
QUICKEST_LOOK_S = 0.1
SLOWEST_LOOK_S = 5.0  # between two looks for a reply

Seconds = timedelta | float


class JobQ:
    """A queue of jobs. Open one with ``from_storage_queue``, ``from_environment`` or ``open``."""

    def __init__(self, services: Services, name: str, *, account: str) -> None:
        self.services = services
        self.name = name
        self.account = account
        self._queue = services.queue(name)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        target: Target,
        name: str,
        *,
        exist_ok: bool = True,
        credential: object | None = None,
    ) -> AsyncIterator[Self]:
        """The queue of this name in a target's account. Raises ``UsageError``: it is there, and ``exist_ok`` is False."""
        async with open_services(target, credential=credential) as services:
            queue = cls(services, name, account=target.account)
            if not exist_ok and await services.queue(name).exists():
                raise UsageError(f"Queue {queue.full_name} exists already. Choose another name, or set exist_ok=True.")
            yield queue

    @classmethod
    @asynccontextmanager
    async def from_storage_queue(
        cls, name: str, *, storage_account: str, credential: object | None = None, exist_ok: bool = True
    ) -> AsyncIterator[Self]:
        """The queue of this name in a storage account; ``local`` is a directory, ``devstoreaccount1`` Azurite.

        Access is by Entra identity, found as ``DefaultAzureCredential`` does, or an async ``credential`` of your own.
        """
        target = _target(check_account(storage_account))
        async with cls.open(target, name, exist_ok=exist_ok, credential=credential) as queue:
            yield queue

    @classmethod
    @asynccontextmanager
    async def from_connection_string(
        cls, name: str, *, connection_string: str, exist_ok: bool = True
    ) -> AsyncIterator[Self]:
        """The queue of this name in Azurite. Raises ``SettingsError``: for any other account, which needs no key."""
        async with cls.open(_emulator(connection_string), name, exist_ok=exist_ok) as queue:
            yield queue

    @classmethod
    @asynccontextmanager
    async def from_environment(cls, exist_ok: bool = True) -> AsyncIterator[Self]:
        """The queue that ``JOBQ_STORAGE`` and ``JOBQ_QUEUE`` name. Raises ``SettingsError``: one of them is not set."""
        account, name = os.environ.get("JOBQ_STORAGE"), os.environ.get("JOBQ_QUEUE")
        if not account or not name:
            raise SettingsError("JOBQ_STORAGE and JOBQ_QUEUE name the account and its queue. Set both.")
        async with cls.open(_target(check_account(account)), name, exist_ok=exist_ok) as queue:
            yield queue

    @property
    def full_name(self) -> str:
        """``account/queue``."""
        return f"{self.account}/{self.name}"

    async def create(self) -> None:
        """Check that the queue can be reached. It comes into being with its first job."""
        await self._queue.exists()

    async def push(
        self,
        kwargs: Mapping[str, Any] | str,
        *,
        num_retries: int = 5,
        reply_requested: bool = False,
        id: str | None = None,
        worker_interface: object | None = None,
    ) -> JobQFuture:
        """Put a job on the queue; a text is a shell command.

        ``id`` None: the same job has the same id, unless ``JOBQ_DETERMINISTIC_IDS`` is off. With ``reply_requested`` the
        worker sends back what became of it, for ``JobQFuture.result``. ``worker_interface`` is not needed.
        """
        wanted = {"cmd": kwargs} if isinstance(kwargs, str) else dict(kwargs)
        job = plain_job(wanted, num_retries, reply_requested=reply_requested, job_id=id)
        await _send(self._queue, [job])
        return JobQFuture(self, job.job_id, reply_requested=reply_requested)

    async def push_many(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        num_retries: int = 0,
        on_sent: Callable[[int], None] = lambda count: None,
    ) -> list[str]:
        """Put jobs on the queue, many at a time; their ids. ``on_sent`` is told how many more were sent.

        A failure on the way may leave some of them sent.
        """
        return await push_jobs(self._queue, jobs, num_retries=num_retries, on_sent=on_sent)

    async def peek(self, n: int = 1, as_json: bool = False) -> list[Any]:
        """The next jobs without taking them, at most 32: as ``PeekedJob``, or as JSON objects without values of ``env``."""
        found: list[PeekedJob] = [peeked(message) for message in await self._queue.peek(n)]
        return [job.to_json() for job in found] if as_json else list(found)

    async def pull_and_execute(
        self,
        callback: Callable[..., Any],
        *,
        visibility_timeout: Seconds = PLAIN_VISIBILITY_S,
        with_heartbeat: bool = False,
        worker_id: str | None = None,
        worker_interface: object | None = None,
    ) -> bool:
        """Take one job and call ``callback`` with its kwargs; whether that worked.

        Parameters named ``_job_id`` and ``_worker_id`` are filled in. A job that raises is retried as often as it may be,
        then set aside. ``with_heartbeat`` keeps the job longer than ``visibility_timeout``.

        Raises: ``EmptyQueue``; ``LockLostError``: somebody else may have the job by now, it was stopped.
        """
        return await execute_one(
            self.services,
            self.name,
            callback,
            visibility_s=seconds(visibility_timeout),
            with_heartbeat=with_heartbeat,
            worker_id=worker_id or "",
        )

    async def get_approximate_size(self) -> int:
        """About how many jobs there are, those in hand included."""
        return await self._queue.approximate_count()

    async def clear(self) -> None:
        """Delete all jobs."""
        await self._queue.clear()

    async def get_result(self, future: JobQFuture | str, *, timeout: Seconds | None = None) -> Response:
        """The reply to a job, given by its future or id. It can be read once. Raises ``TimeoutError``."""
        job_id = future if isinstance(future, str) else future.job_id
        replies = self.services.queue(reply_queue_name(self.name, job_id))
        async with asyncio.timeout(None if timeout is None else seconds(timeout)):
            return await _reply(replies)

    @asynccontextmanager
    async def get_worker_interface(self, **options: object) -> AsyncIterator[Self]:
        """The queue itself: a storage queue needs no connection of its own per worker."""
        yield self


class JobQFuture:
    """A job that was pushed; awaiting it gives its result."""

    def __init__(self, queue: JobQ, job_id: str, *, reply_requested: bool) -> None:
        self.job_id = job_id
        self._queue = queue
        self._reply_requested = reply_requested
        self._response: Response | None = None

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job_id

    async def response(self, timeout: Seconds | None = None) -> Response:
        """What became of the job, once it has ended for good. Raises ``TimeoutError``; ``UsageError``: nobody asked."""
        if not self._reply_requested:
            raise UsageError(f"Job {self.job_id} was pushed without a reply. Push it with reply_requested=True.")
        if self._response is None:
            self._response = await self._queue.get_result(self, timeout=timeout)
        return self._response

    async def result(self, timeout: Seconds | None = None) -> Any:
        """What the job returned. Raises ``JobFailedError``, and as ``response`` does."""
        response = await self.response(timeout)
        if not response.is_success:
            raise JobFailedError(f"Job {self.job_id} failed: {response.body}")
        return response.body

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()


async def push_jobs(
    queue: Queue,
    jobs: Sequence[Mapping[str, Any]],
    *,
    num_retries: int = 0,
    on_sent: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """Put jobs, given as kwargs, on the queue; their ids. The same job pushed twice has the same id.

    A failure on the way may leave some of them sent.
    """
    sent: list[str] = []
    for start in range(0, len(jobs), SENT_AT_ONCE):
        batch = [plain_job(kwargs, num_retries) for kwargs in jobs[start : start + SENT_AT_ONCE]]
        await _send(queue, batch)
        on_sent(len(batch))
        sent += [job.job_id for job in batch]
    return sent


def seconds(time: Seconds) -> float:
    """A length of time in seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else float(time)


async def _send(queue: Queue, jobs: Sequence[PlainJob]) -> None:
    await queue.send(
        [OutgoingMessage(body=encode_job(job), message_id=f"{job.job_id[:64]}-{new_nonce()}") for job in jobs]
    )


async def _reply(replies: Queue) -> Response:
    """Wait for the reply, read it, and delete its queue."""
    pause_s = QUICKEST_LOOK_S
    while True:
        messages = await replies.receive(1, visibility_s=REPLY_VISIBILITY_S)
        if messages:
            response = decode_response(messages[0].body)
            await replies.drop()
            return response
        await replies.arrival(pause_s)
        pause_s = min(pause_s * 1.5, SLOWEST_LOOK_S)


def _target(account: str) -> Target:
    return Target(account, PLAIN_PREFIX, local_dir=default_local_dir(os.environ), ports=emulator_ports(os.environ))


def _emulator(connection_string: str) -> Target:
    """Azurite, at the port that the connection string names."""
    parts = dict(part.partition("=")[::2] for part in connection_string.strip().rstrip(";").split(";"))
    target = _target(EMULATOR)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        return target
    port = urlsplit(parts.get("QueueEndpoint", "")).port
    if parts.get("AccountName") != EMULATOR or port is None:
        raise SettingsError(
            f"A connection string is for Azurite alone: AccountName={EMULATOR} and a QueueEndpoint with its port. "
            "For any other account use from_storage_queue, which needs no key."
        )
    return replace(target, ports=replace(target.ports, queue=port))
