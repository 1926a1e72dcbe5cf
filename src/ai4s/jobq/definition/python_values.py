"""Reads Python values (what ``json.load`` gives) into a document tree without positions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ai4s.jobq.definition.document import NOWHERE, Scalar, Style
from ai4s.jobq.definition.tree_builder import TreeBuilder


def read_value(value: Any, builder: TreeBuilder) -> None:
    """Feed a value to the builder. Raises ``DefinitionError`` for one that contains itself or is nested too deeply.

    A container that occurs several times is treated like a YAML alias: it is read once.
    """
    _Reader(builder).read(value)


class _Reader:
    def __init__(self, builder: TreeBuilder) -> None:
        self._builder = builder
        self._seen: dict[int, Any] = {}  # holds the containers, so that no id is used again while we read

    def read(self, value: Any) -> None:
        if not isinstance(value, Mapping | list | tuple):
            self._builder.scalar(self._scalar(value))
        elif id(value) in self._seen:
            self._builder.alias(id(value), NOWHERE)
        else:
            self._seen[id(value)] = value
            self._container(value)

    def _container(self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> None:
        if isinstance(value, Mapping):
            self._builder.open_mapping(NOWHERE, anchor=id(value))
            for key, item in value.items():
                self.read(key)
                self.read(item)
        else:
            self._builder.open_list(NOWHERE, anchor=id(value))
            for item in value:
                self.read(item)
        self._builder.close()

    def _scalar(self, value: Any) -> Scalar:
        if isinstance(value, str):
            return Scalar(str(value), Style.QUOTED, NOWHERE)
        if isinstance(value, float) and not math.isfinite(value):
            self._builder.complain(NOWHERE, f"{value!r} is no number of JSON")
        elif not isinstance(value, bool | int | float | None):
            self._builder.complain(NOWHERE, f"a {type(value).__name__} is no value of JSON")
        else:
            return self._literal(value)
        return Scalar("null", Style.LITERAL, NOWHERE)

    def _literal(self, value: bool | int | float | None) -> Scalar:
        try:
            return Scalar(json.dumps(value), Style.LITERAL, NOWHERE)
        except ValueError:
            self._builder.complain(
                NOWHERE, "this number has too many digits"
            )  # more than 4,300: Python cannot print it
            return Scalar("0", Style.LITERAL, NOWHERE)
