"""``workflow purge``: delete workflows with all that belongs to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity_options
from ai4s.jobq.cli.params import duration
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import fitted, is_terminal, put, put_json, say, visible
from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import OperationalError
from ai4s.jobq.views.phrases import count

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.purge.plan import Plan, Selection
    from ai4s.jobq.purge.purge import Purged

SHOWN = 6  # ids and queues named before the question


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the options ask for."""

    selection: Selection
    drop_tables: bool
    drain: bool
    force: bool
    keep_blobs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What would be done: the plan, the queues to drain, and those that unfinished workflows still need."""

    plan: Plan
    queues: Sequence[str]
    needed: Sequence[str]


@click.command()
@click.argument("workflow_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Workflows that have not ended, too; needs --force for those.")
@click.option(
    "--status",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in WorkflowState], case_sensitive=False),
    help="Only those in this state; may be repeated.",
)
@click.option("--older-than", metavar="DURATION", type=duration, help="Only those that ended so long ago, such as 7d.")
@click.option("--drop-tables", is_flag=True, help="Delete everything of the prefix by dropping its tables.")
@click.option("--drain-queues", is_flag=True, help="Also clear the queues that the workflows name.")
@click.option(
    "--keep-blobs", is_flag=True, help="Leave logs and large outputs in blob storage, where nothing names them."
)
@click.option("--force", is_flag=True, help="Cancel workflows that have not ended, then purge them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be purged.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json_option
@verbosity_options
@click.pass_obj
def purge(
    invocation: Invocation,
    /,
    workflow_ids: Sequence[str],
    everything: bool,
    states: Sequence[str],
    older_than: float | None,
    drop_tables: bool,
    drain_queues: bool,
    keep_blobs: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete workflows: rows, logs, outputs, everything.

    Without IDs: all that have ended, as far as --status and --older-than allow. Asks before it deletes. What an interrupted
    purge has left is taken by the next one.
    """
    from ai4s.jobq.purge.plan import Selection

    narrowed = bool(workflow_ids or states or older_than is not None)
    if narrowed and (drop_tables or (everything and workflow_ids)):
        raise click.UsageError("--drop-tables and --all take everything: leave out IDs, --status and --older-than.")
    wanted = frozenset(WorkflowState(state.lower()) for state in states)
    selection = Selection(
        ids=workflow_ids,
        states=wanted,
        older_than=None if older_than is None else timedelta(seconds=older_than),
        unfinished=everything or drop_tables or any(not state.is_terminal for state in wanted),
    )
    wish = Wish(selection=selection, drop_tables=drop_tables, drain=drain_queues, force=force, keep_blobs=keep_blobs)
    prospect = invocation.ask(lambda client: _look(client, wish))
    if dry_run:
        _tell(prospect, as_json=as_json)
        return
    _say_plan(invocation, prospect, wish)
    _refuse_active(prospect.plan, wish)
    if not yes and (prospect.plan.chosen or drop_tables):
        _confirm()
    _report(invocation.ask(lambda client: _carry_out(client, prospect, wish)), as_json=as_json)


async def _look(client: WorkflowClient, wish: Wish) -> Prospect:
    from ai4s.jobq.ports.clock import SystemClock
    from ai4s.jobq.purge.plan import make_plan
    from ai4s.jobq.purge.purge import queues_to_drain

    plan = await make_plan(client.store, wish.selection, SystemClock())
    queues, needed = await queues_to_drain(client.store, plan) if wish.drain else ([], [])
    return Prospect(plan=plan, queues=queues, needed=needed)


async def _carry_out(client: WorkflowClient, prospect: Prospect, wish: Wish) -> Purged:
    from ai4s.jobq.ports.clock import SystemClock
    from ai4s.jobq.purge.purge import drain_queues, drop_everything, purge_workflows

    if wish.drop_tables:
        purged = await drop_everything(client.store, keep_blobs=wish.keep_blobs)
    else:
        with _Progress(len(prospect.plan.chosen)) as progress:
            purged = await purge_workflows(
                client.store, prospect.plan, SystemClock(), keep_blobs=wish.keep_blobs, progress=progress.show
            )
    purged.drained = await drain_queues(client.store, prospect.queues)
    return purged


class _Progress:
    """``Purged 3/10`` on one line of a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shows = is_terminal(sys.stderr)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")

    def show(self, done: int) -> None:
        if self._shows:
            sys.stderr.write(f"\rPurged {done}/{self._total} \x1b[K")


def _refuse_active(plan: Plan, wish: Wish) -> None:
    """Unfinished workflows need ``--force``; with ``--drop-tables`` even that does not take a run from a living process."""
    if wish.drop_tables and plan.left_alone:
        raise OperationalError(f"{_left_alone(plan.left_alone)} Nothing was deleted.")
    if plan.active and not wish.force:
        ids = [chosen.victim.workflow_id for chosen in plan.active]
        raise OperationalError(
            f"{count(len(ids), 'workflow')} not ended: {_some(ids)}. Nothing was deleted. --force cancels them first."
        )


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on, and nothing was deleted. Add --yes to purge.")
    if not click.confirm("Delete permanently?", err=True):
        say("Nothing was deleted.")
        raise click.exceptions.Exit(1)


def _say_plan(invocation: Invocation, prospect: Prospect, wish: Wish) -> None:
    """What is about to go, before the question."""
    from ai4s.jobq.store.layout import Names

    target, plan = invocation.target(), prospect.plan
    names = Names(target.prefix)
    say(f"Account:    {target.account}")
    say(f"Tables:     {names.index_table}, {names.tasks_table}{' (dropped)' if wish.drop_tables else ''}")
    say(f"Workflows:  {len(plan.chosen)} ({count(plan.tasks, 'task')}): {_ids(plan)}")
    if wish.drain:
        say(f"Queues:     {_some(prospect.queues) or 'none'} (cleared)")
    if prospect.needed:
        say(f"Not cleared, for unfinished workflows use them: {_some(prospect.needed)}")


def _ids(plan: Plan) -> str:
    return _some([chosen.victim.workflow_id for chosen in plan.chosen]) or "none"


def _some(names: Sequence[str]) -> str:
    more = f", … (+{len(names) - SHOWN} more)" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _tell(prospect: Prospect, *, as_json: bool) -> None:
    """The answer to ``--dry-run``."""
    plan = prospect.plan
    if as_json:
        put_json(
            {
                "dry_run": True,
                "workflows": [
                    {
                        "workflow_id": chosen.victim.workflow_id,
                        "name": chosen.name,
                        "status": chosen.state,
                        "tasks": chosen.tasks,
                        "needs_force": chosen.is_active,
                    }
                    for chosen in plan.chosen
                ],
                "queues": list(prospect.queues),
                "left_alone": plan.left_alone,
            }
        )
        return
    if not plan.chosen:
        put("Nothing to purge.")
        return
    print_lines(_plan_lines(plan))
    if plan.left_alone:
        say(_left_alone(plan.left_alone))


def _plan_lines(plan: Plan) -> Iterator[str]:
    rows = [
        (chosen.victim.workflow_id, chosen.name, chosen.state, str(chosen.tasks), "--force" if chosen.is_active else "")
        for chosen in plan.chosen
    ]
    yield from table(("ID", "Name", "Status", "Tasks", "Needs"), rows, sys.stdout)
    yield f"Would purge {count(len(plan.chosen), 'workflow')}. Nothing was deleted."


def _report(purged: Purged, *, as_json: bool) -> None:
    if as_json:
        put_json({"dry_run": False, **_purged_json(purged)})
    else:
        print_lines(_purged_lines(purged))
    if purged.left_alone:
        say(_left_alone(purged.left_alone))
        raise click.exceptions.Exit(1)


def _purged_json(purged: Purged) -> dict[str, Any]:
    return asdict(purged)


def _purged_lines(purged: Purged) -> Iterator[str]:
    if purged.tables_dropped:
        yield "Tables dropped (will be recreated on next submit)."
    else:
        yield f"Deleted {count(purged.workflows, 'workflow row')} and {count(purged.task_rows, 'task row')}."
    if purged.blobs:
        yield f"Deleted {count(purged.blobs, 'blob')}."
    if purged.drained:
        messages = sum(purged.drained.values())
        yield f"Drained {len(purged.drained)} queue(s) ({messages} approx message(s))."


def _left_alone(reasons: dict[str, str]) -> str:
    told = [f"{workflow_id}: {reason}" for workflow_id, reason in reasons.items()]
    return fitted(visible(f"Left alone: {'; '.join(told)}"), sys.stderr)
