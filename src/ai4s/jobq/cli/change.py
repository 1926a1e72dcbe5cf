"""Commands that change a workflow: ``cancel``, ``retry``, ``pause``, ``resume``, ``signal``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.params import text
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put, put_json, say
from ai4s.jobq.engine.states import WorkflowState

if TYPE_CHECKING:
    from ai4s.jobq.control.lifecycle import ChangeResult


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option("--force", is_flag=True, help="Give up undoing as well: what is not undone by now stays as it is.")
@as_json_option
@click.pass_obj
def cancel(invocation: Invocation, workflow_id: str, force: bool, as_json: bool) -> None:
    """Stop a workflow.

    Nothing more is started, running tasks are stopped by their workers, and completed tasks that can be undone are undone.
    Cancelling one that has ended or is being undone changes nothing.
    """
    result = invocation.ask(lambda client: client.cancel(workflow_id, force=force))
    if as_json:
        requested = result.status is WorkflowState.CANCELLED
        put_json({**asdict(result), "cancel_requested": requested, "target": invocation.target().name})
    else:
        _say_change(invocation, result, "Cancellation requested for workflow {} in {}.")


@click.command()
@click.argument("workflow_id", metavar="ID")
@as_json_option
@click.pass_obj
def retry(invocation: Invocation, workflow_id: str, as_json: bool) -> None:
    """Do again what did not complete.

    The workflow must have ended. Completed tasks are kept with their outputs.
    """
    result = invocation.ask(lambda client: client.retry(workflow_id))
    if as_json:
        put_json({"workflow_id": workflow_id, **asdict(result)})
        return
    put(
        f"Workflow {workflow_id} in {invocation.target().name}: reset {result.reset} task{'s' * (result.reset != 1)} "
        f"→ {result.now_ready} now ready, {result.still_pending} still pending."
    )


@click.command()
@click.argument("workflow_id", metavar="ID")
@as_json_option
@click.pass_obj
def pause(invocation: Invocation, workflow_id: str, as_json: bool) -> None:
    """Start nothing more of a workflow until it is resumed.

    What runs goes on, and so do delays and deadlines.
    """
    result = invocation.ask(lambda client: client.pause(workflow_id))
    if as_json:
        put_json({**asdict(result), "target": invocation.target().name})
    else:
        _say_change(invocation, result, "Paused workflow {} in {}.")


@click.command()
@click.argument("workflow_id", metavar="ID")
@as_json_option
@click.pass_obj
def resume(invocation: Invocation, workflow_id: str, as_json: bool) -> None:
    """Go on with a paused workflow."""
    result = invocation.ask(lambda client: client.resume(workflow_id))
    if as_json:
        put_json({**asdict(result), "target": invocation.target().name})
    else:
        _say_change(invocation, result, "Resumed workflow {} in {}.")


@click.command("signal")
@click.argument("workflow_id", metavar="ID")
@click.argument("name")
@click.option(
    "--data",
    metavar="JSON",
    type=text,
    help="The output of the tasks that wait: JSON of at most 32 KB.  [default: none]",
)
@as_json_option
@click.pass_obj
def signal_(invocation: Invocation, workflow_id: str, name: str, data: str | None, as_json: bool) -> None:
    """Send a signal to the tasks that wait for its NAME.

    It may come before a task waits. It is kept: the first of a name answers every task of the workflow that waits for it.
    """
    value = None if data is None else _json(data)
    result = invocation.ask(lambda client: client.signal(workflow_id, name, value))
    if as_json:
        put_json({**asdict(result), "target": invocation.target().name})
        return
    put(f"Sent signal {name!r} to workflow {workflow_id} in {invocation.target().name}.")
    if result.note:
        say(f"Note: {result.note}.")


def _say_change(invocation: Invocation, result: ChangeResult, done: str) -> None:
    target = invocation.target().name
    if result.changed:
        put(done.format(result.workflow_id, target))
    else:
        put(f"Workflow {result.workflow_id} in {target}: {result.note}.")


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise click.BadParameter(
            f"it is no JSON ({exc}). Text needs quotes of its own: '\"yes\"'.", param_hint="--data"
        ) from exc


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
