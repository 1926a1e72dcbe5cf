"""B7, B11, B14, B20: cancel with and without undoing, pause and resume, signals, handles, submit with params and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.engine.events import OutputsResolved
from ai4s.jobq.engine.states import Stop, TaskState, WorkflowState
from ai4s.jobq.errors import DefinitionError, OperationalError, UsageError, WorkflowNotFoundError
from ai4s.jobq.store.commit import write
from ai4s.jobq.store.records import Header
from ai4s.jobq.store.workflows import WorkflowStore
from tests.control.conftest import flow
from tests.support.acting import failed, play, started, succeeded

UNDOABLE = flow(
    {"name": "a", "undo": {"cmd": "undo a"}},
    {"name": "b", "depends_on": ["a"], "undo": {"cmd": "undo b"}},
    {"name": "c", "depends_on": ["b"]},
)
UNDO_A, UNDO_B = 3, 4


async def header_of(store: WorkflowStore, workflow_id: str = "w") -> Header:
    header = await store.header(workflow_id)
    assert header is not None
    return header


async def compensating(store: WorkflowStore, client: WorkflowClient) -> None:
    """``c`` failed, ``b`` is being undone."""
    await client.submit(UNDOABLE, "w")
    await play(store, "w")
    await succeeded(store, "w", 0, '{"x": 1}')
    await succeeded(store, "w", 1)
    await failed(store, "w", 2)
    assert (await header_of(store)).state is WorkflowState.COMPENSATING


# -- cancel


async def test_a_cancel_counts_as_the_engine_does(store: WorkflowStore, client: WorkflowClient) -> None:
    """A skip that follows from other skips is derived, so a stop makes it a cancelled task."""
    definition = flow(
        {"name": "a"},
        {"name": "b", "depends_on": ["a"], "condition": "inputs.a.go"},
        {"name": "c", "depends_on": ["b"]},
        {"name": "d"},
    )
    await client.submit(definition, "w")
    await play(store, "w")
    await succeeded(store, "w", 0, '{"go": false}')
    await play(store, "w", [OutputsResolved(number=1, values={"a": {"go": False}})])
    assert (await header_of(store)).counts[TaskState.SKIPPED] == 2

    await client.cancel("w")

    loaded = await store.load("w")
    assert loaded is not None
    assert loaded.header.counts == loaded.run.counts
    assert loaded.header.counts == {TaskState.COMPLETED: 1, TaskState.SKIPPED: 1, TaskState.CANCELLED: 2}
    assert loaded.header.ended_at is None


async def test_a_paused_workflow_that_is_cancelled_is_paused_no_more(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    """Else its hooks and undo jobs would wait for ever."""
    await client.submit(UNDOABLE, "w")
    await client.pause("w")

    await client.cancel("w")

    header = await header_of(store)
    assert (header.state, header.paused, header.stop) == (WorkflowState.CANCELLED, False, Stop.HALT)


async def test_cancelling_what_is_being_undone_changes_nothing(store: WorkflowStore, client: WorkflowClient) -> None:
    await compensating(store, client)
    before = await header_of(store)

    result = await client.cancel("w")

    assert (result.changed, result.status) == (False, WorkflowState.COMPENSATING)
    assert "--force gives it up" in result.note
    assert await header_of(store) == before


async def test_force_gives_up_what_is_not_undone_yet(store: WorkflowStore, client: WorkflowClient) -> None:
    await compensating(store, client)

    assert (await client.cancel("w", force=True)).changed
    await succeeded(store, "w", UNDO_B)

    status = await client.status("w")
    assert status.status is WorkflowState.COMPENSATION_FAILED
    assert status.tasks is not None
    undo = {name: task.undo.status for name, task in status.tasks.items() if task.undo is not None}
    assert undo == {"a": TaskState.CANCELLED, "b": TaskState.COMPLETED}


async def test_force_twice_is_harmless(store: WorkflowStore, client: WorkflowClient) -> None:
    await compensating(store, client)
    await client.cancel("w", force=True)

    result = await client.cancel("w", force=True)

    assert (result.changed, result.note) == (False, "undoing was given up already")


async def test_force_on_a_running_workflow_cancels_it_without_undoing(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    await client.submit(UNDOABLE, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await started(store, "w", 1)

    await client.cancel("w", force=True)
    await succeeded(store, "w", 1)

    header = await header_of(store)
    assert header.state is WorkflowState.COMPENSATION_FAILED
    assert header.ended_at is not None


async def test_undoing_is_told_apart_by_what_it_follows(store: WorkflowStore, client: WorkflowClient) -> None:
    """Exit code 1 after a failure, 3 after a cancel."""
    await compensating(store, client)
    await succeeded(store, "w", UNDO_B)
    await succeeded(store, "w", UNDO_A)
    after_failure = await client.status("w")
    await client.submit(UNDOABLE, "v")
    await play(store, "v")
    await succeeded(store, "v", 0)
    await started(store, "v", 1)
    await client.cancel("v")
    await failed(store, "v", 1)
    await succeeded(store, "v", UNDO_A)
    after_cancel = await client.status("v", include_tasks=False)

    assert (after_failure.status, after_failure.cancel_requested) == (WorkflowState.COMPENSATED, False)
    assert after_failure.error == "task 'c' (exit code 7) failed"
    assert (after_cancel.status, after_cancel.cancel_requested) == (WorkflowState.COMPENSATED, True)


# -- pause and resume


async def test_pause_and_resume_can_be_repeated(store: WorkflowStore, client: WorkflowClient) -> None:
    """B20."""
    await client.submit(UNDOABLE, "w")

    assert not (await client.resume("w")).changed
    assert (await client.pause("w")).status is WorkflowState.PAUSED
    again = await client.pause("w")
    assert (again.changed, again.note) == (False, "already paused")
    assert (await client.resume("w")).status is WorkflowState.RUNNING
    assert not (await header_of(store)).paused


async def test_nothing_is_dispatched_during_a_pause(store: WorkflowStore, client: WorkflowClient) -> None:
    """B20."""
    await client.submit(UNDOABLE, "w")
    await client.pause("w")
    await play(store, "w")
    during = (await client.status("w")).counts

    await client.resume("w")
    await play(store, "w")

    assert during == {TaskState.PENDING: 3}
    assert (await client.status("w")).counts == {TaskState.READY: 1, TaskState.PENDING: 2}


async def test_what_has_ended_can_be_neither_paused_nor_resumed(store: WorkflowStore, client: WorkflowClient) -> None:
    await client.submit(flow({"name": "a"}), "w")
    await play(store, "w")
    await succeeded(store, "w", 0)

    with pytest.raises(OperationalError, match=r"has ended \(completed\)"):
        await client.pause("w")
    with pytest.raises(OperationalError, match=r"has ended \(completed\)"):
        await client.resume("w")


async def test_undoing_cannot_be_paused(store: WorkflowStore, client: WorkflowClient) -> None:
    await compensating(store, client)

    with pytest.raises(OperationalError, match="is compensating: only what is pending or running"):
        await client.pause("w")


async def test_a_pause_that_undoing_met_can_be_ended(store: WorkflowStore, client: WorkflowClient) -> None:
    """The last task failed during the pause."""
    await client.submit(UNDOABLE, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await client.pause("w")
    await failed(store, "w", 1)
    assert (await header_of(store)).state is WorkflowState.COMPENSATING

    await client.resume("w")
    await play(store, "w")
    await succeeded(store, "w", UNDO_A)

    assert (await header_of(store)).state is WorkflowState.COMPENSATED


async def test_changes_that_meet_another_writer_are_made_again(
    store: WorkflowStore, client: WorkflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing the other one wrote is lost."""
    await client.submit(UNDOABLE, "w")
    real, times = store.read_header, []

    async def read_then_overtaken(workflow_id: str) -> Any:
        stored = await real(workflow_id)
        times.append(stored)
        if len(times) == 1:
            assert stored is not None
            await write(
                store.table, stored, replace(stored.header, recheck=True, rev=stored.header.rev + 1, commit="x")
            )
        return stored

    monkeypatch.setattr(store, "read_header", read_then_overtaken)

    assert (await client.pause("w")).changed
    header = await header_of(store)
    assert (header.paused, header.recheck) == (True, True)


# -- signals

APPROVAL = flow(
    {"name": "a"},
    {"name": "ok", "depends_on": ["a"], "wait_for": {"signal": "go"}},
    {"name": "last", "depends_on": ["ok"]},
)


async def test_a_signal_answers_the_task_that_waits(store: WorkflowStore, client: WorkflowClient) -> None:
    """B14: its data is the task's output."""
    await client.submit(APPROVAL, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    waiting = (await client.tasks("w"))[1]

    result = await client.signal("w", "go", {"by": "Ä"})
    await play(store, "w")

    assert (waiting.waiting, waiting.signal, waiting.wait_until) == ("signal", "go", None)
    assert result.note == ""
    answered = (await client.tasks("w"))[1]
    assert (answered.status, answered.output, answered.waiting) == (TaskState.COMPLETED, '{"by":"Ä"}', None)


async def test_a_signal_that_comes_early_is_kept(store: WorkflowStore, client: WorkflowClient) -> None:
    """B14."""
    await client.submit(APPROVAL, "w")
    await client.signal("w", "go", 1)
    await play(store, "w")

    await succeeded(store, "w", 0)

    assert (await client.tasks("w"))[1].output == "1"


async def test_the_first_of_two_signals_counts(store: WorkflowStore, client: WorkflowClient) -> None:
    """B14."""
    await client.submit(APPROVAL, "w")
    await client.signal("w", "go", "first")

    second = await client.signal("w", "go", "second")
    await play(store, "w")
    await succeeded(store, "w", 0)

    assert second.note == "a signal of this name was sent before, and that one counts"
    assert (await client.tasks("w"))[1].output == '"first"'


async def test_a_signal_without_data_gives_no_output(store: WorkflowStore, client: WorkflowClient) -> None:
    await client.submit(APPROVAL, "w")
    await client.signal("w", "go")
    await play(store, "w")
    await succeeded(store, "w", 0)

    answered = (await client.tasks("w"))[1]
    assert (answered.status, answered.output) == (TaskState.COMPLETED, None)


async def test_a_signal_that_nobody_waits_for_is_noted(client: WorkflowClient) -> None:
    """B14."""
    await client.submit(APPROVAL, "w")

    result = await client.signal("w", "goo")

    assert result.note == "no task waits for a signal of this name (did you mean 'go'?)"


async def test_a_signal_that_comes_too_late_is_noted(store: WorkflowStore, client: WorkflowClient) -> None:
    """The task that waited has been stopped."""
    await client.submit(APPROVAL, "w")
    await client.cancel("w")

    assert (await client.signal("w", "go")).note.startswith("every task that waits for it has ended")


async def test_a_signal_to_an_ended_workflow_is_an_error(store: WorkflowStore, client: WorkflowClient) -> None:
    """B14."""
    await client.submit(flow({"name": "a"}), "w")
    await play(store, "w")
    await succeeded(store, "w", 0)

    with pytest.raises(OperationalError, match=r"has ended \(completed\): no task of it waits"):
        await client.signal("w", "go")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("", None, "the name of a signal"),
        ("a b", None, "the name of a signal"),
        ("x" * 101, None, "the name of a signal"),
        ("go", float("nan"), "is JSON, this is not"),
        ("go", object(), "is JSON, this is not"),
        ("go", "\ud800", "is JSON, this is not"),
        ("go", "x" * 32_767, "at most 32,768 bytes"),
    ],
)
async def test_a_signal_that_cannot_be_is_refused(client: WorkflowClient, name: str, data: Any, expected: str) -> None:
    await client.submit(APPROVAL, "w")

    with pytest.raises(UsageError, match=expected):
        await client.signal("w", name, data)


async def test_a_signal_of_the_largest_size_arrives(store: WorkflowStore, client: WorkflowClient) -> None:
    data = "ü" * 16_383
    await client.submit(APPROVAL, "w")
    await client.signal("w", "go", data)
    await play(store, "w")
    await succeeded(store, "w", 0)

    assert (await client.tasks("w"))[1].output == f'"{data}"'


# -- handles and submit


async def test_a_handle_does_all_that_the_client_does(store: WorkflowStore, client: WorkflowClient) -> None:
    """B11."""
    await client.submit(APPROVAL, "w")

    run = await client.open_run("w")

    assert (await run.pause()).changed
    assert (await run.resume()).changed
    assert (await run.signal("go")).note == ""
    assert (await run.status(include_tasks=False)).status is WorkflowState.RUNNING
    assert [task.name for task in await run.tasks()] == ["a", "ok", "last"]
    assert (await run.cancel()).changed
    await play(store, "w")
    assert (await run.wait(timeout_s=10)).status is WorkflowState.CANCELLED
    assert (await run.retry()).reset == 3


async def test_a_handle_of_an_unknown_id_is_refused_with_near_ids(client: WorkflowClient) -> None:
    """B11."""
    await client.submit(APPROVAL, "nightly-1")

    with pytest.raises(WorkflowNotFoundError, match="Did you mean nightly-1"):
        await client.open_run("nightly-2")


async def test_params_and_labels_are_given_at_submit(store: WorkflowStore, client: WorkflowClient) -> None:
    """B13, B19."""
    definition = flow({"name": "a", "kwargs": {"cmd": "echo ${{ params.x }}"}}, params={"x": 1}, labels={"team": "ml"})

    await client.submit(definition, "w", params={"x": 2}, labels={"who": "me"})

    assert (await client.definition("w")).arguments == {"x": 2}
    assert (await client.status("w")).labels == {"team": "ml", "who": "me"}
    assert not (await client.submit(definition, "w", params={"x": 2})).created


@pytest.mark.parametrize("params", [{}, {"y": 1}, {"x": "text"}])
async def test_params_that_do_not_fit_are_refused_and_nothing_is_stored(
    client: WorkflowClient, params: dict[str, Any]
) -> None:
    """B13."""
    definition = flow({"name": "a"}, params={"x": {"type": "integer", "required": True}})

    with pytest.raises(DefinitionError):
        await client.submit(definition, params=params)
    assert await client.list_workflows() == []


async def test_a_hand_made_definition_is_checked_as_a_file_is(client: WorkflowClient) -> None:
    """B2."""
    tasks = (Task(name="a", depends_on=("b",)), Task(name="b", depends_on=("a",)))

    with pytest.raises(DefinitionError, match="Cycle detected"):
        await client.submit(WorkflowDefinition(name="w", tasks=tasks))


async def test_workflows_are_listed_by_all_labels(client: WorkflowClient) -> None:
    """B19."""
    for number, labels in enumerate([{"a": "1"}, {"a": "1", "b": "2"}, {"b": "2"}]):
        await client.submit(flow({"name": "t"}), f"w{number}", labels=labels)

    found = await client.list_workflows(labels={"a": "1", "b": "2"})

    assert [status.workflow_id for status in found] == ["w1"]
