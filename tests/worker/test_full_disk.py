"""A disk that is full where outputs and logs go: the task concerned fails or loses its log, everybody else goes on.

The disk is played by a limit on the size of files, which a worker process hands on to its commands.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import Project, kill_group, project

LIMIT_KIB = 768
LOUD = "head -c 3000000 /dev/zero | tr '\\0' x"
CUT = """python3 -c 'print("[" + "1," * 1000000 + "1]")' > "$JOBQ_OUTPUT_FILE" 2> /dev/null || true"""
FITS = """echo '{"fits": true}' > "$JOBQ_OUTPUT_FILE\""""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / "project"
    folder.mkdir()
    with project(folder, "local", {"JOBQ_LOCAL_DIR": str(tmp_path / "store"), "TMPDIR": str(tmp_path)}) as made:
        yield made


@pytest.fixture
def cramped_worker(here: Project) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that can write no file larger than the limit, nor can its commands."""
    command = [
        "bash",
        "-c",
        f'ulimit -f {LIMIT_KIB}; exec "$@"',
        "bash",
        *here.command("local/default", "worker", "-q"),
    ]
    with (here.folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=here.folder,
            env=here.environment,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    yield process
    kill_group(process)


def test_a_full_disk_costs_a_task_its_output_or_its_log_and_nobody_else_anything(
    here: Project, cramped_worker: subprocess.Popen[bytes]
) -> None:
    commands = {"loud": LOUD, "cut": CUT, "after": FITS}
    tasks = [{"name": name, "kwargs": {"cmd": cmd}} for name, cmd in commands.items()]
    definition = {"name": "disk", "tasks": [*tasks[:2], {**tasks[2], "depends_on": ["loud"]}]}
    (here.folder / "disk.json").write_text(json.dumps(definition))
    here.coordinator()
    workflow_id = here.workflow("submit", "disk.json").strip()

    assert here.finished(workflow_id) == "failed"
    found = here.tasks(workflow_id)

    assert {name: task["status"] for name, task in found.items()} == {
        "loud": "completed",
        "cut": "failed",
        "after": "completed",
    }
    assert "the output file is no JSON" in found["cut"]["error"]
    assert found["after"]["output"] == {"fits": True}
    assert cramped_worker.poll() is None
    said = (here.folder / "worker.log").read_text(errors="replace")
    assert "Traceback" not in said
    assert "File too large" in said, [line[:400] for line in said.splitlines() if "WARN" in line]
