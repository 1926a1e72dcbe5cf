"""``ACCOUNT/QUEUE push``: jobs, or one-task workflows, onto a queue."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.params import duration, key_value, text
from ai4s.jobq.cli.terminal import put, say, visible
from ai4s.jobq.errors import SettingsError, UsageError
from ai4s.jobq.settings import Target, resolve_queue, resolve_target

if TYPE_CHECKING:
    from ai4s.jobq.definition.model import WorkflowDefinition
    from ai4s.jobq.jobq import JobQFuture
    from ai4s.jobq.plain.replies import Response

WORKFLOW_NAME_LENGTH = 80  # characters of the command that name its workflow


@click.command()
@click.option("-c", "--command", "commands", type=text, multiple=True, help="A shell command; may be repeated.")
@click.option("--num-retries", type=click.IntRange(0, 1000), default=0, show_default=True, help="Per job.")
@click.option(
    "-e",
    "--env",
    type=key_value,
    metavar="KEY=VALUE",
    multiple=True,
    help="KEY=VALUE for the command; may be repeated.",
)
@click.option(
    "--num-workers",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="With --wait: requests at a time.",
)
@click.option("--wait", is_flag=True, help="Wait until all jobs have ended, and print what each one returned.")
@click.option(
    "--dedup-window",
    type=duration,
    metavar="DURATION",
    help="For Service Bus; storage queues find no duplicates, so there it changes nothing.",
)
@click.option("--workflow", "as_workflows", is_flag=True, help="Submit each command as a workflow of one task.")
@click.pass_obj
def push(
    invocation: Invocation,
    commands: Sequence[str],
    num_retries: int,
    env: Sequence[tuple[str, str]],
    num_workers: int,
    wait: bool,
    dedup_window: float | None,
    as_workflows: bool,
) -> None:
    """Put jobs on the queue.

    Commands given with -c, else one per line of stdin. A line that begins with a brace is a JSON job with cmd, env and cwd.
    With --wait a job's result is printed as one line of JSON, in the order of the jobs; it exits with 1 when one failed.
    """
    from ai4s.jobq.plain.jobs import job_kwargs

    if wait and as_workflows:
        raise click.UsageError("--wait is for plain jobs: follow a workflow with ai4s-jobq workflow watch.")
    target, queue = resolve_queue(invocation.given, environ=os.environ)
    lines = [line for line in commands or _lines_from_stdin() if line.strip()]
    jobs = [job_kwargs(line, env=dict(env)) for line in lines]
    if as_workflows:
        _push_workflows(workflow_target_for(target), queue, jobs, num_retries)
    elif wait:
        failed = asyncio.run(_push_and_wait(target, queue, jobs, num_retries, at_once=num_workers))
        raise click.exceptions.Exit(1 if failed else 0)
    else:
        asyncio.run(_push_jobs(target, queue, jobs, num_retries))


def workflow_target_for(queue_target: Target) -> Target:
    """The workflows that are configured, if their tasks are on this account's queues. Raises ``SettingsError``."""
    try:
        target = resolve_target(environ=os.environ)
    except SettingsError as exc:
        raise SettingsError(f"--workflow: {exc}") from exc
    check_same_queues(target, queue_target)
    return target


def check_same_queues(target: Target, queue_target: Target) -> None:
    """Raise ``SettingsError`` when the workflows of ``target`` have their queues in another account."""
    if target.queue_account != queue_target.account:
        raise SettingsError(
            f"The queue is in {queue_target.account!r}, but the workflows of {target.name} have their queues in "
            f"{target.queue_account!r}. Use {target.queue_account}/<queue>, or set JOBQ_WORKFLOW_QUEUES={queue_target.account}."
        )


def _lines_from_stdin() -> list[str]:
    if sys.stdin.isatty():
        say("Reading jobs from the terminal, one per line; end with Ctrl-D.")
    return [text(line.rstrip("\r\n")) for line in sys.stdin]


async def _push_jobs(target: Target, queue: str, jobs: Sequence[dict[str, Any]], num_retries: int) -> None:
    from ai4s.jobq.jobq import JobQ
    from ai4s.jobq.progress import progress_bar

    async with JobQ.open(target, queue) as opened:
        with progress_bar("Pushing", len(jobs)) as advance:
            sent = await opened.push_many(jobs, num_retries=num_retries, on_sent=advance)
    say(f"Pushed {len(sent)} job{'s' * (len(sent) != 1)} to {target.account}/{queue}")


async def _push_and_wait(
    target: Target, queue: str, jobs: Sequence[dict[str, Any]], num_retries: int, *, at_once: int
) -> int:
    """Push the jobs and print their results; how many failed."""
    from ai4s.jobq.jobq import JobQ
    from ai4s.jobq.progress import progress_bar

    limit = asyncio.Semaphore(at_once)
    failed = 0
    async with JobQ.open(target, queue) as opened:
        with progress_bar("Waiting", len(jobs)) as advance:

            async def pushed(kwargs: dict[str, Any]) -> JobQFuture:
                async with limit:
                    return await opened.push(kwargs, num_retries=num_retries, reply_requested=True)

            async def response(future: JobQFuture) -> Response:
                async with limit:
                    answer = await future.response()
                advance(1)
                return answer

            futures = await asyncio.gather(*map(pushed, jobs))
            answers = await asyncio.gather(*map(response, futures))
    for answer in answers:
        if answer.is_success:
            put(json.dumps(answer.body))
        else:
            failed += 1
            say(f"Failed: {visible(str(answer.body))}")
    return failed


def _push_workflows(target: Target, queue: str, jobs: Sequence[dict[str, Any]], num_retries: int) -> None:
    from ai4s.jobq.client import WorkflowClient

    definitions = [_definition(kwargs, queue, num_retries) for kwargs in jobs]

    async def submit() -> None:
        async with WorkflowClient.open(target) as client:
            async for result in client.submit_batch(definitions):
                if result.error is not None:
                    raise result.error
                if result.submission is not None:
                    put(result.submission.workflow_id)

    asyncio.run(submit())


def _definition(kwargs: dict[str, Any], queue: str, num_retries: int) -> WorkflowDefinition:
    from ai4s.jobq.definition.load import from_mapping

    if not isinstance(kwargs.get("cmd"), str):
        raise UsageError("--workflow: a job has no 'cmd'. Give the shell command to run as cmd.")
    name = "".join(char for char in kwargs["cmd"][:WORKFLOW_NAME_LENGTH] if char.isprintable()).strip()
    task = {"name": "main", "queue": queue, "kwargs": kwargs, "num_retries": num_retries}
    return from_mapping({"name": name or "main", "tasks": [task]})
