"""The processes of a schedule: the real coordinator and worker, people with the real client operations, and a processor
that follows a script instead of starting commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os.path
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ai4s.jobq.control.lifecycle import cancel_workflow, retry_workflow
from ai4s.jobq.coordinator.loop import Coordinator
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.errors import AccessDeniedError, NothingToRetryError, OperationalError, StorageUnavailableError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.loop import Worker
from ai4s.jobq.worker.processor import Job, JobResult
from ai4s.jobq.worker.scratch import ExecutionFiles, Scratch
from ai4s.jobq.worker.settings import WorkerSettings
from tests.model.faults import Actor, ActorServices
from tests.model.scenario import Machine, Plan, Scenario
from tests.model.watch import Dispatch, InvariantWatch, Seen

COORDINATOR = CoordinatorSettings(
    visibility_s=10.0, idle_sleep_s=5.0, sweep_s=5.0, task_visibility_s=30.0, lease_ttl_s=15.0
)
LARGE = "x" * 33_000  # makes an output too large for its row


def store_of(actor: Actor) -> WorkflowStore:
    """The store as this actor sees it."""
    return WorkflowStore(ActorServices(actor), account="model", prefix="Check")


class AlwaysLeading(Coordinator):
    """A coordinator that does not ask whether it leads: what keeps order then is the header's version alone."""

    @property
    def is_leading(self) -> bool:
        return True


def coordinator(actor: Actor, scenario: Scenario, clock: Clock) -> Coordinator:
    kind = AlwaysLeading if scenario.all_lead else Coordinator
    settings = CoordinatorSettings(
        **{name: getattr(COORDINATOR, name) for name in COORDINATOR.__dataclass_fields__ if name != "queue_window"},
        queue_window=scenario.window,
    )
    return kind(store_of(actor), settings, clock, owner=actor.name)


def worker(actor: Actor, machine: Machine, clock: Clock, watch: InvariantWatch, files: OutputFiles) -> Worker:
    store = store_of(actor)
    settings = WorkerSettings(
        queue=machine.queue,
        slots=machine.slots,
        visibility_s=30.0,
        cancel_poll_s=5.0,
        kill_timeout_s=4.0,
        stop_within_s=8.0,
        max_idle_backoff_s=8.0,
    )
    processor = ScriptedProcessor(actor, watch, files)
    return Worker(store.services, settings, clock=clock, store=store, processor=processor, environment={})


# -- commands


@dataclass(slots=True)
class OutputFiles:
    """The files that commands write, by path."""

    texts: dict[str, str] = field(default_factory=dict)

    async def read(self, path: str) -> str | None:
        return self.texts.get(path)


class MemoryFiles(ExecutionFiles):
    """Files of an execution that are on no disk."""

    def raise_flag(self) -> None:
        pass

    def write_sidecar(self, text: str) -> None:
        json.loads(text)

    def remove(self) -> None:
        pass


class MemoryScratch(Scratch):
    """Hands out files that are on no disk."""

    def files(self, execution: str) -> ExecutionFiles:
        return MemoryFiles(self.directory, execution)


@contextlib.contextmanager
def open_memory_scratch() -> Iterator[Scratch]:
    yield MemoryScratch("/model")


class ScriptedProcessor:
    """Runs jobs as their workflow's plan says, in virtual time."""

    name = "ScriptedProcessor"

    def __init__(self, actor: Actor, watch: InvariantWatch, files: OutputFiles) -> None:
        self._actor = actor
        self._watch = watch
        self._files = files

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def __call__(self, job: Job) -> JobResult:
        dispatch = self._watch.started(job.variables["JOBQ_TASK_ID"], self._actor.name)
        if dispatch is None:
            return JobResult(cause=Cause.EXIT, exit_code=1)
        path = job.variables["JOBQ_OUTPUT_FILE"]
        execution = os.path.basename(path).removesuffix(".output.json").partition("-")[2]
        self._actor.say(f"starts {job.label} attempt {dispatch.attempt}, execution {execution}")
        result = await self._run(job, dispatch, path)
        what = "succeeded" if result.cause is None else str(result.cause)
        self._actor.say(f"{job.label} attempt {dispatch.attempt}: {what}")
        self._watch.finished(dispatch, execution, what)
        return result

    async def _run(self, job: Job, dispatch: Dispatch, path: str) -> JobResult:
        plan = self._watch.workflows[dispatch.workflow_id].plan
        outcome = plan.outcome(dispatch.number, life=dispatch.life, charged=dispatch.charged)
        lasts_s = outcome.seconds if job.timeout_s is None else min(outcome.seconds, job.timeout_s)
        stopped, _ = await asyncio.wait({job.stop.asked}, timeout=lasts_s) if lasts_s else (job.stop.asked.done(), None)
        if stopped:
            request = job.stop.asked.result()
            await asyncio.sleep(min(request.grace_s, 1.0))
            return JobResult(cause=request.cause, exit_code=-15, duration_s=lasts_s)
        if lasts_s < outcome.seconds:
            return JobResult(cause=Cause.TIMEOUT, exit_code=-9, error="too slow", duration_s=lasts_s)
        if outcome.exit_code:
            return JobResult(cause=Cause.EXIT, exit_code=outcome.exit_code, error="scripted", duration_s=lasts_s)
        if outcome.value is not None:
            self._files.texts[path] = json.dumps({"v": outcome.value, "pad": LARGE if outcome.large else ""})
        return JobResult(exit_code=0, duration_s=lasts_s)


# -- people


@dataclass(slots=True)
class Person:
    """Somebody who submits a workflow and then changes their mind as planned. A step is repeated until it is answered."""

    plan: Plan
    clock: Clock
    done: int = 0
    _steps: list[tuple[str, float]] = field(init=False)

    def __post_init__(self) -> None:
        self._steps = [("submit", self.plan.submit_at)] * self.plan.submits
        self._steps += [("cancel", self.plan.submit_at + at) for at in self.plan.cancels_at]
        self._steps += [("retry", 0.0)] * self.plan.retries
        if self.plan.retries and self.plan.cancels_retry_after is not None:
            self._steps.append(("cancel in", self.plan.cancels_retry_after))

    @property
    def is_done(self) -> bool:
        return self.done >= len(self._steps)

    def give_up(self) -> None:
        """Do no more."""
        self.done = len(self._steps)

    async def run(
        self,
        actor: Actor,
        seen: Seen,
        *,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        wrong: Callable[[str], None],
    ) -> None:
        """Go through the steps that are left; ``wrong`` is told of answers that are not true."""
        store, loop = store_of(actor), asyncio.get_running_loop()
        rng = random.Random(f"{actor.name}-pauses")
        while not self.is_done:
            kind, at = self._steps[self.done]
            if kind == "retry":
                await until(lambda: seen.ended)
                await asyncio.sleep(rng.choice((0.0, 0.1, 3.0, 20.0)))
            else:
                await asyncio.sleep(at if kind == "cancel in" else max(at - loop.time(), 0.0))
            before = (set(seen.halted_by), set(seen.begun_by))
            try:
                changed = await self._step(kind, store, seen.definition)
            except (StorageUnavailableError, AccessDeniedError):
                await asyncio.sleep(rng.uniform(0.5, 5))
                continue
            except (OperationalError, NothingToRetryError) as exc:
                actor.say(f"{kind}: {exc}")
                changed = False
            self.done += 1
            halts = [seen.halted_by[life] for life in seen.halted_by.keys() - before[0]]
            lives = [seen.begun_by[life] for life in seen.begun_by.keys() - before[1]]
            if kind != "submit" and changed != (actor.name in (lives if kind == "retry" else halts)):
                wrong(f"{actor.name} was told that its {kind} changed {'something' if changed else 'nothing'}")

    async def _step(self, kind: str, store: WorkflowStore, definition: WorkflowDefinition) -> bool:
        """Take one step; whether it is said to have changed anything."""
        workflow_id = self.plan.workflow_id
        if kind == "submit":
            return (await store.submit(definition, now=self.clock.now(), workflow_id=workflow_id)).created
        if kind == "retry":
            await retry_workflow(store, workflow_id, self.clock)
            return True
        return (await cancel_workflow(store, workflow_id, self.clock)).changed
