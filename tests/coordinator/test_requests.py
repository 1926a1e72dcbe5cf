"""Submit, cancel and retry as the coordinator meets them: how it notices, and what it then does and does not do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ai4s.jobq.control.lifecycle import cancel_workflow, retry_workflow
from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.ports.table import Merge
from ai4s.jobq.store.index import WorkflowIndex
from ai4s.jobq.store.index_rows import index_record
from ai4s.jobq.store.layout import ended_row
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.wire import Cause, Outcome, Report, TaskMessage
from ai4s.jobq.store.workflows import WorkflowStore
from tests.coordinator.stage import QUICK, SHORT_LEASE, JumpingClock, Stage, attempts, counted
from tests.support.faults import Call, Faults
from tests.support.small import many, workflow
from tests.support.waiting import until
from tests.support.workers import DIE, FAIL, Act, ScriptedWorker, by_name, post_report

NO_SWEEP = CoordinatorSettings(idle_sleep_s=0.05, sweep_s=3600)


def silent(stage: Stage, *, hints: bool = False, index: bool = False) -> WorkflowStore:
    """A client's store whose hints (and index writes) come to nothing, unless they are wanted."""
    faults = Faults()
    if not hints:
        faults.refuse("queue.send", times=10**6)
    if not index:
        faults.replace("table.transact", stage.store.names.index_table + "", answer=lambda call: ["x"], key="active")
    return stage.store_with(faults)


# -- noticing


async def test_a_hint_alone_makes_a_submit_noticed(stage: Stage) -> None:
    async with stage.coordinator(NO_SWEEP) as running, ScriptedWorker(stage.store):
        await until(lambda: running.coordinator.is_leading)
        client = silent(stage, hints=True)
        submission = await client.submit(workflow(), now=stage.clock.now())
        await stage.completed(submission.workflow_id)


async def test_the_sweep_alone_makes_a_submit_noticed(stage: Stage) -> None:
    async with stage.coordinator() as running, ScriptedWorker(stage.store):
        await until(lambda: running.coordinator.is_leading)
        client = silent(stage, index=True)
        submission = await client.submit(workflow(), now=stage.clock.now())
        await stage.completed(submission.workflow_id)


async def test_a_new_leader_notices_what_was_submitted_before(stage: Stage) -> None:
    client = silent(stage, index=True)
    submission = await client.submit(workflow(), now=stage.clock.now())

    async with stage.coordinator(NO_SWEEP), ScriptedWorker(stage.store):
        await stage.completed(submission.workflow_id)


async def test_a_hint_alone_makes_a_cancel_noticed(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    async with stage.coordinator(NO_SWEEP) as running, ScriptedWorker(stage.store, by_name({"a": DIE})):
        await until(lambda: _is_running(stage, workflow_id))
        commits = running.coordinator.stats.commits

        await cancel_workflow(silent(stage, hints=True), workflow_id, stage.clock)

        await until(lambda: _index_says(stage, workflow_id, WorkflowState.CANCELLED))
        assert running.coordinator.stats.commits >= commits


async def test_a_poke_alone_makes_a_cancel_noticed(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    worker = ScriptedWorker(stage.store, by_name({"a": DIE}))
    async with stage.coordinator() as running, worker:
        await until(lambda: _is_running(stage, workflow_id))
        await until(lambda: _index_says(stage, workflow_id, WorkflowState.RUNNING))
        reads = running.faults.count("table.get", stage.store.names.tasks_table)

        await cancel_workflow(silent(stage, index=True), workflow_id, stage.clock)

        await until(lambda: running.faults.count("table.get", stage.store.names.tasks_table) > reads)


async def test_the_round_of_the_sweeps_alone_makes_a_cancel_noticed(stage: Stage) -> None:
    """Neither hint nor poke arrived: within thirty sweeps every active header is read."""
    workflow_id = await stage.submit(workflow(many(40)))
    async with stage.coordinator() as running:
        await until(lambda: _queued(stage, 32))

        await cancel_workflow(silent(stage), workflow_id, stage.clock)

        await until(lambda: _index_says(stage, workflow_id, WorkflowState.CANCELLED))
        assert running.coordinator.stats.dispatched == 32


async def test_a_poke_seen_while_the_workflow_ends_is_not_forgotten(stage: Stage) -> None:
    """A retry right after the end, whose hint is lost, while the coordinator still moves the index row."""
    workflow_id = await stage.submit(workflow(changes={"a": {}}))
    faults = Faults()
    retried = asyncio.Event()

    async def retry(_: Call) -> None:
        await retry_workflow(silent(stage, index=True), workflow_id, stage.clock)
        retried.set()

    faults.hook("table.transact", stage.store.names.index_table, hook=retry, key="ended")
    settings = replace(QUICK, sweep_s=0.1)

    async with stage.coordinator(settings, faults=faults), ScriptedWorker(stage.store, by_name({"a": [FAIL, Act()]})):
        await retried.wait()
        header = await stage.ended(workflow_id, life=2)

    assert header.state is WorkflowState.COMPLETED


async def _is_running(stage: Stage, workflow_id: str) -> bool:
    return (await stage.header(workflow_id)).counts.get(TaskState.RUNNING, 0) > 0


async def _queued(stage: Stage, count: int) -> bool:
    return await stage.queued() == count


async def _index_says(stage: Stage, workflow_id: str, state: WorkflowState) -> bool:
    active = [record async for record in stage.store.index.active()]
    ended = [record async for record in stage.store.index.ended()]
    return any(record.workflow_id == workflow_id and record.state is state for record in [*active, *ended])


# -- cancel


async def test_nothing_is_dispatched_after_a_cancel(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow({"a": [], "b": ["a"]}))
    cancelled = asyncio.Event()

    async def cancel() -> None:
        await cancel_workflow(stage.store, workflow_id, stage.clock)
        cancelled.set()

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": Act(first=cancel)})) as worker:
        header = await stage.ended(workflow_id)

    assert [execution.task for execution in worker.executions] == ["a"]
    assert (header.state, header.counts) == (WorkflowState.CANCELLED, counted(completed=1, cancelled=1))


async def test_messages_queued_before_a_cancel_are_dropped_by_workers(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(30)))
    async with stage.coordinator():
        await until(lambda: _queued(stage, 30))
        await cancel_workflow(stage.store, workflow_id, stage.clock)

        async with ScriptedWorker(stage.store) as worker:
            header = await stage.ended(workflow_id)
            await until(lambda: _queued(stage, 0))

    assert worker.executions == []
    assert header.counts == counted(cancelled=30)


async def test_a_cancelled_workflow_without_workers_ends_after_a_grace(stage: Stage) -> None:
    clock = JumpingClock()
    workflow_id = await stage.submit(workflow(many(3)))
    async with stage.coordinator(clock=clock):
        await until(lambda: _queued(stage, 3))
        await cancel_workflow(stage.store, workflow_id, stage.clock)
        await until(lambda: _index_says(stage, workflow_id, WorkflowState.CANCELLED))
        assert (await stage.header(workflow_id)).ended_at is None

        clock.jump(6)
        await stage.store.hint(await stage.header(workflow_id))
        header = await stage.ended(workflow_id)

    assert header.stopped_at is not None
    assert header.ended_at is not None
    assert header.ended_at > header.stopped_at
    assert header.counts == counted(cancelled=3)


async def test_a_cancel_before_anything_was_dispatched_ends_the_workflow_at_once(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(many(3)))
    await cancel_workflow(stage.store, workflow_id, stage.clock)

    async with stage.coordinator() as running:
        header = await stage.ended(workflow_id)
        assert running.coordinator.stats.dispatched == 0

    assert header.counts == counted(cancelled=3)


async def test_a_cancel_between_the_commit_and_the_sends_leaves_no_more_than_they(stage: Stage) -> None:
    """The header says halt while messages are being sent: they are dropped by workers, and no commit dispatches more."""
    workflow_id = await stage.submit(workflow(many(60)))
    faults = Faults()

    async def cancel(_: Call) -> None:
        await cancel_workflow(stage.store, workflow_id, stage.clock)

    faults.hook("queue.send", "default", hook=cancel)
    async with stage.coordinator(faults=faults) as running, ScriptedWorker(stage.store) as worker:
        header = await stage.ended(workflow_id)
        assert running.coordinator.stats.dispatched == 32

    assert worker.executions == []
    assert header.counts == counted(cancelled=60)


async def test_a_retry_wait_does_not_survive_a_cancel(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(changes={"a": {"num_retries": 9}}))

    async def cancel() -> None:
        await cancel_workflow(stage.store, workflow_id, stage.clock)

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": replace(FAIL, first=cancel)})) as worker:
        await stage.ended(workflow_id)

    assert attempts(worker.executions) == [1]


async def test_fifty_cancels_about_the_last_completion_leave_one_final_state_each(stage: Stage) -> None:
    cancels: list[asyncio.Task[None]] = []

    async def cancel_after(workflow_id: str, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancel_workflow(stage.store, workflow_id, stage.clock)

    def script(message: TaskMessage) -> Act:
        async def start_cancel() -> None:
            cancels.append(asyncio.create_task(cancel_after(message.workflow_id, 3 * int(message.workflow_id))))

        return Act(first=start_cancel if message.task_name == "b" else None)

    async with stage.coordinator(), ScriptedWorker(stage.store, script):
        ids = [await stage.submit(workflow({"a": [], "b": ["a"]}), str(number)) for number in range(50)]
        headers = [await stage.ended(workflow_id) for workflow_id in ids]
        await asyncio.gather(*cancels)
        after = [await stage.header(workflow_id) for workflow_id in ids]

    assert [header.state for header in after] == [header.state for header in headers]
    assert all(sum(header.counts.values()) == 2 for header in headers)
    for header in headers:
        assert header.state in (WorkflowState.COMPLETED, WorkflowState.CANCELLED)
        assert header.counts.get(TaskState.COMPLETED, 0) >= 1


# -- retry


async def test_a_retry_runs_what_failed_and_what_it_blocked_and_nothing_else(stage: Stage) -> None:
    tasks = {"good": [], "bad": [], "child": ["bad"], "join": ["good", "child"]}
    workflow_id = await stage.submit(workflow(tasks))
    script = by_name({"bad": [FAIL, Act()], "good": Act(output="7")})

    async with stage.coordinator(), ScriptedWorker(stage.store, script) as worker:
        assert (await stage.ended(workflow_id)).state is WorkflowState.FAILED
        await retry_workflow(stage.store, workflow_id, stage.clock)
        header = await stage.ended(workflow_id, life=2)

    assert header.state is WorkflowState.COMPLETED
    assert len(worker.runs_of("good")) == 1
    assert attempts(worker.runs_of("bad")) == [1, 2]
    assert [len(worker.runs_of(name)) for name in ("child", "join")] == [1, 1]
    assert (await stage.task(workflow_id, 0)).output == "7"


async def test_a_retry_begins_with_a_full_retry_budget(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow(changes={"a": {"num_retries": 1}}))

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": FAIL})) as worker:
        await stage.ended(workflow_id)
        await retry_workflow(stage.store, workflow_id, stage.clock)
        await stage.ended(workflow_id, life=2)

    assert attempts(worker.executions) == [1, 2, 3, 4]


async def test_a_retry_leaves_one_row_in_the_index_of_ended_workflows(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": [FAIL, Act()]})):
        await stage.ended(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))
        await retry_workflow(stage.store, workflow_id, stage.clock)
        await stage.ended(workflow_id, life=2)
        await until(lambda: stage.is_retired(workflow_id))

    assert await stage.ended_ids() == [workflow_id]


async def test_a_report_of_the_life_before_a_retry_is_ignored(stage: Stage) -> None:
    """Two executions of attempt 1: one reports the cancel, the workflow ends and is retried, the other says success."""
    workflow_id = await stage.submit(workflow())
    run = (await stage.header(workflow_id)).run
    late, hold = asyncio.Event(), asyncio.Event()
    acts = [Act(says_started=True, first=late.wait), Act(first=hold.wait, output="2")]
    stopped = Report(
        row="t000000", life=1, attempt=1, execution="1-other", outcome=Outcome.FAILED, cause=Cause.CANCELLED
    )

    async with stage.coordinator(), ScriptedWorker(stage.store, by_name({"a": acts})) as worker:
        await until(lambda: _is_running(stage, workflow_id))
        await cancel_workflow(stage.store, workflow_id, stage.clock)
        await post_report(stage.store, workflow_id, run, stopped)
        await stage.ended(workflow_id)
        await retry_workflow(stage.store, workflow_id, stage.clock)
        await until(lambda: len(worker.executions) == 2)
        late.set()
        await until(lambda: _no_completions(stage))
        hold.set()
        header = await stage.ended(workflow_id, life=2)

    assert header.state is WorkflowState.COMPLETED
    assert (await stage.task(workflow_id, 0)).output == "2"


async def _no_completions(stage: Stage) -> bool:
    return await stage.completions() == 0 and await stage.queued() == 1


# -- the index


async def test_a_workflow_that_ended_in_a_crash_is_moved_in_the_index(stage: Stage) -> None:
    """The header says ended, the active row is still there: the coordinator died in between."""
    workflow_id = await stage.submit(workflow())
    faults = Faults()
    faults.kill("table.transact", stage.store.names.index_table, key="ended")
    async with ScriptedWorker(stage.store):
        running = stage.new_coordinator(faults=faults)
        running.start()
        await until(lambda: faults.dead)
        await running.kill()
        await stage.free_lease()
        assert await stage.active_ids() == [workflow_id]

        async with stage.coordinator():
            await until(lambda: stage.is_retired(workflow_id))


async def test_an_ended_row_that_a_retry_made_untrue_is_removed(stage: Stage) -> None:
    workflow_id = await stage.submit(workflow())
    async with ScriptedWorker(stage.store, by_name({"a": [FAIL, Act(says_started=True, dies=True)]})):
        async with stage.coordinator():
            header = await stage.ended(workflow_id)
            await until(lambda: stage.is_retired(workflow_id))
        assert header.ended_at is not None
        await retry_workflow(stage.store, workflow_id, stage.clock)
        await stage.store.index.table.transact(
            "ended", [Merge(ended_row(header.ended_at, workflow_id), index_record(header).values())]
        )

        async with stage.coordinator():
            await until(lambda: _is_running(stage, workflow_id))
            await until(lambda: _no_ended(stage))

    assert (await stage.header(workflow_id)).stale_ended_row == ""


async def _no_ended(stage: Stage) -> bool:
    return await stage.ended_ids() == []


async def test_an_index_row_whose_submit_died_is_removed_in_time(stage: Stage) -> None:
    clock = JumpingClock()
    await _promise(stage, "never")
    async with stage.coordinator(SHORT_LEASE, clock=clock) as running:
        await until(lambda: running.faults.count("table.query", stage.store.names.index_table) > 5)
        assert await stage.active_ids() == ["never"]

        clock.jump(601)

        await until(lambda: _none_active(stage))


async def test_an_index_row_of_a_retry_that_died_is_removed_in_time(stage: Stage) -> None:
    """The client announced a second life and died before the header began it: the workflow is ended, not active."""
    workflow_id = await stage.submit(workflow())
    clock = JumpingClock()
    worker = ScriptedWorker(stage.store, by_name({"a": FAIL}))
    async with stage.coordinator(SHORT_LEASE, clock=clock) as running, worker:
        header = await stage.ended(workflow_id)
        await until(lambda: stage.is_retired(workflow_id))
        promise = replace(header, life=2, rev=header.rev + 1, ended_at=None, state=WorkflowState.RUNNING)
        await WorkflowIndex(stage.store.index.table).announce(index_record(promise))
        queries = running.faults.count("table.query", stage.store.names.index_table)
        await until(lambda: running.faults.count("table.query", stage.store.names.index_table) > queries + 4)

        clock.jump(601)

        await until(lambda: _none_active(stage))

    assert await stage.ended_ids() == [workflow_id]


async def _none_active(stage: Stage) -> bool:
    return await stage.active_ids() == []


async def _promise(stage: Stage, workflow_id: str) -> None:
    now = stage.clock.now()
    header = Header(
        workflow_id=workflow_id, name="w", run="0" * 16, created_at=now, updated_at=now, task_count=1, chunks=1
    )
    await stage.store.index.announce(index_record(header))
