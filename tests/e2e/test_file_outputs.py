"""A13, B3, C9, C10: files between real processes, on the embedded store and on Azurite."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from tests.e2e.conftest import write_definition
from tests.support.project import Project


def python(script: str) -> str:
    return f"python - <<'END'\n{textwrap.dedent(script)}\nEND"


def task(name: str, script: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kwargs": {"cmd": python("from ai4s.jobq.workflow import *\n" + script)}, **fields}


def test_files_directories_and_endings_go_from_task_to_task(here: Project) -> None:
    """A task stores a file and a directory, the next one reads both and fails, a handler and a hook learn of that."""
    make = """\
from pathlib import Path
Path("d/sub").mkdir(parents=True)
Path("d/sub/part").write_text("part")
Path("model.bin").write_bytes(b"w" * 9_000_000)
set_output({"model": BlobStasher.from_file("model.bin"), "parts": BlobStasher.from_directory("d"), "text": "x" * 40_000})
"""
    use = """\
made = get_upstream_output("make")
made["parts"].download_to("copy")
size = len(made["model"].download_to("new/folder/model.bin").read_bytes())
print(size, open("copy/sub/part").read(), made["model"].url, file=open("used", "w"))
raise SystemExit(7)
"""
    handle = "set_output([get_upstream_status('use'), get_upstream_status('after')])"
    tasks = [
        task("make", make),
        task("use", use, depends_on=["make"]),
        task("after", "pass", depends_on=["use"]),
        task("handle", handle, depends_on=["use", "after"], dep_policy="always"),
    ]
    hook = {"cmd": "echo $JOBQ_WORKFLOW_STATUS > ended"}
    file = write_definition(here, {"name": "files", "tasks": tasks, "on_end": hook})
    workflow_id = here.workflow("submit", file).strip()
    here.coordinator()
    here.worker()

    assert here.finished(workflow_id) == "failed"

    size, part, url = (here.folder / "used").read_text().split()
    assert (size, part) == ("9000000", "part")
    assert workflow_id in url
    used, after = here.tasks(workflow_id)["handle"]["output"]
    assert (used["status"], used["exit_code"], used["cause"], used["attempt"]) == ("failed", 7, "exit", 1)
    assert (after["status"], after["error"]) == ("upstream_failed", "upstream task 'use' failed")
    assert (here.folder / "ended").read_text() == "failed\n"


def test_tasks_json_shows_files_as_plain_json(here: Project) -> None:
    """Scripts see what is stored where; Python makes a BlobStash of it."""
    file = write_definition(
        here, {"name": "f", "tasks": [task("a", "open('m', 'w').write('x'); set_output(BlobStasher.from_file('m'))")]}
    )
    workflow_id = here.workflow("submit", file).strip()
    here.coordinator()
    here.worker()
    assert here.finished(workflow_id) == "completed"

    marker = here.tasks(workflow_id)["a"]["output"]["__jobq_stash__"]

    assert set(marker) == {"v", "state", "kind", "blob", "md5", "size", "filename"}
    assert (marker["state"], marker["size"], marker["filename"]) == ("ready", 1, "m")


def test_a_processor_of_ones_own_runs_tasks_of_workflows(here: Project) -> None:
    """What it returns is the output, what it raises is the error; it publishes nothing itself."""
    (here.folder / "trainers.py").write_text(
        textwrap.dedent("""\
        from ai4s.jobq import Processor
        from ai4s.jobq.workflow import get_upstream_output

        class Train(Processor):
            async def __call__(self, **kwargs):
                if kwargs.get("broken"):
                    raise ValueError("no such data set")
                return {"epochs": kwargs["epochs"], "after": kwargs.get("after")}
        """)
    )
    tasks = [
        {"name": "first", "kwargs": {"epochs": 3}},
        {
            "name": "second",
            "depends_on": ["first"],
            "kwargs": {"epochs": 4, "after": "${{ tasks.first.output.epochs }}"},
        },
        {"name": "third", "depends_on": ["second"], "kwargs": {"broken": True}},
    ]
    workflow_id = here.workflow("submit", write_definition(here, {"name": "own", "tasks": tasks})).strip()
    here.coordinator()
    here.worker("default", "--proc", "trainers.Train")

    assert here.finished(workflow_id) == "failed"

    found = here.tasks(workflow_id)
    assert found["second"]["output"] == {"epochs": 4, "after": 3}
    assert (found["third"]["status"], found["third"]["error"]) == ("failed", "ValueError: no such data set")


def test_blobs_may_be_in_another_container_than_the_default(here: Project) -> None:
    """A3: JOBQ_WORKFLOW_BLOBS is honoured by the worker that stores and by the task that reads."""
    here.environment["JOBQ_WORKFLOW_BLOBS"] = f"{here.account}/elsewhere"
    make = "open('m', 'w').write('x'); set_output([BlobStasher.from_file('m'), 'é' * 40_000])"
    use = "m, text = get_upstream_output('a'); set_output([m.read_bytes().decode(), len(text), 'elsewhere' in m.url])"
    file = write_definition(here, {"name": "f", "tasks": [task("a", make), task("b", use, depends_on=["a"])]})
    workflow_id = here.workflow("submit", file).strip()
    here.coordinator()
    here.worker()

    assert here.finished(workflow_id) == "completed"

    assert here.tasks(workflow_id)["b"]["output"] == ["x", 40_000, True]
    assert json.loads(json.dumps(here.tasks(workflow_id)["a"]["output_ref"]))["size_bytes"] > 80_000
