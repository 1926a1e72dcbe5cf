"""Errors and exit codes: one place, one line each, never a traceback unless somebody debugs."""

from __future__ import annotations

import click
import pytest

from ai4s.jobq.cli.bridge import run_program
from ai4s.jobq.errors import (
    AccessDeniedError,
    CorruptRecordError,
    JobqError,
    SettingsError,
    StorageUnavailableError,
    WaitTimeoutError,
    WorkflowExistsError,
    WorkflowNotFoundError,
)


def failing_with(error: BaseException) -> click.Command:
    @click.command()
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("no target"), 2),
        (WorkflowExistsError("x", target="a/b"), 4),
        (WorkflowNotFoundError("x", target="a/b"), 5),
        (StorageUnavailableError("away"), 6),
        (AccessDeniedError("no"), 6),
        (WaitTimeoutError("x", state="running"), 124),
        (CorruptRecordError("cut"), 70),
        (JobqError("other"), 1),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: JobqError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(failing_with(error), [], name="x") == code
    assert capsys.readouterr() == ("", f"Error: {error}\n")


def test_an_unexpected_error_is_one_line_and_exit_70(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(failing_with(KeyError("a\nb")), [], name="x") == 70

    err = capsys.readouterr().err
    assert err.startswith("Error: internal error, please report it: KeyError: ")
    assert err.count("\n") == 1


def test_an_error_of_a_task_group_is_told_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    error = ExceptionGroup("tasks", [ExceptionGroup("inner", [AccessDeniedError("no")])])

    assert run_program(failing_with(error), [], name="x") == 6
    assert capsys.readouterr().err == "Error: no\n"


def test_debugging_shows_where(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQ_DEBUG", "1")

    run_program(failing_with(KeyError("a")), [], name="x")

    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_exits_with_130_without_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(failing_with(KeyboardInterrupt()), [], name="x") == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_usage_error_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(failing_with(click.UsageError("wrong")), [], name="x") == 2
    assert "wrong" in capsys.readouterr().err
