"""The page about Python, "Task side": its examples run, in the order of the page, as tasks of one workflow."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ai4s.jobq import task, workflow
from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.states import JobKind
from ai4s.jobq.plain.callbacks import CallbackProcessor
from ai4s.jobq.stash import BlobStash, BlobStashDirectory, loads
from ai4s.jobq.store.wire import Report
from ai4s.jobq.worker.shell import TASK_VARIABLES
from tests.worker.stage import Stage
from tests.worker.test_stash_outputs import plant_output, python
from tests.worker.test_upstream_status import end

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Task side") : PAGE.index("## The plain queue")]
FIRST, FILES, READ_FILES, STATUS, PROCESSOR = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)


async def run(stage: Stage, cwd: Path, script: str, parents: dict[str, str | None]) -> Report:
    """How a script ended whose parents have these outputs; None: the parent failed."""
    child = Task(name="child", depends_on=tuple(parents), kwargs={"cmd": python(script), "cwd": str(cwd)})
    header = await stage.submit(*(Task(name=name, kwargs={"cmd": "true"}) for name in parents), child)
    for number, (name, output) in enumerate(parents.items()):
        if output is None:
            await end(stage, header, number)
        else:
            await plant_output(stage, header.workflow_id, number, output, name)
    letters = "".join("f" if output is None else "o" for output in parents.values())
    await stage.put(header, len(parents), parents=letters, kind=JobKind.CLEANUP)
    await stage.run()
    return stage.outcomes()[-1]


async def test_the_first_example_hands_a_number_on(stage: Stage, tmp_path: Path) -> None:
    report = await run(stage, tmp_path, FIRST, {"prep": '{"rows": 7}'})

    assert json.loads(str(report.output)) == {"rows": 7, "mae": 0.25}


async def test_the_files_of_one_example_are_read_by_the_next(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    written = await run(stage, tmp_path, FILES, {})

    read = await run(stage, tmp_path, READ_FILES, {"train": str(written.output)})

    assert (written.error, read.error) == (None, None)
    assert isinstance(loads(str(written.output))["plots"], BlobStashDirectory)
    assert (tmp_path / "models" / "model.bin").read_bytes() == b"weights"
    assert (tmp_path / "copy" / "plots" / "loss.svg").read_text() == "<svg/>"


async def test_the_example_of_a_handler_says_why_its_parent_failed(stage: Stage, tmp_path: Path) -> None:
    report = await run(stage, tmp_path, STATUS, {"train": None})

    assert json.loads(str(report.output)) == "attempt 2 ended by exit: exit code 3\nbroken"


@pytest.mark.parametrize(("rows", "error"), [(7, None), (0, "ValueError: there is nothing to train on")])
async def test_the_example_of_a_processor_trains(stage: Stage, rows: int, error: str | None) -> None:
    names: dict[str, Any] = {"__name__": "trainers", "__file__": __file__}
    exec(PROCESSOR, names)  # the page is ours, and this is what its reader does
    header = await stage.submit(Task(name="prep"), Task(name="train", depends_on=("prep",), kwargs={"epochs": 3}))
    await plant_output(stage, header.workflow_id, 0, json.dumps({"rows": rows}), "prep")
    await stage.put(header, 1, parents="o")

    await stage.worker(processor=CallbackProcessor(names["Train"]())).run()

    report = stage.only_outcome()
    assert report.error == error
    assert (report.output is None) == (error is not None)


def test_every_function_and_every_variable_is_on_the_page() -> None:
    functions = [name for name in workflow.__all__ if inspect.isfunction(getattr(task, name, None))]

    assert [name for name in functions if f"`{name}(" not in SECTION] == []
    assert [name for name in TASK_VARIABLES - {"JOBQ_SIDECAR"} if f"`{name}`" not in SECTION] == []


@pytest.mark.parametrize("kind", [BlobStash, BlobStashDirectory])
def test_all_that_a_stash_can_do_is_on_the_page(kind: type) -> None:
    members = [name for name in dir(kind) if not name.startswith("_") and name not in dir(dict)]

    assert [name for name in members if name not in SECTION] == []
