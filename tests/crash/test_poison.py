"""A task that takes its worker with it, every time: real workers, which are replaced as they die."""

from __future__ import annotations

import threading
from pathlib import Path

from ai4s.jobq.engine.attempts import MAX_LOSSES
from tests.crash.stage import Stage, until
from tests.support.fork_server import ForkServer


def test_a_task_that_kills_its_worker_every_time_fails_in_the_end(forks: ForkServer, tmp_path: Path) -> None:
    """It ends as lost after its budget of losses; its neighbour on the same queue is done all the same."""
    stage = Stage(tmp_path, "local", "Poison", {"JOBQ_LOCAL_DIR": str(tmp_path / "store")}, forks)
    over, deaths = threading.Event(), []

    def keep_a_worker() -> None:
        while not over.is_set():
            code = stage.worker(slots=2).wait()
            deaths.append(code)

    keeper = threading.Thread(target=keep_a_worker, daemon=True)
    stage.coordinator()
    stage.submit(
        "w",
        {
            "name": "w",
            "tasks": [
                {"name": "poison", "kwargs": {"cmd": "sleep 1.3; kill -9 $PPID; sleep 60"}},
                {"name": "neighbour", "kwargs": {"cmd": "sleep 0.2"}},
                {"name": "child", "kwargs": {"cmd": "true"}, "depends_on": ["poison"]},
            ],
        },
    )
    keeper.start()

    assert stage.ended("w") == "failed"
    over.set()

    poison = next(task for task in stage.json("tasks", "w") if task["name"] == "poison")
    assert (poison["status"], poison["cause"]) == ("failed", "lost")
    states = {name: state for name, (state, _) in stage.tasks("w").items()}
    assert states == {"poison": "failed", "neighbour": "completed", "child": "upstream_failed"}
    assert deaths.count(-9) > MAX_LOSSES
    forks.end_all()
    keeper.join()
    until(lambda: not stage.survivors(), "the end of what the dead workers had started")
