"""A short run of chaos with a fixed seed; ``make chaos`` is the long one, with Azurite and a random seed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.run import Size, run_chaos
from tests.chaos.users import Findings, User
from tests.chaos.workload import Workload, draw
from tests.crash.stage import Stage
from tests.support.fork_server import ForkServer


def test_nothing_is_lost_in_bad_weather(tmp_path: Path) -> None:
    """Kills, freezes and polite stops of everybody while workflows run, are cancelled and done again."""
    report = run_chaos("local", seed=7, seconds=12, size=Size(users=4), folder=tmp_path, say=lambda line: None)

    assert not report.findings.losses, report.table()
    assert report.findings.counts["workflows"] >= 4, report.table()
    assert report.weather.total() >= 4, report.table()


def test_a_seed_draws_the_same_workflows_every_time() -> None:
    assert draw(random.Random(5)) == draw(random.Random(5))


# -- the audit can fail


CHAIN = Workload(
    {
        "name": "chain",
        "tasks": [
            {"name": "a", "kwargs": {"cmd": "true"}},
            {"name": "b", "kwargs": {"cmd": "true"}, "depends_on": ["a"]},
        ],
    },
    {"a": "quick", "b": "quick"},
)
RAN = "1.0 start w a 1\n2.0 end w a 1\n3.0 start w b 1\n4.0 end w b 1\n"


def _status(a: str = "completed", b: str = "completed", whole: str = "completed") -> dict[str, Any]:
    tasks = {
        "a": {"status": a, "attempt": 1, "dep_policy": "all", "depends_on": []},
        "b": {"status": b, "attempt": 1, "dep_policy": "all", "depends_on": ["a"]},
    }
    return {"status": whole, "tasks": tasks}


@pytest.mark.parametrize(
    ("attempts", "status", "cancelled_at", "finding"),
    [
        (RAN, _status(b="failed", whole="failed"), None, "should be"),
        ("1.0 start w a 1\n2.0 end w a 1\n", _status(), None, "it did not run"),
        ("1.0 start w a 1\n1.5 start w b 1\n2.0 end w a 1\n4.0 end w b 1\n", _status(), None, "before"),
        (RAN, _status(a="cancelled", b="cancelled", whole="cancelled"), None, "nobody had asked"),
        ("99.0 start w a 1\n", _status(a="cancelled", b="cancelled", whole="cancelled"), 1.0, "after the cancel"),
        ("", _status(a="running", b="cancelled", whole="cancelled"), 1.0, "open tasks"),
    ],
    ids=["wrong end", "did not run", "too early", "unwanted cancel", "late start", "open task"],
)
def test_the_audit_finds(
    tmp_path: Path, attempts: str, status: dict[str, Any], cancelled_at: float | None, finding: str
) -> None:
    user, findings = _user(tmp_path, attempts)

    user.check_end("w", CHAIN, status, cancelled_at)

    assert any(finding in loss for loss in findings.losses), findings.losses


def test_the_audit_finds_nothing_where_all_is_well(tmp_path: Path) -> None:
    user, findings = _user(tmp_path, RAN)

    user.check_end("w", CHAIN, _status(), None)

    assert not findings.losses


def _user(folder: Path, attempts: str) -> tuple[User, Findings]:
    stage = Stage(folder, "local", "Audit", {}, ForkServer())  # the server is not started: nothing runs here
    stage.attempts.write_text(attempts)
    findings = Findings()
    return User(0, random.Random(0), stage, findings, calm_at=0.0), findings
