"""Finds out that tasks which run here are wanted no more: one header read per workflow in hand, every poll interval."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.assignment import TaskAssignment
from ai4s.jobq.worker.patience import OUTAGES, Patience
from ai4s.jobq.worker.precheck import must_stop
from ai4s.jobq.worker.settings import WorkerSettings

LOG = logging.getLogger(__name__)

JITTER = 0.25  # of the interval, either way: a thousand workers must not ask in step


class CancellationPoll:
    """Asks the tables whether what runs here may go on."""

    def __init__(
        self,
        store: WorkflowStore,
        settings: WorkerSettings,
        *,
        in_hand: Callable[[], Collection[TaskAssignment]],
        patience: Patience,
    ) -> None:
        self._store = store
        self._settings = settings
        self._in_hand = in_hand
        self._patience = patience

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._settings.cancel_poll_s * random.uniform(1 - JITTER, 1 + JITTER))
            for workflow_id in {assignment.task.workflow_id for assignment in self._in_hand()}:
                await self._look_at(workflow_id)

    async def _look_at(self, workflow_id: str) -> None:
        try:
            header = await self._store.header(workflow_id)
        except (*OUTAGES, CorruptRecordError) as exc:
            self._patience.say("ask whether a workflow was cancelled", exc)
            return
        for assignment in tuple(self._in_hand()):
            if assignment.task.workflow_id != workflow_id or not must_stop(assignment.task, header):
                continue
            if assignment.stop.request is None:
                fields = {"event": "task_cancelled", "workflow_id": workflow_id, "task_name": assignment.task.task_name}
                LOG.info("Stopping %s: its workflow was cancelled", assignment.label, extra=fields)
                assignment.cancel(grace_s=self._settings.kill_timeout_s)
