"""Commands that show workflows: ``status``, ``list``, ``tasks``, ``summary``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli import params
from ai4s.jobq.cli.arguments import labels_option, one_value_each
from ai4s.jobq.cli.bridge import Invocation, verbosity, verbosity_options
from ai4s.jobq.cli.render import layer_lines, list_lines, print_lines, status_lines, summary_lines, task_lines
from ai4s.jobq.cli.terminal import put, put_json, say
from ai4s.jobq.engine.states import TaskState, WorkflowState

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.layers import LayeredStatus
    from ai4s.jobq.views.status import TaskStatus

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option("--tasks/--no-tasks", default=True, show_default=True, help="Show every task.")
@click.option(
    "--by-layer/--no-by-layer",
    help="Show a line for many alike tasks: train-0001, train-0002 … are layer train.  [default: no]",
)
@as_json_option
@verbosity_options
@click.pass_obj
def status(invocation: Invocation, workflow_id: str, tasks: bool, by_layer: bool, as_json: bool) -> None:
    """Show one workflow and its tasks.

    With -v, outputs and errors in full.
    """
    if by_layer:
        _show_layers(invocation, workflow_id, as_json=as_json)
        return
    found = invocation.ask(lambda client: client.status(workflow_id, include_tasks=tasks))
    if as_json:
        put_json(found.to_json())
    else:
        print_lines(status_lines(found, sys.stdout, in_full=verbosity() > 0))


def _show_layers(invocation: Invocation, workflow_id: str, *, as_json: bool) -> None:
    async def read(client: WorkflowClient) -> LayeredStatus:
        from ai4s.jobq.views.layers import read_layers

        return await read_layers(client.store, workflow_id)

    found = invocation.ask(read)
    if as_json:
        put_json(found.to_json())
    else:
        print_lines(chain(status_lines(found.status, sys.stdout), [""], layer_lines(found.layers, sys.stdout)))


@click.command("list")
@click.option(
    "--status",
    "state",
    type=click.Choice([str(state) for state in WorkflowState], case_sensitive=False),
    help="Only those in this state.",
)
@labels_option("Only those with this label; may be repeated, all must match.")
@click.option("--recent", type=click.IntRange(min=1), metavar="N", help="Instead the N that ended last.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=0, show_default=True, help="Show at most so many; 0 shows all."
)
@as_json_option
@click.pass_obj
def list_(
    invocation: Invocation,
    state: str | None,
    labels: Sequence[tuple[str, str]],
    recent: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List workflows.

    Unfinished ones first, then ended ones, each newest first. What is told of a running one may be some seconds old.
    """
    wanted = None if state is None else WorkflowState(state.lower())
    marked = one_value_each(labels)
    found = invocation.ask(
        lambda client: client.list_workflows(status=wanted, labels=marked, recent=recent, limit=limit)
    )
    if as_json:
        put_json([workflow.to_json() for workflow in found])
    elif found:
        print_lines(list_lines(found, sys.stdout))
    else:
        put("No workflows found.")


@click.command()
@click.argument("workflow_ids", metavar="[ID]...", nargs=-1)
@click.option("--workflow", "more_ids", metavar="ID", multiple=True, help="Another way to give an ID.")
@click.option(
    "--status",
    "state",
    type=click.Choice([str(state) for state in TaskState], case_sensitive=False),
    help="Only tasks in this state.",
)
@click.option("--queue", help="Only tasks of this queue.")
@click.option("--prefix", default="", type=params.task_name, metavar="TEXT", help="Only tasks whose name begins so.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Show at most so many; 0 shows all."
)
@as_json_option
@verbosity_options
@click.pass_obj
def tasks(
    invocation: Invocation,
    workflow_ids: Sequence[str],
    more_ids: Sequence[str],
    state: str | None,
    queue: str | None,
    prefix: str,
    limit: int,
    as_json: bool,
) -> None:
    """Show tasks of some or all workflows.

    With -v, outputs and errors in full.
    """
    ids = list(dict.fromkeys((*workflow_ids, *more_ids)))
    wanted = None if state is None else TaskState(state.lower())
    selection = Selection(status=wanted, queue=queue, name_prefix=prefix, limit=limit)
    found = invocation.ask(lambda client: _select(client, ids, selection))
    if as_json:
        put_json(_tasks_json(found, tagged=len(ids) != 1))
    else:
        _print_tasks(found, titled=len(ids) != 1, in_full=verbosity() > 0)
    if limit and sum(map(len, found.values())) == limit:
        say(f"(showing first {limit} — use --limit 0 for all)")


@click.command()
@as_json_option
@click.pass_obj
def summary(invocation: Invocation, as_json: bool) -> None:
    """Count all workflows and tasks."""
    found = invocation.ask(lambda client: client.summary())
    if as_json:
        put_json(found.to_json())
    else:
        print_lines(summary_lines(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tasks are wanted; ``limit`` counts over all workflows, 0 means all."""

    status: TaskState | None
    queue: str | None
    name_prefix: str
    limit: int


async def _select(client: WorkflowClient, ids: Sequence[str], selection: Selection) -> dict[str, list[TaskStatus]]:
    """The selected tasks by workflow id; workflows without any are left out."""
    found: dict[str, list[TaskStatus]] = {}
    left = selection.limit
    for workflow_id in ids or [workflow.workflow_id for workflow in await client.list_workflows()]:
        tasks = await client.tasks(
            workflow_id,
            status=selection.status,
            queue=selection.queue,
            name_prefix=selection.name_prefix,
            limit=left,
        )
        if tasks:
            found[workflow_id] = tasks
        if selection.limit:
            left -= len(tasks)
            if left <= 0:
                break
    return found


def _tasks_json(found: dict[str, list[TaskStatus]], *, tagged: bool) -> list[dict[str, Any]]:
    return [
        {"workflow_id": workflow_id, **task.to_json()} if tagged else task.to_json()
        for workflow_id, tasks in found.items()
        for task in tasks
    ]


def _print_tasks(found: dict[str, list[TaskStatus]], *, titled: bool, in_full: bool) -> None:
    if not found:
        put("No tasks found.")
    for workflow_id, tasks in found.items():
        if titled:
            put(f"\n{workflow_id}:")
        print_lines(task_lines(tasks, sys.stdout, in_full=in_full))
