"""The numbered points of :class:`ai4s.jobq.ports.blob.BlobStore`, on every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ai4s.jobq.errors import BlobNotFoundError, UsageError
from ai4s.jobq.ports.blob import BlobInfo, BlobStore
from ai4s.jobq.ports.services import Services

MIB = 1024 * 1024


async def listed(blobs: BlobStore, prefix: str = "") -> dict[str, int]:
    """Size by name."""
    return {info.name: info.size_bytes async for info in blobs.list(prefix)}


async def streamed(blobs: BlobStore, name: str, *, chunk_bytes: int = MIB) -> bytes:
    return b"".join([chunk async for chunk in blobs.stream(name, chunk_bytes=chunk_bytes)])


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


# Point 1: names.

NAMES = [
    "a",
    "outputs/5f3a/t000001/1.json",
    "Upper/lower.TXT",
    "it's 100% a+b&c=d #1?.log",
    "@~=/$x",
    "café/🏥",
    ".hidden/...",
    "con",
    "x" * 255,
    "🏥" * 255,
    "/".join(["segment"] * 100),
    "n" * 1024,
]


@pytest.mark.parametrize("name", NAMES)
async def test_legal_name_is_kept_unchanged(blobs: BlobStore, name: str) -> None:
    await blobs.put(name, b"data")

    assert await blobs.get(name) == b"data"
    assert await listed(blobs) == {name: 4}


@pytest.mark.parametrize("name", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "a\0b", "n" * 1025])
async def test_illegal_name_is_refused_everywhere(blobs: BlobStore, name: str) -> None:
    for request in (blobs.put(name, b""), blobs.get(name), blobs.append(name, b""), streamed(blobs, name)):
        with pytest.raises(UsageError, match="is no blob name"):
            await request


async def test_names_differing_in_case_are_different_blobs(blobs: BlobStore) -> None:
    await blobs.put("Train", b"1")
    await blobs.put("train", b"22")

    assert await listed(blobs) == {"Train": 1, "train": 2}


async def test_blob_may_have_the_name_of_anothers_directory(blobs: BlobStore) -> None:
    await blobs.put("a/b", b"1")
    await blobs.put("a", b"22")

    assert await listed(blobs) == {"a": 2, "a/b": 1}


# Point 2: a container that does not exist.


async def test_absent_container_reads_as_empty(blobs: BlobStore) -> None:
    assert await listed(blobs) == {}
    assert await blobs.delete_prefix("") == 0
    with pytest.raises(BlobNotFoundError):
        await blobs.get("a")


async def test_reading_creates_no_container(blobs: BlobStore) -> None:
    await listed(blobs)
    await blobs.delete_prefix("a")

    assert not await blobs.exists()


async def test_first_put_creates_the_container(blobs: BlobStore) -> None:
    await blobs.put("a", b"")

    assert await blobs.exists()


async def test_first_append_creates_the_container(blobs: BlobStore) -> None:
    await blobs.append("a", b"1")

    assert await blobs.exists()


# Point 3: putting.


@pytest.mark.parametrize("data", [b"", b"\0\xff\n", bytes(range(256)) * 4096 * 5], ids=["empty", "binary", "5 MiB"])
async def test_bytes_come_back_exactly(blobs: BlobStore, data: bytes) -> None:
    await blobs.put("a", data)

    assert await blobs.get("a") == data
    assert await streamed(blobs, "a") == data


async def test_put_takes_a_stream(blobs: BlobStore) -> None:
    await blobs.put("a", chunks(b"one", b"", b"two" * MIB, b"three"))

    assert await blobs.get("a") == b"one" + b"two" * MIB + b"three"


async def test_put_of_an_empty_stream_makes_an_empty_blob(blobs: BlobStore) -> None:
    await blobs.put("a", chunks())

    assert await blobs.get("a") == b""


async def test_put_replaces_all_bytes(blobs: BlobStore) -> None:
    await blobs.put("a", b"long old content")
    await blobs.put("a", b"new")

    assert await blobs.get("a") == b"new"


async def test_failed_stream_leaves_the_old_bytes(blobs: BlobStore) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("the source broke")

    await blobs.put("a", b"old")

    with pytest.raises(RuntimeError, match="the source broke"):
        await blobs.put("a", breaking())

    assert await blobs.get("a") == b"old"
    assert await listed(blobs) == {"a": 3}


async def test_readers_see_the_old_or_the_new_bytes_while_they_change(blobs: BlobStore) -> None:
    old, new = b"o" * MIB, b"n" * 2 * MIB
    await blobs.put("a", old)

    replaced, *seen = await asyncio.gather(blobs.put("a", new), *(blobs.get("a") for _ in range(8)))

    assert replaced is None
    assert set(seen) <= {old, new}


# Point 4: missing blobs.


async def test_missing_blob_is_not_found(blobs: BlobStore) -> None:
    await blobs.put("a/b", b"")

    for request in (blobs.get("a"), blobs.get("a/c"), streamed(blobs, "a"), streamed(blobs, "a/b/c")):
        with pytest.raises(BlobNotFoundError):
            await request


# Point 5: appending.


async def test_append_creates_then_adds_in_order(blobs: BlobStore) -> None:
    for n in range(5):
        await blobs.append("log", f"line {n}\n".encode())

    assert await blobs.get("log") == b"line 0\nline 1\nline 2\nline 3\nline 4\n"


async def test_large_append_is_kept_whole_and_in_order(blobs: BlobStore) -> None:
    await blobs.append("log", b"small")
    await blobs.append("log", b"x" * 3 * MIB)
    await blobs.append("log", b"end")

    assert await blobs.get("log") == b"small" + b"x" * 3 * MIB + b"end"


async def test_append_to_a_long_name_is_listed(blobs: BlobStore) -> None:
    name = "logs/" + "🏥" * 255
    await blobs.append(name, b"1")
    await blobs.append(name, b"2")

    assert await blobs.get(name) == b"12"
    assert await listed(blobs, "logs/") == {name: 2}


# Point 6: streaming.


async def test_stream_comes_in_chunks_of_at_most_the_size_asked_for(blobs: BlobStore) -> None:
    data = bytes(range(256)) * 40
    await blobs.put("a", data)

    parts = [part async for part in blobs.stream("a", chunk_bytes=1000)]

    assert max(map(len, parts)) <= 1000
    assert b"".join(parts) == data


async def test_stream_can_be_left_early_and_called_again(blobs: BlobStore) -> None:
    await blobs.put("a", b"x" * 5000)

    stream = blobs.stream("a", chunk_bytes=1000)
    first = await anext(stream)

    assert 0 < len(first) <= 1000
    assert await streamed(blobs, "a", chunk_bytes=1000) == b"x" * 5000


# Point 7: listing and deleting by prefix.


async def test_prefix_is_plain_text_not_a_directory(blobs: BlobStore) -> None:
    for name in ("run/a", "run/b/c", "run2/a", "other", "run"):
        await blobs.put(name, b"1")

    assert sorted(await listed(blobs, "run")) == ["run", "run/a", "run/b/c", "run2/a"]
    assert sorted(await listed(blobs, "run/")) == ["run/a", "run/b/c"]
    assert sorted(await listed(blobs, "run/b/c")) == ["run/b/c"]
    assert await listed(blobs, "run/x") == {}


async def test_listing_tells_sizes(blobs: BlobStore) -> None:
    await blobs.put("a", b"12345")

    assert [info async for info in blobs.list()] == [BlobInfo(name="a", size_bytes=5)]


async def test_delete_prefix_deletes_what_begins_with_it_and_counts(blobs: BlobStore) -> None:
    for name in ("run/a", "run/b/c", "Run/a", "run2/a", "run/" + "x" * 300):
        await blobs.put(name, b"1")

    assert await blobs.delete_prefix("run/") == 3
    assert sorted(await listed(blobs)) == ["Run/a", "run2/a"]


async def test_deleted_blob_can_be_put_again(blobs: BlobStore) -> None:
    await blobs.put("run/a", b"old")
    await blobs.delete_prefix("run/a")

    await blobs.put("run/a", b"new")

    assert await blobs.get("run/a") == b"new"


async def test_deleting_leaves_the_container(blobs: BlobStore) -> None:
    await blobs.put("run/a", b"")

    await blobs.delete_prefix("")

    assert await blobs.exists()


async def test_many_blobs_are_all_listed_and_deleted(blobs: BlobStore) -> None:
    names = [f"d{n % 3}/{n:03}" for n in range(120)]
    for start in range(0, len(names), 20):
        await asyncio.gather(*(blobs.put(name, b"1") for name in names[start : start + 20]))

    assert sorted(await listed(blobs)) == sorted(names)
    assert await blobs.delete_prefix("d") == 120
    assert await listed(blobs) == {}


# The services behind the containers.


@pytest.mark.parametrize("name", ["Upper", "a_b", "ab", "a--b", "-a", "", "..", "x" * 64])
def test_illegal_container_name_is_refused_when_the_handle_is_made(services: Services, name: str) -> None:
    with pytest.raises(UsageError, match="is no container name"):
        services.blobs(name)


def test_same_name_gives_the_same_handle(services: Services, blobs: BlobStore) -> None:
    assert services.blobs(blobs.name) is blobs


async def test_requests_are_counted_by_kind(services: Services, blobs: BlobStore) -> None:
    await blobs.put("a", b"")
    await blobs.get("a")

    assert services.requests["blob.put"] >= 1
    assert services.requests["blob.get"] >= 1
