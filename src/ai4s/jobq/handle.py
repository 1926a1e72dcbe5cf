"""``WorkflowHandle``: one workflow of a client, by its id. It holds nothing else, so any process may have one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ai4s.jobq.control.lifecycle import ChangeResult, RetryResult
from ai4s.jobq.control.signalling import SignalResult
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.views.status import TaskStatus, WorkflowStatus

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient


@dataclass(frozen=True, slots=True)
class WorkflowHandle:
    """One workflow. Every method is the client's of the same name, and raises what that raises."""

    client: WorkflowClient
    workflow_id: str

    async def status(self, *, include_tasks: bool = True) -> WorkflowStatus:
        """Where it stands."""
        return await self.client.status(self.workflow_id, include_tasks=include_tasks)

    async def tasks(
        self, *, status: TaskState | None = None, queue: str | None = None, name_prefix: str = "", limit: int = 0
    ) -> list[TaskStatus]:
        """Its tasks that pass all filters."""
        return await self.client.tasks(
            self.workflow_id, status=status, queue=queue, name_prefix=name_prefix, limit=limit
        )

    async def wait(self, *, timeout_s: float | None = None, poll_s: float = 1.0) -> WorkflowStatus:
        """Its status once it has ended."""
        return await self.client.wait(self.workflow_id, timeout_s=timeout_s, poll_s=poll_s)

    def follow(self, *, timeout_s: float | None = None, poll_s: float = 1.0) -> AsyncIterator[WorkflowStatus]:
        """Its status after each change, and at last when it has ended."""
        return self.client.follow(self.workflow_id, timeout_s=timeout_s, poll_s=poll_s)

    async def cancel(self, *, force: bool = False) -> ChangeResult:
        """Have nothing more of it started, and what runs stopped."""
        return await self.client.cancel(self.workflow_id, force=force)

    async def retry(self) -> RetryResult:
        """Have done again what did not complete."""
        return await self.client.retry(self.workflow_id)

    async def pause(self) -> ChangeResult:
        """Have nothing more of it dispatched."""
        return await self.client.pause(self.workflow_id)

    async def resume(self) -> ChangeResult:
        """Undo a pause."""
        return await self.client.resume(self.workflow_id)

    async def signal(self, name: str, data: Any = None) -> SignalResult:
        """Answer the tasks that wait for a signal of this name."""
        return await self.client.signal(self.workflow_id, name, data)
