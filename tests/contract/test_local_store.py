"""Opening a local store: what is made, what is refused, and what an operator reads then."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ai4s.jobq.adapters.local import open_local, schema
from ai4s.jobq.adapters.local.file_system import network_file_system
from ai4s.jobq.errors import (
    CorruptRecordError,
    InternalError,
    JobqError,
    NewerVersionError,
    SettingsError,
    StorageUnavailableError,
)
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.services import Services
from ai4s.jobq.ports.table import Insert, Table
from tests.contract.local_processes import become_unprivileged, in_fork
from tests.contract.waiting import DEADLINE_S


async def make_store(directory: Path) -> None:
    """A store with one row in it."""
    async with open_local(directory) as services:
        await services.table("Table").transact("p", [Insert("row", {"n": 1})])


async def row_of(directory: Path) -> str:
    async with open_local(directory) as services:
        return str(await services.table("Table").get("p", "row"))


async def refusal(directory: Path) -> JobqError:
    """The error that opening raises; it is one line."""
    with pytest.raises(JobqError) as caught:
        async with open_local(directory):
            pass
    assert "\n" not in str(caught.value)
    return caught.value


def modes_below(directory: Path) -> dict[str, int]:
    """The permissions of every file, by its last name."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*") if path.is_file()}


def answer_of_a_forked_child(table: Table) -> str:
    """What a child of this very process is told when it uses our table. Our event loop runs in this thread, so that the
    child can have none: it takes the first step of the request by hand."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            table.get("p", "row").send(None)
        except BaseException as exc:
            os.write(writing, f"{type(exc).__name__}: {exc}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


def entries(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def write_pragma(directory: Path, pragma: str) -> None:
    with closing(sqlite3.connect(directory / schema.FILE_NAME)) as connection:
        connection.execute(f"PRAGMA {pragma}")


async def test_local_services_keep_the_port(tmp_path: Path) -> None:
    async with open_local(tmp_path / "store") as local:
        services: Services = local

        assert services.requests == {}


async def test_store_outlives_its_process(tmp_path: Path) -> None:
    await make_store(tmp_path / "store")

    assert "'n': 1" in await row_of(tmp_path / "store")


@pytest.mark.parametrize("name", ["with blank", "per%20cent?", "é#🏥", "deep/er/still"])
async def test_any_directory_name_is_fine(tmp_path: Path, name: str) -> None:
    await make_store(tmp_path / name)

    assert (tmp_path / name / schema.FILE_NAME).is_file()
    assert "'n': 1" in await row_of(tmp_path / name)


async def test_tilde_and_relative_paths_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await make_store(Path("~/store"))

    monkeypatch.chdir(tmp_path)

    assert "'n': 1" in await row_of(Path("store"))


async def test_store_is_private_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        async with open_local(tmp_path / "store") as services:
            await services.table("Table").transact("p", [Insert("row", {})])
            await services.blobs("blobs").put("a", b"")
            await services.blobs("blobs").append("log", b"1")
            modes = modes_below(tmp_path / "store")
    finally:
        os.umask(umask)

    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert modes == dict.fromkeys(["jobq.sqlite", "jobq.sqlite-wal", "jobq.sqlite-shm", "a", "log"], 0o600)


@pytest.mark.parametrize("name", ["", "store", "deeper/store"])
async def test_who_only_looks_finds_an_empty_store_and_makes_none(tmp_path: Path, name: str) -> None:
    """G07."""
    async with open_local(tmp_path / name) as services:
        assert await services.table("Table").get("p", "row") is None
        assert not await services.table("Table").exists()
        assert (await services.table("Table").query("p")).entities == []
        assert await services.queue("queue").receive(1, visibility_s=1) == []
        assert await services.queue("queue").peek() == []
        assert not await services.queue("queue").exists()
        assert not await services.blobs("blobs").exists()
        await services.queue("queue").arrival(0)

    assert entries(tmp_path) == []


async def test_who_deletes_what_is_not_there_makes_no_store(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.table("Table").drop()
        await services.queue("queue").clear()
        await services.queue("queue").drop()
        await services.blobs("blobs").delete_prefix("")

    assert entries(tmp_path) == []


async def test_an_empty_file_is_a_store_to_be(tmp_path: Path) -> None:
    (tmp_path / schema.FILE_NAME).touch()

    assert await row_of(tmp_path) == "None"
    assert (tmp_path / schema.FILE_NAME).stat().st_size == 0
    await make_store(tmp_path)
    assert "'n': 1" in await row_of(tmp_path)


async def test_who_looks_sees_what_another_one_wrote_first(tmp_path: Path) -> None:
    async with open_local(tmp_path / "store") as services:
        assert await services.table("Table").get("p", "row") is None

        await make_store(tmp_path / "store")

        assert "'n': 1" in str(await services.table("Table").get("p", "row"))


async def test_who_waits_hears_of_a_message_though_another_one_made_the_store(tmp_path: Path) -> None:
    async with open_local(tmp_path / "store") as waiting, open_local(tmp_path / "store") as sending:
        arrival = asyncio.create_task(waiting.queue("queue").arrival(DEADLINE_S))
        await asyncio.sleep(0)
        await sending.queue("queue").send([OutgoingMessage(body="body", message_id="")])

        async with asyncio.timeout(DEADLINE_S / 2):
            await arrival


async def test_first_writes_at_once_make_one_store(tmp_path: Path) -> None:
    async with open_local(tmp_path / "store") as services:
        table = services.table("Table")
        await asyncio.gather(*(table.transact("p", [Insert(f"row{n}", {"n": n})]) for n in range(20)))

    async with open_local(tmp_path / "store") as services:
        assert len((await services.table("Table").query("p")).entities) == 20


async def test_a_place_where_no_store_can_be_made_is_told_by_the_first_write(tmp_path: Path) -> None:
    async with open_local(tmp_path / "store") as services:
        (tmp_path / "store").write_text("")

        with pytest.raises(SettingsError, match="Cannot make the directory"):
            await services.table("Table").transact("p", [Insert("row", {})])


async def test_newer_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    await make_store(tmp_path)
    write_pragma(tmp_path, "user_version=2")
    before = (tmp_path / schema.FILE_NAME).read_bytes()

    error = await refusal(tmp_path)

    assert isinstance(error, NewerVersionError)
    assert "Upgrade ai4s-jobq" in str(error)
    assert (tmp_path / schema.FILE_NAME).read_bytes() == before


async def test_text_file_in_place_of_the_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / schema.FILE_NAME).write_text("these are my notes\n" * 100)

    error = await refusal(tmp_path)

    assert isinstance(error, CorruptRecordError)
    assert "is no SQLite database" in str(error)
    assert (tmp_path / schema.FILE_NAME).read_text().startswith("these are my notes")


async def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection:
        connection.execute("CREATE TABLE notes (text)")

    assert "another program" in str(await refusal(tmp_path))


async def test_a_file_that_another_process_is_making_is_not_taken_for_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes into being between two looks at it, whichever is the first."""
    exists, access = Path.exists, os.access

    def looked(*, found: bool, path: object) -> bool:
        if Path(str(path)).name == schema.FILE_NAME:
            Path(str(path)).touch(mode=0o600)
        return found

    monkeypatch.setattr(Path, "exists", lambda path: looked(found=exists(path), path=path))
    monkeypatch.setattr(os, "access", lambda path, mode: looked(found=access(path, mode), path=path))

    await make_store(tmp_path)

    assert "'n': 1" in await row_of(tmp_path)


async def test_a_file_whose_tables_another_process_is_making_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator, a worker and a submit are often the first ones of a store, all at once."""
    connect, others = schema.connect, list[str]()

    def interrupted(path: Path, *, writable: bool) -> sqlite3.Connection:
        connection = connect(path, writable=writable)
        connection.set_trace_callback(lambda statement: make_tables(path) if "sqlite_master" in statement else None)
        return connection

    def make_tables(path: Path) -> None:
        """What the other process does just then."""
        monkeypatch.setattr(schema, "connect", connect)
        try:
            schema.open_file(path).connection.close()
            others.append("made them")
        except sqlite3.OperationalError:
            others.append("has to wait")

    monkeypatch.setattr(schema, "connect", interrupted)

    await make_store(tmp_path)

    assert others
    assert "'n': 1" in await row_of(tmp_path)


async def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")

    assert str(tmp_path / "store") in str(await refusal(tmp_path / "store"))
    assert str(tmp_path / "store" / "below") in str(await refusal(tmp_path / "store" / "below"))


async def test_damaged_database_is_told_as_such(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.table("Table").transact("p", [Insert(f"row{n:03}", {"p": "x" * 5000}) for n in range(100)])
    file = tmp_path / schema.FILE_NAME
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) - len(content) // 2))

    async with open_local(tmp_path) as services:
        with pytest.raises(CorruptRecordError, match="damaged"):
            await services.table("Table").query("p")


async def test_network_file_system_is_refused_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "network_file_system", lambda directory: "nfs4")

    error = await refusal(tmp_path / "store")
    async with open_local(tmp_path / "store", allow_network_fs=True) as services:
        await services.table("Table").transact("p", [Insert("row", {})])

    assert isinstance(error, SettingsError)
    assert "nfs4" in str(error)


@pytest.mark.parametrize(
    ("directory", "kind"),
    [("/home/me/store", "nfs4"), ("/home/local/store", None), ("/mnt/my share/store", "cifs"), ("/homes", None)],
)
def test_file_system_is_that_of_the_nearest_mount(tmp_path: Path, directory: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        "server:/home /home nfs4 rw 0 0\n"
        "/dev/sdb1 /home/local xfs rw 0 0\n"
        "//server/share /mnt/my\\040share cifs rw 0 0\n"
    )

    assert network_file_system(Path(directory), mounts=mounts) == kind


def test_unknown_mounts_mean_a_local_file_system(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, mounts=tmp_path / "absent") is None


def read_only(directory: Path) -> None:
    for path in directory.iterdir():
        path.chmod(0o444)
    directory.chmod(0o555)


async def read_then_write(directory: Path) -> str:
    """What an unprivileged process sees of a store, and what it is told when it writes."""
    become_unprivileged()
    async with open_local(directory) as services:
        entity = await services.table("Table").get("p", "row")
        messages = await services.queue("queue").peek()
        try:
            await services.table("Table").transact("p", [Insert("new", {})])
        except StorageUnavailableError as exc:
            return f"{entity and entity.values} {[message.body for message in messages]} {exc}"
    return "written"


def test_read_only_store_is_read_and_writing_is_refused_in_one_line() -> None:
    async def prepare() -> str:
        async with open_local(directory) as services:
            await services.table("Table").transact("p", [Insert("row", {"n": 1})])
            await services.queue("queue").send([OutgoingMessage(body="body", message_id="")])
        return "prepared"

    with TemporaryDirectory() as name:  # pytest's own directories are closed to other users
        directory = Path(name)
        assert in_fork(prepare) == "prepared"
        read_only(directory)

        answer = in_fork(lambda: read_then_write(directory))

        directory.chmod(0o755)
    assert answer.startswith("{'n': 1} ['body'] ")
    assert "read-only" in answer
    assert "\n" not in answer


def test_directory_that_cannot_be_entered_is_told_in_one_line() -> None:
    async def look() -> str:
        become_unprivileged()
        return str(await refusal(Path(name) / "closed" / "store"))

    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "closed").mkdir(mode=0o000)

        answer = in_fork(look)

        (Path(name) / "closed").chmod(0o700)
    assert "closed/store" in answer
    assert "ermission denied" in answer


def test_full_disk_is_told_and_the_store_stays_sound(tmp_path: Path) -> None:
    async def fill() -> str:
        async with open_local(tmp_path) as services:
            await services.table("Table").transact("p", [Insert("row", {"n": 1})])
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
            try:
                for n in range(100):
                    await services.table("Table").transact("p", [Insert(f"row{n}", {"p": "x" * 30_000})])
            except StorageUnavailableError as exc:
                return f"{len((await services.table('Table').query('p')).entities)} rows, then: {exc}"
        return "never full"

    answer = in_fork(fill)
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection:
        check = connection.execute("PRAGMA integrity_check").fetchone()[0]

    assert "the disk is full" in answer
    assert "\n" not in answer
    assert check == "ok"


def test_blob_that_does_not_fit_is_told_and_leaves_the_old_one(tmp_path: Path) -> None:
    async def fill() -> str:
        async with open_local(tmp_path) as services:
            blobs = services.blobs("blobs")
            await blobs.put("a", b"old")
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            try:
                await blobs.put("a", b"x" * 200_000)
            except StorageUnavailableError as exc:
                return f"{await blobs.get('a')!r} {exc}"
        return "never full"

    answer = in_fork(fill)

    assert answer.startswith("b'old' ")
    assert list((tmp_path / "blobs" / ".tmp").iterdir()) == []


async def test_use_in_a_forked_child_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        table = services.table("Table")
        await table.transact("p", [Insert("row", {"n": 1})])

        answer = answer_of_a_forked_child(table)

        assert answer.startswith(InternalError.__name__)
        assert "fork" in answer
        assert await table.get("p", "row") is not None


async def test_table_names_differing_in_case_are_one_table_as_on_azure(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.table("Table").transact("p", [Insert("row", {})])

        assert await services.table("TABLE").get("p", "row") is not None
