"""B14: signals from the command line."""

from __future__ import annotations

import pytest

from tests.cli.conftest import FAILING, Program, flow, task

APPROVAL = flow({"name": "ok", "wait_for": {"signal": "go", "timeout_s": 600}}, task("last", depends_on=["ok"]))


def test_a_signal_is_sent(program: Program) -> None:
    program.submit(APPROVAL, "--id", "w")

    answer = program.workflow("signal", "w", "go", "--data", '{"by": "me"}')

    assert answer.code == 0
    assert answer.out == "Sent signal 'go' to workflow w in local/default.\n"
    assert answer.talk == []


def test_a_signal_that_is_of_no_use_is_noted(program: Program) -> None:
    program.submit(APPROVAL, "--id", "w")
    program.workflow("signal", "w", "go")

    assert program.workflow("signal", "w", "goo").talk == [
        "Note: no task waits for a signal of this name (did you mean 'go'?)."
    ]
    assert program.workflow("signal", "w", "go", "--json").json == {
        "workflow_id": "w",
        "name": "go",
        "note": "a signal of this name was sent before, and that one counts",
        "target": "local/default",
    }


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["g/o"], "the name of a signal has 1 to 100"),
        (["go", "--data", "yes"], "it is no JSON"),
        (["go", "--data", "NaN"], "it is no JSON"),
        (["go", "--data", "[" * 100_000], "it is no JSON"),
        (["go", "--data", f'"{"x" * 40_000}"'], "at most 32,768 bytes"),
    ],
)
def test_a_signal_that_cannot_be_exits_with_2(program: Program, args: list[str], expected: str) -> None:
    program.submit(APPROVAL, "--id", "w")

    answer = program.workflow("signal", "w", *args)

    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err


def test_a_signal_to_an_ended_workflow_exits_with_1(program: Program) -> None:
    workflow_id = program.workflow("run", program.write(FAILING), "--json").json["workflow_id"]

    answer = program.workflow("signal", workflow_id, "go")

    assert answer.code == 1
    assert "has ended (failed): no task of it waits for a signal any more." in answer.err


def test_a_signal_to_nobody_exits_with_5(program: Program) -> None:
    program.submit(APPROVAL, "--id", "nightly-1")

    answer = program.workflow("signal", "nightly-2", "go")

    assert answer.code == 5
    assert "nightly-1" in answer.err


def test_a_run_of_this_process_hears_signals_and_says_what_it_waited_for(program: Program) -> None:
    """A signal that nobody sends: the task is skipped when its time is over."""
    waits = {"signal": "go", "timeout_s": 1, "on_timeout": "skip"}

    answer = program.workflow("run", program.write(flow({"name": "ok", "wait_for": waits}, task("b"))), "--json")

    assert answer.code == 0
    assert answer.json["tasks"]["ok"]["status"] == "skipped"
