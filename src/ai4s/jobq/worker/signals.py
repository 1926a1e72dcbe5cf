"""Signals of a worker process: the first asks it to leave, the second makes it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from ai4s.jobq.worker.loop import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def leaving_on_signals(*workers: Worker) -> Iterator[None]:
    """Inside: SIGTERM or SIGINT stops the workers politely, one more kills them. Needs the main thread's event loop."""
    loop = asyncio.get_running_loop()
    received = 0

    def on_signal() -> None:
        nonlocal received
        received += 1
        for worker in workers:
            worker.stop() if received == 1 else worker.kill()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
