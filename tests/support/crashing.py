"""Commands that kill themselves with SIGKILL before or after a chosen call of a port.

The command is the shipped one. Only in this process the services that it opens are wrapped (``tests.support.faults``), so
that every call on a table, a queue or a container can be counted, or be the last thing the process does::

    python -m tests.support.crashing --kind table.transact --name WorkflowTasks --number 1 --when after \\
        -- workflow coordinator --lease-ttl-s 3

``--record FILE`` writes a line for each call; the last line of a process that killed itself says so.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from ai4s.jobq.adapters import factory
from ai4s.jobq.ports.services import Services
from ai4s.jobq.settings import Target
from tests.support.faults import Call, Faults, FaultyServices

DIED = "died"
NOBODY = 10**9


@dataclass(frozen=True, slots=True)
class Death:
    """Before or ``after`` the ``number``-th call (from 0) of a kind on something whose name contains ``name``."""

    kind: str
    name: str
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.kind} of {self.name} no. {self.number}"


def run_dying(args: Sequence[str], death: Death | None, record: Path | None) -> NoReturn:
    """Run a command in this process with the hook in place; it exits, or dies."""
    from ai4s.jobq.cli.main import main

    _install(death, record)
    main(args)


def _install(death: Death | None, record: Path | None) -> None:
    open_services = factory.open_services

    @asynccontextmanager
    async def hooked(target: Target, *, credential: object | None = None) -> AsyncIterator[Services]:
        async with open_services(target, credential=credential) as services:
            yield FaultyServices(services, faults)

    faults = _Recorded(record) if record is not None else Faults()
    if death is not None:

        async def die(_: Call) -> None:
            if record is not None:
                _append(record, DIED)
            os.kill(os.getpid(), signal.SIGKILL)

        faults.hook(death.kind, death.name, hook=die, after=death.after, skip=death.number, times=NOBODY)
    factory.open_services = hooked


class _Recorded(Faults):
    """Faults that write down each call."""

    def __init__(self, record: Path) -> None:
        super().__init__(calls=_Calls(record))


class _Calls(list[Call]):
    """Calls that are written down as they come and kept nowhere else: a coordinator makes many."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self._record = record

    def append(self, call: Call) -> None:
        _append(self._record, f"{call.kind} {call.name}")


def _append(record: Path, line: str) -> None:
    with record.open("a") as file:
        file.write(f"{line}\n")


@click.command()
@click.option("--kind", default="", help="Such as table.transact; without it the command is only recorded.")
@click.option("--name", default="", help="Part of the name of the table, queue or container.")
@click.option("--number", type=int, default=0, help="How many such calls pass first.")
@click.option("--when", type=click.Choice(["before", "after"]), default="before")
@click.option("--record", type=click.Path(path_type=Path), default=None, help="A file for a line per call.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def _program(kind: str, name: str, number: int, when: str, record: Path | None, args: Sequence[str]) -> None:
    run_dying(args, Death(kind, name, number, when == "after") if kind else None, record)


if __name__ == "__main__":
    _program()
