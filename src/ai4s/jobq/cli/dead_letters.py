"""``workflow dead-letters``: messages that were set aside, and what to do with them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity_options
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import put, put_json, say, visible
from ai4s.jobq.errors import OperationalError
from ai4s.jobq.views.phrases import count

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.dead_letters import Letter, LetterBox
    from ai4s.jobq.ports.services import Services

    Act = Callable[[Services, str, Collection[str] | None], Awaitable[int]]

queue_option = click.option(
    "--queue", metavar="NAME", help="Only of this queue.  [default: the completion queue and all known task queues]"
)
all_option = click.option("--all", "everything", is_flag=True, help="All there are.")


@click.group("dead-letters")
def dead_letters() -> None:
    """Look after messages that were set aside.

    A message that cannot be read or handled is set aside with the reason, so that it blocks nobody and is not lost.
    """


@dead_letters.command("list")
@queue_option
@as_json_option
@verbosity_options
@click.pass_obj
def list_(invocation: Invocation, queue: str | None, as_json: bool) -> None:
    """List them, 32 at most of each queue."""
    boxes = invocation.ask(lambda client: _boxes(client, queue))
    if as_json:
        put_json([_box_json(box) for box in boxes])
    elif boxes:
        print_lines(_lines(boxes))
    else:
        put("No dead letters.")
    for box in boxes:
        if box.count > len(box.letters):
            say(f"(showing {len(box.letters)} of {box.count} of queue {box.queue})")


@dead_letters.command()
@click.argument("message_id", metavar="ID")
@queue_option
@as_json_option
@verbosity_options
@click.pass_obj
def show(invocation: Invocation, message_id: str, queue: str | None, as_json: bool) -> None:
    """Show one of them with its body.

    The body is the message as it was sent: that of a task holds its command and environment.
    """
    letter = invocation.ask(lambda client: _find(client, message_id, queue))
    if as_json:
        put_json({**letter.to_json(), "body": letter.body})
    else:
        print_lines(_letter_lines(letter))


@dead_letters.command()
@click.argument("message_ids", metavar="[ID]...", nargs=-1)
@queue_option
@all_option
@as_json_option
@verbosity_options
@click.pass_obj
def requeue(
    invocation: Invocation, message_ids: Sequence[str], queue: str | None, everything: bool, as_json: bool
) -> None:
    """Put them back on their queue, as they were."""
    from ai4s.jobq.dead_letters import requeue as act

    _check_choice(message_ids, everything)
    _act(invocation, act, message_ids, queue, as_json=as_json, verb="put back", key="requeued")


@dead_letters.command()
@click.argument("message_ids", metavar="[ID]...", nargs=-1)
@queue_option
@all_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json_option
@verbosity_options
@click.pass_obj
def drop(
    invocation: Invocation, message_ids: Sequence[str], queue: str | None, everything: bool, yes: bool, as_json: bool
) -> None:
    """Delete them."""
    from ai4s.jobq.dead_letters import drop as act

    _check_choice(message_ids, everything)
    if not yes:
        _confirm(f"Delete {'all dead letters' if everything else count(len(message_ids), 'dead letter')} for good?")
    _act(invocation, act, message_ids, queue, as_json=as_json, verb="deleted", key="dropped")


def _check_choice(message_ids: Sequence[str], everything: bool) -> None:
    if bool(message_ids) == everything:
        raise click.UsageError("Name the IDs that 'dead-letters list' shows, or say --all.")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on, and nothing was deleted. Add --yes to delete.")
    if not click.confirm(question, err=True):
        say("Nothing was deleted.")
        raise click.exceptions.Exit(1)


def _act(
    invocation: Invocation,
    act: Act,
    message_ids: Sequence[str],
    queue: str | None,
    *,
    as_json: bool,
    verb: str,
    key: str,
) -> None:
    done = invocation.ask(lambda client: _in_all_boxes(client, act, set(message_ids) or None, queue))
    total = sum(done.values())
    if as_json:
        put_json({key: total, "queues": done})
    else:
        put(f"{count(total, 'message')} {verb}.")
    if message_ids and total < len(set(message_ids)):
        raise OperationalError("Not all of these were found. See: ai4s-jobq workflow dead-letters list")


async def _in_all_boxes(
    client: WorkflowClient, act: Act, message_ids: Collection[str] | None, queue: str | None
) -> dict[str, int]:
    """How many were dealt with, by queue; queues without any are left out."""
    done = {name: await act(client.store.services, name, message_ids) for name in await _queues(client, queue)}
    return {name: number for name, number in done.items() if number}


async def _boxes(client: WorkflowClient, queue: str | None) -> list[LetterBox]:
    from ai4s.jobq.dead_letters import look_at

    boxes = [await look_at(client.store.services, name) for name in await _queues(client, queue)]
    return [box for box in boxes if box.count]


async def _find(client: WorkflowClient, message_id: str, queue: str | None) -> Letter:
    from ai4s.jobq.dead_letters import find

    letter = await find(client.store.services, await _queues(client, queue), message_id)
    if letter is None:
        raise OperationalError(f"No dead letter {message_id!r}. See: ai4s-jobq workflow dead-letters list")
    return letter


async def _queues(client: WorkflowClient, queue: str | None) -> list[str]:
    from ai4s.jobq.views.known_queues import known_queues

    if queue is not None:
        return [queue]
    return [client.store.names.completion_queue, *await known_queues(client.store)]


def _box_json(box: LetterBox) -> dict[str, Any]:
    return {"queue": box.queue, "count": box.count, "letters": [letter.to_json() for letter in box.letters]}


def _lines(boxes: Sequence[LetterBox]) -> Iterator[str]:
    rows = [
        (box.queue, letter.message_id, f"{letter.set_aside_at:%Y-%m-%d %H:%M}Z", str(len(letter.body)), letter.reason)
        for box in boxes
        for letter in box.letters
    ]
    return table(("Queue", "ID", "Set aside", "Size", "Reason"), rows, sys.stdout)


def _letter_lines(letter: Letter) -> Iterator[str]:
    yield f"Queue:      {letter.queue}"
    yield f"ID:         {visible(letter.message_id)}"
    yield f"Set aside:  {letter.set_aside_at:%Y-%m-%d %H:%M:%S}Z"
    yield f"Reason:     {visible(letter.reason)}"
    yield f"Size:       {count(len(letter.body), 'character')}{'' if letter.is_whole else ' (not as it was)'}"
    yield ""
    yield visible(letter.body)
