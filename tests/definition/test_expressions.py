"""Conditions: what is legal, what it means, and how it fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.expressions import ConditionError, ExpressionError, parse

PARENTS = ("a", "b", "train-1", "train-2", "train-3", "etl/load", "x.y", "m[lr=0.1]", "café")

INPUTS: dict[str, Any] = {
    "a": {
        "n": 3,
        "x": 0.5,
        "ok": True,
        "no": False,
        "text": "abc",
        "nil": None,
        "list": [1, "two", {"k": 3}],
        "deep": {"z": 1},
    },
    "b": None,
    "train-1": {"ok": True, "mae": 0.1},
    "train-2": {"ok": False, "mae": 0.3},
    "train-3": None,
    "etl/load": {"rows": 10},
    "x.y": [10, 20],
    "m[lr=0.1]": {"ok": True},
    "café": 7,
}


def _holds(text: str) -> bool:
    return parse(text, parents=PARENTS).evaluate(INPUTS)


def _refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text, parents=PARENTS)
    return str(caught.value)


def _failure(text: str) -> str:
    with pytest.raises(ConditionError) as caught:
        _holds(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("inputs.a.n == 3", True),
        ("inputs.a.n != 3", False),
        ("inputs.a.n == 3.0", True),
        ("inputs.a.n > -1", True),
        ("inputs.a.x >= 0.5 and inputs.a.x <= 0.5", True),
        ("1 < inputs.a.n < 5", True),
        ("1 < inputs.a.n < 3", False),
        ("5 > inputs.a.n > 1 < 2", True),
        ("inputs.a.text < 'b'", True),
        ('inputs.a.text == "abc"', True),
        ("inputs.a.text in ['abc', 'd']", True),
        ("inputs.a.n in (1, 2)", False),
        ("inputs.a.n not in (1, 2)", True),
        ("'b' in inputs.a.text", True),
        ("'k' in inputs.a.deep", False),
        ("'z' in inputs.a.deep", True),
        ("1 in inputs.a.list", True),
        ("inputs.a.list == [1, 'two', inputs.a.list[2]]", True),
        ("inputs.a.list[0] == 1", True),
        ("inputs.a.list[-1].k == 3", True),
        ('inputs["a"]["list"][2]["k"] == 3', True),
        ('inputs["etl/load"].rows > 0', True),
        ('inputs["x.y"][1] == 20', True),
        ("inputs.café == 7", True),
        ("inputs.a.ok", True),
        ("not inputs.a.no", True),
        ("inputs.a.ok == true and inputs.a.ok == True", True),
        ("inputs.a.no == false or inputs.a.no == False", True),
        ("inputs.a.nil == null and inputs.a.nil == None", True),
        ("inputs.a.nil", False),
        ("inputs.b == null", True),
        ("inputs.a != null", True),
        ("inputs.a.ok == 1", False),
        ("inputs.a.n == '3'", False),
        ("[inputs.a.ok] == [1]", False),
        ("1 in [true] or inputs.a.no", False),
        ("inputs.a.n", True),
        ("inputs.a.deep == inputs.a.deep", True),
        ("(inputs.a.n > 1\n  and inputs.a.ok)", True),
        ("inputs.a.n > 1\n  and inputs.a.ok", True),
        ("  inputs.a.ok  ", True),
        ("inputs.a.text == 'inputs.*'", False),
        ("inputs.a.no or not (inputs.a.n < 3)", True),
    ],
)
def test_expression_means_what_it_says(text: str, answer: bool) -> None:
    """A9: the whole language, on outputs that are there."""
    assert _holds(text) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('all(inputs["train-*"].ok)', False),
        ('any(inputs["train-*"].ok)', True),
        ('count(inputs["train-*"].ok) == 1', True),
        ('count(inputs["train-?"].mae < 0.5) >= 2', True),
        ('almost_all(inputs["train-*"].ok, 1)', True),
        ('almost_all(inputs["train-*"].ok, 0)', False),
        ('all(inputs["train-*"].mae < 1 and inputs["train-*"].mae > 0)', True),
        ('all(inputs["train-*"].mae < inputs.a.n)', True),
        ('all(default(inputs["train-*"].x, 1) == 1)', True),
        ('any(exists(inputs["train-*"].x))', False),
        ('count(inputs["train-*"].ok) < count(inputs["train-*"].mae)', True),
        ("count(inputs.* != null) == 7", True),
        ("count(inputs . * != null) == 7", True),
        ('all(inputs["m[*"].ok)', True),
        ('all(inputs["m[lr=?.1]"].ok)', True),
        ('inputs["m[lr=0.1]"].ok', True),
        ('not any(inputs["train-3*"].ok)', True),
        ('all(inputs["train-3*"].ok)', True),
    ],
)
def test_aggregate_asks_the_parents_that_have_an_output(text: str, answer: bool) -> None:
    """A9: parents that are null are left out; of none, all is true and any is false."""
    assert _holds(text) is answer


@pytest.mark.parametrize(
    "text",
    [
        'any(inputs["train-*"].ok) and true',
        'not all(inputs["train-*"].ok)',
        'not almost_all(inputs["train-*"].ok, 0)',
    ],
)
def test_aggregate_stops_as_early_as_it_can(text: str) -> None:
    """A9: in depends_on order; what comes after the decision is not looked at."""
    parents = ("train-9", "train-1")
    first = {"ok": "any" in text}

    assert parse(text, parents=parents).evaluate({"train-9": first, "train-1": {}}) is True


def test_and_or_stop_as_early_as_they_can() -> None:
    """A9: what decides comes first, so a guard works."""
    assert _holds("inputs.a.ok or inputs.b.missing") is True
    assert _holds("inputs.b != null and inputs.b.x > 1") is False


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("default(inputs.a.zzz, 0) == 0", True),
        ("default(inputs.a.n, 0) == 3", True),
        ("default(inputs.b.x.y, 'none') == 'none'", True),
        ("default(inputs.b, -1) == -1", True),
        ("default(inputs.a.zzz, inputs.a.n) == 3", True),
        ("default(inputs.a.list[9], null) == null", True),
        ("default(inputs.a.nil, 1) == null", True),
        ("exists(inputs.a.n)", True),
        ("exists(inputs.a.nil)", True),
        ("exists(inputs.a.zzz)", False),
        ("exists(inputs.b)", False),
        ("exists(inputs.b.x)", False),
        ("exists(inputs.a.n.x)", False),
        ("exists(inputs.a.list[2].k)", True),
    ],
)
def test_default_and_exists_stand_in_for_what_is_missing(text: str, answer: bool) -> None:
    """A9, I04: the two places where missing is no error."""
    assert _holds(text) is answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.a.zzz > 1", "inputs.a.zzz is missing: the output of task 'a' has no field 'zzz'"),
        ("inputs.a.deep.q", "inputs.a.deep.q is missing: inputs.a.deep has no field 'q'"),
        ("inputs.a.n.x.y", "inputs.a.n.x is missing: inputs.a.n is a number"),
        ("inputs.a.list.k", "inputs.a.list.k is missing: inputs.a.list is a list"),
        ("inputs.a.list[3]", "inputs.a.list[3] is missing: inputs.a.list has 3 items"),
        ("inputs.a[0]", "inputs.a[0] is missing: the output of task 'a' is a mapping"),
        ("inputs.a.__class__", "has no field '__class__'"),
        ("inputs.a.text.upper", "inputs.a.text is text"),
        ("inputs.b.x == null", "inputs.b.x is missing: task 'b' has no output"),
        ("not inputs.b.x", "task 'b' has no output (it failed, was skipped, has not ended, or set none)"),
        ('inputs["etl/load"].x', 'inputs["etl/load"].x is missing'),
        ('all(inputs["train-*"].mse < 1)', 'inputs["train-1"].mse is missing'),
        ("inputs.a.nil < 1", "inputs.a.nil (null) and a number cannot be compared by <"),
        ("inputs.a.text > 1", "inputs.a.text (text) and a number cannot be compared by >"),
        ("inputs.a.ok >= 1", "inputs.a.ok (a truth value) and a number cannot be compared by >="),
        ("inputs.a.list < [2]", "inputs.a.list (a list) and a list cannot be compared by <"),
        ("inputs.a.deep <= inputs.a.n", "inputs.a.deep (a mapping) and inputs.a.n (a number)"),
        ("1 in inputs.a.text", "a number and inputs.a.text (text) cannot be tested by 'in'"),
        ("'x' not in inputs.a.n", "text and inputs.a.n (a number) cannot be tested by 'in'"),
        ('any(inputs["train-*"].mae < "x")', 'inputs["train-1"].mae (a number) and text'),
    ],
)
def test_missing_field_or_wrong_type_fails_the_task_by_name(text: str, expected: str) -> None:
    """A9, I04: never a silent skip."""
    assert expected in _failure(text)


def test_message_of_a_failure_holds_no_output() -> None:
    """L01: outputs may be secrets."""
    condition = parse("inputs.a.token > 1 and inputs.a.token.x", parents=["a"])

    with pytest.raises(ConditionError) as caught:
        condition.evaluate({"a": {"token": "hunter2"}})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.a.n +", "Condition syntax error"),
        ("inputs.a.n = 1", "Condition syntax error"),
        ("inputs.class.x", "Condition syntax error"),
        ("inputs.a.n == '\\q'", "Condition syntax error"),
        ("inputs.a.n == 'x", "Condition syntax error"),
        ("\0", "Condition syntax error"),
        ("(" * 2000, "Condition syntax error"),
        ("inputs.a.n + 1 > 2", "Disallowed expression element: arithmetic, at character 1"),
        ("inputs.a.n > +1", "Disallowed expression element: UnaryOp"),
        ("inputs.a.n > -inputs.a.x", "Disallowed expression element: UnaryOp"),
        ("-true == inputs.a.n", "Disallowed expression element: UnaryOp"),
        ("inputs.a.ok if true else false", "Disallowed expression element: if … else"),
        ("inputs.a.n == f'{1}'", "Disallowed expression element: an f-string"),
        ("lambda: inputs.a.n", "Disallowed expression element: Lambda"),
        ("[x for x in inputs.a.list]", "Disallowed expression element: ListComp"),
        ("inputs.a.n == {}", "Disallowed expression element: Dict"),
        ("inputs.a.n in {1}", "Disallowed expression element: Set"),
        ("(inputs.a.n := 3)", "Condition syntax error"),
        ("(x := inputs.a.n)", "Disallowed expression element: NamedExpr"),
        ("inputs.a.n == b'x'", "Disallowed expression element: Constant"),
        ("inputs.a.n == 1j", "Disallowed expression element: Constant"),
        ("inputs.a.n == ...", "Disallowed expression element: Constant"),
        ("inputs.a.n == 1e999", "Disallowed expression element: Constant"),
        ("inputs.a.n is null", "Disallowed expression element: is, at character 1. Use == or !=."),
        ("inputs.a.list[0:1]", "in brackets there is a name in quotes, or a whole number"),
        ("inputs.a.list[inputs.a.n]", "in brackets there is a name in quotes"),
        ("inputs.a.list[true]", "in brackets there is a name in quotes"),
        ("inputs.a.list[True]", "in brackets there is a name in quotes"),
        ("inputs[0].x", "read by the name of a task"),
        ("inputs", "'inputs' needs a task"),
        ("inputs.a.ok and foo", "Unknown variable: 'foo', at character 17. Quote it"),
        ("x.y == 1", "only fields of inputs can be read"),
        ("'a'.x == 1", "only fields of inputs can be read"),
        ("len(inputs.a.list) > 1", "Only these functions are allowed: all, any, count, almost_all, default, exists"),
        ("inputs.a.text.upper() == 'A'", "Only these functions are allowed"),
        ("__import__('os').system('true')", "Only these functions are allowed"),
        ("exists(inputs.a.n, x=1)", "Only these functions are allowed"),
        ("exists(*inputs.a.list)", "Only these functions are allowed"),
        ("exists(1)", "the first argument must be a field"),
        ("exists()", "exists takes 1 argument"),
        ("default(inputs.a.n)", "default takes 2 arguments"),
        ("all(inputs.a.ok)", "all(…) needs a pattern over the parents"),
        ("all(true)", "all(…) needs a pattern"),
        ("all() and inputs.a.ok", "all takes 1 argument"),
        ("all == inputs.a.ok", "'all' is a function and needs arguments"),
        ("almost_all(inputs.*.ok)", "almost_all takes 2 arguments"),
        ("almost_all(inputs.*.ok, -1)", "a whole number, 0 or more"),
        ("almost_all(inputs.*.ok, true)", "a whole number, 0 or more"),
        ("inputs.*.ok", "the pattern '*' stands for several tasks"),
        ('inputs["train-*"].ok', "Use it inside all(…)"),
        ('all(inputs["train-*"].ok and inputs["x*"].ok)', "one aggregate has one pattern"),
        ("all(any(inputs.*.ok))", "an aggregate inside an aggregate"),
        ('all(inputs["test-*"].ok)', "the pattern 'test-*' matches no task in depends_on"),
        ("true", "Condition must reference at least one input"),
        ("1 < 2", "Condition must reference at least one input"),
        (
            "inputs.zzz.ok",
            "Condition references tasks not in depends_on: ['zzz'], at character 1. Add it to depends_on.",
        ),
        ('inputs["etl/laod"].ok', "Did you mean 'etl/load'?"),
        ("inputs.train-1.mae < 3", 'Write inputs["train-1"] with brackets.'),
        ("inputs.x.y[0] == 1", 'Write inputs["x.y"] with brackets.'),
        ("inputs.etl/load.rows", 'Write inputs["etl/load"] with brackets.'),
        ("inputs.a.ok # sure", "a condition has no comments"),
        ("not " * 60 + "inputs.a.ok", "nested at most 50 levels"),
        ("[" * 60 + "1" + "]" * 60 + " == inputs.a.n", "nested at most 50 levels"),
        ("not " * 1000 + "inputs.a.ok", "nested at most 50 levels"),
        ("inputs.a.ok" + " and inputs.a.ok" * 300, "at most 4096 characters"),
        ('inputs.a.text == "\\ud800"', "surrogate"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, expected: str) -> None:
    """A9: at validation, with a word about where or what instead."""
    assert expected in _refusal(text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("foo", 1),
        ("  foo", 3),
        ("inputs.a.ok and foo", 17),
        ("all(inputs.*.ok) and foo", 22),
        ("all(inputs.*.ok) and all(inputs . *.ok) or foo", 44),
        ("inputs.café == 'é' and foo", 24),
        ("inputs.a.ok\n and foo", 18),
        ("'inputs.*' == foo", 15),
        ("inputs.a.ok = 1", 13),
    ],
)
def test_column_is_that_of_the_text_as_written(text: str, column: int) -> None:
    """A9: whatever was changed for the parser."""
    with pytest.raises(ExpressionError) as caught:
        parse(text, parents=PARENTS)

    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "parents"),
    [
        ("inputs.b.x and inputs.a.x", ("a", "b")),
        ('all(inputs["train-*"].ok)', ("train-1", "train-2", "train-3")),
        ('any(inputs["train-?"].mae < inputs.a.n)', ("a", "train-1", "train-2", "train-3")),
        ("default(inputs.a.x, inputs.b.x) == 1 and exists(inputs.café)", ("a", "b", "café")),
        ("count(inputs.*.ok) > 1", PARENTS),
    ],
)
def test_condition_tells_which_parents_it_reads(text: str, parents: tuple[str, ...]) -> None:
    """A9: so that only their outputs are fetched."""
    assert parse(text, parents=PARENTS).parents() == parents


PARAMS: dict[str, Any] = {"limit": 2, "cfg": {"on": False, "list": [1]}, "nil": None}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("inputs.a.n > params.limit", True),
        ("params.limit == 2", True),
        ("params.cfg.on or inputs.a.no", False),
        ("1 in params.cfg.list", True),
        ("default(params.cfg.zzz, true)", True),
        ("exists(params.nil)", False),
        ("params.nil == null", True),
        ('all(inputs["train-*"].mae < params.limit)', True),
    ],
)
def test_condition_reads_params(text: str, answer: bool) -> None:
    """A9, B13: with the values it was parsed with."""
    condition = parse(text, parents=PARENTS, params=PARAMS)

    assert condition.evaluate(INPUTS) is answer
    assert "params" not in condition.parents()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params.limti > 1", "there is no param 'limti', at character 1. Did you mean 'limit'?"),
        ("params", "'params' needs a name: params.name"),
        ("params.cfg.list[3] == 1", "params.cfg.list[3] is missing: params.cfg.list has 1 items"),
        ("params.nil.x", "params.nil.x is missing: param 'nil' has no value"),
        ("params.limit < 'x'", "params.limit (a number) and text cannot be compared by <"),
        ("matrix.x == 1", "only fields of inputs and params can be read"),
        ("tasks.a.output == 1", "only fields of inputs and params can be read"),
        ("raw(params.limit)", "Only these functions are allowed"),
        ("inputs.a.n < ${{ params.limit }}", "Inside a condition there is no ${{ … }}: write the name alone."),
        ("inputs.lambda.x", 'Write inputs["lambda"] with brackets.'),
    ],
)
def test_wrong_use_of_params_in_a_condition_is_named(text: str, expected: str) -> None:
    """A9, B13: when it is parsed, or when it is judged."""
    with pytest.raises((ExpressionError, ConditionError)) as caught:
        parse(text, parents=PARENTS, params=PARAMS).evaluate(INPUTS)

    assert expected in str(caught.value)


def test_name_of_a_task_is_normalised() -> None:
    """B06: composed and decomposed accents are one name here too."""
    assert parse('inputs["cafe\u0301"] == 7', parents=PARENTS).evaluate(INPUTS)


def test_task_whose_name_looks_like_a_pattern_can_be_read() -> None:
    """B01: an exact name comes before a pattern."""
    assert parse('inputs["t*"].ok', parents=["t*", "t1"]).evaluate({"t*": {"ok": True}, "t1": {"ok": False}})


def test_parent_that_is_left_out_is_null() -> None:
    """I04: like one that has not ended."""
    assert parse("inputs.a == null", parents=["a"]).evaluate({})


def test_condition_is_immutable_and_comparable() -> None:
    """It may be cached and shared."""
    first, second = (parse("inputs.a.n > 1", parents=PARENTS) for _ in range(2))

    assert first == second
    assert hash(first) == hash(second)


def test_evaluation_is_bounded_in_steps() -> None:
    """A9: large outputs cannot hold up the coordinator."""
    condition = parse("inputs.a == inputs.b", parents=["a", "b"])

    with pytest.raises(ConditionError, match="more than 100,000 steps"):
        condition.evaluate({"a": [0] * 200_000, "b": [0] * 200_000})


def test_aggregate_over_ten_thousand_parents_fits_the_bound() -> None:
    """C04: the bound is no obstacle to a wide join."""
    parents = [f"t{n}" for n in range(10_000)]
    condition = parse("count(inputs.*.mae < 0.5) == 10000", parents=parents)

    assert condition.evaluate({parent: {"mae": 0.1} for parent in parents})


def test_very_deep_outputs_fail_the_condition_only() -> None:
    """A9: no RecursionError reaches the coordinator."""
    left: list[Any] = []
    right: list[Any] = []
    for _ in range(5000):
        left, right = [left], [right]

    with pytest.raises(ConditionError, match="nested too deeply"):
        parse("inputs.a == inputs.b", parents=["a", "b"]).evaluate({"a": left, "b": right})


def _outcome(text: str, inputs: dict[str, Any]) -> bool | ExpressionError | ConditionError:
    try:
        return parse(text, parents=list(inputs)).evaluate(inputs)
    except (ExpressionError, ConditionError) as exc:
        return exc


WORDS = [
    *("inputs", ".a", ".b", ".n", ".*", '["train-*"]', '["a"]', "[0]", "[-1]", ".list", ".ok", ".zzz", ".x"),
    *("and", "or", "not", "in", "is", "==", "!=", "<", ">=", "(", ")", "[", "]", ",", "1", "-", "0.5", "'abc'", "true"),
    *(
        "null",
        "all(",
        "any(",
        "count(",
        "almost_all(",
        "default(",
        "exists(",
        "if",
        "else",
        "lambda",
        ":",
        "{",
        "}",
        "+",
    ),
]
OUTPUTS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "abc"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "ok", "list", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    text=st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=30),
    inputs=st.fixed_dictionaries(dict.fromkeys(("a", "b", "train-1"), OUTPUTS)),
)
@settings(max_examples=250)
def test_nothing_but_our_errors_comes_out(text: str, inputs: dict[str, Any]) -> None:
    """A9: whatever is written, and whatever the outputs are."""
    outcome = _outcome(text, inputs)

    assert isinstance(outcome, bool | ExpressionError | ConditionError)


OPERANDS = st.sampled_from(
    ["inputs.a.n", "inputs.a.ok", "inputs.b.x", "inputs.b.ok", "1", "0.5", "-2", "'abc'", "true", "[1, 2]"]
)
COMPARISONS = st.tuples(OPERANDS, st.sampled_from(["==", "!=", "<", "<=", "in", "not in"]), OPERANDS).map(" ".join)
CONDITIONS = st.recursive(
    COMPARISONS
    | st.sampled_from(["inputs.a.ok", "exists(inputs.b.x)", "default(inputs.a.n, 1) == 1", "any(inputs.*.ok)"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})")
        | inner.map(lambda part: f"not ({part})")
    ),
    max_leaves=6,
)


@given(text=CONDITIONS, inputs=st.fixed_dictionaries(dict.fromkeys(("a", "b"), OUTPUTS)))
@settings(max_examples=200)
def test_well_formed_conditions_answer_or_name_what_is_wrong(text: str, inputs: dict[str, Any]) -> None:
    """A9: an error always says which value it is about."""
    outcome = _outcome(f"inputs.a != 'x' and {text}", inputs)

    assert isinstance(outcome, bool) or "is missing" in str(outcome) or "cannot be" in str(outcome)
