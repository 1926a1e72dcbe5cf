"""Definitions from Python values: the same rules, without positions."""

from __future__ import annotations

from typing import Any

import pytest

from ai4s.jobq.definition.load import check_mapping, from_mapping
from ai4s.jobq.errors import DefinitionError
from tests.definition.documents import only_problem, problems


def _workflow(**kwargs: Any) -> dict[str, Any]:
    return {"name": "w", "tasks": [{"name": "a", "kwargs": kwargs}]}


def test_definition_survives_its_own_json() -> None:
    """What ``to_json`` writes is legal and means the same."""
    tasks = (
        {"name": "a", "kwargs": {"cmd": "x"}},
        {"name": "b", "depends_on": ("a",), "dep_policy": 1, "queue": "gpu"},
    )
    definition = from_mapping({"name": "w", "max_parallelism": 3, "tasks": tasks})

    assert from_mapping(definition.to_json()) == definition


def test_problem_has_a_path_and_no_position() -> None:
    """There is no file to point into."""
    assert only_problem(check_mapping({"name": "w", "tasks": [{"name": "a", "num_retries": True}]})) == (
        "tasks[0].num_retries: 'num_retries' must be a whole number from 0 to 1,000, this is true"
    )


def test_error_holds_all_problems() -> None:
    """B2: one report."""
    with pytest.raises(DefinitionError) as caught:
        from_mapping({"nam": "w", "tasks": [{"name": "a", "queue": 3}, {"name": "a"}]})

    assert [problem.path for problem in caught.value.problems] == ["nam", "tasks[0].queue", "", "tasks[1].name"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (object(), "a object is no value of JSON"),
        (b"x", "a bytes is no value of JSON"),
        (float("nan"), "nan is no number of JSON"),
        (10**5000, "too many digits"),
        (10**2000, "2001 digits"),
        ({1: 2}, "a key must be a string"),
        ("\ud800", "surrogate"),
    ],
    ids=["object", "bytes", "nan", "huge", "large", "key", "surrogate"],
)
def test_value_that_is_no_json_is_refused(value: Any, expected: str) -> None:
    """A13: said when the definition is made, not when it is sent."""
    assert expected in problems(check_mapping(_workflow(x=value)))[0]


def test_value_that_contains_itself_is_refused() -> None:
    """A07: the same as a recursive alias."""
    endless: list[Any] = []
    endless.append(endless)

    assert "contains itself" in only_problem(check_mapping(_workflow(x=endless)))


def test_shared_value_is_copied_for_each_task() -> None:
    """A15: changing the kwargs of one task changes no other, and not the caller's."""
    env = {"A": "1"}
    shared = {"env": env}
    first, second = from_mapping({"name": "w", "tasks": [{"name": n, "kwargs": shared} for n in "ab"]}).tasks

    first.kwargs["env"]["A"] = "2"

    assert (second.kwargs["env"], env) == ({"A": "1"}, {"A": "1"})


def test_sharing_that_would_explode_is_refused() -> None:
    """A06: the alias bomb, made of Python lists."""
    bomb: list[Any] = ["lol"]
    for _ in range(60):
        bomb = [bomb, bomb]

    assert "far too large" in only_problem(check_mapping(_workflow(x=bomb)))
