"""Params: what may be declared, what may be given, and what the texts of a command line stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.definition.params import bind, parse_argument, parse_arguments
from ai4s.jobq.definition.parts import Param, ParamType
from ai4s.jobq.errors import DefinitionError, UsageError
from tests.definition.documents import check_yaml, loaded, only_problem, problems

DECLARED = """\
name: w
params:
  lr: {type: number, default: 0.1, description: learning rate}
  steps: 100
  mode: {choices: [fast, exact], default: fast}
  data: {required: true, description: where the data is}
  tag: {required: false}
  tags: {type: list, default: []}
  extra: {type: object, required: false}
  dry: false
tasks:
- {name: a, kwargs: {cmd: x}}
"""


def _declared() -> WorkflowDefinition:
    return loaded(check_yaml(DECLARED))


def _with_params(params: str, more: str = "") -> Any:
    return check_yaml(f"name: w\nparams: {params}\ntasks: [{{name: a{more}}}]\n")


def _refusal(given_: dict[str, Any], definition: WorkflowDefinition | None = None) -> str:
    with pytest.raises(DefinitionError) as caught:
        bind(definition or _declared(), given_)
    return str(caught.value)


def test_params_are_declared_long_or_short() -> None:
    """B13: the short form is the default; the type is that of the default or of the choices."""
    assert dict(_declared().params) == {
        "lr": Param(type=ParamType.NUMBER, default=0.1, description="learning rate"),
        "steps": Param(type=ParamType.INTEGER, default=100),
        "mode": Param(type=ParamType.STRING, default="fast", choices=("fast", "exact")),
        "data": Param(type=ParamType.STRING, required=True, description="where the data is"),
        "tag": Param(type=ParamType.STRING),
        "tags": Param(type=ParamType.LIST, default=[]),
        "extra": Param(type=ParamType.OBJECT),
        "dry": Param(type=ParamType.BOOLEAN, default=False),
    }


def test_param_without_default_is_required() -> None:
    """B13: unless it says that it is not."""
    assert loaded(_with_params("{a: {}, b: {required: false}}")).params["a"].required is True


def test_values_given_stand_beside_defaults() -> None:
    """B13: given, else default, else null."""
    definition = bind(_declared(), {"data": "/d", "lr": 1, "extra": {"a": [None]}})

    assert definition.param_values() == {
        "lr": 1,
        "steps": 100,
        "mode": "fast",
        "data": "/d",
        "tag": None,
        "tags": [],
        "extra": {"a": [None]},
        "dry": False,
    }


def test_binding_again_replaces_what_was_given() -> None:
    """C3: a rerun gives all of them, some changed."""
    first = bind(_declared(), {"data": "/d", "lr": 1})

    assert bind(first, {**first.arguments, "lr": 2}).arguments == {"data": "/d", "lr": 2}
    assert bind(first, {"data": "/e"}).arguments == {"data": "/e"}


def test_values_given_are_copied() -> None:
    """A definition is a value; nobody changes it from outside."""
    tags = ["a"]
    definition = bind(_declared(), {"data": "/d", "tags": tags})
    tags.append("b")

    assert definition.arguments["tags"] == ["a"]


def test_values_given_survive_being_stored() -> None:
    """B1: they are part of what is stored."""
    definition = bind(_declared(), {"data": "/d", "lr": 1})

    assert WorkflowDefinition.from_json(definition.to_json()) == definition


def test_values_given_are_part_of_the_hash() -> None:
    """B1: another value is another definition; the default, given, is the same one."""
    plain = bind(_declared(), {"data": "/d"})

    assert bind(_declared(), {"data": "/e"}).digest() != plain.digest()
    assert bind(_declared(), {"data": "/d", "lr": 0.1, "dry": False}).digest() == plain.digest()


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({}, "params.data: a value is required (where the data is): a string. Give it with --param data=…."),
        ({"data": "x", "step": 1}, "params.step: workflow 'w' has no param 'step'. Did you mean 'steps'?"),
        ({"data": "x", "qqq": 1}, "has no param 'qqq'. It has lr, steps, mode"),
        ({"data": 5}, "params.data: it must be a string, this is 5"),
        ({"data": None}, "it must be a string, this is null"),
        ({"data": "x", "lr": "1"}, "params.lr: it must be a number, this is '1'"),
        ({"data": "x", "lr": True}, "it must be a number, this is true"),
        ({"data": "x", "lr": float("nan")}, "nan is no number of JSON"),
        ({"data": "x", "steps": 1.5}, "it must be a whole number, this is 1.5"),
        ({"data": "x", "steps": False}, "it must be a whole number, this is false"),
        ({"data": "x", "dry": 1}, "it must be true or false, this is 1"),
        ({"data": "x", "tags": "a"}, "it must be a list, this is 'a'"),
        ({"data": "x", "tags": [object()]}, "a object is no value of JSON"),
        ({"data": "x", "extra": []}, "it must be a mapping, this is a list"),
        ({"data": "x", "extra": {1: 2}}, "a key must be a string"),
        ({"data": "x", "mode": "fats"}, "params.mode: 'fats' is none of its choices: 'fast', 'exact'"),
        ({"data": "\ud800"}, "half of a surrogate pair"),
        ({"data": "x" * 300_000}, "the values take 300,011 bytes as JSON, at most 256 KiB are allowed"),
    ],
)
def test_wrong_value_is_refused(given_: dict[str, Any], expected: str) -> None:
    """B13: by name, with what is expected."""
    assert expected in _refusal(given_)


def test_all_wrong_values_are_reported() -> None:
    """B2: at once."""
    assert _refusal({"lr": "x", "nope": 1, "steps": []}).count("\n") == 3


def test_workflow_without_params_takes_none() -> None:
    """B13: and says so."""
    assert "has no param 'a'. It declares none." in _refusal(
        {"a": 1}, loaded(check_yaml("name: w\ntasks: [{name: a}]\n"))
    )


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ("{a: }", "'a' must be a param: a mapping, or its default alone, this is nothing"),
        ("{1a: x}", "such a name has 1 to 64 letters, digits and underscores, and begins with no digit"),
        (f"{{{'x' * 65}: x}}", "1 to 64 letters"),
        ("{a-b: x}", "letters, digits and underscores"),
        ("[a]", "'params' must be a mapping"),
        ("{a: {type: text}}", "must be one of string, integer, number, boolean, list, object"),
        ("{a: {type: integer, default: x}}", "params.a.default: it must be a whole number, this is 'x'"),
        ("{a: {default: c, choices: [b]}}", "params.a.default: 'c' is none of its choices: 'b'"),
        ("{a: {choices: [b, 1]}}", "params.a.choices[1]: it must be a string, this is 1"),
        ("{a: {choices: []}}", "'choices' must not be empty"),
        ("{a: {default: 1, required: true}}", "params.a.required: a param with a default need not be given"),
        ("{a: {required: maybe}}", "'required' must be true or false"),
        ("{a: {options: [b]}}", "unknown param field 'options'. Did you mean 'choices'?"),
        ("{a: {x: 1}}", "unknown param field 'x'"),
        (f"{{a: {{description: {'x' * 1001}}}}}", "a description has at most 1000 characters"),
        (f"{{{', '.join(f'p{n}: 1' for n in range(257))}}}", "257 params, at most 256 are allowed"),
        ("{a: 1e999}", "larger than any that can be stored"),
    ],
)
def test_wrong_declaration_is_refused(params: str, expected: str) -> None:
    """B13, B2: with its place."""
    found = only_problem(_with_params(params))

    assert expected in found
    assert found.startswith("flow.yaml:2:")


def test_param_with_a_mistake_can_still_be_read() -> None:
    """B2: one mistake is reported once, not again at every use."""
    assert "must be one of string" in only_problem(_with_params("{a: {type: text}}", ", queue: '${{ params.a }}'"))


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("string", "0.10", "0.10"),
        ("string", "", ""),
        ("string", "true", "true"),
        ("integer", "-3", -3),
        ("number", "1e-3", 0.001),
        ("number", "3", 3),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("list", '[1, "a", null]', [1, "a", None]),
        ("object", '{"a": {"b": []}}', {"a": {"b": []}}),
    ],
)
def test_text_of_a_command_line_becomes_a_value_of_the_type(type_: str, text: str, value: Any) -> None:
    """B13: ``--param k=v``."""
    parsed = parse_argument(Param(type=ParamType(type_)), text)

    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("integer", "3.0", "it must be a whole number, this is 3"),
        ("integer", "x", "it must be a whole number, this is 'x'"),
        ("integer", "", "it must be a whole number, this is null"),
        ("integer", "9" * 5000, "has 5000 digits"),
        ("number", "nan", "it must be a number, this is 'nan'"),
        ("number", "1e999", "larger than any that can be stored"),
        ("boolean", "yes", "it must be true or false, this is 'yes'"),
        ("boolean", "1", "it must be true or false, this is 1"),
        ("list", "a,b", "not valid JSON"),
        ("list", "{}", "it must be a list, this is a mapping"),
        ("list", "", "not valid JSON"),
        ("object", "[NaN]", "not valid JSON"),
        ("object", '{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("object", "[" * 5000, "nested deeper than 100 levels"),
        ("number", "\ud800", "surrogate"),
    ],
)
def test_text_that_stands_for_no_value_of_the_type_is_refused(type_: str, text: str, expected: str) -> None:
    """B13: a sentence, never a traceback."""
    with pytest.raises(UsageError) as caught:
        parse_argument(Param(type=ParamType(type_)), text)

    assert expected in str(caught.value)


def test_texts_of_a_command_line_are_parsed_by_name() -> None:
    """B13: what they become can be bound."""
    values = parse_arguments(_declared(), {"data": "5", "lr": "1e-2", "dry": "true"})

    assert values == {"data": "5", "lr": 0.01, "dry": True}
    assert bind(_declared(), values).arguments == values


def test_all_wrong_texts_are_reported() -> None:
    """B2: unknown names too, with what was meant."""
    with pytest.raises(DefinitionError) as caught:
        parse_arguments(_declared(), {"dtaa": "x", "lr": "x", "dry": "x"})

    assert [problem.path for problem in caught.value.problems] == ["params.dtaa", "params.lr", "params.dry"]
    assert caught.value.problems[0].hint == "Did you mean 'data'?"


@given(
    type_=st.sampled_from(ParamType),
    text=st.text(max_size=20) | st.sampled_from(["1", "true", "[1]", "{}", '"', "-", "1e5"]),
)
@settings(max_examples=150)
def test_any_text_gives_a_value_of_the_type_or_our_error(type_: ParamType, text: str) -> None:
    """B13: and the value can be bound."""
    definition = WorkflowDefinition(name="w", tasks=(), params={"p": Param(type=type_)})

    try:
        value = parse_argument(definition.params["p"], text)
    except UsageError:
        return
    assert bind(definition, {"p": value}).arguments == {"p": value}


def test_queue_that_a_value_makes_illegal_is_refused_when_bound() -> None:
    """B13: names are known before anything runs."""
    definition = loaded(_with_params("{q: gpu}", ", queue: 'my-${{ params.q }}'"))

    assert "tasks[0].queue: my-${{ params.q }} gives 'my-GPU': a queue name has" in _refusal({"q": "GPU"}, definition)
    assert bind(definition, {"q": "cpu"}).arguments == {"q": "cpu"}


def test_defaults_that_make_no_legal_queue_are_refused_when_loaded() -> None:
    """B2: found by validate, not at submit."""
    found = only_problem(_with_params("{q: GPU}", ", queue: '${{ params.q }}'"))

    assert found.startswith(
        "flow.yaml:3:26: tasks[0].queue: with the defaults of the params: ${{ params.q }} gives 'GPU'"
    )


def test_nothing_is_said_about_defaults_when_a_value_is_required() -> None:
    """B13: there is nothing to say before it is given."""
    assert loaded(_with_params("{q: {}, r: GPU}", ", queue: '${{ params.r }}'"))


def test_field_that_a_given_value_does_not_have_is_reported_when_bound() -> None:
    """B13: before anything runs, with the place."""
    definition = loaded(_with_params("{c: {type: object}}", ", kwargs: {x: '${{ params.c.lr }}'}"))

    assert "tasks[0].kwargs.x: ${{ params.c.lr }}: params.c.lr is missing: param 'c' has no field 'lr'" in _refusal(
        {"c": {}}, definition
    )


def test_problems_of_several_params_are_all_reported() -> None:
    """B2: in one report."""
    found = problems(
        _with_params("{a: {type: integer, default: x}, b: {choices: [1, y]}, c: {default: 1, required: true}}")
    )

    assert len(found) == 3
