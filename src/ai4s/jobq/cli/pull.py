"""``ACCOUNT/QUEUE pull``: runs one job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity, verbosity_options
from ai4s.jobq.cli.params import duration
from ai4s.jobq.cli.queues import ask_queue
from ai4s.jobq.cli.terminal import say
from ai4s.jobq.logs import set_up_logging

if TYPE_CHECKING:
    from ai4s.jobq.jobq import JobQ
    from ai4s.jobq.plain.processors import Processor

proc_option = click.option(
    "--proc",
    "--processor",
    metavar="NAME",
    default="shell",
    show_default=True,
    help="What runs the jobs: shell, or module.Class of a Processor or function.",
)


@click.command()
@click.option(
    "--visibility-timeout",
    type=duration,
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="How long the job stays hidden without a sign of life.",
)
@proc_option
@verbosity_options
@click.pass_obj
def pull(invocation: Invocation, visibility_timeout: float, proc: str) -> None:
    """Take one job and run it.

    What it prints is logged to stderr. Exits with 0 when it succeeded or there was none, with 1 when it failed.
    """
    from ai4s.jobq.plain.errors import EmptyQueue

    set_up_logging(verbosity(), level=logging.INFO)
    processor = chosen_processor(proc, num_workers=1)

    async def run(queue: JobQ) -> bool:
        return await queue.pull_and_execute(processor, visibility_timeout=visibility_timeout, with_heartbeat=True)

    try:
        succeeded = ask_queue(invocation, run)
    except EmptyQueue as exc:
        say(str(exc))
        return
    if not succeeded:
        raise click.exceptions.Exit(1)


def chosen_processor(name: str, *, num_workers: int, emulate_tty: bool = False) -> Processor | Callable[..., Any]:
    """The processor that ``--proc`` names. Raises ``UsageError``."""
    from ai4s.jobq.plain.processor_names import SHELL, processor_named
    from ai4s.jobq.plain.processors import ShellCommandProcessor

    if name == SHELL:
        return ShellCommandProcessor(num_workers, emulate_tty=emulate_tty)
    if emulate_tty:
        raise click.UsageError("--emulate-tty is for shell commands: leave it out, or --proc.")
    return processor_named(name, num_workers=num_workers)
