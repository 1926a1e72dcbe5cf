"""Every command of the program and how to call it on a ``tests.cli.stage``, with what it promises there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ai4s.jobq.cli.main import cli
from tests.cli.stage import PLACEHOLDERS, QUEUE

NO_WORKFLOW = 5  # the exit code where an unknown id was named
NO_STORE_ANSWERS = 6


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command line and its exit codes: on a stage, on a store with nothing in it, and where the store refuses.

    ``prints``: whether its result is on stdout. ``fits``: whether its lines fit any terminal. ``waits``: whether it waits
    for a store that is away until it is stopped. ``runs_until``: the words on stderr after which it is stopped anyhow.
    ``makes``: whether it makes the store when there is none.
    """

    words: str
    code: int = 0
    empty: int = 0
    refused: int = NO_STORE_ANSWERS
    prints: bool = True
    fits: bool = False
    waits: bool = False
    runs_until: str = ""
    makes: bool = False

    def __str__(self) -> str:
        return self.words

    def args(self) -> list[str]:
        """The arguments of the program."""
        return [PLACEHOLDERS.get(word, word) for word in shlex.split(self.words)]

    def variants(self) -> list[list[str]]:
        """The arguments, and those that ask for JSON if there are any."""
        return [self.args(), *([[*self.args(), "--json"]] if self._has_json else [])]

    @property
    def command(self) -> tuple[str, ...]:
        """The names that lead to the command."""
        return tuple(name for name, _ in self._path())

    @property
    def _has_json(self) -> bool:
        *_, (_, command) = self._path()
        return any("--json" in param.opts for param in command.params)

    def _path(self) -> Iterator[tuple[str, click.Command]]:
        command: click.Command = cli
        for word in shlex.split(self.words):
            if isinstance(command, click.Group) and word in command.commands:
                command = command.commands[word]
                yield word, command


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names that lead to each command that is no group."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, child in command.commands.items():
        yield from leaves(child, (*path, name))


def _of_workflow(words: str, **promised: object) -> Call:
    return Call(words=f"workflow {words}", **{"empty": NO_WORKFLOW, **promised})  # type: ignore[arg-type]


READERS = (
    Call(words="workflow validate FILE", refused=0),
    Call(words="workflow schema", refused=0),
    Call(words="workflow config show", refused=0),
    Call(words="workflow graph FILE", refused=0, fits=True),
    Call(words="completion bash", refused=0),
    _of_workflow("status ENDED", fits=True),
    _of_workflow("status ENDED --by-layer", fits=True),
    Call(words="workflow list", fits=True),
    Call(words="workflow tasks", fits=True),
    _of_workflow("tasks ENDED --limit 0", fits=True),
    Call(words="workflow summary", fits=True),
    _of_workflow("watch ENDED", code=1),
    _of_workflow("watch ENDED --by-layer", code=1),
    _of_workflow("logs ENDED TASK"),
    _of_workflow("history ENDED", fits=True),
    _of_workflow("graph ENDED", fits=True),
    _of_workflow("explain WAITING"),
    _of_workflow("explain ENDED --task TASK"),
    Call(words="workflow doctor", code=1, refused=1),
    Call(words="workflow workers", fits=True),
    Call(words="workflow dead-letters list", fits=True),
    Call(words="workflow dead-letters show LETTER", empty=1),
    Call(words="workflow purge --dry-run --all", fits=True),
    _of_workflow("rerun ENDED --from TASK --plan", fits=True),
    Call(words="local/jobs peek -n 3", empty=1),
    Call(words="local/jobs size", fits=True),
)
WRITERS = (
    Call(words="workflow submit FILE", makes=True),
    Call(words="workflow run FILE", code=1, empty=1, makes=True),
    Call(words="workflow doctor --repair", code=1),
    _of_workflow("signal WAITING go"),
    _of_workflow("pause WAITING"),
    _of_workflow("resume WAITING"),
    _of_workflow("cancel WAITING"),
    _of_workflow("retry ENDED"),
    _of_workflow("rerun ENDED --from TASK"),
    Call(words="workflow dead-letters requeue --all"),
    Call(words="workflow dead-letters drop --all --yes"),
    Call(words="workflow purge --all --force --yes"),
    Call(words="workflow purge --drop-tables --force --yes"),
    Call(words="workflow config init", refused=0),
    Call(words="local/jobs push -c true", prints=False, makes=True),
    Call(words="local/jobs push --workflow -c true", makes=True),
    Call(words="local/jobs pull", prints=False),
    Call(words="local/jobs clear", prints=False),
)
LONG_RUNNING = (
    Call(words=f"local/{QUEUE} worker --idle-timeout 0s", prints=False, waits=True, makes=True),
    Call(words="workflow coordinator", prints=False, waits=True, runs_until="leads now", makes=True),
)
CALLS = (*READERS, *WRITERS, *LONG_RUNNING)
