"""People: each submits a workflow, looks at it, may cancel it or do it again, and writes down what was not as implied.

All they do, they do with the commands, through the same weather as everybody else: a command that fails is given again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.weather import LONGEST_FREEZE_S
from tests.chaos.workload import Workload, draw
from tests.crash.attempts import Line, read_lines
from tests.crash.stage import Stage

GRACE_S = LONGEST_FREEZE_S + 5.0
"""From an acknowledged cancel: a worker that was frozen between its last look and the start of a command starts it."""
LOOK_S = 0.7
ENDS_WITHIN_S = 180.0  # after the faults have stopped
ENDED_STATES = frozenset({"completed", "failed", "upstream_failed", "skipped", "cancelled"})


class NeverEndedError(Exception):
    """A workflow did not end although nothing went wrong any more."""


@dataclass
class Findings:
    """What was done, and every way in which it was not as it should be."""

    losses: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.losses.append(what)


@dataclass
class User:
    """One person, working until ``calm`` says that the weather is good and then finishing what is in hand."""

    number: int
    rng: random.Random
    stage: Stage
    findings: Findings
    calm_at: float
    _attempts: dict[str, int] = field(default_factory=dict)

    def work(self) -> None:
        for number in range(10**6):
            if time.monotonic() >= self.calm_at:
                return
            self._one(f"u{self.number}-{number}", draw(self.rng))

    def _one(self, workflow_id: str, workload: Workload) -> None:
        self._attempts = {}
        self.findings.counts["workflows"] += 1
        self.findings.counts["tasks"] += len(workload.kinds)
        cancels_at = time.monotonic() + self.rng.uniform(0, 8) if self.rng.random() < 0.25 else None
        try:
            file = self.stage.define(workflow_id, workload.definition)
            self._insist("submit", file, "--id", workflow_id)
            cancelled_at, status = self._follow(workflow_id, cancels_at)
            self.check_end(workflow_id, workload, status, cancelled_at)
            if status["status"] != "completed" and self.rng.random() < 0.7:
                self._again(workflow_id, workload, status)
        except NeverEndedError as exc:
            self.findings.losses.append(str(exc))

    def _again(self, workflow_id: str, workload: Workload, before: dict[str, Any]) -> None:
        self.findings.counts["retries"] += 1
        Path(f"{self.stage.attempts}-mended-{workflow_id}").touch()
        kept = tuple(name for name, task in before["tasks"].items() if task["status"] == "completed")
        self._insist("retry", workflow_id)
        _, status = self._follow(workflow_id, None)
        expectation = workload.expected(mended=True, kept=kept)
        self._compare(workflow_id, status, expectation.states, expectation.result)

    def _insist(self, *args: str) -> None:
        """Give a command until it succeeds or says that it has happened."""
        code: int | None = None
        while code != 0:
            if code is not None and args[0] == "retry" and self._look(args[1])["ended_at"] is None:
                return  # it was done, and the answer was lost
            self._check_patience(args[0])
            code = self.stage.workflow(*args)

    def _follow(self, workflow_id: str, cancels_at: float | None) -> tuple[float | None, dict[str, Any]]:
        """Look until it has ended, and cancel it on the way; when the cancel was acknowledged, and the last look."""
        cancelled_at = None
        while True:
            if cancels_at is not None and time.monotonic() >= cancels_at:
                self._insist("cancel", workflow_id)
                self.findings.counts["cancels"] += 1
                cancels_at, cancelled_at = None, time.time()
            status = self._look(workflow_id)
            if status["ended_at"] is not None and cancels_at is None:
                return cancelled_at, status
            self._check_patience(workflow_id)
            time.sleep(LOOK_S)

    def _look(self, workflow_id: str) -> dict[str, Any]:
        while True:
            try:
                status: dict[str, Any] = self.stage.json("status", workflow_id)
            except AssertionError:
                self._check_patience(workflow_id)
                continue
            for name, task in status["tasks"].items():
                before = self._attempts.get(name, 0)
                self.findings.check(task["attempt"] >= before, f"{workflow_id}/{name}: attempt {before} went back")
                self._attempts[name] = task["attempt"]
            return status

    def _check_patience(self, what: str) -> None:
        if time.monotonic() > self.calm_at + ENDS_WITHIN_S:
            raise NeverEndedError(f"{what} did not end within {ENDS_WITHIN_S:.0f} s of good weather")

    def check_end(
        self, workflow_id: str, workload: Workload, status: dict[str, Any], cancelled_at: float | None
    ) -> None:
        """Compare the end of a workflow with what its definition, or the cancel, implies and with what the tasks wrote."""
        if status["status"] == "cancelled":
            self.findings.check(cancelled_at is not None, f"{workflow_id}: cancelled, and nobody had asked for it")
            self._check_cancelled(workflow_id, status, cancelled_at or 0.0)
            return
        expectation = workload.expected()
        self._compare(workflow_id, status, expectation.states, expectation.result)

    def _check_cancelled(self, workflow_id: str, status: dict[str, Any], cancelled_at: float) -> None:
        open_tasks = {name for name, task in status["tasks"].items() if task["status"] not in ENDED_STATES}
        self.findings.check(
            not open_tasks, f"{workflow_id}: cancelled and ended with open tasks {sorted(open_tasks)[:3]}"
        )
        lines = [line for line in read_lines(self.stage.attempts) if line.workflow_id == workflow_id]
        late = [line for line in lines if line.mark == "start" and line.at > cancelled_at + GRACE_S]
        self.findings.check(not late, f"{workflow_id}: started after the cancel: {late[:3]}")
        self._check_completed_ran(workflow_id, status, lines)

    def _compare(self, workflow_id: str, status: dict[str, Any], states: dict[str, str], result: str) -> None:
        actual = {name: task["status"] for name, task in status["tasks"].items()}
        wrong = {name: (actual.get(name), state) for name, state in states.items() if actual.get(name) != state}
        self.findings.check(not wrong, f"{workflow_id}: (is, should be) {dict(list(wrong.items())[:3])}")
        self.findings.check(status["status"] == result, f"{workflow_id} is {status['status']}, not {result}")
        lines = [line for line in read_lines(self.stage.attempts) if line.workflow_id == workflow_id]
        self._check_completed_ran(workflow_id, status, lines)
        self._check_order(workflow_id, status, lines)

    def _check_completed_ran(self, workflow_id: str, status: dict[str, Any], lines: list[Line]) -> None:
        """Whatever is recorded as completed has run to its end, in the attempt that is recorded."""
        ran = {(line.task, line.attempt) for line in lines if line.mark == "end"}
        for name, task in status["tasks"].items():
            if task["status"] == "completed":
                self.findings.check(
                    (name, task["attempt"]) in ran, f"{workflow_id}/{name}: completed, and it did not run"
                )
        begun = {line.task for line in lines}
        for name, task in status["tasks"].items():
            if task["status"] in ("upstream_failed", "skipped"):
                self.findings.check(name not in begun, f"{workflow_id}/{name}: {task['status']}, and it ran")

    def _check_order(self, workflow_id: str, status: dict[str, Any], lines: list[Line]) -> None:
        """Where all parents must have completed, no execution began before each of them had ended once."""
        ends: dict[str, float] = {}
        for line in lines:
            if line.mark == "end":
                ends.setdefault(line.task, line.at)
        for line in lines:
            task = status["tasks"][line.task]
            if line.mark == "start" and task["dep_policy"] == "all":
                early = [name for name in task["depends_on"] if ends.get(name, float("inf")) > line.at]
                self.findings.check(not early, f"{workflow_id}/{line.task} began before {early} had ended")
