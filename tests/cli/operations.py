"""What the tests do with the store behind the commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from ai4s.jobq import jobq
from ai4s.jobq.adapters import factory
from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.services import Services
from ai4s.jobq.settings import Target
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program
from tests.support.faults import Faults, FaultyServices

T = TypeVar("T")


def in_store(program: Program, act: Callable[[WorkflowStore], Awaitable[T]]) -> T:
    """Do something in the store that the program's commands use."""

    async def session() -> T:
        async with open_local(program.folder / "store") as services:
            return await act(WorkflowStore(services, account="local", prefix="default"))

    return asyncio.run(session())


def set_aside(program: Program, queue: str, *bodies: str, reason: str = "the message is no JSON") -> None:
    """Put messages with these bodies among the dead letters of a queue; their ids are m0, m1, …"""

    async def act(store: WorkflowStore) -> None:
        source = store.services.queue(queue)
        await source.send([OutgoingMessage(body=body, message_id=f"m{number}") for number, body in enumerate(bodies)])
        for message in await source.receive(32, visibility_s=60):
            if message.body in bodies:
                await source.dead_letter(message, reason=reason)

    in_store(program, act)


def answer_through(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Let every command reach its store through these faults."""

    @asynccontextmanager
    async def open_faulty(target: Target, *, credential: object = None) -> AsyncIterator[Services]:
        async with open_local(target.local_dir) as services:
            yield FaultyServices(services, faults)

    for module in (factory, jobq):
        monkeypatch.setattr(module, "open_services", open_faulty)
