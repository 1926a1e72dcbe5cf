"""Writes what a task printed: as it is into pipes and files, tamed onto terminals."""

from __future__ import annotations

import codecs
from typing import Protocol, TextIO

from ai4s.jobq.cli.terminal import PIECE, fitted, writing
from ai4s.jobq.worker.capture import readable

LONGEST_LINE = 64 * 1024  # characters held back in wait for the end of a line


class Output(Protocol):
    """Where bytes that a task printed go."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """That was all."""
        ...


def output_of(stream: TextIO) -> Output:
    """What writes to this stream."""
    return ScreenOutput(stream) if stream.isatty() else RawOutput(stream)


class RawOutput:
    """Every byte as it is."""

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._stream = stream.buffer

    def write(self, data: bytes) -> None:
        with writing():
            for start in range(0, len(data), PIECE):
                piece = memoryview(data)[start : start + PIECE]
                while piece:
                    piece = piece[self._stream.write(piece) :]
            self._stream.flush()

    def close(self) -> None:
        pass


class ScreenOutput:
    """Lines of text without control characters; of a line that was written over, what a terminal would show in the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def write(self, data: bytes) -> None:
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        if len(self._line) > LONGEST_LINE:
            lines.append(self._line)
            self._line = ""
        for line in lines:
            self._put(line)
        self._stream.flush()

    def close(self) -> None:
        rest = self._line + self._decoder.decode(b"", final=True)
        if rest:
            self._put(rest)
        self._stream.flush()

    def _put(self, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        self._stream.write(fitted(readable(shown), self._stream) + "\n")
