"""One schedule from its scenario to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ai4s.jobq.coordinator.loop
import ai4s.jobq.ids
import ai4s.jobq.store.workflows
import ai4s.jobq.worker.loop
import ai4s.jobq.worker.outcome
import ai4s.jobq.worker.presence
import ai4s.jobq.worker.receiving
from ai4s.jobq.coordinator import actor as coordinator_actor
from ai4s.jobq.coordinator import cycle, outbox, reconcile, sweep
from ai4s.jobq.errors import AccessDeniedError
from ai4s.jobq.store.layout import Names
from ai4s.jobq.worker.loop import Worker
from tests.model import virtual_time
from tests.model.actors import OutputFiles, Person, coordinator, open_memory_scratch, worker
from tests.model.cloud import Cloud
from tests.model.faults import ACTOR, Actor, FaultPlan
from tests.model.scenario import Fault, Incident, Scenario
from tests.model.virtual_time import Stuck, VirtualClock, VirtualLoop
from tests.model.watch import InvariantWatch

QUIET_WITHIN_S = 2500.0  # from the last fault to rest: parking (600 s), orphans and lost messages take their time
LONGEST_DOWNTIME_S = 15.0


@dataclass(slots=True)
class Verdict:
    """What came of a schedule. ``problems`` is empty when all went well; the first is the one to look at."""

    scenario: Scenario
    problems: list[str] = field(default_factory=list)
    injected: list[Fault] = field(default_factory=list)
    lasted_s: float = 0.0
    steps: int = 0
    trace: list[str] = field(default_factory=list)


def run(scenario: Scenario, *, trace: bool = False) -> Verdict:
    """Run one schedule to its verdict."""
    verdict = Verdict(scenario)
    loop, files = VirtualLoop(), OutputFiles()
    with _small_world(scenario, files), _errors_in(verdict):
        try:
            virtual_time.run(_Schedule(scenario, loop, verdict, files, trace=trace).main(), loop)
        except Stuck as exc:
            verdict.problems.append(str(exc))
    return verdict


class _Schedule:
    def __init__(
        self, scenario: Scenario, loop: VirtualLoop, verdict: Verdict, files: OutputFiles, *, trace: bool
    ) -> None:
        self._scenario = scenario
        self._loop = loop
        self._verdict = verdict
        self._rng = random.Random(f"downtime-{scenario.seed}")
        self._trace = self._note if trace else None
        self._cloud = Cloud(
            loop, random.Random(f"cloud-{scenario.seed}"), page=scenario.page, deduplicates=scenario.deduplicates
        )
        self._plan = FaultPlan(scenario, loop)
        self._watch = InvariantWatch(scenario, self._cloud, Names("Check"), self._broken)
        self._cloud.watch = self._watch
        self._files = files
        self._workers: dict[str, Worker] = {}
        self._over = asyncio.Event()
        self._supervisors: list[asyncio.Task[None]] = []
        loop.on_task = _give_owner
        loop.set_exception_handler(self._unhandled)

    async def main(self) -> None:
        scenario = self._scenario
        persons = [Person(plan, VirtualClock(self._loop)) for plan in scenario.plans]
        for person in persons:
            self._supervise(f"client-{person.plan.workflow_id}", self._client(person), person)
        for number in range(1, scenario.coordinators + 1):
            self._supervise(f"coordinator{number}", self._coordinator(number))
        for number, machine in enumerate(scenario.machines, 1):
            self._supervise(f"worker{number}", self._worker(f"worker{number}", machine))
        for incident in scenario.incidents:
            self._loop.call_later(incident.at, self._happen, incident)
        await self._until_quiet(persons)
        self._verdict.lasted_s = self._loop.time()
        self._verdict.steps = self._loop.steps
        self._verdict.injected = self._plan.injected
        for supervisor in self._supervisors:
            supervisor.cancel()

    async def _until_quiet(self, persons: list[Person]) -> None:
        """Until everybody is done and everything at rest, or something is wrong."""
        calm_at = max([self._scenario.calm_at, *(incident.at for incident in self._scenario.incidents)])
        while not self._over.is_set():
            unsettled = [f"{p.plan.workflow_id}: the client is not done" for p in persons if not p.is_done]
            unsettled += [] if unsettled else self._watch.unsettled()
            if not unsettled:
                return
            if self._loop.time() > calm_at + QUIET_WITHIN_S:
                self._broken(f"not at rest {QUIET_WITHIN_S:.0f} s after the last fault: {'; '.join(unsettled)}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), 2.0)

    # -- processes

    def _supervise(
        self, role: str, main: Callable[[Actor], Coroutine[Any, Any, object]], person: Person | None = None
    ) -> None:
        self._supervisors.append(self._loop.create_task(self._restarting(role, main, person)))

    async def _restarting(
        self, role: str, main: Callable[[Actor], Coroutine[Any, Any, object]], person: Person | None
    ) -> None:
        """Start a process, and start it again after some time whenever it has ended or crashed."""
        for incarnation in itertools.count(1):
            actor = Actor(f"{role}.{incarnation}", self._cloud, self._plan, self._scenario.seed, self._trace)
            task = actor.start(main(actor))
            await asyncio.wait({task, actor.died}, return_when=asyncio.FIRST_COMPLETED)
            exc = task.exception() if task.done() and not task.cancelled() else None
            if exc is not None and not isinstance(exc, AccessDeniedError):
                self._broken(f"{actor.name} ended with {type(exc).__name__}: {exc}")
            actor.crash()
            if person is not None and person.is_done:
                return
            await asyncio.sleep(self._rng.uniform(0, LONGEST_DOWNTIME_S))

    def _client(self, person: Person) -> Callable[[Actor], Coroutine[Any, Any, object]]:
        seen = self._watch.workflows[person.plan.workflow_id]

        async def main(actor: Actor) -> None:
            if not actor.name.endswith(".1") and self._rng.random() < 0.3:
                person.give_up()
            await person.run(actor, seen, until=self._until, wrong=self._broken)

        return main

    def _coordinator(self, number: int) -> Callable[[Actor], Coroutine[Any, Any, object]]:
        clock = VirtualClock(self._loop, skew_s=self._scenario.skew_s * (number - 1))
        return lambda actor: coordinator(actor, self._scenario, clock).run()

    def _worker(self, role: str, machine: Any) -> Callable[[Actor], Coroutine[Any, Any, object]]:
        async def main(actor: Actor) -> None:
            self._workers[role] = worker(actor, machine, VirtualClock(self._loop), self._watch, self._files)
            await self._workers[role].run()

        return main

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._watch.changed.clear()
            await self._watch.changed.wait()

    def _happen(self, incident: Incident) -> None:
        self._note(f"-- {incident.kind} {incident.target}")
        if incident.kind == "clear":
            self._cloud.clear(incident.target)
        elif incident.target in self._workers:
            self._workers[incident.target].stop()

    # -- what is said

    def _note(self, line: str) -> None:
        self._verdict.trace.append(f"{self._loop.time():9.3f} {line}")

    def _broken(self, problem: str) -> None:
        self._note(f"** {problem}")
        self._verdict.problems.append(f"at {self._loop.time():.3f} s: {problem}")
        self._over.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._over.is_set():
            self._broken(f"unhandled: {context.get('message')}: {context.get('exception')!r}")


def _give_owner(task: asyncio.Task[Any]) -> None:
    """Tasks belong to the actor that creates them, and end with it."""
    actor = ACTOR.get()
    if actor is not None:
        actor.tasks[task] = None
        task.add_done_callback(actor.tasks.pop)


@contextlib.contextmanager
def _small_world(scenario: Scenario, files: OutputFiles) -> Iterator[None]:
    """Replace what is random, slow or on a disk, and make what takes hundreds of rows or minutes happen sooner."""
    ids = random.Random(f"ids-{scenario.seed}")
    replaced: list[tuple[Any, str, Any]] = [
        (ai4s.jobq.ids, "os", SimpleNamespace(urandom=ids.randbytes)),
        (ai4s.jobq.ids, "secrets", SimpleNamespace(token_hex=lambda count: ids.randbytes(count).hex())),
        (ai4s.jobq.worker.loop, "open_scratch", open_memory_scratch),
        (ai4s.jobq.worker.outcome, "read_output_file", files.read),
        (ai4s.jobq.worker.presence, "_version", lambda: "model"),
        (ai4s.jobq.worker.presence, "AFTER_CHANGE_S", 6.0),
        (ai4s.jobq.store.workflows, "MAX_ROWS", scenario.rows_per_commit),
        (cycle, "MAX_OUTBOX", scenario.outbox),
        (outbox, "MAX_OUTBOX", scenario.outbox),
        (outbox, "MAX_OF_ONE_QUEUE", max(scenario.outbox * 2 // 3, 1)),
        (coordinator_actor, "IDLE_S", 40.0),
        (ai4s.jobq.coordinator.loop, "FIRST_LOOK", 1.0),  # queues here wake who waits; looking often finds nothing
        (ai4s.jobq.worker.receiving, "FIRST_BACKOFF_S", 1.0),
        (sweep, "ROUNDS", 4),
        (reconcile, "LIVE_S", 45.0),
    ]
    kept = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    state = random.getstate()
    random.seed(scenario.seed)
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        random.setstate(state)


@contextlib.contextmanager
def _errors_in(verdict: Verdict) -> Iterator[None]:
    """What the program logs as an error is one: nothing here is broken but by faults that it must survive."""
    logger = logging.getLogger("ai4s.jobq")
    handler = _Errors(verdict)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _Errors(logging.Handler):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(logging.ERROR)
        self._verdict = verdict

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._verdict.problems.append(f"logged as an error: {record.getMessage()} {cause!r}")
