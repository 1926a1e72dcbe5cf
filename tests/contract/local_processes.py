"""What other processes do to a local store, for the tests of one store used by many.

``spawned`` starts a fresh interpreter per process; ``in_fork`` runs a function in a fork of the test and gives its answer,
for tests that must change the user or the limits of a process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from ai4s.jobq.adapters.local import LocalServices, open_local
from ai4s.jobq.errors import MessageLostError, StaleWriteError
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Insert, Replace

_SPAWN = multiprocessing.get_context("spawn")
_FORK = multiprocessing.get_context("fork")
_NOBODY = 65534


@contextmanager
def spawned(target: Callable[..., None], *arguments: object, count: int = 1) -> Iterator[list[BaseProcess]]:
    """Processes that run ``target(index, *arguments)``; those still running at the end are killed."""
    processes: list[BaseProcess] = [_SPAWN.Process(target=target, args=(n, *arguments)) for n in range(count)]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def in_fork(action: Callable[[], Coroutine[object, object, str]]) -> str:
    """The answer of ``action`` in a child, or the type and text of what it raised."""
    ours, theirs = _FORK.Pipe()
    child = _FORK.Process(target=_answer, args=(action, theirs))
    child.start()
    theirs.close()
    answer: str = ours.recv()
    child.join()
    return answer


def become_unprivileged() -> None:
    """Give up root's right to write everywhere; nothing to do for anybody else."""
    if os.geteuid() == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def work_on_queue_and_table(index: int, directory: str, rounds: int) -> None:
    """Send, receive, complete, and count up one shared row, ``rounds`` times each."""
    asyncio.run(_work(index, Path(directory), rounds))


def insert_until_killed(index: int, directory: str) -> None:
    """Insert rows for ever, and write down the key of each one that was acknowledged."""
    asyncio.run(_insert_until_killed(index, Path(directory)))


def receive_and_hold(index: int, directory: str, queue_name: str) -> None:
    """Lease all messages for an hour, then wait to be killed."""
    asyncio.run(_receive_and_hold(Path(directory), queue_name))


def acknowledged_by(index: int, directory: Path) -> Path:
    """Where ``insert_until_killed`` writes its keys."""
    return directory.parent / f"acknowledged-{index}"


def _answer(action: Callable[[], Coroutine[object, object, str]], pipe: multiprocessing.connection.Connection) -> None:
    try:
        answer = asyncio.run(action())
    except BaseException as exc:  # whatever happened, the test wants to see it
        answer = f"{type(exc).__name__}: {exc}"
    pipe.send(answer)


async def _work(index: int, directory: Path, rounds: int) -> None:
    async with open_local(directory) as services:
        for n in range(rounds):
            await services.queue("shared").send([OutgoingMessage(body=f"{index}.{n}", message_id="")])
            await _count_up(services)
            for message in await services.queue("shared").receive(2, visibility_s=600):
                with suppress(MessageLostError):  # would be seen in the number of rows
                    await services.table("Done").transact("p", [Insert(message.body, {"n": 1})])
                    await services.queue("shared").complete(message)


async def _count_up(services: LocalServices) -> None:
    table = services.table("Counter")
    while True:
        entity = await table.get("p", "row")
        assert entity is not None
        with suppress(StaleWriteError):  # another process was quicker
            await table.transact("p", [Replace("row", {"n": int(entity.values["n"]) + 1}, entity.etag)])
            return


async def _insert_until_killed(index: int, directory: Path) -> None:
    async with open_local(directory) as services:
        with acknowledged_by(index, directory).open("w", buffering=1) as acknowledged:
            n = 0
            while True:
                await services.table("Rows").transact(f"p{index}", [Insert(f"{n:08}", {"n": n}), Insert(f"x{n}", {})])
                acknowledged.write(f"{n:08}\n")
                n += 1


async def _receive_and_hold(directory: Path, queue_name: str) -> None:
    async with open_local(directory) as services:
        while await services.queue(queue_name).receive(32, visibility_s=3600):
            pass
        await services.table("Held").transact("p", [Insert("held", {})])
        await asyncio.Event().wait()
