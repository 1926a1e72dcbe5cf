"""What tasks printed, in blob storage: where it is, how it is written down, how it is read back.

Both streams of one execution share a sequence of append blobs, its *segments*, of about 1 MiB each. The first few are kept
and the last few; those between are deleted as the sequence grows, so that an execution occupies at most about 10 MiB.

A segment is a sequence of frames: ``\\x1e``, a letter for the stream, the number of bytes printed before on both streams,
the number of bytes that follow, ``\\n``, the bytes. The first number makes reading exact: a frame that was read already (an
append whose answer was lost is sent again) is passed over, and a jump is output that was not kept.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ai4s.jobq.errors import BlobNotFoundError
from ai4s.jobq.ports.blob import BlobInfo, BlobStore
from ai4s.jobq.store.layout import Names

SEGMENT_BYTES = 1 << 20  # a follower reads the last segment again whenever it has grown
HEAD_SEGMENTS = 4
TAIL_SEGMENTS = 6
LOG = "log"

_FRAME = re.compile(rb"\x1e([oez]) (\d{1,16}) (\d{1,10})\n")


class Stream(StrEnum):
    """What a frame holds."""

    STDOUT = "o"
    STDERR = "e"
    END = "z"  # the execution is over; holds nothing


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of output, and how many bytes were printed before it."""

    stream: Stream
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of output as read. ``missing`` bytes before it were printed and not kept."""

    stream: Stream
    data: bytes
    missing: int = 0


def log_prefix(names: Names, workflow_id: str, run: str, row: str, execution: str) -> str:
    """What the names of all segments of an execution begin with."""
    return f"{names.run_blobs(workflow_id, run)}{row}/{execution}/{LOG}/"


def segment_name(prefix: str, number: int) -> str:
    """The name of one segment."""
    return f"{prefix}{number:06d}"


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """The frames as they are appended to a segment."""
    return b"".join(
        b"\x1e%s %d %d\n%s" % (frame.stream.encode(), frame.offset, len(frame.data), frame.data) for frame in frames
    )


def decode_frames(data: bytes) -> Iterator[Frame]:
    """The frames of a segment, up to the first that is cut: its rest comes later, or was lost with its writer."""
    position = 0
    while (head := _FRAME.match(data, position)) is not None:
        position = head.end() + int(head[3])
        if position > len(data):
            return
        yield Frame(Stream(head[1].decode()), int(head[2]), data[head.end() : position])


async def executions_with_logs(
    blobs: BlobStore, names: Names, workflow_id: str, run: str, row: str, attempt: int
) -> list[str]:
    """The executions of an attempt that printed something, by name."""
    above = f"{names.run_blobs(workflow_id, run)}{row}/"
    parts = [blob.name.removeprefix(above).split("/") async for blob in blobs.list(f"{above}{attempt}-")]
    return sorted({execution for execution, kind, *_ in parts if kind == LOG})


class LogReader:
    """Reads what one execution printed, once or again and again while it grows."""

    def __init__(self, blobs: BlobStore, prefix: str) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._offset = 0
        self._segment = BlobInfo(name="", size_bytes=0)
        self.ended = False

    async def more(self) -> AsyncIterator[Piece]:
        """What was printed since the last call, in the order in which it was read from the command."""
        segments = sorted([blob async for blob in self._blobs.list(self._prefix)], key=lambda blob: blob.name)
        for segment in segments:
            if (segment.name, segment.size_bytes) <= (self._segment.name, self._segment.size_bytes):
                continue
            with contextlib.suppress(BlobNotFoundError):  # deleted meanwhile, to make room for later ones
                for frame in decode_frames(await self._blobs.get(segment.name)):
                    if (piece := self._fresh(frame)) is not None:
                        yield piece
            self._segment = segment

    def _fresh(self, frame: Frame) -> Piece | None:
        self.ended = self.ended or frame.stream is Stream.END
        missing, offset = frame.offset - self._offset, frame.offset + len(frame.data)
        if offset <= self._offset:
            return None
        data = frame.data[-missing:] if missing < 0 else frame.data
        self._offset = offset
        return Piece(frame.stream, data, max(missing, 0))
