"""The roles that are killed, each with what must hold after another process has done what the dead one did not.

A role is played once per death: one process of it runs with the hook and dies, the same command is given again without, and
the outcome is looked at from the outside: what the commands print as JSON, and what the tasks wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.stage import Stage, died, until
from tests.support.crashing import Death
from tests.support.fork_server import Process

MOST_STARTS = 2  # of one attempt: the one that died with its worker, and the one that was recorded


@dataclass(frozen=True, slots=True)
class Play:
    """One performance: a name that no other has on this stage, where the process writes its calls, and where it dies."""

    stage: Stage
    name: str
    death: Death | None

    @property
    def record(self) -> Path:
        return self.stage.folder / f"{self.name}.calls"

    @property
    def died(self) -> bool:
        return died(self.record)

    @property
    def how(self) -> dict[str, Any]:
        """How the process that may die is started."""
        return {"death": self.death, "record": self.record}

    def say_again(self, *args: str) -> int:
        """Give a command that may die, and give it again when it did; the last exit code."""
        code = self.stage.workflow(*args, **self.how)
        return self.stage.workflow(*args) if self.died else code


Role = Callable[[Play], None]


def diamond(queue: str = "default") -> dict[str, Any]:
    """Four tasks: ``b`` fails once, ``c`` outlives its first renewals, ``d`` has an output too large for its row."""
    large = """python3 -c 'print("[" + "1," * 20000 + "1]")' > "$JOBQ_OUTPUT_FILE\""""
    once = 'if mkdir "$ATTEMPTS-$JOBQ_WORKFLOW_ID" 2>/dev/null; then false; fi'
    return {
        "name": "diamond",
        "default_queue": queue,
        "tasks": [
            _task("a", "echo one; echo 1 > $JOBQ_OUTPUT_FILE"),
            _task("b", once, "a", num_retries=1),
            _task("c", "sleep 1.6", "a"),
            _task("d", large, "b", "c"),
        ],
    }


def _task(name: str, cmd: str, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kwargs": {"cmd": cmd}, "depends_on": list(parents), **fields}


def check_diamond(play: Play, *, b_attempts: tuple[int, ...] = (2,)) -> None:
    """Completed; one outcome per task; nothing ran that should not, and no attempt more than twice.

    Nor does anybody's death cost an attempt: that would mean that something was lost, and missed only later.
    """
    stage = play.stage
    assert stage.ended(play.name) == "completed"
    tasks, starts = stage.tasks(play.name), stage.starts(play.name)
    assert {name: state for name, (state, _) in tasks.items()} == dict.fromkeys("abcd", "completed")
    assert max(starts.values()) <= MOST_STARTS, starts
    attempts = {name: attempt for name, (_, attempt) in tasks.items()}
    assert attempts == {name: max(attempt for task, attempt in starts if task == name) for name in tasks}
    assert (attempts | {"b": 1}, attempts["b"] in b_attempts) == (dict.fromkeys("abcd", 1), True), attempts
    recorded = [(entry["task"], entry["attempt"]) for entry in _history(stage, play.name)]
    assert len(recorded) == len(set(recorded)), f"an attempt has two outcomes: {recorded}"


def _history(stage: Stage, workflow_id: str) -> list[dict[str, Any]]:
    history: dict[str, Any] = stage.json("history", workflow_id)
    attempts: list[dict[str, Any]] = history["attempts"]
    return attempts


def submit(play: Play) -> None:
    file = play.stage.define(play.name, diamond())

    assert play.say_again("submit", file, "--id", play.name) == 0

    check_diamond(play)


def cancel(play: Play) -> None:
    """``a`` completes although it is told to stop: ``b`` must not run, for the cancel was acknowledged before."""
    stage = play.stage
    stubborn = "trap 'kill $!; exit 0' TERM; sleep 600 & wait"
    stage.submit(play.name, {"name": "w", "tasks": [_task("a", stubborn), _task("b", "true", "a")]})
    until(lambda: stage.has_started(play.name, "a"), "the first task to start")

    assert play.say_again("cancel", play.name) == 0

    assert stage.ended(play.name) == "cancelled"
    assert stage.tasks(play.name)["b"] == ("cancelled", 0)
    assert set(stage.starts(play.name)) == {("a", 1)}


def retry(play: Play) -> None:
    """What had completed does not run again; what had failed runs once more."""
    stage = play.stage
    mended = stage.folder / f"{play.name}.mended"
    tasks = [_task("good", "true"), _task("bad", f"test -e {mended}", "good"), _task("last", "true", "bad")]
    stage.submit(play.name, {"name": "w", "tasks": tasks})
    assert stage.ended(play.name) == "failed"
    mended.touch()

    code = play.say_again("retry", play.name)

    assert code == 0 or play.died  # what has happened cannot be done again, and says so
    assert stage.ended(play.name) == "completed"
    assert set(stage.starts(play.name)) == {("good", 1), ("bad", 1), ("bad", 2), ("last", 1)}
    assert stage.tasks(play.name) == {"good": ("completed", 1), "bad": ("completed", 2), "last": ("completed", 1)}


def purge(play: Play) -> None:
    """Nothing is left, and the id can be used again."""
    stage = play.stage
    stage.submit(play.name, diamond())
    assert stage.ended(play.name) == "completed"

    code = play.say_again("purge", play.name, "--yes")

    assert code == 0 or play.died  # when all had been done, there is no such workflow any more
    assert stage.rows_and_blobs(play.name) == 0
    assert stage.workflow("submit", f"{play.name}.json", "--id", play.name) == 0
    assert stage.ended(play.name) == "completed"


def worker(play: Play) -> None:
    """A worker with a queue of its own dies, and another one takes its place."""
    stage = play.stage
    queue = queue_of(play.name)
    first = stage.worker(queue, **play.how)
    stage.submit(play.name, diamond(queue))
    _until_over(play, first)
    if not play.died:
        first.leave()  # which it may not survive
    second = stage.worker(queue)

    check_diamond(play, b_attempts=(1, 2))  # its failure may die with its worker, and it succeeds the next time
    _leave(second)
    assert play.died or first.code == 0


def queue_of(name: str) -> str:
    return f"queue-{name}"


def coordinator(play: Play) -> None:
    """The only coordinator dies, and the next one takes over."""
    stage = play.stage
    worker, first = stage.worker(queue_of(play.name)), stage.coordinator(**play.how)
    stage.submit(play.name, diamond(queue_of(play.name)))
    _until_over(play, first)
    second = _next_coordinator(play, first)

    check_diamond(play)
    _leave(worker, second)


def coordinator_of_a_cancel(play: Play) -> None:
    """The coordinator dies before, during or after a cancel; what had not begun at its acknowledgement never does."""
    stage = play.stage
    stubborn = "trap 'kill $!; exit 0' TERM; sleep 600 & wait"
    tasks = [_task("a", "true"), _task("b", stubborn, "a"), _task("c", "true", "b"), _task("d", "true", "c")]
    worker, first = stage.worker(queue_of(play.name)), stage.coordinator(**play.how)
    stage.submit(play.name, {"name": "w", "default_queue": queue_of(play.name), "tasks": tasks})
    until(lambda: not first.is_running or stage.has_started(play.name, "b"), "the second task to start, or a death")

    assert stage.workflow("cancel", play.name) == 0
    begun = set(stage.starts(play.name))

    _until_over(play, first)
    second = _next_coordinator(play, first)
    assert stage.ended(play.name) == "cancelled"
    assert set(stage.starts(play.name)) - begun <= {("a", 1), ("b", 1)}, "more was begun than was on its queue"
    assert stage.tasks(play.name)["c"] == ("cancelled", 0)
    _leave(worker, second)


def _until_over(play: Play, process: Process) -> None:
    """Wait until the process has died or its workflow has ended."""
    watch = play.stage.watch(play.name)
    until(lambda: not (process.is_running and watch.is_running), f"a death of the process, or the end of {play.name}")
    watch.kill()


def _next_coordinator(play: Play, first: Process) -> Process:
    if not play.died:
        first.leave()  # which it may not survive
    assert play.died or first.code == 0
    return play.stage.coordinator()


def _leave(*processes: Process) -> None:
    """Have processes stop in good order."""
    for process in processes:
        assert process.leave() == 0
