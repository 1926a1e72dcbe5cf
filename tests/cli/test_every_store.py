"""K01, K07: every command on every store. Never a traceback, never logs on stdout, always the right exit code."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ai4s.jobq.errors import AccessDeniedError, StorageUnavailableError
from tests.cli.commands import CALLS, READERS, Call, leaves
from tests.cli.conftest import Answer, Program
from tests.cli.operations import answer_through, in_store
from tests.cli.stage import Stage, write_definition
from tests.support import faults

T = TypeVar("T")

LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR)", re.MULTILINE)

every_call = pytest.mark.parametrize("call", CALLS, ids=str)


def test_every_command_is_called() -> None:
    assert {call.command for call in CALLS} == set(leaves())


@pytest.fixture
def stopped_when_idle(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs until it is stopped is, once it has nothing to do."""
    if call.runs_until:
        answer_through(monkeypatch, _Idle())


@every_call
@pytest.mark.usefixtures("stopped_when_idle")
def test_a_store_that_is_not_there_is_no_error_unless_something_in_it_was_named(program: Program, call: Call) -> None:
    """K07, G07: and only a command that has something to write makes one."""
    write_definition(program.folder, 5)

    for args in call.variants():
        check(program(*args), args, call, code=call.empty)

    assert (program.folder / "store").exists() == call.makes


@every_call
@pytest.mark.usefixtures("stopped_when_idle")
def test_a_store_with_nothing_in_it_is_no_error_unless_something_in_it_was_named(program: Program, call: Call) -> None:
    """K07."""
    write_definition(program.folder, 5)
    in_store(program, lambda store: store.index.table.exists())

    for args in call.variants():
        check(program(*args), args, call, code=call.empty)


@every_call
def test_a_missing_permission_is_one_line_and_an_exit_code(
    program: Program, small: Stage, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    small.set_up(program.folder)
    answer_through(monkeypatch, _Refusal(AccessDeniedError("no role")))

    for args in call.variants():
        answer = program(*args)
        check(answer, args, call, code=call.refused)
        assert answer.code != 6 or answer.talk[-1].startswith("Error: no role")


@every_call
def test_a_store_that_is_away_is_one_line_and_an_exit_code(
    program: Program, small: Stage, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    small.set_up(program.folder)
    answer_through(monkeypatch, _Refusal(StorageUnavailableError("away"), stop=call.waits))

    for args in call.variants():
        answer = program(*args)
        check(answer, args, call, code=0 if call.waits else call.refused)
        assert answer.code != 6 or answer.talk[-1].startswith("Error: away")


@every_call
@pytest.mark.usefixtures("stopped_when_idle")
def test_a_run_of_2000_tasks_is_told_like_any_other(
    program: Program, large: Stage, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """K01."""
    monkeypatch.setattr("tests.cli.conftest.check_printed", lambda args, printed: None)  # dear, and done for five tasks

    for args in call.variants() if call in READERS else call.variants()[-1:]:
        large.set_up(program.folder)
        check(program(*args), args, call, code=call.code)


@every_call
@pytest.mark.usefixtures("stopped_when_idle")
def test_what_is_logged_is_on_stderr(program: Program, small: Stage, call: Call) -> None:
    """K01."""
    for args in call.variants():
        small.set_up(program.folder)
        check(program("-v", "-v", *args), args, call, code=call.code)


def check(answer: Answer, args: list[str], call: Call, *, code: int) -> None:
    """Raise unless a command ended as it should, and kept its results and its talk apart."""
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.out + answer.err
    assert not LOG_LINE.search(answer.out)
    if answer.talk and answer.talk[-1].startswith("Error: "):
        assert answer.out == ""
    elif "--json" in args:
        json.loads(answer.out)
    else:
        assert call.prints or answer.out == ""


class _Idle(faults.Faults):
    """Calls that reach the store; the first that waits for something to do is answered with SIGTERM."""

    async def through(self, call: faults.Call, do: Callable[[], Awaitable[T]]) -> T:
        if call.kind == "queue.arrival" and not self.calls:
            self.calls.append(call)
            os.kill(os.getpid(), signal.SIGTERM)
        return await do()


class _Refusal(faults.Faults):
    """Calls of which each is refused; the first one with a SIGTERM if so wanted."""

    def __init__(self, error: Exception, *, stop: bool = False) -> None:
        super().__init__()
        self._error = error
        self._stop = stop

    async def through(self, call: faults.Call, do: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(call)
        if self._stop and len(self.calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        raise self._error
