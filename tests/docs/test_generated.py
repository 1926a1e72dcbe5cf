"""What is generated in the documentation is what would be generated now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that ``make docs`` runs."""
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_page_is_the_programs_own_help(build: ModuleType) -> None:
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == build.command_line(), "run: make docs"


def test_the_state_diagrams_are_those_of_the_tables(build: ModuleType) -> None:
    assert (DOCS / "states.md").read_text(encoding="utf-8") == build.states(), "run: make docs"
