"""Many jobs from one description: what there is to do is listed, what is done already is left out, the rest is pushed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from ai4s.jobq.contexts import OwnsContexts
from ai4s.jobq.jobq import JobQ, JobQFuture
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

    def already_done(self, **kwargs: Any) -> Any:
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
    pushed: list[JobQFuture] = []
    with progress_bar("Pushing", show=show_progress) as advance:

        async def enqueue(kwargs: dict[str, Any]) -> None:
            if not force and await _settled(work_spec.already_done(**kwargs)):
                return
            if not dry_run:
                pushed.append(
                    await work_spec.enqueue_task(
                        queue, num_retries=num_retries, reply_requested=reply_requested, **kwargs
                    )
                )
            advance(1)

        async def list_seed(seed: Any) -> AsyncIterator[dict[str, Any]]:
            async for kwargs in _each(work_spec.list_tasks(seed, force)):
                yield dict(kwargs)

        async with work_spec, asyncio.TaskGroup() as group:
            seeds: asyncio.Queue[Any] = asyncio.Queue(num_list_task_workers)
            jobs: asyncio.Queue[Any] = asyncio.Queue(_WAITING)
            group.create_task(_feed(_each(work_spec.task_seeds()), seeds, readers=num_list_task_workers))
            listing = [group.create_task(_list(seeds, list_seed, jobs)) for _ in range(num_list_task_workers)]
            group.create_task(_close_after(listing, jobs, readers=num_enqueue_workers))
            for _ in range(num_enqueue_workers):
                group.create_task(_drain(jobs, enqueue))
    return pushed


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


async def _list(
    seeds: asyncio.Queue[Any], list_seed: Callable[[Any], AsyncIterator[Any]], jobs: asyncio.Queue[Any]
) -> None:
    while (seed := await seeds.get()) is not _END:
        async for kwargs in list_seed(seed):
            await jobs.put(kwargs)


async def _close_after(listing: Sequence[asyncio.Task[None]], jobs: asyncio.Queue[Any], *, readers: int) -> None:
    await asyncio.wait(listing)
    for _ in range(readers):
        await jobs.put(_END)


async def _drain(jobs: asyncio.Queue[Any], enqueue: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    while (kwargs := await jobs.get()) is not _END:
        await enqueue(kwargs)


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
