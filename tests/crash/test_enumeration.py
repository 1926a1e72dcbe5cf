"""The enumeration itself: which calls are points, and that a process that should die there does."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from tests.crash.enumeration import Extent, points
from tests.crash.stage import until
from tests.support.crashing import Death
from tests.support.fork_server import ForkServer


def test_the_first_the_second_and_the_last_call_of_a_kind_are_points() -> None:
    assert points(Counter({("table.transact", "T"): 7}), Extent.EVERY) == [
        Death("table.transact", "T", number, after) for number in (0, 1, 6) for after in (False, True)
    ]


def test_of_calls_that_wait_for_work_the_fourth_counts_as_the_last() -> None:
    numbers = [death.number for death in points(Counter({("queue.receive", "q"): 900}), Extent.EVERY)]

    assert numbers == [0, 0, 1, 1, 3, 3]


def test_a_call_that_is_made_once_is_two_points() -> None:
    assert len(points(Counter({("blob.put", "b"): 1}), Extent.EVERY)) == 2


def test_a_process_is_really_gone_at_the_call_it_should_die_at(forks: ForkServer, tmp_path: Path) -> None:
    """Its exit is that of a SIGKILL, and the calls before that one are all it made."""
    record = tmp_path / "calls"
    environment = {
        "JOBQ_WORKFLOW_PREFIX": "local/Gone",
        "JOBQ_LOCAL_DIR": str(tmp_path / "store"),
        "HOME": str(tmp_path),
    }
    (tmp_path / "w.yaml").write_text("name: w\ntasks:\n- name: a\n  kwargs: {cmd: 'true'}\n")

    process = forks.start(
        "workflow",
        "submit",
        "w.yaml",
        folder=tmp_path,
        environment=environment,
        out=tmp_path / "out",
        err=tmp_path / "err",
        death=Death("table.transact", "Workflows", 0, after=False),
        record=record,
    )

    assert process.wait() == -9
    assert record.read_text().splitlines()[-2:] == ["table.transact GoneWorkflows", "died"]


def test_no_child_outlives_whoever_gave_the_orders(tmp_path: Path) -> None:
    """The server sees the end of its orders and kills who is left."""
    environment = {
        "JOBQ_WORKFLOW_PREFIX": "local/Left",
        "JOBQ_LOCAL_DIR": str(tmp_path / "store"),
        "HOME": str(tmp_path),
    }
    orders = {"folder": tmp_path, "environment": environment, "out": tmp_path / "out", "err": tmp_path / "err"}
    with ForkServer() as forks:
        process = forks.start("workflow", "coordinator", **orders)  # type: ignore[arg-type]  # they fit
        until((tmp_path / "err").exists, "the coordinator to be there")
        forks.hang_up()

        assert process.wait() == -signal.SIGKILL
