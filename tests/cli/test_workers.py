"""C7: what ``workers`` prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ai4s.jobq.store.workers import WorkerRecord, WorkerRegistry
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program
from tests.cli.operations import in_store


def announce(program: Program, name: str, queue: str, *, silent: timedelta = timedelta(0)) -> None:
    now = datetime.now(UTC)

    async def act(store: WorkflowStore) -> None:
        record = WorkerRecord(
            worker_id=name,
            queue=queue,
            host="gpu-7",
            pid=4711,
            slots=2,
            version="1.2",
            started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            seen_at=now - silent,
            executions=("w1/t000003",),
        )
        await WorkerRegistry(store.services, store.names).announce(record)

    in_store(program, act)


def test_workers_are_listed_live_ones_first(program: Program) -> None:
    announce(program, "a", "cpu", silent=timedelta(minutes=5))
    announce(program, "b", "gpu")

    lines = [line.split() for line in program.workflow("workers").out.splitlines()]

    assert lines[0] == ["Queue", "Last", "sign", "Host:PID", "In", "hand", "Up", "Version"]
    assert lines[1][:6] == ["gpu", "live", "0s", "ago", "gpu-7:4711", "1/2"]
    assert lines[2][:4] == ["cpu", "silent", "5m", "ago"]


def test_the_json_tells_what_a_worker_has_in_hand(program: Program) -> None:
    announce(program, "b", "gpu")

    (worker,) = program.workflow("workers", "--json").json

    assert worker["in_hand"] == [{"workflow_id": "w1", "row": "t000003"}]


def test_workers_of_one_queue_are_shown_alone(program: Program) -> None:
    announce(program, "a", "cpu")
    announce(program, "b", "gpu")

    assert [worker["worker"] for worker in program.workflow("workers", "--queue", "gpu", "--json").json] == ["b"]


def test_no_workers_are_no_error(program: Program) -> None:
    assert program.workflow("workers").out == "No workers found.\n"
    assert program.workflow("workers", "--json").json == []
