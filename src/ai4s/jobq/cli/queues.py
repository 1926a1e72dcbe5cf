"""Between commands on a plain queue and the library."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.settings import resolve_queue

if TYPE_CHECKING:
    from ai4s.jobq.jobq import JobQ

T = TypeVar("T")


def ask_queue(invocation: Invocation, question: Callable[[JobQ], Coroutine[Any, Any, T]]) -> T:
    """Open the queue that the command line names, ask it one question, close it."""
    from ai4s.jobq.jobq import JobQ

    target, name = resolve_queue(invocation.given, environ=os.environ)

    async def session() -> T:
        async with JobQ.open(target, name) as queue:
            return await question(queue)

    return asyncio.run(session())
