"""Blob names as paths, and temporary files of blobs that were never finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.adapters.local import open_local
from ai4s.jobq.adapters.local.blob_names import LONG, blob_path, segment_of
from ai4s.jobq.errors import StorageUnavailableError, UsageError
from ai4s.jobq.ports.limits import check_blob_name
from ai4s.jobq.processes import this_process


def is_legal(name: str) -> bool:
    try:
        check_blob_name(name)
    except UsageError:
        return False
    return True


names = st.text(st.sampled_from("aAbB1.~=@-_/ $éßİıſ🏥") | st.characters(codec="utf-8"), max_size=300).filter(is_legal)


@given(names)
def test_path_stays_below_the_container_and_fits_a_file_system(name: str) -> None:
    path = blob_path(name)

    assert not path.is_absolute()
    assert not {"", ".", ".."} & set(path.parts)
    assert max(len(os.fsencode(part)) for part in path.parts) <= 255
    assert len(os.fsencode(path)) <= 1000


@given(names)
def test_name_can_be_read_from_its_path(name: str) -> None:
    path = blob_path(name)

    if path.parts[0] != LONG:
        assert "/".join(map(segment_of, path.parts)) == name


@given(names, names)
def test_different_names_have_paths_that_differ_in_more_than_case(one: str, other: str) -> None:
    same_path = str(blob_path(one)).casefold() == str(blob_path(other)).casefold()

    assert same_path == (one == other)


@given(names, names)
def test_no_blob_is_the_directory_of_another(one: str, other: str) -> None:
    assert blob_path(one) not in blob_path(other).parents


def test_plain_names_stay_readable() -> None:
    assert blob_path("logs/5f3a/t000001.log") == Path("logs@/5f3a@/t000001.log")


async def test_temporary_files_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    temporaries = tmp_path / "blobs" / ".tmp"
    temporaries.mkdir(parents=True)
    namespace, pid, start_time = this_process().split(".")
    dead = temporaries / f"{namespace}.{pid}.{int(start_time) - 1}.0123456789abcdef"
    living = temporaries / f"{this_process()}.0123456789abcdef"
    foreign = temporaries / f"{int(namespace) + 1}.{pid}.{start_time}.0123456789abcdef"
    for path in (dead, living, foreign):
        path.write_bytes(b"half")
    os.utime(foreign, (0, 0))

    async with open_local(tmp_path) as services:
        await services.blobs("blobs").put("a", b"")

    assert list(temporaries.iterdir()) == [living]


async def test_put_leaves_no_temporary_file(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.blobs("blobs").put("a", b"1")

    assert list((tmp_path / "blobs" / ".tmp").iterdir()) == []


async def test_deleting_leaves_no_empty_directories(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        blobs = services.blobs("blobs")
        await blobs.put("a/b/c", b"1")
        await blobs.put("a/" + "x" * 300, b"1")
        await blobs.put("kept", b"1")

        await blobs.delete_prefix("a/")

    found = {str(path.relative_to(tmp_path / "blobs" / "blobs")) for path in (tmp_path / "blobs" / "blobs").rglob("*")}
    assert found <= {"kept", LONG}


async def test_unusable_blob_directory_is_told_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")

    async with open_local(tmp_path) as services:
        with pytest.raises(StorageUnavailableError, match=str(tmp_path)):
            await services.blobs("blobs").append("a", b"1")
