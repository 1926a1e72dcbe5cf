"""A13, C9: files and directories in outputs: what is written for them, and what is read back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.errors import BlobNotFoundError, CorruptRecordError
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.stash import BlobStash, BlobStashDirectory, BlobStasher, loads
from ai4s.jobq.store.layout import DEFAULT_CONTAINER
from ai4s.jobq.store.stashes import (
    KEY,
    Manifest,
    ManifestFile,
    StashError,
    StoredFile,
    manifest_bytes,
    read_manifest,
    read_marker,
)

MD5 = "0" * 32
READY = {
    "v": 1,
    "state": "ready",
    "kind": "file",
    "blob": "P/w/r/t0/1-a/files/1",
    "md5": MD5,
    "size": 3,
    "filename": "m",
}
PENDING = {"v": 1, "state": "pending", "local_path": "/tmp/m", "filename": "m"}


@pytest.fixture
async def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BlobStore]:
    """The container that this process would read from."""
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/Proj")
    async with open_local(tmp_path / "store") as services:
        yield services.blobs(DEFAULT_CONTAINER)


async def stored(blobs: BlobStore, data: bytes, name: str = "P/w/f1") -> StoredFile:
    await blobs.put(name, data)
    return StoredFile(blob=name, size_bytes=len(data), md5=hashlib.md5(data, usedforsecurity=False).hexdigest())


def stash_of(file: StoredFile, filename: str = "model.bin") -> BlobStash:
    return BlobStash(file.blob, file.md5, file.size_bytes, filename=filename)


async def directory_of(
    blobs: BlobStore, files: dict[str, bytes], directories: dict[str, int], *, mode: int = 0o640
) -> BlobStashDirectory:
    """A stored directory of these files."""
    entries = [
        ManifestFile(path=path, file=await stored(blobs, data, f"P/w/{number}"), mode=mode)
        for number, (path, data) in enumerate(files.items())
    ]
    manifest = await stored(blobs, manifest_bytes(Manifest(files=tuple(entries), directories=directories)), "P/w/list")
    return BlobStashDirectory(manifest.blob, manifest.md5, manifest.size_bytes, filename="data")


def content_of(file_url: str) -> bytes:
    return Path(unquote(file_url.removeprefix("file://"))).read_bytes()


# -- what is written


def test_a_file_is_a_marker_that_any_json_encoder_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    written = json.loads(json.dumps({"model": BlobStasher.from_file("out/model.bin")}))

    path = str(tmp_path / "out" / "model.bin")
    fields = {"v": 1, "state": "pending", "kind": "file", "local_path": path, "filename": "model.bin"}
    assert written == {"model": {KEY: fields}}


def test_a_path_is_made_absolute_when_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stasher = BlobStasher.from_directory(Path("data"))
    monkeypatch.chdir("/")

    assert stasher[KEY]["local_path"] == str(tmp_path / "data")
    assert stasher[KEY]["kind"] == "directory"


def test_what_has_no_name_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="has no name"):
        BlobStasher.from_directory("/")


# -- what is read


def test_stashes_are_rebuilt_anywhere_in_an_output() -> None:
    text = json.dumps({"a": [{"b": {KEY: READY}}], "c": {KEY: READY | {"kind": "directory"}}, "d": 1})

    value = loads(text)

    assert isinstance(value["a"][0]["b"], BlobStash)
    assert isinstance(value["c"], BlobStashDirectory)
    assert value["d"] == 1
    assert json.loads(json.dumps(value)) == json.loads(text)


def test_a_stash_says_what_it_is() -> None:
    stash = loads(json.dumps({KEY: READY}))

    assert (stash.filename, stash.size, stash.md5sum, stash.blob_name) == ("m", 3, MD5, READY["blob"])


def test_a_marker_as_status_prints_it_is_a_stash_again() -> None:
    assert BlobStash.from_json({KEY: READY}).filename == "m"

    with pytest.raises(StashError, match="no directory that was stored"):
        BlobStashDirectory.from_json({KEY: READY})
    with pytest.raises(StashError, match="no file that was stored"):
        BlobStash.from_json({"path": "/data"})


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ({KEY: PENDING}, "never stored"),
        ({KEY: READY | {"v": 2}}, "version 2"),
        ({KEY: READY | {"state": "lost"}}, "state 'lost'"),
        ({KEY: READY | {"kind": "socket"}}, "kind 'socket'"),
        ({KEY: READY, "more": 1}, "only key of its mapping, and there is 'more'"),
        ({KEY: READY | {"filename": "../m"}}, "filename '../m'"),
        ({KEY: READY | {"md5": "abc"}}, "md5 or size"),
        ({KEY: READY | {"size": -1}}, "md5 or size"),
        ({KEY: {name: value for name, value in READY.items() if name != "blob"}}, "no blob"),
        ({KEY: None}, "holds no file"),
    ],
)
def test_a_marker_that_is_not_understood_is_refused_with_the_reason(marker: Any, words: str) -> None:
    with pytest.raises(StashError) as caught:
        loads(json.dumps({"deep": [marker]}))

    assert words in str(caught.value)


@pytest.mark.parametrize("path", ["model.bin", "", "/tmp/\0"])
def test_a_pending_marker_needs_an_absolute_path(path: str) -> None:
    with pytest.raises(StashError, match="local_path"):
        read_marker({KEY: PENDING | {"local_path": path}})


# -- downloads


async def test_a_download_makes_missing_folders_and_leaves_nothing_else(blobs: BlobStore, tmp_path: Path) -> None:
    stash = stash_of(await stored(blobs, b"weights"))

    path = stash.download_to(tmp_path / "new" / "folder" / "w.bin")

    assert path.read_bytes() == b"weights"
    assert os.listdir(path.parent) == ["w.bin"]


async def test_a_download_into_a_directory_keeps_its_name(blobs: BlobStore, tmp_path: Path) -> None:
    stash = stash_of(await stored(blobs, b"weights"))

    assert stash.download_to(tmp_path) == tmp_path / "model.bin"
    assert stash.download_to(f"{tmp_path}/new/") == tmp_path / "new" / "model.bin"


async def test_a_download_replaces_what_was_there(blobs: BlobStore, tmp_path: Path) -> None:
    target = tmp_path / "w.bin"
    target.write_bytes(b"older and longer")
    before = target.open("rb")

    stash_of(await stored(blobs, b"weights")).download_to(target)

    with before:
        assert before.read() == b"older and longer"  # whoever has it open reads on what it was
    assert target.read_bytes() == b"weights"


@pytest.mark.parametrize("data", [b"Weights", b"weight", b"weights and more"])
async def test_other_bytes_than_were_stored_are_refused_and_leave_what_was_there(
    blobs: BlobStore, tmp_path: Path, data: bytes
) -> None:
    file = await stored(blobs, b"weights")
    await blobs.put(file.blob, data)
    target = tmp_path / "folder" / "w.bin"
    target.parent.mkdir()
    target.write_bytes(b"before")

    with pytest.raises(CorruptRecordError, match="not the file that was stored"):
        stash_of(file).download_to(target)

    assert target.read_bytes() == b"before"
    assert os.listdir(target.parent) == ["w.bin"]


async def test_a_blob_that_is_gone_leaves_no_file(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobNotFoundError, match="JOBQ_WORKFLOW_BLOBS"):
        BlobStash("P/w/gone", MD5, 3).download_to(tmp_path / "folder" / "w.bin")

    assert os.listdir(tmp_path / "folder") == []


async def test_bytes_and_open_files_hold_what_was_stored(blobs: BlobStore) -> None:
    stash = stash_of(await stored(blobs, "é\nzwei\n".encode()))

    assert stash.read_bytes() == "é\nzwei\n".encode()
    with stash.open() as binary, stash.open("r") as text:
        assert (binary.read(), list(text)) == ("é\nzwei\n".encode(), ["é\n", "zwei\n"])


async def test_an_empty_file_is_a_file(blobs: BlobStore, tmp_path: Path) -> None:
    stash = stash_of(await stored(blobs, b""))

    assert (stash.size, stash.read_bytes(), stash.download_to(tmp_path / "e").read_bytes()) == (0, b"", b"")


@pytest.mark.parametrize("mode", ["w", "wb", "a", "x", "r+", "rb+"])
def test_a_stash_cannot_be_written_to(mode: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        BlobStash("P/w/f", MD5, 3).open(mode)


async def test_the_address_of_a_local_blob_is_its_file(blobs: BlobStore) -> None:
    stash = stash_of(await stored(blobs, b"weights"))

    assert content_of(stash.url) == b"weights"


def test_the_address_of_an_azure_blob_names_account_container_and_blob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_BLOBS", "other/outputs")

    stash = BlobStash("P/w/ü", MD5, 3, store="account/P")

    assert stash.url == "https://other.blob.core.windows.net/outputs/P/w/%C3%BC"


# -- directories


async def test_a_directory_arrives_with_its_files_folders_and_modes(blobs: BlobStore, tmp_path: Path) -> None:
    files = {"a.txt": b"a", "sub/b.txt": b"b", "sub/deep/c": b""}
    stash = await directory_of(blobs, files, {"sub": 0o750, "sub/deep": 0o550, "empty": 0o700})

    folder = stash.download_to(tmp_path / "new" / "data")

    assert {path: (folder / path).read_bytes() for path in files} == files
    assert (folder / "empty").is_dir()
    assert oct((folder / "a.txt").stat().st_mode & 0o777) == oct(0o640)
    assert oct((folder / "sub" / "deep").stat().st_mode & 0o777) == oct(0o550)
    assert os.listdir(folder.parent) == ["data"]


async def test_a_second_download_replaces_files_and_leaves_others_alone(blobs: BlobStore, tmp_path: Path) -> None:
    stash = await directory_of(blobs, {"sub/a": b"new", "b": b"b"}, {"sub": 0o555})
    stash.download_to(tmp_path / "data")
    (tmp_path / "data" / "mine").write_bytes(b"mine")
    (tmp_path / "data" / "b").write_bytes(b"changed")

    stash.download_to(tmp_path / "data")

    found = {path: (tmp_path / "data" / path).read_bytes() for path in ("sub/a", "b", "mine")}
    assert found == {"sub/a": b"new", "b": b"b", "mine": b"mine"}


async def test_one_wrong_file_keeps_the_whole_directory_away(blobs: BlobStore, tmp_path: Path) -> None:
    stash = await directory_of(blobs, {"a": b"a", "b": b"b"}, {})
    await blobs.put("P/w/1", b"x")

    with pytest.raises(CorruptRecordError):
        stash.download_to(tmp_path / "folder" / "data")

    assert os.listdir(tmp_path / "folder") == []


async def test_nothing_is_written_through_a_symbolic_link_in_the_folder(blobs: BlobStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sub").symlink_to(elsewhere)
    stash = await directory_of(blobs, {"sub/a": b"a"}, {"sub": 0o755})

    with pytest.raises(StashError, match="symbolic link"):
        stash.download_to(tmp_path / "data")

    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "", ".", "a//b", "a\0b"])
def test_no_path_of_a_manifest_leaves_its_directory(path: str) -> None:
    entry = ManifestFile(path=path, file=StoredFile(blob="b", size_bytes=1, md5=MD5), mode=0o600)

    with pytest.raises(StashError):
        read_manifest(manifest_bytes(Manifest(files=(entry,), directories={"a": 0o700})))


@pytest.mark.parametrize(
    ("files", "directories"), [(["a", "a"], []), (["a"], ["a"]), (["a/b"], []), (["a", "a/b"], []), ([], ["a/b"])]
)
def test_a_manifest_that_contradicts_itself_is_refused(files: list[str], directories: list[str]) -> None:
    file = StoredFile(blob="b", size_bytes=1, md5=MD5)
    entries = tuple(ManifestFile(path=path, file=file, mode=0o600) for path in files)

    with pytest.raises(StashError):
        read_manifest(manifest_bytes(Manifest(files=entries, directories=dict.fromkeys(directories, 0o700))))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"v": 1}', b'{"v": 9, "files": [], "directories": []}', b"\xff"])
def test_a_damaged_manifest_is_a_stash_error(data: bytes) -> None:
    with pytest.raises(StashError):
        read_manifest(data)
