"""What users write to run jobs in Python; how a worker runs it is in ``callbacks``.

A job's ``kwargs`` are the keyword arguments of the call. Parameters named ``_job_id`` and ``_worker_id`` are filled in. What
the call returns is the job's result; an exception is its failure.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from ai4s.jobq.errors import UsageError
from ai4s.jobq.plain.contexts import OwnsContexts
from ai4s.jobq.plain.errors import JobFailedError
from ai4s.jobq.plain.threads import called
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.worker.processor import Job, StopSignal
from ai4s.jobq.worker.settings import WorkerSettings, worker_settings_from_environment
from ai4s.jobq.worker.shell import ShellProcessor

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Processor(OwnsContexts):
    """Base of what runs jobs: override ``__call__``. Opened once by ``async with``, before the first job.

    ``register_context_manager`` hands over what is to be opened and closed with it.
    """

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one job; ``kwargs`` are the job's."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__: write one that runs a job")

    def resume(self) -> None:
        """Called before the first job: jobs come from now on."""

    def shutdown(self) -> None:
        """Called when a job in hand is told to end, before it is cancelled."""


class SequentialProcessor(Processor):
    """Runs a function, one job at a time. One that is no coroutine function runs in a thread."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self._callback = callback
        self._turn = asyncio.Lock()
        self.__signature__ = inspect.signature(callback)  # decides which parameters are filled in

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        async with self._turn:
            return await called(self._callback, kwargs)


class ShellCommandProcessor(Processor):
    """Runs ``cmd`` in a shell, each command in a process group of its own. ``emulate_tty``: on a terminal of its own."""

    def __init__(self, num_workers: int = 1, emulate_tty: bool = False) -> None:
        self.num_workers = num_workers
        self.emulate_tty = emulate_tty
        self._shell: ShellProcessor | None = None

    def for_worker(
        self, settings: WorkerSettings, clock: Clock, environment: Mapping[str, str], *, name: str
    ) -> ShellProcessor:
        """The same as a worker runs it, with time limits and an orderly stop; ``name`` is for its log."""
        return ShellProcessor(settings, clock=clock, environment=environment, name=name, emulate_tty=self.emulate_tty)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        settings = worker_settings_from_environment(WorkerSettings(queue="none"), os.environ)
        self._shell = await self.for_worker(settings, SystemClock(), os.environ, name="shell").__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shell is not None:
            await self._shell.__aexit__(kind, error, trace)
        await super().__aexit__(kind, error, trace)

    async def __call__(
        self,
        cmd: str,
        _job_id: str = "",
        bg_dirsync_to: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> int:
        """Run the command; its exit code, which is 0. Raises ``JobFailedError`` for any other ending."""
        if self._shell is None:
            raise UsageError("A ShellCommandProcessor is opened before it is called: async with processor: …")
        if bg_dirsync_to:
            LOG.warning("bg_dirsync_to is not supported: nothing is copied to %s", bg_dirsync_to)
        kwargs = {"cmd": cmd, "env": env, "cwd": cwd}
        job = Job(
            label=f"job {_job_id}",
            kwargs=kwargs,
            variables={"JOBQ_TASK_ID": _job_id},
            timeout_s=None,
            stop=StopSignal(),
        )
        result = await self._shell(job)
        if result.cause is not None:
            raise JobFailedError(f"the command {cmd[:80]!r} failed: {result.error}")
        return result.exit_code or 0


class ProcessPool:
    """Runs functions in processes of their own, which are kept for the next call. Open it by ``async with``."""

    def __init__(self, pool_size: int = 100) -> None:
        self._pool = ProcessPoolExecutor(pool_size, mp_context=get_context("forkserver"))

    async def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns, or raises. It and its arguments are pickled."""
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
