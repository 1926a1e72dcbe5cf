"""Shells complete commands and options."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program
from tests.support.project import Project


@pytest.mark.parametrize(
    ("words", "promised"), [("ai4s-jobq workflow local/x doc", "doctor"), ("ai4s-jobq wor", "worker")]
)
def test_a_shell_completes_commands_behind_a_target_too(here: Project, words: str, promised: str) -> None:
    here.environment |= {
        "_AI4S_JOBQ_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    answer = here.cli()

    assert f"plain,{promised}" in answer.stdout.splitlines()
    assert answer.stderr == ""


def test_completion_prints_what_the_shell_needs(program: Program) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_AI4S_JOBQ_COMPLETE" in program("completion", shell).out
    assert program("completion", "tcsh").code == 2
