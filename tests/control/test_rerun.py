"""C3: reruns: what they take over and why, and that neither workflow needs the other afterwards."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ai4s.jobq.client import WorkflowClient
from ai4s.jobq.engine.events import OutputsResolved
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.errors import (
    DefinitionError,
    EntityExistsError,
    OperationalError,
    StaleWriteError,
    StorageUnavailableError,
    UsageError,
    WorkflowExistsError,
    WorkflowNotFoundError,
)
from ai4s.jobq.store.layout import HEADER
from ai4s.jobq.store.stashes import (
    Kind,
    Manifest,
    ManifestFile,
    Ready,
    StoredFile,
    manifest_bytes,
    read_manifest,
    ready_marker,
)
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import WorkflowStore
from tests.control.conftest import flow
from tests.support.acting import all_succeeded, failed, play, succeeded
from tests.support.faults import Call, Faults, FaultyServices

PIPELINE = flow(
    {"name": "ingest"},
    {"name": "train", "depends_on": ["ingest"], "kwargs": {"cmd": "train ${{ params.lr }}"}},
    {"name": "report", "depends_on": ["train"]},
    {"name": "other", "kwargs": {"cmd": "other"}},
    params={"lr": 0.1, "full": True},
    labels={"team": "ml"},
)


async def completed(store: WorkflowStore, client: WorkflowClient, outputs: dict[int, str | BlobRef]) -> None:
    """The pipeline under the id ``w``, all of it completed."""
    await client.submit(PIPELINE, "w")
    await play(store, "w")
    for number in (0, 3, 1, 2):
        await succeeded(store, "w", number, outputs.get(number))
    assert (await client.status("w")).status is WorkflowState.COMPLETED


async def actions(client: WorkflowClient, *names: str, **params: Any) -> dict[str, str]:
    plan = await client.rerun_plan("w", names, params=params)
    return {task.name: f"{'reuse' if task.is_reused else 'run'}: {task.reason}" for task in plan.tasks}


# -- the plan


async def test_what_comes_after_a_named_task_runs_again(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {})

    assert await actions(client, "train") == {
        "ingest": "reuse: completed in w",
        "train": "run: named by --from",
        "report": "run: comes after 'train', which runs again",
        "other": "reuse: completed in w",
    }


async def test_what_reads_a_changed_param_runs_again(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {})

    found = await actions(client, lr=0.2, full=False)

    assert found["train"] == "run: reads param 'lr', which changes"
    assert (found["ingest"], found["other"]) == ("reuse: completed in w", "reuse: completed in w")


async def test_a_condition_that_reads_a_changed_param_runs_its_task_again(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    definition = flow(
        {"name": "a"},
        {"name": "b", "depends_on": ["a"], "condition": "default(inputs.a.n, 1) > params.least"},
        params={"least": 0, "most": 9},
    )
    await client.submit(definition, "w")

    assert (await actions(client, least=5))["b"].startswith("run: reads param 'least'")
    assert "most" not in str(await actions(client, most=5))


async def test_what_did_not_complete_runs_again_with_what_comes_after_it(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    definition = flow(
        {"name": "a"}, {"name": "b"}, {"name": "clean", "depends_on": ["b"], "dep_policy": "always"}, {"name": "c"}
    )
    await client.submit(definition, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await failed(store, "w", 1)
    await succeeded(store, "w", 2)

    assert await actions(client, "c") == {
        "a": "reuse: completed in w",
        "b": "run: did not complete: failed",
        "clean": "run: comes after 'b', which runs again",
        "c": "run: named by --from",
    }


async def test_what_comes_after_a_skipped_task_is_taken_over_unless_something_before_it_changes(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    definition = flow(
        {"name": "a"},
        {"name": "b", "depends_on": ["a"], "condition": "exists(inputs.a.x)"},
        {"name": "j", "depends_on": ["a", "b"]},
        {"name": "z"},
    )
    await client.submit(definition, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await play(store, "w", [OutputsResolved(number=1, values={"a": None})])
    await succeeded(store, "w", 2)

    assert (await actions(client, "z"))["j"] == "reuse: completed in w"
    assert (await actions(client, "a"))["j"] == "run: comes after 'a', which runs again"


async def test_what_was_undone_runs_again(store: WorkflowStore, client: WorkflowClient) -> None:
    definition = flow({"name": "a", "undo": {"cmd": "x"}}, {"name": "b", "depends_on": ["a"]}, {"name": "c"})
    await client.submit(definition, "w")
    await play(store, "w")
    await succeeded(store, "w", 0)
    await succeeded(store, "w", 2)
    await failed(store, "w", 1)
    await succeeded(store, "w", 3)

    assert (await actions(client, "b"))["a"] == "run: was undone"


async def test_the_name_of_a_matrix_names_all_of_it(store: WorkflowStore, client: WorkflowClient) -> None:
    await client.submit(flow({"name": "t", "matrix": {"x": [1, 2]}}), "w")

    assert set((await actions(client, "t")).values()) == {"run: named by --from"}
    assert (await actions(client, "t[x=1]"))["t[x=2]"] == "run: did not complete: pending"


async def test_a_chain_of_twenty_thousand_is_planned(client: WorkflowClient) -> None:
    tasks = [{"name": f"t{n}", **({"depends_on": [f"t{n - 1}"]} if n else {})} for n in range(20_000)]
    await client.submit(flow(*tasks), "w")

    plan = await client.rerun_plan("w", ["t19999"])

    assert plan.to_json()["run"] == 20_000


async def test_a_rerun_in_which_nothing_would_run_is_refused(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {})

    with pytest.raises(UsageError, match="Nothing of workflow 'w' would run again"):
        await client.rerun("w", params={"full": False})


async def test_mistakes_in_a_rerun_are_named(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {})

    with pytest.raises(UsageError, match=r"has no task 'trian'\. Did you mean 'train'"):
        await client.rerun("w", ["trian"])
    with pytest.raises(DefinitionError, match=r"has no param 'fulll'\. Did you mean 'full'"):
        await client.rerun("w", ["train"], params={"fulll": 1})
    with pytest.raises(UsageError, match="a workflow of its own"):
        await client.rerun("w", ["train"], new_id="w")
    with pytest.raises(WorkflowNotFoundError):
        await client.rerun("nobody", ["train"])


# -- the rerun


async def test_results_are_taken_over_and_the_rest_runs(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {0: '{"rows": 7}'})

    result = await client.rerun("w", ["train"], params={"lr": 0.5}, labels={"try": "2"}, new_id="again")
    await play(store, "again")

    status = await client.status("again")
    assert result.submission.created
    assert status.tasks is not None
    assert {name: str(task.status) for name, task in status.tasks.items()} == {
        "ingest": "completed",
        "train": "ready",
        "report": "pending",
        "other": "completed",
    }
    ingest = status.tasks["ingest"]
    assert (ingest.output, ingest.reused, ingest.attempt) == ('{"rows": 7}', "w", 0)
    assert status.tasks["train"].reused is None
    assert status.labels == {"team": "ml", "try": "2"}
    assert (await client.definition("again")).arguments == {"lr": 0.5}


async def test_the_index_tells_of_what_is_taken_over(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {})

    await client.rerun("w", ["report"], new_id="again")

    [again] = [row for row in await client.list_workflows() if row.workflow_id == "again"]
    assert again.counts == {TaskState.COMPLETED: 3, TaskState.PENDING: 1}


async def test_the_same_rerun_again_changes_nothing_and_another_one_is_refused(
    store: WorkflowStore, client: WorkflowClient
) -> None:
    """B1."""
    await completed(store, client, {})
    first = await client.rerun("w", ["train"], new_id="again")

    assert first.submission.created
    assert not (await client.rerun("w", ["train"], new_id="again")).submission.created
    with pytest.raises(WorkflowExistsError):
        await client.rerun("w", ["train"], params={"lr": 3}, new_id="again")


async def test_a_rerun_of_a_rerun_works(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {0: '{"rows": 7}'})
    await client.rerun("w", ["train"], new_id="second")
    await client.purge("w")

    await client.rerun("second", ["train"], new_id="third")

    status = await client.status("third")
    assert status.tasks is not None
    assert (status.tasks["ingest"].output, status.tasks["ingest"].reused) == ('{"rows": 7}', "second")


async def stored(store: WorkflowStore, name: str, data: bytes) -> StoredFile:
    await store.services.blobs(store.outputs_store.container).put(name, data)
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return StoredFile(blob=name, size_bytes=len(data), md5=digest)


async def test_outputs_survive_the_purge_of_the_first_workflow(store: WorkflowStore, client: WorkflowClient) -> None:
    """Large ones, files and directories: all of it is copied."""
    blobs = store.services.blobs(store.outputs_store.container)
    large = json.dumps("x" * 40_000)
    await client.submit(PIPELINE, "w")
    header = await store.header("w")
    assert header is not None
    prefix = store.names.run_blobs("w", header.run)
    kept = await stored(store, f"{prefix}large", large.encode())
    file = await stored(store, f"{prefix}f", b"file")
    inside = await stored(store, f"{prefix}i", b"inside")
    manifest = Manifest(files=(ManifestFile(path="d/i", file=inside, mode=0o644),), directories={"d": 0o755})
    listed = await stored(store, f"{prefix}m", manifest_bytes(manifest))
    markers = {
        "file": ready_marker(Ready(kind=Kind.FILE, file=file, filename="f.txt")),
        "all": [ready_marker(Ready(kind=Kind.DIRECTORY, file=listed, filename="dir"))],
    }
    await play(store, "w")
    await succeeded(store, "w", 0, BlobRef(blob=kept.blob, size_bytes=kept.size_bytes, md5=kept.md5))
    await succeeded(store, "w", 3, json.dumps(markers))

    await client.rerun("w", ["train"], new_id="again")
    await client.cancel("w")
    await play(store, "w")
    await client.purge("w", terminal_only=False)

    status = await client.status("again")
    assert status.tasks is not None
    ingest, other = status.tasks["ingest"].output, status.tasks["other"].output
    assert isinstance(ingest, BlobRef)
    assert await store.outputs_store.read(ingest) == large
    assert isinstance(other, str)
    copied = json.loads(other)
    assert await blobs.get(copied["file"]["__jobq_stash__"]["blob"]) == b"file"
    copies = read_manifest(await blobs.get(copied["all"][0]["__jobq_stash__"]["blob"]))
    assert await blobs.get(copies.files[0].file.blob) == b"inside"


async def test_a_result_that_is_gone_is_named(store: WorkflowStore, client: WorkflowClient) -> None:
    await completed(store, client, {0: BlobRef(blob="nowhere", size_bytes=1, md5="0" * 32)})

    with pytest.raises(OperationalError, match="output of task 'ingest' is gone"):
        await client.rerun("w", ["train"], new_id="again")
    with pytest.raises(WorkflowNotFoundError):
        await client.status("again")


# -- large ones, in several transactions


@pytest.fixture
async def wide(store: WorkflowStore, client: WorkflowClient) -> int:
    """Under the id ``w``: 300 tasks that completed and one that did not."""
    count = 300
    await client.submit(flow(*({"name": f"t{n}"} for n in range(count)), {"name": "last"}), "w")
    await play(store, "w")
    for start in range(0, count, 98):
        await all_succeeded(store, "w", range(start, min(start + 98, count)))
    return count


async def test_hundreds_of_results_are_taken_over(store: WorkflowStore, client: WorkflowClient, wide: int) -> None:
    await client.rerun("w", ["last"], new_id="again")

    status = await client.status("again")
    assert status.counts == {TaskState.COMPLETED: wide, TaskState.PENDING: 1}
    assert status.tasks is not None
    assert status.tasks["t299"].output == "299"


@pytest.mark.parametrize("step", [0, 1, 3, 5])
async def test_a_rerun_that_is_interrupted_is_seen_by_nobody(
    store: WorkflowStore, client: WorkflowClient, wide: int, step: int
) -> None:
    """Whatever is there of it, a purge clears it away, and the id can be used again."""
    faults = Faults()
    faults.refuse("table.transact", "WorkflowTasks", skip=step)
    other = WorkflowClient(WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="P"))
    with pytest.raises(StorageUnavailableError):
        await other.rerun("w", ["last"], new_id="again")

    assert await store.header("again") is None
    await client.purge("again", terminal_only=False)
    assert (await client.rerun("w", ["last"], new_id="again")).submission.created


@pytest.mark.parametrize("step", [0, 1, 5])
async def test_a_lost_answer_during_a_rerun_does_no_harm(
    store: WorkflowStore, client: WorkflowClient, wide: int, step: int
) -> None:
    """An adapter that repeats the request finds it done already."""
    faults = Faults()
    error = EntityExistsError("there") if step == 0 else StaleWriteError("changed")
    faults.lose_reply("table.transact", "WorkflowTasks", skip=step, error=error)
    other = WorkflowClient(WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="P"))

    assert (await other.rerun("w", ["last"], new_id="again")).submission.created
    assert (await client.status("again")).completed == wide


async def test_a_purge_that_comes_in_between_leaves_nothing(
    store: WorkflowStore, client: WorkflowClient, wide: int
) -> None:
    faults = Faults()

    async def purge(_: Call) -> None:
        await client.purge("again", terminal_only=False)

    faults.hook("table.transact", "WorkflowTasks", hook=purge, skip=3)
    other = WorkflowClient(WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="P"))

    with pytest.raises(OperationalError, match="was purged while it was being submitted"):
        await other.rerun("w", ["last"], new_id="again")
    assert (await store.table.query("again")).entities == []


async def test_a_small_rerun_is_one_transaction(store: WorkflowStore, client: WorkflowClient) -> None:
    """Rows of tasks are never without their header."""
    await completed(store, client, {})
    faults = Faults()
    other = WorkflowClient(WorkflowStore(FaultyServices(store.services, faults), account="local", prefix="P"))

    await other.rerun("w", ["train"], new_id="again")

    [call] = [call for call in faults.calls if call.kind == "table.transact" and "again" in call.keys[:1]]
    assert {HEADER, "t000000", "t000003"} < set(call.keys)
