"""``workflow workers``: who serves which queue, since when, doing what."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity_options
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.tables import table
from ai4s.jobq.cli.terminal import put, put_json
from ai4s.jobq.durations import span
from ai4s.jobq.views.phrases import ago

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.views.signs import WorkerSign

_TITLES = ("Queue", "Last sign", "Host:PID", "In hand", "Up", "Version")


@click.command()
@click.option("--queue", help="Only those of this queue.")
@as_json_option
@verbosity_options
@click.pass_obj
def workers(invocation: Invocation, queue: str | None, as_json: bool) -> None:
    """List workers and what they have in hand.

    A worker tells of itself every 20 seconds. Those 'silent' for more than a minute have probably died, those 'dead', all of
    this machine, certainly; they are listed for an hour or so. 'In hand' is tasks of slots. Plain workers (without a
    workflow prefix) tell nothing and are not listed.
    """
    signs = invocation.ask(lambda client: _signs(client, queue))
    if as_json:
        put_json([worker_json(sign) for sign in signs])
    elif signs:
        print_lines(_lines(signs))
    else:
        put("No workers found.")


def worker_json(sign: WorkerSign) -> dict[str, Any]:
    """A worker as a JSON object; times are ISO 8601 in UTC, by the worker's own clock."""
    from ai4s.jobq.store.columns import iso

    record = sign.record
    return {
        "worker": record.worker_id,
        "queue": record.queue,
        "life": str(sign.life),
        "host": record.host,
        "pid": record.pid,
        "slots": record.slots,
        "in_hand": [dict(zip(("workflow_id", "row"), key.split("/"), strict=False)) for key in record.executions],
        "version": record.version,
        "started_at": iso(record.started_at),
        "seen_at": iso(record.seen_at),
        "asked_at": iso(record.asked_at),
    }


async def _signs(client: WorkflowClient, queue: str | None) -> list[WorkerSign]:
    from ai4s.jobq.ports.clock import SystemClock
    from ai4s.jobq.store.workers import WorkerRegistry
    from ai4s.jobq.views.signs import worker_signs

    registry = WorkerRegistry(client.store.services, client.store.names)
    return await worker_signs(registry, SystemClock(), queues=None if queue is None else {queue})


def _lines(signs: Sequence[WorkerSign]) -> Iterator[str]:
    now = datetime.now(UTC)
    rows = [
        (
            sign.record.queue,
            f"{sign.life}{ago(sign.age_s)}",
            f"{sign.record.host}:{sign.record.pid}",
            f"{len(sign.record.executions)}/{sign.record.slots}",
            span((now - sign.record.started_at).total_seconds()),
            sign.record.version,
        )
        for sign in signs
    ]
    return table(_TITLES, rows, sys.stdout)
