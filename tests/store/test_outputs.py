"""Outputs: small ones inline, large ones as blobs named by execution, verified when they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai4s.jobq.errors import AccessDeniedError, BlobNotFoundError, CorruptRecordError, StorageUnavailableError
from ai4s.jobq.store import outputs
from ai4s.jobq.store.outputs import MAX_INLINE_BYTES, OutputError
from ai4s.jobq.store.wire import BlobRef, TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from tests.support.faults import Faults

MESSAGE = TaskMessage(
    store="local/Test", workflow_id="w", run="r" * 16, life=1, row="t000003", task_name="a", attempt=2
)


async def save(store: WorkflowStore, text: str, execution: str = "2-x") -> str | BlobRef:
    return await store.outputs_store.save(store.names, MESSAGE, execution, text)


@pytest.mark.parametrize("character", ["x", "é", "漢", "😀"])
async def test_an_output_of_exactly_32_kib_of_utf8_is_inline(store: WorkflowStore, character: str) -> None:
    size = len(character.encode())
    text = character * (MAX_INLINE_BYTES // size) + "x" * (MAX_INLINE_BYTES % size)

    assert len(text.encode()) == MAX_INLINE_BYTES
    assert await save(store, text) == text


@pytest.mark.parametrize("character", ["x", "é", "漢", "😀"])
async def test_an_output_above_32_kib_of_utf8_is_a_blob_that_reads_the_same(
    store: WorkflowStore, character: str
) -> None:
    text = character * (MAX_INLINE_BYTES // len(character.encode()) + 1)
    output = await save(store, text)

    assert isinstance(output, BlobRef)
    assert output.size_bytes == len(text.encode())
    assert await store.outputs_store.read(output) == text


async def test_an_inline_output_is_read_as_it_is(store: WorkflowStore) -> None:
    assert await store.outputs_store.read('{"x": 1}') == '{"x": 1}'


async def test_two_executions_of_one_attempt_do_not_overwrite_each_other(store: WorkflowStore) -> None:
    first = await save(store, "a" * 40_000, "2-one")
    second = await save(store, "b" * 40_000, "2-two")

    assert [await store.outputs_store.read(output) for output in (first, second)] == ["a" * 40_000, "b" * 40_000]


async def test_saving_again_with_the_same_execution_is_harmless(store: WorkflowStore) -> None:
    assert await save(store, "a" * 40_000) == await save(store, "a" * 40_000)


async def test_blobs_of_a_run_share_the_prefix_that_a_purge_deletes(store: WorkflowStore) -> None:
    output = await save(store, "a" * 40_000)

    assert isinstance(output, BlobRef)
    assert output.blob.startswith(store.names.run_blobs("w", "r" * 16))


@pytest.mark.parametrize("error", [StorageUnavailableError("nobody answers at x"), AccessDeniedError("forbidden")])
async def test_a_large_output_without_blob_service_fails_with_advice(
    faulty: WorkflowStore, faults: Faults, error: Exception
) -> None:
    faults.refuse("blob.put", error=error)

    with pytest.raises(OutputError, match=r"JOBQ_WORKFLOW_BLOBS.*less than 32 KiB") as raised:
        await save(faulty, "x" * 40_000)
    assert str(error) in str(raised.value)


async def test_a_small_output_needs_no_blob_service(faulty: WorkflowStore, faults: Faults) -> None:
    await save(faulty, "x" * 100)

    assert faults.calls == []


async def test_an_output_beyond_all_bounds_is_refused_with_advice(
    store: WorkflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_OUTPUT_BYTES", 50_000)

    with pytest.raises(OutputError, match="write a file"):
        await save(store, "x" * 50_001)


async def test_a_blob_with_other_bytes_than_were_stored_is_refused(store: WorkflowStore) -> None:
    output = await save(store, "x" * 40_000)
    assert isinstance(output, BlobRef)
    await store.services.blobs(store.outputs_store.container).put(output.blob, b"y" * 40_000)

    with pytest.raises(CorruptRecordError, match="checksum"):
        await store.outputs_store.read(output)


async def test_a_blob_of_another_size_than_was_stored_is_refused(store: WorkflowStore) -> None:
    output = await save(store, "x" * 40_000)
    assert isinstance(output, BlobRef)

    with pytest.raises(CorruptRecordError):
        await store.outputs_store.read(replace(output, size_bytes=1))


@pytest.mark.parametrize("error", [BlobNotFoundError("no such container"), AccessDeniedError("forbidden")])
async def test_a_container_that_cannot_be_read_is_told_with_the_variable_that_chooses_it(
    faulty: WorkflowStore, faults: Faults, error: Exception
) -> None:
    faults.refuse("blob.get", error=error)

    with pytest.raises(
        type(error), match=rf"{error}.*container '{faulty.outputs_store.container}'.*JOBQ_WORKFLOW_BLOBS"
    ):
        await faulty.outputs_store.read(BlobRef(blob="a", size_bytes=1, md5="0" * 32))


async def test_a_blob_that_is_gone_is_told_as_gone(store: WorkflowStore) -> None:
    with pytest.raises(BlobNotFoundError):
        await store.outputs_store.read(BlobRef(blob="no/such/blob", size_bytes=1, md5="0" * 32))
