"""The coordinator's loops: lease, receiving, sweep, and the shutdown that ties them up.

Each loop survives everything: an error is logged, waited out, and the loop goes on. The only ways out are ``stop``,
cancellation, and a store that refuses the very first look at the lease. What a standby does is wait for the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ai4s.jobq.coordinator.actor import PARKED_S, WorkflowActor
from ai4s.jobq.coordinator.cycle import Stats, WorkflowCycle
from ai4s.jobq.coordinator.reports import Delivery
from ai4s.jobq.coordinator.retention import Retention
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.coordinator.sweep import Sweep
from ai4s.jobq.coordinator.windows import QueueWindows
from ai4s.jobq.errors import (
    AccessDeniedError,
    CorruptRecordError,
    MessageLostError,
    NewerVersionError,
    OperationalError,
)
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.clock import Clock, SystemClock
from ai4s.jobq.ports.queue import Message, Queue
from ai4s.jobq.store.layout import private_completion_queue
from ai4s.jobq.store.lease import CoordinatorLease
from ai4s.jobq.store.wire import decode_completion
from ai4s.jobq.store.workflows import WorkflowStore

LOG = logging.getLogger(__name__)

FIRST_LOOK = 1 / 8  # of the idle sleep, after the last message: what a report sets going reports soon; doubles up to it
MAX_IN_HAND = 1000  # messages received and not yet acknowledged, before receiving pauses
FOREIGN_DELAY_S = 60.0
NEWER_DELAY_S = 600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0  # between tries of a loop whose step fails
SAY_EVERY_S = 60.0  # an outage is told once a minute and loop, not once a try
STOP_S = 8.0  # for the last turns after a stop, so that the process is gone within ten seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRun:
    """A run that belongs to this process alone: no other coordinator or worker touches it."""

    workflow_id: str
    run: str
    slots: Mapping[str, int]


class Coordinator:
    """Coordinates all workflows of a store, or one private run.

    ``owner`` must be unique for each start of a process. ``run`` may be awaited once.
    """

    def __init__(
        self,
        store: WorkflowStore,
        settings: CoordinatorSettings | None = None,
        clock: Clock | None = None,
        *,
        owner: str | None = None,
        private: PrivateRun | None = None,
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.stats = Stats()
        self.owner = owner or f"{socket.gethostname()}-{os.getpid()}-{new_nonce()}"
        self._store = store
        self._clock = clock or SystemClock()
        self._private = private
        self._completions = self._completion_queue(store, private)
        self._lease = CoordinatorLease(
            store.index.table, self.owner, socket.gethostname(), self._clock, ttl_s=self.settings.lease_ttl_s
        )
        self._windows = QueueWindows(self.settings.queue_window)
        self._sweep = Sweep(store, self._windows, self._clock, self.settings, private=private is not None)
        self._actors: dict[str, WorkflowActor] = {}
        self._actor_tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._was_let_in = private is not None
        self._leads = asyncio.Event()  # until a loop finds that it does so no more; ``is_leading`` is what counts
        self._idle_s = self.settings.idle_sleep_s
        self._warned: set[str] = set()
        if private is not None:
            self._windows.set_slots(private.slots)

    def stop(self) -> None:
        """Finish what is in hand and return from ``run``; safe to call from a signal handler."""
        self._stop.set()

    async def run(self) -> Stats:
        """Coordinate until ``stop`` is called; what was done.

        Raises: AccessDeniedError: the store refused the very first look at the lease.
        """
        loops = [self._forever(self._receive, "receiving"), self._forever(self._sweep_once, "sweep")]
        loops.append(self._forever(self._renew_in_hand, "renewal"))
        if self._private is None:
            # Back at the usual pace: after an outage somebody should lead again as soon as after a death.
            lease_pause_s = self.settings.lease_ttl_s / 6
            loops.append(self._forever(self._hold_lease, "lease", longest_pause_s=lease_pause_s))
            if self.settings.retention_s is not None:
                retention = Retention(self._store, self._clock, keep_s=self.settings.retention_s)
                loops.append(self._forever(lambda: self._purge_expired(retention), "retention"))
        else:
            self._actor(self._private.workflow_id).wake()
        try:
            async with asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(loop)
        except ExceptionGroup as exc:  # of one error: nothing else gets out of a loop
            raise exc.exceptions[0] from None
        finally:
            await self._wind_up()
        return self.stats

    @property
    def is_leading(self) -> bool:
        """Whether this coordinator may start turns now."""
        return self._private is not None or self._lease.is_leading

    # -- loops

    async def _forever(
        self, step: Callable[[], Awaitable[float]], name: str, *, longest_pause_s: float = LONGEST_PAUSE_S
    ) -> None:
        """Repeat a step that answers how long to pause, until ``stop``; after failures in longer and longer pauses."""
        trouble_s, said_at = min(FIRST_PAUSE_S, longest_pause_s), -inf
        while not self._stop.is_set():
            try:
                pause_s, trouble_s = await step(), min(FIRST_PAUSE_S, longest_pause_s)
            except Exception as exc:  # the outermost edge of a loop that must not die
                if isinstance(exc, AccessDeniedError) and not self._was_let_in:
                    raise  # not an outage but a wrong account or a missing role: tell whoever starts us
                is_news = not isinstance(exc, OperationalError) or self._clock.monotonic() - said_at >= SAY_EVERY_S
                said_at = self._clock.monotonic() if is_news else said_at
                LOG.log(
                    logging.WARNING if is_news else logging.DEBUG,
                    "%s failed, next try in %.1f s: %s: %s",
                    name,
                    trouble_s,
                    type(exc).__name__,
                    exc,
                    exc_info=None if isinstance(exc, OperationalError) else exc,
                    extra={"event": "loop_failed", "loop": name},
                )
                pause_s, trouble_s = trouble_s, min(trouble_s * 2, longest_pause_s)
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):  # nobody asked us to stop
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _hold_lease(self) -> float:
        was_leading = self._lease.is_leading
        leads = await self._lease.try_hold()
        self._was_let_in = True
        if leads:
            self._leads.set()
        if leads and not was_leading:
            LOG.info("This coordinator leads now", extra={"event": "lease_acquired", "owner": self.owner})
            self._sweep.start_over()
        if was_leading and not leads:
            LOG.warning("Another coordinator leads now; standing by", extra={"event": "lease_lost"})
            self._drop_actors()
        if not leads and self._lease.holder is not None and self._lease.holder.owner not in self._warned:
            self._warned.add(self._lease.holder.owner)
            LOG.info(
                "Standing by: %s leads since %s",
                self._lease.holder.owner,
                self._lease.holder.since,
                extra={"event": "standing_by", "leader": self._lease.holder.owner},
            )
        return self.settings.lease_ttl_s / (6 if leads else 15)

    async def _stand_by(self) -> float:
        """Until this coordinator leads or a stop was asked for; the pause after that."""
        self._leads.clear()
        await self._first_of(self._leads.wait(), self._stop.wait())
        return 0

    async def _receive(self) -> float:
        if not self.is_leading:
            return await self._stand_by()
        if sum(len(actor.in_hand) for actor in self._actors.values()) >= MAX_IN_HAND:
            return 0.05
        asked_at = self._clock.monotonic()
        messages = await self._completions.receive(self.settings.batch_size, visibility_s=self.settings.visibility_s)
        if not messages:
            self._sweep.completions_were_empty(asked_at)
            await self._first_of(self._completions.arrival(self._idle_s), self._stop.wait())
            self._idle_s = min(self._idle_s * 2, self.settings.idle_sleep_s)
            return 0
        self._idle_s = self.settings.idle_sleep_s * FIRST_LOOK
        for message in messages:
            await self._route(message)
        return 0

    @staticmethod
    async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
        """Until one of them is over; the others are cancelled. What it raised is raised."""
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            over, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _sweep_once(self) -> float:
        if not self.is_leading:
            return await self._stand_by()
        finds = await self._sweep.once(self._loaded_runs())
        for workflow_id in finds.look_at:
            self._actor(workflow_id).wake(check_header=True)
        for workflow_id, events in finds.events.items():
            self._actor(workflow_id).post(events)
        return self.settings.sweep_s

    async def _purge_expired(self, retention: Retention) -> float:
        return await retention.once() if self.is_leading else 1.0

    async def _renew_in_hand(self) -> float:
        """Keep messages hidden that wait for a long turn."""
        share_s = self.settings.visibility_s / 3
        for actor in list(self._actors.values()):
            for delivery in list(actor.in_hand):
                if self._clock.monotonic() - delivery.renewed_at >= share_s:
                    await self._renew(delivery)
        return share_s / 2

    async def _renew(self, delivery: Delivery) -> None:
        try:
            delivery.message = await self._completions.renew(delivery.message, visibility_s=self.settings.visibility_s)
        except MessageLostError:
            return  # it comes again, and changes nothing then
        delivery.renewed_at = self._clock.monotonic()

    # -- messages

    async def _route(self, message: Message) -> None:
        """Put a completion message into its workflow's mailbox, or aside."""
        try:
            completion = decode_completion(message.body)
        except NewerVersionError as exc:
            self._warn_once("newer", f"{exc} Left alone for {NEWER_DELAY_S:.0f} s at a time.")
            await self._give_back(message, NEWER_DELAY_S)
            return
        except CorruptRecordError as exc:
            await self._set_aside(message, exc)
            return
        if completion.store != self._store.name:
            self._warn_once("foreign", f"A completion of {completion.store} came to {self._store.name}'s queue.")
            await self._give_back(message, FOREIGN_DELAY_S)
            return
        self.stats.completions += len(completion.reports)
        actor = self._actor(completion.workflow_id)
        if actor.is_parked:
            await self._give_back(message, PARKED_S)
            return
        now = self._clock.monotonic()
        actor.deliver(Delivery(message, completion, now, now))

    async def _give_back(self, message: Message, delay_s: float) -> None:
        with contextlib.suppress(OperationalError):  # it becomes visible by itself, only sooner; others must not wait
            await self._completions.abandon(message, delay_s=delay_s)

    async def _set_aside(self, message: Message, error: CorruptRecordError) -> None:
        LOG.error(
            "An unreadable completion was set aside: %s",
            error,
            extra={"event": "completion_dead_lettered", "queue": self._completions.name},
        )
        with contextlib.suppress(OperationalError):  # it comes again, and is set aside then
            await self._completions.dead_letter(message, reason=str(error))
            self.stats.dead_lettered += 1

    def _warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            LOG.warning("%s", text, extra={"event": "message_left_alone"})

    # -- actors

    def _actor(self, workflow_id: str) -> WorkflowActor:
        """The workflow's actor, running."""
        if workflow_id not in self._actors:
            cycle = WorkflowCycle(
                self._store,
                workflow_id,
                owner=self.owner,
                windows=self._windows,
                clock=self._clock,
                stats=self.stats,
            )
            actor = WorkflowActor(
                cycle,
                self._completions,
                self._store.index,
                self._clock,
                may_start=lambda: self.is_leading,
                wake_others=self._wake,
            )
            self._actors[workflow_id] = actor
            task = asyncio.create_task(self._run_actor(workflow_id, actor))
            self._actor_tasks.add(task)
            task.add_done_callback(self._actor_tasks.discard)
        return self._actors[workflow_id]

    async def _run_actor(self, workflow_id: str, actor: WorkflowActor) -> None:
        try:
            await actor.run()
        finally:
            if self._actors.get(workflow_id) is actor:
                del self._actors[workflow_id]
            self._wake(self._windows.forget(workflow_id))
        if not self._stop.is_set() and self.is_leading:
            self._pass_on(workflow_id, actor)

    def _pass_on(self, workflow_id: str, actor: WorkflowActor) -> None:
        """Give what came in while an actor was leaving to the next one."""
        for delivery in actor.in_hand:
            self._actor(workflow_id).deliver(delivery)
        if actor.is_wanted:
            self._actor(workflow_id).wake(check_header=True)

    def _wake(self, workflow_ids: Sequence[str]) -> None:
        for workflow_id in workflow_ids:
            if workflow_id in self._actors:
                self._actors[workflow_id].wake()

    def _loaded_runs(self) -> dict[str, WorkflowCycle]:
        return {workflow_id: actor.cycle for workflow_id, actor in self._actors.items()}

    def _drop_actors(self) -> None:
        """Cancel them once they have begun: a task that is cancelled before never runs, and could not sign off."""
        for task in self._actor_tasks:
            asyncio.get_running_loop().call_soon(task.cancel)

    async def _wind_up(self) -> None:
        """Let every workflow finish its turn and clear its outbox, then give the lease up."""
        self._stop.set()  # nothing begins any more, also when it was a cancellation that brought us here
        for actor in list(self._actors.values()):
            actor.stop()
        if self._actor_tasks:
            _, late = await asyncio.wait(set(self._actor_tasks), timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._private is None:
            with contextlib.suppress(OperationalError):  # it runs out by itself
                await self._lease.release()

    @staticmethod
    def _completion_queue(store: WorkflowStore, private: PrivateRun | None) -> Queue:
        name = store.names.completion_queue if private is None else private_completion_queue(private.run)
        return store.services.queue(name)
