"""What the tests of doctor, explain, workers, dead-letters and purge share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import jsonschema

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program

SCHEMAS = Path(__file__).parents[2] / "schemas"

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


def check_schema(name: str, value: Any) -> None:
    """Raise unless the value is what the published schema promises."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)
