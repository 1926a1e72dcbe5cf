"""Columns of text: as wide as needed in a pipe, brought together and cut to the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from ai4s.jobq.cli.terminal import cells, coloured, cut, visible, width_of

GAP = 3  # between two columns
WAYS_TO_FIT = ((GAP, 8), (1, 8), (1, 4))  # the gap, and how narrow a column may become; below 4 a cell says nothing


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> Iterator[str]:
    """The lines of a table. Cells that name a state are coloured where the stream shows colours."""
    shown = [[visible(cell) for cell in row] for row in rows]
    needed = [max(map(cells, column)) for column in zip(titles, *shown, strict=True)]
    widths, gap = _fitted_widths(needed, width_of(stream))
    yield _line(titles, widths, gap)
    for row in shown:
        yield _line(row, widths, gap, stream)


def _fitted_widths(widths: Sequence[int], limit: int | None) -> tuple[Sequence[int], int]:
    """Widths, and the gap between columns, that fit ``limit`` if they can."""
    fitted, gap = widths, GAP
    if limit is not None:
        for gap, narrowest in WAYS_TO_FIT:
            fitted = _squeezed(widths, limit - gap * (len(widths) - 1), narrowest)
            if sum(fitted) + gap * (len(widths) - 1) <= limit:
                break
    return fitted, gap


def _squeezed(widths: Sequence[int], limit: int, narrowest: int) -> list[int]:
    """Widths whose sum is ``limit`` if it can be: the widest column gives way first."""
    squeezed = list(widths)
    while sum(squeezed) > limit and max(squeezed) > narrowest:
        squeezed[squeezed.index(max(squeezed))] -= 1
    return squeezed


def _line(row: Sequence[str], widths: Sequence[int], gap: int, stream: TextIO | None = None) -> str:
    parts = []
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cut(cell, width)
        padding = "" if number == len(row) - 1 else " " * (width - cells(text))
        parts.append((coloured(cell, text, stream) if stream is not None else text) + padding)
    return (" " * gap).join(parts).rstrip()
