"""``workflow doctor``: is everything in place, and what is stuck."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ai4s.jobq.cli.bridge import Invocation, verbosity_options
from ai4s.jobq.cli.render import print_lines
from ai4s.jobq.cli.show import as_json_option
from ai4s.jobq.cli.terminal import is_terminal, put_json, say, visible
from ai4s.jobq.errors import SettingsError
from ai4s.jobq.views.phrases import count, named

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient
    from ai4s.jobq.doctor.finding import Report
    from ai4s.jobq.doctor.repair import Repair
    from ai4s.jobq.doctor.site import Thresholds

_GLYPHS = {"pass": "✔", "warn": "⚠", "fail": "✘", "info": "·"}


@click.command()
@click.option(
    "--stale-pending-sec",
    type=click.IntRange(min=0),
    default=120,
    show_default=True,
    help="Warn of workflows that nobody began for so many seconds.",
)
@click.option(
    "--stale-running-min",
    type=click.IntRange(min=0),
    default=60,
    show_default=True,
    help="Warn of tasks that have run for so many minutes without a live worker.",
)
@click.option(
    "--repair", is_flag=True, help="First make the index of workflows anew. This writes; the checks never do."
)
@as_json_option
@verbosity_options
@click.pass_obj
def doctor(invocation: Invocation, stale_pending_sec: int, stale_running_min: int, repair: bool, as_json: bool) -> None:
    """Examine configuration, storage, coordinator, workers and queues.

    Creates nothing. Ends within half a minute: a process that looks dead is watched for 20 seconds before it is called so.
    Exit code 1 when a check fails; warnings do not count.
    """
    from ai4s.jobq.doctor.site import Thresholds

    thresholds = Thresholds(stale_pending_s=stale_pending_sec, stale_running_s=stale_running_min * 60)
    if repair:
        _say_repair(invocation.ask(_repair))
    report = _examine(invocation, thresholds)
    if as_json:
        put_json(report.to_json())
    else:
        print_lines(_lines(report))
    if report.has_failed:
        raise click.exceptions.Exit(1)


def _examine(invocation: Invocation, thresholds: Thresholds) -> Report:
    from ai4s.jobq.doctor.examine import config_failure, examine
    from ai4s.jobq.doctor.finding import Report

    try:
        target = invocation.target()
    except SettingsError as exc:
        return Report([config_failure(exc)])
    return asyncio.run(examine(target, thresholds=thresholds))


async def _repair(client: WorkflowClient) -> Repair:
    from ai4s.jobq.doctor.repair import repair_index
    from ai4s.jobq.ports.clock import SystemClock

    shows_progress = is_terminal(sys.stderr)

    def show(done: int) -> None:
        if shows_progress:
            sys.stderr.write(f"\rLooked at {count(done, 'workflow')} \x1b[K")

    try:
        return await repair_index(client.store, SystemClock(), progress=show)
    finally:
        if shows_progress:
            sys.stderr.write("\r\x1b[K")


def _say_repair(repair: Repair) -> None:
    say(
        f"Index repaired: {count(repair.workflows, 'workflow')} entered, {count(repair.removed, 'untrue row')} removed."
    )
    if repair.damaged:
        say(f"Not readable, and left alone: {named(repair.damaged)}")


def _lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield f"{_GLYPHS[finding.verdict]} {finding.name}: {_on_one_line(finding.message)}"
        if finding.hint:
            yield f"    → {_on_one_line(finding.hint)}"
    yield ""
    yield f"Doctor: {_footer(report)}."


def _footer(report: Report) -> str:
    from ai4s.jobq.doctor.finding import Verdict

    words = ((Verdict.PASS, "passed"), (Verdict.WARN, "warning(s)"), (Verdict.FAIL, "error(s)"))
    parts = [f"{report.count(verdict)} {word}" for verdict, word in words if report.count(verdict)]
    return ", ".join(parts) or "no checks ran"


def _on_one_line(text: str) -> str:
    return visible(" ".join(text.splitlines()))
