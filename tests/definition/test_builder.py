"""The builder: what is built in Python is what a file would say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ai4s.jobq.definition.builder import Workflow
from ai4s.jobq.definition.model import DepPolicy, WorkflowDefinition
from ai4s.jobq.definition.parts import FailFast, Job, Param, ParamType, Retry, WaitFor
from ai4s.jobq.errors import DefinitionError, UsageError
from tests.definition.documents import check_yaml, loaded


def _built(wf: Workflow) -> WorkflowDefinition:
    return wf.definition()


def _parents(wf: Workflow) -> dict[str, tuple[str, ...]]:
    return {task.name: task.depends_on for task in _built(wf).tasks}


def test_built_workflow_is_the_one_of_the_file() -> None:
    """B21: the same fields, the same rules, the same hash."""
    wf = Workflow(
        "nightly",
        default_queue="cpu",
        params={"lr": 0.1, "data": Param(type=ParamType.STRING, required=True)},
        labels={"team": "x"},
        fail_fast=FailFast.KILL,
        deadline=datetime(2030, 1, 31, 8, tzinfo=UTC),
        on_failure="mail boss",
        on_end=Job(kwargs={"cmd": "rm tmp"}, queue="disk"),
    )
    ingest = wf.task("ingest", cmd="make ingest", env={"DAY": 1}, cwd="/data", undo="rm data")
    approval = wf.task("approval", wait_for=WaitFor(signal="go", timeout_s=60)).after(ingest)
    train = wf.task(
        "train",
        cmd="train ${{ matrix.seed }} ${{ params.lr }}",
        kwargs={"note": [1]},
        matrix={"seed": [1, 2]},
        retry=Retry(max=2, delay_s=5),
        not_before=datetime(2030, 1, 31, 8, tzinfo=UTC),
    ).after(approval)
    wf.task("report", cmd="report", dep_policy=DepPolicy.ALWAYS, num_retries=1).after(train, "ingest")

    assert _built(wf) == loaded(
        check_yaml(
            """\
name: nightly
default_queue: cpu
params: {lr: 0.1, data: {required: true}}
labels: {team: x}
fail_fast: kill
deadline: 2030-01-31T08:00:00Z
on_failure: {cmd: mail boss}
on_end: {cmd: rm tmp, queue: disk}
tasks:
- {name: ingest, kwargs: {cmd: make ingest, env: {DAY: 1}, cwd: /data}, undo: {cmd: rm data}}
- {name: approval, depends_on: [ingest], wait_for: {signal: go, timeout_s: 60}}
- name: train
  depends_on: [approval]
  kwargs: {cmd: "train ${{ matrix.seed }} ${{ params.lr }}", note: [1]}
  matrix: {seed: [1, 2]}
  retry: {max: 2, delay_s: 5}
  not_before: 2030-01-31T08:00:00Z
- {name: report, depends_on: [train, ingest], kwargs: {cmd: report}, dep_policy: always, num_retries: 1}
"""
        )
    )


def test_members_of_a_sequence_follow_each_other() -> None:
    """B21: and the group has a beginning and an end."""
    wf = Workflow("w")
    first, last = wf.task("first"), wf.task("last")
    middle = wf.sequence(wf.task("a"), wf.task("b"), wf.task("c")).after(first)
    last.after(middle)

    assert _parents(wf) == {"first": (), "last": ("c",), "a": ("first",), "b": ("a",), "c": ("b",)}


def test_members_of_a_parallel_group_have_the_same_neighbours() -> None:
    """B21: after the group is after all of it."""
    wf = Workflow("w")
    first, last = wf.task("first"), wf.task("last")
    last.after(wf.parallel(wf.task("a"), wf.task("b")).after(first))

    assert _parents(wf) == {"first": (), "last": ("a", "b"), "a": ("first",), "b": ("first",)}


def test_groups_nest() -> None:
    """B21: a group is a step like any other."""
    wf = Workflow("w")
    left = wf.sequence(wf.task("a"), wf.parallel(wf.task("b"), wf.task("c")))
    wf.sequence(wf.task("start"), wf.parallel(left, wf.task("d")), wf.task("end"))

    assert _parents(wf) == {
        "a": ("start",),
        "b": ("a",),
        "c": ("a",),
        "start": (),
        "d": ("start",),
        "end": ("b", "c", "d"),
    }


def test_parents_add_up_without_doubles() -> None:
    """B21: ``after`` may be called again."""
    wf = Workflow("w")
    a, b = wf.task("a"), wf.task("b")
    wf.task("c").after(a).after(b, a)

    assert _parents(wf)["c"] == ("a", "b")


def test_after_a_matrix_is_after_all_of_it() -> None:
    """B21: and one of its tasks can be named."""
    wf = Workflow("w")
    trained = wf.task("train", matrix={"lr": [0.1, 0.01]})
    wf.task("join").after(trained)
    wf.task("first").after("train[lr=0.1]")

    assert list(_parents(wf).values())[2:] == [("train[lr=0.1]", "train[lr=0.01]"), ("train[lr=0.1]",)]


def test_mistakes_are_reported_as_in_a_file() -> None:
    """B2: all at once, without positions."""
    wf = Workflow("w")
    wf.task("a", cmd="", retry={"max": -1}).after("b")

    with pytest.raises(DefinitionError) as caught:
        _built(wf)

    assert [problem.path for problem in caught.value.problems] == [
        "tasks[0].kwargs.cmd",
        "tasks[0].retry.max",
        "tasks[0].depends_on[0]",
    ]


def test_empty_group_is_refused() -> None:
    """B21: nothing could come after it."""
    with pytest.raises(UsageError, match="at least one member"):
        Workflow("w").sequence()
    with pytest.raises(UsageError, match="at least one member"):
        Workflow("w").parallel()


def test_workflow_can_be_built_on_after_it_was_defined() -> None:
    """``definition`` is a picture of the moment."""
    wf = Workflow("w")
    a = wf.task("a")
    first = _built(wf)
    wf.task("b").after(a)

    assert [len(first.tasks), len(_built(wf).tasks)] == [1, 2]
