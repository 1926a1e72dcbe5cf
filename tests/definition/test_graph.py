"""The graph: names, parents, cycles, policies, conditions; of any depth and width."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.cycles import find_cycles
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.validate import validate
from ai4s.jobq.errors import Problem
from tests.definition.documents import check_tasks, check_yaml, only_problem, problems, tasks_of


def _chain(length: int) -> list[Task]:
    return [Task(name=f"t{n}", depends_on=(f"t{n - 1}",) if n else ()) for n in range(length)]


def _validate(*tasks: Task) -> list[Problem]:
    return validate(WorkflowDefinition(name="w", tasks=tasks))


def test_cycle_is_drawn_beside_healthy_tasks() -> None:
    """C01: in running order, at the depends_on of its first task."""
    found = only_problem(
        check_tasks(
            "- name: root\n- {name: a, depends_on: [root, c]}\n- {name: b, depends_on: [a]}\n- {name: c, depends_on: [b]}\n"
        )
    )

    assert found.startswith("flow.yaml:4:25: tasks[1].depends_on: Cycle detected: a -> b -> c -> a.")


def test_self_dependency_is_refused() -> None:
    """C01: a cycle of one."""
    assert "tasks[0].depends_on[0]: task 'a' depends on itself" in only_problem(
        check_tasks("- {name: a, depends_on: [a]}\n")
    )


def test_separate_cycles_are_all_reported() -> None:
    """C01, B2: one line for each knot."""
    found = problems(
        check_tasks("".join(f"- {{name: {a}, depends_on: [{b}]}}\n" for a, b in ("ab", "ba", "cd", "dc", "ec")))
    )

    assert ["a -> b -> a" in found[0], "c -> d -> c" in found[1], len(found)] == [True, True, 2]


def test_cycle_that_is_reached_through_a_condition_is_reported() -> None:
    """C01: conditions read parents only, so they can hide no edge."""
    found = only_problem(
        check_tasks(
            "- {name: a, depends_on: [b], condition: inputs.b.ok}\n- {name: b, depends_on: [a], condition: inputs.a.ok}\n"
        )
    )

    assert "Cycle detected: a -> b -> a" in found


def test_long_cycle_is_drawn_short() -> None:
    """C01, C03: fifty thousand names help nobody."""
    tasks = _chain(50_000)
    tasks[0] = Task(name="t0", depends_on=("t49999",))

    (problem,) = _validate(*tasks)

    assert "t0 -> t1 -> t2 -> t3 -> t4 -> t5 -> (49988 more) -> t49994" in problem.message
    assert problem.message.endswith("-> t49999 -> t0.")


@given(st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=8, max_size=8))
@settings(max_examples=150)
def test_cycles_found_are_real_and_none_is_overlooked(parents: list[list[int]]) -> None:
    """C01: checked against peeling off tasks that could run."""
    cycles = find_cycles(parents)

    waiting = set(range(8))
    while runnable := {node for node in waiting if not waiting.intersection(parents[node])}:
        waiting -= runnable
    for cycle in cycles:
        assert all(before in parents[node] for before, node in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert bool(cycles) == bool(waiting)
    assert len({node for cycle in cycles for node in cycle}) == sum(map(len, cycles))


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ("[train, train]", "'train' is in this list already. Remove one of the two."),
        ("[Train]", "task 'b' depends on 'Train' which does not exist. Did you mean 'train'?"),
        ("[trian]", "task 'b' depends on 'trian' which does not exist. Did you mean 'train'?"),
        ("[missing]", "task 'b' depends on 'missing' which does not exist"),
        ("['']", "a task name has 1 to 255 characters"),
    ],
)
def test_wrong_parent_is_refused(parents: str, expected: str) -> None:
    """C02: each with its place in the list."""
    found = only_problem(check_tasks(f"- name: train\n- {{name: b, depends_on: {parents}}}\n"))

    assert expected in found
    assert "tasks[1].depends_on[" in found


def test_empty_list_of_parents_is_a_root() -> None:
    """C02: ``[]`` is the default."""
    assert tasks_of("- {name: a, depends_on: []}\n")[0].depends_on == ()


def test_second_task_of_a_name_is_refused_with_both_lines() -> None:
    """C02: it does not replace the first."""
    found = only_problem(check_tasks("- name: a\n- name: b\n- name: a\n"))

    assert found.startswith(
        "flow.yaml:5:9: tasks[2].name: Duplicate task name: 'a' is also the name of tasks[0] (line 3)."
    )


def test_all_mistakes_are_reported_in_the_order_of_the_file() -> None:
    """B2, C02: of fields and of the graph together."""
    found = problems(
        check_yaml(
            "name: w\n"
            "max_paralellism: 3\n"
            "tasks:\n"
            "- {name: a, num_retries: -1}\n"
            "- {name: b, depends_on: [null, nope, a], condition: inputs.nope.x}\n"
            "- {name: a}\n"
            "- {name: c, depends_on: [a], dep_policy: 2, condition: 1 + 1}\n"
            "default_queue: X\n"
        )
    )

    assert [line.split(": ")[:2] for line in found] == [
        ["flow.yaml:2:1", "max_paralellism"],
        ["flow.yaml:4:26", "tasks[0].num_retries"],
        ["flow.yaml:5:26", "tasks[1].depends_on[0]"],
        ["flow.yaml:5:32", "tasks[1].depends_on[1]"],
        ["flow.yaml:6:10", "tasks[2].name"],
        ["flow.yaml:7:42", "tasks[3].dep_policy"],
        ["flow.yaml:7:56", "tasks[3].condition"],
        ["flow.yaml:8:16", "default_queue"],
    ]


def test_mistake_in_a_name_is_reported_once() -> None:
    """B2: those who depend on it are right."""
    assert "no blank at its ends" in only_problem(check_tasks("- name: 'a '\n- {name: b, depends_on: []}\n"))


def test_many_unknown_parents_are_reported_quickly() -> None:
    """B2: looking for near names is bounded; the first ones get a hint, all get their line."""
    names = [f"task_{n:06}" for n in range(3000)]
    found = _validate(*(Task(name=name, depends_on=(f"{name}x",)) for name in names))

    assert len(found) == 3000
    assert found[0].hint.startswith("Did you mean 'task_000000'")
    assert found[-1].hint == ""


@pytest.mark.parametrize("number", [3, 4, 250_000])
def test_policy_number_is_at_most_the_number_of_parents(number: int) -> None:
    """A8: more can never succeed."""
    found = only_problem(
        check_tasks(f"- name: a\n- name: b\n- {{name: c, depends_on: [a, b], dep_policy: {number}}}\n")
    )

    assert f"dep_policy={number} but only 2 dependencies" in found


def test_chain_of_fifty_thousand_tasks_is_legal() -> None:
    """C03: nothing recurses over the graph."""
    definition = WorkflowDefinition(name="w", tasks=tuple(reversed(_chain(50_000))))

    assert validate(definition) == []


def test_join_of_ten_thousand_parents_is_legal() -> None:
    """C04: wide is as good as deep."""
    parents = [Task(name=f"t{n}") for n in range(10_000)]
    join = Task(name="join", depends_on=tuple(task.name for task in parents), condition="count(inputs.*.ok) >= 1")

    assert _validate(*parents, join) == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("inputs.sibling.ok", "not in depends_on: ['sibling']"),
        ("inputs.child.ok", "not in depends_on: ['child']"),
        ("inputs.b.ok", "not in depends_on: ['b']"),
        ("inputs.nowhere.ok", "not in depends_on: ['nowhere']"),
        ("inputs.parnt.ok", "Did you mean 'parent'?"),
        ("inputs.parent.ok and inputs.sibling.ok", "not in depends_on: ['sibling']"),
    ],
)
def test_condition_reads_parents_only(condition: str, expected: str) -> None:
    """I06: anything else would depend on timing."""
    found = only_problem(
        check_tasks(
            "- name: parent\n- name: sibling\n"
            f"- {{name: b, depends_on: [parent], condition: {condition}}}\n- {{name: child, depends_on: [b]}}\n"
        )
    )

    assert found.startswith("flow.yaml:5:")
    assert "tasks[2].condition: Condition references tasks" in found
    assert expected in found


def test_condition_without_parents_is_refused() -> None:
    """I06: there is nothing it could read."""
    assert "a condition requires at least one dependency" in only_problem(
        check_tasks("- {name: a, condition: inputs.b.ok}\n")
    )


def test_validate_reports_a_hand_made_definition_without_positions() -> None:
    """B2: the Python API gets the same words."""
    found = _validate(Task(name="a", depends_on=("a", "b", "b")), Task(name="b"), Task(name="b"))

    assert [str(problem) for problem in found] == [
        "tasks[2].name: Duplicate task name: 'b' is also the name of tasks[1]. Names are unique, rename one of the two.",
        "tasks[0].depends_on[0]: task 'a' depends on itself",
        "tasks[0].depends_on[2]: 'b' is in this list already. Remove one of the two.",
    ]
