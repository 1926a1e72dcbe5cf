"""``ACCOUNT/QUEUE worker``: runs what comes on one queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity, verbosity_options
from ai4s.jobq.cli.params import duration
from ai4s.jobq.cli.pull import chosen_processor, proc_option
from ai4s.jobq.cli.push import check_same_queues
from ai4s.jobq.cli.terminal import say
from ai4s.jobq.logs import set_up_logging
from ai4s.jobq.settings import NotConfiguredError, Target, resolve_queue, resolve_target
from ai4s.jobq.worker.settings import (
    PLAIN_VISIBILITY_S,
    WORKFLOW_VISIBILITY_S,
    WorkerSettings,
    worker_settings_from_environment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ai4s.jobq.plain.processors import Processor
    from ai4s.jobq.worker.loop import WorkerSummary

_DEFAULTS = WorkerSettings(queue="default")


@click.command()
@click.option(
    "-n", "--num-workers", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Tasks at a time."
)
@click.option(
    "--idle-timeout",
    type=duration,
    metavar="DURATION",
    envvar="JOBQ_IDLE_TIMEOUT",
    show_envvar=True,
    help="Leave after this time without work.  [default: a workflow worker stays, a plain one leaves at once]",
)
@click.option(
    "--max-idle-backoff",
    type=duration,
    metavar="DURATION",
    default="30s",
    show_default=True,
    envvar="JOBQ_MAX_IDLE_BACKOFF",
    show_envvar=True,
    help="Longest pause between two looks at an empty queue.",
)
@click.option(
    "--visibility-timeout",
    type=duration,
    metavar="DURATION",
    help="How long a task stays hidden without a sign of life of its worker.  [default: 90s, 10m for a plain queue]",
)
@click.option(
    "--time-limit",
    type=duration,
    metavar="DURATION",
    envvar="JOBQ_TIME_LIMIT",
    show_envvar=True,
    help="Take no new tasks after this time.  [default: none]",
)
@click.option(
    "--max-consecutive-failures",
    type=click.IntRange(min=1),
    default=_DEFAULTS.max_consecutive_failures,
    show_default=True,
    help="Leave after so many failed plain jobs in a row; failed tasks of workflows do not count.",
)
@click.option(
    "--heartbeat/--no-heartbeat",
    default=True,
    show_default=True,
    help="Keep tasks for longer than the visibility timeout. Without it they are killed at its end.",
)
@proc_option
@click.option("-t", "--emulate-tty", is_flag=True, help="Run each command on a terminal of its own, with 'script'.")
@verbosity_options
@click.pass_obj
def worker(
    invocation: Invocation,
    num_workers: int,
    idle_timeout: float | None,
    max_idle_backoff: float,
    visibility_timeout: float | None,
    time_limit: float | None,
    max_consecutive_failures: int,
    heartbeat: bool,
    proc: str,
    emulate_tty: bool,
) -> None:
    """Run what comes on the queue.

    It serves workflows when JOBQ_WORKFLOW_PREFIX (or a config file) names them, and plain jobs otherwise. SIGTERM or
    Ctrl-C: running tasks are stopped and run elsewhere; a second one kills them.
    """
    set_up_logging(verbosity(), level=logging.INFO)
    queue_target, queue = resolve_queue(invocation.given, environ=os.environ)
    target = _workflows(queue_target)
    processor = chosen_processor(proc, num_workers=num_workers, emulate_tty=emulate_tty)
    settings = _kind(heartbeat=heartbeat)(
        queue=queue,
        slots=num_workers,
        visibility_s=visibility_timeout or (WORKFLOW_VISIBILITY_S if target is not None else PLAIN_VISIBILITY_S),
        idle_timeout_s=idle_timeout,
        max_idle_backoff_s=max_idle_backoff,
        time_limit_s=time_limit,
        max_consecutive_failures=max_consecutive_failures,
    )
    settings = worker_settings_from_environment(settings, os.environ)
    say(f"▶ {queue_target.account}/{queue}  workflows={target.name if target is not None else 'none'}")
    summary = asyncio.run(_work(queue_target, target, settings, processor))
    if summary.gave_up:
        say(f"Error: {max_consecutive_failures} jobs in a row failed; the worker left.")
        raise click.exceptions.Exit(1)


def _kind(*, heartbeat: bool) -> type[WorkerSettings]:
    if heartbeat:
        return WorkerSettings
    from ai4s.jobq.plain.pulling import UnrenewedSettings

    return UnrenewedSettings


def _workflows(queue_target: Target) -> Target | None:
    """The workflows this worker serves, None when none are configured. Raises ``SettingsError``."""
    try:
        target = resolve_target(environ=os.environ)
    except NotConfiguredError:
        return None
    check_same_queues(target, queue_target)
    return target


async def _work(
    queue_target: Target,
    target: Target | None,
    settings: WorkerSettings,
    processor: Processor | Callable[..., Any],
) -> WorkerSummary:
    from ai4s.jobq.adapters.factory import open_services, open_store
    from ai4s.jobq.plain.callbacks import for_worker
    from ai4s.jobq.ports.clock import SystemClock
    from ai4s.jobq.worker.loop import Worker
    from ai4s.jobq.worker.signals import leaving_on_signals

    async with contextlib.AsyncExitStack() as opened:
        store = None
        if target is not None:
            store = await opened.enter_async_context(open_store(target))
            services = store.services
        else:
            services = await opened.enter_async_context(open_services(queue_target))
        environment = {**os.environ, **(target.variables() if target is not None else {})}
        clock = SystemClock()
        runs = for_worker(processor, settings, clock=clock, environment=environment, of_workflows=store is not None)
        worker = Worker(services, settings, clock=clock, store=store, processor=runs)
        with leaving_on_signals(worker):
            return await worker.run()
