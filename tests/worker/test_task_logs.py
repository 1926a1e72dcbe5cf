"""C2, E06, E07, L01, M06: what tasks print is stored, bounded, and never in a task's way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.errors import BlobNotFoundError, StorageUnavailableError
from ai4s.jobq.ports.blob import BlobInfo
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.task_logs import (
    HEAD_SEGMENTS,
    SEGMENT_BYTES,
    TAIL_SEGMENTS,
    Frame,
    LogReader,
    Piece,
    Stream,
    decode_frames,
    encode_frames,
    executions_with_logs,
    log_prefix,
)
from ai4s.jobq.worker import task_log
from ai4s.jobq.worker.masking import Mask, secrets_of
from ai4s.jobq.worker.task_log import HEAD_BYTES, RECENT_BYTES, TaskLog, TaskLogs
from tests.worker.stage import Stage
from tests.worker.waiting import until

PREFIX = "Proj/wf/run/t000000/1-a/log/"


class MemoryBlobs:
    """One container in memory. ``fault`` is called before each append."""

    name = "memory"

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.fault: Callable[[], None] = lambda: None
        self.gate = asyncio.Event()
        self.gate.set()

    async def exists(self) -> bool:
        return True

    async def put(self, name: str, data: bytes | AsyncIterator[bytes]) -> None:
        raise AssertionError("logs are appended")

    async def get(self, name: str) -> bytes:
        if name not in self.content:
            raise BlobNotFoundError(name)
        return self.content[name]

    async def stream(self, name: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        yield await self.get(name)

    async def append(self, name: str, data: bytes) -> None:
        self.requests["append"] += 1
        await self.gate.wait()
        self.fault()
        self.content[name] = self.content.get(name, b"") + data

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        for name, data in list(self.content.items()):
            if name.startswith(prefix):
                yield BlobInfo(name=name, size_bytes=len(data))

    async def delete_prefix(self, prefix: str) -> int:
        found = [name for name in self.content if name.startswith(prefix)]
        for name in found:
            del self.content[name]
        return len(found)


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def logs(blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch) -> TaskLogs:
    monkeypatch.setattr(task_log, "FLUSH_EVERY_S", 0.01)
    monkeypatch.setattr(task_log, "FLOOD_PAUSE_S", 0.001)
    return TaskLogs(lambda: blobs, clock=SystemClock())


async def pieces(blobs: MemoryBlobs) -> list[Piece]:
    return [piece async for piece in LogReader(blobs, PREFIX).more()]


async def text(blobs: MemoryBlobs) -> bytes:
    return b"".join(piece.data for piece in await pieces(blobs))


async def finish(log: TaskLog, logs: TaskLogs) -> None:
    log.close()
    await logs.close(within_s=30)


async def test_a_silent_task_costs_no_request(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    await finish(logs.open(PREFIX), logs)

    assert blobs.requests == {}
    assert blobs.content == {}


async def test_a_short_output_is_one_append(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    log = logs.open(PREFIX)
    log.feed(Stream.STDOUT, b"one\n")
    log.feed(Stream.STDERR, b"oops\n")
    await finish(log, logs)

    assert blobs.requests == {"append": 1}
    assert [(piece.stream, piece.data) for piece in await pieces(blobs)] == [
        (Stream.STDOUT, b"one\n"),
        (Stream.STDERR, b"oops\n"),
    ]


async def test_what_is_printed_can_be_read_while_the_task_goes_on(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    log = logs.open(PREFIX)
    reader = LogReader(blobs, PREFIX)

    log.feed(Stream.STDOUT, b"first\n")
    await until(lambda: bool(blobs.content))
    first = [piece.data async for piece in reader.more()]
    log.feed(Stream.STDOUT, b"second\n")
    await finish(log, logs)
    second = [piece.data async for piece in reader.more()]

    assert (first, second) == ([b"first\n"], [b"second\n"])
    assert reader.ended


async def test_output_below_the_head_is_complete_however_fast_it_comes(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    log = logs.open(PREFIX)
    printed = b"".join(b"line %07d\n" % number for number in range(300_000))
    for start in range(0, len(printed), 65_536):
        log.feed(Stream.STDOUT, printed[start : start + 65_536])
    await finish(log, logs)

    assert len(printed) < HEAD_BYTES
    assert await text(blobs) == printed


async def test_of_a_flood_the_head_and_the_tail_are_kept_and_the_rest_is_counted(
    blobs: MemoryBlobs, logs: TaskLogs
) -> None:
    log = logs.open(PREFIX)
    chunk = 65_536
    for number in range(1600):  # 100 MiB
        log.feed(Stream.STDOUT, (b"%07d\n" % number) * (chunk // 8))
        if number % 50 == 0:
            await asyncio.sleep(0)
    await finish(log, logs)

    found = await pieces(blobs)
    kept = sum(len(piece.data) for piece in found)
    assert kept + sum(piece.missing for piece in found) == 1600 * chunk
    assert b"".join(piece.data for piece in found)[:8] == b"0000000\n"
    assert found[-1].data.endswith(b"0001599\n")
    assert kept >= HEAD_BYTES
    assert sum(map(len, blobs.content.values())) <= (HEAD_SEGMENTS + TAIL_SEGMENTS + 1) * SEGMENT_BYTES * 1.1


async def test_a_long_output_stays_within_its_segments(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    log = logs.open(PREFIX)
    for _ in range(300):  # 30 MiB, each piece stored before the next one comes
        log.feed(Stream.STDOUT, b"x" * 104_857)
        await until(lambda: not log._held)
    await finish(log, logs)

    numbers = sorted(int(name.removeprefix(PREFIX)) for name in blobs.content)
    assert numbers[:HEAD_SEGMENTS] == list(range(HEAD_SEGMENTS))
    assert len(numbers) <= HEAD_SEGMENTS + TAIL_SEGMENTS + 1
    assert sum(piece.missing for piece in await pieces(blobs)) > 15 << 20


async def test_memory_is_bounded_while_storage_hangs(blobs: MemoryBlobs, logs: TaskLogs) -> None:
    blobs.gate.clear()
    log = logs.open(PREFIX)
    for _ in range(1600):
        log.feed(Stream.STDERR, b"x" * 65_536)
        await asyncio.sleep(0)

    assert log._held_bytes <= HEAD_BYTES + RECENT_BYTES + 65_536
    blobs.gate.set()
    await finish(log, logs)
    found = await pieces(blobs)
    assert sum(len(piece.data) + piece.missing for piece in found) == 1600 * 65_536


async def test_storage_that_is_away_is_said_once_and_left_alone(
    blobs: MemoryBlobs, logs: TaskLogs, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> None:
        raise StorageUnavailableError("No blob storage at 127.0.0.1:10000.")

    blobs.fault = away
    for number in range(5):
        log = logs.open(f"{PREFIX}{number}/")
        log.feed(Stream.STDOUT, b"hello\n")
        log.close()
        await logs.close(within_s=30)

    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "No blob storage at 127.0.0.1:10000." in said[0]
    assert blobs.requests == {"append": 1}
    assert logs.held_bytes == 0


async def test_after_an_outage_the_last_of_it_is_stored_and_the_rest_is_counted(
    blobs: MemoryBlobs, logs: TaskLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "LEAVE_ALONE_S", 0.0)
    failures = iter(range(3))

    def flaky() -> None:
        with contextlib.suppress(StopIteration):
            next(failures)
            raise StorageUnavailableError("away")

    blobs.fault = flaky
    log = logs.open(PREFIX)
    for number in range(40):
        log.feed(Stream.STDOUT, (b"%07d\n" % number) * 8192)
    await until(lambda: bool(blobs.content))
    await finish(log, logs)

    found = await pieces(blobs)
    assert sum(len(piece.data) + piece.missing for piece in found) == 40 * 65_536
    assert found[-1].data.endswith(b"0000039\n")


async def test_an_append_that_was_sent_twice_is_read_once(blobs: MemoryBlobs) -> None:
    frames = encode_frames([Frame(Stream.STDOUT, 0, b"abc"), Frame(Stream.STDERR, 3, b"def")])
    blobs.content[f"{PREFIX}000000"] = frames + frames + encode_frames([Frame(Stream.STDOUT, 6, b"ghi")])

    assert await text(blobs) == b"abcdefghi"


async def test_a_frame_that_grew_between_two_sends_is_read_once(blobs: MemoryBlobs) -> None:
    blobs.content[f"{PREFIX}000000"] = encode_frames([Frame(Stream.STDOUT, 0, b"abc")])
    blobs.content[f"{PREFIX}000001"] = encode_frames([Frame(Stream.STDOUT, 0, b"abcdef")])

    assert await text(blobs) == b"abcdef"


def test_a_frame_that_is_cut_is_left_for_later() -> None:
    data = encode_frames([Frame(Stream.STDOUT, 0, b"abc"), Frame(Stream.STDOUT, 3, b"\x1eo 0 3\nxyz")])

    whole = list(decode_frames(data))
    assert [frame.data for frame in whole] == [b"abc", b"\x1eo 0 3\nxyz"]
    for cut in range(len(data) - 1, 0, -1):
        assert list(decode_frames(data[:cut])) == whole[: len(list(decode_frames(data[:cut])))]
        assert len(list(decode_frames(data[:cut]))) < 2


@pytest.mark.parametrize(
    ("env", "secrets"),
    [
        ({"API_TOKEN": "s3cr3t-123"}, (b"s3cr3t-123",)),
        ({"DB_PASSWORD": "hunter22", "MODEL": "resnet50"}, (b"hunter22",)),
        ({"URL": "postgres://me:opensesame@host/db"}, (b"opensesame",)),
        ({"STORE": "AccountName=a;AccountKey=abcdef12==;X=1"}, (b"abcdef12==",)),
        ({"KEYBOARD": "german-layout", "PATH": "/usr/bin", "USE_TOKEN": "true"}, ()),
        ({"SAS": "https://a/b?sv=1&sig=qwertz%3D&x=1"}, (b"https://a/b?sv=1&sig=qwertz%3D&x=1", b"qwertz%3D")),
    ],
)
def test_secrets_are_known_by_their_names_and_forms(env: dict[str, str], secrets: tuple[bytes, ...]) -> None:
    assert secrets_of(env) == secrets


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_is_hidden_however_the_output_is_cut(size: int) -> None:
    mask = Mask((b"s3cr3t-123", b"s3cr3t"))
    printed = b"a s3cr3t-123 b s3cr3ts3cr3t-12 s3cr3 end s3"

    shown = b"".join(mask.feed(printed[start : start + size]) for start in range(0, len(printed), size)) + mask.close()

    assert shown == b"a *** b ******-12 s3cr3 end s3"


def test_a_secret_at_the_very_end_is_hidden() -> None:
    mask = Mask((b"s3cr3t-123", b"s3cr3t"))

    assert mask.feed(b"it is s3cr3t") + mask.close() == b"it is ***"


async def test_a_worker_stores_what_its_tasks_print(stage: Stage) -> None:
    header = await stage.submit(
        Task(name="train", kwargs={"cmd": "echo $API_TOKEN; echo bad >&2; exit 3", "env": {"API_TOKEN": "s3cr3t-123"}})
    )
    await stage.put(header)
    await stage.run()

    stored = await stored_output(stage, header.workflow_id, header.run, attempt=1)
    assert sorted(stored.split(b"\n")) == [b"", b"***", b"bad"]
    assert "s3cr3t" not in (stage.only_outcome().error or "")


async def test_binary_output_is_stored_byte_by_byte(stage: Stage) -> None:
    """E07."""
    header = await stage.submit(Task(name="train", kwargs={"cmd": "printf '\\377\\000\\303'; printf '\\251\\r\\n'"}))
    await stage.put(header)
    await stage.run()

    assert await stored_output(stage, header.workflow_id, header.run, attempt=1) == b"\xff\x00\xc3\xa9\r\n"


async def test_a_task_without_output_leaves_no_blob(stage: Stage) -> None:
    await stage.put_command("true")
    before = stage.services.requests
    await stage.run()

    after = stage.services.requests
    assert {name for name in after if name.startswith("blob") and after[name] != before.get(name)} == set()


async def test_a_worker_whose_blob_storage_fails_runs_its_tasks_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(name: str, data: bytes) -> None:
        raise StorageUnavailableError("no room")

    container = stage.services.blobs(stage.store.outputs_store.container)
    monkeypatch.setattr(container, "append", fail)
    await stage.put_command("echo hello; exit 0")
    await stage.put_command("echo hello; exit 0")

    summary = await stage.run()

    assert summary.succeeded == 2


async def test_a_start_is_reported_with_the_time_of_the_start(stage: Stage) -> None:
    await stage.put_command("sleep 1.3")
    await stage.run()

    started, ended = stage.reports()
    assert ended.duration_s is not None
    assert (_time(ended.at) - _time(started.at)) == pytest.approx(ended.duration_s, abs=0.3)


def _time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


async def stored_output(stage: Stage, workflow_id: str, run: str, *, attempt: int) -> bytes:
    blobs = stage.services.blobs(stage.store.outputs_store.container)
    names = (stage.store.names, workflow_id, run, "t000000")
    (execution,) = await executions_with_logs(blobs, *names, attempt)
    reader = LogReader(blobs, log_prefix(*names, execution))
    return b"".join([piece.data async for piece in reader.more()])
