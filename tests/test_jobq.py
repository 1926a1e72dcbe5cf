"""A20, COMPAT 6.1 and 7.1: the plain queue from Python."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ai4s.jobq
from ai4s.jobq import (
    EmptyQueue,
    JobFailedError,
    JobQ,
    LockLostError,
    Processor,
    ProcessPool,
    Response,
    SequentialProcessor,
    ShellCommandProcessor,
    TooManyFailuresError,
    WorkerCanceled,
    WorkSpecification,
    batch_enqueue,
    get_results,
    launch_workers,
    setup_logging,
)
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, SettingsError, UsageError
from ai4s.jobq.plain.replies import decode_response, encode_response, reply_queue_name
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.store.wire import TaskMessage, encode_task


@pytest.fixture
async def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobQ]:
    monkeypatch.setenv("JOBQ_LOCAL_DIR", str(tmp_path / "store"))
    monkeypatch.delenv("JOBQ_DETERMINISTIC_IDS", raising=False)
    async with JobQ.from_storage_queue("jobs", storage_account="local") as queue:
        yield queue


async def body_of_next(queue: JobQ) -> dict[str, Any]:
    (message,) = await queue.services.queue(queue.name).peek(1)
    record: dict[str, Any] = json.loads(message.body)
    return record


# -- pushing and looking


async def test_a_job_travels_in_the_envelope_that_others_read(queue: JobQ) -> None:
    future = await queue.push({"cmd": "true", "n": 1}, num_retries=2)

    record = await body_of_next(queue)
    assert set(record) == {"version", "reply_requested", "kwargs", "num_retries", "id"}
    assert record["version"] == 1
    assert record["reply_requested"] is False
    assert json.loads(record["kwargs"]) == {"cmd": "true", "n": 1}
    assert record["num_retries"] == 2
    assert record["id"] == future.id == future.job_id


async def test_a_text_is_a_command_with_five_retries(queue: JobQ) -> None:
    await queue.push("echo hi")

    record = await body_of_next(queue)
    assert (json.loads(record["kwargs"]), record["num_retries"]) == ({"cmd": "echo hi"}, 5)


async def test_the_same_job_has_the_same_id_unless_that_is_turned_off(
    queue: JobQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = [(await queue.push(cmd)).id for cmd in ("a", "a", "b")]
    monkeypatch.setenv("JOBQ_DETERMINISTIC_IDS", "false")
    third = (await queue.push("a")).id

    assert first == second
    assert len({first, other, third}) == 3
    assert (await queue.push("a", id="mine")).id == "mine"


async def test_an_id_is_the_md5_of_the_envelope_without_it(queue: JobQ) -> None:
    future = await queue.push("a", num_retries=0)

    record = await body_of_next(queue)
    del record["id"]
    assert future.id == hashlib.md5(json.dumps(record, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


async def test_arguments_that_are_no_json_are_refused(queue: JobQ) -> None:
    with pytest.raises(UsageError, match="must be JSON"):
        await queue.push({"when": timedelta(1)})
    assert await queue.get_approximate_size() == 0


async def test_peek_leaves_jobs_and_hides_what_env_holds(queue: JobQ) -> None:
    await queue.push({"cmd": "true", "env": {"TOKEN": "s3cr3t"}})

    (job,) = await queue.peek()
    (shown,) = await queue.peek(as_json=True)

    assert job.kwargs["env"] == {"TOKEN": "s3cr3t"}
    assert shown["kwargs"] == {"cmd": "true", "env": {"TOKEN": "***"}}
    assert "s3cr3t" not in json.dumps(shown)
    assert await queue.get_approximate_size() == 1


async def test_peek_tells_what_else_is_on_a_queue(queue: JobQ) -> None:
    task = TaskMessage(store="local/P", workflow_id="w", run="r", life=1, row="t000000", task_name="a", attempt=2)
    bodies = [encode_task(task), "no JSON"]
    await queue.services.queue("jobs").send([OutgoingMessage(body=body, message_id=body[:9]) for body in bodies])

    found = {job["id"]: job for job in await queue.peek(5, as_json=True)}

    assert found["w/a/2"]["workflow_id"] == "w"
    assert "no JSON" in found[""]["problem"]


async def test_clear_empties_the_queue(queue: JobQ) -> None:
    await queue.push_many([{"cmd": str(number)} for number in range(250)])
    assert await queue.get_approximate_size() == 250

    await queue.clear()

    assert await queue.get_approximate_size() == 0
    assert await queue.peek(5) == []


async def test_a_queue_is_opened_by_the_environment(queue: JobQ, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.push("a")
    monkeypatch.setenv("JOBQ_STORAGE", "local")
    monkeypatch.setenv("JOBQ_QUEUE", "jobs")

    async with JobQ.from_environment() as same, same.get_worker_interface() as interface:
        await interface.create()
        assert (same.full_name, await interface.get_approximate_size()) == ("local/jobs", 1)
    with pytest.raises(UsageError, match="exists already"):
        async with JobQ.from_environment(exist_ok=False):
            pass
    monkeypatch.delenv("JOBQ_QUEUE")
    with pytest.raises(SettingsError, match="Set both"):
        async with JobQ.from_environment():
            pass


@pytest.mark.parametrize(
    "text", ["", "AccountName=other;AccountKey=x==;QueueEndpoint=https://other.queue.core.windows.net", "nonsense"]
)
async def test_a_connection_string_with_a_key_is_refused_without_telling_it(text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        async with JobQ.from_connection_string("jobs", connection_string=text):
            pass
    assert "x==" not in str(raised.value)


async def test_a_connection_string_of_the_emulator_is_taken() -> None:
    texts = (
        "UseDevelopmentStorage=true",
        "AccountName=devstoreaccount1;AccountKey=k;QueueEndpoint=http://127.0.0.1:10101/devstoreaccount1;",
    )
    for text in texts:
        async with JobQ.from_connection_string("jobs", connection_string=text) as queue:
            assert queue.full_name == "devstoreaccount1/jobs"


async def test_a_credential_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="async token credential"):
        async with JobQ.from_storage_queue("jobs", storage_account="account", credential="key"):
            pass


# -- pulling


async def test_pull_calls_with_kwargs_and_fills_in_ids(queue: JobQ) -> None:
    seen: list[Any] = []
    future = await queue.push({"a": 1, "b": "x"})

    async def callback(a: int, b: str, _job_id: str, _worker_id: str) -> None:
        seen.append((a, b, _job_id, _worker_id))

    assert await queue.pull_and_execute(callback, worker_id="me") is True
    assert seen == [(1, "x", future.id, "me")]
    with pytest.raises(EmptyQueue):
        await queue.pull_and_execute(callback)


async def test_a_job_that_raises_is_retried_then_set_aside_with_its_error(queue: JobQ) -> None:
    await queue.push({"x": 0}, num_retries=1)

    def divide(x: int) -> float:
        return 1 / x

    assert [await queue.pull_and_execute(divide) for _ in range(2)] == [False, False]
    with pytest.raises(EmptyQueue):
        await queue.pull_and_execute(divide)
    async with JobQ.from_storage_queue("jobs-failed", storage_account="local") as failed:
        (letter,) = await failed.peek(as_json=True)
    assert letter["error"] == "ZeroDivisionError: division by zero"
    assert letter["kwargs"] == {"x": 0}


async def test_a_job_that_gives_itself_back_is_not_charged(queue: JobQ) -> None:
    await queue.push({}, num_retries=0)

    def later() -> None:
        raise WorkerCanceled

    assert await queue.pull_and_execute(later) is False
    assert await queue.pull_and_execute(lambda: None) is True


async def test_a_job_that_outlives_its_lock_is_stopped(queue: JobQ) -> None:
    await queue.push({})
    stopped = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(LockLostError):
        await queue.pull_and_execute(slow, visibility_timeout=0.5)
    assert stopped.is_set()


async def test_a_heartbeat_keeps_a_job_longer_than_its_lock(queue: JobQ) -> None:
    await queue.push({})

    async def slow() -> None:
        await asyncio.sleep(2.2)

    assert await queue.pull_and_execute(slow, visibility_timeout=timedelta(seconds=1.5), with_heartbeat=True) is True


async def test_a_workflow_task_is_left_to_its_workers(queue: JobQ) -> None:
    task = TaskMessage(store="local/P", workflow_id="w", run="r", life=1, row="t000000", task_name="a", attempt=1)
    await queue.services.queue("jobs").send([OutgoingMessage(body=encode_task(task), message_id="m")])

    with pytest.raises(EmptyQueue, match="JOBQ_WORKFLOW_PREFIX"):
        await queue.pull_and_execute(lambda: None)
    assert await queue.get_approximate_size() == 1


async def test_a_message_that_is_no_job_is_set_aside(queue: JobQ) -> None:
    await queue.services.queue("jobs").send([OutgoingMessage(body="{}", message_id="m")])

    assert await queue.pull_and_execute(lambda: None) is False
    assert await queue.get_approximate_size() == 0


# -- results


async def test_a_result_comes_back_to_who_asked(queue: JobQ) -> None:
    future = await queue.push({"a": 2}, reply_requested=True)

    await queue.pull_and_execute(lambda a: {"twice": 2 * a})

    assert await future.result(timeout=30) == {"twice": 4}
    assert await future == {"twice": 4}
    assert not await queue.services.queue(reply_queue_name("jobs", future.id)).exists()


async def test_the_failure_of_a_job_is_raised_where_its_result_is_awaited(queue: JobQ) -> None:
    future = await queue.push({"a": 2}, num_retries=0, reply_requested=True)

    def broken(a: int) -> None:
        raise ValueError("no good")

    await queue.pull_and_execute(broken)

    with pytest.raises(JobFailedError, match="ValueError: no good"):
        await future.result(timeout=30)
    assert (await future.response()).is_success is False


async def test_a_result_that_nobody_asked_for_cannot_be_awaited(queue: JobQ) -> None:
    with pytest.raises(UsageError, match="reply_requested=True"):
        await (await queue.push({}))


async def test_waiting_for_a_result_ends_with_its_time(queue: JobQ) -> None:
    future = await queue.push({}, reply_requested=True)

    with pytest.raises(TimeoutError):
        await queue.get_result(future.id, timeout=0.05)


async def test_what_cannot_be_sent_back_is_a_failure(queue: JobQ) -> None:
    future = await queue.push({}, num_retries=0, reply_requested=True)

    await queue.pull_and_execute(lambda: object())

    assert "cannot be kept" in (await future.response(timeout=30)).body


def test_replies_are_read_as_they_were_written() -> None:
    assert decode_response(encode_response(is_success=True, body="[1]")) == Response(is_success=True, body=[1])
    assert json.loads(encode_response(is_success=False, body='"x"')) == {
        "version": 1,
        "is_success": False,
        "body": '"x"',
    }
    too_large = decode_response(encode_response(is_success=True, body=json.dumps("x" * 70_000)))
    assert (too_large.is_success, "too large" in too_large.body) == (False, True)


@pytest.mark.parametrize(
    ("text", "error"),
    [("nonsense", CorruptRecordError), ("{}", CorruptRecordError), ('{"version": 2}', NewerVersionError)],
)
def test_a_reply_that_is_none_is_said_so(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_response(text)


def test_the_name_of_a_reply_queue_is_legal_whatever_the_names() -> None:
    for name in ("abc", "a" * 63, "a" * 35 + "-" + "b" * 20):
        reply = reply_queue_name(name, "any id / at all")
        assert len(reply) <= 63
        assert "--" not in reply


# -- processors and workers


class Adder(Processor):
    """Adds, and remembers what was done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.register_context_manager(self._resource())

    @asynccontextmanager
    async def _resource(self) -> AsyncIterator[None]:
        self.done.append("opened")
        yield
        self.done.append("closed")

    def resume(self) -> None:
        self.done.append("resumed")

    async def __call__(self, a: int, b: int, _job_id: str) -> int:
        self.done.append("called")
        return a + b


async def test_workers_run_a_processor_until_the_queue_is_empty(queue: JobQ) -> None:
    futures = [await queue.push({"a": n, "b": 1}, reply_requested=True) for n in range(5)]
    adder = Adder()

    summary = await launch_workers(queue, adder, num_workers=2, show_progress=False)

    assert summary.succeeded == 5
    assert adder.done == ["opened", "resumed", *["called"] * 5, "closed"]
    assert await get_results(futures) == [1, 2, 3, 4, 5]


async def test_a_sequential_processor_runs_one_call_at_a_time_in_a_thread(queue: JobQ) -> None:
    await queue.push_many([{"n": n} for n in range(6)])
    inside, most = 0, 0
    threads: set[int] = set()
    lock = threading.Lock()

    def callback(n: int) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            threads.add(threading.get_ident())
        with lock:
            inside -= 1

    summary = await launch_workers(queue, SequentialProcessor(callback), num_workers=4)

    assert (summary.succeeded, most) == (6, 1)
    assert threading.get_ident() not in threads


async def test_workers_run_shell_commands(queue: JobQ, tmp_path: Path) -> None:
    await queue.push({"cmd": "echo $A > out", "cwd": str(tmp_path), "env": {"A": "hello"}})

    await launch_workers(queue, ShellCommandProcessor())

    assert (tmp_path / "out").read_text() == "hello\n"


async def test_too_many_failures_in_a_row_end_the_workers(queue: JobQ) -> None:
    await queue.push_many([{"cmd": f"exit {code}"} for code in (1, 2, 3)])

    with pytest.raises(TooManyFailuresError, match="2 jobs of local/jobs in a row failed"):
        await launch_workers(queue, ShellCommandProcessor(), max_consecutive_failures=2)
    assert await queue.get_approximate_size() == 1


async def test_without_a_heartbeat_a_job_that_takes_too_long_is_killed(queue: JobQ, tmp_path: Path) -> None:
    await queue.push({"cmd": "sleep 60"}, num_retries=0)

    summary = await launch_workers(
        queue, ShellCommandProcessor(), visibility_timeout=0.6, with_heartbeat=False, time_limit=0.1
    )

    assert summary.lost == 1


async def test_a_shell_processor_can_be_called_by_itself(tmp_path: Path) -> None:
    async with ShellCommandProcessor() as shell:
        assert await shell("echo $X > out", _job_id="j", env={"X": "1"}, cwd=str(tmp_path)) == 0
        with pytest.raises(JobFailedError, match=r"'exit 3' failed: exit code 3"):
            await shell("exit 3")
    assert (tmp_path / "out").read_text() == "1\n"
    with pytest.raises(UsageError, match="opened before"):
        await ShellCommandProcessor()("true")


async def test_an_emulated_terminal_is_one(tmp_path: Path) -> None:
    async with ShellCommandProcessor(emulate_tty=True) as shell:
        await shell("test -t 1 && tty > out", cwd=str(tmp_path))
        with pytest.raises(JobFailedError, match="exit code 4"):
            await shell("exit 4")
    assert (tmp_path / "out").read_text().startswith("/dev/")


async def test_a_process_pool_runs_functions_elsewhere() -> None:
    async with ProcessPool(pool_size=1) as pool:
        assert await pool.submit(pow, 2, 10) == 1024
        with pytest.raises(ZeroDivisionError):
            await pool.submit(divmod, 1, 0)


async def test_a_base_processor_and_specification_say_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="has no __call__"):
        await Processor()()
    with pytest.raises(NotImplementedError, match="has no list_tasks"):
        WorkSpecification().list_tasks(None)


# -- batches


class Numbers(WorkSpecification):
    """Jobs by tens; even ones are done already."""

    def task_seeds(self) -> Iterator[int]:
        yield from range(3)

    async def list_tasks(self, seed: int, force: bool = False) -> AsyncIterator[dict[str, int]]:
        for number in range(10):
            yield {"number": 10 * seed + number}

    def already_done(self, number: int) -> bool:
        return number % 2 == 0


async def numbers_on(queue: JobQ) -> list[int]:
    return sorted(job.kwargs["number"] for job in await queue.peek(32))


async def test_a_batch_pushes_what_is_not_done(queue: JobQ) -> None:
    futures = await batch_enqueue(queue, Numbers(), show_progress=False)

    assert await numbers_on(queue) == list(range(1, 30, 2))
    assert len(futures) == 15
    assert (await queue.peek())[0].num_retries == 1


async def test_a_forced_batch_pushes_everything(queue: JobQ) -> None:
    await batch_enqueue(queue, Numbers(), force=True, num_retries=0)

    assert await numbers_on(queue) == list(range(30))


async def test_a_dry_run_pushes_nothing(queue: JobQ) -> None:
    assert await batch_enqueue(queue, Numbers(), dry_run=True) == []
    assert await queue.get_approximate_size() == 0


async def test_a_batch_that_cannot_be_listed_ends_with_its_error(queue: JobQ) -> None:
    class Broken(Numbers):
        def already_done(self, number: int) -> bool:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        await batch_enqueue(queue, Broken())


async def test_failed_jobs_are_told_among_the_results(queue: JobQ) -> None:
    futures = [await queue.push({"n": n}, num_retries=0, reply_requested=True) for n in (1, 0)]

    await launch_workers(queue, SequentialProcessor(lambda n: 1 // n))
    good, bad = await get_results(futures)

    assert good == 1
    assert isinstance(bad, Response)
    assert "ZeroDivisionError" in bad.body


# -- the package


def test_every_exported_name_is_there() -> None:
    for name in ai4s.jobq.__all__:
        assert getattr(ai4s.jobq, name).__name__ == name
    with pytest.raises(AttributeError):
        ai4s.jobq.nothing  # noqa: B018


def test_logging_goes_to_stderr_and_insights_are_refused_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("ai4s")
    before = root.handlers[:], root.level, ours.level
    try:
        setup_logging("local/jobs", app_insights_connection_string="InstrumentationKey=1", environment="test")
        printed = capsys.readouterr()
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
    assert printed.out == ""
    assert "not sent to Application Insights" in printed.err
    assert "InstrumentationKey" not in printed.err
