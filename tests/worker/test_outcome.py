"""Outputs and an outage of blob storage: what is done is not thrown away for a service that is back a moment later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.errors import AccessDeniedError
from ai4s.jobq.store.wire import BlobRef, Cause
from ai4s.jobq.worker import outcome
from tests.support.faults import Faults, FaultyBlobs
from tests.worker.stage import Stage, StageServices

LARGE = """printf '"%040000d"' 7 > $JOBQ_OUTPUT_FILE"""


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def faulty_stage(tmp_path: Path, faults: Faults) -> AsyncIterator[Stage]:
    """A stage whose blob storage may be made to fail."""

    class Services(StageServices):
        def blobs(self, container: str) -> FaultyBlobs:
            return FaultyBlobs(self.local.blobs(container), faults)

    async with open_local(tmp_path / "store") as local:
        yield Stage(Services(local))


async def test_a_short_outage_of_blob_storage_fails_no_task(
    faulty_stage: Stage, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "PAUSE_S", 0.01)
    faults.refuse("blob.put", times=3)
    await faulty_stage.put_command(LARGE)

    await faulty_stage.run()

    assert isinstance(faulty_stage.only_outcome().output, BlobRef)
    assert faults.count("blob.put") == 4


async def test_blob_storage_that_stays_away_fails_the_attempt_in_the_end(
    faulty_stage: Stage, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be none at all, and then the task has to say so."""
    monkeypatch.setattr(outcome, "PAUSE_S", 0.01)
    monkeypatch.setattr(outcome, "STORED_WITHIN_S", 0.05)
    faults.refuse("blob.put", times=10**6)
    await faulty_stage.put_command(LARGE)

    await faulty_stage.run()

    report = faulty_stage.only_outcome()
    assert report.cause is Cause.EXIT
    assert "JOBQ_WORKFLOW_BLOBS" in (report.error or "")
    assert faults.count("blob.put") > 1


async def test_blob_storage_that_refuses_is_not_asked_again(faulty_stage: Stage, faults: Faults) -> None:
    faults.refuse("blob.put", times=10**6, error=AccessDeniedError("Storage Blob Data Contributor is missing"))
    await faulty_stage.put_command(LARGE)

    await faulty_stage.run()

    assert "Data Contributor" in (faulty_stage.only_outcome().error or "")
    assert faults.count("blob.put") == 1
