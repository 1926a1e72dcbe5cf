"""What a command prints: its end is kept for the error text, its lines go to the log.

Memory is bounded whatever is printed: the last 16 KiB of each stream are kept, and a line longer than 8 KiB is logged in
pieces. Nothing here assumes that the bytes are text. Secrets of the task's ``env`` are hidden before anybody sees them.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Callable

from ai4s.jobq.worker.masking import Mask

KEPT_BYTES = 16 * 1024
MAX_LINE = 8 * 1024
MAX_ERROR_BYTES = 4 * 1024

_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Capture:
    """The end of one stream, and who else gets it: ``lines`` logs it, ``keep`` stores it; None means nobody."""

    __slots__ = ("_keep", "_lines", "_mask", "_tail")

    def __init__(
        self,
        lines: LineLog | None = None,
        *,
        keep: Callable[[bytes], None] | None = None,
        secrets: tuple[bytes, ...] = (),
    ) -> None:
        self._tail = bytearray()
        self._lines = lines
        self._keep = keep
        self._mask = Mask(secrets) if secrets else None

    def feed(self, data: bytes) -> None:
        """Take what was read next."""
        if self._mask is not None:
            data = self._mask.feed(data)
        if data:
            self._take(data)

    def close(self) -> None:
        """The stream has ended; log its last unfinished line."""
        if self._mask is not None and (data := self._mask.close()):
            self._take(data)
        if self._lines is not None:
            self._lines.close()

    def _take(self, data: bytes) -> None:
        tail = self._tail
        tail += data[-KEPT_BYTES:]
        if len(tail) > 2 * KEPT_BYTES:  # cut seldom, so that single bytes stay cheap
            del tail[:-KEPT_BYTES]
        if self._lines is not None:
            self._lines.feed(data)
        if self._keep is not None:
            self._keep(data)

    def text(self) -> str:
        """The last 16 KiB as readable text."""
        return readable(self._tail[-KEPT_BYTES:].decode("utf-8", "replace"))


class LineLog:
    """Logs a stream line by line as it comes."""

    __slots__ = ("_decoder", "_fields", "_level", "_line", "_log")

    def __init__(self, log: logging.Logger, level: int, fields: dict[str, object]) -> None:
        self._log, self._level, self._fields = log, level, fields
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def feed(self, data: bytes) -> None:
        """Log all lines that are complete now."""
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        while len(self._line) > MAX_LINE:
            lines.append(self._line[:MAX_LINE])
            self._line = self._line[MAX_LINE:]
        for line in lines:
            self._emit(line)

    def close(self) -> None:
        """Log what is left of an unfinished line."""
        rest = self._line + self._decoder.decode(b"", final=True)
        self._line = ""
        if rest:
            self._emit(rest)

    def _emit(self, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]  # of a progress bar, what a terminal would show
        self._log.log(self._level, "%s", readable(shown), extra=self._fields)


def readable(text: str) -> str:
    """The text without terminal codes and control characters; tabs stay, every kind of line end becomes ``\\n``."""
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", _TERMINAL_CODES.sub("", text)))


def error_text(reason: str, *streams: Capture) -> str:
    """``reason``, then the end of the first stream that has something to say: at most 4 KiB of UTF-8."""
    printed = next((text for text in (stream.text().strip() for stream in streams) if text), "")
    return fit_error(f"{reason}\n{printed}" if printed else reason)


def fit_error(text: str) -> str:
    """``text`` in at most 4 KiB of UTF-8: its first line is kept, and of the others the last."""
    clean = readable(text)
    data = clean.encode()
    if len(data) <= MAX_ERROR_BYTES:
        return clean
    first, _, _ = clean.partition("\n")
    head = first.encode()[: MAX_ERROR_BYTES // 4].decode("utf-8", "ignore")
    room = MAX_ERROR_BYTES - len(head.encode()) - len("\n…\n".encode())
    return f"{head}\n…\n{data[-room:].decode('utf-8', 'ignore')}"
