"""What is wrong with a text as the value of a certain field: one function per kind, a sentence or None."""

from __future__ import annotations

import re

MAX_WORKFLOW_NAME = 255
MAX_PARAM_NAME = 64
MAX_LABEL_NAME = 63
MAX_LABEL_VALUE = 255
MAX_DESCRIPTION = 1000
MAX_EXPRESSION = 4096

RESERVED_VARIABLES = ("JOBQ_WORKFLOW_ID", "JOBQ_WORKFLOW_TASK", "JOBQ_WORKFLOW_ATTEMPT", "JOBQ_OUTPUT_FILE")

_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SIGNAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def workflow_name_fault(name: str) -> str | None:
    """What is wrong with the name of a workflow."""
    if not 1 <= len(name) <= MAX_WORKFLOW_NAME:
        return f"the name of a workflow has 1 to {MAX_WORKFLOW_NAME} characters, this one has {len(name)}"
    if not name.isprintable():
        return "the name of a workflow is printable text on one line"
    return None


def command_fault(cmd: str) -> str | None:
    """What is wrong with a shell command."""
    if not cmd.strip():
        return "'cmd' must not be empty"
    return nul_fault(cmd)


def nul_fault(text: str) -> str | None:
    """Whether the text has a NUL character, which no process can be given."""
    return f"a NUL character (at character {text.index(chr(0)) + 1}) is not allowed" if "\0" in text else None


def directory_fault(path: str) -> str | None:
    """What is wrong with a path of a directory."""
    return nul_fault(path) if path else "a path must not be empty"


def variable_name_fault(name: str) -> str | None:
    """What is wrong with the name of an environment variable."""
    if not name or "=" in name or "\0" in name:
        return "the name of an environment variable is not empty and has no '=' and no NUL character"
    if name in RESERVED_VARIABLES:
        return "this variable is set by the worker for every task, a task cannot set it"
    return None


def condition_fault(text: str) -> str | None:
    """What is wrong with a condition before it is parsed."""
    if not text.strip():
        return "'condition' must not be empty"
    if len(text) > MAX_EXPRESSION:
        return f"a condition has at most {MAX_EXPRESSION} characters, this one has {len(text)}"
    return nul_fault(text)


def param_name_fault(name: str) -> str | None:
    """What is wrong with the name of a param or of an axis of a matrix."""
    if _PARAM_NAME.fullmatch(name):
        return None
    return f"such a name has 1 to {MAX_PARAM_NAME} letters, digits and underscores, and begins with no digit"


def signal_name_fault(name: str) -> str | None:
    """What is wrong with the name of a signal."""
    if _SIGNAL_NAME.fullmatch(name):
        return None
    return "the name of a signal has 1 to 100 letters, digits, dots, underscores and dashes"


def label_name_fault(name: str) -> str | None:
    """What is wrong with the name of a label."""
    if not 1 <= len(name) <= MAX_LABEL_NAME:
        return f"the name of a label has 1 to {MAX_LABEL_NAME} characters, this one has {len(name)}"
    if not name.isprintable() or "=" in name or name != name.strip():
        return "the name of a label is printable text without '=' and without blanks at its ends"
    return None


def label_value_fault(value: str) -> str | None:
    """What is wrong with the value of a label."""
    if len(value) > MAX_LABEL_VALUE:
        return f"the value of a label has at most {MAX_LABEL_VALUE} characters, this one has {len(value)}"
    return None if value.isprintable() else "the value of a label is printable text on one line"


def description_fault(text: str) -> str | None:
    """What is wrong with a description."""
    if len(text) > MAX_DESCRIPTION:
        return f"a description has at most {MAX_DESCRIPTION} characters, this one has {len(text)}"
    return None


def likely_queue_name(name: str) -> str:
    """The legal queue name nearest to this one; may still be too short."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63]
