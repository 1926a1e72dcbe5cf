"""Values of params in a file: ``--params-file``. They keep their types; ``params.bind`` checks them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from ai4s.jobq.definition.json_text import read_json
from ai4s.jobq.definition.load import Format, decode, format_of
from ai4s.jobq.definition.read import Reader
from ai4s.jobq.definition.rules import Free
from ai4s.jobq.definition.tree_builder import TreeBuilder
from ai4s.jobq.definition.yaml_text import read_yaml
from ai4s.jobq.errors import DefinitionError, Problem


def read_params_file(path: FilePath | str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file (by its suffix, as for definitions). Raises ``DefinitionError``."""
    builder, reader = TreeBuilder(), Reader()
    try:
        text = decode(FilePath(path).read_bytes())
        read = read_yaml if format_of(path) is Format.YAML else read_json
        read(text, builder)
    except OSError as exc:
        raise _wrong(path, Problem(message=f"cannot be read: {exc.strerror or exc}")) from exc
    except DefinitionError as exc:
        raise _wrong(path, *builder.problems, *exc.problems) from exc
    values = None if builder.root is None else reader.read(builder.root, Free(), ())
    if problems := [*builder.problems, *reader.problems]:
        raise _wrong(path, *problems)
    if not isinstance(values, dict):
        raise _wrong(path, Problem(message="it must hold a mapping from names of params to values"))
    return values


def _wrong(path: FilePath | str, *problems: Problem) -> DefinitionError:
    return DefinitionError([replace(problem, source=str(path)) for problem in problems])
