"""Rewrites the generated parts of the documentation: run by ``make docs``, compared by the tests."""

from __future__ import annotations

import re
from pathlib import Path

from ai4s.jobq.engine.diagram import task_diagram, workflow_diagram

DOCS = Path(__file__).parent


def states() -> str:
    """``states.md`` with its two diagrams drawn anew."""
    page = (DOCS / "states.md").read_text(encoding="utf-8")
    diagrams = iter((task_diagram(), workflow_diagram()))
    return re.sub(r"```mermaid\n.*?\n```", lambda _: f"```mermaid\n{next(diagrams)}\n```", page, flags=re.DOTALL)


if __name__ == "__main__":
    (DOCS / "states.md").write_text(states(), encoding="utf-8")
