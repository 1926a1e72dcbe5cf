"""The page about definitions: its examples are loaded, its tables are compared with what the program does."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from ai4s.jobq.definition import fields, labels, part_fields
from ai4s.jobq.definition.builder import Workflow
from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.definition.rules import Record
from ai4s.jobq.engine.policy import Verdict, judge
from tests.definition.documents import check_yaml, loaded, problems

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
GOOD = [example for example in EXAMPLES if not example.startswith("# error:")]
BAD = [example for example in EXAMPLES if example.startswith("# error:")]


def _name(example: str) -> str:
    found = re.search(r"^name: (.*)$", example, re.MULTILINE)
    return found[1] if found else example


@pytest.mark.parametrize("example", GOOD, ids=_name)
def test_example_is_a_legal_workflow(example: str) -> None:
    """Whoever copies it has something that works, and nothing to be warned about."""
    report = check_yaml(example)

    assert loaded(report).tasks
    assert report.warnings == ()


@pytest.mark.parametrize("example", BAD, ids=_name)
def test_example_of_a_mistake_is_refused_with_the_words_of_the_page(example: str) -> None:
    """One mistake each, and the message says what the page says."""
    expected = example.split("\n", 1)[0].removeprefix("# error:").strip()
    (found,) = problems(check_yaml(example))

    assert expected in found


@pytest.mark.parametrize(
    "record",
    [fields.WORKFLOW, fields.TASK, part_fields.JOB, part_fields.RETRY, part_fields.WAIT_FOR, part_fields.PARAM],
    ids=lambda record: record.noun,
)
def test_every_field_is_on_the_page(record: Record) -> None:
    """The page is the reference of all of them."""
    assert [field.name for field in record.fields if f"`{field.name}`" not in PAGE] == []


@pytest.mark.parametrize("record", [fields.WORKFLOW, fields.TASK], ids=lambda record: record.noun)
def test_every_field_has_an_example(record: Record) -> None:
    """In one of the examples that are loaded."""
    examples = "\n".join(GOOD)

    assert [
        field.name for field in record.fields if not re.search(rf"\b{field.name}: ", examples.replace(":\n", ": \n"))
    ] == []


def _policy_table() -> dict[tuple[str, ...], dict[str, str]]:
    """{states of the parents: {policy: what becomes of the task}}."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    header = next(row for row in rows if row[:2] == ["parents", "all"])
    return {
        tuple(row[0].split()): dict(zip(header[1:], row[1:], strict=True))
        for row in rows
        if row[0] and set(row[0].split()) <= {"C", "S", "B"}
    }


def _verdict(policy: str, parents: tuple[str, ...]) -> str:
    count = Counter(parents)
    if policy == "2" and len(parents) < 2:
        return "–"
    meaning = int(policy) if policy == "2" else DepPolicy(policy)
    verdict = judge(meaning, parents=len(parents), completed=count["C"], skipped=count["S"], failed=count["B"])
    return {Verdict.RUN: "run", Verdict.SKIP: "skip", Verdict.FAIL: "fail"}[verdict]


def test_table_of_policies_is_complete() -> None:
    """A8, B3: all states of one to three parents, all policies."""
    table = _policy_table()

    assert list(table) == [states for count in (1, 2, 3) for states in combinations_with_replacement("CSB", count)]
    assert {frozenset(row) for row in table.values()} == {frozenset([*map(str, DepPolicy), "2"])}


@pytest.mark.parametrize("parents", _policy_table(), ids=" ".join)
def test_table_of_policies_is_what_the_engine_does(parents: tuple[str, ...]) -> None:
    """A8, B3: by the rule that the engine itself goes by."""
    row = _policy_table()[parents]

    assert row == {policy: _verdict(policy, parents) for policy in row}


def test_python_example_builds_a_legal_workflow() -> None:
    """B21: it is run."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Workflow] = {}

    exec(example, names)  # the page is ours, and this is what its reader does

    definition = names["wf"].definition()
    assert {task.name: task.depends_on for task in definition.tasks} == {
        "ingest": (),
        "train[seed=1]": ("ingest",),
        "train[seed=2]": ("ingest",),
        "lint": ("ingest",),
        "test": ("ingest",),
        "report": ("train[seed=1]", "train[seed=2]", "lint", "test"),
    }


def test_limits_on_the_page_are_the_real_ones() -> None:
    """A number that is wrong is worse than none."""
    assert f"| {fields.MAX_TASKS:,} |" in PAGE
    assert f"| {part_fields.MAX_TIMEOUT_S:,} (a year) |" in PAGE
    assert f"| {part_fields.MAX_RETRIES:,} |" in PAGE
    assert f"| {fields.MAX_PARAMS}; {part_fields.MAX_AXES}; {labels.MAX_LABELS} |" in PAGE
