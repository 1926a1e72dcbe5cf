"""Reads outputs that a task asks for and was not handed. Runs in the task's process, not in the worker's.

Account and prefix are those of the worker; where its queues and blobs are is said by the variables the task inherited.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.errors import CorruptRecordError
from ai4s.jobq.settings import resolve_target
from ai4s.jobq.store.outputs import OutputStore
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.worker.endings import Ending, ending_of, read_rows
from ai4s.jobq.worker.sidecar import Parent

AT_ONCE = 8  # blobs read side by side


async def read_outputs(sidecar: Mapping[str, Any], parents: Mapping[str, Parent]) -> dict[str, str]:
    """The JSON texts of these parents' outputs, by name. Raises ``CorruptRecordError``: one that was announced has gone."""
    async with open_store(resolve_target(sidecar["store"], environ=os.environ)) as store:
        stored = {name: parent for name, parent in parents.items() if "blob" not in parent}
        found = await _stored(store, sidecar["workflow"], stored)
        found |= {name: _blob(parent) for name, parent in parents.items() if "blob" in parent}
        return await _texts(store.outputs_store, found)


async def read_ending(sidecar: Mapping[str, Any], parent: Parent) -> Ending:
    """How a parent ended; empty when its row does not say it (any more)."""
    async with open_store(resolve_target(sidecar["store"], environ=os.environ)) as store:
        records = await read_rows(store, sidecar["workflow"], [parent["row"]], life=sidecar["life"])
        return ending_of(records.get(parent["row"]))


async def _stored(store: WorkflowStore, workflow_id: str, parents: Mapping[str, Parent]) -> dict[str, str | BlobRef]:
    outputs = await store.outputs(workflow_id, [parent["row"] for parent in parents.values()]) if parents else {}
    missing = [name for name, parent in parents.items() if parent["row"] not in outputs]
    if missing:
        raise CorruptRecordError(f"the output of upstream task {missing[0]!r} has gone: was the workflow purged?")
    return {name: outputs[parent["row"]] for name, parent in parents.items()}


def _blob(parent: Parent) -> BlobRef:
    blob, size_bytes, md5 = parent["blob"]
    return BlobRef(blob=str(blob), size_bytes=int(size_bytes), md5=str(md5))


async def _texts(store: OutputStore, outputs: Mapping[str, str | BlobRef]) -> dict[str, str]:
    room = asyncio.Semaphore(AT_ONCE)

    async def read(output: str | BlobRef) -> str:
        async with room:
            return await store.read(output)

    return dict(zip(outputs, await asyncio.gather(*map(read, outputs.values())), strict=True))
