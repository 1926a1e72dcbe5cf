"""Writes a result where it was asked for: to stdout, or into a file."""

from __future__ import annotations

from pathlib import Path

from ai4s.jobq.cli.terminal import put, say
from ai4s.jobq.errors import UsageError


def write_result(text: str, path: str | None) -> None:
    """Write the text to a file in UTF-8, and say so, or to stdout. Raises ``UsageError``: the file cannot be written."""
    if path is None:
        put(text.removesuffix("\n"))
        return
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as exc:
        raise UsageError(f"Cannot write {path!r}: {exc.strerror}. Choose another file.") from exc
    say(f"Wrote {path}")
