"""The page about Python, "Workflows": its examples run, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.handle import WorkflowHandle

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Workflows") : PAGE.index("## Task side")]
SUBMIT, LIST = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)


def test_the_examples_submit_and_find_a_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B11, B14, B19, B21."""
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path))
    monkeypatch.setenv("JOBQ_WORKFLOW_PREFIX", "local/default")
    monkeypatch.chdir(tmp_path)

    for example in (SUBMIT, LIST):
        exec(example, {})  # the page is ours, and this is what its reader does

    submitted, listed = capsys.readouterr().out.splitlines()
    assert submitted == "pending {'ingest': 'pending', 'approval': 'pending', 'train': 'pending'}"
    assert re.fullmatch(r"[0-9a-f]{8} pending", listed)


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def test_the_table_of_the_client_is_complete() -> None:
    names = set(re.findall(r"`(\w+)\(", SECTION))

    assert public(WorkflowClient) <= names


def test_a_handle_has_methods_of_the_client() -> None:
    assert public(WorkflowHandle) <= public(WorkflowClient)
