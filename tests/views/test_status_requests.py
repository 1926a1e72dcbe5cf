"""What looking at a large workflow costs on Azure: counted on Azurite, where the requests are the same."""

from __future__ import annotations

from collections import Counter

import pytest

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT
from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.store.workflows import WorkflowStore
from tests.contract.azurite_services import azurite_services
from tests.support.small import many, workflow


@pytest.mark.azurite
async def test_the_status_of_twenty_thousand_tasks_is_one_read_of_the_header() -> None:
    """``status --no-tasks`` answers from the header alone, however many tasks there are."""
    async with azurite_services() as services:
        client = WorkflowClient(WorkflowStore(services, account=DEVELOPMENT_ACCOUNT, prefix="StatusRequests"))
        submission = await client.submit(workflow(many(20_000)))
        before = Counter(services.requests)

        status = await client.status(submission.workflow_id, include_tasks=False)

        assert (status.total, status.tasks) == (20_000, None)
        assert Counter(services.requests) - before == Counter({"table.get": 1})
