"""The checks, in the order in which they are told: functions from a site to a finding, or to None: nothing to say.

A check may raise what the store raises; ``examine`` makes a finding of it. Private runs are left to their own processes,
except for those whose process has died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ai4s.jobq.doctor.finding import Finding, Verdict
from ai4s.jobq.doctor.site import Site, bounded
from ai4s.jobq.durations import span
from ai4s.jobq.engine.states import WorkflowState
from ai4s.jobq.errors import AccessDeniedError, StorageUnavailableError
from ai4s.jobq.ports.dead_letters import dead_letter_queue_name
from ai4s.jobq.store.workers import LIVE_S
from ai4s.jobq.views.advice import worker_command
from ai4s.jobq.views.known_queues import known_queues
from ai4s.jobq.views.phrases import ago, count, named
from ai4s.jobq.views.signs import CoordinatorSign, WorkerSign, claims, live_queues

SKEW_S = 10.0  # requests are refused from 15 minutes on; leases and timers are off long before


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the name its finding has when it cannot be made."""

    name: str
    make: Callable[[Site], Awaitable[Finding | None]]


async def store(site: Site) -> Finding:
    """Whether the tables answer, and how many workflows they hold."""
    workflows = len((await site.index()).active) + await site.ended_count()
    if not workflows and not await site.store.table.exists():
        return _pass(STORE, f"reachable, nothing was ever submitted (prefix={site.target.prefix})")
    return _pass(STORE, f"reachable (prefix={site.target.prefix}, {count(workflows, 'workflow')})")


async def completion_queue(site: Site) -> Finding:
    """Whether the queue answers on which workers report."""
    queue = site.store.services.queue(site.store.names.completion_queue)
    place = f"{queue.name} on {site.target.queue_account}"
    if await queue.exists():
        return _pass(COMPLETIONS, f"reachable: {place}")
    if not (await site.index()).shared:
        return _pass(COMPLETIONS, f"not created yet: {place}")
    return _warn(
        COMPLETIONS,
        f"missing: {place}",
        "Workers report on it. The next report makes it; what was reported in a deleted one is found out and done again.",
    )


async def pending(site: Site) -> Finding:
    """Whether workflows wait to be seen by a coordinator for too long. Those it set aside it has seen."""
    limit_s = site.thresholds.stale_pending_s
    rows = [row for row in (await site.index()).shared if row.state is WorkflowState.PENDING]
    old = [row for row in rows if _age_s(site, row.updated_at) > limit_s]
    stuck = [row.workflow_id for row in old if not row.parked]
    if not stuck:
        beside = f", beside {len(old)} set aside" if old else ""
        return _pass(PENDING, f"none stuck (>{limit_s:g}s in 'pending'){beside}")
    return _warn(
        PENDING, f"{len(stuck)} stuck in 'pending' >{limit_s:g}s: {named(stuck)}", await _what_begins(site, stuck[0])
    )


async def running(site: Site) -> Finding:
    """Whether tasks have run for too long that no live worker claims; one that has its worker may take its time."""
    limit_s = site.thresholds.stale_running_s
    limit = f">{limit_s / 60:g}m"
    ages = {job: _age_s(site, job.started_at) for job in await site.running() if job.started_at is not None}
    long = {job: age_s for job, age_s in ages.items() if age_s > limit_s}
    if not long:
        return _pass(RUNNING, f"none stuck ({limit} running)")
    held = claims(await site.workers())
    stuck = [f"{job.label} ({span(age_s)})" for job, age_s in long.items() if job.claim not in held]
    if not stuck:
        return _pass(RUNNING, f"none stuck ({count(len(long), 'task')} {limit}, each in the hands of a live worker)")
    return _warn(
        RUNNING,
        f"{count(len(stuck), 'task')} running {limit} without a live worker: {named(stuck)}",
        "The worker probably died. The task's message comes back when its visibility timeout has passed, and another "
        "worker of the queue runs it again.",
    )


async def coordinator(site: Site) -> Finding:
    """Whether somebody decides. Without one nothing begins, however many workers there are."""
    sign, waiting = await site.coordinator(), len((await site.index()).shared)
    if sign is not None and sign.is_live:
        return _pass(COORDINATOR, f"alive: {_holder(sign)}")
    seen = "none running" if sign is None else f"none alive, the last sign{ago(sign.age_s)} is of {_holder(sign)}"
    if not waiting:
        return Finding(Verdict.INFO, COORDINATOR, f"{seen}; none is needed until a workflow is submitted")
    return Finding(
        Verdict.FAIL,
        COORDINATOR,
        f"{seen}, and {count(waiting, 'unfinished workflow')} {'wait' if waiting > 1 else 'waits'} for one",
        f"Start one: {site.command('coordinator')}",
    )


async def unserved_queues(site: Site) -> Finding:
    """Whether there are tasks on queues that no live worker serves: waiting for one, or left behind by a dead one."""
    tasks: Counter[str] = Counter()
    for header in (await site.headers()).headers:
        for queue, (eligible, ready) in header.queues.items():
            tasks[queue] += eligible + ready
    tasks.update(job.queue for job in await site.running())
    tasks = +tasks
    if not tasks:
        return _pass(WORKERS, "no task waits for one")
    signs = await site.workers()
    unserved = sorted(tasks.keys() - live_queues(signs))
    if not unserved:
        return _pass(WORKERS, f"every queue with tasks has one ({', '.join(sorted(tasks))})")
    told = [f"{queue} ({count(tasks[queue], 'task')}; {_last_worker(queue, signs)})" for queue in unserved]
    commands = [worker_command(site.target, queue) for queue in unserved]
    each = " for each" if len(commands) > 1 else ""
    hint = f"Start one{each}: {named(commands)}"
    return _warn(WORKERS, f"no live worker on: {named(told)}", hint)


async def trouble(site: Site) -> Finding:
    """Whether workflows are set aside, or rows cannot be read."""
    index, headers = await site.index(), await site.headers()
    parked = [f"{row.workflow_id} ({_first_line(row.parked)})" for row in index.active if row.parked]
    damaged = sorted({*headers.damaged, *index.damaged})
    told, hints = [], []
    if damaged:
        told.append(f"{count(len(damaged), 'workflow')} with damaged rows: {named(damaged)}")
        hints.append(
            f"An index row is made anew by: {site.command('doctor --repair')}. A damaged header has to be restored, or purged."
        )
    if parked:
        told.append(f"{count(len(parked), 'workflow')} set aside by the coordinator: {named(parked)}")
        hints.append(
            "A coordinator tries each again every 10 minutes, and at once when it is started. What is wrong is in parentheses; "
            "its log has more."
        )
    return (
        _warn(TROUBLE, "; ".join(told), " ".join(hints)) if told else _pass(TROUBLE, "none set aside, no damaged rows")
    )


async def interrupted(site: Site) -> Finding | None:
    """Whether a ``workflow run`` died before its workflow had ended."""
    left = [row.workflow_id for row in (await site.index()).abandoned]
    if not left:
        return None
    return _warn(
        INTERRUPTED,
        f"{count(len(left), 'run')} of 'workflow run' left unfinished: {named(left)}",
        f"Go on with one: {site.command(f'run --resume {left[0]}')}",
    )


async def dead_letters(site: Site) -> Finding:
    """Whether messages were set aside because they could not be read or handled."""
    queues = [site.store.names.completion_queue, *await known_queues(site.store)]
    counts = await bounded(queues, lambda queue: _dead_letter_count(site, queue))
    found = [f"{queue}: {count}" for queue, count in zip(queues, counts, strict=True) if count]
    if not found:
        return _pass(DEAD_LETTERS, f"none ({count(len(queues), 'queue')} looked at)")
    return _warn(
        DEAD_LETTERS,
        f"{sum(counts)} set aside: {named(found)}",
        f"See them and why: {site.command('dead-letters list')}",
    )


async def blobs(site: Site) -> Finding:
    """Whether the container answers that holds logs and outputs above 32 KB. Everything else works without it."""
    place = f"{site.target.container} on {site.target.blob_account}"
    try:
        exists = await site.store.services.blobs(site.target.container).exists()
    except (AccessDeniedError, StorageUnavailableError) as exc:
        return _warn(
            BLOBS, f"unreachable: {exc}", "Only logs and outputs above 32 KB need it. JOBQ_WORKFLOW_BLOBS says where."
        )
    return _pass(BLOBS, f"{'reachable' if exists else 'not created yet'}: {place}")


async def clocks(site: Site) -> Finding:
    """Whether the clocks agree, as far as that can be seen from here."""
    signs = [sign for sign in await site.workers() if sign.is_live]
    off = [f"worker on {sign.record.host} ({_off(sign.age_s)})" for sign in signs if _is_off(sign.age_s, LIVE_S)]
    leader = await site.coordinator()
    if leader is not None and leader.is_live and _is_off(leader.age_s, max(LIVE_S, leader.renews_within_s)):
        off.append(f"coordinator on {leader.holder.host if leader.holder else '?'} ({_off(leader.age_s)})")
    ours = site.store.services.clock_ahead_s
    if ours is not None and abs(ours) > SKEW_S:
        off.insert(0, f"this machine, against the storage service ({_off(-ours)})")
    if not off:
        return _pass(CLOCKS, "no difference seen")
    return _warn(
        CLOCKS,
        f"differences seen: {named(off)}",
        "Times shown may be wrong, and from 15 minutes on the service refuses requests. Synchronise with NTP.",
    )


async def active_queues(site: Site) -> Finding | None:
    """Tasks in the hands of live workers, by queue."""
    counts: Counter[str] = Counter()
    for sign in await site.workers():
        if sign.is_live:
            counts[sign.record.queue] += len(sign.record.executions)
    told = ", ".join(f"{queue}: {counts[queue]}" for queue in sorted(+counts))
    return Finding(Verdict.INFO, ACTIVE, told) if told else None


CONFIG = "Workflow config"
STORE = "Workflow store"
COMPLETIONS = "Completion queue"
PENDING = "Pending workflows"
RUNNING = "Running tasks"
ACTIVE = "Active queues"
COORDINATOR = "Coordinator"
WORKERS = "Workers"
TROUBLE = "Troubled workflows"
INTERRUPTED = "Interrupted runs"
DEAD_LETTERS = "Dead letters"
BLOBS = "Blob storage"
CLOCKS = "Clocks"

CHECKS = (
    Check(COMPLETIONS, completion_queue),
    Check(PENDING, pending),
    Check(RUNNING, running),
    Check(ACTIVE, active_queues),
    Check(COORDINATOR, coordinator),
    Check(WORKERS, unserved_queues),
    Check(TROUBLE, trouble),
    Check(INTERRUPTED, interrupted),
    Check(DEAD_LETTERS, dead_letters),
    Check(BLOBS, blobs),
    Check(CLOCKS, clocks),
)


async def _what_begins(site: Site, workflow_id: str) -> str:
    """What helps a workflow that nobody has begun."""
    sign = await site.coordinator()
    if sign is None or not sign.is_live:
        return f"A coordinator sees them within seconds. Start one: {site.command('coordinator')}"
    return (
        "The coordinator is alive and sees them within seconds: look at its log for what holds it up, or ask: "
        f"{site.command(f'explain {workflow_id}')}"
    )


async def _dead_letter_count(site: Site, queue: str) -> int:
    return await site.store.services.queue(dead_letter_queue_name(queue)).approximate_count()


def _holder(sign: CoordinatorSign) -> str:
    if sign.holder is None:
        return "its lease cannot be read"
    return f"{sign.holder.owner} (leads since {sign.holder.since:%Y-%m-%d %H:%M} UTC)"


def _last_worker(queue: str, signs: Sequence[WorkerSign]) -> str:
    """What is known of the workers a queue had."""
    had = [sign for sign in signs if sign.record.queue == queue and sign.age_s is not None]
    if not had:
        return "none seen"
    last = min(had, key=lambda sign: sign.age_s or 0)
    return f"last seen: {last.record.host}{ago(last.age_s)}"


def _is_off(age_s: float | None, limit_s: float) -> bool:
    return age_s is not None and abs(age_s) > limit_s


def _off(age_s: float | None) -> str:
    return f"about {span(abs(age_s or 0))} {'behind' if (age_s or 0) > 0 else 'ahead'}"


def _age_s(site: Site, time: datetime) -> float:
    return (site.clock.now() - time).total_seconds()


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]


def _pass(name: str, message: str) -> Finding:
    return Finding(Verdict.PASS, name, message)


def _warn(name: str, message: str, hint: str) -> Finding:
    return Finding(Verdict.WARN, name, message, hint)
