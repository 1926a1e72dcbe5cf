"""``ACCOUNT/QUEUE peek``, ``size`` and ``clear``: what is on a queue, how much, and away with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.queues import ask_queue
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put, put_json, say, visible

if TYPE_CHECKING:
    from ai4s.jobq.plain.peeking import PeekedJob

MOST = 32  # messages that a storage queue shows


@click.command()
@click.option("-n", "count", type=click.IntRange(-1, MOST), default=1, show_default=True, help="So many; -1: 32.")
@as_json_option
@click.pass_obj
def peek(invocation: Invocation, count: int, as_json: bool) -> None:
    """Show the next jobs without taking them.

    Values of env are hidden. Exits with 1 when there is none. Dead letters are on the queue of the same name with -failed
    after it, each with the error of its last attempt.
    """
    most = MOST if count < 0 else count
    found: list[PeekedJob] = ask_queue(invocation, lambda queue: queue.peek(most))
    if as_json:
        put_json([job.to_json() for job in found])
    else:
        print_lines(line for job in found for line in _lines(job))
    if not found:
        say("The queue is empty.")
        raise click.exceptions.Exit(1)


@click.command()
@click.pass_obj
def size(invocation: Invocation) -> None:
    """Print about how many jobs there are, those in hand included."""
    put(str(ask_queue(invocation, lambda queue: queue.get_approximate_size())))


@click.command()
@click.pass_obj
def clear(invocation: Invocation) -> None:
    """Delete all jobs of the queue."""
    ask_queue(invocation, lambda queue: queue.clear())


def _lines(job: PeekedJob) -> Iterator[str]:
    """A job as a few lines of text."""
    import json

    shown = job.to_json()
    if job.problem is not None:
        yield f"message {visible(job.message_id)}: {visible(job.problem)}"
    elif job.workflow_id is not None:
        yield f"task {visible(job.job_id)}"
    else:
        yield f"job {visible(job.job_id)}"
    if shown["kwargs"]:
        yield f"  kwargs:      {visible(json.dumps(shown['kwargs'], ensure_ascii=False))}"
    yield f"  sent:        {shown['sent_at']}, delivered {job.delivery_count} times, {job.num_retries} retries left"
    if job.error is not None:
        first, *others = job.error.splitlines() or [""]
        yield f"  error:       {visible(first)}"
        yield from (f"               {visible(line)}" for line in others)
