"""The fields about flow, time, endings and labels: what they take, and what contradicts what."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from ai4s.jobq.definition.load import check_mapping, from_mapping
from ai4s.jobq.definition.model import DepPolicy, Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Backoff, FailFast, Job, OnTimeout, Retry, WaitFor
from tests.definition.documents import check_tasks, check_yaml, loaded, only_problem, problems, tasks_of

EVERYTHING = """\
name: w
params: {lr: 0.1}
labels: {team: alloys, run: 7}
priority: 5
fail_fast: kill
undo_on_cancel: false
timeout_s: 3600
deadline: 2030-01-31T09:00:00+01:00
on_success: {cmd: echo good}
on_failure: {cmd: echo bad, queue: cpu, timeout_s: 5, num_retries: 2, env: {A: b}, cwd: /tmp}
on_end: {cmd: echo end}
tasks:
- name: approval
  wait_for: {signal: go, timeout_s: 60, on_timeout: skip}
- name: train
  depends_on: [approval]
  kwargs: {cmd: train}
  allow_failure: true
  undo: {cmd: rm model, queue: cpu}
  priority: -3
  retry: {max: 3, delay_s: 1.5, backoff: exponential, max_delay_s: 60, jitter: 0.2, on_exit_codes: [75, -9]}
  delay_s: 10.0
  not_before: 2030-01-31 08:00Z
- {name: cleanup, depends_on: [train], dep_policy: always}
- {name: repair, depends_on: [train], dep_policy: on_failure}
"""


def _workflow(fields: str) -> Any:
    return check_yaml(f"name: w\n{fields}\ntasks: [{{name: a}}]\n")


def test_every_field_arrives() -> None:
    """B3-B7, B14-B16, B19, C10: the whole surface at once."""
    definition = loaded(check_yaml(EVERYTHING))
    approval, train, cleanup, repair = definition.tasks

    assert approval == Task(name="approval", wait_for=WaitFor(signal="go", timeout_s=60, on_timeout=OnTimeout.SKIP))
    assert train == Task(
        name="train",
        depends_on=("approval",),
        kwargs={"cmd": "train"},
        allow_failure=True,
        undo=Job(kwargs={"cmd": "rm model"}, queue="cpu"),
        priority=-3,
        retry=Retry(
            max=3, delay_s=1.5, backoff=Backoff.EXPONENTIAL, max_delay_s=60, jitter=0.2, on_exit_codes=(75, -9)
        ),
        delay_s=10,
        not_before=datetime(2030, 1, 31, 8, tzinfo=UTC),
    )
    assert (cleanup.dep_policy, repair.dep_policy) == (DepPolicy.ALWAYS, DepPolicy.ON_FAILURE)
    assert definition.labels == {"team": "alloys", "run": "7"}
    assert (definition.priority, definition.timeout_s, definition.undo_on_cancel) == (5, 3600, False)
    assert definition.fail_fast is FailFast.KILL
    assert definition.deadline == datetime(2030, 1, 31, 8, tzinfo=UTC)
    assert definition.hooks() == {
        "on_success": Job(kwargs={"cmd": "echo good"}),
        "on_failure": Job(
            kwargs={"cmd": "echo bad", "env": {"A": "b"}, "cwd": "/tmp"}, queue="cpu", timeout_s=5, num_retries=2
        ),
        "on_end": Job(kwargs={"cmd": "echo end"}),
    }


def test_every_field_survives_being_written_as_json() -> None:
    """B1: what is stored and read again is the same, through the loader and without it."""
    definition = loaded(check_yaml(EVERYTHING))

    assert from_mapping(definition.to_json()) == definition
    assert WorkflowDefinition.from_json(definition.to_json()) == definition


def test_definition_without_these_fields_is_written_as_before() -> None:
    """B1: fields at their default are left out, so the hashes of plain definitions stay what they were."""
    definition = loaded(check_yaml("name: w\ntasks: [{name: a, kwargs: {cmd: x}}]\n"))

    assert definition.to_json() == {"name": "w", "tasks": [{"name": "a", "kwargs": {"cmd": "x"}}]}
    text = b'{"name":"w","tasks":[{"kwargs":{"cmd":"x"},"name":"a"}]}'
    assert definition.digest() == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "field",
    ["labels: {a: b}", "priority: 3", "tasks: [{name: a, priority: 3}]"],
)
def test_labels_and_priorities_are_outside_the_hash(field: str) -> None:
    """B1, B19, B6: they change nothing of what is computed."""
    plain, marked = (
        loaded(check_yaml(f"name: w\n{text}\n"))
        for text in ("tasks: [{name: a}]", field if "tasks" in field else f"{field}\ntasks: [{{name: a}}]")
    )

    assert marked != plain
    assert marked.digest() == plain.digest()


@pytest.mark.parametrize(
    "field", ["timeout_s: 3", "fail_fast: true", "undo_on_cancel: false", "on_end: {cmd: x}", "params: {a: 1}"]
)
def test_what_changes_the_run_changes_the_hash(field: str) -> None:
    """B1: everything else counts."""
    assert loaded(_workflow(field)).digest() != loaded(_workflow("")).digest()


@pytest.mark.parametrize(
    ("value", "meaning"), [("true", FailFast.ON), ("false", FailFast.OFF), ("kill", FailFast.KILL)]
)
def test_fail_fast_is_a_truth_value_or_kill(value: str, meaning: FailFast) -> None:
    """B5: and only ``false`` is false."""
    definition = loaded(_workflow(f"fail_fast: {value}"))

    assert definition.fail_fast is meaning
    assert bool(definition.fail_fast) is (value != "false")


def test_max_retries_reads_both_forms() -> None:
    """B16: num_retries is the short form."""
    tasks = tasks_of("- {name: a, num_retries: 2}\n- {name: b, retry: {max: 3}}\n- {name: c}\n")

    assert [task.max_retries for task in tasks] == [2, 3, 0]


def test_jobs_run_where_they_say_or_where_their_owner_does() -> None:
    """B7, C10: an undo job on its task's queue, a hook on the default queue."""
    definition = loaded(
        check_yaml(
            "name: w\ndefault_queue: cpu\non_end: {cmd: x}\non_failure: {cmd: x, queue: mail}\ntasks:\n"
            "- {name: a, queue: gpu, undo: {cmd: x}}\n- {name: b, queue: gpu, undo: {cmd: x, queue: disk}}\n"
        )
    )

    assert [definition.undo_queue_of(task) for task in definition.tasks] == ["gpu", "disk"]
    assert [definition.hook_queue_of(hook) for hook in definition.hooks().values()] == ["mail", "cpu"]
    assert definition.queues() == ["cpu", "disk", "gpu", "mail"]


def test_task_that_waits_for_a_signal_needs_no_queue() -> None:
    """B14: no worker is involved."""
    definition = loaded(check_tasks("- {name: a, queue: gpu}\n- {name: go, depends_on: [a], wait_for: {signal: go}}\n"))

    assert definition.queues() == ["gpu"]


def test_task_that_waits_for_a_signal_gets_no_warning_about_its_command() -> None:
    """B14: it has none, and that is right."""
    assert check_tasks("- {name: go, wait_for: {signal: go}}\n").warnings == ()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("allow_failure: yes", "'allow_failure' must be true or false, this is the string 'yes'"),
        ('allow_failure: "true"', "this is the string 'true'. Remove the quotes."),
        ("priority: 1001", "'priority' must be a whole number from -1000 to 1,000, this is 1001"),
        ("priority: -1001", "from -1000 to 1,000"),
        ("delay_s: -1", "'delay_s' must be a number from 0 to 31,536,000, this is -1"),
        ("delay_s: true", "must be a number"),
        ("delay_s: 1_000", "Write 1000."),
        ("not_before: 2030-01-31", "'not_before' must be a time with date and zone, such as 2030-01-31T08:00:00Z"),
        ("not_before: 2030-01-31T08:00:00", "a time with date and zone"),
        ("not_before: 2030-02-31T08:00:00Z", "a time with date and zone"),
        ("not_before: 0001-01-01T00:00:00+23:00", "a time with date and zone"),
        ("retry: 3", "'retry' must be a mapping, this is 3"),
        ("retry: {delay_s: 3}", "tasks[0].retry: 'max' is required"),
        ("retry: {max: 1001}", "a whole number from 0 to 1,000"),
        ("retry: {max: 1, backoff: expo}", "must be one of fixed, exponential"),
        ("retry: {max: 1, jitter: 2}", "'jitter' must be a number from 0 to 1, this is 2"),
        ("retry: {max: 1, on_exit_codes: [256]}", "a whole number from -255 to 255"),
        ("retry: {max: 1, delay: 3}", "unknown retry field 'delay'. Did you mean 'delay_s'?"),
        ("retry: {max: 1, delay_s: 9, max_delay_s: 3}", "'max_delay_s' (3) is less than 'delay_s' (9)"),
        (
            "{num_retries: 1, retry: {max: 1}}",
            "tasks[0].num_retries: 'num_retries' and 'retry' say the same thing twice",
        ),
        ("undo: rm x", "'undo' must be a mapping, this is the string 'rm x'"),
        ("undo: {queue: gpu}", "tasks[0].undo: 'cmd' is required"),
        ("undo: {cmd: ''}", "'cmd' must not be empty"),
        ("undo: {cmd: x, queue: GPU}", "a queue name has 3 to 63"),
        ("undo: {cmd: x, kwargs: {}}", "unknown job field 'kwargs'. A job is written {cmd: …}."),
        ("undo: {cmd: x, num_retries: -1}", "a whole number from 0 to 1,000"),
        ("wait_for: go", "'wait_for' must be a mapping"),
        ("wait_for: {}", "'signal' is required"),
        (
            "wait_for: {signal: 'a b'}",
            "the name of a signal has 1 to 100 letters, digits, dots, underscores and dashes",
        ),
        (f"wait_for: {{signal: {'x' * 101}}}", "1 to 100 letters"),
        ("wait_for: {signal: go, timeout_s: 0}", "a whole number from 1"),
        ("wait_for: {signal: go, timeout_s: 5, on_timeout: stop}", "must be one of fail, skip"),
        (
            "wait_for: {signal: go, on_timeout: skip}",
            "'on_timeout' without 'timeout_s': it waits for ever. Add timeout_s.",
        ),
        (
            "{wait_for: {signal: go}, kwargs: {cmd: x}}",
            "tasks[0].kwargs.cmd: a task that waits for a signal runs no command, its output is the data of the signal",
        ),
        ("dep_policy: always", "dep_policy=always requires at least one dependency. Add depends_on."),
        ("dep_policy: on_failure", "dep_policy=on_failure requires at least one dependency"),
        ("rollback: x", "Did you mean 'undo'?"),
        ("continue_on_error: true", "Did you mean 'allow_failure'?"),
        ("strategy: {}", "Did you mean 'matrix'?"),
    ],
)
def test_wrong_field_of_a_task_is_refused(field: str, expected: str) -> None:
    """B2: with its place and what is expected."""
    fields = field[1:-1] if field.startswith("{") else field
    found = only_problem(check_tasks(f"- {{name: a, {fields}}}\n"))

    assert expected in found
    assert found.startswith("flow.yaml:3:")


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("fail_fast: maybe", "'fail_fast' must be true, false or kill, this is the string 'maybe'"),
        ("fail_fast: 1", "must be true, false or kill"),
        ("undo_on_cancel: 'no'", "must be true or false"),
        ("timeout_s: 0", "a whole number from 1"),
        ("deadline: tomorrow", "a time with date and zone"),
        ("on_end: echo", "'on_end' must be a mapping"),
        ("on_end: {env: {A: b}}", "'cmd' is required"),
        ("on_success: {cmd: x, env: {JOBQ_WORKFLOW_ID: x}}", "set by the worker"),
        ("on_failure: {cmd: x, cwd: ''}", "a path must not be empty"),
        ("priority: high", "a whole number from -1000 to 1,000"),
        ("labels: [a]", "'labels' must be a mapping"),
        ("labels: {a: [b]}", "must be a string, a number or a truth value"),
        ("labels: {'': b}", "the name of a label has 1 to 63 characters, this one has 0"),
        (f"labels: {{{'x' * 64}: b}}", "this one has 64"),
        ("labels: {'a=b': c}", "without '='"),
        ("labels: {' a': c}", "without blanks at its ends"),
        (f"labels: {{a: {'x' * 256}}}", "the value of a label has at most 255 characters, this one has 256"),
        ('labels: {a: "b\\nc"}', "printable text on one line"),
        (f"labels: {{{', '.join(f'l{n}: x' for n in range(33))}}}", "33 labels, at most 32 are allowed"),
        (
            f"labels: {{{', '.join(f'l{n}: {chr(228) * 127}' for n in range(16))}}}",
            "the labels take 4,102 bytes together, at most 4 KiB are allowed",
        ),
    ],
)
def test_wrong_field_of_the_workflow_is_refused(field: str, expected: str) -> None:
    """B2: with its place and what is expected."""
    found = only_problem(_workflow(field))

    assert expected in found
    assert found.startswith("flow.yaml:2:")


def test_head_of_a_definition_is_bounded() -> None:
    """It travels with the first chunk of the stored definition."""
    hooks = "\n".join(f"{name}: {{cmd: {'x' * 100_000}}}" for name in ("on_success", "on_failure", "on_end"))

    assert "bytes as JSON together, at most 256 KiB" in only_problem(_workflow(hooks))


def test_large_undo_counts_for_the_size_of_its_task() -> None:
    """A task travels in one chunk of the stored definition, undo job included."""
    report = check_tasks(f"- {{name: a, undo: {{cmd: {'x' * 300_000}}}, not_before: 2030-01-31T08:00Z}}\n")

    assert "bytes as JSON, at most 256 KiB" in only_problem(report)


def test_field_at_its_default_means_nothing_and_is_accepted() -> None:
    """``priority: 0`` is as good as leaving it out."""
    report = check_mapping({"name": "w", "priority": 0, "fail_fast": False, "tasks": [{"name": "a", "delay_s": 0}]})

    assert loaded(report).tasks[0].delay_s == 0


def test_mistakes_in_one_task_are_all_reported() -> None:
    """B2: a mistake in one field hides none in another."""
    found = problems(
        check_tasks("- {name: a, undo: {cmd: ''}, retry: {max: -1}, wait_for: {signal: ' '}, dep_policy: always}\n")
    )

    assert [line.split(": ")[1] for line in found] == [
        "tasks[0].undo.cmd",
        "tasks[0].retry.max",
        "tasks[0].wait_for.signal",
        "tasks[0].dep_policy",
    ]
