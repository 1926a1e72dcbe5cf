"""Commands that change a workflow: ``cancel`` and ``retry``."""

from __future__ import annotations

from dataclasses import asdict

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put, put_json
from ai4s.jobq.engine.states import WorkflowState


@click.command()
@click.argument("workflow_id", metavar="ID")
@as_json_option
@click.pass_obj
def cancel(invocation: Invocation, workflow_id: str, as_json: bool) -> None:
    """Stop a workflow.

    Nothing more is started, running tasks are stopped by their workers. Cancelling one that has ended changes nothing.
    """
    result = invocation.ask(lambda client: client.cancel(workflow_id))
    target = invocation.target().name
    if as_json:
        requested = result.status is WorkflowState.CANCELLED
        put_json({**asdict(result), "cancel_requested": requested, "target": target})
    elif result.changed:
        put(f"Cancellation requested for workflow {workflow_id} in {target}.")
    else:
        put(f"Workflow {workflow_id} in {target}: {result.note}.")


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
