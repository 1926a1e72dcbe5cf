"""JSON text: strict, with positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.document import ListNode, MappingNode, Node, Scalar
from ai4s.jobq.definition.json_text import read_json
from ai4s.jobq.definition.scalars import value_of
from ai4s.jobq.definition.tree_builder import TreeBuilder
from ai4s.jobq.errors import DefinitionError
from tests.definition.documents import check_json, loaded, only_problem, problems

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ('{"a": 1,}', "flow.json:1:9: not valid JSON: expected a key in double quotes, found '}'. Remove the comma"),
        ("[1, ]", "flow.json:1:5: [1]: not valid JSON: expected a value, found ']'. Remove the comma"),
        ("{'a': 1}", "JSON strings have double quotes"),
        ("// hi\n{}", "JSON has no comments"),
        ('{"a": NaN}', "flow.json:1:7: a: not valid JSON: expected a value, found 'NaN'"),
        ('{"a": -Infinity}', "found '-Infinity'"),
        ('{"a": 012}', "found '012'"),
        ('{"a": 1_000}', "found '1_000'"),
        ('{"a": .5}', "found '.5'"),
        ('{"a" 1}', "expected ':' after the key"),
        ('{"a": 1 "b": 2}', "expected ',' or '}'"),
        ("[1, 2", "found the end of the file"),
        ('{"a": "x\n"}', "expected a string on one line"),
        ('{"a": "\\x"}', "with JSON's escapes only"),
        ('{"a": 1} {"b": 2}', "expected the end of the file, found '{'"),
        ("[1}", "expected ',' or ']', found '}'"),
        ("name: w\n", "expected a value, found 'name'"),
        ("[" * 5000, "nested deeper than 100 levels"),
    ],
)
def test_bad_json_is_refused_in_one_line(text: str, expected: str) -> None:
    """A05, A07: what Python's parser takes or answers with a traceback."""
    assert expected in only_problem(check_json(text))


def test_problem_has_the_line_and_column_of_its_value() -> None:
    """A05: as precise as in YAML."""
    text = '{\n  "name": "w",\n  "tasks": [\n    {"name": "a", "timeout_s": 0}\n  ]\n}'

    assert only_problem(check_json(text)).startswith("flow.json:4:32: tasks[0].timeout_s: ")


def test_duplicate_key_is_refused_with_both_lines() -> None:
    """A01: in JSON too."""
    found = only_problem(check_json('{"name": "w",\n"tasks": [{"name": "a"}],\n"name": "x"}'))

    assert "duplicate key 'name' (lines 1 and 3)" in found


def test_merge_key_has_no_meaning() -> None:
    """A15: ``<<`` belongs to YAML."""
    found = only_problem(check_json('{"name": "w", "tasks": [{"name": "a", "<<": {"num_retries": 1}}]}'))

    assert "unknown task field '<<'" in found


def test_string_stays_text_and_number_stays_number() -> None:
    """A13: quotes decide the type."""
    (task,) = loaded(
        check_json('{"name": "w", "tasks": [{"name": "5", "kwargs": {"a": "5", "b": 5, "c": 5.0}}]}')
    ).tasks

    assert [type(task.kwargs[key]) for key in "abc"] == [str, int, float]


def test_number_is_no_text() -> None:
    """A10: the names of tasks are strings."""
    found = problems(check_json('{"name": 5, "tasks": [{"name": "a", "depends_on": [1], "kwargs": {"cmd": true}}]}'))

    assert [line.split(": ")[1] for line in found] == ["name", "tasks[0].depends_on[0]", "tasks[0].kwargs.cmd"]


def test_variable_has_the_digits_that_were_written() -> None:
    """A03: env values are text, in JSON as in YAML."""
    text = '{"name": "w", "tasks": [{"name": "a", "kwargs": {"env": {"V": 1.10, "B": true, "T": "x"}}}]}'

    assert loaded(check_json(text)).tasks[0].kwargs["env"] == {"V": "1.10", "B": "true", "T": "x"}


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """B06: such text can be written to no file and given to no process."""
    found = problems(
        check_json('{"name": "w", "tasks": [{"name": "a", "kwargs": {"cmd": "x \\ud800", "y": "\\udfff"}}]}')
    )

    assert ["surrogate" in line for line in found] == [True, True]


def _value(node: Node) -> Any:
    match node:
        case Scalar():
            return value_of(node)
        case ListNode():
            return [_value(item) for item in node.items]
        case MappingNode():
            return {key: _value(entry.value) for key, entry in node.entries.items()}


def _read(text: str) -> Any:
    builder = TreeBuilder()
    read_json(text, builder)
    assert builder.root is not None
    return _value(builder.root)


@given(value=JSON_VALUES, indent=st.sampled_from([None, 2]), ascii_only=st.booleans())
@settings(max_examples=150)
def test_reads_what_the_standard_library_writes(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Values and their types are the same."""
    assert repr(_read(json.dumps(value, indent=indent, ensure_ascii=ascii_only))) == repr(value)


@given(st.text(alphabet='{}[]",:\\ \n\t0123456789.-+eEtruefalsn/u"', max_size=24))
@settings(max_examples=150)
def test_accepts_no_more_than_the_standard_library(text: str) -> None:
    """Whatever is read is JSON to others as well, and whatever is not is refused in our words."""
    try:
        ours = _read(text)
    except (DefinitionError, ValueError):
        return

    assert json.loads(text) == ours
