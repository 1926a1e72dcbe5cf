"""Columns of text: as wide as needed in a pipe, cut to the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from ai4s.jobq.cli.terminal import cells, coloured, cut, visible, width_of

GAP = "   "
NARROWEST = 8  # columns; below this a cell says nothing


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> Iterator[str]:
    """The lines of a table. Cells that name a state are coloured where the stream shows colours."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(titles, *shown, strict=True)]
    limit = width_of(stream)
    if limit is not None:
        widths = _squeezed(widths, limit)
    yield _line(titles, widths)
    for row in shown:
        yield _line(row, widths, stream)


def _squeezed(widths: list[int], limit: int) -> list[int]:
    """Widths that fit ``limit`` if they can: the widest column gives way first, none below what can be read."""
    widths = list(widths)
    while sum(widths) + len(GAP) * (len(widths) - 1) > limit and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _line(row: Sequence[str], widths: Sequence[int], stream: TextIO | None = None) -> str:
    parts = []
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cut(cell, width)
        padding = "" if number == len(row) - 1 else " " * (width - cells(text))
        parts.append((coloured(cell, text, stream) if stream is not None else text) + padding)
    return GAP.join(parts).rstrip()
