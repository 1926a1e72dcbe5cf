"""Retention: purges what ended long ago, a little at a time, so that the leader's work is never held up."""

from __future__ import annotations

import logging
from datetime import timedelta

from ai4s.jobq.errors import AccessDeniedError, JobqError, StorageUnavailableError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.purge.erase import Victim, erase_workflow
from ai4s.jobq.store.workflows import WorkflowStore

LOG = logging.getLogger(__name__)

AT_A_TIME = 20  # workflows
LOOKED_AT = 1000  # one request's worth of index rows, should some of them not be purgeable
BETWEEN_S = 1.0  # between two portions
PAUSE_S = 60.0  # when there is nothing left to do


class Retention:
    """Purges workflows of a store that ended more than ``keep_s`` ago. An interrupted purge is gone on with here, too."""

    def __init__(self, store: WorkflowStore, clock: Clock, *, keep_s: float) -> None:
        self._store = store
        self._clock = clock
        self._keep = timedelta(seconds=keep_s)

    async def once(self) -> float:
        """Purge a portion, the latest ends first; how long to wait until the next one. Raises what the services raise."""
        old = await self._store.index.ended_until(self._clock.now() - self._keep, most=LOOKED_AT)
        purged = 0
        for record in old:
            victim = Victim(workflow_id=record.workflow_id, run=record.run, ended_at=record.ended_at)
            purged += await self._purge(victim)
            if purged == AT_A_TIME:
                return BETWEEN_S
        return PAUSE_S

    async def _purge(self, victim: Victim) -> bool:
        fields = {"event": "workflow_expired", "workflow_id": victim.workflow_id}
        try:
            erased = await erase_workflow(self._store, victim)
        except (StorageUnavailableError, AccessDeniedError):
            raise
        except JobqError as exc:  # retried meanwhile, or of a later release: it takes no other with it
            LOG.debug("Not purged: %s", exc)
            return False
        LOG.info(
            "Purged %s, which ended at %s: %d task rows, %d blobs",
            victim.workflow_id,
            victim.ended_at,
            erased.task_rows,
            erased.blobs,
            extra=fields,
        )
        return True
