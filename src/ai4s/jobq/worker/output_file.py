"""Reads what a task wrote to ``$JOBQ_OUTPUT_FILE``. Only for tasks that succeeded: others have no output.

Invariant: text that comes out of here is JSON that every reader takes: UTF-8 without lone surrogates, no NaN or Infinity,
no number so large that a reader would make it infinity.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
from typing import NoReturn

from ai4s.jobq.store.outputs import MAX_OUTPUT_BYTES, OutputError

INLINE_CHECK_BYTES = 64 * 1024  # checked at once; more would hold up other tasks, so that goes to a thread


async def read_output_file(path: str) -> str | None:
    """The output as JSON text, or None when the task wrote none. Raises ``OutputError``: it is no JSON we can keep."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise OutputError(f"the output file cannot be read: {exc.strerror}. It must be an ordinary file") from exc
    if _size(descriptor) <= INLINE_CHECK_BYTES:
        return _content(descriptor)
    return await asyncio.to_thread(_content, descriptor)


def _size(descriptor: int) -> int:
    """The size of a file that may be read; any other is closed."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_OUTPUT_BYTES:
        return status.st_size
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OutputError("the output file is no ordinary file: the task must write JSON to $JOBQ_OUTPUT_FILE")
    raise OutputError(
        f"the output is {status.st_size} bytes, at most 256 MiB are kept: write a file and output its path"
    )


def _content(descriptor: int) -> str:
    """The checked text. Closes the file, in a thread too when nobody waits for the text any more."""
    with open(descriptor, "rb") as file:
        return _checked(file.read(MAX_OUTPUT_BYTES + 1))


def _checked(data: bytes) -> str:
    """The text of ``data``, unchanged but for white space around it."""
    try:
        text = data.decode("utf-8-sig").strip()
        if not text:
            raise OutputError("the output file is empty: write JSON to it, or do not create it")
        value = json.loads(text, parse_constant=_refuse, parse_float=_double)
        if "\\u" in text:  # the only way into a JSON text for half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as exc:
        raise OutputError(f"the output file is not UTF-8 (byte {exc.start}): write JSON in UTF-8") from exc
    except UnicodeEncodeError as exc:
        raise OutputError("the output has a lone surrogate (half a character), which is no text") from exc
    except RecursionError as exc:
        raise OutputError("the output is nested too deeply: some hundred levels are the limit") from exc
    except json.JSONDecodeError as exc:
        raise OutputError(f"the output file is no JSON: {exc.msg} at line {exc.lineno} column {exc.colno}") from exc
    except ValueError as exc:  # a whole number of more than 4,300 digits
        raise OutputError("the output file has a number that is too long") from exc
    return text


def _double(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise OutputError(
            f"the output has {literal[:40]}, which is beyond what readers of JSON hold: write text in its place"
        )
    return value


def _refuse(constant: str) -> NoReturn:
    raise OutputError(f"the output has {constant}, which is no JSON: write null or text in its place")
