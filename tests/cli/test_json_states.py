"""What is printed with ``--json`` while workflows live: every form that the schemas promise is seen, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from ai4s.jobq.engine.events import Event, OutputsResolved
from ai4s.jobq.engine.states import TaskState, WorkflowState
from ai4s.jobq.store.wire import BlobRef
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program, flow, task
from tests.cli.operations import in_store
from tests.support import acting
from tests.support.schemas import published

RICH = flow(
    task("prepare", timeout_s=60),
    task("train", "true ${{ matrix.lr }}", matrix={"lr": [0.1, 0.2]}, depends_on=["prepare"], num_retries=1),
    task("flaky", depends_on=["prepare"], retry={"max": 2, "delay_s": 60}),
    task("later", depends_on=["prepare"], delay_s=60),
    {"name": "approval", "wait_for": {"signal": "go", "timeout_s": 3600}, "depends_on": ["prepare"]},
    {"name": "news", "wait_for": {"signal": "news"}},
    task("never", depends_on=["prepare"], condition="inputs.prepare.go"),
    task("optional", "true ${{ params.n }}", allow_failure=True),
    task("repair", depends_on=["optional"], dep_policy="on_failure"),
    task("report", depends_on=["train", "flaky"], dep_policy=2),
    name="rich",
    params={"n": 1},
    labels={"team": "ml"},
    priority=5,
    on_success={"cmd": "true"},
)
UNDOABLE = flow(
    task("a", undo={"cmd": "undo a"}),
    task("b", depends_on=["a"], undo={"cmd": "undo b"}),
    task("c", depends_on=["b"]),
    task("d", depends_on=["c"]),
    on_failure={"cmd": "true"},
    timeout_s=3600,
)
LATER = timedelta(hours=2)


class Watched:
    """A workflow that is looked at with every reader after each thing that happens to it."""

    def __init__(self, program: Program, workflow_id: str) -> None:
        self.program = program
        self.workflow_id = workflow_id
        self.seen: list[Any] = []  # whole statuses
        self.look()

    def look(self) -> None:
        """Ask every reader; ``Program`` holds the answers against the schemas."""
        workflow, workflow_id = self.program.workflow, self.workflow_id
        status = workflow("status", workflow_id, "--json").json
        self.seen += [status, workflow("status", workflow_id, "--by-layer", "--json").json]
        task = list(status["tasks"])[len(self.seen) // 2 % len(status["tasks"])]  # each in its turn
        for reader in (("list",), ("history", workflow_id), ("explain", workflow_id, "--task", task)):
            assert workflow(*reader, "--json").code == 0

    def act(self, *words: str) -> Any:
        """A command that changes the workflow; what it printed."""
        answer = self.program.workflow(words[0], self.workflow_id, *words[1:], "--json")
        assert answer.code == 0, answer.err
        self.look()
        return answer.json

    def play(self, *events: Event, now: datetime | None = None) -> None:
        """Let a coordinator have its turn."""
        self._happen(lambda store: acting.play(store, self.workflow_id, events, now=now))

    def started(self, job: str) -> None:
        self._happen(lambda store: acting.started(store, self.workflow_id, self.number(job)))

    def succeeded(self, job: str, output: str | BlobRef | None = None) -> None:
        self._happen(lambda store: acting.succeeded(store, self.workflow_id, self.number(job), output))

    def all_succeeded(self, *jobs: str) -> None:
        self._happen(lambda store: acting.all_succeeded(store, self.workflow_id, [*map(self.number, jobs)]))

    def failed(self, job: str) -> None:
        self._happen(lambda store: acting.failed(store, self.workflow_id, self.number(job)))

    def number(self, job: str) -> int:
        """The number of ``task``, ``undo:task``, or ``hook``, of which there is one."""
        tasks = list(self.seen[0]["tasks"])
        if job == "hook":
            return 2 * len(tasks)
        return tasks.index(job.removeprefix("undo:")) + (len(tasks) if job.startswith("undo:") else 0)

    def _happen(self, act: Callable[[WorkflowStore], Awaitable[None]]) -> None:
        in_store(self.program, act)
        self.look()


def test_the_json_of_workflows_has_every_promised_form_and_no_other(program: Program) -> None:
    rich = Watched(program, program.submit(RICH, "--id", "rich"))
    complete(rich)
    rerun = Watched(program, rich.act("rerun", "--from", "train", "--id", "again")["workflow_id"])
    undone = Watched(program, program.submit(UNDOABLE, "--id", "undone"))
    undo(undone)
    late = Watched(program, program.submit(UNDOABLE, "--id", "late"))
    late.play()
    late.play(now=acting.NOW() + LATER)
    late.play(now=acting.NOW() + 2 * LATER)
    for reader in ("tasks", "summary"):
        assert program.workflow(reader, "--json").code == 0
    documents = [document for watched in (rich, rerun, undone, late) for document in watched.seen]
    tasks = [task for document in documents for task in document.get("tasks", {}).values()]

    assert unseen(published()["status"], documents) == []
    assert {document["status"] for document in documents} == {str(state) for state in WorkflowState}
    assert {task["status"] for task in tasks} == {str(state) for state in TaskState}


def complete(rich: Watched) -> None:
    """The workflow completes, after all that can delay it."""
    rich.play()
    rich.started("prepare")
    rich.succeeded("prepare", '{"go": false}')
    rich.play(OutputsResolved(number=rich.number("never"), values={"prepare": {"go": False}}))
    rich.failed("flaky")
    rich.act("pause")
    rich.act("pause")
    rich.act("resume")
    rich.act("signal", "go", "--data", '{"by": "me"}')
    rich.act("signal", "go")
    rich.act("signal", "news")
    rich.play()
    rich.failed("optional")
    rich.play(now=acting.NOW() + LATER)
    rich.succeeded("train[lr=0.1]", BlobRef(blob="rich/output", size_bytes=40_000, md5="0" * 32))
    rich.all_succeeded("train[lr=0.2]", "flaky", "later", "repair")
    rich.succeeded("report")
    rich.started("hook")
    rich.succeeded("hook")


def undo(undone: Watched) -> None:
    """The workflow fails and is undone, in vain; then once more, and is cancelled."""
    undone.play()
    undone.succeeded("a")
    undone.succeeded("b")
    undone.failed("c")
    undone.started("undo:b")
    undone.failed("undo:b")
    undone.succeeded("undo:a")
    undone.failed("hook")
    undone.act("retry")
    undone.play()
    undone.succeeded("a")
    undone.act("cancel")
    undone.act("cancel")
    undone.play(now=acting.NOW() + LATER)
    undone.succeeded("undo:a")
    undone.play(now=acting.NOW() + LATER)


def unseen(schema: Any, values: Sequence[Any]) -> list[str]:
    """What the schema allows and these values never have: a field without or with a value."""
    absent: dict[str, set[bool]] = {}
    for path, is_absent in _optional(schema, schema, values, ""):
        absent.setdefault(path, set()).add(is_absent)
    return [
        f"{path} is {'never' if found == {False} else 'always'} absent"
        for path, found in absent.items()
        if len(found) == 1
    ]


def _optional(schema: Any, part: Any, values: Sequence[Any], path: str) -> Iterator[tuple[str, bool]]:
    """Every place of these values that may be without a value, and whether it is."""
    if "$ref" in part:
        path = part["$ref"]
        part = schema["$defs"][path.removeprefix("#/$defs/")]
    if part.get("anyOf", [None])[-1] == {"type": "null"} or isinstance(part.get("type"), list):
        yield from ((path, value is None) for value in values)
        values = [value for value in values if value is not None]
        part = part.get("anyOf", [part])[0]
        if "$ref" in part:
            yield from _optional(schema, part, values, path)
            return
    for name, field in part.get("properties", {}).items():
        if name not in part["required"]:
            yield from ((f"{path}/{name}", name not in value) for value in values)
        yield from _optional(schema, field, [value[name] for value in values if name in value], f"{path}/{name}")
    if isinstance(part.get("additionalProperties"), dict):
        yield from _optional(
            schema, part["additionalProperties"], [x for value in values for x in value.values()], path
        )
    if "items" in part:
        yield from _optional(schema, part["items"], [x for value in values for x in value], path)
