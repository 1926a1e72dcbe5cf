"""Names and identities: what is legal, and how fresh ones are drawn.

Rules are the same on every backend, so that a project can move from a laptop to Azure without renaming.
"""

from __future__ import annotations

import difflib
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable

from ai4s.jobq.errors import UsageError

MAX_TASK_NAME = 255
MAX_PREFIX = 42  # <prefix>-workflow-completions must fit the 63 characters of a queue name

_WORKFLOW_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_QUEUE_NAME = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


def new_workflow_id() -> str:
    """A random workflow id: 8 hex digits."""
    return secrets.token_hex(4)


def new_run_id() -> str:
    """A random 64-bit identity of one submission, 16 hex digits: tells two submissions of one workflow id apart."""
    return secrets.token_hex(8)


def new_nonce() -> str:
    """A random 32-bit mark, 8 hex digits: tells two commits, executions or processes apart."""
    return os.urandom(4).hex()


def check_workflow_id(workflow_id: str) -> str:
    """The id unchanged. Raises ``UsageError`` unless it is 1-64 of letters, digits, ``.``, ``_``, ``-``."""
    if not _WORKFLOW_ID.fullmatch(workflow_id) or set(workflow_id) == {"."}:
        raise UsageError(
            f"{workflow_id[:80]!r} is no workflow id: 1 to 64 letters, digits, dots, underscores and dashes"
        )
    return workflow_id


def check_prefix(prefix: str) -> str:
    """The prefix unchanged. Raises ``UsageError`` unless it is a letter, then letters and digits, at most 42."""
    if not _PREFIX.fullmatch(prefix) or len(prefix) > MAX_PREFIX:
        raise UsageError(f"{prefix!r} is no prefix: a letter, then letters and digits, at most {MAX_PREFIX} characters")
    return prefix


def task_name_problem(name: str) -> str | None:
    """What is wrong with a task name (already in Unicode NFC), or None when nothing is."""
    if not 1 <= len(name) <= MAX_TASK_NAME:
        return f"a task name has 1 to {MAX_TASK_NAME} characters, this one has {len(name)}"
    if name != name.strip():
        return "a task name has no blank at its ends"
    bad = next((char for char in name if not (char.isprintable() or unicodedata.category(char) == "Cf")), None)
    if bad is not None:
        return f"a task name is printable text, this one has the character U+{ord(bad):04X}"
    return None


def queue_name_problem(name: str) -> str | None:
    """What is wrong with the name of a task queue, or None when nothing is. Storage Queues' rule, on every backend."""
    if _QUEUE_NAME.fullmatch(name):
        return None
    return (
        "a queue name has 3 to 63 lower-case letters, digits and single dashes, and begins and ends with a letter or "
        "digit"
    )


def near_names(name: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """Candidates that look like ``name``, best first; looks at the first 5,000 only, to stay quick."""
    pool = [candidate for _, candidate in zip(range(5000), candidates, strict=False)]
    folded = {candidate.casefold(): candidate for candidate in reversed(pool)}
    found = difflib.get_close_matches(name.casefold(), list(folded), n=most, cutoff=0.6)
    return [folded[match] for match in found]
