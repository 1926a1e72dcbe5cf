"""Many jobs from one description: what there is to do is listed, what is done already is left out, the rest is pushed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from ai4s.jobq.jobq import JobQ, JobQFuture
from ai4s.jobq.plain.contexts import OwnsContexts
from ai4s.jobq.progress import progress_bar

_WAITING = 1000  # listed and not pushed yet: listing waits for pushing


class WorkSpecification(OwnsContexts):
    """What there is to do. Override ``list_tasks``, and the others where they help; all may be ordinary or async.

    ``register_context_manager`` hands over what is to be opened before the first call and closed after the last.
    """

    def task_seeds(self) -> Any:
        """What ``list_tasks`` is called with, one call each: an iterable, or an async one."""
        return (None,)

    def list_tasks(self, seed: Any, force: bool = False) -> Any:
        """The kwargs of the jobs of a seed: an iterable of mappings, or an async one."""
        raise NotImplementedError(f"{type(self).__name__} has no list_tasks: write one that yields the jobs' kwargs")

    def already_done(self, *args: Any, **kwargs: Any) -> Any:
        """Whether the job with these kwargs need not be pushed. Not asked when ``force`` is set."""
        return False

    async def enqueue_task(self, queue: JobQ, *, num_retries: int, reply_requested: bool, **kwargs: Any) -> JobQFuture:
        """Push one job."""
        return await queue.push(kwargs, num_retries=num_retries, reply_requested=reply_requested)


async def batch_enqueue(
    queue: JobQ,
    work_spec: WorkSpecification,
    force: bool = False,
    num_retries: int = 1,
    num_list_task_workers: int = 10,
    num_enqueue_workers: int = 100,
    dry_run: bool = False,
    show_progress: bool = True,
    reply_requested: bool = False,
) -> list[JobQFuture]:
    """Push everything that is to do; what was pushed, in no particular order. ``dry_run`` lists and asks only.

    Memory is bounded by what is returned, however much there is to do. An error anywhere ends it; what was pushed stays.
    """
    batch = _Batch(
        queue, work_spec, force=force, num_retries=num_retries, dry_run=dry_run, reply_requested=reply_requested
    )
    with progress_bar("Pushing", show=show_progress) as advance:
        try:
            async with work_spec:
                await batch.run(num_list_task_workers, num_enqueue_workers, advance)
        except ExceptionGroup as group:  # of the many that work side by side the first one tells what is wrong
            raise group.exceptions[0] from group
    return batch.pushed


class _Batch:
    """One call of ``batch_enqueue``: listing and pushing side by side, with bounded queues between."""

    def __init__(
        self,
        queue: JobQ,
        work_spec: WorkSpecification,
        *,
        force: bool,
        num_retries: int,
        dry_run: bool,
        reply_requested: bool,
    ) -> None:
        self.pushed: list[JobQFuture] = []
        self._queue = queue
        self._work_spec = work_spec
        self._force = force
        self._num_retries = num_retries
        self._dry_run = dry_run
        self._reply_requested = reply_requested

    async def run(self, listers: int, pushers: int, advance: Callable[[int], None]) -> None:
        """Until everything is pushed. Raises an ``ExceptionGroup`` of what went wrong."""
        seeds: asyncio.Queue[Any] = asyncio.Queue(listers)
        jobs: asyncio.Queue[Any] = asyncio.Queue(_WAITING)
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(_each(self._work_spec.task_seeds()), seeds, readers=listers))
            listing = [group.create_task(self._list(seeds, jobs)) for _ in range(listers)]
            group.create_task(_close_after(listing, jobs, readers=pushers))
            for _ in range(pushers):
                group.create_task(self._push_all(jobs, advance))

    async def _list(self, seeds: asyncio.Queue[Any], jobs: asyncio.Queue[Any]) -> None:
        while (seed := await seeds.get()) is not _END:
            async for kwargs in _each(self._work_spec.list_tasks(seed, self._force)):
                await jobs.put(dict(kwargs))

    async def _push_all(self, jobs: asyncio.Queue[Any], advance: Callable[[int], None]) -> None:
        while (kwargs := await jobs.get()) is not _END:
            if self._force or not await _settled(self._work_spec.already_done(**kwargs)):
                await self._push(kwargs)
            advance(1)

    async def _push(self, kwargs: dict[str, Any]) -> None:
        if self._dry_run:
            return
        future = await self._work_spec.enqueue_task(
            self._queue, num_retries=self._num_retries, reply_requested=self._reply_requested, **kwargs
        )
        self.pushed.append(future)


async def get_results(futures: Sequence[JobQFuture], n_workers: int = 32) -> list[Any]:
    """The results of jobs, in the order of ``futures``; of those that failed the ``Response`` that says so."""
    limit = asyncio.Semaphore(n_workers)

    async def result(future: JobQFuture) -> Any:
        async with limit:
            response = await future.response()
            return response.body if response.is_success else response

    return await asyncio.gather(*map(result, futures))


_END = object()


async def _feed(source: AsyncIterator[Any], into: asyncio.Queue[Any], *, readers: int) -> None:
    async for item in source:
        await into.put(item)
    for _ in range(readers):
        await into.put(_END)


async def _close_after(listing: Sequence[asyncio.Task[None]], jobs: asyncio.Queue[Any], *, readers: int) -> None:
    await asyncio.wait(listing)
    for _ in range(readers):
        await jobs.put(_END)


async def _each(values: Any) -> AsyncIterator[Any]:
    """The items of an iterable of any kind, or of one that is to be awaited first."""
    values = await _settled(values)
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
