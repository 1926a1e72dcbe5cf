"""Single fields: their types, ranges, names and hints."""

from __future__ import annotations

import json

import pytest

from ai4s.jobq.definition.fields import TASK
from ai4s.jobq.definition.load import check_mapping
from ai4s.jobq.definition.model import DepPolicy
from ai4s.jobq.errors import UsageError
from ai4s.jobq.ids import queue_name_problem
from ai4s.jobq.ports.limits import check_queue_name
from tests.definition.documents import (
    check_json,
    check_tasks,
    check_yaml,
    kwargs_of,
    loaded,
    only_problem,
    problems,
    tasks_of,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "train",
            "'depends_on' must be a list of task names, this is the string 'train'. Write it as a list: [train].",
        ),
        ('"a, b"', "'depends_on' must be a list of task names, this is the string 'a, b'. Write it as a list: [a, b]."),
        ("{a: 1}", "'depends_on' must be a list of task names, this is a mapping"),
        ("[[train]]", "this item must be a string, this is a list"),
        ("[~]", "this item must be a string, this is null"),
        ("", "'depends_on' has no value, it must be a list of task names. Leave the field out"),
    ],
)
def test_parents_are_a_list_of_names(value: str, expected: str) -> None:
    """A10: a scalar is not taken letter by letter."""
    found = only_problem(check_tasks(f"- name: train\n- name: b\n  depends_on: {value}\n"))

    assert expected in found
    assert found.startswith("flow.yaml:5:")


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("depend_on: [a]", "'depend_on'. Did you mean 'depends_on'?"),
        ("needs: [a]", "'needs'. Did you mean 'depends_on'?"),
        ("num_retry: 1", "'num_retry'. Did you mean 'num_retries'?"),
        ("timeout: 3", "'timeout'. Did you mean 'timeout_s'?"),
        ("Queue: gpu", "'Queue'. Did you mean 'queue'?"),
        ("env: {A: b}", "'env'. It belongs under 'kwargs'"),
        ("cmd: echo", "'cmd'. It belongs under 'kwargs'"),
        ("if: x", "'if'. Did you mean 'condition'?"),
        ("zzz: 1", "'zzz'"),
    ],
)
def test_unknown_task_field_is_refused_with_a_hint(field: str, expected: str) -> None:
    """A11: nothing is silently dropped."""
    assert f"flow.yaml:4:3: tasks[0].{field.split(':')[0]}: unknown task field {expected}" in only_problem(
        check_tasks(f"- name: a\n  {field}\n")
    )


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("max_paralellism: 3", "Did you mean 'max_parallelism'?"),
        ("queue: gpu", "Did you mean 'default_queue'?"),
        ("timeout: 3", "Did you mean 'timeout_s' (of the run) or 'default_task_timeout_s' (of each task)?"),
        ("arguments: {}", "Values of params are given at submit."),
        ("parameters: {}", "Did you mean 'params'?"),
        ("tags: {}", "Did you mean 'labels'?"),
        ("jobs: []", "Did you mean 'tasks'?"),
    ],
)
def test_unknown_workflow_field_is_refused_with_a_hint(field: str, expected: str) -> None:
    """A11: at the top as well."""
    found = only_problem(check_yaml(f"name: w\n{field}\ntasks: [{{name: a}}]\n"))

    assert "unknown workflow field" in found
    assert expected in found


def test_schema_key_for_editors_is_accepted_and_ignored() -> None:
    """JSON users name their schema in the document, as YAML users do in a comment."""
    yaml_report = check_yaml("$schema: ./workflow.json\nname: w\ntasks: [{name: a}]\n")
    json_report = check_json('{"$schema": "./workflow.json", "name": "w", "tasks": [{"name": "a"}]}')

    assert loaded(yaml_report) == loaded(json_report)


@pytest.mark.parametrize("key", ["command", "comand", "cmds", "CMD", "run"])
def test_key_that_looks_like_cmd_is_warned_about(key: str) -> None:
    """A11: legal for a custom processor, but probably meant for the shell."""
    report = check_tasks(f"- name: a\n  kwargs:\n    {key}: echo\n")

    assert loaded(report).tasks[0].kwargs == {key: "echo"}
    assert [str(warning) for warning in report.warnings] == [
        f"flow.yaml:5:{len(key) + 7}: tasks[0].kwargs.{key}: the shell worker does not read {key!r}. Did you mean 'cmd'?"
    ]


def test_keys_that_look_like_env_and_cwd_are_warned_about() -> None:
    """A11: they would do nothing."""
    report = check_tasks("- name: a\n  kwargs: {cmd: echo, environment: {A: b}, workdir: /tmp}\n")

    assert [warning.hint for warning in report.warnings] == ["Did you mean 'env'?", "Did you mean 'cwd'?"]


@pytest.mark.parametrize(
    "task", ["{name: a}", "{name: a, kwargs: {}}", "{name: a, kwargs: {url: 'https://x.invalid'}}"]
)
def test_task_without_command_is_legal_and_warned_about(task: str) -> None:
    """A12: custom processors need none; a shell worker fails such a task, and here it is said first."""
    report = check_tasks(f"- {task}\n")

    assert loaded(report).tasks[0].name == "a"
    assert [str(warning) for warning in report.warnings] == [
        "flow.yaml:3:3: tasks[0]: task 'a' has no 'cmd' in its kwargs. A shell worker will fail it; a custom processor may run it."
    ]


@pytest.mark.parametrize("cmd", ['""', '"   "', '"\\n"'])
def test_empty_command_is_refused(cmd: str) -> None:
    """A12: it could only be a mistake."""
    assert "'cmd' must not be empty" in only_problem(check_tasks(f"- name: a\n  kwargs: {{cmd: {cmd}}}\n"))


def test_queue_is_default_when_nothing_names_one() -> None:
    """A12: a workflow without queues can make progress."""
    definition = loaded(check_tasks("- name: a\n"))

    assert definition.queue_of(definition.tasks[0]) == "default"


def test_missing_parts_are_all_reported() -> None:
    """A12, B2: each with its place."""
    found = problems(check_yaml("tasks:\n- kwargs: {cmd: x}\n- queue: gpu\n"))

    assert [line.split(" is required")[0] for line in found] == [
        "flow.yaml:1:1: 'name'",
        "flow.yaml:2:3: tasks[0]: 'name'",
        "flow.yaml:3:3: tasks[1]: 'name'",
    ]


NO_WHOLE_NUMBERS = [
    "-1",
    "1.5",
    "true",
    '"3"',
    "1e3",
    ".nan",
    ".inf",
    "1000000000000",
    "9" * 5000,
    "1_000",
    "012",
    "[1]",
]


@pytest.mark.parametrize("value", [*NO_WHOLE_NUMBERS, "0"])
@pytest.mark.parametrize("field", ["timeout_s", "default_task_timeout_s", "max_parallelism"])
def test_limit_is_a_whole_number_from_one(field: str, value: str) -> None:
    """A13: ``timeout_s: 0`` has no meaning, so it is refused; one second is the shortest limit."""
    report = (
        check_tasks(f"- name: a\n  {field}: {value}\n")
        if field in {known.name for known in TASK.fields}
        else check_yaml(f"name: w\n{field}: {value}\ntasks: [{{name: a}}]\n")
    )

    found = only_problem(report)
    assert f"{field!r} must be a whole number from 1 to" in found
    assert len(found) < 200


@pytest.mark.parametrize("value", [*NO_WHOLE_NUMBERS, "1001", "~"])
def test_retries_are_a_whole_number(value: str) -> None:
    """A13: 0 to 1,000."""
    assert "a whole number from 0 to 1,000" in only_problem(check_tasks(f"- name: a\n  num_retries: {value}\n"))


@pytest.mark.parametrize(("field", "values"), [("num_retries", (0, 1000)), ("timeout_s", (1, 31_536_000))])
def test_both_ends_of_the_range_are_accepted(field: str, values: tuple[int, int]) -> None:
    """A13: the documented range is the real one."""
    tasks = tasks_of("".join(f"- {{name: t{value}, {field}: {value}}}\n" for value in values))

    assert tuple(getattr(task, field) for task in tasks) == values


@pytest.mark.parametrize(
    ("value", "hint"), [('"3"', "Remove the quotes."), ("1_000", "Write 1000."), ("012", "Write 12.")]
)
def test_number_written_strangely_gets_a_hint(value: str, hint: str) -> None:
    """A13: what to type instead."""
    assert only_problem(check_tasks(f"- {{name: a, timeout_s: {value}}}\n")).endswith(hint)


@pytest.mark.parametrize("field", ["queue", "timeout_s", "condition"])
def test_null_means_left_out_where_there_is_a_default_to_inherit(field: str) -> None:
    """A13: null is a value of these fields in the schema too."""
    (task,) = tasks_of(f"- {{name: a, {field}: null}}\n")

    assert getattr(task, field) is None


@pytest.mark.parametrize("policy", ["all", "any", "all_settled"])
def test_policy_is_a_word(policy: str) -> None:
    """A8: the words of the table."""
    _, task = tasks_of(f"- name: a\n- {{name: b, depends_on: [a], dep_policy: {policy}}}\n")

    assert task.dep_policy is DepPolicy(policy)


@pytest.mark.parametrize(
    ("policy", "hint"),
    [("al", "Did you mean 'all'?"), ('"2"', "Remove the quotes."), ("0", ""), ("true", ""), ("~", "")],
)
def test_other_policy_is_refused(policy: str, hint: str) -> None:
    """A8, A13: one of the words, or a whole number from 1."""
    found = only_problem(check_tasks(f"- {{name: a, dep_policy: {policy}}}\n"))

    assert "one of all, any, all_settled, always, on_failure, or a whole number from 1" in found
    assert hint in found


@pytest.mark.parametrize(
    "name", ["etl/load", "a\\b", "a#1", "why?", "a b", "train[lr=0.1,seed=1]", "..", "-rf", "--json", "CON", "%"]
)
def test_name_may_hold_any_printable_character(name: str) -> None:
    """B01, B07: names are no keys and no paths, so nothing of what is printable is forbidden."""
    assert tasks_of(f"- name: {json.dumps(name)}\n")[0].name == name


@pytest.mark.parametrize("name", ["tab\tx", "line\nx", "nul\0x", "del\x7fx", "\x85x", "", " lead", "trail ", "\u00a0x"])
def test_name_with_an_invisible_character_is_refused(name: str) -> None:
    """B01, B07: the message says which, or where the blank is."""
    text = json.dumps({"name": "w", "tasks": [{"name": name}]})

    assert "a task name" in only_problem(check_json(text))


def test_names_that_differ_in_case_are_two_names() -> None:
    """B03: on every backend."""
    assert [task.name for task in tasks_of("- name: Train\n- {name: train, depends_on: [Train]}\n")] == [
        "Train",
        "train",
    ]


@pytest.mark.parametrize("name", ["x", "x" * 124, "x" * 255, "🏥" * 255])
def test_name_has_up_to_255_characters(name: str) -> None:
    """B05: characters, not bytes."""
    assert tasks_of(f"- name: {name}\n")[0].name == name


@pytest.mark.parametrize("length", [256, 512, 1100])
def test_longer_name_is_refused_with_the_limit(length: int) -> None:
    """B05: at once, not when it runs."""
    found = only_problem(check_tasks(f"- name: {'x' * length}\n"))

    assert f"a task name has 1 to 255 characters, this one has {length}" in found
    assert len(found) < 200


def test_look_alikes_are_one_name() -> None:
    """B06: composed and decomposed accents."""
    first, second = tasks_of("- name: cafe\u0301\n- {name: b, depends_on: [caf\u00e9]}\n")

    assert (first.name,) == second.depends_on == ("caf\u00e9",)


def test_emoji_keep_names_apart() -> None:
    """B06: nothing is dropped from a name."""
    assert [task.name for task in tasks_of("- name: get 🏥\n- name: get 👩\n")] == ["get 🏥", "get 👩"]


@pytest.mark.parametrize(
    ("queue", "hint"),
    [
        ("Default", "Did you mean 'default'?"),
        ("gpu_a100", "Did you mean 'gpu-a100'?"),
        ("a.b", "Did you mean 'a-b'?"),
        ("a--b", "Did you mean 'a-b'?"),
        ("-a1b", "Did you mean 'a1b'?"),
        ("ab", ""),
        ("x" * 64, ""),
        ("ünï", ""),
    ],
)
@pytest.mark.parametrize("field", ["queue", "default_queue"])
def test_queue_name_follows_the_rule_of_storage_queues(field: str, queue: str, hint: str) -> None:
    """B10: on every backend, named with its rule."""
    text = f"queue: {queue}}}]\n" if field == "queue" else f"}}]\ndefault_queue: {queue}\n"
    found = only_problem(check_yaml(f"name: w\ntasks: [{{name: a, {text}"))

    assert f"{queue[:59]}" in found
    assert "3 to 63 lower-case letters, digits and single dashes" in found
    assert hint in found


@pytest.mark.parametrize("queue", ["abc", "gpu-a100", "1a2", "x" * 63])
def test_legal_queue_name_is_kept(queue: str) -> None:
    """B10: the whole range of the rule."""
    assert tasks_of(f"- {{name: a, queue: {queue}}}\n")[0].queue == queue


@pytest.mark.parametrize(
    "queue", ["abc", "a-1", "x" * 63, "ab", "x" * 64, "A-b", "a--b", "-ab", "ab-", "a_b", "abc\n", "é12", ""]
)
def test_queue_names_have_one_rule_here_and_in_the_adapters(queue: str) -> None:
    """B10: what is accepted here can be created there."""
    try:
        check_queue_name(queue)
        refused = False
    except UsageError:
        refused = True

    assert (queue_name_problem(queue) is not None) is refused


@pytest.mark.parametrize(
    ("name", "expected"),
    [("''", "1 to 255 characters"), ("x" * 256, "1 to 255 characters"), ('"a\\nb"', "printable"), ("[a]", "a string")],
)
def test_name_of_the_workflow_is_printable_and_short(name: str, expected: str) -> None:
    """B05: it is shown in tables."""
    assert expected in only_problem(check_yaml(f"name: {name}\ntasks: [{{name: a}}]\n"))


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ("{env: {A: }}", "env.A: 'A' must be a string, a number or a truth value, this is nothing. Write \"\""),
        ("{env: {A: null}}", 'this is null. Write "" for an empty value, or quote the text that is meant.'),
        ("{env: {A: [b]}}", "this is a list"),
        ("{env: [A]}", "'env' must be a mapping, this is a list"),
        ("{env: {'': x}}", "the name of an environment variable is not empty"),
        ("{env: {'A=B': x}}", "has no '='"),
        ('{env: {"A\\0": x}}', "no NUL character"),
        ('{env: {A: "x\\0"}}', "a NUL character (at character 2)"),
        ("{env: {JOBQ_WORKFLOW_ID: x}}", "set by the worker"),
        ("{env: {JOBQ_WORKFLOW_TASK: x}}", "set by the worker"),
        ("{env: {JOBQ_WORKFLOW_ATTEMPT: x}}", "set by the worker"),
        ("{env: {JOBQ_OUTPUT_FILE: x}}", "set by the worker"),
        ('{cmd: "echo \\0"}', "a NUL character (at character 6)"),
        ("{cmd: [echo, a]}", "'cmd' must be a string, this is a list"),
        ("{cwd: {a: b}}", "'cwd' must be a string, this is a mapping"),
        ("{cwd: ''}", "a path must not be empty"),
        ("{x: 1e999}", "larger than any that can be stored"),
        (f"{{x: {'9' * 5000}}}", "has 5000 digits, at most 1000 are read"),
        ("[cmd]", "'kwargs' must be a mapping"),
    ],
)
def test_kwargs_that_no_shell_can_run_are_refused(kwargs: str, expected: str) -> None:
    """A13, E10 and kin: found before anything is submitted."""
    assert expected in only_problem(check_tasks(f"- name: a\n  kwargs: {kwargs}\n"))


def test_other_variables_of_the_program_may_be_set() -> None:
    """Only the four that every task gets are reserved."""
    assert kwargs_of("{env: {JOBQ_LOG_LEVEL: debug}}")["env"] == {"JOBQ_LOG_LEVEL": "debug"}


def test_large_task_is_refused_with_its_size() -> None:
    """A task travels in one chunk of the stored definition."""
    report = check_tasks(f"- name: a\n  kwargs: {{cmd: {'x' * 300_000}}}\n")

    assert "takes 300,032 bytes as JSON, at most 256 KiB" in only_problem(report)


def test_parents_count_for_nothing_in_the_size_of_a_task() -> None:
    """A22: 10,000 parents with the longest names there are."""
    names = [f"{'p' * 250}{number:05d}" for number in range(10_000)]
    tasks = [{"name": name} for name in names] + [{"name": "join", "depends_on": names, "kwargs": {"cmd": "true"}}]

    assert loaded(check_mapping({"name": "w", "tasks": tasks})).tasks[-1].depends_on == tuple(names)


def test_size_of_a_task_counts_escapes() -> None:
    """The limit is on canonical JSON, in which an emoji takes twelve bytes."""
    just_legal, too_large = "🏥" * 21_800, "🏥" * 21_900

    assert kwargs_of(f"{{cmd: {just_legal}}}")["cmd"] == just_legal
    assert "256 KiB" in only_problem(check_tasks(f"- {{name: a, kwargs: {{cmd: {too_large}}}}}\n"))
