"""What is written to stdout and stderr, fitted to what the stream can show.

A stream that cannot take a character gets plain ones instead. Control characters in texts that users chose are made visible,
so that no name can move a cursor. Colours are for terminals whose owner did not ask for none (``NO_COLOR``).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from ai4s.jobq.errors import OperationalError

PIECE = 32_768  # characters per write: an unbuffered pipe that closes during a write says so only at the next one

_PLAIN = str.maketrans({"→": "->", "—": "-", "…": "...", "✔": "OK", "✘": "X", "⚠": "!", "▶": ">", "↶": "(undo)"})
_COLOURS = {
    "completed": "32",
    "running": "36",
    "failed": "31",
    "upstream_failed": "31",
    "cancelled": "33",
    "paused": "33",
    "compensating": "36",
    "compensated": "33",
    "compensation_failed": "31",
    "skipped": "2",
}


def put(text: str) -> None:
    """Write a line of result to stdout."""
    _write(text, sys.stdout)


def say(text: str) -> None:
    """Write a line of talk to stderr, if anybody is there to be told."""
    with contextlib.suppress(OSError, OperationalError):  # what a command does is worth more than what it says of it
        _write(text, sys.stderr)


def put_json(value: Any) -> None:
    """Write the one JSON document of a command to stdout. A number that JSON cannot say (NaN, infinity) is null."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:
        put_json(_finite(value))
        return
    if fitted(text, sys.stdout) != text:
        text = json.dumps(value, indent=2, ensure_ascii=True)
    _write(text, sys.stdout)


def fitted(text: str, stream: TextIO) -> str:
    """The text as the stream's encoding can show it."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)


def visible(text: str) -> str:
    """The text on one line, with control characters and the like written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def cells(text: str) -> int:
    """How many columns a terminal needs for the text."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


def cut(text: str, most: int, *, mark: str = "…") -> str:
    """The text in at most so many columns; ``mark`` stands for what was left out."""
    if cells(text) <= most:
        return text
    kept, used = [], cells(mark)
    for char in text:
        used += _cells_of(char)
        if used > most:
            break
        kept.append(char)
    return "".join(kept) + mark


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that understands cursor movement."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """Columns of a terminal; None for anything else, where nothing must be cut."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def coloured(state: str, text: str, stream: TextIO) -> str:
    """``text`` in the colour of a state, where colours are wanted."""
    colour = _COLOURS.get(state)
    if colour is None or os.environ.get("NO_COLOR") or not is_terminal(stream):
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def _finite(value: Any) -> Any:
    """The value with None for every number that is none of JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Raises ``OperationalError`` where a stream takes nothing, as a file on a full disk; ``BrokenPipeError`` as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise unwritable(exc) from exc


def unwritable(exc: OSError) -> OperationalError:
    """What is told of a stream that takes nothing."""
    return OperationalError(f"The output cannot be written: {exc.strerror}.")


def _write(text: str, stream: TextIO) -> None:
    whole = fitted(text, stream) + "\n"
    with writing():
        for start in range(0, len(whole), PIECE):
            stream.write(whole[start : start + PIECE])
        stream.flush()
