"""An examination: all checks at once, each with the same deadline, whatever the store does. Reads only, creates nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.doctor.checks import CHECKS, CONFIG, STORE, Check, store
from ai4s.jobq.doctor.finding import Finding, Report, Verdict
from ai4s.jobq.doctor.site import Site, Thresholds
from ai4s.jobq.errors import AccessDeniedError, JobqError, SettingsError
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.settings import BLOBS_VARIABLE, PREFIX_VARIABLE, QUEUES_VARIABLE, Source, Target
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.signs import Patience

STORE_S = 12.0  # a store that has not answered by then is called unreachable
DEADLINE_S = 27.0  # of the whole examination; watching a silent worker takes 21.5 of them

_ROLES = (
    "Who submits, coordinates or works needs 'Storage Table Data Contributor' and 'Storage Queue Data Contributor', who keeps "
    "or reads logs and large outputs also 'Storage Blob Data Contributor'. 'This identity' is the one doctor runs as; give "
    "coordinator and workers the same roles."
)


async def examine(
    target: Target,
    *,
    thresholds: Thresholds | None = None,
    clock: Clock | None = None,
    patience: Patience | None = None,
) -> Report:
    """Examine a target. Ends within half a minute also when nothing answers."""
    findings = [config_finding(target)]
    try:
        async with open_store(target) as opened:
            findings += await examine_store(opened, target, thresholds=thresholds, clock=clock, patience=patience)
    except SettingsError as exc:
        findings.append(Finding(Verdict.FAIL, STORE, str(exc)))
    except JobqError as exc:
        findings.append(_unreachable(STORE, exc))
    return Report(findings)


async def examine_store(
    opened: WorkflowStore,
    target: Target,
    *,
    thresholds: Thresholds | None = None,
    clock: Clock | None = None,
    patience: Patience | None = None,
) -> list[Finding]:
    """The findings about a store that is open; only one when it cannot be reached at all."""
    site = Site(opened, target, clock or SystemClock(), thresholds or Thresholds(), patience or Patience())
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    try:
        reached = await _made(Check(STORE, store), site, deadline - DEADLINE_S + STORE_S)
        if reached is not None and reached.verdict is Verdict.FAIL:
            return [reached]
        others = await asyncio.gather(*(_made(check, site, deadline) for check in CHECKS))
        return [finding for finding in (reached, *others) if finding is not None]
    finally:
        await site.close()


def config_finding(target: Target) -> Finding:
    """What is configured, and by which variables."""
    return Finding(Verdict.PASS, CONFIG, ", ".join(_configured(target)))


def config_failure(exc: SettingsError) -> Finding:
    """Why there is no target."""
    hint = f"Set {PREFIX_VARIABLE}=<account>/<prefix>, or write it after 'workflow'."
    return Finding(Verdict.FAIL, CONFIG, str(exc), hint)


def _configured(target: Target) -> Iterator[str]:
    yield f"account={target.account}"
    yield f"prefix={target.prefix}"
    if target.is_local:
        yield f"directory={target.local_dir}"
    said = {
        "storage": (PREFIX_VARIABLE, target.name),
        "queues": (QUEUES_VARIABLE, target.queue_account),
        "blobs": (BLOBS_VARIABLE, f"{target.blob_account}/{target.container}"),
    }
    for key, (variable, value) in said.items():
        source = target.sources.get(key, Source.DEFAULT)
        if source is Source.ENV:
            yield f"{variable}={value}"
        elif key != "storage" and source is not Source.DEFAULT:
            yield f"{key}={value} ({source})"
    if target.config_path is not None:
        yield f"config={target.config_path}"


async def _made(check: Check, site: Site, deadline: float) -> Finding | None:
    """What a check finds, or why it cannot be made."""
    try:
        async with asyncio.timeout_at(deadline):
            return await check.make(site)
    except TimeoutError:
        return Finding(Verdict.FAIL, check.name, "unreachable: no answer in time", _reach(site.target))
    except AccessDeniedError as exc:
        return Finding(Verdict.FAIL, check.name, f"no access: {exc}", _ROLES)
    except JobqError as exc:
        return _unreachable(check.name, exc, site.target)


def _unreachable(name: str, exc: JobqError, target: Target | None = None) -> Finding:
    return Finding(Verdict.FAIL, name, f"unreachable: {exc}", None if target is None else _reach(target))


def _reach(target: Target) -> str:
    if target.is_local:
        return f"Look at the directory {target.local_dir}."
    return "Check the account's name, the network and the firewall, and that you are signed in (az login)."
