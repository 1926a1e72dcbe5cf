"""What goes wrong: processes are killed, frozen, told to leave; requests fail, services vanish, the emulator restarts."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ai4s.jobq.adapters.azure.credentials import Service
from tests.support.azurite import Azurite
from tests.support.fault_proxy import (
    BROKEN,
    BUSY,
    SERVICES,
    THROTTLED,
    Fault,
    FaultProxy,
    Garbage,
    Mute,
    ResetAfter,
    ResetBefore,
    Rule,
    Slow,
    Truncated,
)
from tests.support.fork_server import Process

LONGEST_FREEZE_S = 7.0  # longer than the leases of tasks and of the coordinator
SAVED_AFTER_S = 6.0  # Azurite writes to disk every 5 s what it has acknowledged
FAULTS: tuple[Fault, ...] = (
    BUSY,
    THROTTLED,
    BROKEN,
    ResetBefore(),
    ResetAfter(),
    Truncated(),
    Garbage(),
    Slow(0.5),
    Mute(),
)
REQUESTS = ("table.*", "queue.*", "blob.*", "table.transact", "queue.send", "queue.receive", "queue.complete", "*")


@dataclass(eq=False)
class Place:
    """Where a process is meant to run: whenever it ends, it is started again after a while."""

    name: str
    start: Callable[[], Process]
    process: Process
    back_at: float = 0.0
    frozen_until: float | None = None

    def tend(self, now: float) -> None:
        """Wake it, or put another one in its place, when that is due."""
        if self.frozen_until is not None and now >= self.frozen_until:
            self.thaw()
        if not self.process.is_running and now >= self.back_at:
            self.process = self.start()

    def thaw(self) -> None:
        self.frozen_until = None
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Clouds:
    """The emulator and the proxy in front of it; a local store has neither."""

    azurite: Azurite
    proxy: FaultProxy
    _rules: list[tuple[float, Rule]] = field(default_factory=list)
    _cut_until: float | None = None

    def draw(self, rng: random.Random, now: float) -> None:
        """Break some requests for some seconds."""
        share = rng.choice((0.02, 0.1, 0.3))
        rule = self.proxy.inject(rng.choice(REQUESTS), rng.choice(FAULTS), share=share, seed=rng.randrange(10**6))
        self._rules.append((now + rng.uniform(1, 5), rule))

    def cut(self, rng: random.Random, now: float) -> None:
        """Have one service, or all, refuse connections for some seconds."""
        services: tuple[Service, ...] = SERVICES if rng.random() < 0.3 else (rng.choice(SERVICES),)
        self.proxy.cut_off(*services)
        self._cut_until = now + rng.uniform(0.5, 6)

    def restart(self) -> None:
        """Kill the emulator and start it again with its data. Nothing acknowledged is lost: it has time to save."""
        self.proxy.cut_off(*SERVICES)
        time.sleep(SAVED_AFTER_S)
        self.azurite.restart()
        self.proxy.restore(*SERVICES)
        self._cut_until = None

    def is_frozen(self) -> bool:
        """Whether a service gives no answer: Azurite's queues can stop for good after a minute of heavy load."""
        return not all(self.azurite.answers(service) for service in SERVICES)

    def tend(self, now: float) -> None:
        if self._cut_until is not None and now >= self._cut_until:
            self.proxy.restore(*SERVICES)
            self._cut_until = None
        for ends_at, rule in self._rules:
            if now >= ends_at:
                rule.clear()
        self._rules = [(ends_at, rule) for ends_at, rule in self._rules if now < ends_at]

    def clear_up(self) -> None:
        self.proxy.clear()
        self.proxy.restore(*SERVICES)
        self._rules.clear()
        self._cut_until = None


@dataclass
class Weather:
    """Draws what goes wrong next from its seed and counts it."""

    rng: random.Random
    places: list[Place]
    clouds: Clouds | None
    restarts_every_s: float = 75.0
    counts: Counter[str] = field(default_factory=Counter)
    _restarted_at: float = field(default_factory=time.monotonic)

    def blow(self) -> None:
        """One more thing goes wrong, and what is due comes back."""
        now = time.monotonic()
        for place in self.places:
            place.tend(now)
        if self.clouds is not None:
            self._tend_clouds(self.clouds, now)
        what = self.rng.choices(
            ("kill -9", "freeze", "SIGTERM", "faults", "cut off", "nothing"), (22, 14, 8, 30, 6, 20)
        )[0]
        place = self.rng.choice(
            [place for place in self.places if place.process.is_running and place.frozen_until is None]
        )
        match what:
            case "kill -9":
                self._count(what, place)
                place.process.send_signal(signal.SIGKILL)
                place.back_at = now + self.rng.uniform(0, 4)
            case "SIGTERM":
                self._count(what, place)
                place.process.send_signal(signal.SIGTERM)
                place.back_at = now + self.rng.uniform(0, 2)
            case "freeze":
                self._count(what, place)
                place.process.send_signal(signal.SIGSTOP)
                place.frozen_until = now + self.rng.uniform(0.5, LONGEST_FREEZE_S)
            case "faults" if self.clouds is not None:
                self.clouds.draw(self.rng, now)
            case "cut off" if self.clouds is not None:
                self.counts["service cut off"] += 1
                self.clouds.cut(self.rng, now)

    def _count(self, what: str, place: Place) -> None:
        self.counts[f"{what} of a {place.name.split()[0]}"] += 1

    def _tend_clouds(self, clouds: Clouds, now: float) -> None:
        clouds.tend(now)
        frozen = clouds.is_frozen()
        if frozen or now - self._restarted_at > self.restarts_every_s:
            self.counts["emulator restarted" + (", frozen" if frozen else "")] += 1
            clouds.restart()
            self._restarted_at = time.monotonic()

    def clear_up(self) -> None:
        """Nothing goes wrong any more, and everybody is at his place."""
        if self.clouds is not None:
            self.clouds.clear_up()
            if self.clouds.is_frozen():
                self.clouds.restart()
        for place in self.places:
            place.thaw()
            place.tend(now=float("inf"))

    def tend(self) -> None:
        """In good weather only a frozen emulator needs help, and whoever leaves is replaced."""
        for place in self.places:
            place.tend(now=float("inf"))
        if self.clouds is not None and self.clouds.is_frozen():
            self.counts["emulator restarted, frozen"] += 1
            self.clouds.restart()


def log_lines(folder: Path, *marks: str) -> list[str]:
    """Lines of processes' logs that contain one of the marks."""
    found = []
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        found += [f"{path.name}: {line}" for line in lines if any(mark in line for mark in marks)]
    return found
