"""A18, A21, C7: the workers of one queue are killed in the middle of their tasks.

Within a minute everybody who asks is told which queue it is and what to do: at once on the machine on which they ran, else
when their silence has been watched.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ai4s.jobq.adapters.factory import open_store
from ai4s.jobq.doctor.examine import examine
from ai4s.jobq.explain.explain import explain_workflow
from ai4s.jobq.settings import resolve_target
from tests.e2e.conftest import write_definition
from tests.support.project import Project, kill_group, until

WITHIN_S = 60.0
ASK_EVERY_S = 2.0
ADVICE = "JOBQ_WORKFLOW_PREFIX=local/Tutorial ai4s-jobq local/gpu worker"

TRAIN = {"kwargs": {"cmd": "echo $JOBQ_WORKFLOW_TASK >> started; test -e go || sleep 600"}, "queue": "gpu"}
FLOW = {
    "name": "train",
    "tasks": [
        {"name": "load", "kwargs": {"cmd": "true"}, "queue": "cpu"},
        *({"name": name, "depends_on": ["load"], **TRAIN} for name in ("one", "two", "three")),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("account", ["local"])
def test_killed_workers_of_a_queue_are_told_within_a_minute_with_the_command_that_helps(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.coordinator()
    here.worker("cpu")
    workers = [here.worker("gpu"), here.worker("gpu")]
    workflow_id = here.workflow("submit", write_definition(here, FLOW)).strip()
    until(lambda: here.status(workflow_id)["running"] == 2, "two tasks to run, and the third to wait")

    killed_at = time.monotonic()
    for worker in workers:
        kill_group(worker)

    assert told_here(here, workflow_id) == {
        "workers": {"cpu": {"live"}, "gpu": {"dead"}},
        "doctor": ("gpu (3 tasks", ADVICE),
        "explain": ("no live worker serves queue 'gpu'", ADVICE),
    }
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    asyncio.run(told_elsewhere(here, workflow_id, until_s=killed_at + WITHIN_S))

    (here.folder / "go").touch()
    follow(here, ADVICE)
    assert here.finished(workflow_id) == "completed"


def told_here(here: Project, workflow_id: str) -> dict[str, Any]:
    """What the commands say on the machine on which the workers were."""
    lives: dict[str, set[str]] = {}
    for worker in here.json("workers"):
        lives.setdefault(worker["queue"], set()).add(worker["life"])
    (finding,) = (check for check in here.json("doctor")["checks"] if check["name"] == "Workers")
    explained = here.json("explain", workflow_id)
    return {
        "workers": lives,
        "doctor": (finding["message"].partition(": ")[2].partition(";")[0], finding["hint"].partition(": ")[2]),
        "explain": (explained["blockers"][0].partition(" (")[0], explained["command"]),
    }


async def told_elsewhere(here: Project, workflow_id: str, *, until_s: float) -> None:
    """Ask on a machine that cannot see the processes, until both say so."""
    target = resolve_target(None, environ=here.environment)

    async def doctor_says() -> bool:
        findings = {finding.name: finding for finding in (await examine(target)).findings}
        workers = findings["Workers"]
        return workers.message.startswith("no live worker on: gpu (3 tasks;") and workers.hint == f"Start one: {ADVICE}"

    async with open_store(target) as store, asyncio.timeout(until_s - time.monotonic()):

        async def explain_says() -> bool:
            found = await explain_workflow(store, target, workflow_id)
            return found.reasons[0].text.startswith("no live worker serves queue 'gpu'") and found.command == ADVICE

        await asyncio.gather(asked_until(doctor_says), asked_until(explain_says))


async def asked_until(says: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await says():
            return
        await asyncio.sleep(ASK_EVERY_S)


def follow(here: Project, advice: str) -> None:
    """Do what was advised, in a shell of this project."""
    words = shlex.split(advice)
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    program, *arguments = words[len(variables) :]
    assert program == "ai4s-jobq"
    here.start(*arguments, log="advised.log", environment=variables)
