"""The invariants, checked at every committed transaction, every send, acknowledgement and start, and at the end.

What is checked, and why it may be:

* **header**: every change of a workflow carries its header; revisions go up by one; lives only by a retry of an ended run;
  a stop stays; nothing changes after ``ended_at`` but by a retry;
* **rows**: attempts never go back and rise by one per dispatch; what is stored as terminal stays as it is (once per life);
  an outcome was really produced by the execution that the row names, with this output;
* **outbox**: a dispatch is stored together with its outbox entry, and the entry stays until the message is sent or unwanted;
* **dispatch**: never while stopped or ended, never before the policy and the condition hold, never beyond
  ``max_parallelism`` or the queue window; a message is sent only for a stored dispatch, and never by a coordinator that
  has stored or seen the halt;
* **start**: only of what was dispatched, and not when the message was received after the halt or after the attempt was over
  (but where a service doubled a message by itself, which nobody can know);
* **acknowledgement**: what a deleted report says is in the table, or rightly ignored; a task's message is deleted only when
  its report is on the way or its attempt is over;
* **answers**: a person is told of a change as their own exactly if it was;
* **end**: the states and the result are those of the reference; where a cancel interfered, every task has ended, what is
  stored was really produced, and the result is ``cancelled``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.ports.queue import Message, OutgoingMessage
from ai4s.jobq.ports.table import Delete, Entity, Operation, Replace
from ai4s.jobq.store.index_rows import read_index
from ai4s.jobq.store.layout import ENDED, HEADER, Names, ended_row, task_number, task_row
from ai4s.jobq.store.records import Header, read_header, read_output
from ai4s.jobq.store.wire import (
    BlobRef,
    CompletionMessage,
    Outcome,
    Report,
    TaskMessage,
    decode_completion,
    decode_queue_message,
)
from tests.model.cloud import Cloud, Rows
from tests.model.reference import TaskResult, derived, expected, policy, racing_answers, result
from tests.model.scenario import QUEUES, Plan, Scenario

TERMINAL = {"completed", "failed", "skipped", "cancelled"}
UNDER_WAY = {"ready", "running"}


@dataclass(frozen=True, slots=True)
class Row:
    """A task row as stored."""

    state: str
    life: int
    attempt: int
    facts: dict[str, Any]
    entity: Entity

    def of_life(self, life: int) -> str:
        """The state that counts in this life."""
        return self.state if self.life == life or self.state == "completed" else "pending"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One attempt that was stored as ready: what its message stands for, and which script it follows."""

    workflow_id: str
    run: str
    life: int
    number: int
    attempt: int
    charged: int


@dataclass(slots=True)
class Seen:
    """All that was seen of one workflow."""

    plan: Plan
    definition: WorkflowDefinition
    header: Header | None = None
    rows: dict[int, Row] = field(default_factory=dict)
    kept: dict[str, int | None] = field(default_factory=dict)
    halted_at: dict[int, float] = field(default_factory=dict)
    halted_by: dict[int, str] = field(default_factory=dict)
    begun_by: dict[int, str] = field(default_factory=dict)
    stop_known_to: set[tuple[int, str]] = field(default_factory=set)
    over_at: dict[tuple[int, int], float] = field(default_factory=dict)
    reported: set[tuple[int, int]] = field(default_factory=set)
    produced: dict[tuple[int, int, str], str] = field(default_factory=dict)
    lives: int = 0
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [task.name for task in self.definition.tasks]

    @property
    def ended(self) -> bool:
        return self.header is not None and self.header.ended_at is not None


class InvariantWatch:
    """Watches one schedule; ``broken`` is called with the first thing that is wrong, and with all that follow."""

    def __init__(self, scenario: Scenario, cloud: Cloud, names: Names, broken: Callable[[str], None]) -> None:
        self.workflows = {plan.workflow_id: Seen(plan, plan.parsed) for plan in scenario.plans}
        self.dispatched: dict[str, Dispatch] = {}
        self.changed = asyncio.Event()
        self._scenario = scenario
        self._cloud = cloud
        self._names = names
        self._broken = broken
        self._received: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._overtaken: set[str] = set()
        self._sent: set[str] = set()

    def fail(self, text: str) -> None:
        self._broken(text)

    # -- tables

    def committed(self, table: str, partition: str, before: Rows, operations: Sequence[Operation], actor: str) -> None:
        """A transaction has just been applied."""
        if table != self._names.tasks_table:
            if partition == ENDED:
                self._note_overtaken(operations)
            return
        seen = self.workflows[partition]
        if operations[-1].row != HEADER:
            if any(not operation.row.startswith("d:") for operation in operations):
                self.fail(f"{actor} changed rows of {partition} without its header")
            return
        entity = self._cloud.get(table, partition, HEADER)
        assert entity is not None
        header, old = read_header(entity), seen.header
        self._check_header(seen, old, header, operations[-1], actor)
        seen.header = header
        dispatches = [
            number for operation in operations[:-1] if (number := self._row(seen, partition, operation.row)) is not None
        ]
        self._check_room(seen, header, dispatches)
        self._check_outbox(seen, old, header, dispatches)
        if header.ended_at is not None and (old is None or old.ended_at is None):
            self._check_end(seen, header)
        self.changed.set()

    def _note_overtaken(self, operations: Sequence[Operation]) -> None:
        """Ended rows that a retry had overtaken when they were written.

        Who writes one takes it back, unless it dies or stops leading in between. Readers take the newest row of a workflow.
        """
        for operation in operations:
            if not isinstance(operation, Delete):
                header = self.workflows[str(operation.values["workflow_id"])].header
                dies = self._cloud.is_late or self._scenario.coordinators > 1
                if dies and header is not None and header.life > int(operation.values["life"]):
                    self._overtaken.add(operation.row)

    def _check_header(self, seen: Seen, old: Header | None, new: Header, operation: Operation, actor: str) -> None:
        where = f"{new.workflow_id} rev {new.rev} by {actor}"
        if new.stop != "none":
            seen.halted_at.setdefault(new.life, asyncio.get_running_loop().time())
            seen.halted_by.setdefault(new.life, self._author(actor))
            seen.stop_known_to.add((new.life, actor))
        if old is None:
            seen.lives = 1
            return
        if not isinstance(operation, Replace):
            self.fail(f"{where}: the header was not replaced conditionally")
        if new.rev != old.rev + 1:
            self.fail(f"{where}: an update was lost, the revision before was {old.rev}")
        if new.run != old.run:
            self.fail(f"{where}: the run changed")
        if new.life != old.life:
            seen.begun_by[new.life] = self._author(actor)
            self._begin_life(seen, old, new, where)
        elif old.ended_at is not None:
            self.fail(f"{where}: changed after the end")
        elif old.stop != "none" and (new.stop == "none" or new.state != "cancelled"):
            self.fail(f"{where}: the stop was undone")

    def _author(self, actor: str) -> str:
        """Whose change it is; nobody's when who asked for it was told that it is unknown whether it happened."""
        return "" if self._cloud.is_late else actor

    def _begin_life(self, seen: Seen, old: Header, new: Header, where: str) -> None:
        if new.life != old.life + 1 or old.ended_at is None or new.ended_at is not None or new.stop != "none":
            self.fail(f"{where}: a new life that no retry of an ended run began")
        if new.outbox:
            self.fail(f"{where}: a retry kept messages of the life before")
        seen.kept = {
            seen.names[number]: self._value(row) for number, row in seen.rows.items() if row.state == "completed"
        }
        seen.lives = new.life

    def _row(self, seen: Seen, workflow_id: str, key: str) -> int | None:
        """Look at a row that was written; its number if that was a dispatch."""
        header = seen.header
        assert header is not None
        if not key.startswith("t"):
            return None
        entity = self._cloud.get(self._names.tasks_table, workflow_id, key)
        assert entity is not None
        number, new = task_number(key), _row(entity)
        old = seen.rows.get(number)
        where = f"{workflow_id}/{seen.names[number]} life {new.life} attempt {new.attempt} {new.state}"
        if new.life != header.life:
            self.fail(f"{where}: written in life {header.life}")
        is_dispatch = new.state == "ready" and (old is None or old.attempt != new.attempt)
        if new.state == "ready" and not is_dispatch:
            self.fail(f"{where}: dispatched twice")
        attempt = old.attempt if old is not None else 0
        if new.attempt != attempt + is_dispatch:
            self.fail(f"{where}: the attempt before was {attempt}")
        if old is not None and (old.of_life(header.life) in TERMINAL):
            self.fail(f"{where}: it had ended as {old.state} in life {old.life}")
        seen.rows[number] = new
        if old is not None and old.state in UNDER_WAY and (new.attempt > old.attempt or new.state not in UNDER_WAY):
            seen.over_at[number, old.attempt] = asyncio.get_running_loop().time()
        if new.state in TERMINAL:
            self._check_outcome(seen, number, new, where)
        if is_dispatch:
            self._check_dispatch(seen, number, new, where)
        return number if is_dispatch else None

    def _check_outcome(self, seen: Seen, number: int, row: Row, where: str) -> None:
        """What is stored as an outcome must have happened."""
        header, task = seen.header, seen.definition.tasks[number]
        assert header is not None
        produced = seen.produced.get((number, row.attempt, row.facts.get("execution", "")))
        cause = row.facts.get("cause")
        if row.state == "completed":
            script = seen.plan.outcome(number, life=row.life, charged=row.facts.get("charged", 0))
            if produced != "succeeded" or self._value(row) != script.value:
                self.fail(f"{where}: its execution {produced}, its output {self._value(row)}, scripted {script}")
        elif row.state == "cancelled" and header.stop == "none":
            self.fail(f"{where}: nobody cancelled")
        elif row.state == "failed" and cause == "condition":
            if task.condition is None:
                self.fail(f"{where}: it has no condition")
        elif row.state == "failed" and produced != cause:
            self.fail(f"{where}: stored as {cause}, its execution {produced}")
        elif row.state == "failed" and header.stop == "none" and row.facts.get("charged", 0) <= task.num_retries:
            self.fail(f"{where}: failed with {row.facts.get('charged', 0)} of {task.num_retries + 1} attempts used")

    def _check_dispatch(self, seen: Seen, number: int, row: Row, where: str) -> None:
        header, task = seen.header, seen.definition.tasks[number]
        assert header is not None
        self.dispatched[_message_id(header.run, number, row.attempt)] = Dispatch(
            workflow_id=header.workflow_id,
            run=header.run,
            life=header.life,
            number=number,
            attempt=row.attempt,
            charged=row.facts.get("charged", 0),
        )
        if header.stop != "none":
            self.fail(f"{where}: dispatched after the stop")
        states = derived(seen.definition, self._stored(seen))
        states[task.name] = "pending"
        if policy(task, states) != "run":
            self.fail(f"{where}: dispatched though its policy does not hold: {states}")
        if task.condition is not None and row.facts.get("condition") is not True:
            self.fail(f"{where}: dispatched though its condition was not true")

    def _check_room(self, seen: Seen, header: Header, dispatches: Sequence[int]) -> None:
        """After a commit that dispatched: are there more under way than allowed?"""
        if not dispatches:
            return
        definition, stored = seen.definition, self._stored(seen)
        under_way = sum(state in UNDER_WAY for state in stored.values())
        if definition.max_parallelism is not None and under_way > definition.max_parallelism:
            self.fail(f"{header.workflow_id} rev {header.rev}: {under_way} tasks under way at once")
        queues = Counter(definition.queue_of(task) for task in definition.tasks if stored[task.name] == "ready")
        for number in dispatches:
            queue = definition.queue_of(definition.tasks[number])
            if queues[queue] > self._scenario.window:
                self.fail(f"{header.workflow_id} rev {header.rev}: {queues[queue]} tasks ready on {queue}")

    def _check_outbox(self, seen: Seen, old: Header | None, new: Header, dispatches: Sequence[int]) -> None:
        listed = {(entry.row, entry.attempt) for entry in new.outbox}
        for number in dispatches:
            if (task_row(number), seen.rows[number].attempt) not in listed:
                self.fail(
                    f"{new.workflow_id} rev {new.rev}: {seen.names[number]} was dispatched, but not into the outbox"
                )
        gone = {(entry.row, entry.attempt) for entry in old.outbox} - listed if old is not None else set()
        for key, attempt in gone:
            row = seen.rows[task_number(key)]
            wanted = row.life == new.life and row.attempt == attempt and row.state == "ready" and new.stop == "none"
            if wanted and _message_id(new.run, task_number(key), attempt) not in self._sent:
                self.fail(f"{new.workflow_id} rev {new.rev}: {key} attempt {attempt} left the outbox unsent")

    def _stored(self, seen: Seen) -> dict[str, str]:
        """The stored states of this life, by name; ``pending`` where there is none."""
        assert seen.header is not None
        life = seen.header.life
        return {
            name: seen.rows[number].of_life(life) if number in seen.rows else "pending"
            for number, name in enumerate(seen.names)
        }

    # -- the end of a life

    def _check_end(self, seen: Seen, header: Header) -> None:
        definition, stored = seen.definition, self._stored(seen)
        where = f"{header.workflow_id} life {header.life} ended as {header.state}"
        if header.outbox:
            self.fail(f"{where}: with unsent messages {header.outbox}")
        if header.stop != "none":
            states = {name: "cancelled" if state in ("pending", "ready") else state for name, state in stored.items()}
            outcome = "cancelled"
        else:
            states = derived(definition, stored)
            outcome = result(definition, states)
            self._compare(seen, states, where)
        if unfinished := {name: state for name, state in states.items() if state in ("pending", "ready", "running")}:
            self.fail(f"{where}: with {unfinished}")
        if header.state != outcome:
            self.fail(f"{where}: the states say {outcome}: {states}")
        if dict(Counter(states.values())) != {str(state): count for state, count in header.counts.items()}:
            self.fail(f"{where}: counted {dict(header.counts)} of {states}")

    def _compare(self, seen: Seen, states: Mapping[str, str], where: str) -> None:
        """With the reference: states, and outputs."""
        definition = seen.definition
        raced = {
            task.name: _answered(seen.rows[number])
            for number, task in enumerate(definition.tasks)
            if task.condition is not None
            and number in seen.rows
            and seen.rows[number].life == seen.lives
            and states[task.name] != "upstream_failed"
        }
        end = expected(definition, lambda name: self._script(seen, name), seen.kept, raced)
        if end.states != dict(states):
            wrong = {name: (state, end.states[name]) for name, state in states.items() if end.states[name] != state}
            self.fail(f"{where}: (is, should be): {wrong}")
        for name, answer in raced.items():
            task = definition.tasks[seen.names.index(name)]
            if answer not in racing_answers(task, end.states, end.values):
                self.fail(f"{where}: the condition of {name} was answered {answer}")

    def _script(self, seen: Seen, name: str) -> TaskResult:
        """How a task ends once it is tried as often as it may."""
        definition, number = seen.definition, seen.names.index(name)
        task = definition.tasks[number]
        for charged in range(task.num_retries + 1):
            outcome = seen.plan.outcome(number, life=seen.lives, charged=charged)
            timeout_s = definition.timeout_of(task)
            if outcome.exit_code == 0 and (timeout_s is None or outcome.seconds <= timeout_s):
                return TaskResult(succeeds=True, value=outcome.value)
        return TaskResult(succeeds=False)

    def _value(self, row: Row) -> int | None:
        """The ``v`` of the output a row holds."""
        output = read_output(row.entity) if row.facts.get("output") else None
        if isinstance(output, BlobRef):
            output = self._cloud.blobs[output.blob].decode()
        return None if output is None else int(json.loads(output)["v"])

    # -- queues

    def sending(self, queue: str, messages: Sequence[OutgoingMessage], actor: str) -> None:
        """An actor begins to send."""
        if queue not in QUEUES:
            return
        for outgoing in messages:
            message = decode_queue_message(outgoing.body)
            assert isinstance(message, TaskMessage)
            if message.message_id not in self.dispatched:
                self.fail(
                    f"{actor} sends {message.task_name} attempt {message.attempt}, which is not stored as dispatched"
                )
            if (message.life, actor) in self.workflows[message.workflow_id].stop_known_to:
                self.fail(f"{actor} sends {message.task_name} though it has stored the halt")

    def sent(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Messages are on a queue."""
        for outgoing in messages:
            if queue in QUEUES:
                self._sent.add(outgoing.message_id)
                continue
            completion = decode_completion(outgoing.body)
            reported = self.workflows[completion.workflow_id].reported
            reported.update(
                (task_number(report.row), report.attempt)
                for report in completion.reports
                if report.outcome is not Outcome.STARTED
            )

    def received(self, queue: str, message: Message, actor: str) -> None:
        """A message was handed out."""
        if queue in QUEUES:
            task = decode_queue_message(message.body)
            assert isinstance(task, TaskMessage)
            self._received[actor, task.message_id].append(asyncio.get_running_loop().time())

    def deleted(self, queue: str, message: Message, actor: str) -> None:
        """A message was settled; if it was a completion, the table must hold what it says."""
        if queue == self._names.completion_queue:
            completion = decode_completion(message.body)
            for report in completion.reports:
                if problem := self._unreflected(completion, report):
                    self.fail(
                        f"{actor} acknowledged {report.outcome} of {completion.workflow_id}/{report.row}: {problem}"
                    )
        else:
            task = decode_queue_message(message.body)
            assert isinstance(task, TaskMessage)
            if not self._may_go(task):
                self.fail(f"{actor} deleted {task.workflow_id}/{task.row} attempt {task.attempt} unreported")
        self.changed.set()

    def _may_go(self, task: TaskMessage) -> bool:
        """Whether nothing can be lost with a task's message."""
        seen = self.workflows[task.workflow_id]
        number, header = task_number(task.row), seen.header
        assert header is not None
        past = header.life > task.life or header.ended_at is not None
        return past or (number, task.attempt) in seen.reported or (number, task.attempt) in seen.over_at

    def _unreflected(self, completion: CompletionMessage, report: Report) -> str:
        """Why a report should not have been acknowledged yet, or nothing."""
        seen = self.workflows[completion.workflow_id]
        header = seen.header
        if header is None or header.run != completion.run or header.ended_at is not None or header.life > report.life:
            return ""
        row = seen.rows.get(task_number(report.row))
        if row is None or row.attempt < report.attempt or header.life < report.life:
            return "the table does not know this attempt"
        if row.life > report.life or row.attempt > report.attempt or row.state not in UNDER_WAY:
            return ""
        if report.outcome is Outcome.STARTED:
            return "" if row.state == "running" else "the table says ready"
        return f"the table says {row.state}"

    def set_aside(self, queue: str, message: Message, reason: str) -> None:
        """A message was dead-lettered, though all messages are sound."""
        self.fail(f"a message of {queue} was set aside: {reason}")

    # -- executions

    def started(self, message_id: str, actor: str) -> Dispatch | None:
        """A worker starts a command; what it stands for."""
        dispatch = self.dispatched.get(message_id)
        if dispatch is None:
            self.fail(f"{actor} started something that was never dispatched")
            return None
        halted_at = self.workflows[dispatch.workflow_id].halted_at.get(dispatch.life)
        received = self._received[actor, message_id]
        if halted_at is not None and all(time > halted_at for time in received):
            self.fail(f"{actor} started {dispatch} received after the halt at {halted_at:.3f}: {received}")
        over_at = self.workflows[dispatch.workflow_id].over_at.get((dispatch.number, dispatch.attempt))
        if over_at is not None and not self._cloud.is_doubled and all(time > over_at for time in received):
            self.fail(f"{actor} started {dispatch} received after it was over at {over_at:.3f}: {received}")
        return dispatch

    def finished(self, dispatch: Dispatch, execution: str, what: str) -> None:
        """A command ended: ``succeeded``, or the cause of its failure."""
        self.workflows[dispatch.workflow_id].produced[dispatch.number, dispatch.attempt, execution] = what

    # -- quiet

    def unsettled(self) -> list[str]:
        """What keeps the cloud from being at rest: runs that go on, messages left, an index that disagrees."""
        found = []
        for workflow_id, seen in self.workflows.items():
            if seen.header is not None and not seen.ended:
                states = {name: state for name, state in self._stored(seen).items() if state not in TERMINAL}
                found.append(f"{workflow_id} has not ended: {seen.header.state}, {states}, outbox {seen.header.outbox}")
        for queue, messages in self._cloud.queues.items():
            if messages:
                found.append(f"{len(messages)} messages on {queue}")
        return found + self._index_problems()

    def _index_problems(self) -> list[str]:
        table = self._cloud.tables[self._names.index_table]
        found = [f"{row} is in the index as active" for row in table["active"]]
        ended = {row: read_index(entity) for row, entity in table[ENDED].items()}
        wanted = {
            ended_row(seen.header.ended_at, workflow_id): seen.header
            for workflow_id, seen in self.workflows.items()
            if seen.header is not None and seen.header.ended_at is not None
        }
        found += [f"{row} is not in the index as ended" for row in wanted if row not in ended]
        for row, record in ended.items():
            header = wanted.get(row)
            if header is None and row not in self._overtaken:
                found.append(f"{row} is in the index as ended")
            elif header is None:
                continue
            elif (header.run, header.life, header.state) != (record.run, record.life, record.state):
                found.append(f"{row} is in the index as {record.state} of life {record.life}")
        return found


def _answered(row: Row) -> str:
    """What became of a task's condition."""
    if row.facts.get("cause") == "condition":
        return "fail"
    return "run" if row.facts.get("condition") else "skip"


def _row(entity: Entity) -> Row:
    values = entity.values
    return Row(
        state=str(values["state"]),
        life=int(values["life"]),
        attempt=int(values["attempt"]),
        facts=json.loads(str(values["facts"])),
        entity=entity,
    )


def _message_id(run: str, number: int, attempt: int) -> str:
    message = TaskMessage(
        store="", workflow_id="", run=run, life=1, row=task_row(number), task_name="", attempt=attempt
    )
    return message.message_id
