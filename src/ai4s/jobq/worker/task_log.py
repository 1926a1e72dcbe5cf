"""Stores what tasks print while they print it, and never lets that slow or fail a task.

* Nothing is made before the first byte: a silent task costs no request. What comes then is appended every few seconds,
  sooner when there is much of it, and at the end, always beside the task, never in its way.
* Memory is bounded whatever is printed and however slow the storage is: the beginning of an output waits for it as long as
  the worker has room, of what follows only the last megabyte does. What was dropped is a jump in the numbers of the frames.
* Storage that fails is left alone for a while, which is said once. The output is in the worker's own log all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine

from ai4s.jobq.errors import JobqError
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.task_logs import (
    HEAD_SEGMENTS,
    SEGMENT_BYTES,
    TAIL_SEGMENTS,
    Frame,
    Stream,
    encode_frames,
    segment_name,
)

LOG = logging.getLogger(__name__)

FLUSH_EVERY_S = 2.0
FLUSH_ABOVE_BYTES = 512 * 1024
FLOOD_PAUSE_S = 0.25  # between appends of an output that goes beyond its head: at most 4 MiB a second are stored
FRAME_BYTES = 64 * 1024
HEAD_BYTES = HEAD_SEGMENTS * SEGMENT_BYTES
RECENT_BYTES = 1 << 20  # of one output beyond its head, held while it cannot be stored
ROOM_BYTES = 32 << 20  # of all heads of one worker, held while they cannot be stored
APPEND_WITHIN_S = 30.0
LEAVE_ALONE_S = 60.0  # storage that failed


class TaskLogs:
    """The logs of one worker's tasks. ``open_blobs`` gives the container; it is called when there is something to store."""

    def __init__(self, open_blobs: Callable[[], BlobStore], *, clock: Clock) -> None:
        self._open_blobs = open_blobs
        self._clock = clock
        self._off_until = 0.0
        self._said = False
        self._work: set[asyncio.Task[None]] = set()
        self.held_bytes = 0

    def open(self, prefix: str) -> TaskLog:
        """The log of one execution; ``prefix`` begins the names of its blobs."""
        return TaskLog(self, prefix)

    async def close(self, *, within_s: float) -> None:
        """Wait until all that ended is stored, for so long at most."""
        if self._work:
            await asyncio.wait(self._work, timeout=within_s)
        for task in tuple(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    @property
    def is_off(self) -> bool:
        """Whether storage has failed a moment ago."""
        return self._clock.monotonic() < self._off_until

    def begin(self, flush: Coroutine[None, None, None]) -> None:
        """Run a flush beside everything else."""
        task = asyncio.create_task(flush)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def append(self, name: str, data: bytes) -> bool:
        """Append to a blob; whether that worked."""
        try:
            async with asyncio.timeout(APPEND_WITHIN_S):
                await self._open_blobs().append(name, data)
        except (JobqError, TimeoutError) as exc:
            self._fail(exc)
            return False
        if self._said:
            self._said = False
            LOG.info("Task output is stored again", extra={"event": "task_log_restored"})
        return True

    async def delete(self, name: str) -> None:
        """Delete a segment. One that stays behind is only more than was promised, and goes with its workflow."""
        with contextlib.suppress(JobqError, TimeoutError):
            async with asyncio.timeout(APPEND_WITHIN_S):
                await self._open_blobs().delete_prefix(name)

    def _fail(self, exc: Exception) -> None:
        self._off_until = self._clock.monotonic() + LEAVE_ALONE_S
        if not self._said:
            self._said = True
            LOG.warning(
                "What tasks print cannot be stored, so it is in this worker's log only. Tasks run on; storing is tried again "
                "every %.0f s. %s",
                LEAVE_ALONE_S,
                str(exc) or type(exc).__name__,
                extra={"event": "task_log_failed"},
            )


class TaskLog:
    """What one execution prints. ``feed`` and ``close`` return at once."""

    def __init__(self, logs: TaskLogs, prefix: str) -> None:
        self._logs = logs
        self._prefix = prefix
        self._offset = 0
        self._head = _Frames()
        self._recent = _Frames()
        self._segment = 0
        self._segment_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._closed = False

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take what was read next."""
        self._hold(stream, data)
        if self._flushing or self._closed:
            return
        if self._held_bytes >= FLUSH_ABOVE_BYTES and self._offset <= HEAD_BYTES:
            self._begin()
        elif self._timer is None:
            self._schedule()

    def close(self) -> None:
        """The execution is over; the rest is stored in the background."""
        if self._closed or not self._offset:
            return
        self._closed = True
        self._recent.add(Stream.END, self._offset, b"")
        if not self._flushing:
            self._begin()

    @property
    def _held_bytes(self) -> int:
        return self._head.size_bytes + self._recent.size_bytes

    def _hold(self, stream: Stream, data: bytes) -> None:
        in_head = self._offset < HEAD_BYTES and not self._recent and self._logs.held_bytes < ROOM_BYTES
        if in_head:
            self._head.add(stream, self._offset, data)
            self._logs.held_bytes += len(data)
        else:
            self._recent.add(stream, self._offset, data)
            self._recent.drop_to(RECENT_BYTES)
        self._offset += len(data)

    def _schedule(self) -> None:
        pause_s = FLOOD_PAUSE_S if self._held_bytes >= FLUSH_ABOVE_BYTES else FLUSH_EVERY_S
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushing = True
        self._logs.begin(self._flush())

    async def _flush(self) -> None:
        try:
            stored = await self._store()
            while stored and self._closed and self._held:
                stored = await self._store()
        finally:
            self._flushing = False
            if self._closed:
                self._take()
            elif self._held:
                self._schedule()

    @property
    def _held(self) -> bool:
        return bool(self._head or self._recent)

    async def _store(self) -> bool:
        """Append what is held now, a segment's worth at a time; False when storage does not take it."""
        frames = self._take()
        while frames:
            batch = _segment_of(frames, SEGMENT_BYTES - self._segment_bytes)
            data = encode_frames(batch)
            if not await self._append(data):
                self._restore(frames)
                return False
            del frames[: len(batch)]
            self._segment_bytes += len(data)
            if self._segment_bytes >= SEGMENT_BYTES:
                self._next_segment()
                await self._make_room()
        return True

    async def _append(self, data: bytes) -> bool:
        if self._logs.is_off:
            return False
        stored = await self._logs.append(segment_name(self._prefix, self._segment), data)
        if not stored:
            self._next_segment()  # half a frame may be in this one now: nothing may follow it
        return stored

    def _take(self) -> list[Frame]:
        self._logs.held_bytes -= self._head.size_bytes
        return self._head.take() + self._recent.take()

    def _restore(self, frames: list[Frame]) -> None:
        """Storage is away: of what was to be stored the end is kept, before what came meanwhile."""
        self._recent.put_before(frames + self._take())
        self._recent.drop_to(RECENT_BYTES)

    def _next_segment(self) -> None:
        self._segment += 1
        self._segment_bytes = 0

    async def _make_room(self) -> None:
        """Delete the segment that is neither among the first nor among the last any more."""
        number = self._segment - TAIL_SEGMENTS
        if number >= HEAD_SEGMENTS:
            await self._logs.delete(segment_name(self._prefix, number))


class _Frames:
    """Frames that wait, in order."""

    def __init__(self) -> None:
        self._frames: deque[tuple[Stream, int, bytearray]] = deque()
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, stream: Stream, offset: int, data: bytes) -> None:
        """One more; small ones of the same stream become one."""
        self.size_bytes += len(data)
        if self._frames:
            last, _, held = self._frames[-1]
            if last is stream and len(held) + len(data) <= FRAME_BYTES:
                held += data
                return
        self._frames.append((stream, offset, bytearray(data)))

    def drop_to(self, most_bytes: int) -> None:
        """Drop the oldest ones until so many bytes are left."""
        while self.size_bytes > most_bytes:
            self.size_bytes -= len(self._frames.popleft()[2])

    def take(self) -> list[Frame]:
        """All of them; none is left here."""
        taken = [Frame(stream, offset, bytes(data)) for stream, offset, data in self._frames]
        self._frames.clear()
        self.size_bytes = 0
        return taken

    def put_before(self, frames: list[Frame]) -> None:
        """Put frames back before all others."""
        self._frames.extendleft((frame.stream, frame.offset, bytearray(frame.data)) for frame in reversed(frames))
        self.size_bytes += sum(len(frame.data) for frame in frames)


def _segment_of(frames: list[Frame], room_bytes: int) -> list[Frame]:
    """The first frames, at least one, that about fill a segment."""
    batch: list[Frame] = []
    for frame in frames:
        batch.append(frame)
        room_bytes -= len(frame.data)
        if room_bytes <= 0:
            break
    return batch
