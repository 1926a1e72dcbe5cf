"""An event loop in which time jumps: when nothing can run, the clock is set to the next timer.

A schedule of many minutes takes milliseconds, and the same program takes the same course every time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
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


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop on a selector that waits for nothing.

    ``on_task`` is told of each task that is created.
    """

    _scheduled: list[asyncio.TimerHandle]
    _ready: deque[Any]

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0
        self.steps = 0
        self.on_task: Callable[[asyncio.Task[Any]], None] = lambda task: None
        self._selector = _Jump(self)
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

    def jump(self, timeout: float | None) -> None:
        """What takes the place of waiting."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            self.steps = 0
            raise Stuck(f"more than {MAX_STEPS} steps by {self._time:.1f} s: something spins in {self._busy()}")
        if timeout is None:
            raise Stuck(f"nothing can ever happen after {self._time:.1f} s")
        if timeout > 0:
            self._time = max(self._time, self._scheduled[0].when())

    def _busy(self) -> str:
        """Which tasks are about to run, for the error."""
        tasks = (getattr(handle._callback, "__self__", handle._callback) for handle in self._ready)
        return ", ".join(str(getattr(task, "get_coro", lambda task=task: task)()) for task in tasks)[:600]

    def _process_events(self, events: list[Any]) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """There are no threads."""


def _numbered_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **kwargs: Any) -> asyncio.Task[T]:
    assert isinstance(loop, VirtualLoop)
    return loop.new_task(coro, **kwargs)


class _Jump:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.jump(timeout)
        return []


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
