"""``workflow rerun``: an earlier workflow once more, without doing again what need not be done again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from ai4s.jobq.cli.arguments import Arguments, labels_option, one_value_each, params_options
from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.params import task_name
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import put, put_json, say
from ai4s.jobq.views.phrases import count

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.control.rerun import RerunResult
    from ai4s.jobq.control.rerun_plan import RerunPlan


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option(
    "--from",
    "names",
    metavar="TASK",
    type=task_name,
    multiple=True,
    help="Run this task again and all that comes after it; may be repeated.",
)
@params_options
@labels_option("A label of the new workflow, beside those of the earlier one; may be repeated.")
@click.option("--id", "new_id", metavar="NEW", help="The id of the new workflow.  [default: random]")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be done with each task, and do nothing.")
@as_json_option
@click.pass_obj
def rerun(
    invocation: Invocation,
    workflow_id: str,
    names: Sequence[str],
    params: Sequence[tuple[str, str]],
    params_file: str | None,
    labels: Sequence[tuple[str, str]],
    new_id: str | None,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Run an earlier workflow once more from some task on.

    Makes a new workflow, and prints its id. What completed before is taken over with its output, unless it is named, reads a
    param that changes, or comes after what runs again.
    """
    given = Arguments(params=one_value_each(params), params_file=params_file, labels=one_value_each(labels))
    if only_plan:
        _show_plan(invocation.ask(lambda client: _plan(client, workflow_id, names, given)), as_json=as_json)
        return
    result = invocation.ask(lambda client: _rerun(client, workflow_id, names, given, new_id))
    reused, tasks = len(result.plan.reused()), len(result.plan.tasks)
    new = result.submission
    if not new.created:
        say(f"{new.workflow_id} is there already, unchanged.")
    else:
        say(
            f"Reran {workflow_id} as {new.workflow_id}: {reused} of {count(tasks, 'task')} taken over, {tasks - reused} to run."
        )
    if as_json:
        put_json({"workflow_id": new.workflow_id, "created": new.created, **result.plan.to_json()})
    else:
        put(new.workflow_id)


async def _plan(client: WorkflowClient, workflow_id: str, names: Sequence[str], given: Arguments) -> RerunPlan:
    return await client.rerun_plan(workflow_id, names, params=await _values(client, workflow_id, given))


async def _rerun(
    client: WorkflowClient, workflow_id: str, names: Sequence[str], given: Arguments, new_id: str | None
) -> RerunResult:
    values = await _values(client, workflow_id, given)
    return await client.rerun(workflow_id, names, params=values, labels=given.labels, new_id=new_id)


async def _values(client: WorkflowClient, workflow_id: str, given: Arguments) -> dict[str, Any]:
    """The values that were given, by the types that the earlier workflow declares."""
    return given.values_for(await client.definition(workflow_id)) if given.has_params else {}


def _show_plan(plan: RerunPlan, *, as_json: bool) -> None:
    if as_json:
        put_json(plan.to_json())
        return
    print_lines(_plan_lines(plan, sys.stdout))
    reused = len(plan.reused())
    say(f"{reused} of {count(len(plan.tasks), 'task')} would be taken over, {len(plan.tasks) - reused} run.")


def _plan_lines(plan: RerunPlan, stream: TextIO) -> Iterator[str]:
    rows = [(task.name, "reuse" if task.is_reused else "run", task.reason) for task in plan.tasks]
    return table(("Task", "Action", "Reason"), rows, stream)
