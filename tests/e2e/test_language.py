"""The language of workflows, row by row, with real processes: what a definition says is what happens.

Tests that ask for ``account`` run on Azurite too. Commands leave a line in the file ``trace``, which tells their order.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.conftest import write_definition
from tests.support.project import Project, kill_group, until

local_only = pytest.mark.parametrize("account", ["local"])
"""For what asks nothing of a backend that other tests do not ask of it."""

LEASE = ("--lease-ttl-s", "3", "--sweep-s", "1")


def task(name: str, cmd: str = "true", **fields: Any) -> dict[str, Any]:
    """A task that leaves its name in the trace, and then does something."""
    return {"name": name, "kwargs": {"cmd": f"echo {name} >> trace; {cmd}"}, **fields}


def undo(name: str, cmd: str = "true") -> dict[str, str]:
    return {"cmd": f"echo undo-{name} >> trace; {cmd}"}


def flow(*tasks: dict[str, Any], name: str = "flow", **fields: Any) -> dict[str, Any]:
    return {"name": name, "tasks": list(tasks), **fields}


def output(value: Any) -> str:
    """A command that makes this the output of its task."""
    return f"echo '{json.dumps(value)}' > $JOBQ_OUTPUT_FILE"


def trace(here: Project) -> list[str]:
    path = here.folder / "trace"
    return path.read_text().split() if path.exists() else []


@pytest.fixture
def working(here: Project) -> Project:
    """The project with a coordinator and a worker of four slots, which asks often whether something was cancelled."""
    here.environment["JOBQ_CANCEL_POLL_INTERVAL"] = "1"
    here.coordinator(*LEASE)
    here.worker("default", "-n", "4")
    return here


def submitted(here: Project, definition: dict[str, Any], *args: str) -> str:
    return here.workflow("submit", write_definition(here, definition), *args).strip()


def ended(here: Project, workflow_id: str, *, code: int) -> dict[str, Any]:
    """The status of a workflow once it has ended, which has to be with this exit code."""
    result = here.cli("workflow", "watch", workflow_id, "--timeout", "100s", "--interval", "0.2", "--json")
    assert result.returncode == code, f"{result.returncode}: {result.stdout}{result.stderr}\n{here.logs()}"
    status: dict[str, Any] = json.loads(result.stdout)
    return status


def ran(here: Project, definition: dict[str, Any], *args: str, code: int = 0) -> dict[str, Any]:
    """The status of a workflow that ``workflow run`` ran."""
    result = here.cli("workflow", "run", write_definition(here, definition), "--json", *args)
    assert result.returncode == code, f"{result.returncode}: {result.stdout}{result.stderr}"
    status: dict[str, Any] = json.loads(result.stdout)
    return status


def states(status: dict[str, Any]) -> dict[str, str]:
    return {name: entry["status"] for name, entry in status["tasks"].items()}


# -- conditions


def test_a9_conditions_read_outputs_wherever_they_are(working: Project) -> None:
    """Inline and in blob storage; an output that lacks a field fails the task with a message that names both."""
    large = 'python3 -c \'import json; print(json.dumps({"pad": "x" * 50000, "ok": True}))\' > $JOBQ_OUTPUT_FILE'
    definition = flow(
        task("small", output({"mae": 0.1})),
        task("large", large),
        task("both", depends_on=["small", "large"], condition="inputs.small.mae < 0.2 and inputs.large.ok"),
        task("not", depends_on=["small"], condition="inputs.small.mae > 0.2"),
        task("after", depends_on=["not"]),
        task("wrong", depends_on=["small"], condition="inputs.small.mea > 0.2", allow_failure=True),
    )

    status = ended(working, submitted(working, definition), code=0)

    assert states(status) == {
        "small": "completed",
        "large": "completed",
        "both": "completed",
        "not": "skipped",
        "after": "skipped",
        "wrong": "failed",
    }
    assert "output_ref" in status["tasks"]["large"]
    assert "small" in status["tasks"]["wrong"]["error"]
    assert "mea" in status["tasks"]["wrong"]["error"]


@local_only
def test_b13_params_and_references_reach_commands_quoted(here: Project) -> None:
    """B13: values of params and outputs in commands and variables; ``raw`` is not quoted."""
    definition = flow(
        task("a", output({"path": "x y; exit 1", "n": [1]})),
        task(
            "b",
            "echo ${{ tasks.a.output.path }} ${{ params.word }} ${{ raw(params.pair) }} $N >> out",
            depends_on=["a"],
        ),
        params={"word": "w", "pair": "p"},
    )
    definition["tasks"][1]["kwargs"]["env"] = {"N": "${{ tasks.a.output.n }}"}

    ran(here, definition, "--param", "word=it's", "--param", "pair=1  2")

    assert (here.folder / "out").read_text() == "x y; exit 1 it's 1 2 [1]\n"


# -- identity


def test_b1_b19_an_id_stands_for_one_definition(here: Project) -> None:
    """The same again changes nothing; other tasks or params are refused; labels do not count."""
    definition = flow(task("a"), params={"x": 1})
    first = here.cli("workflow", "submit", write_definition(here, definition), "--id", "w", "--label", "n=1", "--json")
    again = here.cli("workflow", "submit", "workflow.json", "--id", "w", "--label", "n=2", "--json")
    other = here.cli("workflow", "submit", "workflow.json", "--id", "w", "--param", "x=2")

    assert [json.loads(result.stdout)["created"] for result in (first, again)] == [True, False]
    assert (other.returncode, other.stdout) == (4, "")
    [row] = here.json("list", "--label", "n=1")
    assert (row["workflow_id"], row["labels"]) == ("w", {"n": "1"})
    assert here.json("list", "--label", "n=2") == []


def test_c3_a_rerun_takes_over_what_does_not_change(working: Project) -> None:
    """Also when the first workflow has been purged, and the output taken over was too large for a row."""
    large = 'python3 -c \'print("\\"" + "x" * 50000 + "\\"")\' > $JOBQ_OUTPUT_FILE'
    read = "python3 -c 'from ai4s.jobq.workflow import *; set_output(len(get_upstream_output(\"ingest\")))'"
    definition = flow(
        task("ingest", large),
        task("train", f"true ${{{{ params.lr }}}}; {read}", depends_on=["ingest"]),
        task("report", depends_on=["train"]),
        params={"lr": 1},
    )
    first = submitted(working, definition)
    ended(working, first, code=0)

    plan = working.json("rerun", first, "--param", "lr=2", "--plan")
    again = working.workflow("rerun", first, "--param", "lr=2").strip()
    working.workflow("purge", first, "--yes")
    status = ended(working, again, code=0)

    assert [entry["action"] for entry in plan["tasks"]] == ["reuse", "run", "run"]
    assert trace(working) == ["ingest", "train", "report", "train", "report"]
    assert status["tasks"]["train"]["output"] == 50_000
    assert status["tasks"]["ingest"]["reused"] == first


# -- failures


def test_b3_b4_clean_up_runs_always_and_a_handler_handles(working: Project) -> None:
    """``always`` and ``on_failure`` tasks know how their parents ended; a handled failure is none."""
    told = "python3 -c 'from ai4s.jobq.workflow import *; set_output(get_upstream_status(\"bad\"))'"
    definition = flow(
        task("good"),
        task("bad", "echo oops >&2; exit 3"),
        task("soft", "exit 4", allow_failure=True),
        task("handler", told, depends_on=["bad"], dep_policy="on_failure"),
        task("idle", depends_on=["good"], dep_policy="on_failure"),
        task("cleanup", told, depends_on=["good", "bad", "soft"], dep_policy="always"),
    )

    workflow_id = submitted(working, definition)
    status = ended(working, workflow_id, code=0)

    assert (status["status"], status["handled"]) == ("completed", 2)
    assert "completed (2 handled failures)" in working.workflow("status", workflow_id, "--no-tasks")
    assert states(status) == {
        "good": "completed",
        "bad": "failed",
        "soft": "failed",
        "handler": "completed",
        "idle": "skipped",
        "cleanup": "completed",
    }
    for name in ("handler", "cleanup"):
        seen = status["tasks"][name]["output"]
        assert (seen["status"], seen["exit_code"], seen["cause"]) == ("failed", 3, "exit")


@local_only
def test_b5_c10_the_first_failure_stops_the_rest_but_not_the_cleaning_up(here: Project) -> None:
    """B5, C10: hooks run after it, as the workflow ended."""
    definition = flow(
        task("bad", "exit 1"),
        task("later", depends_on=["slow"]),
        task("slow", "while test ! -e stop; do sleep 0.05; done"),
        task("cleanup", "touch stop", depends_on=["bad"], dep_policy="always"),
        fail_fast=True,
        on_success={"cmd": "echo hook-success >> trace"},
        on_failure={"cmd": "echo hook-failure >> trace"},
        on_end={"cmd": "echo hook-end >> trace"},
    )

    status = ran(here, definition, code=1)

    assert states(status) == {"bad": "failed", "later": "cancelled", "slow": "completed", "cleanup": "completed"}
    assert status["error"] == "task 'bad' failed, and the workflow fails fast"
    assert sorted(trace(here)[-2:]) == ["hook-end", "hook-failure"]
    assert {name: hook["status"] for name, hook in status["hooks"].items()} == {
        "on_failure": "completed",
        "on_end": "completed",
    }


@local_only
def test_b6_what_matters_more_comes_first(here: Project) -> None:
    """With one slot the order can be seen."""
    priorities = {"low": -1, "first": 5, "zero": 0, "second": 4}

    ran(here, flow(*(task(name, priority=priority) for name, priority in priorities.items())), "-n", "1")

    assert trace(here) == ["first", "second", "zero", "low"]


# -- undo

SIX = (
    task("a", output({"made": "A"}), undo=undo("a")),
    task("b", depends_on=["a"], undo=undo("b")),
    task("c", depends_on=["a"], undo=undo("c")),
    task("d", depends_on=["b", "c"], undo=undo("d")),
    task("e", "exit 1", depends_on=["d"]),
    task("f", depends_on=["e"], undo=undo("f")),
)


def check_order_of_undoing(lines: list[str]) -> None:
    """``d`` first, then ``b`` and ``c`` in whatever order, ``a`` last."""
    undone = [line for line in lines if line.startswith("undo-")]
    assert undone[0] == "undo-d"
    assert sorted(undone[1:3]) == ["undo-b", "undo-c"]
    assert undone[3:] == ["undo-a"]


def test_b7_a_failure_undoes_what_completed_in_reverse_order(working: Project) -> None:
    """An undo job that fails stops no other; each reads the output of its own task."""
    tasks = [dict(entry) for entry in SIX]
    read = 'python3 -c \'from ai4s.jobq.workflow import *; print(get_upstream_output("a")["made"])\' > undone'
    tasks[0]["undo"] = undo("a", read)
    tasks[2]["undo"] = undo("c", "exit 5")

    status = ended(working, submitted(working, flow(*tasks)), code=1)

    assert status["status"] == "compensation_failed"
    assert status["error"] == "task 'e' (exit code 1) failed"
    check_order_of_undoing(trace(working))
    assert (working.folder / "undone").read_text() == "A\n"
    undone = {name: entry["undo"] and entry["undo"]["status"] for name, entry in status["tasks"].items()}
    assert undone == {"a": "completed", "b": "completed", "c": "failed", "d": "completed", "e": None, "f": None}


def test_b7_a_cancel_undoes_and_exits_with_3(working: Project) -> None:
    """What runs is stopped first. A second cancel changes nothing."""
    tasks = [*SIX[:4], task("e", "sleep 600", depends_on=["d"])]
    workflow_id = submitted(working, flow(*tasks, on_end={"cmd": "echo hook-end >> trace"}))
    until(lambda: "e" in trace(working), "the last task to start")

    working.workflow("cancel", workflow_id)
    status = ended(working, workflow_id, code=3)

    assert status["status"] == "compensated"
    assert trace(working)[-1] == "hook-end"
    check_order_of_undoing(trace(working))
    assert "already compensated, nothing to cancel" in working.workflow("cancel", workflow_id)


def test_b7_undoing_goes_on_after_the_coordinator_is_killed_in_the_middle(here: Project) -> None:
    """Between two undo jobs, the first of which is known to run: what is known is not started again."""
    hold = "while test ! -e go; do sleep 0.05; done"
    tasks = [dict(entry) for entry in SIX]
    tasks[3]["undo"] = undo("d", hold)
    coordinator = here.coordinator(*LEASE)
    here.worker("default", "-n", "4")
    workflow_id = submitted(here, flow(*tasks))
    until(lambda: _undo_of(here, workflow_id, "d") == "running", "the first undo job to run")

    kill_group(coordinator)
    during = here.status(workflow_id)["status"]
    (here.folder / "go").touch()
    here.coordinator(*LEASE)
    status = ended(here, workflow_id, code=1)

    assert (during, status["status"]) == ("compensating", "compensated")
    check_order_of_undoing(trace(here))


def _undo_of(here: Project, workflow_id: str, name: str) -> str | None:
    """Where the undo job of a task stands."""
    job = here.json("status", workflow_id)["tasks"][name]["undo"]
    return None if job is None else str(job["status"])


# -- time, signals, pause


def test_b14_signals_answer_the_tasks_that_wait(working: Project) -> None:
    """Sent while it waits, sent early, sent twice, never sent, and sent to a workflow that has ended."""
    definition = flow(
        {"name": "approval", "wait_for": {"signal": "approve"}},
        {"name": "early", "depends_on": ["approval"], "wait_for": {"signal": "data"}},
        {"name": "never", "wait_for": {"signal": "nobody", "timeout_s": 1, "on_timeout": "skip"}},
        task("last", "echo ${{ tasks.early.output.n }} >> out", depends_on=["early"]),
    )
    workflow_id = submitted(working, definition)
    until(
        lambda: working.json("status", workflow_id)["tasks"]["approval"]["waiting"] == "signal",
        "the task to wait",
    )

    working.workflow("signal", workflow_id, "data", "--data", '{"n": 1}')
    second = working.cli("workflow", "signal", workflow_id, "data", "--data", '{"n": 2}')
    working.workflow("signal", workflow_id, "approve")
    status = ended(working, workflow_id, code=0)
    late = working.cli("workflow", "signal", workflow_id, "approve")

    assert "was sent before, and that one counts" in second.stderr
    assert (working.folder / "out").read_text() == "1\n"
    assert status["tasks"]["early"]["output"] == {"n": 1}
    assert status["tasks"]["never"]["status"] == "skipped"
    assert (late.returncode, "has ended (completed)" in late.stderr) == (1, True)


def test_b15_b16_delays_and_backoffs_survive_a_coordinator(here: Project) -> None:
    """What a task waits for, and until when, is stored; a coordinator that comes later goes by it."""
    moment = datetime.now(UTC) + timedelta(seconds=8)
    definition = flow(
        task("first"),
        task("delayed", depends_on=["first"], delay_s=8),
        task("dated", not_before=moment.isoformat()),
        task(
            "flaky", "test -e again || { touch again; exit 75; }", retry={"max": 3, "delay_s": 8, "on_exit_codes": [75]}
        ),
        task("final", "exit 76", retry={"max": 3, "on_exit_codes": [75]}, allow_failure=True),
    )
    coordinator = here.coordinator(*LEASE)
    here.worker("default", "-n", "4")
    workflow_id = submitted(here, definition)
    waiting = {"delayed": "delay", "dated": "delay", "flaky": "backoff"}
    tasks = until(lambda: _waiting(here, workflow_id, waiting), "all three to wait")

    kill_group(coordinator)
    here.coordinator(*LEASE)
    status = ended(here, workflow_id, code=0)

    for name in waiting:
        after = status["tasks"][name]
        assert after["status"] == "completed"
        assert after["enqueued_at"] >= tasks[name]["wait_until"]
    assert status["tasks"]["flaky"]["attempt"] == 2
    assert (status["tasks"]["final"]["attempt"], status["tasks"]["final"]["status"]) == (1, "failed")


def _waiting(here: Project, workflow_id: str, wanted: dict[str, str]) -> dict[str, Any] | None:
    """The tasks, once these wait for these things."""
    tasks: dict[str, Any] = here.json("status", workflow_id)["tasks"]
    return tasks if all(tasks[name]["waiting"] == what for name, what in wanted.items()) else None


@local_only
def test_b15_a_workflow_has_a_deadline(here: Project) -> None:
    """What runs is stopped, what is undone or cleaned up is not."""
    definition = flow(
        task("done", undo=undo("done")),
        task("slow", "sleep 600", depends_on=["done"]),
        task("cleanup", depends_on=["slow"], dep_policy="always"),
        timeout_s=2,
    )

    status = ran(here, definition, code=1)

    assert status["status"] == "compensated"
    assert status["error"].startswith("the deadline ")
    assert states(status) == {"done": "completed", "slow": "cancelled", "cleanup": "completed"}
    assert sorted(trace(here)) == ["cleanup", "done", "slow", "undo-done"]


def test_b20_nothing_starts_during_a_pause(working: Project) -> None:
    """What runs goes on. A canary that was submitted later shows that the coordinator has passed by."""
    hold = "while test ! -e go; do sleep 0.05; done"
    workflow_id = submitted(working, flow(task("a", hold), task("b", depends_on=["a"])))
    until(lambda: trace(working) == ["a"], "the first task to start")

    working.workflow("pause", workflow_id)
    (working.folder / "go").touch()
    until(lambda: working.status(workflow_id)["completed"] == 1, "the first task to complete")
    ended(working, submitted(working, flow(task("canary"))), code=0)
    during = (trace(working), working.status(workflow_id)["status"])
    working.workflow("resume", workflow_id)
    ended(working, workflow_id, code=0)

    assert during == (["a", "canary"], "paused")
    assert trace(working) == ["a", "canary", "b"]


# -- width


@local_only
def test_b21_a_matrix_of_two_thousand_is_joined(here: Project) -> None:
    """The join reads three of the outputs by name."""
    names = ["t[x=0,y=0]", "t[x=20,y=7]", "t[x=39,y=49]"]
    reads = f"from ai4s.jobq.workflow import *; set_output([get_upstream_output(n) for n in {names!r}])"
    (here.folder / "join.py").write_text(reads)
    definition = flow(
        {
            "name": "t",
            "matrix": {"x": list(range(40)), "y": list(range(50))},
            "kwargs": {"cmd": "echo [${{ matrix.x }},${{ matrix.y }}] > $JOBQ_OUTPUT_FILE"},
        },
        {"name": "join", "depends_on": ["t"], "kwargs": {"cmd": "python3 join.py"}},
    )

    status = ran(here, definition, "-n", "4")

    assert status["completed"] == 2001
    assert status["tasks"]["join"]["output"] == [[0, 0], [20, 7], [39, 49]]


@local_only
def test_a22_ten_thousand_parents_need_no_restructuring(here: Project) -> None:
    """Parents with the longest names there are, all answered by one signal; the join reads three of them by name."""
    names = [f"{'p' * 250}{number:05d}" for number in range(10_000)]
    chosen = [names[0], names[5000], names[-1]]
    (here.folder / "join.py").write_text(
        "import sys\nfrom ai4s.jobq.workflow import *\n"
        f"set_output([get_upstream_output(name) for name in {chosen!r}])\n"
    )
    definition = flow(
        *({"name": name, "wait_for": {"signal": "go"}} for name in names),
        {"name": "join", "depends_on": names, "kwargs": {"cmd": "python3 join.py"}},
    )
    here.coordinator()
    here.worker()

    result = here.cli("workflow", "submit", write_definition(here, definition), "--max-fan-in", "100")
    workflow_id = result.stdout.strip()
    here.workflow("signal", workflow_id, "go", "--data", '{"x": 7}')
    assert here.finished(workflow_id) == "completed"

    [join] = here.json("tasks", workflow_id, "--prefix", "join")
    assert "not needed" in result.stderr
    assert join["output"] == [{"x": 7}] * 3
