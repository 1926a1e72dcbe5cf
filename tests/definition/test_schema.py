"""The JSON Schema: generated from the loader's own table, and of one mind with it."""

from __future__ import annotations

import copy
import json
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.faults import RESERVED_VARIABLES
from ai4s.jobq.definition.fields import TASK, WORKFLOW
from ai4s.jobq.definition.json_text import read_json
from ai4s.jobq.definition.load import read_workflow
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.part_fields import JOB, KWARGS, PARAM, RETRY, WAIT_FOR
from ai4s.jobq.definition.read import Reader
from ai4s.jobq.definition.schema import DIALECT, schema, schema_text
from ai4s.jobq.definition.tree_builder import TreeBuilder

REPOSITORY = Path(__file__).parents[2]
VALIDATOR = jsonschema.Draft202012Validator(schema())


def _loader_accepts(document: Any) -> bool:
    """The loader's verdict on the structure alone; the graph is beyond a schema."""
    builder, reader = TreeBuilder(), Reader()
    read_json(json.dumps(document), builder)
    assert builder.root is not None
    read_workflow(builder.root, reader)
    return not builder.problems and not reader.problems


def test_packaged_schema_is_the_generated_one() -> None:
    """A6: else run ``python -m ai4s.jobq.definition.schema`` on the file."""
    assert (resources.files("ai4s.jobq.definition") / "schema.json").read_text(encoding="utf-8") == schema_text()


def test_schema_for_editors_is_the_generated_one() -> None:
    """A6: both copies are identical."""
    published = REPOSITORY / "schemas" / "workflow-definition.schema.json"

    assert published.read_text(encoding="utf-8") == schema_text()


def test_schema_is_a_schema() -> None:
    """A6: of the draft it names."""
    jsonschema.Draft202012Validator.check_schema(schema())

    assert schema()["$schema"] == DIALECT


@pytest.mark.parametrize(
    "record", [WORKFLOW, TASK, KWARGS, JOB, RETRY, WAIT_FOR, PARAM], ids=lambda record: record.noun
)
def test_every_field_is_described(record: Any) -> None:
    """A6: editors show it."""
    assert [known.name for known in record.fields if not known.description.endswith((".", "!"))] == []


def test_table_has_the_fields_of_the_model() -> None:
    """A7: what can be written is what there is; arguments are given at submit, a matrix is gone after loading."""
    assert [
        {known.name for known in WORKFLOW.fields} | {"arguments"},
        {known.name for known in TASK.fields} - {"matrix"},
    ] == [set(WorkflowDefinition.__dataclass_fields__), set(Task.__dataclass_fields__)]


# Documents near the edge of legality. Not in them, because JSON Schema cannot say it: whole floats (3.0 is an integer to
# it), letters that are not printable but no control characters, days that no month has, and everything about the graph.

NAMES = st.text(alphabet="ab é🏥-/[]", min_size=1, max_size=6) | st.sampled_from(
    ["", " a", "a\n", "a\tb", "x" * 255, "x" * 256]
)
QUEUES = st.sampled_from(["gpu", "gpu-a100", "default", "ab", "GPU", "a--b", "-ab", "abc\n", "x" * 63, "x" * 64])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 1000, 1001, 250_000, 250_001, 31_536_000, 31_536_001, 10**12, 1.5])
POLICIES = st.sampled_from(
    ["all", "any", "all_settled", "always", "on_failure", "ALL", "never", 0, 1, 250_000, 250_001]
)
TEXTS = st.sampled_from(["echo a", "a\nb\n", "", " ", "\n", "x\0y", "x" * 4096, "x" * 4097, "é\u2028"])
VARIABLES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["A", "B C", "", "A=B", "A\0", "A\n", *RESERVED_VARIABLES]),
    st.sampled_from(["", "x", "x\0", 5, 1.5, True, None, [], {}]),
    max_size=2,
)
JUNK = st.sampled_from([None, True, 5, 1.5, "text", [], {}, [None], {"a": 1}])
FREE = st.recursive(
    JUNK, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)

KWARGS_DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"cmd": TEXTS, "env": VARIABLES, "cwd": TEXTS, "bg_dirsync_to": TEXTS, "other": FREE}
)
DELAYS = st.sampled_from([-1, -0.5, 0, 0.5, 1.5, 60, 31_536_000, 31_536_000.5, True, "5", None])
TRUTHS = st.sampled_from([True, False, 0, 1, "true", None])
# Not the 31st of February, which a pattern cannot tell from a date.
MOMENTS = st.sampled_from(
    [
        *("2030-01-31T08:00:00Z", "2030-01-31 08:00+02:00", "2030-01-31t08:00:00.123z", "2030-01-31T08:00:00"),
        *("2030-01-31", "2030-1-31T08:00Z", "2030-01-31T08:00:00Z\n", "2030-01-31T08:00:00.1234567Z", 5, None),
    ]
)
TEMPLATED = st.sampled_from(["${{ params.q }}", "a ${{ x", "$${{", "${{\0}}"])
JOB_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "cmd": TEXTS,
        "env": VARIABLES,
        "cwd": TEXTS,
        "queue": QUEUES | TEMPLATED | st.none(),
        "timeout_s": NUMBERS | st.none(),
        "num_retries": NUMBERS,
        "kwargs": FREE,
    },
)
RETRY_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "max": NUMBERS,
        "delay_s": DELAYS,
        "backoff": st.sampled_from(["fixed", "exponential", "linear", 1]),
        "max_delay_s": DELAYS,
        "jitter": st.sampled_from([0, 0.1, 1, 1.1, -0.1, "0", None]),
        "on_exit_codes": st.lists(st.sampled_from([0, 1, -9, 255, 256, -256, 1.5, "1"]), max_size=2),
    },
)
WAIT_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "signal": st.sampled_from(["go", "a.b-c_d", "a b", "", "x" * 100, "x" * 101, "é"]) | TEMPLATED,
        "timeout_s": NUMBERS | st.none(),
        "on_timeout": st.sampled_from(["fail", "skip", "FAIL", None]),
    },
)
KEYS = st.sampled_from(["a", "A_1", "_", "1a", "a-b", "", "x" * 64, "x" * 65, "é", "a b", "a\n"])
MATRIX_DOCUMENTS = st.dictionaries(KEYS, st.lists(JUNK, max_size=2) | JUNK, max_size=2) | st.none()
PARAM_DOCUMENTS = FREE | st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "list", "text", 1]),
        "default": FREE,
        "required": TRUTHS,
        "choices": st.lists(FREE, max_size=2) | FREE,
        "description": st.sampled_from(["", "x" * 1000, "x" * 1001, 1]),
        "value": FREE,
    },
)
LABELS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["team", "a b", " a", "", "a=b", "x" * 63, "x" * 64, "a\n"]),
    st.sampled_from(["", "x" * 255, "x" * 256, "a\nb", 5, 0.5, True, None, []]),
    max_size=3,
)
PRIORITIES = st.sampled_from([-1001, -1000, 0, 1000, 1001, 1.5, "1", None])
TASK_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "kwargs": KWARGS_DOCUMENTS,
    "depends_on": st.lists(NAMES, max_size=3, unique=True),
    "queue": QUEUES | TEMPLATED | st.none(),
    "dep_policy": POLICIES,
    "timeout_s": NUMBERS | st.none(),
    "num_retries": NUMBERS,
    "condition": TEXTS | st.none(),
    "allow_failure": TRUTHS,
    "undo": JOB_DOCUMENTS | st.none(),
    "priority": PRIORITIES,
    "retry": RETRY_DOCUMENTS | st.none(),
    "delay_s": DELAYS,
    "not_before": MOMENTS,
    "wait_for": WAIT_DOCUMENTS | st.none(),
    "matrix": MATRIX_DOCUMENTS,
}
WORKFLOW_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "$schema": FREE,
    "default_queue": QUEUES | TEMPLATED,
    "default_task_timeout_s": NUMBERS | st.none(),
    "max_parallelism": NUMBERS | st.none(),
    "result_policy": st.sampled_from(["all_sinks_succeed", "all_tasks_succeed", "any"]),
    "params": st.dictionaries(KEYS, PARAM_DOCUMENTS, max_size=2),
    "labels": LABELS,
    "priority": PRIORITIES,
    "fail_fast": TRUTHS | st.sampled_from(["kill", "Kill"]),
    "undo_on_cancel": TRUTHS,
    "timeout_s": NUMBERS | st.none(),
    "deadline": MOMENTS,
    "on_success": JOB_DOCUMENTS,
    "on_failure": JOB_DOCUMENTS | st.none(),
    "on_end": JOB_DOCUMENTS,
}
TASK_DOCUMENTS = st.fixed_dictionaries({"name": NAMES}, optional=TASK_FIELDS)
WORKFLOW_DOCUMENTS = st.fixed_dictionaries(
    {"name": NAMES, "tasks": st.lists(TASK_DOCUMENTS, max_size=2)}, optional=WORKFLOW_FIELDS
)


def _with_task_field(name: str, value: Any) -> Any:
    return {"name": "w", "tasks": [{"name": "a", name: value}]}


def _with_workflow_field(name: str, value: Any) -> Any:
    return {"name": "w", "tasks": [{"name": "a"}], name: value}


ONE_FIELD = st.one_of(
    *(strategy.map(partial(_with_task_field, name)) for name, strategy in TASK_FIELDS.items()),
    *(strategy.map(partial(_with_workflow_field, name)) for name, strategy in WORKFLOW_FIELDS.items()),
)
GOOD: dict[str, Any] = {
    "name": "w",
    "default_queue": "cpu",
    "max_parallelism": 4,
    "params": {"lr": 0.1, "mode": {"type": "string", "choices": ["a", "b"], "required": False}},
    "labels": {"team": "x"},
    "fail_fast": "kill",
    "deadline": "2030-01-31T08:00:00Z",
    "on_end": {"cmd": "echo", "queue": "cpu"},
    "tasks": [
        {"name": "a", "kwargs": {"cmd": "echo", "env": {"A": "1"}, "cwd": "/"}, "num_retries": 1, "timeout_s": 5},
        {
            "name": "c",
            "undo": {"cmd": "echo"},
            "retry": {"max": 2, "jitter": 0.5, "on_exit_codes": [-9]},
            "priority": 1,
        },
        {
            "name": "d",
            "wait_for": {"signal": "go", "timeout_s": 5, "on_timeout": "skip"},
            "not_before": "2030-01-31 08:00Z",
        },
        {"name": "e", "matrix": {"lr": [0.1, "x", True]}, "delay_s": 1.5, "allow_failure": True},
        {"name": "b", "depends_on": ["a"], "dep_policy": "any", "condition": "inputs.a.ok", "queue": "gpu"},
    ],
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in _places(child, (*path, key)))]


def _mutated(path: tuple[Any, ...], change: str, junk: Any) -> Any:
    """A copy of the good document in which one place is replaced, removed, or got a key more."""
    document = {"root": copy.deepcopy(GOOD)}
    holder: Any = document
    *parents, last = ("root", *path)
    for step in parents:
        holder = holder[step]
    if change == "remove" and path:
        del holder[last]
    elif change == "add" and isinstance(holder[last], dict):
        holder[last]["extra"] = junk
    else:
        holder[last] = junk
    return document["root"]


@given(WORKFLOW_DOCUMENTS)
@settings(max_examples=200)
def test_schema_and_loader_agree_on_documents_near_the_edge(document: Any) -> None:
    """A6: an editor and ``validate`` never contradict each other on structure."""
    assert _loader_accepts(document) == VALIDATOR.is_valid(document)


@given(ONE_FIELD)
@settings(max_examples=300)
def test_schema_and_loader_agree_on_every_single_field(document: Any) -> None:
    """A6: a document with many fields near the edge is nearly always wrong somewhere; this one has one."""
    assert _loader_accepts(document) == VALIDATOR.is_valid(document)


@given(st.builds(_mutated, st.sampled_from(_places(GOOD)), st.sampled_from(["replace", "remove", "add"]), JUNK))
@settings(max_examples=200)
def test_schema_and_loader_agree_on_damaged_documents(document: Any) -> None:
    """A6: whatever is replaced, removed or added."""
    assert _loader_accepts(document) == VALIDATOR.is_valid(document)


def test_schema_and_loader_accept_a_good_document() -> None:
    """A6: the properties above are not about refusals only."""
    assert [_loader_accepts(GOOD), VALIDATOR.is_valid(GOOD)] == [True, True]
