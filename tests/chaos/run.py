"""One run of chaos: a store, coordinators, workers and users, bad weather for a while, then good weather and the audit."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.chaos.users import ENDS_WITHIN_S, Findings, User
from tests.chaos.weather import Clouds, Place, Weather, log_lines
from tests.chaos.workload import QUEUES
from tests.crash.attempts import read_lines
from tests.crash.enumeration import Backend, on_azurite
from tests.crash.stage import QUICK_COORDINATOR, Stage, until
from tests.support.azurite import Azurite
from tests.support.fault_proxy import FaultProxy
from tests.support.fork_server import ForkServer, Process

GUST_S = 0.5  # on average between two things that go wrong
SAY_EVERY_S = 15.0
BUGS = ("Traceback (most recent call last)", "internal error")


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    coordinators: int = 3
    workers: int = 6
    slots: int = 4
    users: int = 6


@dataclass
class Report:
    """What happened in a run."""

    seed: int
    seconds: float
    findings: Findings
    weather: Counter[str]
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def table(self) -> str:
        rows = [("seed", self.seed), ("seconds", round(self.seconds)), *sorted(self.findings.counts.items())]
        rows += sorted(self.weather.items())
        rows += [(f"fault {name}", count) for name, count in sorted(self.faults.items())]
        rows += [("faults in all", self.faults.total()), ("requests", self.requests.total())]
        rows += [("losses", len(self.findings.losses))]
        return "\n".join([f"{name:<34}{value:>9}" for name, value in rows] + self.findings.losses[:20])


def run_chaos(
    backend: str, *, seed: int, seconds: float, size: Size, folder: Path, say: Callable[[str], None]
) -> Report:
    """Run for so long, then let everything end; what happened and what was lost."""
    began = time.monotonic()
    with _opened(backend, folder) as (place, clouds), ForkServer() as forks:
        stage = Stage(folder / "stage", place.account, "Chaos", {**place.environment, **_local(folder)}, forks)
        weather = Weather(random.Random(f"weather-{seed}"), _places(stage, size), clouds)
        findings = Findings()
        users = _start_users(stage, findings, seed, size, calm_at=began + seconds)
        _let_it_blow(weather, findings, began, seconds, say)
        weather.clear_up()
        _until_home(users, weather)
        _audit(stage, weather, findings)
        report = Report(seed, time.monotonic() - began, findings, weather.counts)
        if clouds is not None:
            report.requests, report.faults = clouds.proxy.requests, clouds.proxy.faults
        return report


@contextlib.contextmanager
def _opened(backend: str, folder: Path) -> Iterator[tuple[Backend, Clouds | None]]:
    if backend == "local":
        yield Backend("local", {}), None
        return
    data = folder / "azurite"
    data.mkdir()
    with Azurite(location=data) as azurite, FaultProxy(azurite.ports) as proxy:
        yield on_azurite(proxy.ports), Clouds(azurite, proxy)


def _local(folder: Path) -> dict[str, str]:
    return {"JOBQ_LOCAL_DIR": str(folder / "store")}


def _places(stage: Stage, size: Size) -> list[Place]:
    starts: dict[str, Callable[[], Process]] = {}
    for number in range(size.coordinators):
        pace: tuple[str, ...] = (*QUICK_COORDINATOR, "--task-visibility-s", "5")
        starts[f"coordinator {number}"] = partial(
            stage.start, "workflow", "coordinator", *pace, log=f"coordinator-{number}.log"
        )
    for number in range(size.workers):
        queue = f"{stage.account}/{QUEUES[number % len(QUEUES)]}"
        pace = ("-n", str(size.slots), "--visibility-timeout", "5s", "--max-idle-backoff", "1s")
        starts[f"worker {number}"] = partial(stage.start, queue, "worker", *pace, log=f"worker-{number}.log")
    return [Place(name, start, start()) for name, start in starts.items()]


def _start_users(stage: Stage, findings: Findings, seed: int, size: Size, *, calm_at: float) -> list[threading.Thread]:
    users = [
        User(number, random.Random(f"user-{seed}-{number}"), stage, findings, calm_at) for number in range(size.users)
    ]
    threads = [threading.Thread(target=_working(user), daemon=True) for user in users]
    for thread in threads:
        thread.start()
    return threads


def _working(user: User) -> Callable[[], None]:
    def work() -> None:
        try:
            user.work()
        except Exception as exc:  # the outermost edge of a thread: a user that breaks down is a finding
            user.findings.losses.append(f"user {user.number} broke down: {type(exc).__name__}: {exc}")

    return work


def _let_it_blow(
    weather: Weather, findings: Findings, began: float, seconds: float, say: Callable[[str], None]
) -> None:
    said_at = began
    while (now := time.monotonic()) < began + seconds:
        weather.blow()
        if now - said_at >= SAY_EVERY_S:
            said_at = now
            counts = findings.counts
            say(
                f"{now - began:5.0f} s: {counts['workflows']} workflows, {counts['tasks']} tasks, "
                f"{weather.counts.total()} incidents, {len(findings.losses)} losses"
            )
        time.sleep(weather.rng.expovariate(1 / GUST_S))


def _until_home(users: list[threading.Thread], weather: Weather) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S + 60
    while any(user.is_alive() for user in users) and time.monotonic() < deadline:
        weather.tend()
        for user in users:
            user.join(0.2)


def _audit(stage: Stage, weather: Weather, findings: Findings) -> None:
    """What is left when everything has ended: no message, no process, no file, and no bug in any log."""
    for queue in (*QUEUES, "chaos-workflow-completions"):
        try:
            until(lambda queue=queue: _size(stage, queue) == 0, f"an empty queue {queue}")  # type: ignore[misc]
        except AssertionError as exc:
            findings.losses.append(str(exc))
    codes = [place.process.leave() for place in weather.places]
    findings.check(codes == [0] * len(codes), f"exit codes after SIGTERM: {codes}")
    try:
        until(lambda: not stage.survivors(), "the end of what was left behind")
    except AssertionError:
        findings.losses.append(f"still running: {_names(stage.survivors())}")
    last = stage.worker(log="last-worker.log")
    until(lambda: "serves queue" in (stage.folder / "last-worker.log").read_text(), "the last worker to be at work")
    last.leave()
    findings.check(not any(stage.temporary.iterdir()), f"left behind: {list(stage.temporary.iterdir())[:3]}")
    bugs = log_lines(stage.folder, *BUGS)
    findings.check(not bugs, f"{len(bugs)} bugs in logs: {bugs[:3]}")
    lines = read_lines(stage.attempts)
    begun = Counter((line.workflow_id, line.task, line.attempt) for line in lines if line.mark == "start")
    findings.counts["executions"] = begun.total()
    findings.counts["second executions of an attempt"] = begun.total() - len(begun)


def _size(stage: Stage, queue: str) -> int:
    out = stage.folder / "size"
    out.unlink(missing_ok=True)
    stage.forks.start(
        f"{stage.account}/{queue}",
        "size",
        folder=stage.folder,
        environment=stage.environment,
        out=out,
        err=stage.folder / "commands.log",
    ).wait()
    return int(out.read_text() or "-1")


def _names(pids: list[int]) -> list[str]:
    names = []
    for pid in pids:
        with contextlib.suppress(OSError):  # it has gone
            names.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
    return names
