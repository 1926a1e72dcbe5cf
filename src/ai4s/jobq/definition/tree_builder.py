"""Builds a document tree from a stream of scalars, openings and closings.

All readers feed one of these, so depth, duplicate keys, aliases and merge keys are judged in one place. What makes the
document unreadable raises ``DefinitionError``; what does not is collected in ``problems``.

Time and memory are linear in the text: an alias is one reference to a node that exists already. What the document would
be when written out is only counted, and too much of it is refused before anybody expands it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from ai4s.jobq.definition.document import (
    MAX_DEPTH,
    Entry,
    ListNode,
    MappingNode,
    Node,
    Path,
    Place,
    Scalar,
    Style,
    problem_at,
    shown,
)
from ai4s.jobq.errors import DefinitionError, Problem

MAX_ALIASED_COST = 128 * 1024 * 1024  # characters that aliases may add: a shared base in each of 250,000 tasks fits

_MERGE = "<<"


@dataclass(slots=True)
class _Frame:
    """A container that is still open: its anchor, the key that waits for its value, the mappings to merge in."""

    node: ListNode | MappingNode
    anchor: Hashable = None
    key: Scalar | None = None
    merges: list[MappingNode] = field(default_factory=list)
    merge_key: Scalar | None = None

    def is_merging(self) -> bool:
        """Whether the next node is merged into this one, and adds no level of its own."""
        return self.key is not None and self.key.text == _MERGE and self.key.style is Style.PLAIN


class TreeBuilder:
    """Takes the events of one document; afterwards ``root`` is its tree, or None when it was empty."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchored: dict[Hashable, Node] = {}
        self._open_anchors: set[Hashable] = set()
        self._aliased_cost = 0

    def scalar(self, scalar: Scalar, *, anchor: Hashable = None) -> None:
        """Add a scalar: a key where one is due, else a value."""
        if anchor is not None:
            self._anchored[anchor] = scalar
        self._add(scalar)

    def open_list(self, place: Place, *, anchor: Hashable = None) -> None:
        """Begin a list."""
        self._open(ListNode(place), anchor)

    def open_mapping(self, place: Place, *, anchor: Hashable = None) -> None:
        """Begin a mapping; scalars that follow are key, value, key, value."""
        self._open(MappingNode(place), anchor)

    def close(self) -> None:
        """End the innermost open container."""
        frame = self._frames.pop()
        if isinstance(frame.node, MappingNode):
            _merge(frame.node, frame.merges)
        if frame.anchor is not None:
            self._open_anchors.discard(frame.anchor)
            self._anchored[frame.anchor] = frame.node
        self._add(frame.node)

    def alias(self, anchor: Hashable, place: Place) -> None:
        """Add the node of an anchor once more. Raises ``DefinitionError`` when it is unknown, open, or too large."""
        if anchor in self._open_anchors:
            self.refuse(place, "a value contains itself", "Write out what is meant.")
        if anchor not in self._anchored:
            self.refuse(
                place, f"there is no anchor {shown(f'&{anchor}')} before this alias", "Quote it if text was meant."
            )
        node = self._anchored[anchor]
        self._aliased_cost += node.cost
        if self._aliased_cost > MAX_ALIASED_COST:
            self.refuse(place, "written out, the aliases of this document are far too large", "Use fewer aliases.")
        levels = len(self._frames) - (bool(self._frames) and self._frames[-1].is_merging())
        if node.height + levels > MAX_DEPTH:
            self._refuse_depth(place)
        self._add(node)

    def path(self) -> Path:
        """Where the next node goes."""
        steps: list[str | int] = []
        for frame in self._frames:
            if isinstance(frame.node, ListNode):
                steps.append(len(frame.node.items))
            elif frame.key is not None:
                steps.append(frame.key.text)
        return tuple(steps)

    def complain(self, place: Place, message: str, hint: str = "") -> None:
        """Note a problem of the next node and go on."""
        self.problems.append(problem_at(place, self.path(), message, hint))

    def refuse(self, place: Place, message: str, hint: str = "") -> NoReturn:
        """Give the document up: raises ``DefinitionError``."""
        raise DefinitionError([problem_at(place, self.path(), message, hint)])

    def _open(self, node: ListNode | MappingNode, anchor: Hashable) -> None:
        if len(self._frames) >= MAX_DEPTH:
            self._refuse_depth(node.place)
        if anchor is not None:
            self._open_anchors.add(anchor)
        self._frames.append(_Frame(node, anchor))

    def _refuse_depth(self, place: Place) -> NoReturn:
        raise DefinitionError([problem_at(place, self.path()[:8], f"nested deeper than {MAX_DEPTH} levels")])

    def _add(self, node: Node) -> None:
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        container = frame.node
        container.cost += node.cost
        container.height = max(container.height, node.height + (not frame.is_merging()))
        if isinstance(container, ListNode):
            container.items.append(node)
        elif frame.key is None:
            frame.key = self._key(node)
        else:
            self._add_entry(frame, container, frame.key, node)
            frame.key = None

    def _key(self, node: Node) -> Scalar:
        if isinstance(node, Scalar) and node.style is not Style.LITERAL:
            return node
        self.complain(node.place, "a key must be a string", "Quote it if text was meant.")
        return Scalar(f"key at {node.place.line}:{node.place.column}", Style.QUOTED, node.place)

    def _add_entry(self, frame: _Frame, mapping: MappingNode, key: Scalar, value: Node) -> None:
        if frame.is_merging():
            self._add_merge(frame, key, value)
        elif key.text in mapping.entries:
            self._complain_duplicate(key, mapping.entries[key.text].key)
        else:
            mapping.entries[key.text] = Entry(key, value)

    def _add_merge(self, frame: _Frame, key: Scalar, value: Node) -> None:
        if frame.merge_key is not None:
            self._complain_duplicate(key, frame.merge_key)
            return
        frame.merge_key = key
        sources = value.items if isinstance(value, ListNode) else [value]
        frame.merges = [source for source in sources if isinstance(source, MappingNode)]
        if len(frame.merges) != len(sources):
            self.complain(value.place, "'<<' merges a mapping or a list of mappings", "Write <<: *name.")

    def _complain_duplicate(self, key: Scalar, first: Scalar) -> None:
        lines = {first.place.line, key.place.line}
        where = f"lines {first.place.line} and {key.place.line}" if len(lines) > 1 else f"both on line {key.place.line}"
        self.complain(key.place, f"duplicate key {shown(key.text)} ({where})", "Remove one of the two.")


def _merge(mapping: MappingNode, sources: list[MappingNode]) -> None:
    for entry in _entries(sources):
        mapping.entries.setdefault(entry.key.text, entry)


def _entries(sources: list[MappingNode]) -> Iterator[Entry]:
    for source in sources:
        yield from source.entries.values()
