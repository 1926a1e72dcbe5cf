"""Reads YAML text into a document tree.

Works on the parser's events, never on PyYAML's constructors: nothing is built by tag, so no file can run code, and no
resolver rewrites what the user wrote. libyaml does the scanning where PyYAML was built with it, about twenty times
quicker than the pure parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from ai4s.jobq.definition.document import NOWHERE, Place, Scalar, Style, shown
from ai4s.jobq.definition.tree_builder import TreeBuilder

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CORE = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset(("!", f"{_CORE}str"))
_VALUE_TAGS = frozenset(f"{_CORE}{kind}" for kind in ("int", "float", "bool", "null", "merge"))
_LIST_TAGS = frozenset(("!", f"{_CORE}seq"))
_MAPPING_TAGS = frozenset(("!", f"{_CORE}map"))

# YAML 1.1, 5.1. Checked here, because the parsers count the position of such a character differently.
_NOT_YAML = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDICATORS = "%@`*&!|>{}[]"


def read_yaml(text: str, builder: TreeBuilder, *, parser: Any = PARSER) -> None:
    """Feed the one document of this text to the builder. Raises ``DefinitionError`` when it is no readable YAML."""
    if odd := _NOT_YAML.search(text):
        place = _place_of_index(text, odd.start())
        builder.refuse(place, f"the character U+{ord(odd.group()):04X} is not allowed in YAML", "Remove it.")
    try:
        for event in _one_document(yaml.parse(text, Loader=parser), builder):
            _feed(event, builder)
    except yaml.MarkedYAMLError as exc:
        _refuse_syntax(exc, text, builder)


def _one_document(events: Iterator[Any], builder: TreeBuilder) -> Iterator[Any]:
    documents = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                place = _place(event.start_mark)
                builder.refuse(place, "a second document begins here, one file holds one workflow", "Split the file.")
        yield event


def _feed(event: Any, builder: TreeBuilder) -> None:
    match event:
        case yaml.ScalarEvent():
            place = _place(event.start_mark)
            builder.scalar(Scalar(event.value, _style(event, place, builder), place), anchor=event.anchor)
        case yaml.MappingStartEvent():
            place = _place(event.start_mark)
            _check_tag(event.tag, _MAPPING_TAGS, place, builder)
            builder.open_mapping(place, anchor=event.anchor)
        case yaml.SequenceStartEvent():
            place = _place(event.start_mark)
            _check_tag(event.tag, _LIST_TAGS, place, builder)
            builder.open_list(place, anchor=event.anchor)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            builder.close()
        case yaml.AliasEvent():
            builder.alias(event.anchor, _place(event.start_mark))


def _style(event: Any, place: Place, builder: TreeBuilder) -> Style:
    tag = event.tag
    if tag is None:
        return Style.PLAIN if event.implicit[0] else Style.QUOTED
    if tag in _VALUE_TAGS:
        return Style.PLAIN
    _check_tag(tag, _TEXT_TAGS, place, builder)
    return Style.QUOTED


def _check_tag(tag: str | None, allowed: frozenset[str], place: Place, builder: TreeBuilder) -> None:
    if tag is None or tag in allowed:
        return
    name = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
    builder.complain(place, f"the tag {shown(name)} is not allowed here", "Quote it if text was meant.")


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _place_of_index(text: str, index: int) -> Place:
    return Place(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _refuse_syntax(exc: yaml.MarkedYAMLError, text: str, builder: TreeBuilder) -> None:
    mark = exc.problem_mark
    if mark is None:
        builder.refuse(NOWHERE, f"not valid YAML: {exc.problem or exc}")
    what = ", ".join(part for part in (exc.context, exc.problem) if part)
    index = min(mark.index, len(text))
    builder.refuse(_place(mark), f"not valid YAML: {what}", _hint(text, index))


def _hint(text: str, index: int) -> str:
    here = text[index : index + 1]
    before = text[index - 1 : index] if index else ""
    if here == "\t":
        return "Indent with blanks, not with tabs."
    if here == ":":
        return "Quote a text that holds ': ', and check the indentation."
    if (here and here in _INDICATORS) or (before and before in _INDICATORS):
        return "Quote a text that begins with such a character."
    return ""
