"""The reaper: told of groups, it kills them when its pipe ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from ai4s.jobq.worker.reaper import NONCE_VARIABLE, PROGRAM, Reaper
from tests.worker.waiting import processes_with, until


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    reaper.start()
    yield reaper
    reaper.close()


def start_group(variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **(variables or {})})


def program_of(reaper: Reaper) -> int:
    (pid,) = (pid for pid in processes_with(reaper.nonce) if str(PROGRAM).encode() in command_line(pid))
    return pid


def command_line(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


async def test_a_group_that_was_forgotten_lives_on(reaper: Reaper) -> None:
    forgotten, watched = start_group(), start_group()
    reaper.watch(forgotten.pid)
    reaper.watch(watched.pid)
    reaper.forget(forgotten.pid)

    reaper.close()

    assert watched.wait(30) == -signal.SIGKILL
    assert forgotten.poll() is None
    forgotten.kill()
    forgotten.wait()


async def test_signals_that_stop_a_worker_do_not_stop_its_reaper(reaper: Reaper) -> None:
    group = start_group()
    reaper.watch(group.pid)
    pid = program_of(reaper)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)

    assert program_of(reaper) == pid
    reaper.close()
    assert group.wait(30) == -signal.SIGKILL


async def test_a_reaper_that_was_killed_is_replaced_and_told_all(reaper: Reaper) -> None:
    first, second = start_group(), start_group()
    reaper.watch(first.pid)
    pid = program_of(reaper)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pid not in processes_with(reaper.nonce))

    reaper.watch(second.pid)
    reaper.close()

    assert first.wait(30) == second.wait(30) == -signal.SIGKILL


async def test_what_carries_the_nonce_is_killed_though_nobody_told_of_it(reaper: Reaper) -> None:
    bystander = start_group()
    untold = start_group({NONCE_VARIABLE: reaper.nonce})
    reaper.watch(2**22)  # a group that does not exist: leaving with groups alive is not leaving in order

    reaper.close()

    assert untold.wait(30) == -signal.SIGKILL
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


async def test_leaving_in_order_ends_the_reaper() -> None:
    reaper = Reaper()
    reaper.start()
    pid = program_of(reaper)

    reaper.close()

    assert pid not in processes_with(reaper.nonce)


def test_without_commands_there_is_no_process() -> None:
    reaper = Reaper()

    reaper.close()

    assert processes_with(reaper.nonce) == []


def test_every_reaper_has_a_nonce_of_its_own() -> None:
    assert Reaper().nonce != Reaper().nonce
