"""``workflow explain``: why is this not running, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli import params
from ai4s.jobq.cli.bridge import Invocation, verbosity_options
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import put_json, visible

if TYPE_CHECKING:
    from ai4s.jobq.explain.explanation import Explanation


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option("--task", "task_name", metavar="NAME", type=params.task_name, help="Explain one task, undo job or hook.")
@as_json_option
@verbosity_options
@click.pass_obj
def explain(invocation: Invocation, workflow_id: str, task_name: str | None, as_json: bool) -> None:
    """Tell from evidence why a workflow or a task is not running.

    Looks at parents, queues, workers, limits and the coordinator, and names the one command that would help. Somebody who
    looks dead is watched for up to 22 seconds before he is called so.
    """
    from ai4s.jobq.explain.explain import explain_workflow

    target = invocation.target()
    found = invocation.ask(lambda client: explain_workflow(client.store, target, workflow_id, task=task_name))
    if as_json:
        put_json(found.to_json())
    else:
        print_lines(_lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    yield f"{found.workflow_id} {visible(found.name)}: {_on_one_line(found.summary)}"
    for reason in found.reasons:
        yield f"  - {_on_one_line(reason.text)}"
    if not found.reasons:
        yield "  Nothing stands in its way."
    if found.command is not None:
        yield ""
        yield f"What would help:  {visible(found.command)}"


def _on_one_line(text: str) -> str:
    return visible(" ".join(text.splitlines()))
