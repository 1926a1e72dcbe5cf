"""``workflow watch``: a workflow as it goes, redrawn on a terminal, one line per change anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.params import duration
from ai4s.jobq.cli.render import change_lines, clock_of, layer_change_lines, outcome, outcome_code, progress
from ai4s.jobq.cli.screen import open_layer_screen, open_screen
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import is_terminal, put, put_json, say
from ai4s.jobq.errors import StorageUnavailableError

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.layers import LayeredStatus, LayerStatus
    from ai4s.jobq.views.status import WorkflowStatus


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=duration,
    metavar="DURATION",
    help="Give up after this time, such as 10m.  [default: never]",
)
@click.option(
    "--by-layer/--no-by-layer",
    help="Show a line for many alike tasks: train-0001, train-0002 … are layer train.  [default: no]",
)
@as_json_option
@click.pass_obj
def watch(
    invocation: Invocation,
    workflow_id: str,
    interval: float,
    timeout_s: float | None,
    by_layer: bool,
    as_json: bool,
) -> None:
    """Follow a workflow until it has ended.

    Exits with 0 when it completed, 1 when it failed, 3 when it was cancelled (undone or not), 124 when the time was over.
    Ctrl-C leaves the workflow alone. With --json nothing is printed but the last status.
    """

    async def follow(client: WorkflowClient) -> WorkflowStatus:
        from ai4s.jobq.client import FOLLOWED_TASKS

        tasks_up_to = 0 if by_layer or as_json else FOLLOWED_TASKS
        statuses = patiently(client, workflow_id, interval_s=interval, timeout_s=timeout_s, tasks_up_to=tasks_up_to)
        if by_layer and not as_json:
            return await show_each_by_layer(client, statuses)
        return await (print_last(client, statuses, by_layer=by_layer) if as_json else show_each(statuses))

    last = invocation.ask(follow)
    if not as_json:
        put(f"Workflow {workflow_id} reached terminal state: {outcome(last)}.")
    raise click.exceptions.Exit(outcome_code(last))


async def patiently(
    client: WorkflowClient, workflow_id: str, *, interval_s: float, timeout_s: float | None, tasks_up_to: int
) -> AsyncIterator[WorkflowStatus]:
    """Follow a workflow through times in which its store cannot be reached, once it has been seen."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    seen = False
    while True:
        left_s = None if deadline is None else max(deadline - loop.time(), 0.0)
        try:
            statuses = client.follow(workflow_id, timeout_s=left_s, poll_s=interval_s, tasks_up_to=tasks_up_to)
            async for status in statuses:
                seen = True
                yield status
            return
        except StorageUnavailableError as exc:
            if not seen or (deadline is not None and loop.time() >= deadline):
                raise
            say(f"Error refreshing: {exc}")
        await asyncio.sleep(interval_s)


async def print_last(
    client: WorkflowClient, statuses: AsyncIterator[WorkflowStatus], *, by_layer: bool
) -> WorkflowStatus:
    """Print the last status as JSON, with its tasks or its layers, and nothing before; the last status."""
    from ai4s.jobq.views.layers import read_layers

    last: WorkflowStatus | None = None
    async for status in statuses:
        last = status
    assert last is not None  # following yields at least once
    if by_layer:
        put_json((await read_layers(client.store, last.workflow_id)).to_json())
    else:
        put_json((await client.status(last.workflow_id)).to_json())
    return last


async def show_each(statuses: AsyncIterator[WorkflowStatus]) -> WorkflowStatus:
    """Show each status on stdout as fits it; the last one."""
    before: WorkflowStatus | None = None
    if is_terminal(sys.stdout):
        with open_screen(sys.stdout) as show:
            async for before in statuses:
                show(before)
    else:
        async for status in statuses:
            for line in change_lines(before, status):
                put(line)
            before = status
    assert before is not None  # following yields at least once
    return before


async def show_each_by_layer(client: WorkflowClient, statuses: AsyncIterator[WorkflowStatus]) -> WorkflowStatus:
    """Show the layers of each status on stdout as fits it; the last status."""
    from ai4s.jobq.views.layers import read_layers

    status: WorkflowStatus | None = None
    with contextlib.ExitStack() as opened:
        show = opened.enter_context(open_layer_screen(sys.stdout)) if is_terminal(sys.stdout) else _LayerLines().show
        async for status in statuses:
            show(await read_layers(client.store, status.workflow_id))
    assert status is not None  # following yields at least once
    return status


class _LayerLines:
    """Prints what is different from the look before."""

    def __init__(self) -> None:
        self._before: dict[str, LayerStatus] = {}

    def show(self, found: LayeredStatus) -> None:
        clock = clock_of(found.status)
        for line in layer_change_lines(self._before, found.layers, clock):
            put(line)
        put(f"{clock}  Workflow {found.status.workflow_id}: {found.status.status}, {progress(found.status)}")
        self._before = {layer.layer: layer for layer in found.layers}
