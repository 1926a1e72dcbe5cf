"""The colours of states, and the legend that explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ai4s.jobq.drawing.svg import Svg, text_px
from ai4s.jobq.engine.states import TaskState

INK = "#1f2328"
FAINT_INK = "#59636e"
EDGE = "#8c959f"
GRID = "#e4e8ec"
UNDO_DASH = "3 2"  # of everything that is drawn of undo jobs
SWATCH_PX = 12.0
_GAP_PX = 18.0


@dataclass(frozen=True, slots=True)
class Colour:
    """Colours of one state: of large areas, and of borders and bars."""

    area: str
    strong: str


PLAIN = Colour("#f6f8fa", "#8c959f")
COLOURS: Mapping[TaskState, Colour] = {
    TaskState.PENDING: Colour("#f6f8fa", "#afb8c1"),
    TaskState.READY: Colour("#fff8c5", "#d4a72c"),
    TaskState.RUNNING: Colour("#ddf4ff", "#218bff"),
    TaskState.COMPLETED: Colour("#dafbe1", "#2da44e"),
    TaskState.FAILED: Colour("#ffebe9", "#cf222e"),
    TaskState.UPSTREAM_FAILED: Colour("#fff0f0", "#e59a98"),
    TaskState.SKIPPED: Colour("#f6f8fa", "#8c959f"),
    TaskState.CANCELLED: Colour("#ffe7d6", "#e16f24"),
}


def colour_of(state: TaskState | None) -> Colour:
    """The colours of a state; None is a task of which no state is known."""
    return PLAIN if state is None else COLOURS[state]


def draw_legend(svg: Svg, x: float, y: float, entries: Mapping[str, str]) -> float:
    """Text and colour of each entry side by side, base line at ``y``; where the legend ends."""
    for text, colour in entries.items():
        svg.rect(x, y - SWATCH_PX + 2, SWATCH_PX, SWATCH_PX, fill=colour, radius=2)
        svg.text(x + SWATCH_PX + 5, y, text, fill=FAINT_INK)
        x += SWATCH_PX + 5 + text_px(text) + _GAP_PX
    return x
