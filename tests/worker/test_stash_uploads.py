"""A13, C9, FAILURES F05 and F08: what a task leaves behind is stored when it has succeeded, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ai4s.jobq.adapters.azure.credentials import DEVELOPMENT_ACCOUNT
from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.errors import AccessDeniedError, StorageUnavailableError
from ai4s.jobq.ports.blob import BlobInfo, BlobStore
from ai4s.jobq.ports.services import Services
from ai4s.jobq.stash import BlobStash, BlobStashDirectory, BlobStasher, loads
from ai4s.jobq.store.layout import DEFAULT_CONTAINER
from ai4s.jobq.store.stashes import KEY, StashError
from ai4s.jobq.worker import local_files
from ai4s.jobq.worker.uploads import with_stored_files
from tests.support.azurite import shared_azurite
from tests.support.faults import Call, Faults, FaultyServices


@pytest.fixture(params=["local", pytest.param("azurite", marks=pytest.mark.azurite)])
async def services(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    """The services of a backend; this process, as the reader of what is stored, is led to them by its environment."""
    if request.param == "local":
        monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
        monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/Proj")
        async with open_local(tmp_path / "store") as local:
            yield local
        return
    from tests.contract.azurite_services import azurite_services

    async with azurite_services() as azurite:
        monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", f"{DEVELOPMENT_ACCOUNT}/Proj")
        monkeypatch.setenv("JOBQ_AZURITE_BLOB_PORT", str(shared_azurite().ports.blob))
        yield azurite


@pytest.fixture
def blobs(services: Services) -> BlobStore:
    return services.blobs(DEFAULT_CONTAINER)


@pytest.fixture
async def local_blobs(tmp_path: Path) -> AsyncIterator[BlobStore]:
    """Where the backend does not matter."""
    async with open_local(tmp_path / "store") as services:
        yield services.blobs(DEFAULT_CONTAINER)


async def stored(value: Any, blobs: BlobStore, *, execution: str | None = None) -> Any:
    """What a reader gets of an output with this value."""
    unique = execution or os.urandom(6).hex()
    text = json.dumps(value)
    return loads(await with_stored_files(text, blobs=blobs, name=lambda number: f"Proj/{unique}/files/{number}"))


async def names_in(blobs: BlobStore) -> list[str]:
    found: list[BlobInfo] = [blob async for blob in blobs.list()]
    return [blob.name for blob in found]


# -- files


async def test_a_file_comes_back_as_it_was(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(os.urandom(3_000_000))

    value = await stored({"deep": [BlobStasher.from_file(tmp_path / "model.bin")], "n": 1}, blobs)

    stash: BlobStash = value["deep"][0]
    copy = stash.download_to(tmp_path / "copy")
    assert (stash.filename, stash.size, value["n"]) == ("model.bin", 3_000_000, 1)
    assert copy.read_bytes() == (tmp_path / "model.bin").read_bytes()


async def test_an_empty_file_is_stored(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    stash = await stored(BlobStasher.from_file(tmp_path / "empty"), blobs)

    assert (stash.size, stash.read_bytes()) == (0, b"")


async def test_a_file_larger_than_a_block_comes_back_as_it_was(blobs: BlobStore, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "large").write_bytes(data)

    stash = await stored(BlobStasher.from_file(tmp_path / "large"), blobs)

    assert stash.read_bytes() == data


async def test_a_large_file_may_be_the_first_thing_in_its_container(services: Services, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (9 << 20))
    container = services.blobs(f"new-{os.urandom(4).hex()}")

    stash = await stored(BlobStasher.from_file(tmp_path / "large"), container)

    assert await container.get(stash.blob_name) == b"x" * (9 << 20)


async def test_two_files_of_one_name_are_kept_apart(local_blobs: BlobStore, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.bin").write_text(folder)

    first, second = json.loads(
        await with_stored_files(
            json.dumps([BlobStasher.from_file(tmp_path / folder / "m.bin") for folder in ("a", "b")]),
            blobs=local_blobs,
            name=lambda number: f"x/{number}",
        )
    )

    assert first[KEY]["filename"] == second[KEY]["filename"] == "m.bin"
    assert [await local_blobs.get(marker[KEY]["blob"]) for marker in (first, second)] == [b"a", b"b"]


async def test_a_symbolic_link_that_the_task_names_is_followed(local_blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")

    stash = await stored(BlobStasher.from_file(tmp_path / "link"), local_blobs)

    assert (stash.filename, stash.size) == ("link", 1)


@pytest.mark.parametrize("text", ['{"a": 1.50}', '"jobq_stash"', '"\\u005f"', '{"x": "__jobq_stash__"}', "1e400"])
async def test_an_output_without_files_is_not_touched(local_blobs: BlobStore, text: str) -> None:
    assert await with_stored_files(text, blobs=local_blobs, name=str) == text


async def test_what_was_stored_by_another_task_is_passed_on_as_it_is(local_blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    stash = await stored(BlobStasher.from_file(tmp_path / "m"), local_blobs)
    before = await names_in(local_blobs)

    assert await stored({"again": stash}, local_blobs) == {"again": stash}
    assert await names_in(local_blobs) == before


async def test_whole_numbers_and_text_beside_a_file_stay_exact(local_blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    beside = {"big": 2**70, "half": 0.1, "text": "é🚀"}

    value = await stored({"file": BlobStasher.from_file(tmp_path / "m"), **beside}, local_blobs)

    assert {name: value[name] for name in beside} == beside


# -- what is refused


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StashError, match="no such file: write it before the task ends"):
        local_files.find_file(str(tmp_path / "none"))


@pytest.mark.parametrize("what", ["directory", "fifo"])
def test_what_is_no_ordinary_file_is_refused(tmp_path: Path, what: str) -> None:
    os.mkdir(tmp_path / "it") if what == "directory" else os.mkfifo(tmp_path / "it")

    with pytest.raises(StashError) as caught:
        local_files.find_file(str(tmp_path / "it"))

    assert ("from_directory" if what == "directory" else "ordinary file") in str(caught.value)


def test_a_file_where_a_directory_is_announced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it").touch()

    with pytest.raises(StashError, match="Not a directory"):
        local_files.find_directory(str(tmp_path / "it"))


async def test_a_missing_file_stores_nothing_of_the_others(local_blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "m").touch()

    with pytest.raises(StashError, match="no such file"):
        await stored([BlobStasher.from_file(tmp_path / "m"), BlobStasher.from_file(tmp_path / "none")], local_blobs)

    assert await names_in(local_blobs) == []


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"y")


def shrink(path: Path) -> None:
    os.truncate(path, 10)


def rewrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"y")


@pytest.mark.parametrize("change", [grow, shrink, rewrite])
async def test_a_file_that_changes_while_it_is_stored_is_refused(
    local_blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x" * 3_000_000)
    real_open = local_files.open_unchanged

    def open_and_change(file: local_files.LocalFile) -> BinaryIO:
        stream = real_open(file)
        change(path)
        return stream

    monkeypatch.setattr("ai4s.jobq.worker.uploads.open_unchanged", open_and_change)
    with pytest.raises(StashError, match="changed while it was being stored"):
        await stored(BlobStasher.from_file(path), local_blobs)

    assert await names_in(local_blobs) == []


@pytest.mark.parametrize(
    "error", [StorageUnavailableError("nobody answers at x"), AccessDeniedError("the container is not ours")]
)
async def test_no_blob_storage_is_told_with_the_variable_to_set(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "m").touch()
    faults = Faults()
    faults.refuse("blob.put", error=error)

    async with open_local(tmp_path / "store") as services:
        with pytest.raises(StashError, match="JOBQ_WORKFLOW_BLOBS=account/container") as caught:
            await stored(
                BlobStasher.from_file(tmp_path / "m"), FaultyServices(services, faults).blobs(DEFAULT_CONTAINER)
            )

    assert str(error) in str(caught.value)


@pytest.mark.parametrize("marker", [{"v": 2, "state": "pending"}, {"v": 1, "state": "other"}, {"v": 1}, 7])
async def test_a_marker_that_is_not_understood_is_refused(local_blobs: BlobStore, marker: Any) -> None:
    with pytest.raises(StashError):
        await with_stored_files(json.dumps({"a": {KEY: marker}}), blobs=local_blobs, name=str)


async def test_an_escaped_marker_is_a_marker(local_blobs: BlobStore, tmp_path: Path) -> None:
    text = json.dumps(BlobStasher.from_file(tmp_path / "none")).replace("_", "\\u005f")

    with pytest.raises(StashError, match="no such file"):
        await with_stored_files(text, blobs=local_blobs, name=str)


# -- directories


def make_tree(root: Path) -> dict[str, bytes]:
    files = {"a.txt": b"a", "sub/b.bin": os.urandom(100_000), "sub/deep/c": b""}
    (root / "empty").mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    (root / "a.txt").chmod(0o751)
    return files


async def test_a_directory_comes_back_as_it_was(blobs: BlobStore, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "data")

    stash: BlobStashDirectory = await stored(BlobStasher.from_directory(tmp_path / "data"), blobs)

    folder = stash.download_to(tmp_path / "copy")
    assert stash.filename == "data"
    assert {path: (folder / path).read_bytes() for path in files} == files
    assert (folder / "empty").is_dir()
    assert (folder / "a.txt").stat().st_mode & 0o777 == 0o751


async def test_a_link_to_a_file_inside_is_stored_as_that_file(local_blobs: BlobStore, tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    (tmp_path / "data" / "sub" / "link").symlink_to("../a.txt")

    found = local_files.find_directory(str(tmp_path / "data"))

    assert found.files["sub/link"].path == str(tmp_path / "data" / "a.txt")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/etc/hostname", "leads out of it"),
        ("../outside", "leads out of it"),
        ("../data-too/x", "leads out of it"),
        ("nowhere", "leads nowhere"),
        ("loop", "leads nowhere"),
        ("sub", "to a directory"),
        (".", "leads out of it"),
    ],
)
def test_any_other_link_is_refused(tmp_path: Path, target: str, words: str) -> None:
    make_tree(tmp_path / "data")
    (tmp_path / "outside").touch()
    (tmp_path / "data-too").mkdir()
    (tmp_path / "data-too" / "x").touch()
    (tmp_path / "data" / "loop").symlink_to(target)

    with pytest.raises(StashError) as caught:
        local_files.find_directory(str(tmp_path / "data"))

    assert words in str(caught.value)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).touch()

    with pytest.raises(StashError, match="not UTF-8"):
        local_files.find_directory(str(tmp_path))


def test_more_files_than_are_kept_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path / "data")
    monkeypatch.setattr(local_files, "MAX_FILES", 5)

    with pytest.raises(StashError, match="more than 5 files: output an archive"):
        local_files.find_directory(str(tmp_path / "data"))


async def test_a_file_that_appears_while_its_directory_is_stored_is_an_error(
    local_blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path / "data")
    real_open = local_files.open_unchanged

    def open_late(file: local_files.LocalFile) -> BinaryIO:
        (tmp_path / "data" / "late").touch()
        return real_open(file)

    monkeypatch.setattr("ai4s.jobq.worker.uploads.open_unchanged", open_late)

    with pytest.raises(StashError, match="changed while it was being stored"):
        await stored(BlobStasher.from_directory(tmp_path / "data"), local_blobs)


# -- cost


async def test_a_large_file_is_never_held_in_memory(local_blobs: BlobStore, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        await stored(BlobStasher.from_file(tmp_path / "large"), local_blobs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 16 << 20


async def test_a_few_files_are_stored_at_a_time(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"f{number}").touch()
    under_way, most = 0, 0

    async def look(call: Call) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    faults = Faults()
    faults.hook("blob.put", hook=look, times=20)
    async with open_local(tmp_path / "store") as services:
        files = [BlobStasher.from_file(tmp_path / f"f{number}") for number in range(20)]
        await stored(files, FaultyServices(services, faults).blobs(DEFAULT_CONTAINER))

    assert 1 < most <= 4
