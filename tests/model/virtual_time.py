"""An event loop in which time jumps: when nothing can run, the clock is set to the next timer.

A schedule of many minutes takes milliseconds, and the same program takes the same course every time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
MAX_STEPS = 400_000  # turns of the loop in one schedule: more of them are a busy loop


class Stuck(Exception):
    """Nothing can run any more, or it runs without end."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where in memory it is."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on where in memory it is."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class VirtualHandle:
    """A callback that is due, or will be; what ``call_soon`` and ``call_at`` return.

    asyncio's own would do: with half of a schedule's time spent on callbacks, a lighter one saves a fifth of it.
    """

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualLoop, context: Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.loop = loop
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def run(self) -> None:
        try:
            self.context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            told = {"message": f"Exception in callback {self.callback!r}", "exception": exc}
            self.loop.call_exception_handler(told)


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop without files, threads and waiting.

    ``on_task`` is told of each task that is created. Callbacks run in the order in which they were asked for; of timers
    that are due at the same time, the one that was set first comes first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0
        self.steps = 0
        self.on_task: Callable[[asyncio.Task[Any]], None] = lambda task: None
        self._due: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._numbers = itertools.count(1)
        self.set_task_factory(_numbered_task)  # type: ignore[arg-type]  # typeshed wants one signature per version

    def time(self) -> float:
        return self._time

    def create_future(self) -> asyncio.Future[Any]:
        future = NumberedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def new_task(self, coro: Coroutine[Any, Any, T], **kwargs: Any) -> asyncio.Task[T]:
        """What ``create_task`` makes."""
        task = NumberedTask.__new__(NumberedTask)
        task.number = next(self._numbers)  # before __init__, which puts the task into a set
        NumberedTask.__init__(task, coro, loop=self, **kwargs)
        self.on_task(task)
        return task

    def call_soon(  # type: ignore[override]  # a handle of our own, with all that asyncio asks of one
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _run_once(self) -> None:
        """One turn of ``run_forever``: set the clock to the next timer if nothing is due, then run what is due now."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            self.steps = 0
            raise Stuck(f"more than {MAX_STEPS} steps by {self._time:.1f} s: something spins in {self._busy()}")
        timers, due = self._timers, self._due
        while timers and (timers[0][2].is_cancelled or timers[0][0] <= self._time or not due):
            when, _, handle = heapq.heappop(timers)
            if not handle.is_cancelled:
                self._time = max(self._time, when)
                due.append(handle)
        if not due:
            raise Stuck(f"nothing can ever happen after {self._time:.1f} s")
        for _ in range(len(due)):
            handle = due.popleft()
            if not handle.is_cancelled:
                handle.run()

    def _busy(self) -> str:
        """Which tasks are about to run, for the error."""
        tasks = (getattr(handle.callback, "__self__", handle.callback) for handle in self._due)
        return ", ".join(str(getattr(task, "get_coro", lambda task=task: task)()) for task in tasks)[:600]

    def _write_to_self(self) -> None:
        """There are no threads."""


def _numbered_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **kwargs: Any) -> asyncio.Task[T]:
    assert isinstance(loop, VirtualLoop)
    return loop.new_task(coro, **kwargs)


class VirtualClock:
    """The clock port of one machine; its wall clock is ``skew_s`` seconds off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_s: float = 0.0) -> None:
        self._loop = loop
        self._start = EPOCH + timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run to the end in virtual time, then end all tasks that are left, and close the loop."""
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            _end_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _end_tasks(loop: VirtualLoop) -> None:
    loop.steps = 0
    for _ in range(5):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=60))
