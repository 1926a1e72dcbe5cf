"""A job's kwargs as a shell command, and why a command could not be started.

Whatever is wrong with them is the task's failure, said in a sentence, and never the worker's.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ai4s.jobq.errors import JobqError

MAX_STRING_BYTES = 128 * 1024  # Linux: MAX_ARG_STRLEN, for the command and for each NAME=value


class CommandError(JobqError):
    """A command cannot be run as it is written; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a shell runs: the text, variables to set, and the directory (None: the worker's own)."""

    cmd: str
    env: Mapping[str, str]
    cwd: str | None


def read_command(kwargs: Mapping[str, object]) -> Command:
    """The command in ``kwargs``. Raises ``CommandError``."""
    cmd, cwd, env = kwargs.get("cmd"), kwargs.get("cwd"), kwargs.get("env")
    if not isinstance(cmd, str):
        what = "have no 'cmd'" if cmd is None else f"have a 'cmd' that is {type(cmd).__name__}, not text"
        raise CommandError(
            f"the task's kwargs {what}: a shell worker needs 'cmd', the command to run. "
            "Add it, or send the task to a queue whose workers have a processor of their own."
        )
    if cwd is not None and not isinstance(cwd, str):
        raise CommandError(f"the task's 'cwd' is {type(cwd).__name__}, not text")
    if env is not None and not isinstance(env, Mapping):
        raise CommandError(f"the task's 'env' is {type(env).__name__}, not a mapping of names to values")
    return Command(cmd=cmd, cwd=cwd or None, env={name: _value(name, value) for name, value in (env or {}).items()})


def _value(name: str, value: object) -> str:
    """The variable's value as text: numbers and booleans as JSON writes them, null as nothing."""
    if not name or "=" in name or "\0" in name:
        raise CommandError(f"the task's 'env' has the name {name!r}, which no variable can have")
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise CommandError(f"variable {name!r} in the task's 'env' is {type(value).__name__}: write text")


def start_problem(error: OSError | ValueError, command: Command, environment: Mapping[str, str], *, shell: str) -> str:
    """Why the operating system did not start the command, without any value of a variable."""
    if isinstance(error, UnicodeEncodeError):
        return f"{_culprit(command, _has_surrogate)} has a character that cannot be encoded (a lone surrogate)"
    if isinstance(error, ValueError):
        return f"{_culprit(command, _has_nul)} has a NUL character, which no command can be given"
    if error.errno == errno.E2BIG:
        return _too_large(command, environment)
    if error.filename is not None and error.filename == command.cwd:
        return f"cannot change to the task's cwd {command.cwd!r}: {error.strerror}"
    return f"cannot start {error.filename or shell}: {error.strerror}"


def _culprit(command: Command, is_bad: Callable[[str], bool]) -> str:
    if is_bad(command.cmd):
        return "the command"
    if is_bad(command.cwd or ""):
        return "the task's 'cwd'"
    names = sorted(name for name, value in command.env.items() if is_bad(value) or is_bad(name))
    return f"variable {names[0]!r} in the task's 'env'" if names else "the command"


def _has_nul(text: str) -> bool:
    return "\0" in text


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _too_large(command: Command, environment: Mapping[str, str]) -> str:
    if (size := len(command.cmd.encode())) >= MAX_STRING_BYTES:
        return f"the command is {size} bytes, this system takes less than {MAX_STRING_BYTES}: put it into a script"
    sizes = {name: len(name) + 1 + len(value.encode("utf-8", "surrogateescape")) for name, value in environment.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] >= MAX_STRING_BYTES:
        return (
            f"variable {largest!r} is {sizes[largest]} bytes, this system takes less than {MAX_STRING_BYTES} "
            "for one variable: put it into a file"
        )
    return f"the environment is {sum(sizes.values())} bytes in all, too large for this system: put it into a file"
