"""A18, K10: what ``doctor`` prints, and how it exits."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FAILING, Program, flow, task
from tests.cli.operations import in_store


def test_the_text_has_the_promised_form(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w1")

    answer = program.workflow("doctor", "--stale-pending-sec", "0")

    lines = answer.out.splitlines()
    assert lines[:5] == [
        f"✔ Workflow config: account=local, prefix=default, directory={program.folder / 'store'}, JOBQ_WORKFLOW_PREFIX=local/default",
        "✔ Workflow store: reachable (prefix=default, 1 workflow)",
        "✔ Completion queue: reachable: default-workflow-completions on local",
        "⚠ Pending workflows: 1 stuck in 'pending' >0s: w1",
        "    → A coordinator sees them within seconds. Start one: ai4s-jobq workflow local/default coordinator",
    ]
    assert "✘ Coordinator: none running, and 1 unfinished workflow waits for one" in lines
    assert lines[-2:] == ["", "Doctor: 9 passed, 1 warning(s), 1 error(s)."]
    assert answer.code == 1


def test_warnings_alone_are_no_failure(program: Program) -> None:
    program.workflow("run", program.write(FAILING))

    assert program.workflow("doctor").code == 0


def test_the_json_counts_its_checks(program: Program) -> None:
    program.submit(flow(task("a")))

    answer = program.workflow("doctor", "--json")

    assert answer.code == 1
    statuses = [check["status"] for check in answer.json["checks"]]
    assert answer.json["summary"] == {word: statuses.count(word) for word in ("pass", "warn", "fail")}


def test_a_missing_configuration_is_a_failed_check(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    answer = program.workflow("doctor", "--json")

    assert answer.code == 1
    assert [check["status"] for check in answer.json["checks"]] == ["fail"]
    assert "JOBQ_WORKFLOW_PREFIX" in answer.json["checks"][0]["hint"]


def test_a_secret_in_the_configuration_is_not_repeated(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "AccountName=x;AccountKey=s3cr3t==;Foo")

    answer = program.workflow("doctor")

    assert answer.code == 1
    assert "s3cr3t" not in answer.out + answer.err


@pytest.mark.parametrize("option", ["--stale-pending-sec", "--stale-running-min"])
@pytest.mark.parametrize(("value", "code"), [("0", 0), ("-1", 2), ("soon", 2), ("1.5", 2)])
def test_thresholds_are_whole_numbers_from_zero(program: Program, option: str, value: str, code: int) -> None:
    """K10."""
    assert program.workflow("doctor", option, value).code == code


def test_a_store_that_is_not_there_is_not_made(program: Program) -> None:
    answer = program.workflow("doctor")

    assert answer.code == 0
    assert "✔ Workflow store: reachable, nothing was ever submitted" in answer.out
    assert not (program.folder / "store").exists()


def test_repair_makes_the_index_anew_and_says_so(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "w1")
    in_store(program, lambda store: store.index.table.drop())
    assert program.workflow("list", "--json").json == []

    answer = program.workflow("doctor", "--repair", "--json")

    json.loads(answer.out)
    assert "Index repaired: 1 workflow entered, 0 untrue rows removed." in answer.talk
    assert [row["workflow_id"] for row in program.workflow("list", "--json").json] == ["w1"]
