"""Outputs of tasks: small ones travel inline, large ones as blobs named by execution.

The name of a blob carries the execution, so that an attempt which lost its race never overwrites the winner's output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from ai4s.jobq.errors import (
    AccessDeniedError,
    BlobNotFoundError,
    CorruptRecordError,
    JobqError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.services import Services
from ai4s.jobq.store.layout import Names
from ai4s.jobq.store.wire import BlobRef, TaskMessage

MAX_INLINE_BYTES = 32 * 1024
MAX_OUTPUT_BYTES = 256 * 1024 * 1024


class OutputError(JobqError):
    """An output cannot be kept: too large, or there is no blob storage for it."""


class OutputStore:
    """Keeps and reads the outputs of one target."""

    def __init__(self, services: Services, container: str) -> None:
        self._services = services
        self.container = container

    async def save(self, names: Names, message: TaskMessage, execution: str, text: str) -> str | BlobRef:
        """The output as a report carries it: inline up to 32 KiB of UTF-8, else stored as a blob.

        Repeating it with the same execution is harmless. Raises ``OutputError`` when a large output cannot be stored;
        transient trouble that outlasts the adapter's retries counts as that, since the task's slot cannot wait for ever.
        """
        data = text.encode()
        if len(data) <= MAX_INLINE_BYTES:
            return text
        if len(data) > MAX_OUTPUT_BYTES:
            raise OutputError(
                f"the output is {len(data)} bytes, at most 256 MiB are kept: write a file and output its path"
            )
        name = names.output_blob(message.workflow_id, message.run, message.row, execution)
        try:
            await self._services.blobs(self.container).put(name, data)
        except (StorageUnavailableError, AccessDeniedError) as exc:
            raise OutputError(
                f"the output is {len(data)} bytes; above {MAX_INLINE_BYTES} it needs blob storage, and that failed: {exc} "
                "Start a blob service, or set JOBQ_WORKFLOW_BLOBS=account/container, or output less than 32 KiB."
            ) from exc
        return BlobRef(blob=name, size_bytes=len(data), md5=_md5(data))

    async def read(self, output: str | BlobRef) -> str:
        """The JSON text of an output. Raises ``BlobNotFoundError``, ``CorruptRecordError`` when the blob is not the one."""
        if isinstance(output, str):
            return output
        with blobs_explained(self.container):
            data = await self._services.blobs(self.container).get(output.blob)
        if len(data) != output.size_bytes or _md5(data) != output.md5:
            raise CorruptRecordError(f"blob {output.blob!r} is not the output that was stored: size or checksum differ")
        return data.decode()


@contextmanager
def blobs_explained(container: str) -> Iterator[None]:
    """Let what keeps an output from being read say which container was looked into, and what chooses it."""
    try:
        yield
    except (BlobNotFoundError, AccessDeniedError) as exc:
        raise type(exc)(
            f"{exc} Outputs are read from container {container!r}: set JOBQ_WORKFLOW_BLOBS=account/container "
            "as it was set where the task ran."
        ) from exc


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
