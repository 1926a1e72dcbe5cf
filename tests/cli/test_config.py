"""A1: where a value comes from is shown."""

from __future__ import annotations

import re

import pytest

from ai4s.jobq.coordinator.settings import CoordinatorSettings
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


def test_what_the_coordinator_cannot_be_told_is_refused(program: Program) -> None:
    """YAML has values that JSON has not."""
    (program.folder / "jobq.yaml").write_text("coordinator: {sweep_s: 2026-01-02, retention: }\n")

    answer = program.workflow("config", "show", "--json")

    assert (answer.code, answer.out) == (2, "")
    assert "coordinator.sweep_s: datetime.date(2026, 1, 2) is neither a number nor text." in answer.err


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


def test_init_writes_a_file_that_changes_nothing_until_it_is_edited(program: Program) -> None:
    before = program.workflow("config", "show", "--json").json

    answer = program.workflow("config", "init")

    assert answer.out == "jobq.yaml\n"
    after = program.workflow("config", "show", "--json").json
    assert {**after, "config_path": None} == before
    assert after["config_path"] == str(program.folder / "jobq.yaml")


def test_every_value_of_the_written_file_can_be_used_as_it_is(program: Program) -> None:
    program.workflow("config", "init")
    path = program.folder / "jobq.yaml"
    path.write_text(re.sub(r"(?m)^  # ", "  ", path.read_text()))

    shown = program("workflow", "myaccount/Test", "config", "show", "--json").json

    assert (shown["queues"], shown["blobs"]) == ("otheraccount", "otheraccount/box")
    assert CoordinatorSettings(**shown["coordinator"]) == CoordinatorSettings()


def test_init_writes_over_nothing_unless_forced(program: Program) -> None:
    (program.folder / "mine.yaml").write_text("connection: {storage: local, prefix: Mine}\n")

    refused = program.workflow("config", "init", "mine.yaml")

    assert refused.code == 2
    assert "Mine" in (program.folder / "mine.yaml").read_text()
    assert program.workflow("config", "init", "mine.yaml", "--force").code == 0
    assert "Mine" not in (program.folder / "mine.yaml").read_text()
