"""Backoff: how long a task waits for its next attempt, and what may happen meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ai4s.jobq.definition.parts import Backoff, Retry
from ai4s.jobq.engine.attempts import backoff_s
from ai4s.jobq.engine.states import Waiting
from ai4s.jobq.engine.task_run import TaskRun
from tests.engine.scene import RUN, Scene, room, task

MINUTE = Retry(max=3, delay_s=60)
DELAYS = [
    (Retry(max=5), [0, 0, 0, 0, 0]),
    (Retry(max=5, delay_s=1.5), [1.5, 1.5, 1.5, 1.5, 1.5]),
    (Retry(max=5, delay_s=10, backoff=Backoff.EXPONENTIAL), [10, 20, 40, 80, 160]),
    (Retry(max=5, delay_s=10, backoff=Backoff.EXPONENTIAL, max_delay_s=60), [10, 20, 40, 60, 60]),
    (Retry(max=5, delay_s=10, max_delay_s=4), [4, 4, 4, 4, 4]),
]


@pytest.mark.parametrize(("retry", "delays"), DELAYS, ids=lambda value: str(value)[:80])
def test_the_delays_are_those_of_the_definition(retry: Retry, delays: list[float]) -> None:
    """B16: fixed, exponential, and with a longest one."""
    assert [backoff_s(retry, RUN, TaskRun(1, charged=charged)) for charged in range(1, 6)] == delays


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1])
def test_jitter_shortens_by_its_share_at_most(jitter: float) -> None:
    """B16: spread over the whole share, and never longer than the delay that was asked for."""
    retry = Retry(max=1, delay_s=100, jitter=jitter)

    delays = [backoff_s(retry, RUN, TaskRun(number, attempt=1, charged=1)) for number in range(500)]

    lowest = 100 * (1 - jitter)
    assert lowest <= min(delays) < lowest + 5 * jitter
    assert 100 - 5 * jitter < max(delays) <= 100


def test_everybody_draws_the_same_jitter_for_an_attempt() -> None:
    """B16: it depends on run, task and attempt alone, so that a second coordinator agrees."""
    retry = Retry(max=9, delay_s=100, jitter=1)

    def drawn(run: str, number: int, attempt: int) -> float:
        return backoff_s(retry, run, TaskRun(number, attempt=attempt, charged=1))

    assert drawn(RUN, 1, 1) == drawn(RUN, 1, 1)
    assert len({drawn(RUN, 1, 1), drawn(RUN, 1, 2), drawn(RUN, 2, 1), drawn("other", 1, 1)}) == 4


def test_the_next_attempt_comes_when_the_delay_is_over() -> None:
    """B16: not before; the coordinator is told when to look."""
    scene = Scene.of(task("a", retry=MINUTE))

    failed = scene.play("", "a exit")
    assert (failed.wake_at, scene["a"].waiting) == (scene.now + timedelta(seconds=60), Waiting.BACKOFF)
    early = scene.play("+59.9")
    due = scene.play("+0.1")

    assert (scene.dispatches(failed), scene.dispatches(early), scene.dispatches(due)) == ("", "", "a#2")
    assert due.wake_at is None


def test_a_task_that_waits_holds_no_slot() -> None:
    """B16: others go first meanwhile."""
    scene = Scene.of(task("a", retry=MINUTE), task("b"), max_parallelism=1)

    assert scene.dispatches(scene.play("", "a exit")) == "b#1"


@pytest.mark.parametrize("cause", ["lost", "preempted", "cancelled"])
def test_what_is_charged_to_nobody_is_tried_again_at_once(cause: str) -> None:
    """B16, B17: the delay is for failures of the command."""
    scene = Scene.of(task("a", retry=MINUTE))

    assert scene.dispatches(scene.play("", f"a {cause}")) == "a#2"


def test_attempts_are_at_most_one_more_than_max() -> None:
    """B16: like num_retries."""
    scene = Scene.of(task("a", retry=Retry(max=2, delay_s=1)))

    scene.play("", "a exit", "+1", "a timeout", "+1", "a exit")

    assert (scene.state("a"), scene["a"].attempt) == ("failed", 3)


@pytest.mark.parametrize(
    ("exit_code", "state"), [(75, "ready"), (-9, "ready"), (1, "failed"), (0, "failed"), (None, "failed")]
)
def test_only_the_listed_exit_codes_are_tried_again(exit_code: int | None, state: str) -> None:
    """B16: on_exit_codes; negative ones are signals."""
    scene = Scene.of(task("a", retry=Retry(max=3, on_exit_codes=(75, -9))))
    scene.play("")

    scene.decide(scene.failed("a", exit_code=exit_code))

    assert scene.state("a") == state


def test_a_listed_exit_code_is_tried_again_max_times() -> None:
    """B16: the list does not lift the limit."""
    scene = Scene.of(task("a", retry=Retry(max=1, on_exit_codes=(1,))))

    scene.play("", "a exit", "a exit")

    assert (scene.state("a"), scene["a"].attempt) == ("failed", 2)


@pytest.mark.parametrize("cause", ["lost", "preempted"])
def test_exit_codes_say_nothing_of_workers_that_vanish(cause: str) -> None:
    """B16, B17: such an attempt has no exit code."""
    scene = Scene.of(task("a", retry=Retry(max=3, on_exit_codes=(75,))))

    scene.play("", f"a {cause}")

    assert scene.state("a") == "ready"


# -- J09: what may happen during the wait


def test_the_wait_and_the_count_survive_a_restart() -> None:
    """J09: the second attempt comes when it would have come."""
    scene = Scene.of(task("a", retry=MINUTE))
    scene.play("", "a exit", "+20", "reload")

    waiting = scene.play("")
    early, due = scene.play("+39.9"), scene.play("+0.1")

    assert waiting.wake_at == early.wake_at == scene.now
    assert (scene.dispatches(early), scene.dispatches(due)) == ("", "a#2")
    assert scene["a"].charged == 1


def test_a_wait_that_ended_while_nobody_looked_is_over_at_once() -> None:
    """J09: the coordinator was away for an hour."""
    scene = Scene.of(task("a", retry=MINUTE))
    scene.play("", "a exit")

    scene.now += timedelta(hours=1)
    scene.reload()

    assert scene.dispatches(scene.play("")) == "a#2"


def test_a_cancel_during_the_wait_ends_the_task() -> None:
    """J09: no further attempt, and nothing to wait for."""
    scene = Scene.of(task("a", retry=MINUTE))

    cancelled = scene.play("", "a exit", "cancel")
    later = scene.play("+60")

    assert (scene.run.ended_at, cancelled.wake_at) == (scene.now - timedelta(seconds=60), None)
    assert (scene.states(), scene.dispatches(later)) == ("a=cancelled", "")


def test_a_retry_of_the_run_does_not_wait_for_what_an_earlier_life_waited_for() -> None:
    """J09: a new life begins with a first attempt and all retries."""
    scene = Scene.of(task("a", retry=MINUTE))
    scene.play("", "a exit", "cancel")

    decision = scene.play("retry")

    assert scene.dispatches(decision) == "a#2"
    assert (scene["a"].waiting, scene["a"].wait_until, scene["a"].charged) == (None, None, 0)


def test_a_wait_is_as_long_after_a_delay_at_the_beginning() -> None:
    """B15, B16: delay_s comes before the first attempt only."""
    scene = Scene.of(task("a", delay_s=5, retry=MINUTE))

    dispatches = [scene.dispatches(scene.play(step)) for step in ("", "+5", "a lost", "a exit", "reload", "+60")]

    assert dispatches == ["", "a#1", "a#2", "", "", "a#3"]


@pytest.mark.parametrize("step", ["", "reload"])
def test_a_delay_at_the_beginning_is_not_waited_for_again(step: str) -> None:
    """B15, B16: neither by another attempt nor by a coordinator that takes over."""
    scene = Scene.of(task("a", delay_s=5, retries=1))
    scene.play("", "+5")
    scene.decide(scene.failed("a"), room=room())

    assert scene.dispatches(scene.play(step)) == "a#2"
