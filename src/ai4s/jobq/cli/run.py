"""``workflow run``: a workflow from file to end in one process, without any service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.arguments import Arguments, labels_option, one_value_each, params_options, with_arguments
from ai4s.jobq.cli.bridge import Invocation, verbosity, verbosity_options
from ai4s.jobq.cli.render import change_lines, outcome_code, print_lines, status_lines, submitted_line
from ai4s.jobq.cli.screen import open_screen
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.stats import say_requests
from ai4s.jobq.cli.submit import load_all
from ai4s.jobq.cli.terminal import is_terminal, put_json, say
from ai4s.jobq.logs import set_up_logging
from ai4s.jobq.settings import LOCAL_TARGET, Target

if TYPE_CHECKING:
    from ai4s.jobq.definition.model import WorkflowDefinition
    from ai4s.jobq.embedded import Outcome
    from ai4s.jobq.views.status import WorkflowStatus

DEFAULT_SLOTS_PER_CORE = 2  # commands wait for disks and networks as often as they compute
COUNTS_EVERY_S = 1.0


@click.command()
@click.argument("file", required=False, type=click.Path())
@click.option("--resume", metavar="ID", help="Go on with a run whose process ended, instead of a FILE.")
@click.option("--force", is_flag=True, help="With --resume: even though its process may still run.")
@click.option(
    "-n", "--slots", type=click.IntRange(1, 10_000), help="Tasks at a time, over all queues.  [default: cores x 2]"
)
@params_options
@labels_option("A label, beside those of the file; may be repeated.")
@click.option("--stats", is_flag=True, help="Print how many requests were sent to storage, at the end.")
@as_json_option
@verbosity_options
@click.pass_obj
def run(
    invocation: Invocation,
    file: str | None,
    resume: str | None,
    force: bool,
    slots: int | None,
    params: Sequence[tuple[str, str]],
    params_file: str | None,
    labels: Sequence[tuple[str, str]],
    stats: bool,
    as_json: bool,
) -> None:
    """Run a workflow here and now.

    Coordinator and workers for all its queues live in this one process. Without any configuration everything is kept in
    local/default, where the other commands find it. Exits with 0 when the workflow completed, 1 when it failed, 3 when
    it was cancelled. Ctrl-C stops it; --resume goes on. With -v, what the tasks print is shown.
    """
    if (file is None) == (resume is None):
        raise click.UsageError("Give a FILE to run, or --resume ID.")
    given = Arguments(params=one_value_each(params), params_file=params_file, labels=one_value_each(labels))
    if resume is not None and (given.has_params or given.labels):
        raise click.UsageError("A run that goes on keeps its params and labels: leave them out with --resume.")
    set_up_logging(verbosity(), task_output=verbosity() > 0)
    definition = with_arguments([file], load_all([file]), given)[0] if file is not None else None
    target = invocation.target(fallback=LOCAL_TARGET)
    slots = slots or (os.cpu_count() or 1) * DEFAULT_SLOTS_PER_CORE
    outcome = asyncio.run(_run(target, definition, resume, slots=slots, force=force, with_stats=stats))
    _conclude(target, outcome, as_json=as_json)


async def _run(
    target: Target,
    definition: WorkflowDefinition | None,
    resume: str | None,
    *,
    slots: int,
    force: bool,
    with_stats: bool,
) -> Outcome:
    from ai4s.jobq.adapters.factory import open_store
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.embedded import CANCEL_POLL_S, EmbeddedRun, submit_private, take_over
    from ai4s.jobq.worker.settings import WorkerSettings, worker_settings_from_environment

    settings = worker_settings_from_environment(WorkerSettings(queue="run", cancel_poll_s=CANCEL_POLL_S), os.environ)
    async with open_store(target) as store:
        if definition is not None:
            header = await submit_private(store, definition)
            say(submitted_line(definition.name, definition.roots(), len(definition.tasks), header.workflow_id))
        else:
            header = await take_over(store, resume or "", force=force)
        embedded = EmbeddedRun(
            store, header, slots=slots, environment={**os.environ, **target.variables()}, settings=settings
        )
        with _progress() as show:
            outcome = await embedded.run(show)
        if with_stats:
            say_requests(store.services.requests, tasks=header.task_count)
        status = await WorkflowClient(store).status(header.workflow_id)
        return replace(outcome, status=status)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[WorkflowStatus], None]]:
    """What shows each status on stderr: redrawn on a terminal, line by line elsewhere."""
    if not is_terminal(sys.stderr):
        yield _line_by_line()
        return
    with open_screen(sys.stderr) as show:
        yield show


def _line_by_line() -> Callable[[WorkflowStatus], None]:
    """A line per change of a task; for a large workflow its counts, at most one line per second."""
    last: list[WorkflowStatus] = []
    said_at = float("-inf")

    def show(status: WorkflowStatus) -> None:
        nonlocal said_at
        if status.tasks is None and status.ended_at is None and time.monotonic() - said_at < COUNTS_EVERY_S:
            return
        for line in change_lines(last[-1] if last else None, status):
            say(line)
        last[:] = [status]
        said_at = time.monotonic()

    return show


def _conclude(target: Target, outcome: Outcome, *, as_json: bool) -> None:
    status = outcome.status
    if as_json:
        put_json(status.to_json())
    else:
        print_lines(status_lines(status, sys.stdout))
    if status.ended_at is None and outcome.interrupted is not None:
        say(f"Stopped. Go on with: ai4s-jobq workflow {target.name} run --resume {status.workflow_id}")
        raise click.exceptions.Exit(128 + outcome.interrupted)
    raise click.exceptions.Exit(outcome_code(status))
