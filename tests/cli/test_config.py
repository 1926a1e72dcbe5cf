"""A1: where a value comes from is shown."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program


def test_each_value_is_shown_with_its_source(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    (program.folder / "jobq.yaml").write_text("connection: {storage: acct1, prefix: P, blobs: acct2/box-1}\n")
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")
    monkeypatch.setenv("JOBQ_WORKFLOW_QUEUES", "acct3")

    answer = program.workflow("config", "show")

    assert [line.split() for line in answer.out.splitlines()] == [
        ["storage", "acct1", "(file)"],
        ["prefix", "P", "(file)"],
        ["queues", "acct3", "(env)"],
        ["blobs", "acct2/box-1", "(file)"],
        ["config", "file", str(program.folder / "jobq.yaml")],
    ]
    assert "acct1(file)/P(file)  queues=acct3(env)  blobs=acct2/box-1(file)" in answer.err


def test_json_has_the_promised_fields(program: Program) -> None:
    values = program.workflow("config", "show", "--json").json

    assert values["storage"] == "local"
    assert values["prefix"] == "default"
    assert values["sources"] == {"storage": "env", "prefix": "env", "queues": "default", "blobs": "default"}
    assert values["config_path"] is None


def test_nothing_configured_is_shown_too(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    answer = program.workflow("config", "show", "--json")

    assert answer.code == 0
    assert answer.json["storage"] is None
    assert "not configured" in answer.err


def test_a_command_without_a_target_exits_with_2_and_says_what_to_set(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    answer = program.workflow("list")

    assert answer.code == 2
    assert "Workflow storage account and prefix not configured." in answer.talk[0]
    assert "JOBQ_WORKFLOW_PREFIX" in answer.talk[0]


def test_an_unreachable_store_exits_with_6(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("BLOB", "QUEUE", "TABLE"):
        monkeypatch.setenv(f"JOBQ_AZURITE_{service}_PORT", "9")  # discard: nothing listens there

    answer = program("workflow", "devstoreaccount1/p", "list")

    assert answer.code == 6
    assert len(answer.talk) == 1
