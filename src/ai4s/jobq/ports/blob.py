"""The blob port: named bytes in one container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """A blob as listed."""

    name: str
    size_bytes: int


class BlobStore(Protocol):
    """One container.

    The contract:

    1. Names are 1-1024 characters, ``/`` separates path segments, no segment is empty, ``.`` or ``..``.
    2. A container that does not exist reads as empty; the first write creates it.
    3. ``put`` is atomic: readers see the old bytes or all of the new ones, and a crash leaves one of the two.
    4. ``get`` and ``stream`` of a missing blob raise ``BlobNotFoundError``.
    5. ``append`` creates the blob when needed; a blob is either put or appended to, never both. Appends of one writer
       keep their order.
    6. ``stream`` is lazy and restartable only by calling it again.
    7. ``list`` and ``delete_prefix`` take a plain string prefix of the name; both see everything, whatever the number.
    8. A store that is not reachable at all raises ``StorageUnavailableError`` whose message names the address.
    """

    @property
    def name(self) -> str: ...

    async def exists(self) -> bool: ...

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None: ...

    async def get(self, name: str) -> bytes: ...

    def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]: ...

    async def append(self, name: str, data: bytes) -> None: ...

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]: ...

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all blobs whose name begins with ``prefix``; how many there were."""
        ...
