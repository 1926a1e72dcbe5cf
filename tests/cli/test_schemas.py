"""The schemas of what commands print with ``--json``: one for each command, whole, and of the program's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.doctor.finding import Verdict
from ai4s.jobq.engine.events import Cause
from ai4s.jobq.engine.states import Stop, TaskState, Waiting, WorkflowState
from ai4s.jobq.settings import Source
from ai4s.jobq.views.signs import Life
from tests.support.schemas import check_printed, check_schema, closed, commands_of, json_commands, published

SCHEMAS = published()
ENUMS: dict[str, type[StrEnum]] = {
    "workflow_state": WorkflowState,
    "task_state": TaskState,
    "cause": Cause,
    "waiting": Waiting,
    "stop": Stop,
    "life": Life,
    "verdict": Verdict,
    "source": Source,
}
SENTENCE = re.compile(r"[A-Z][^.]*(\.[^. ][^.]*)*\.")  # one, with dots inside names at most
TIMES = re.compile(r".*_at|wait_until|deadline")


def parts(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object inside a schema, with its path."""
    if isinstance(schema, dict):
        yield path, schema
    items = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in items:
        yield from parts(value, f"{path}/{key}")


def fields(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field that a schema describes, with its name; what only says more of it elsewhere is left out."""
    for path, part in parts(SCHEMAS[name]):
        if not re.search("/(then|else)\\b", path) and not path.endswith("/properties"):
            yield from part.get("properties", {}).items()


def test_every_command_with_json_has_a_schema_and_every_schema_has_a_command() -> None:
    described = [command for schema in SCHEMAS.values() for command in commands_of(schema)]

    assert sorted(described) == sorted(json_commands())


def test_a_command_without_a_schema_is_noticed() -> None:
    """What the test before rests on: the walk finds commands of groups within groups, and titles name them all."""
    assert {"peek", "workflow status", "workflow dead-letters show"} <= set(json_commands())
    assert "workflow graph" not in set(json_commands())
    assert commands_of(SCHEMAS["pause"]) == ["workflow pause", "workflow resume"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_named_after_its_first_command(name: str) -> None:
    first = commands_of(SCHEMAS[name])[0]

    assert name == first.removeprefix("workflow ").replace(" ", "-")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_legal_and_open(name: str) -> None:
    """A later release may print more, and an older schema must not call that wrong: it forbids no field, nor has
    alternatives of which a further field could make two fit."""
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert not [path for path, part in parts(SCHEMAS[name]) if part.get("additionalProperties") is False]
    assert not [path for path, part in parts(SCHEMAS[name]) if "oneOf" in part]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_is_described_in_one_sentence(name: str) -> None:
    found = list(fields(name))

    assert found
    assert [field for field, part in found if not SENTENCE.fullmatch(part.get("description", ""))] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_required_is_described(name: str) -> None:
    for path, part in parts(closed(SCHEMAS[name])):
        if "properties" in part and not re.search("/(then|else)", path):
            assert set(part["required"]) <= set(part["properties"]), path


@pytest.mark.parametrize("name", SCHEMAS)
def test_times_are_said_to_be_in_utc(name: str) -> None:
    for field, part in fields(name):
        if TIMES.fullmatch(field):
            assert (part["format"], part["pattern"][-2:]) == ("date-time", "Z$"), field


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_words_of_enums_are_the_programs_own(name: str) -> None:
    definitions = SCHEMAS[name].get("$defs", {})

    for enum, kind in ENUMS.items():
        if enum in definitions:
            assert definitions[enum]["enum"] == [str(word) for word in kind]
    if "dep_policy" in definitions:
        assert definitions["dep_policy"]["anyOf"][0]["enum"] == [str(policy) for policy in DepPolicy]


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_words_of_an_enum_are_written_beside_it(name: str) -> None:
    """Those would not be noticed when the program learns another one."""
    places = {f"/$defs/{enum}" for enum in ENUMS} | {"/$defs/dep_policy/anyOf/0"}
    kinds: list[type[StrEnum]] = [*ENUMS.values(), DepPolicy]
    words = {str(word) for kind in kinds for word in kind}
    own = {str(state) for state in (TaskState.READY, TaskState.RUNNING, TaskState.COMPLETED, TaskState.FAILED)}

    for path, part in parts(SCHEMAS[name]):
        if "enum" in part and path not in places:
            assert set(part["enum"]) == own if path.endswith("/outcome") else not words & set(part["enum"]), path


def test_a_definition_that_several_schemas_hold_is_the_same_in_all() -> None:
    seen: dict[str, tuple[str, Any]] = {}
    for name, schema in SCHEMAS.items():
        for definition, part in schema.get("$defs", {}).items():
            first, expected = seen.setdefault(definition, (name, part))
            assert part == expected, f"{definition} in {name} is not as in {first}"


def test_list_and_status_tell_the_same_of_a_workflow_and_status_and_tasks_of_a_task() -> None:
    listed, status = SCHEMAS["list"]["items"]["properties"], SCHEMAS["status"]["properties"]
    task, named = SCHEMAS["tasks"]["items"]["properties"], SCHEMAS["status"]["$defs"]["task"]["properties"]

    assert {field: part for field, part in listed.items() if field != "error"}.items() <= status.items()
    assert {field: part for field, part in task.items() if field != "workflow_id"} == named


# -- what the other tests rest on: a document that is not as promised is refused, wherever that is


LETTER = {
    "queue": "gpu",
    "message_id": "m0",
    "reason": "it is no JSON",
    "set_aside_at": "2026-01-02T03:04:05.678Z",
    "size": 1,
    "whole": True,
}


def test_a_document_as_promised_is_accepted() -> None:
    check_schema("dead-letters-list", [{"queue": "gpu", "count": 1, "letters": [LETTER]}])


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"size": None},
        {"size": -1},
        {"set_aside_at": "2026-01-02 03:04:05+00:00"},
        {"set_aside_at": "2026-13-02T03:04:05Z"},
    ],
)
def test_what_no_schema_describes_is_refused_deep_inside_too(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check_schema("dead-letters-list", [{"queue": "gpu", "count": 1, "letters": [LETTER | change]}])


def test_a_field_that_is_missing_is_refused() -> None:
    letter = {field: value for field, value in LETTER.items() if field != "whole"}

    with pytest.raises(jsonschema.ValidationError, match="'whole' is a required property"):
        check_schema("dead-letters-list", [{"queue": "gpu", "count": 1, "letters": [letter]}])


@pytest.mark.parametrize(
    "printed", ["", "Note: nothing\n[]", "[]\n[]", "[{}]", '[{"queue": "gpu", "count": NaN, "letters": []}]']
)
def test_what_is_not_one_document_is_refused(printed: str) -> None:
    with pytest.raises((ValueError, jsonschema.ValidationError)):
        check_printed(["workflow", "local/p", "dead-letters", "list", "--json"], printed)


def test_the_documentation_says_where_the_schemas_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")

    shared = [command for schema in SCHEMAS.values() for command in commands_of(schema)[1:]]
    assert "`schemas/status.schema.json`" in page
    assert all(f"`{command.removeprefix('workflow ')}`" in page for command in shared)
