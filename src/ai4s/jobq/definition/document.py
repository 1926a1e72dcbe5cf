"""A document as a tree of nodes with positions: what the readers of YAML, JSON and Python values all produce.

Invariant: a finished tree is at most ``MAX_DEPTH`` levels high, so recursion over it is safe; a node may be shared by
several parents (a YAML alias), so nothing may be changed in it. No knowledge of workflows lives here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from ai4s.jobq.errors import Problem

MAX_DEPTH = 100  # deeper nesting is a mistake or an attack, and every recursion below this package stays safe
SCALAR_COST = 16  # characters a scalar counts for besides its own: quotes, separators, its slot in a container
CONTAINER_COST = 64  # likewise for an empty list or mapping; about what one takes in memory

SHOWN_CHARACTERS = 60

Path = tuple[str | int, ...]
"""A place in a document: keys and indexes from the root."""


class Style(Enum):
    """How a scalar was written, which decides what it may be taken for."""

    QUOTED = "text, whatever it looks like"
    PLAIN = "a bare word of YAML: text where text is expected, else whatever it looks like"
    LITERAL = "a number, true, false or null of JSON or Python: never text"


class Place(NamedTuple):
    """A position in a file, both 1-based, or None for a document that has none."""

    line: int | None
    column: int | None


NOWHERE = Place(None, None)

Locate = Callable[[Path], Place]
"""Finds the position of a path."""


@dataclass(slots=True)
class Scalar:
    """One text, number, truth value or null; ``text`` is as written, with escapes and quotes resolved."""

    text: str
    style: Style
    place: Place

    height: ClassVar[int] = 0

    @property
    def cost(self) -> int:
        """Estimated size in characters."""
        return SCALAR_COST + len(self.text)


@dataclass(slots=True)
class ListNode:
    """A list. ``cost`` and ``height`` count aliased nodes as if they were written out."""

    place: Place
    items: list[Node] = field(default_factory=list)
    cost: int = CONTAINER_COST
    height: int = 1


class Entry(NamedTuple):
    """A key of a mapping and its value."""

    key: Scalar
    value: Node


@dataclass(slots=True)
class MappingNode:
    """A mapping, merge keys resolved. ``cost`` and ``height`` as in ``ListNode``."""

    place: Place
    entries: dict[str, Entry] = field(default_factory=dict)
    cost: int = CONTAINER_COST
    height: int = 1


Node = Scalar | ListNode | MappingNode


def render_path(path: Path) -> str:
    """The path as people read it: ``tasks[3].kwargs.env``."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.replace("-", "_").lstrip("$").isidentifier():
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{shown(step)}]")
    return "".join(parts)


def shown(text: str) -> str:
    """The text quoted for a message, cut when it is long."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")


def problem_at(place: Place, path: Path, message: str, hint: str = "") -> Problem:
    """A problem of this place; its source is filled in at the end. The message becomes a sentence when a hint follows it."""
    if hint and not message.endswith((".", "?", "!")):
        message += "."
    return Problem(message=message, path=render_path(path), line=place.line, column=place.column, hint=hint)


def locate_in(root: Node) -> Locate:
    """Finds places by path in this tree; a path that does not exist has the place of its nearest existing parent."""

    def locate(path: Path) -> Place:
        node = root
        for step in path:
            if isinstance(node, MappingNode) and isinstance(step, str) and step in node.entries:
                node = node.entries[step].value
            elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
            else:
                break
        return node.place

    return locate
