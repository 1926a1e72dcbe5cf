"""A small writer of SVG: shapes and text in, one document out."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
FONT_PX = 12.0
_CHAR = 0.58  # of the font size: how wide a character is on average in the fonts above
_WIDE_CHAR = 1.0
_BOLD = 1.25
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0.8 7.5 4 0 7.2z" fill="#8c959f"/></marker></defs>'
)


class Svg:
    """A drawing that grows. Lengths are in pixels; what is drawn later lies on top."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str = "none",
        radius: float = 0,
        dash: str = "",
        title: str = "",
    ) -> None:
        """A box. ``title`` is shown when the pointer rests on it."""
        shape = _attributes(
            x=x, y=y, width=width, height=height, rx=radius or None, fill=fill, stroke=stroke, stroke_dasharray=dash
        )
        self._parts.append(f"<rect{shape}>{_title(title)}</rect>" if title else f"<rect{shape}/>")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        fill: str = "#1f2328",
        size: float = FONT_PX,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """One line of text whose base line is at ``y``."""
        place = _attributes(
            x=x,
            y=y,
            fill=fill,
            font_size=None if size == FONT_PX else size,
            text_anchor=None if anchor == "start" else anchor,
            font_weight="600" if bold else None,
        )
        self._parts.append(f"<text{place}>{_printable(text)}</text>")

    def line(self, x1: float, y1: float, x2: float, y2: float, *, stroke: str, dash: str = "") -> None:
        """A thin straight line."""
        self._parts.append(f"<line{_attributes(x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_dasharray=dash)}/>")

    def path(self, commands: Sequence[str], *, stroke: str, dash: str = "", arrow: bool = False) -> None:
        """A line of any shape; with ``arrow`` it ends in one."""
        shape = _attributes(
            d=" ".join(commands),
            fill="none",
            stroke=stroke,
            stroke_dasharray=dash,
            marker_end="url(#arrow)" if arrow else None,
        )
        self._parts.append(f"<path{shape}/>")

    def document(self, width: float, height: float, *, title: str) -> str:
        """The whole drawing on white paper of this size."""
        size = f'width="{_number(width)}" height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}"'
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family={quoteattr(FONT)} font-size="{FONT_PX:g}">',
                _title(title),
                _ARROW,
                f'<rect width="{_number(width)}" height="{_number(height)}" fill="#ffffff"/>',
                *self._parts,
                "</svg>\n",
            )
        )


def point(x: float, y: float) -> str:
    """A pair of coordinates as paths have them."""
    return f"{_number(x)} {_number(y)}"


def bold_px(text: str, size: float) -> float:
    """About how wide a bold text is."""
    return text_px(text, size) * _BOLD


def text_px(text: str, size: float = FONT_PX) -> float:
    """About how wide a text is."""
    return sum(_WIDE_CHAR if unicodedata.east_asian_width(char) in "WF" else _CHAR for char in text) * size


def shortened(text: str, most_px: float, size: float = FONT_PX) -> str:
    """The text in at most so many pixels; of a longer one the beginning and the end, for names often differ there."""
    if text_px(text, size) <= most_px:
        return text
    keep = max(int(most_px / (_CHAR * size)) - 1, 2)
    while keep > 2 and text_px(cut := _middle_cut(text, keep), size) > most_px:
        keep -= 1
    return cut if keep > 2 else _middle_cut(text, keep)


def _middle_cut(text: str, keep: int) -> str:
    end = keep // 3
    return f"{text[: keep - end]}…{text[len(text) - end :]}"


def _attributes(**values: object) -> str:
    return "".join(
        f" {name.replace('_', '-')}={quoteattr(_number(value) if isinstance(value, int | float) else str(value))}"
        for name, value in values.items()
        if value not in (None, "")
    )


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _title(text: str) -> str:
    return f"<title>{_printable(text)}</title>"


def _printable(text: str) -> str:
    """Text that XML allows: control characters and lone surrogates become a mark."""
    return escape("".join(char if char in "\n\t" or _is_allowed(char) else "\ufffd" for char in text))


def _is_allowed(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cs") and char not in "\ufffe\uffff"
