"""What task scripts import: in a made-up environment first, then as commands of a real worker."""

from __future__ import annotations

import datetime
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.outputs import OutputStore
from ai4s.jobq.store.records import output_values, task_values
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.task import (
    DependencyFailedError,
    NoOutputError,
    NotInTaskError,
    NotUpstreamError,
    get_real_upstream_tasks,
    get_upstream_output,
    get_upstream_outputs,
    get_workflow_context,
    is_cancelled,
    set_output,
)
from ai4s.jobq.worker.sidecar import Parent
from tests.worker.stage import Stage

PARENTS: dict[str, Parent] = {
    "prep": {"row": "t000000", "state": "completed", "output": '{"rows": 5000000000}'},
    "none": {"row": "t000001", "state": "completed"},
    "skipped": {"row": "t000002", "state": "skipped"},
    "broken": {"row": "t000003", "state": "failed"},
    "a null": {"row": "t000004", "state": "completed", "output": "null"},
}


@pytest.fixture
def in_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process as a task without parents; its output file."""
    output = tmp_path / "output.json"
    for name, value in {
        "JOBQ_WORKFLOW_ID": "w1",
        "JOBQ_WORKFLOW_TASK": "train",
        "JOBQ_WORKFLOW_ATTEMPT": "2",
        "JOBQ_OUTPUT_FILE": str(output),
        "JOBQ_CANCEL_FILE": str(tmp_path / "cancelled"),
    }.items():
        monkeypatch.setenv(name, value)
    return output


@pytest.fixture
def with_parents(in_task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a task with parents of every kind."""
    sidecar = tmp_path / "sidecar.json"
    sidecar.write_text(json.dumps({"v": 1, "store": "local/Proj", "workflow": "w1", "parents": PARENTS}))
    monkeypatch.setenv("JOBQ_SIDECAR", str(sidecar))


@pytest.mark.parametrize(
    "value", [None, True, 2**64, 0.1, "é🚀\n", [1, [2]], {"a": {"b": None}}, {"path": "/data/model.bin"}]
)
def test_an_output_is_written_as_json(in_task: Path, value: Any) -> None:
    set_output(value)

    assert json.loads(in_task.read_text(encoding="utf-8")) == value


def test_the_last_output_wins_and_no_other_file_is_left(in_task: Path) -> None:
    set_output(1)
    set_output(2)

    assert in_task.read_text() == "2"
    assert os.listdir(in_task.parent) == ["output.json"]
    assert stat.S_IMODE(in_task.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, "set"),
        (b"bytes", "b'bytes'"),
        ({"when": datetime.date(2026, 1, 1)}, "datetime.date(2026, 1, 1)"),
        ({(1, 2): 3}, "tuple"),
    ],
)
def test_a_value_json_cannot_say_is_a_type_error_that_names_it(in_task: Path, value: Any, words: str) -> None:
    set_output("before")

    with pytest.raises(TypeError) as caught:
        set_output(value)

    assert words in str(caught.value)
    assert in_task.read_text() == '"before"'


def test_numbers_and_texts_that_are_no_json_are_refused(in_task: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    for value in (float("nan"), float("inf"), "\ud800", circle, deep):
        with pytest.raises(ValueError, match="set_output"):
            set_output(value)

    assert not in_task.exists()


def test_a_task_knows_who_it_is(in_task: Path) -> None:
    context = get_workflow_context()

    assert (context.workflow_id, context.task_name, context.attempt) == ("w1", "train", 2)
    assert (get_upstream_outputs(), get_real_upstream_tasks()) == ({}, [])


def test_the_flag_file_means_cancelled(in_task: Path) -> None:
    assert not is_cancelled()

    (in_task.parent / "cancelled").touch()

    assert is_cancelled()
    assert get_workflow_context().is_cancelled()


@pytest.mark.usefixtures("with_parents")
@pytest.mark.parametrize(
    ("name", "output"),
    [("prep", {"rows": 5_000_000_000}), ("none", None), ("skipped", None), ("broken", None), ("a null", None)],
)
def test_a_parents_output_is_its_value_or_none(name: str, output: Any) -> None:
    assert get_upstream_output(name) == output


@pytest.mark.usefixtures("with_parents")
def test_all_parents_are_listed_with_what_they_have() -> None:
    assert get_upstream_outputs() == {
        "prep": {"rows": 5_000_000_000},
        "none": None,
        "skipped": None,
        "broken": None,
        "a null": None,
    }
    assert get_real_upstream_tasks() == ["a null", "broken", "none", "prep", "skipped"]


@pytest.mark.usefixtures("with_parents")
@pytest.mark.parametrize("name", ["train", "grandparent", ""])
def test_a_task_that_is_no_direct_parent_is_a_key_error_that_lists_the_parents(name: str) -> None:
    with pytest.raises(NotUpstreamError, match="not a direct upstream") as caught:
        get_upstream_output(name)

    assert isinstance(caught.value, KeyError)
    assert "'prep'" in str(caught.value)


@pytest.mark.usefixtures("with_parents")
@pytest.mark.parametrize(
    ("name", "error"), [("none", NoOutputError), ("skipped", NoOutputError), ("broken", DependencyFailedError)]
)
def test_strict_tells_why_there_is_no_output(name: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        get_upstream_output(name, strict=True)

    assert type(caught.value) is error
    assert repr(name) in str(caught.value)


@pytest.mark.usefixtures("with_parents")
def test_strict_takes_a_null_for_an_output() -> None:
    assert get_upstream_output("a null", strict=True) is None


@pytest.mark.parametrize(
    "call", [lambda: set_output(1), lambda: get_upstream_output("a"), get_upstream_outputs, is_cancelled]
)
def test_outside_a_task_everything_says_so(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JOBQ_")]:
        monkeypatch.delenv(name)

    with pytest.raises(NotInTaskError) as caught:
        call()

    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("module", ["ai4s.jobq.task", "ai4s.jobq.workflow"])
def test_importing_the_helpers_imports_nothing_that_takes_time(module: str) -> None:
    script = f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(run.stdout.split())
    assert {name for name in loaded if name.startswith("ai4s.jobq.")} == {module}
    assert loaded.isdisjoint({"asyncio", "dataclasses", "inspect", "json", "logging", "subprocess", "azure", "aiohttp"})


def test_using_a_helper_from_the_package_imports_no_sdk(in_task: Path) -> None:
    script = (
        "import sys; from ai4s.jobq.workflow import set_output, get_upstream_outputs; set_output({'a': 1}); "
        "get_upstream_outputs(); print([name for name in ('asyncio', 'azure', 'aiohttp', 'yaml', 'rich', 'click') "
        "if name in sys.modules])"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"
    assert json.loads(in_task.read_text()) == {"a": 1}


# -- as commands of a worker


def python(script: str) -> str:
    return f"{sys.executable} - <<'END'\n{script}\nEND"


async def diamond(stage: Stage, script: str, *, outputs: list[str | BlobRef], letters: str = "") -> Any:
    """Run ``script`` as the child of parents with these outputs; what it gave to ``set_output``."""
    parents = [Task(name=f"p{number}", kwargs={"cmd": "true"}) for number in range(len(outputs))]
    names = tuple(task.name for task in parents)
    header = await stage.submit(*parents, Task(name="join", depends_on=names, kwargs={"cmd": python(script)}))
    for number, output in enumerate(outputs):
        await plant_output(stage, header.workflow_id, number, output)
    await stage.put(header, len(parents), parents=letters or "o" * len(parents))
    await stage.run()
    report = stage.only_outcome()
    assert report.error is None, report.error
    assert isinstance(report.output, str)
    return json.loads(report.output)


async def plant_output(stage: Stage, workflow_id: str, number: int, output: str | BlobRef) -> None:
    """Write the row that a completed parent has."""
    run = TaskRun(number=number, state=TaskState.COMPLETED, stored=TaskState.COMPLETED, attempt=1, has_output=True)
    values = task_values(run, name=f"p{number}", queue="gpu", life=1, rev=1)
    await stage.set_row(workflow_id, task_row(number), values | output_values(output))


READ_ALL = "from ai4s.jobq.workflow import get_upstream_outputs, set_output; set_output(get_upstream_outputs())"


async def test_a_child_reads_what_its_parents_wrote(stage: Stage) -> None:
    found = await diamond(stage, READ_ALL, outputs=['{"a": 1}', '"é🚀"'])

    assert found == {"p0": {"a": 1}, "p1": "é🚀"}


async def test_a_child_learns_of_parents_that_did_not_complete(stage: Stage) -> None:
    script = (
        "from ai4s.jobq.workflow import DependencyFailedError, get_upstream_output, set_output\n"
        "try: get_upstream_output('p1', strict=True)\n"
        "except DependencyFailedError as exc: set_output([str(exc), get_upstream_output('p0')])\n"
    )

    found = await diamond(stage, script, outputs=["7", "8"], letters="of")

    assert found == ["upstream task 'p1' has no output: it is failed", 7]


@pytest.mark.parametrize("inside_a_loop", [False, True])
async def test_a_large_output_is_fetched_from_its_blob(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside_a_loop: bool
) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    text = json.dumps("é" * 50_000, ensure_ascii=False)
    store: OutputStore = stage.store.outputs_store
    header = await stage.submit(Task(name="x", kwargs={"cmd": "true"}))
    message = await stage.put(header)
    await stage.queue.clear()
    blob = await store.save(stage.store.names, message, "1-a", text)
    body = "set_output(len(get_upstream_output('p0')))"
    script = (
        f"import asyncio\nfrom ai4s.jobq.workflow import get_upstream_output, set_output\nasync def main(): {body}\n"
    )
    script += "asyncio.run(main())" if inside_a_loop else body

    assert isinstance(blob, BlobRef)
    assert await diamond(stage, script, outputs=[blob]) == 50_000


async def test_more_outputs_than_are_handed_over_are_read_from_the_store(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))

    found = await diamond(stage, READ_ALL, outputs=[str(number) for number in range(70)])

    assert found == {f"p{number}": number for number in range(70)}


async def test_outputs_of_more_than_a_mebibyte_together_are_read_from_the_store(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    text = json.dumps("x" * 32_000)
    script = "from ai4s.jobq.workflow import get_upstream_outputs, set_output; set_output(sum(map(len, get_upstream_outputs().values())))"

    assert await diamond(stage, script, outputs=[text] * 40) == 40 * 32_000


async def test_a_message_that_does_not_match_the_definition_fails_its_attempt(stage: Stage) -> None:
    header = await stage.submit(Task(name="a", kwargs={"cmd": "true"}), Task(name="b", depends_on=("a",)))
    await stage.put(header, 1, parents="ooo")

    await stage.run()

    assert "1 parents, its message 3" in (stage.only_outcome().error or "")


async def test_the_worker_hands_no_sidecar_to_others(stage: Stage) -> None:
    await stage.put_command("true")
    script = "ls -l $JOBQ_SIDECAR | cut -c1-10; exit 1"
    header = await stage.submit(Task(name="a"), Task(name="b", depends_on=("a",), kwargs={"cmd": script}))
    await stage.put(header, 1, parents="c")

    await stage.run()

    errors = [report.error for report in stage.outcomes() if report.error]
    assert errors == ["exit code 1\n-rw-------"]
