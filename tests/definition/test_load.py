"""Files and reports, and sizes that matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.fields import MAX_TASKS
from ai4s.jobq.definition.load import (
    Format,
    check_file,
    check_mapping,
    check_text,
    format_of,
    from_mapping,
    load_file,
    load_text,
)
from ai4s.jobq.definition.model import DepPolicy, ResultPolicy, Task, WorkflowDefinition
from ai4s.jobq.errors import DefinitionError
from tests.definition.documents import check_yaml, loaded, only_problem

FULL = """\
# yaml-language-server: $schema=../schemas/workflow-definition.schema.json
name: nightly
default_queue: cpu
default_task_timeout_s: 3600
max_parallelism: 8
result_policy: all_tasks_succeed
tasks:
- name: ingest
  kwargs: {cmd: make ingest, env: {DAY: 01}, cwd: /data, bg_dirsync_to: /backup}
- name: train
  depends_on: [ingest]
  queue: gpu-a100
  dep_policy: any
  timeout_s: 60
  num_retries: 2
  condition: inputs.ingest.rows > 0
"""


def test_every_field_arrives() -> None:
    """A7: the whole surface at once."""
    assert load_text(FULL, source="x", format="yaml") == WorkflowDefinition(
        name="nightly",
        default_queue="cpu",
        default_task_timeout_s=3600,
        max_parallelism=8,
        result_policy=ResultPolicy.ALL_TASKS_SUCCEED,
        tasks=(
            Task(
                name="ingest",
                kwargs={"cmd": "make ingest", "env": {"DAY": "01"}, "cwd": "/data", "bg_dirsync_to": "/backup"},
            ),
            Task(
                name="train",
                depends_on=("ingest",),
                queue="gpu-a100",
                dep_policy=DepPolicy.ANY,
                timeout_s=60,
                num_retries=2,
                condition="inputs.ingest.rows > 0",
            ),
        ),
    )


def test_definition_survives_being_written_as_json() -> None:
    """A7: text, JSON text and mapping mean the same, also to the hash."""
    definition = load_text(FULL, source="x", format="yaml")
    again = load_text(json.dumps(definition.to_json()), source="y", format=Format.JSON)

    assert again == from_mapping(definition.to_json()) == definition
    assert again.digest() == definition.digest()


@pytest.mark.parametrize(
    ("name", "format_"),
    [("a.yaml", "yaml"), ("a.YML", "yaml"), ("a.json", "json"), ("a.txt", "json"), ("a", "json"), ("-", "json")],
)
def test_suffix_decides_the_format(name: str, format_: str) -> None:
    """A7: .yaml and .yml are YAML, anything else is JSON."""
    assert format_of(name) == format_


def test_file_is_loaded(tmp_path: Path) -> None:
    """A7: by its path."""
    path = tmp_path / "flow.yml"
    path.write_text(FULL)

    assert load_file(path).name == "nightly"


def test_problems_name_the_file(tmp_path: Path) -> None:
    """A6: file:line:column, as editors and terminals link it."""
    path = tmp_path / "flow.yaml"
    path.write_text("name: w\ntasks:\n- name: a\n  queue: [x]\n")

    with pytest.raises(DefinitionError) as caught:
        load_file(path)

    assert (
        str(caught.value)
        == f"{path}:4:10: tasks[0].queue: 'queue' must be a string, this is a list. Quote it if text was meant."
    )


def test_missing_file_is_a_problem_of_the_definition(tmp_path: Path) -> None:
    """A05: one line, no traceback."""
    assert only_problem(check_file(tmp_path / "no.yaml")).endswith("no.yaml: cannot be read: No such file or directory")


def test_directory_is_a_problem_of_the_definition(tmp_path: Path) -> None:
    """A05: likewise."""
    assert "cannot be read: Is a directory" in only_problem(check_file(tmp_path))


def test_report_of_a_good_file_has_a_definition_and_its_warnings(tmp_path: Path) -> None:
    """A6: what ``validate`` shows."""
    path = tmp_path / "flow.yaml"
    path.write_text("name: w\ntasks:\n- name: a\n")

    report = check_file(path)

    assert (report.source, loaded(report).name) == (str(path), "w")
    assert [warning.source for warning in report.warnings] == [str(path)]


def test_text_that_cannot_be_encoded_is_refused() -> None:
    """A09: a text given by Python code may hold halves of characters."""
    assert "surrogate" in only_problem(check_yaml("name: \ud800\n"))


def test_too_many_tasks_are_refused_unread() -> None:
    """The cap is told at once."""
    report = check_mapping({"name": "w", "tasks": [None] * (MAX_TASKS + 1)})

    assert "250,001 tasks, at most 250,000 are allowed" in only_problem(report)


def test_chain_of_twenty_thousand_tasks_loads_from_yaml() -> None:
    """C03: reading is as iterative as checking."""
    items = "".join(f"- {{name: t{n}, depends_on: [t{n + 1}]}}\n" for n in range(19_999))

    definition = loaded(check_yaml(f"name: w\ntasks:\n{items}- name: t19999\n"))

    assert definition.roots() == ["t19999"]


FRAGMENTS = [
    *(
        "name: w\n",
        "tasks:\n",
        "- ",
        "name: a\n",
        "  ",
        "depends_on: ",
        "kwargs: ",
        "env: ",
        "cmd: ",
        "condition: ",
        "\n",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        ", ",
        ": ",
        "? ",
        "&x ",
        "*x",
        "<<: ",
        "!!str ",
        "!foo ",
        "'",
        '"',
        "|\n",
        ">\n",
        "#",
        "---\n",
    ),
    *(
        "a",
        "b",
        "12",
        "012",
        "~",
        "true",
        "inputs.a.ok",
        "\t",
        "\r\n",
        "\x00",
        "\x85",
        "\ufeff",
        "é",
        "🏥",
        "%YAML 1.1\n",
    ),
]


@given(
    text=st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join) | st.text(max_size=20) | st.binary(max_size=20),
    format_=st.sampled_from(list(Format)),
)
@settings(max_examples=300)
def test_any_text_gives_a_definition_or_problems(text: str | bytes, format_: Format) -> None:
    """A05: never a traceback, and never neither."""
    report = check_text(text, source="x", format=format_)

    assert (report.definition is None) == bool(report.problems)


@given(
    cuts=st.tuples(st.integers(0, len(FULL)), st.integers(0, len(FULL))).map(sorted),
    insertion=st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
)
@settings(max_examples=200)
def test_damaged_file_gives_a_definition_or_problems(cuts: list[int], insertion: str) -> None:
    """A05: a piece missing, another one in its place."""
    report = check_text(FULL[: cuts[0]] + insertion + FULL[cuts[1] :], source="x", format=Format.YAML)

    assert (report.definition is None) == bool(report.problems)
    assert all("\n" not in str(problem) for problem in report.problems)
