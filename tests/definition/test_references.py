"""References: what may be written where, what comes out, and that nothing comes out that was not written."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.load import Report
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.params import bind
from ai4s.jobq.definition.parts import Param, ParamType
from ai4s.jobq.definition.references import (
    ReferenceFailure,
    ReferenceProblem,
    referenced_tasks,
    render,
    render_kwargs,
    with_params,
)
from ai4s.jobq.definition.validate import validate
from tests.definition.documents import check_tasks, check_yaml, loaded, only_problem, problems

PARAMS: dict[str, Any] = {
    "lr": 0.1,
    "n": 3,
    "name": "a b",
    "evil": "$(x); 'y' \"z\"\n`w` ${{ params.lr }}",
    "on": True,
    "list": [1, "two", {"k": None}],
    "nil": None,
    "empty": "",
    "dollar": "$",
    "brace": "{{ params.lr }}",
}
OUTPUTS: dict[str, Any] = {
    "ingest": {"path": "/data/in put", "rows": 5, "nil": None},
    "etl/load": [1, 2],
    "skipped": None,
    "lambda": {"x": 1},
}


def _rendered(value: Any, *, in_cmd: bool = False) -> Any:
    return render(value, params=PARAMS, outputs=OUTPUTS, in_cmd=in_cmd)


def _flow(kwargs: str, *, params: str = "{lr: 0.1, q: gpu, s: text}") -> Report:
    """A workflow root -> middle -> leaf (with these kwargs and what else is beside them) and a task beside them."""
    return check_yaml(
        f"name: w\nparams: {params}\ntasks:\n- name: root\n- {{name: middle, depends_on: [root]}}\n- name: beside\n"
        f"- name: leaf\n  depends_on: [middle]\n  {kwargs}\n- {{name: after, depends_on: [leaf]}}\n"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ params.lr }}", 0.1),
        ("  ${{ params.lr }}", "  0.1"),
        ("${{params.n}}", 3),
        ("${{ params.list }}", [1, "two", {"k": None}]),
        ("${{ params.list[2].k }}", None),
        ("${{ params.on }}", True),
        ("${{ params.nil }}", None),
        ("${{ tasks.ingest.output }}", OUTPUTS["ingest"]),
        ("${{ tasks.ingest.output.rows }}", 5),
        ('${{ tasks["etl/load"].output[1] }}', 2),
        ("${{ tasks['etl/load'].output[-1] }}", 2),
        ('${{ tasks["lambda"].output.x }}', 1),
        ("lr=${{ params.lr }},n=${{ params.n }}", "lr=0.1,n=3"),
        ("<${{ params.name }}>", "<a b>"),
        ("<${{ params.list }}>", '<[1,"two",{"k":null}]>'),
        ("<${{ params.on }}${{ params.nil }}>", "<truenull>"),
        ("${{ default(tasks.ingest.output.zzz, 7) }}", 7),
        ("${{ default(tasks.skipped.output, 'none') }}", "none"),
        ("${{ default(tasks.ingest.output.zzz, params.lr) }}", 0.1),
        ("${{ exists(tasks.skipped.output.x) }}", False),
        ("${{ exists(params.nil) }}", False),
        ("${{ default(params.nil, 1) }}", 1),
        ("${{ tasks.ingest.output.rows > 3 and params.on }}", True),
        ("${{ not params.on or params.n in [1, 2] }}", False),
        ("${{ [params.n, 'x', -1] }}", [3, "x", -1]),
        ("${{ 'a }} b' }}", "a }} b"),
        ('${{ "it\'s" }}', "it's"),
        ("${{\n  params.lr\n}}", 0.1),
        ("$${{ params.lr }}", "${{ params.lr }}"),
        ("$$${{ params.lr }}", "$${{ params.lr }}"),
        ("$${{ $${{ }}", "${{ ${{ }}"),
        ("${{ params.evil }}", PARAMS["evil"]),
        ("x${{ params.evil }}", "x" + PARAMS["evil"]),
        ("${{ params.dollar }}${{ params.brace }}", "${{ params.lr }}"),
        ("$ {{ params.lr }} $x ${x} }}", "$ {{ params.lr }} $x ${x} }}"),
        ({"a": ["${{ params.n }}", {"b": "x${{ params.n }}"}], "${{ params.n }}": 1}, None),
    ],
)
def test_reference_becomes_its_value(text: Any, value: Any) -> None:
    """B13: alone it keeps its type, in a text it becomes text; keys are no templates, and nothing is rendered twice."""
    if isinstance(text, dict):
        value = {"a": [3, {"b": "x3"}], "${{ params.n }}": 1}

    rendered = _rendered(text)

    assert (rendered, type(rendered)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("run --lr ${{ params.lr }}", "run --lr 0.1"),
        ("run ${{ params.name }}", "run 'a b'"),
        ("run --name=${{ params.name }}.txt", "run --name='a b'.txt"),
        ("run ${{ params.empty }}", "run ''"),
        ("run ${{ params.list }}", """run '[1,"two",{"k":null}]'"""),
        ("run ${{ params.on }}", "run true"),
        ("run ${{ params.evil }}", f"run {shlex.quote(PARAMS['evil'])}"),
        ("run ${{ raw(params.name) }}", "run a b"),
        ("run ${{ raw(default(params.nil, 'x y')) }}", "run x y"),
        ("${{ params.name }}", "'a b'"),
        ("echo $${{ x }}", "echo ${{ x }}"),
    ],
)
def test_value_in_a_command_is_quoted(text: str, command: str) -> None:
    """B13: always text, one word, unless it is raw."""
    assert _rendered(text, in_cmd=True) == command


def test_kwargs_are_rendered_by_what_each_is_for() -> None:
    """B13: a command, texts of the process, and values of a custom processor."""
    kwargs = {
        "cmd": "run ${{ params.name }}",
        "env": {"LR": "${{ params.lr }}", "LIST": "${{ params.list }}", "PLAIN": "x"},
        "cwd": "${{ tasks.ingest.output.path }}",
        "rows": "${{ tasks.ingest.output.rows }}",
        "deep": {"cmd": "${{ params.name }}"},
        "n": 1,
    }

    assert render_kwargs(kwargs, params=PARAMS, outputs=OUTPUTS) == {
        "cmd": "run 'a b'",
        "env": {"LR": "0.1", "LIST": '[1,"two",{"k":null}]', "PLAIN": "x"},
        "cwd": "/data/in put",
        "rows": 5,
        "deep": {"cmd": "a b"},
        "n": 1,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "${{ tasks.ingest.output.zzz }}",
            "tasks.ingest.output.zzz is missing: the output of task 'ingest' has no field",
        ),
        (
            "${{ tasks.ingest.output.rows.x }}",
            "tasks.ingest.output.rows.x is missing: tasks.ingest.output.rows is a number",
        ),
        ("${{ tasks.skipped.output }}", "tasks.skipped.output is missing: task 'skipped' has no output"),
        ("${{ tasks.skipped.output.x }}", "tasks.skipped.output.x is missing: task 'skipped' has no output"),
        ("${{ tasks.nowhere.output }}", "task 'nowhere' has no output"),
        (
            '${{ tasks["etl/load"].output[2] }}',
            """tasks["etl/load"].output[2] is missing: the output of task 'etl/load'""",
        ),
        ("${{ params.nil.x }}", "params.nil.x is missing: param 'nil' has no value"),
        ("${{ params.lr.x }}", "params.lr.x is missing: param 'lr' is a number"),
        ("${{ params.list[2].z }}", "params.list[2].z is missing: params.list[2] has no field 'z'"),
        ("${{ params.name < 1 }}", "params.name (text) and a number cannot be compared by <"),
        ("${{ tasks.ingest.output.nil < 1 }}", "tasks.ingest.output.nil (null) and a number"),
    ],
)
def test_missing_field_fails_by_name(text: str, expected: str) -> None:
    """B13: never an empty text in its place."""
    with pytest.raises(ReferenceFailure) as caught:
        _rendered(text)

    assert expected in str(caught.value)
    assert str(caught.value).startswith("${{ ")


def test_message_of_a_failure_holds_no_output() -> None:
    """L01: outputs may be secrets."""
    with pytest.raises(ReferenceFailure) as caught:
        render("${{ tasks.a.output.x.y }}", params={}, outputs={"a": {"x": "hunter2"}})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("where", ["cmd", "cwd", "env"])
def test_nul_character_in_a_value_is_a_failure_of_the_task(where: str) -> None:
    """No process can be given one."""
    text = "${{ tasks.a.output }}"

    with pytest.raises(ReferenceFailure, match="NUL character"):
        render_kwargs({where: {"A": text} if where == "env" else text}, params={}, outputs={"a": "x\0"})


def test_references_bring_in_a_bounded_amount_of_text() -> None:
    """One small output, read a hundred thousand times, is a large command."""
    with pytest.raises(ReferenceFailure, match="more than 16 MiB"):
        render("${{ tasks.a.output }}" * 1000, params={}, outputs={"a": "x" * 30_000})


def test_large_comparisons_are_bounded_for_all_references_together() -> None:
    """B13: limits as in conditions, not once per reference."""
    outputs = {"a": [0] * 60_000, "b": [0] * 60_000}
    text = "${{ tasks.a.output == tasks.b.output }}"

    assert render(text, params={}, outputs=outputs) is True
    with pytest.raises(ReferenceFailure, match="more than 100,000 steps"):
        render(text * 2, params={}, outputs=outputs)


def test_tasks_that_are_read_are_found() -> None:
    """B13: so that only their outputs are fetched."""
    value = {
        "cmd": "a ${{ tasks.x.output.y }} ${{ params.p }}",
        "l": ['${{ default(tasks["y/z"].output, 1) }}', "$${{ tasks.q }}"],
    }

    assert referenced_tasks(value) == {"x", "y/z"}
    assert referenced_tasks({"cmd": "echo", "n": 1}) == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${{ params.lr", "the reference '${{ params.lr' has no end. Close it with }}, or write $${{."),
        ("${{ 'a }}", "has no end"),
        ("${{ }}", "Reference syntax error"),
        ("${{ params.lr + 1 }}", "Disallowed expression element: arithmetic"),
        ("${{ tasks.train-rf.output }}", 'is written tasks["train-1"].output.'),
        (
            "${{ params.lambda }}",
            'Reference syntax error: invalid syntax, at character 8. Write params["lambda"] with brackets.',
        ),
        ("${{ params.lr params.lr }}", "Reference syntax error"),
        ("${{ params }}", "'params' needs a name: params.name"),
        ("${{ params[0] }}", "params is read by the name of a param, not by a number"),
        ("${{ tasks.a }}", 'of a task only its output can be read: tasks["a"].output'),
        ("${{ tasks.a.status }}", "of a task only its output can be read"),
        ("${{ inputs.a.x }}", "only fields of params and tasks and matrix can be read"),
        ("${{ count(inputs.*) }}", "Only these functions are allowed: default, exists, raw"),
        ("${{ __import__('os').system('true') }}", "Only these functions are allowed"),
        ("${{ ().__class__ }}", "only fields of params"),
        ("${{ lr }}", "Unknown variable: 'lr'"),
        ("${{ [raw(params.lr)] }}", "raw(…) is the whole reference, it cannot be a part of one"),
        ("${{ raw() }}", "raw takes 1 argument"),
        ("${{ default(1, 2) }}", "the first argument must be a field: params.name or tasks.task_name.output.field"),
        ("${{ default(matrix.x, 2) }}", "a value of the matrix is always there"),
        ("${{ matrix.x.y }}", "the values of a matrix have no fields"),
        ("${{ params.lr # note }}", "a reference has no comments"),
        ("${{ ${{ params.lr }} }}", "Inside a reference there is no ${{ … }}"),
        ("${{ " + "not " * 60 + "params.lr }}", "a reference is nested at most 50 levels deep"),
        ("${{ '" + "x" * 4096 + "' }}", "a reference has at most 4096 characters"),
    ],
)
def test_what_is_no_reference_is_refused(text: str, expected: str) -> None:
    """B13: with a word about what instead, when it is checked and when it is used."""
    with pytest.raises(ReferenceProblem) as caught:
        _rendered(text)

    assert expected in str(caught.value)
    assert expected in only_problem(_flow(f"kwargs: {{x: {json.dumps(text)}}}", params="{lr: 1, x: 1}"))


@pytest.mark.parametrize(
    "fields",
    [
        "kwargs: {cmd: 'run ${{ params.lr }} ${{ tasks.middle.output.x }} ${{ tasks.root.output }}'}",
        "kwargs: {env: {A: '${{ tasks.root.output.x }}'}, cwd: '${{ params.s }}'}",
        "kwargs: {any: [{deep: '${{ tasks.middle.output }}'}]}",
        "queue: my-${{ params.q }}",
        "undo: {cmd: 'rm ${{ tasks.leaf.output.path }} ${{ tasks.root.output }}', queue: '${{ params.q }}'}",
        "wait_for: {signal: 'go-${{ params.s }}'}",
        "kwargs: {cmd: 'echo $${{ nothing }}'}",
        "condition: inputs.middle.x < params.lr",
        "condition: params.lr > 0",
    ],
)
def test_reference_to_what_comes_before_is_legal(fields: str) -> None:
    """B13: params everywhere, outputs of ancestors, and its own for an undo job."""
    assert loaded(_flow(fields))


@pytest.mark.parametrize(
    ("fields", "place", "expected"),
    [
        ("kwargs: {cmd: '${{ params.rl }}'}", "kwargs.cmd", "there is no param 'rl'. Declare it under 'params'."),
        ("kwargs: {cmd: '${{ params.LR }}'}", "kwargs.cmd", "there is no param 'LR'. Did you mean 'lr'?"),
        (
            "kwargs: {a: [x, '${{ tasks.rot.output }}']}",
            "kwargs.a[1]",
            "task 'rot' which does not exist. Did you mean 'root'?",
        ),
        (
            "kwargs: {env: {A: '${{ tasks.beside.output }}'}}",
            "kwargs.env.A",
            "the output of 'beside' cannot be read here",
        ),
        ("kwargs: {cwd: '${{ tasks.after.output }}'}", "kwargs.cwd", "it does not come before this task"),
        ("kwargs: {cmd: '${{ tasks.leaf.output }}'}", "kwargs.cmd", "Add 'leaf' to depends_on, here or further up."),
        ("undo: {cmd: '${{ tasks.after.output }}'}", "undo.cmd", "the output of 'after' cannot be read here"),
        (
            "kwargs: {x: '${{ matrix.lr }}'}",
            "kwargs.x",
            "there is no axis 'lr' here, this is no part of a task with a matrix",
        ),
        (
            "queue: '${{ tasks.root.output }}'",
            "queue",
            "reads an output, but this name must be known before anything runs",
        ),
        ("wait_for: {signal: '${{ tasks.root.output.x }}'}", "wait_for.signal", "Params can be read here."),
        ("undo: {cmd: x, queue: '${{ tasks.leaf.output }}'}", "undo.queue", "must be known before anything runs"),
        ("kwargs: {x: '${{ raw(params.lr) }}'}", "kwargs.x", "raw(…) has a meaning in 'cmd' only. Leave it out."),
        ("kwargs: {env: {A: '${{ raw(params.lr) }}'}}", "kwargs.env.A", "raw(…) has a meaning in 'cmd' only"),
        ("condition: inputs.middle.x < params.rl", "condition", "there is no param 'rl', at character 19"),
        ("condition: inputs.middle.x < ${{ params.lr }}", "condition", "Inside a condition there is no ${{ … }}"),
        ("kwargs: {cmd: 'echo \"${{ params.s }}\"'}", "kwargs.cmd", 'stands inside "…". Its value is quoted already'),
    ],
)
def test_wrong_reference_is_refused_with_its_place(fields: str, place: str, expected: str) -> None:
    """B13, B2: at validation."""
    found = only_problem(_flow(fields))

    assert found.startswith(f"flow.yaml:{9}:")
    assert f": tasks[3].{place}: " in found
    assert expected in found


def test_hook_may_read_every_task() -> None:
    """C10: it runs after all of them; what is not there may be missing."""

    def check(cmd: str) -> Report:
        hook = f"on_end: {{cmd: '{cmd}', queue: '${{{{ params.q }}}}'}}"
        return check_yaml(f"name: w\nparams: {{q: cpu}}\n{hook}\ntasks: [{{name: a}}, {{name: b}}]\n")

    assert loaded(check("mail ${{ default(tasks.b.output.x, 0) }}"))
    assert "on_end.cmd: the reference reads task 'c' which does not exist" in only_problem(
        check("mail ${{ tasks.c.output }}")
    )


def test_default_queue_may_read_params() -> None:
    """B13: like any other queue."""
    definition = loaded(
        check_yaml("name: w\nparams: {q: cpu}\ndefault_queue: my-${{ params.q }}\ntasks: [{name: a}]\n")
    )

    assert with_params(bind(definition, {"q": "gpu"})).queues() == ["my-gpu"]


def test_all_wrong_references_are_reported() -> None:
    """B2: of one string too."""
    found = problems(
        _flow("kwargs: {cmd: '${{ params.x }} ${{ params.y }} ${{ tasks.z.output }}', y: '${{ tasks.beside.output }}'}")
    )

    assert len(found) == 4


def test_references_in_a_cycle_are_left_to_the_report_of_the_cycle() -> None:
    """B2: nothing comes before anything there."""
    found = problems(
        check_tasks(
            "- {name: a, depends_on: [c], kwargs: {x: '${{ tasks.b.output }}'}}\n- {name: b, depends_on: [a]}\n- {name: c, depends_on: [b]}\n"
        )
    )

    assert ["Cycle detected" in line for line in found] == [True]


def test_references_up_a_chain_of_twenty_thousand_tasks_are_checked() -> None:
    """C03: ancestors are not looked for one by one."""
    tasks = [Task(name="t0")] + [
        Task(name=f"t{n}", depends_on=(f"t{n - 1}",), kwargs={"x": f"${{{{ tasks.t{n // 2}.output }}}}"})
        for n in range(1, 20_000)
    ]
    wrong = Task(name="beside", kwargs={"x": "${{ tasks.t0.output }}"})

    found = validate(WorkflowDefinition(name="w", tasks=(*tasks, wrong)))

    assert [problem.path for problem in found] == ["tasks[20000].kwargs.x"]


EDGES = st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=7, max_size=7)


@given(edges=EDGES, reads=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6, unique=True))
@settings(max_examples=150)
def test_exactly_the_references_to_ancestors_are_legal(edges: list[list[int]], reads: list[tuple[int, int]]) -> None:
    """B13: against following the parents by hand, in graphs without cycles."""
    parents = [sorted({parent for parent in row if parent < number}) for number, row in enumerate(edges)]
    ancestors: list[set[int]] = []
    for row in parents:
        ancestors.append(set(row).union(*(ancestors[parent] for parent in row)))
    tasks = tuple(
        Task(
            name=f"t{number}",
            depends_on=tuple(f"t{parent}" for parent in row),
            kwargs={f"k{other}": f"${{{{ tasks.t{other}.output }}}}" for task, other in reads if task == number},
        )
        for number, row in enumerate(parents)
    )

    found = {problem.path for problem in validate(WorkflowDefinition(name="w", tasks=tasks))}

    assert found == {f"tasks[{task}].kwargs.k{other}" for task, other in reads if other not in ancestors[task]}


# Putting params in early must not change what comes out in the end.

NASTY = st.text(alphabet="$${{}}'\"\\ ab\n", max_size=12) | st.sampled_from(list(PARAMS.values()))
VALUES = st.recursive(
    NASTY | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(NASTY.filter(lambda key: isinstance(key, str)), inner, max_size=2)
    ),
    max_leaves=4,
)
PIECES = st.sampled_from(
    [
        *(
            "${{ params.a }}",
            "${{ params.b }}",
            "${{ tasks.t.output }}",
            "${{ raw(params.a) }}",
            "$${{",
            "$$",
            "$",
            "{{",
        ),
        *("{", "}}", " ", "x", "'", "${{ [params.a, tasks.t.output] }}", "${{ '}}' }}"),
    ]
)
TEMPLATES = st.lists(PIECES, max_size=6).map("".join)


def _definition(kwargs: dict[str, Any], params: dict[str, Any]) -> WorkflowDefinition:
    declared = {name: Param(type=ParamType.STRING) for name in params}
    return WorkflowDefinition(name="w", tasks=(Task(name="a", kwargs=kwargs),), params=declared, arguments=params)


def _outcome(kwargs: Any, params: dict[str, Any], outputs: dict[str, Any]) -> Any:
    try:
        return render_kwargs(kwargs, params=params, outputs=outputs)
    except (ReferenceFailure, ReferenceProblem) as exc:
        return type(exc)


@given(text=TEMPLATES, a=VALUES, b=VALUES, output=VALUES)
@settings(max_examples=300)
def test_putting_params_in_first_gives_the_same_in_the_end(text: str, a: Any, b: Any, output: Any) -> None:
    """B13: no value is taken for a template, wherever it stands and whatever stands beside it."""
    params, outputs = {"a": a, "b": b}, {"t": output}
    kwargs = {"cmd": text, "env": {"A": text}, "other": [text]}
    at_once = _outcome(kwargs, params, outputs)
    if at_once is ReferenceProblem:
        return

    definition = with_params(_definition(kwargs, params))

    assert with_params(definition) == definition
    assert _outcome(definition.tasks[0].kwargs, params, outputs) == at_once


@given(value=VALUES, text=TEMPLATES)
@settings(max_examples=150)
def test_quoted_value_is_one_word_of_the_shell(value: Any, text: str) -> None:
    """B13: as the shell splits it, it is the text of the value again."""
    command = render("run ${{ params.v }} end", params={"v": value}, outputs={}, in_cmd=True)
    expected = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    assert shlex.split(command) == ["run", expected, "end"]


WORDS = [
    *(
        "params",
        "tasks",
        "matrix",
        "inputs",
        ".a",
        ".output",
        '["a"]',
        "[0]",
        ".x",
        "raw(",
        "default(",
        "exists(",
        ")",
        ",",
    ),
    *(
        "and",
        "or",
        "not",
        "in",
        "==",
        "<",
        "(",
        "[",
        "]",
        "1",
        "-",
        "'s'",
        "true",
        "lambda",
        ":",
        "{",
        "}",
        "+",
        "}}",
        "${{",
    ),
]


@given(
    text=(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30)).map(
        lambda inner: f"x ${{{{ {inner} }}}}"
    ),
    value=VALUES,
)
@settings(max_examples=300)
def test_nothing_but_our_errors_comes_out(text: str, value: Any) -> None:
    """B13: whatever is written, and whatever the values are."""
    outcome = _outcome({"cmd": text, "x": text}, {"a": value}, {"a": value})

    assert isinstance(outcome, dict) or outcome in (ReferenceFailure, ReferenceProblem)


@pytest.mark.parametrize(
    "text",
    [
        "${{ " * 60_000,
        "${{ '" * 50_000,
        "$" * 250_000,
        "${{" + "(" * 4000 + "}}",
        "${{ 1 }}" * 30_000,
        "$${{" * 60_000,
        "{{ }} " * 40_000 + "${{",
    ],
)
def test_hostile_text_is_read_in_one_pass(text: str) -> None:
    """B13: 256 KiB of anything; a pass that began anew at each opening would take longer than a test may."""
    outcome = _outcome({"x": text}, {}, {})

    assert isinstance(outcome, dict) or outcome is ReferenceProblem


def test_wide_outputs_are_no_obstacle() -> None:
    """C04: a join reads three of ten thousand outputs, and only these are needed."""
    kwargs = {"cmd": "join " + " ".join(f'${{{{ tasks["t{n}"].output.x }}}}' for n in (1, 5000, 9999))}

    assert referenced_tasks(kwargs) == {"t1", "t5000", "t9999"}
    assert render_kwargs(kwargs, params={}, outputs={name: {"x": 1} for name in referenced_tasks(kwargs)}) == {
        "cmd": "join 1 1 1"
    }
