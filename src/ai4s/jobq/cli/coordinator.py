"""``workflow coordinator``: the process that decides what may run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity, verbosity_options
from ai4s.jobq.cli.params import settings_options
from ai4s.jobq.cli.stats import say_requests
from ai4s.jobq.cli.terminal import say
from ai4s.jobq.config_file import load_config
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.logs import set_up_logging
from ai4s.jobq.settings import Target, settings_from

if TYPE_CHECKING:
    from ai4s.jobq.coordinator.loop import Coordinator


@click.command()
@settings_options(CoordinatorSettings, env_prefix="JOBQ_COORDINATOR_")
@click.option("--stats", is_flag=True, help="Print how many requests were sent to storage, at the end.")
@verbosity_options
@click.pass_obj
def coordinator(invocation: Invocation, /, stats: bool, **flags: Any) -> None:
    """Dispatch tasks whose time has come.

    Runs until stopped. Stateless: any number may run, one leads, the others stand by. SIGTERM or Ctrl-C stops it after the
    current cycle; a second one at once.
    """
    set_up_logging(verbosity(), level=logging.INFO)
    target = invocation.target()
    file = load_config(invocation.config, os.environ)
    settings = settings_from(CoordinatorSettings, flags, file.coordinator, where=f"{file.path}: coordinator")
    say(_announcement(target, settings))
    asyncio.run(_coordinate(target, settings, with_stats=stats))


async def _coordinate(target: Target, settings: CoordinatorSettings, *, with_stats: bool) -> None:
    from ai4s.jobq.adapters.factory import open_store
    from ai4s.jobq.coordinator.loop import Coordinator

    async with open_store(target) as store:
        coordinator = Coordinator(store, settings)
        _stop_on_signals(coordinator)
        done = await coordinator.run()
        say(
            f"Coordinator stopped — {done.completions} completions, {done.dispatched} tasks pushed, {done.commits} commits"
        )
        if with_stats:
            say_requests(store.services.requests, tasks=done.dispatched)


def _stop_on_signals(coordinator: Coordinator) -> None:
    """The first SIGTERM or SIGINT stops the coordinator; after it both have their usual, immediate effect."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(number: signal.Signals) -> None:
        say(f"Received {number.name}; shutting down coordinator…")
        coordinator.stop()
        for handled in numbers:
            loop.remove_signal_handler(handled)

    for number in numbers:
        loop.add_signal_handler(number, stop, number)


def _announcement(target: Target, settings: CoordinatorSettings) -> str:
    lines = [
        "Coordinator target:",
        f"  Workflows:      {target.name}",
        f"  Queues:         {target.local_dir if target.is_local else target.queue_account}",
        f"  Batch size:     {settings.batch_size}",
        f"  Visibility:     {settings.visibility_s:g} s",
        f"  Sweep:          every {settings.sweep_s:g} s",
        f"  Queue window:   {settings.queue_window}",
        f"  Retention:      {settings.retention}",
        "Starting workflow coordinator…",
    ]
    return "\n".join(lines)
