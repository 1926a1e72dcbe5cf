"""The commands and how they hang together."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from ai4s.jobq.cli import (
    change,
    completion,
    config,
    coordinator,
    dead_letters,
    doctor,
    explain,
    graph,
    history,
    logs,
    peek,
    pull,
    purge,
    push,
    rerun,
    run,
    show,
    submit,
    watch,
    worker,
    workers,
)
from ai4s.jobq.cli.bridge import Invocation, run_program, verbosity_options
from ai4s.jobq.cli.target_group import TargetGroup, given_target

PROGRAM = "ai4s-jobq"


@click.group(cls=TargetGroup, target="ACCOUNT/QUEUE", context_settings={"help_option_names": ["-h", "--help"]})
@verbosity_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run workflows and jobs on workers that pull from queues.

    ACCOUNT is a storage account, 'local' for a directory of this machine, or 'devstoreaccount1' for Azurite.
    """
    ctx.obj = Invocation(given=given_target(ctx))


@cli.group(cls=TargetGroup, target="ACCOUNT/PREFIX")
@click.option(
    "--queues", metavar="ACCOUNT", help="Where the queues are, if elsewhere.  [env var: JOBQ_WORKFLOW_QUEUES]"
)
@click.option("--blobs", metavar="ACCOUNT/CONTAINER", help="Where large outputs go.  [env var: JOBQ_WORKFLOW_BLOBS]")
@click.option("--config", metavar="FILE", help="The config file.  [env var: JOBQ_WORKFLOW_CONFIG]")
@verbosity_options
@click.pass_context
def workflow(ctx: click.Context, queues: str | None, blobs: str | None, config: str | None) -> None:
    """Submit, watch and coordinate workflows.

    ACCOUNT/PREFIX may also be set as JOBQ_WORKFLOW_PREFIX or in a config file jobq.yaml; what is written here wins.
    """
    outer = ctx.find_object(Invocation)
    if outer is not None and outer.given is not None:
        raise click.UsageError(f"Write {outer.given!r} after 'workflow': {PROGRAM} workflow {outer.given} …", ctx)
    ctx.obj = Invocation(given=given_target(ctx), queues=queues, blobs=blobs, config=config)


cli.add_command(worker.worker)
cli.add_command(push.push)
cli.add_command(pull.pull)
cli.add_command(peek.peek)
cli.add_command(peek.size)
cli.add_command(peek.clear)
cli.add_command(completion.completion)
for command in (
    submit.submit,
    submit.validate,
    show.status,
    show.list_,
    show.tasks,
    show.summary,
    watch.watch,
    logs.logs,
    history.history,
    graph.graph,
    change.cancel,
    change.retry,
    rerun.rerun,
    change.pause,
    change.resume,
    change.signal_,
    explain.explain,
    doctor.doctor,
    workers.workers,
    dead_letters.dead_letters,
    purge.purge,
    coordinator.coordinator,
    run.run,
    config.config,
    submit.schema,
):
    workflow.add_command(command)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The program. A shell that asks what may follow on a command line is answered (see ``completion``)."""
    _open_missing_streams()
    if question := os.environ.get(completion.VARIABLE):
        sys.exit(shell_complete(cli, {}, PROGRAM, completion.VARIABLE, question))
    code = run_program(cli, sys.argv[1:] if args is None else args, name=PROGRAM)
    _drop_what_cannot_be_written()
    sys.exit(code)


def _drop_what_cannot_be_written() -> None:
    """Whatever had to be said of a stream that takes nothing has been: at its end Python would say it again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _open_missing_streams() -> None:
    """Give the program the streams it was started without, so that no file it opens takes their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115  # open until the process ends, as the next two
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


if __name__ == "__main__":
    main()
