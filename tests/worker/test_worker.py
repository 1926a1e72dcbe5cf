"""The worker's loop: what it takes, runs, reports, refuses, and when it leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any, Self

import pytest

from ai4s.jobq.definition.model import Task
from ai4s.jobq.engine.states import Stop
from ai4s.jobq.errors import AccessDeniedError, MessageLostError, StorageUnavailableError
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.store.layout import HEADER
from ai4s.jobq.store.wire import Cause, Outcome, decode_queue_message, encode_task
from ai4s.jobq.store.workers import WorkerRecord, WorkerRegistry
from ai4s.jobq.worker.processor import Job, JobResult
from ai4s.jobq.worker.receiving import FIRST_BACKOFF_S
from ai4s.jobq.worker.scratch import PREFIX
from ai4s.jobq.worker.tasks import STARTED_AFTER_S
from tests.worker.stage import Stage
from tests.worker.waiting import processes_with, until


async def test_a_finished_task_is_reported_and_its_message_deleted(stage: Stage) -> None:
    message = await stage.put_command("true")

    summary = await stage.run()

    report = stage.only_outcome()
    assert (report.outcome, report.exit_code, report.row) == (Outcome.SUCCEEDED, 0, message.row)
    assert (report.life, report.attempt, report.output, report.error) == (1, 1, None, None)
    assert await stage.queue.approximate_count() == 0
    assert summary.succeeded == 1


async def test_a_failed_task_is_reported_with_cause_code_and_error(stage: Stage) -> None:
    await stage.put_command("echo broken >&2; exit 3")

    await stage.run()

    report = stage.only_outcome()
    assert (report.outcome, report.cause, report.exit_code) == (Outcome.FAILED, Cause.EXIT, 3)
    assert report.error == "exit code 3\nbroken"


async def test_the_report_is_posted_before_the_message_is_deleted(stage: Stage) -> None:
    reported_at_delete: list[int] = []
    stage.queue.fault = lambda operation, message: (
        reported_at_delete.append(len(stage.outcomes())) if operation == "complete" else None
    )
    await stage.put_command("true")

    await stage.run()

    assert reported_at_delete == [1]


async def test_a_task_without_cmd_fails_at_once_and_says_what_is_missing(stage: Stage) -> None:
    header = await stage.submit(Task(name="fetch", kwargs={"url": "https://example.org"}))
    await stage.put(header)

    await stage.run()

    assert "a shell worker needs 'cmd'" in (stage.only_outcome().error or "")


async def test_the_command_knows_its_task(stage: Stage) -> None:
    message = await stage.put_command(
        "echo $JOBQ_WORKFLOW_ID $JOBQ_WORKFLOW_TASK $JOBQ_WORKFLOW_ATTEMPT ${JOBQ_SIDECAR-none}; exit 1"
    )

    await stage.run()

    assert stage.only_outcome().error == f"exit code 1\n{message.workflow_id} train 1 none"


async def test_large_kwargs_are_read_from_the_definition(stage: Stage) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "exit 5"}))
    await stage.put(header, kwargs=None)

    await stage.run()

    assert stage.only_outcome().exit_code == 5


async def test_an_output_is_reported_as_it_was_written(stage: Stage) -> None:
    await stage.put_command("""echo ' {"a":  1.50, "n": 9007199254740993} ' > $JOBQ_OUTPUT_FILE""")

    await stage.run()

    assert stage.only_outcome().output == '{"a":  1.50, "n": 9007199254740993}'


async def test_a_large_output_goes_to_a_blob_named_by_its_execution(stage: Stage) -> None:
    await stage.put_command("""printf '"%040000d"' 7 > $JOBQ_OUTPUT_FILE""")

    await stage.run()

    report = stage.only_outcome()
    assert report.output is not None
    assert not isinstance(report.output, str)
    assert report.execution in report.output.blob
    assert json.loads(await stage.store.outputs_store.read(report.output)) == "7".zfill(40_000)


async def test_the_output_of_a_failed_task_is_not_kept(stage: Stage) -> None:
    await stage.put_command("echo 1 > $JOBQ_OUTPUT_FILE; exit 1")

    await stage.run()

    assert stage.only_outcome().output is None


async def test_an_output_that_is_no_json_fails_the_attempt(stage: Stage) -> None:
    await stage.put_command("echo '{\"a\":' > $JOBQ_OUTPUT_FILE")

    await stage.run()

    report = stage.only_outcome()
    assert (report.outcome, report.cause, report.exit_code) == (Outcome.FAILED, Cause.EXIT, 0)
    assert "no JSON" in (report.error or "")


async def test_a_short_task_is_not_announced_as_started(stage: Stage) -> None:
    await stage.put_command("true")

    await stage.run()

    assert [report.outcome for report in stage.reports()] == [Outcome.SUCCEEDED]


async def test_a_task_that_lasts_is_announced_as_started_by_the_same_execution(stage: Stage) -> None:
    await stage.put_command("sleep 1.3")

    await stage.run()

    started, ended = stage.reports()
    assert (started.outcome, ended.outcome) == (Outcome.STARTED, Outcome.SUCCEEDED)
    assert started.execution == ended.execution
    assert started.worker == ended.worker != ""


async def test_a_task_that_waits_inside_its_processor_is_not_announced_as_started(stage: Stage) -> None:
    class Waiting:
        """Never begins; answers when it is asked to stop."""

        name = "Waiting"

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *exc: object) -> None: ...

        async def __call__(self, job: Job) -> JobResult:
            await asyncio.wait((job.stop.asked,), timeout=STARTED_AFTER_S + 0.3)
            return JobResult(cause=Cause.EXIT, error="never began")

    await stage.put_command("true")

    await stage.run(processor=Waiting())

    assert [report.error for report in stage.reports()] == ["never began"]


async def test_a_damaged_header_keeps_the_message_and_is_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    message = await stage.put_command("true")
    await stage.set_row(message.workflow_id, HEADER, {"facts": b"damaged"})

    await stage.run()

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 60"]
    assert "damaged" in caplog.text


async def test_reports_that_come_while_one_is_sent_share_a_message(stage: Stage) -> None:
    header = await stage.submit(*(Task(name=f"t{number}", kwargs={"cmd": "true"}) for number in range(12)))
    for number in range(12):
        await stage.put(header, number)
    sends = 0

    def fail_first_send(operation: str, message: Message | None) -> None:
        nonlocal sends
        sends += operation == "send"
        if operation == "send" and sends == 1:
            raise StorageUnavailableError("busy")

    stage.completions.fault = fail_first_send
    await stage.run(slots=12)

    assert len(stage.outcomes()) == 12
    assert len(stage.completions.sent) <= 3


async def test_a_timeout_counts_from_the_start_of_the_command(stage: Stage) -> None:
    message = await stage.put_command("sleep 60", timeout_s=1)
    assert message.timeout_s == 1

    await stage.run()

    report = stage.only_outcome()
    assert report.cause is Cause.TIMEOUT
    assert 1 <= (report.duration_s or 0) < 10


async def test_no_more_tasks_run_at_a_time_than_there_are_slots(stage: Stage, tmp_path: Path) -> None:
    log = tmp_path / "log"
    header = await stage.submit(*(Task(name=f"t{number}") for number in range(7)))
    for number in range(7):
        cmd = f"mkdir {tmp_path}/run$$; ls -d {tmp_path}/run* | wc -l >> {log}; sleep 0.1; rmdir {tmp_path}/run$$"
        await stage.put(header, number, kwargs={"cmd": cmd})

    await stage.run(slots=3)

    assert max(map(int, log.read_text().split())) == 3


# -- the pre-run check


@pytest.mark.parametrize("stop", [Stop.DROP, Stop.HALT])
async def test_a_task_of_a_stopped_workflow_is_reported_as_cancelled_and_never_started(
    stage: Stage, stop: Stop, tmp_path: Path
) -> None:
    message = await stage.put_command(f"touch {tmp_path}/ran")
    await stage.change_header(message.workflow_id, stop=stop)

    summary = await stage.run()

    assert stage.only_outcome().cause is Cause.CANCELLED
    assert not (tmp_path / "ran").exists()
    assert (summary.dropped, await stage.queue.approximate_count()) == (1, 0)


@pytest.mark.parametrize("changes", [{"run": "0123456789abcdef"}, {"life": 0}])
async def test_a_message_of_an_earlier_run_or_life_is_deleted_unrun(
    stage: Stage, changes: dict[str, Any], tmp_path: Path
) -> None:
    header = await stage.submit(Task(name="train"))
    await stage.put(header, kwargs={"cmd": f"touch {tmp_path}/ran"}, **changes)

    await stage.run()

    assert stage.reports() == []
    assert not (tmp_path / "ran").exists()
    assert await stage.queue.approximate_count() == 0


async def test_a_message_of_a_workflow_that_is_gone_is_deleted(stage: Stage) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    await stage.put(header, workflow_id="another")

    await stage.run()

    assert stage.reports() == []
    assert await stage.queue.approximate_count() == 0


async def test_a_message_newer_than_the_header_is_given_back_for_a_second(stage: Stage) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    await stage.put(header, life=header.life + 1)

    await stage.run()

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 1"]


async def test_a_header_is_read_once_for_all_messages_of_one_receive(stage: Stage) -> None:
    header = await stage.submit(*(Task(name=f"t{number}", kwargs={"cmd": "true"}) for number in range(8)))
    for number in range(8):
        await stage.put(header, number)
    reads = 0
    read_header = stage.store.header

    async def counted(workflow_id: str) -> object:
        nonlocal reads
        reads += 1
        return await read_header(workflow_id)

    stage.store.header = counted  # type: ignore[method-assign,assignment]  # counting is all this test is about
    await stage.run(slots=8, cancel_poll_s=60)

    assert (reads, len(stage.outcomes())) == (1, 8)


async def test_an_outage_of_the_tables_before_the_start_is_waited_out(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.put_command("true")
    failures = iter([StorageUnavailableError("down"), StorageUnavailableError("down")])
    read_header = stage.store.header

    async def flaky(workflow_id: str) -> object:
        for failure in failures:
            raise failure
        return await read_header(workflow_id)

    stage.store.header = flaky  # type: ignore[method-assign,assignment]  # the fault to inject
    await stage.run()

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED
    warnings = [record for record in caplog.records if "header" in record.getMessage()]
    assert len(warnings) == 1


async def test_a_task_that_took_fifty_workers_with_it_is_reported_as_lost_once(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"touch {tmp_path}/ran")
    for _ in range(50):
        await stage.queue.receive(1, visibility_s=0)

    await stage.run()

    assert stage.only_outcome().cause is Cause.LOST
    assert not (tmp_path / "ran").exists()
    assert await stage.queue.approximate_count() == 0


# -- messages that are not for us


async def test_a_plain_worker_gives_workflow_tasks_back_with_one_warning(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await stage.put_command("true")

    summary = await stage.run(plain=True, slots=2, idle_timeout_s=None)

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 60", "abandon 60"]
    assert stage.reports() == []
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "local/Proj" in warnings[0]
    assert "JOBQ_WORKFLOW_PREFIX" in warnings[0]
    assert summary.given_back == 2


async def test_a_task_of_another_store_is_given_back_naming_both(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    await stage.put(header, store="other/Prefix")

    await stage.run()

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 60"]
    assert "other/Prefix" in caplog.text
    assert "local/Proj" in caplog.text


@pytest.mark.parametrize("body", ["hello", "{}", "[]", "x" * 60_000, '{"v":1,"workflow":"w"}', '{"z":"AAAA"}'])
async def test_junk_is_set_aside_with_a_reason_and_good_tasks_run(stage: Stage, body: str) -> None:
    await stage.queue.send([OutgoingMessage(body=body, message_id="junk")])
    await stage.put_command("true")

    await stage.run()

    ((letter, reason),) = stage.queue.dead_letters
    assert letter.body == body
    assert "message" in reason
    assert stage.only_outcome().outcome is Outcome.SUCCEEDED


async def test_a_message_of_a_newer_version_is_kept_for_a_newer_worker(stage: Stage) -> None:
    header = await stage.submit(Task(name="train", kwargs={"cmd": "true"}))
    message = await stage.put(header)
    await stage.queue.clear()
    newer = encode_task(message).replace('"v":1', '"v":99')
    await stage.queue.send([OutgoingMessage(body=newer, message_id="newer")])

    await stage.run()

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 600"]


# -- leases


async def test_a_task_longer_than_the_visibility_runs_once(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"echo start >> {tmp_path}/log; sleep 1.5")

    await asyncio.gather(*(stage.run(visibility_s=0.5, idle_timeout_s=0.6) for _ in range(2)))

    assert (tmp_path / "log").read_text() == "start\n"
    assert stage.queue.renewals >= 3
    assert len(stage.outcomes()) == 1
    assert await stage.queue.approximate_count() == 0


@pytest.mark.parametrize("failure", [MessageLostError("gone"), StorageUnavailableError("down")])
async def test_a_lost_lease_kills_that_command_only_and_reports_nothing_of_it(
    stage: Stage, failure: Exception, tmp_path: Path
) -> None:
    header = await stage.submit(*(Task(name=f"t{number}") for number in range(4)))
    for number in range(3):
        await stage.put(header, number, kwargs={"cmd": "sleep 1.5"})
    doomed = await stage.put(header, 3, kwargs={"cmd": f"touch {tmp_path}/begun; sleep 600"})

    def no_renewal_of_one(operation: str, message: Message | None) -> None:
        if operation == "renew" and message is not None and message.message_id.startswith(doomed.message_id):
            raise failure

    stage.queue.fault = no_renewal_of_one
    worker = stage.worker(slots=4, visibility_s=0.9, idle_timeout_s=60)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(stage.outcomes()) == 3)
    worker.kill()
    summary = await running

    assert (tmp_path / "begun").exists()
    assert {report.outcome for report in stage.outcomes()} == {Outcome.SUCCEEDED}
    assert doomed.row not in {report.row for report in stage.outcomes()}
    assert summary.lost >= 1
    await until(lambda: processes_with(stage.marker) == [])


async def test_a_renewal_that_hangs_delays_no_other_and_loses_its_own_lease(stage: Stage) -> None:
    header = await stage.submit(Task(name="a"), Task(name="b"))
    hanging = await stage.put(header, 0, kwargs={"cmd": "sleep 600"})
    await stage.put(header, 1, kwargs={"cmd": "sleep 1.5"})
    renew = stage.queue.renew

    async def hang(message: Message, *, visibility_s: float) -> Message:
        if message.message_id.startswith(hanging.message_id):
            await asyncio.Event().wait()
        return await renew(message, visibility_s=visibility_s)

    stage.queue.renew = hang  # type: ignore[method-assign]  # the fault to inject
    worker = stage.worker(slots=2, visibility_s=0.9, idle_timeout_s=60)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(stage.outcomes()) == 1)
    worker.kill()
    summary = await running

    assert stage.only_outcome().row == "t000001"
    assert summary.lost >= 1


async def test_a_report_that_cannot_be_sent_is_tried_again_while_the_lease_is_renewed(stage: Stage) -> None:
    await stage.put_command("true")
    blocked_until = time.monotonic() + 1.2

    def blocked(operation: str, message: Message | None) -> None:
        if operation == "send" and time.monotonic() < blocked_until:
            raise StorageUnavailableError("blocked")

    stage.completions.fault = blocked
    await stage.run(visibility_s=0.9)

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED
    assert stage.queue.renewals >= 1
    assert [operation for operation, _ in stage.queue.settled] == ["complete"]


async def test_a_message_whose_deletion_reply_was_lost_is_done(stage: Stage) -> None:
    await stage.put_command("true")
    complete = stage.queue.complete
    tries = 0

    async def reply_lost(message: Message) -> None:
        nonlocal tries
        tries += 1
        await complete(message)
        raise StorageUnavailableError("no reply")

    stage.queue.complete = reply_lost  # type: ignore[method-assign]  # the fault to inject
    summary = await stage.run()

    assert (tries, summary.succeeded, len(stage.outcomes())) == (2, 1, 1)


async def test_a_receive_that_fails_is_tried_again(stage: Stage) -> None:
    await stage.put_command("true")
    failures = iter([StorageUnavailableError("not up yet")] * 2)

    def not_up_yet(operation: str, message: Message | None) -> None:
        if operation == "receive":
            for failure in failures:
                raise failure

    stage.queue.fault = not_up_yet
    await stage.run()

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED


async def test_a_queue_that_is_away_for_longer_than_the_idle_time_is_asked_with_pauses(stage: Stage) -> None:
    failures = iter([StorageUnavailableError("not up yet")] * 3)
    pauses: list[float] = []

    def not_up_yet(operation: str, message: Message | None) -> None:
        if operation == "receive":
            for failure in failures:
                raise failure

    async def arrival(timeout_s: float) -> None:
        pauses.append(timeout_s)

    stage.queue.fault = not_up_yet
    stage.queue.arrival = arrival  # type: ignore[method-assign]  # the test does not wait
    await stage.run(idle_timeout_s=0, max_idle_backoff_s=3 * FIRST_BACKOFF_S)

    assert pauses == pytest.approx([FIRST_BACKOFF_S, 2 * FIRST_BACKOFF_S, 3 * FIRST_BACKOFF_S])


async def test_a_task_longer_than_the_idle_time_does_not_hurry_the_free_slots(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"until test -e {tmp_path}/go; do sleep 0.02; done")
    pauses: list[float] = []

    async def arrival(timeout_s: float) -> None:
        pauses.append(timeout_s)
        if len(pauses) == 3:
            (tmp_path / "go").touch()
        await asyncio.sleep(0.01)

    stage.queue.arrival = arrival  # type: ignore[method-assign]  # the test does not wait
    await stage.run(slots=2, idle_timeout_s=0, max_idle_backoff_s=3)

    assert len(pauses) >= 3
    assert min(pauses) == pytest.approx(FIRST_BACKOFF_S)


async def test_a_worker_that_may_not_receive_at_all_says_so_and_ends(stage: Stage) -> None:
    def denied(operation: str, message: Message | None) -> None:
        if operation == "receive":
            raise AccessDeniedError("this identity may not read the queue")

    stage.queue.fault = denied

    with pytest.raises(AccessDeniedError):
        await stage.run()


# -- cancel


async def test_a_cancelled_workflow_stops_its_running_task_and_raises_the_flag(stage: Stage, tmp_path: Path) -> None:
    flag = f"trap 'test -e $JOBQ_CANCEL_FILE && touch {tmp_path}/told; exit 7' TERM"
    message = await stage.put_command(f"{flag}; touch {tmp_path}/begun; while :; do sleep 0.02; done")
    running = asyncio.create_task(stage.run())
    await until((tmp_path / "begun").exists)

    await stage.change_header(message.workflow_id, stop=Stop.HALT)
    await running

    report = stage.only_outcome()
    assert (report.cause, report.exit_code) == (Cause.CANCELLED, 7)
    assert (tmp_path / "told").exists()


async def test_drop_lets_a_running_task_finish(stage: Stage, tmp_path: Path) -> None:
    message = await stage.put_command(f"touch {tmp_path}/begun; sleep 0.6")
    running = asyncio.create_task(stage.run())
    await until((tmp_path / "begun").exists)

    await stage.change_header(message.workflow_id, stop=Stop.DROP)
    await running

    assert stage.only_outcome().outcome is Outcome.SUCCEEDED


async def test_a_retry_of_the_workflow_stops_what_its_former_life_still_runs(stage: Stage, tmp_path: Path) -> None:
    message = await stage.put_command(f"touch {tmp_path}/begun; sleep 600")
    running = asyncio.create_task(stage.run())
    await until((tmp_path / "begun").exists)

    await stage.change_header(message.workflow_id, life=2)
    await running

    assert stage.only_outcome().cause is Cause.CANCELLED


async def test_cancelling_one_workflow_leaves_the_others_running(stage: Stage, tmp_path: Path) -> None:
    doomed = await stage.put_command(f"touch {tmp_path}/a; sleep 600")
    other = await stage.put_command(f"touch {tmp_path}/b; sleep 1")
    running = asyncio.create_task(stage.run(slots=2))
    await until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())

    await stage.change_header(doomed.workflow_id, stop=Stop.HALT)
    await running

    causes = {report.cause for report in stage.outcomes()}
    assert causes == {Cause.CANCELLED, None}
    assert other.workflow_id != doomed.workflow_id


# -- leaving


async def test_a_stopped_worker_ends_its_task_and_reports_it_as_preempted(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"touch {tmp_path}/begun; sleep 600")
    worker = stage.worker(idle_timeout_s=None)
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)

    worker.stop()
    summary = await running

    assert stage.only_outcome().cause is Cause.PREEMPTED
    assert summary.preempted == 1
    assert await stage.queue.approximate_count() == 0
    await until(lambda: processes_with(stage.marker) == [])


async def test_a_stopped_worker_gives_back_what_it_has_not_started(stage: Stage) -> None:
    await stage.put_command("true")
    asked = asyncio.Event()

    async def never(workflow_id: str) -> object:
        asked.set()
        return await asyncio.Event().wait()

    stage.store.header = never  # type: ignore[method-assign,assignment]  # the moment to catch
    worker = stage.worker(idle_timeout_s=None)
    running = asyncio.create_task(worker.run())
    await asked.wait()

    worker.stop()
    await running

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 0"]
    assert len(await stage.queue.peek()) == 1


async def test_a_stop_ends_in_time_though_nothing_can_be_reported(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"trap '' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done")

    def blocked(operation: str, message: Message | None) -> None:
        if operation == "send":
            raise StorageUnavailableError("down")

    stage.completions.fault = blocked
    worker = stage.worker(idle_timeout_s=None, stop_within_s=0.6)
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)

    worker.stop()
    await running

    await until(lambda: processes_with(stage.marker) == [])
    assert await stage.queue.approximate_count() == 1


async def test_a_killed_worker_reports_nothing_and_leaves_no_process(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"trap '' TERM; touch {tmp_path}/begun; sleep 600 & sleep 600")
    worker = stage.worker(idle_timeout_s=None)
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)

    worker.stop()
    worker.kill()
    await running

    assert stage.outcomes() == []
    await until(lambda: processes_with(stage.marker) == [])
    assert await stage.queue.approximate_count() == 1


async def test_a_plain_worker_leaves_at_the_first_empty_poll_after_its_jobs(stage: Stage) -> None:
    await stage.put_job({"cmd": "sleep 0.2"})

    summary = await stage.run(plain=True, idle_timeout_s=None)

    assert summary.succeeded == 1


async def test_a_workflow_worker_stays_without_an_idle_timeout(stage: Stage) -> None:
    worker = stage.worker(idle_timeout_s=None)
    running = asyncio.create_task(worker.run())
    await stage.put_command("true")
    await until(lambda: len(stage.outcomes()) == 1)

    await stage.put_command("true")
    await until(lambda: len(stage.outcomes()) == 2)

    assert not running.done()
    worker.stop()
    await running


async def test_the_time_limit_only_stops_taking_tasks(stage: Stage, tmp_path: Path) -> None:
    await stage.put_command(f"sleep 0.6; touch {tmp_path}/finished")
    await stage.put_command("true")

    summary = await stage.run(time_limit_s=0.3, idle_timeout_s=60)

    assert (tmp_path / "finished").exists()
    assert summary.succeeded == 1
    assert await stage.queue.approximate_count() == 1


async def test_nothing_is_left_in_the_directory_for_temporary_files(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await stage.put_command("echo 1 > $JOBQ_OUTPUT_FILE; stat -c %a $(dirname $JOBQ_OUTPUT_FILE) >&2; exit 1")

    await stage.run()

    assert "700" in (stage.only_outcome().error or "")
    assert [name for name in os.listdir(tmp_path) if name.startswith(PREFIX)] == []


async def test_workers_with_a_store_are_in_the_registry_while_they_run(stage: Stage, tmp_path: Path) -> None:
    registry = WorkerRegistry(stage.services, stage.store.names)
    message = await stage.put_command(f"touch {tmp_path}/begun; sleep 600")
    worker = stage.worker(idle_timeout_s=None, slots=2)
    running = asyncio.create_task(worker.run())
    seen: list[WorkerRecord] = []

    async def look() -> bool:
        seen[:] = [found.record async for found in registry.workers() if found.record.executions]
        return bool(seen)

    await until(look)

    worker.stop()
    await running

    assert [(record.worker_id, record.slots) for record in seen] == [(worker.worker_id, 2)]
    assert seen[0].executions == (f"{message.workflow_id}/{message.row}",)
    assert [found async for found in registry.workers()] == []


@pytest.mark.parametrize(
    ("plain", "line"), [(False, "Using WorkflowShellCommandProcessor"), (True, "Using ShellCommandProcessor")]
)
async def test_the_first_line_says_which_processor_is_used(
    stage: Stage, caplog: pytest.LogCaptureFixture, plain: bool, line: str
) -> None:
    with caplog.at_level("INFO", logger="ai4s.jobq.worker"):
        await stage.run(plain=plain)

    assert caplog.records[0].getMessage() == line


async def test_values_of_env_appear_in_no_log_and_no_report(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.put_command("exit 1", env={"API_TOKEN": "s3cr3t-123"})

    with caplog.at_level("DEBUG"):
        await stage.run()

    assert "s3cr3t-123" not in caplog.text
    assert all("s3cr3t-123" not in sent.body for sent in stage.completions.sent)


# -- plain jobs


@pytest.mark.parametrize("plain", [True, False])
async def test_any_worker_runs_plain_jobs(stage: Stage, tmp_path: Path, plain: bool) -> None:
    await stage.put_job({"cmd": f"touch {tmp_path}/ran"})

    await stage.run(plain=plain)

    assert (tmp_path / "ran").exists()
    assert await stage.queue.approximate_count() == 0


async def test_a_failing_plain_job_is_sent_again_until_its_retries_are_used_up(stage: Stage, tmp_path: Path) -> None:
    await stage.put_job({"cmd": f"echo run >> {tmp_path}/log; echo broken >&2; exit 1"}, num_retries=2)

    await stage.run(plain=True)

    assert (tmp_path / "log").read_text() == "run\n" * 3
    ((_, reason),) = stage.queue.dead_letters
    assert reason == "exit code 1\nbroken"
    retries = [dataclasses.asdict(decode_queue_message(sent.body))["num_retries"] for sent in stage.queue.sent]
    assert retries == [2, 1, 0]
    assert len({sent.message_id for sent in stage.queue.sent}) == 3


async def test_a_stopped_worker_gives_its_plain_job_back_uncharged(stage: Stage, tmp_path: Path) -> None:
    await stage.put_job({"cmd": f"touch {tmp_path}/begun; sleep 600"}, num_retries=1)
    worker = stage.worker(plain=True)
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)

    worker.stop()
    await running

    assert [operation for operation, _ in stage.queue.settled] == ["abandon 0"]
    assert len(stage.queue.sent) == 1


async def test_a_worker_leaves_after_too_many_plain_jobs_failed_in_a_row(stage: Stage) -> None:
    for _ in range(5):
        await stage.put_job({"cmd": "exit 1"})

    summary = await stage.run(plain=True, max_consecutive_failures=3)

    assert (summary.failed, summary.gave_up) == (3, True)


async def test_failing_workflow_tasks_never_make_a_worker_leave(stage: Stage) -> None:
    for _ in range(4):
        await stage.put_command("exit 1")

    summary = await stage.run(max_consecutive_failures=2)

    assert (summary.failed, summary.gave_up) == (4, False)
