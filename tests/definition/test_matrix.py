"""Tasks with a matrix: what they become, and what is wrong with them."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.expressions import parse
from ai4s.jobq.definition.load import check_mapping, from_mapping
from ai4s.jobq.definition.model import canonical_json
from ai4s.jobq.definition.params import bind
from ai4s.jobq.definition.parts import Job, WaitFor
from ai4s.jobq.definition.references import render_kwargs, with_params
from tests.definition.documents import check_tasks, check_yaml, loaded, only_problem, problems, tasks_of


def _values(count: int) -> str:
    return f"[{', '.join(map(str, range(count)))}]"


def test_task_becomes_one_for_each_combination() -> None:
    """B21: axes and values in file order, the last axis quickest, values as written."""
    tasks = tasks_of("- {name: train, matrix: {lr: [0.10, 1e-3], opt: [adam, 's g d']}}\n")

    assert [task.name for task in tasks] == [
        "train[lr=0.10,opt=adam]",
        "train[lr=0.10,opt=s g d]",
        "train[lr=1e-3,opt=adam]",
        "train[lr=1e-3,opt=s g d]",
    ]


def test_values_are_put_into_every_string_of_the_task() -> None:
    """B21: alone they keep their type, in a text they are as written."""
    (task,) = tasks_of(
        """\
- name: t
  matrix: {n: [1e2], s: ["a b"]}
  queue: gpu-${{ matrix.n }}
  kwargs:
    cmd: run --n ${{ matrix.n }} --s ${{ matrix.s }} ${{ raw(matrix.s) }}
    env: {N: "${{ matrix.n }}", S: "${{ matrix.s }}"}
    cwd: /data/${{ matrix.s }}
    value: ${{ matrix.n }}
    list: ["${{ matrix.n > 5 }}", "<${{ matrix.n }}>", "$${{ matrix.n }}"]
  undo: {cmd: "rm ${{ matrix.s }}", queue: "q${{ matrix.n }}"}
"""
    )

    assert task.queue == "gpu-1e2"
    assert task.undo == Job(kwargs={"cmd": "rm 'a b'"}, queue="q1e2")
    assert render_kwargs(task.kwargs, params={}, outputs={}) == {
        "cmd": "run --n 1e2 --s 'a b' a b",
        "env": {"N": "1e2", "S": "a b"},
        "cwd": "/data/a b",
        "value": 100.0,
        "list": [True, "<1e2>", "${{ matrix.n }}"],
    }


def test_other_references_of_the_task_stay() -> None:
    """B21: and an expression that reads both keeps the value of the matrix in it."""
    definition = loaded(
        check_yaml(
            """\
name: w
params: {lr: 0.1}
tasks:
- name: a
- name: t
  depends_on: [a]
  matrix: {n: [1, x"y]}
  kwargs: {v: "${{ [matrix.n, params.lr, tasks.a.output, matrix.n == 'é', matrix.n] }}"}
"""
        )
    )

    assert [
        render_kwargs(task.kwargs, params={"lr": 2}, outputs={"a": 3})["v"]
        for task in with_params(definition).tasks[1:]
    ] == [[1, 2, 3, False, 1], ['x"y', 2, 3, False, 'x"y']]


def test_condition_and_parents_may_name_the_value() -> None:
    """B21: so one chain of tasks belongs to each value."""
    tasks = tasks_of(
        """\
- {name: train, matrix: {lr: [1e-3, 0.10]}}
- name: eval
  matrix: {lr: [1e-3, 0.10]}
  depends_on: ["train[lr=${{ matrix.lr }}]"]
  condition: inputs["train[lr=${{ matrix.lr }}]"].mae < ${{ matrix.lr }}
"""
    )

    assert [task.depends_on for task in tasks[2:]] == [("train[lr=1e-3]",), ("train[lr=0.10]",)]
    assert [task.condition for task in tasks[2:]] == [
        'inputs["train[lr=1e-3]"].mae < 1e-3',
        'inputs["train[lr=0.10]"].mae < 0.10',
    ]


def test_whole_matrix_and_one_of_its_tasks_may_be_parents() -> None:
    """B21: the whole name stands for all, in order, among other parents."""
    tasks = tasks_of(
        "- name: a\n- {name: t, matrix: {x: [1, 2]}}\n- {name: all, depends_on: [a, t]}\n- {name: one, depends_on: ['t[x=2]', a]}\n"
    )

    assert [task.depends_on for task in tasks[3:]] == [("a", "t[x=1]", "t[x=2]"), ("t[x=2]", "a")]


def test_matrix_after_a_matrix_waits_for_all_of_it() -> None:
    """B21: whole names mean whole matrices, in a matrix too."""
    tasks = tasks_of("- {name: t, matrix: {x: [1, 2]}}\n- {name: u, depends_on: [t], matrix: {y: [3, 4]}}\n")

    assert [task.depends_on for task in tasks] == [(), (), ("t[x=1]", "t[x=2]"), ("t[x=1]", "t[x=2]")]


def test_matrix_may_be_named_before_it_is_written() -> None:
    """The order of tasks in the file means nothing."""
    assert tasks_of("- {name: j, depends_on: [t]}\n- {name: t, matrix: {x: [1, 2]}}\n")[0].depends_on == (
        "t[x=1]",
        "t[x=2]",
    )


def test_numbers_of_a_policy_count_the_expanded_parents() -> None:
    """A8, B21: at least 2 of the 3 tasks of one matrix."""
    text = "- {{name: t, matrix: {{x: [1, 2, 3]}}}}\n- {{name: j, depends_on: [t], dep_policy: {}}}\n"

    assert tasks_of(text.format(3))[-1].dep_policy == 3
    assert "dep_policy=4 but only 3 dependencies" in only_problem(check_tasks(text.format(4)))


def test_patterns_of_a_condition_see_the_expanded_names() -> None:
    """A9, B21: globs are over the tasks there are."""
    task = tasks_of(
        "- {name: t, matrix: {x: [1, 2], y: [1, 2]}}\n"
        "- {name: j, depends_on: [t], condition: 'all(inputs[\"t[x=1,*\"].ok)'}\n"
    )[-1]

    assert task.condition is not None
    assert parse(task.condition, parents=task.depends_on).parents() == ("t[x=1,y=1]", "t[x=1,y=2]")


def test_signal_may_be_one_for_each_value() -> None:
    """B14, B21: an approval per site."""
    tasks = tasks_of("- {name: ok, matrix: {site: [a, b]}, wait_for: {signal: 'go-${{ matrix.site }}'}}\n")

    assert [task.wait_for for task in tasks] == [WaitFor(signal="go-a"), WaitFor(signal="go-b")]


def test_outputs_of_single_tasks_can_be_read() -> None:
    """B13, B21: a join reads three of many."""
    text = "- {{name: t, matrix: {{x: [1, 2]}}}}\n- {{name: j, depends_on: [t], kwargs: {{v: '{}'}}}}\n"

    assert tasks_of(text.format('${{ tasks["t[x=2]"].output.y }}'))
    assert "the output of 't' cannot be read as one, it is a task with a matrix. Read one of its tasks" in only_problem(
        check_tasks(text.format("${{ tasks.t.output.y }}"))
    )


def test_output_of_the_one_parent_chosen_by_the_values_is_read_by_its_whole_name() -> None:
    """B13, B21: in a chain for each value, every task reads its own predecessor."""
    tasks = tasks_of(
        """\
- {name: train, matrix: {lr: [0.1, "é"]}}
- {name: other, matrix: {lr: [1, 2]}}
- name: eval
  matrix: {lr: [0.1, "é"]}
  depends_on: ["train[lr=${{ matrix.lr }}]"]
  kwargs: {v: "${{ [matrix.lr, tasks.train.output.x, tasks['train'].output] }}"}
"""
    )

    assert [
        render_kwargs(task.kwargs, params={}, outputs={task.depends_on[0]: {"x": 7}})["v"] for task in tasks[4:]
    ] == [[0.1, 7, {"x": 7}], ["é", 7, {"x": 7}]]


def test_undo_job_of_a_matrix_reads_the_output_of_its_own_task() -> None:
    """B7, B21: by the name that is written."""
    task = tasks_of("- {name: t, matrix: {x: [1]}, undo: {cmd: 'rm ${{ tasks.t.output.path }}'}}\n")[0]

    assert task.undo is not None
    assert render_kwargs(task.undo.kwargs, params={}, outputs={"t[x=1]": {"path": "/p"}}) == {"cmd": "rm /p"}


def test_output_of_a_task_itself_cannot_be_read_outside_of_its_undo() -> None:
    """B13: in a matrix as elsewhere."""
    assert "cannot be read as one" in only_problem(
        check_tasks("- {name: t, matrix: {x: [1]}, kwargs: {v: '${{ tasks.t.output }}'}}\n")
    )


def test_two_parents_of_one_matrix_cannot_be_read_by_its_whole_name() -> None:
    """B21: it would be unclear which is meant."""
    assert "the output of 't' cannot be read as one" in only_problem(
        check_tasks(
            "- {name: t, matrix: {x: [1, 2], y: [1, 2]}}\n- name: u\n  matrix: {x: [1, 2]}\n"
            "  depends_on: ['t[x=${{ matrix.x }},y=1]', 't[x=${{ matrix.x }},y=2]']\n  kwargs: {v: '${{ tasks.t.output }}'}\n"
        )
    )


def test_expanded_definition_is_written_as_its_tasks() -> None:
    """B1: what is stored has no matrix, and reads back as the same."""
    definition = loaded(
        check_tasks(
            "- {name: t, matrix: {x: [1, '${{ y }}']}, kwargs: {cmd: 'run ${{ matrix.x }}', v: '${{ matrix.x }}'}}\n- {name: j, depends_on: [t]}\n"
        )
    )

    assert from_mapping(definition.to_json()) == definition


def test_value_that_looks_like_a_reference_stays_what_it_is() -> None:
    """B13, B21: nothing is rendered twice."""
    definition = loaded(
        check_yaml(
            "name: w\nparams: {p: secret}\ntasks:\n- name: t\n  matrix: {x: ['${{ params.p }}', '$', '{{ params.p }}']}\n"
            "  kwargs: {v: '${{ matrix.x }}', w: 'a${{ matrix.x }}b', cmd: 'run ${{ matrix.x }}'}\n"
        )
    )

    rendered = [
        render_kwargs(task.kwargs, params={"p": "secret"}, outputs={}) for task in with_params(definition).tasks
    ]

    assert [kwargs["v"] for kwargs in rendered] == ["${{ params.p }}", "$", "{{ params.p }}"]
    assert "secret" not in json.dumps(rendered)


@pytest.mark.parametrize(
    ("fields", "place", "expected"),
    [
        ("matrix: {}", "matrix", "'matrix' must not be empty"),
        ("matrix: [1]", "matrix", "'matrix' must be a mapping, this is a list"),
        ("matrix: {x: []}", "matrix.x", "'x' must not be empty"),
        ("matrix: {x: 1}", "matrix.x", "'x' must be a list of values, this is 1"),
        ("matrix: {x: [[1]]}", "matrix.x[0]", "this item must be a string, a number or a truth value, this is a list"),
        ("matrix: {x: [~]}", "matrix.x[0]", "this is null"),
        ("matrix: {x: [1e999]}", "matrix.x[0]", "larger than any that can be stored"),
        ("matrix: {x: [1, 2, 1]}", "matrix.x[2]", "'1' is in this list already. Remove one of the two."),
        ("matrix: {x: [1, '1']}", "matrix.x[1]", "'1' is in this list already"),
        ("matrix: {1x: [1]}", "matrix['1x']", "such a name has 1 to 64 letters, digits and underscores"),
        ('matrix: {x: ["a\\nb"]}', "matrix", "a task name is printable text"),
        (f"matrix: {{x: [{'y' * 260}]}}", "matrix", "a task name has 1 to 255 characters"),
        (f"matrix: {{{', '.join(f'a{n}: [1]' for n in range(17))}}}", "matrix", "17 axes, at most 16 are allowed"),
        ("matrix: {x: [1]}, kwargs: {v: '${{ matrix.y }}'}", "kwargs.v", "this matrix has no axis 'y'. It has: x."),
        ("matrix: {seed: [1]}, kwargs: {v: '${{ matrix.sed }}'}", "kwargs.v", "Did you mean 'seed'?"),
        ("matrix: {x: [1]}, kwargs: {v: '${{ matrix.x < \"a\" }}'}", "kwargs.v", "cannot be compared by <"),
        ("matrix: {x: [1]}, kwargs: {v: '${{ matrix.x'}", "kwargs.v", "has no end"),
        ("matrix: {x: [1, 2]}, kwargs: {cmd: 'run \"${{ matrix.x }}\"'}", "kwargs.cmd", 'stands inside "…"'),
        ("matrix: {x: [1, 2]}, kwargs: {v: '${{ params.p }}'}", "kwargs.v", "there is no param 'p'"),
        ("matrix: {x: [1, 2]}, kwargs: {v: '${{ tasks.a.output }}'}", "kwargs.v", "cannot be read here"),
        ("matrix: {x: [1, 2]}, depends_on: [b]", "depends_on[0]", "'t[x=1]' depends on 'b' which does not exist"),
        ("matrix: {x: [1, 2]}, depends_on: ['t[x=1]']", "depends_on", "depends on itself"),
        ("matrix: {x: [1, 2]}, depends_on: ['${{ params.x }}']", "depends_on[0]", "only the matrix can be read here"),
        ("matrix: {x: [1, 2]}, depends_on: [a], condition: inputs.b", "condition", "not in depends_on: ['b']"),
        (
            "matrix: {x: [1, 2]}, depends_on: [a], condition: 'inputs.a == ${{ params.x }}'",
            "condition",
            "only the matrix",
        ),
        (
            "matrix: {x: [a, b]}, depends_on: [a], condition: 'inputs.a == ${{ matrix.x }}'",
            "condition",
            "Unknown variable: 'a'",
        ),
        ("matrix: {x: [123, GPU, G2]}, queue: 'q-${{ matrix.x }}'", "queue", "'q-GPU': a queue name has"),
        ("matrix: {x: [GPU]}, queue: 'q-${{ matrix.x }}'", "queue", "'q-GPU': a queue name has"),
        (
            "matrix: {x: ['a b']}, wait_for: {signal: '${{ matrix.x }}'}",
            "wait_for.signal",
            "'a b': the name of a signal",
        ),
        (f"matrix: {{x: [1]}}, kwargs: {{v: '{'é' * 50_000}'}}", "", "bytes as JSON, at most 256 KiB"),
    ],
)
def test_mistake_in_a_matrix_is_reported_once_with_its_place(fields: str, place: str, expected: str) -> None:
    """B2, B21: however many tasks it would become."""
    if "'q-GPU': a queue name has" in expected:
        expected = "a queue name has"
    report = check_tasks(f"- name: a\n- {{name: t, {fields}}}\n")
    found = problems(report)

    assert expected in found[0]
    assert found[0].startswith("flow.yaml:4:")
    assert f": tasks[1]{'.' if place else ''}{place}" in found[0]
    assert len(found) == 1 or "depends_on: ['t[x=1]']" in fields


def test_same_name_for_a_matrix_and_a_task_is_refused() -> None:
    """B21: else it would be unclear who is meant."""
    assert "'t' is also the name of another task. Rename one of the two." in only_problem(
        check_tasks("- name: t\n- {name: t, matrix: {x: [1]}}\n")
    )


def test_same_name_for_two_matrices_is_refused() -> None:
    """B21: likewise."""
    found = problems(check_tasks("- {name: t, matrix: {x: [1]}}\n- {name: t, matrix: {y: [1]}}\n"))

    assert found == ["flow.yaml:4:10: tasks[1].name: 't' is also the name of another task. Rename one of the two."]


def test_task_with_the_name_of_an_expanded_one_is_refused() -> None:
    """B2: like any duplicate."""
    assert "Duplicate task name: 't[x=1]' is also the name of tasks[0] (line 3)" in only_problem(
        check_tasks("- {name: t, matrix: {x: [1]}}\n- name: t[x=1]\n")
    )


def test_part_of_a_parent_list_that_is_in_a_matrix_too_is_refused() -> None:
    """C02: the index is that of the file."""
    found = only_problem(check_tasks("- {name: t, matrix: {x: [1, 2]}}\n- {name: j, depends_on: [t, 't[x=2]']}\n"))

    assert "tasks[1].depends_on[1]: 't[x=2]' is in this list already" in found


def test_cycle_through_a_matrix_is_drawn() -> None:
    """C01: by the names of the tasks there are."""
    found = only_problem(check_tasks("- {name: t, matrix: {x: [1]}, depends_on: [j]}\n- {name: j, depends_on: [t]}\n"))

    assert "tasks[0].depends_on: Cycle detected: t[x=1] -> j -> t[x=1]" in found


def test_too_many_tasks_are_refused_unexpanded() -> None:
    """The cap is told at once, with the largest matrix."""
    axes = ", ".join(f"{axis}: {_values(100)}" for axis in "abcdefgh")
    found = only_problem(check_tasks(f"- name: x\n- {{name: t, matrix: {{{axes}}}, queue: '${{{{ matrix.a }}}}'}}\n"))

    assert (
        "tasks[1].matrix: with all matrices there are 10,000,000,000,000,001 tasks, at most 250,000 are allowed"
        in found
    )


def test_too_many_dependencies_are_refused() -> None:
    """A product of two large matrices has a better form."""
    values = _values(2100)
    found = problems(
        check_tasks(
            f"- {{name: t, matrix: {{x: {values}}}}}\n- {{name: u, depends_on: [t], matrix: {{x: {values}}}}}\n"
        )
    )

    assert (
        "tasks[1].depends_on: with all matrices there are more than 4,000,000 dependencies. Put one task between"
        in found[0]
    )


def test_list_of_parents_counts_for_nothing_in_the_size_of_a_task() -> None:
    """A22: parents are stored as numbers, however long their names are."""
    values = ", ".join(f"{'v' * 100}{n}" for n in range(45))
    definition = loaded(
        check_tasks(f"- {{name: t, matrix: {{x: [{values}], y: [{values}]}}}}\n- {{name: j, depends_on: [t]}}\n")
    )

    assert len(canonical_json(list(definition.tasks[-1].depends_on))) > 256 * 1024
    assert len(definition.tasks[-1].depends_on) == 45 * 45


def test_two_thousand_tasks_and_their_join_are_legal() -> None:
    """A22, B21: a wide matrix needs no restructuring."""
    definition = loaded(
        check_tasks(
            f"- {{name: t, matrix: {{x: {_values(2000)}}}, kwargs: {{cmd: 'run ${{{{ matrix.x }}}}'}}}}\n"
            "- {name: j, depends_on: [t], kwargs: {v: '${{ tasks[\"t[x=1999]\"].output }}'}}\n"
        )
    )

    assert len(definition.tasks[-1].depends_on) == 2000
    assert definition.tasks[1999].kwargs == {"cmd": "run 1999"}


def test_warning_about_a_task_without_command_is_given_once() -> None:
    """A12: not once for each value."""
    report = check_tasks("- {name: t, matrix: {x: [1, 2, 3]}}\n")

    assert [warning.path for warning in report.warnings] == ["tasks[0]"]


def test_params_of_a_matrix_task_are_checked_when_bound() -> None:
    """B13, B21: by the number of the task that results."""
    definition = loaded(
        check_yaml(
            "name: w\nparams: {q: gpu}\ntasks: [{name: t, matrix: {x: [1]}, queue: '${{ params.q }}-${{ matrix.x }}'}]\n"
        )
    )

    assert with_params(bind(definition, {"q": "cpu"})).tasks[0].queue == "cpu-1"


LABELS = st.text(alphabet="ab=,[]${}'\" ", min_size=1, max_size=4) | st.integers(-5, 5) | st.booleans()
AXES = st.dictionaries(st.sampled_from("xyz"), st.lists(LABELS, min_size=1, max_size=3), min_size=1, max_size=3)


@given(axes=AXES)
@settings(max_examples=150)
def test_every_combination_arrives_exactly_once_with_its_values(axes: dict[str, list[Any]]) -> None:
    """B21: or the names would not be unique, and that is said."""
    kwargs = {axis: f"${{{{ matrix.{axis} }}}}" for axis in axes}
    kwargs["all"] = "".join(f"<${{{{ matrix.{axis} }}}}>" for axis in axes)

    report = check_mapping({"name": "w", "tasks": [{"name": "t", "matrix": axes, "kwargs": kwargs}]})

    if report.definition is None:
        assert all("already" in str(found) or "name" in str(found) for found in report.problems)
        return
    rendered = [render_kwargs(task.kwargs, params={}, outputs={}) for task in report.definition.tasks]
    assert [[each[axis] for axis in axes] for each in rendered] == [list(values) for values in product(*axes.values())]
    assert all(
        each["all"]
        == "".join(f"<{value if isinstance(value, str) else json.dumps(value)}>" for value in list(each.values())[:-1])
        for each in rendered
    )
