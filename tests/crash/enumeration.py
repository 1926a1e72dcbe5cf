"""Finds out where a role can die, and has it die there, one performance per point.

A clean performance writes down every call of the role's process. Of each kind of call on each table, queue and container the
first, the second and the last are points, once before and once after. Nothing is listed by hand: a call that is added to
the program is a point from then on.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ai4s.jobq.adapters.azure.credentials import AzuritePorts
from tests.crash import roles
from tests.crash.roles import Play, Role, queue_of
from tests.crash.stage import Stage, until
from tests.support.crashing import DIED, Death
from tests.support.fork_server import ForkServer

MOST_OF_IDLE = 4  # of calls that are repeated while nothing happens: how many there are is a matter of time
IDLE_KINDS = frozenset({"queue.receive", "queue.arrival", "queue.count", "table.query", "table.get"})
AT_ONCE = 12  # performances; most of their time they wait for a lease or a message
SHARED_SLOTS = 16
PREFIX = "Crash"


class Extent(Enum):
    """How many of the points are played.

    What a death before a call leaves behind is nearly always what a death after the call that precedes it does, so the short
    form has the latter alone.
    """

    EVERY = "before and after the first, second and last call of each kind"
    FIRST = "after the first call of each kind"


@dataclass(frozen=True, slots=True)
class Backend:
    """Where stages are set up: an account, and what a process needs in its environment besides the folder of the store."""

    account: str
    environment: Mapping[str, str]


def on_azurite(ports: AzuritePorts) -> Backend:
    """An Azurite, or what stands in front of it."""
    numbers = {"BLOB": ports.blob, "QUEUE": ports.queue, "TABLE": ports.table}
    return Backend("devstoreaccount1", {f"JOBQ_AZURITE_{name}_PORT": str(port) for name, port in numbers.items()})


ROLES: Mapping[str, Role] = {
    "submit": roles.submit,
    "cancel": roles.cancel,
    "retry": roles.retry,
    "purge": roles.purge,
    "worker": roles.worker,
    "coordinator": roles.coordinator,
    "coordinator of a cancel": roles.coordinator_of_a_cancel,
}
_NEED_A_STAGE_EACH = frozenset({"coordinator", "coordinator of a cancel"})
_BRING_THEIR_WORKER = frozenset({"worker"})


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a role: where it died, and the points that the clean performance had and a later one did not come to."""

    role: str
    died: Sequence[Death]
    not_reached: Sequence[Death]
    seconds: float

    @property
    def kinds(self) -> set[tuple[str, str]]:
        """The calls at which it died."""
        return {(death.kind, death.name) for death in self.died}


def enumerate_role(name: str, backend: Backend, forks: ForkServer, folder: Path, extent: Extent) -> Result:
    """Play a role with a death at each of its points. Raises what the first failing performance raises, with its point."""
    began = time.monotonic()
    with _stages(name, backend, forks, folder) as stages:
        found = points(_calls_of_a_clean_play(ROLES[name], next(stages)), extent)
        plays = [Play(next(stages), f"{_short(name)}{number}", death) for number, death in enumerate(found, 1)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            died = list(pool.map(lambda play: _perform(ROLES[name], play), plays))
    return Result(
        role=name,
        died=[death for death, reached in zip(found, died, strict=True) if reached],
        not_reached=[death for death, reached in zip(found, died, strict=True) if not reached],
        seconds=time.monotonic() - began,
    )


def points(counts: Counter[tuple[str, str]], extent: Extent) -> list[Death]:
    """Where to die, given how often each call is made."""
    found = []
    for (kind, name), count in sorted(counts.items()):
        last = (min(count, MOST_OF_IDLE) if kind in IDLE_KINDS else count) - 1
        numbers, sides = (sorted({0, min(1, last), last}), (False, True)) if extent is Extent.EVERY else ([0], (True,))
        found += [Death(kind, name, number, after) for number in numbers for after in sides]
    return found


def _calls_of_a_clean_play(role: Role, stage: Stage) -> Counter[tuple[str, str]]:
    play = Play(stage, "clean0", None)
    role(play)
    calls = [line.split(" ", 1) for line in play.record.read_text().splitlines() if line != DIED]
    return Counter((kind, _place(name, play)) for kind, name in calls)


def _place(name: str, play: Play) -> str:
    """The part of a name that it has in every performance."""
    if name.startswith(queue_of(play.name)):
        return queue_of("")
    prefix = play.stage.prefix
    return name[len(prefix) :] if name.lower().startswith(prefix.lower()) else name


def _perform(role: Role, play: Play) -> bool:
    """Whether the process died where it should."""
    try:
        role(play)
    except BaseException as exc:
        exc.add_note(f"killed {play.death}, workflow {play.name} in {play.stage.folder}")
        raise
    return play.died


@contextmanager
def _stages(name: str, backend: Backend, forks: ForkServer, folder: Path) -> Iterator[Iterator[Stage]]:
    """Stages for the performances of a role: one for all, or a new one each time. Checked and cleared away at the end."""
    made: list[Stage] = []

    def stages() -> Iterator[Stage]:
        for number in itertools.count():
            if name in _NEED_A_STAGE_EACH or not made:
                made.append(_new_stage(f"{_short(name)}{number}", backend, forks, folder))
                _people(made[-1], name)
            yield made[-1]

    yield stages()
    forks.end_all()
    for stage in made:
        _check_left_clean(stage)


def _new_stage(name: str, backend: Backend, forks: ForkServer, folder: Path) -> Stage:
    here = folder / name
    environment = {**backend.environment, "JOBQ_LOCAL_DIR": str(here / "store")}
    return Stage(here, backend.account, f"{PREFIX}{name}", environment, forks)


def _people(stage: Stage, role: str) -> None:
    """Start those who are there all the time."""
    if role not in _NEED_A_STAGE_EACH:
        stage.coordinator()
    if role not in _BRING_THEIR_WORKER | _NEED_A_STAGE_EACH:
        stage.worker(slots=SHARED_SLOTS)


def _check_left_clean(stage: Stage) -> None:
    """Of all that died nothing runs any more, and a worker that starts and leaves has cleared up after them."""
    until(lambda: not stage.survivors(), f"the end of what outlived its worker: {stage.survivors()}")
    last = stage.worker(log="last-worker.log")
    until(lambda: "serves queue" in (stage.folder / "last-worker.log").read_text(), "the last worker to be at work")
    assert last.leave() == 0
    left = [path.name for path in stage.temporary.iterdir()]
    assert not left, f"left in the folder for temporary files: {left}"


def _short(name: str) -> str:
    return name.replace(" ", "")
