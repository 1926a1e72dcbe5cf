"""K01, K02: with ``--json`` an error is text on stderr and an exit code, as without it, and stdout stays empty."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program, flow, task
from tests.support.schemas import json_commands

OF_A_WORKFLOW: dict[str, tuple[str, ...]] = {
    "status": ("ID",),
    "tasks": ("ID",),
    "history": ("ID",),
    "explain": ("ID",),
    "watch": ("ID",),
    "cancel": ("ID",),
    "retry": ("ID",),
    "pause": ("ID",),
    "resume": ("ID",),
    "signal": ("ID", "go"),
    "rerun": ("ID", "--from", "a"),
    "purge": ("ID", "--yes"),
}
OF_A_STORE: dict[str, tuple[str, ...]] = {
    "submit": ("flow.json",),
    "run": ("flow.json",),
    "list": (),
    "summary": (),
    "workers": (),
    "dead-letters list": (),
    "dead-letters show": ("m0",),
    "dead-letters requeue": ("m0",),
    "dead-letters drop": ("m0", "--yes"),
}
TELL_ANYHOW = {"validate", "config show", "doctor"}  # about files, the configuration, and what is wrong


def called(command: str, args: tuple[str, ...], workflow_id: str) -> list[str]:
    return [*command.split(), *(workflow_id if arg == "ID" else arg for arg in args), "--json"]


def test_every_command_is_in_one_of_these_tables() -> None:
    tables = {f"workflow {command}" for command in (*OF_A_WORKFLOW, *OF_A_STORE, *TELL_ANYHOW)}

    assert tables | {"peek"} == set(json_commands())


def test_an_unknown_workflow_is_no_document(program: Program) -> None:
    program.submit(flow(task("a")), "--id", "training-1")

    for command, args in OF_A_WORKFLOW.items():
        answer = program.workflow(*called(command, args, "training-2"))
        assert (answer.code, answer.out) == (5, ""), command
        assert answer.talk == ["Error: No workflow 'training-2' in local/default. Did you mean training-1?"]


def test_a_missing_configuration_is_no_document(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write(flow(task("a")))
    monkeypatch.delenv("JOBQ_WORKFLOW_PREFIX")

    for command, args in (OF_A_WORKFLOW | OF_A_STORE).items():
        if command != "run":  # it has a store of its own
            answer = program.workflow(*called(command, args, "w"))
            assert (answer.code, answer.out) == (2, ""), command
            assert "not configured" in answer.talk[-1], command
