"""A13, C9: file outputs of tasks, as commands of a real worker write and read them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.states import JobKind, Stop, TaskState
from ai4s.jobq.engine.task_run import TaskRun
from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.store.layout import task_row
from ai4s.jobq.store.records import output_values, task_values
from ai4s.jobq.store.stashes import KEY, read_marker, ready_marker
from ai4s.jobq.store.wire import Cause, Outcome, Report
from tests.worker.stage import Stage
from tests.worker.waiting import until

WRITE = """
import os
from ai4s.jobq.workflow import BlobStasher, set_output
os.makedirs("out/d", exist_ok=True)
open("out/model.bin", "w").write("weights")
open("out/d/model.bin", "w").write("others")
"""


def python(script: str) -> str:
    return f"{sys.executable} - <<'END'\n{script}\nEND"


async def run(stage: Stage, script: str, cwd: Path, **settings: Any) -> Report:
    """How a task with this script ended."""
    await stage.put_command(python(WRITE + script), cwd=str(cwd))
    await stage.run(**settings)
    return stage.outcomes()[-1]


def value_of(report: Report) -> Any:
    assert isinstance(report.output, str), report.error
    return json.loads(report.output)


def outputs_of(stage: Stage) -> BlobStore:
    return stage.services.blobs(stage.store.outputs_store.container)


async def test_a_file_is_stored_under_a_name_of_its_execution(stage: Stage, tmp_path: Path) -> None:
    report = await run(stage, "set_output({'model': BlobStasher.from_file('out/model.bin'), 'mae': 0.5})", tmp_path)

    value = value_of(report)
    marker = value["model"][KEY]
    assert (marker["state"], marker["filename"], marker["size"], value["mae"]) == ("ready", "model.bin", 7, 0.5)
    assert f"/{report.row}/{report.execution}/" in marker["blob"]
    assert await outputs_of(stage).get(marker["blob"]) == b"weights"


async def test_the_files_of_a_task_go_when_its_workflow_is_purged(stage: Stage, tmp_path: Path) -> None:
    value = value_of(await run(stage, "set_output(BlobStasher.from_directory('out'))", tmp_path))

    workflow_id = value[KEY]["blob"].split("/")[1]
    assert await outputs_of(stage).delete_prefix(stage.store.names.workflow_blobs(workflow_id)) == 3


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("BlobStasher.from_file('out/none')", "no such file: write it before the task ends"),
        ("BlobStasher.from_file('out')", "from_directory"),
        ("BlobStasher.from_directory('none')", "no such file"),
        ("{'__jobq_stash__': {'v': 9}}", "version 9"),
        ("{'__jobq_stash__': {'v': 1, 'state': 'pending', 'local_path': 'm', 'filename': 'm'}}", "no absolute path"),
        ("{**BlobStasher.from_file('out/model.bin'), 'more': 1}", "the only key of its mapping"),
    ],
)
async def test_a_file_that_cannot_be_stored_fails_the_attempt(
    stage: Stage, tmp_path: Path, value: str, words: str
) -> None:
    report = await run(stage, f"set_output({value})", tmp_path)

    assert (report.outcome, report.cause, report.exit_code, report.output) == (Outcome.FAILED, Cause.EXIT, 0, None)
    assert words in (report.error or "")


async def test_the_files_of_a_failed_task_are_not_stored(stage: Stage, tmp_path: Path) -> None:
    report = await run(stage, "set_output(BlobStasher.from_file('out/model.bin')); exit(3)", tmp_path)

    assert (report.exit_code, report.output) == (3, None)
    assert [blob.name async for blob in outputs_of(stage).list() if "/files/" in blob.name] == []


async def test_two_executions_of_one_attempt_keep_their_files_apart(stage: Stage, tmp_path: Path) -> None:
    """F05: a zombie that ends late does not touch what the winner stored."""
    script = "from ai4s.jobq.workflow import *; open('m', 'w').write('{}'); set_output(BlobStasher.from_file('m'))"
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    for text in ("winner", "zombie"):
        await stage.put(header, kwargs={"cmd": python(script.format(text)), "cwd": str(tmp_path)})
        await stage.run()

    winner, zombie = (value_of(report)[KEY] for report in stage.outcomes())

    assert winner["blob"] != zombie["blob"]
    assert await outputs_of(stage).get(winner["blob"]) == b"winner"


async def test_an_output_made_large_by_its_files_is_a_blob_too(stage: Stage, tmp_path: Path) -> None:
    report = await run(stage, "set_output([BlobStasher.from_file('out/model.bin')] * 200)", tmp_path)

    assert report.output is not None
    assert not isinstance(report.output, str)
    assert len(json.loads(await stage.store.outputs_store.read(report.output))) == 200


class HeldUp:
    """A container whose puts wait until they are let go."""

    def __init__(self, blobs: BlobStore) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._put = blobs.put
        blobs.put = self.put  # type: ignore[method-assign]  # of the stage's own container

    async def put(self, name: str, data: Any) -> None:
        self.reached.set()
        await self.go_on.wait()
        await self._put(name, data)


async def test_the_message_stays_ours_while_files_are_stored(stage: Stage, tmp_path: Path) -> None:
    held = HeldUp(outputs_of(stage))
    await stage.put_command(python(WRITE + "set_output(BlobStasher.from_file('out/model.bin'))"), cwd=str(tmp_path))
    working = asyncio.create_task(stage.run(visibility_s=1.0))
    await held.reached.wait()
    renewals = stage.queue.renewals

    await until(lambda: stage.queue.renewals >= renewals + 3)
    held.go_on.set()
    await working

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED


async def test_a_task_whose_files_take_long_is_announced_as_started(stage: Stage, tmp_path: Path) -> None:
    held = HeldUp(outputs_of(stage))
    await stage.put_command(python(WRITE + "set_output(BlobStasher.from_file('out/model.bin'))"), cwd=str(tmp_path))
    working = asyncio.create_task(stage.run())

    await until(lambda: [report.outcome for report in stage.reports()] == [Outcome.STARTED])
    held.go_on.set()
    await working

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED


async def test_a_cancelled_workflow_stops_the_storing_of_files(stage: Stage, tmp_path: Path) -> None:
    held = HeldUp(outputs_of(stage))
    cmd = python(WRITE + "set_output(BlobStasher.from_file('out/model.bin'))")
    header = await stage.submit(Task(name="train", kwargs={"cmd": cmd, "cwd": str(tmp_path)}))
    await stage.put(header)
    working = asyncio.create_task(stage.run(kill_timeout_s=0.2))
    await held.reached.wait()

    await stage.change_header(header.workflow_id, stop=Stop.HALT)
    await working

    assert (stage.only_outcome().cause, stage.only_outcome().output) == (Cause.CANCELLED, None)


async def test_a_worker_that_is_told_to_stop_leaves_in_time_and_says_preempted(stage: Stage, tmp_path: Path) -> None:
    held = HeldUp(outputs_of(stage))
    await stage.put_command(python(WRITE + "set_output(BlobStasher.from_file('out/model.bin'))"), cwd=str(tmp_path))
    worker = stage.worker(stop_within_s=1.0)
    working = asyncio.create_task(worker.run())
    await held.reached.wait()

    worker.stop()
    await working

    report = stage.only_outcome()
    assert (report.outcome, report.cause, report.output) == (Outcome.FAILED, Cause.PREEMPTED, None)


# -- reading


async def plant_output(stage: Stage, workflow_id: str, number: int, output: str, name: str) -> None:
    """Write the row that a completed task has."""
    task = TaskRun(number=number, state=TaskState.COMPLETED, stored=TaskState.COMPLETED, attempt=1, has_output=True)
    values = task_values(task, name=name, queue="gpu", life=1, rev=1)
    await stage.set_row(workflow_id, task_row(number), values | output_values(output))


async def read_by_child(stage: Stage, output: str, script: str, *, inside_a_loop: bool = False) -> Report:
    """How a child of a task with this output ended."""
    if inside_a_loop:
        script = f"async def main():\n    {script}\nimport asyncio; asyncio.run(main())"
    child = Task(
        name="use", depends_on=("train",), kwargs={"cmd": python("from ai4s.jobq.workflow import *\n" + script)}
    )
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}), child)
    await plant_output(stage, header.workflow_id, 0, output, "train")
    await stage.put(header, 1, parents="o")
    await stage.run()
    return stage.outcomes()[-1]


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tasks are led to the store of the stage."""
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("inside_a_loop", [False, True])
async def test_a_child_reads_the_file_of_its_parent(stage: Stage, tmp_path: Path, inside_a_loop: bool) -> None:
    written = await run(stage, "set_output({'model': BlobStasher.from_file('out/model.bin')})", tmp_path)
    assert isinstance(written.output, str)
    script = "m = get_upstream_output('train')['model']; set_output([m.read_bytes().decode(), m.filename, m.size])"

    report = await read_by_child(stage, written.output, script, inside_a_loop=inside_a_loop)

    assert value_of(report) == ["weights", "model.bin", 7]


@pytest.mark.usefixtures("readable")
async def test_a_child_downloads_the_directory_of_its_parent(stage: Stage, tmp_path: Path) -> None:
    written = await run(stage, "set_output(BlobStasher.from_directory('out'))", tmp_path)
    assert isinstance(written.output, str)
    target = tmp_path / "copy"

    report = await read_by_child(stage, written.output, f"get_upstream_output('train').download_to({str(target)!r})")

    assert report.error is None
    assert [(target / path).read_text() for path in ("model.bin", "d/model.bin")] == ["weights", "others"]


@pytest.mark.usefixtures("readable")
async def test_a_child_passes_on_the_file_of_its_parent(stage: Stage, tmp_path: Path) -> None:
    written = await run(stage, "set_output(BlobStasher.from_file('out/model.bin'))", tmp_path)
    assert isinstance(written.output, str)

    report = await read_by_child(stage, written.output, "set_output([get_upstream_output('train')])")

    assert value_of(report) == [json.loads(written.output)]


async def test_a_file_that_was_never_stored_is_an_error_where_it_is_read(stage: Stage) -> None:
    marker = {KEY: {"v": 1, "state": "pending", "local_path": "/tmp/m", "filename": "m"}}

    report = await read_by_child(stage, json.dumps(marker), "get_upstream_output('train')")

    assert "was never stored" in (report.error or "")


async def test_an_undo_job_reads_the_output_of_its_own_task(stage: Stage) -> None:
    script = python("from ai4s.jobq.workflow import *; set_output(get_upstream_output('train'))")
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    await plant_output(stage, header.workflow_id, 0, '{"made": 1}', "train")
    await stage.put(header, row="u000000", kind=JobKind.UNDO, parents="o", kwargs={"cmd": script})

    await stage.run()

    assert value_of(stage.only_outcome()) == {"made": 1}


async def test_a_hook_is_told_how_the_workflow_ended(stage: Stage) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    kwargs = {"cmd": 'echo "\\"$JOBQ_WORKFLOW_STATUS\\"" > $JOBQ_OUTPUT_FILE'}
    await stage.put(header, row="h000000", kind=JobKind.HOOK, kwargs=kwargs, workflow_status="failed")

    await stage.run()

    assert value_of(stage.only_outcome()) == "failed"


def test_a_marker_survives_the_way_there_and_back() -> None:
    marker = {KEY: {"v": 1, "state": "ready", "kind": "file", "blob": "b", "md5": "0" * 32, "size": 1, "filename": "m"}}
    stash = read_marker(marker)

    assert ready_marker(stash) == marker  # type: ignore[arg-type]  # a ready one
