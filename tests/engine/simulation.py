"""A run played against a plan: queues, workers that repeat themselves, a coordinator that forgets, and a watchful eye.

Every decision is stored as the store would, and then checked against what must hold after any decision whatever
(``check``). What comes out at the end is for the test to compare with the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypedDict

from ai4s.jobq.engine.decide import can_retry, decide
from ai4s.jobq.engine.events import (
    CancelRequested,
    Cause,
    Decision,
    Event,
    OutputsResolved,
    ResolveOutputs,
    RetryRequested,
    Room,
    TaskFailed,
    TaskStarted,
    TaskSucceeded,
)
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun, deadline_of
from ai4s.jobq.engine.states import JobKind, TaskState, WorkflowState
from tests.engine.checks import Before, check
from tests.engine.plans import DATA, SIGNALS, Output, Plan, Question, Tape
from tests.engine.scene import NOW, RUN, plenty
from tests.engine.stored import StoredRun

MOST_LOSSES = 3  # a schedule makes executions vanish no more often, lest the budget for losses decides the end
MOST_ROUNDS = 200  # far more than all attempts of all tasks


@dataclass(slots=True, eq=False)
class Message:
    """A task message in the hands of workers: which attempt, the how-manieth of its life, who has begun it."""

    number: int
    life: int
    attempt: int
    index: int
    executions: list[str] = field(default_factory=list)


class _Attempt(TypedDict):
    """Which attempt an event is of."""

    run: str
    life: int
    number: int
    attempt: int


class Simulation:
    """One run of a plan, and everything around it that can go wrong."""

    def __init__(self, plan: Plan, tape: Tape) -> None:
        self.plan = plan
        self.tape = tape
        self.now = NOW
        deadline = deadline_of(plan.definition, NOW)
        self.run = WorkflowRun(Graph(plan.definition), run=RUN, deadline=deadline)
        self.stored = StoredRun(run=RUN, deadline=deadline)
        self.hand: list[Message] = []
        self.said: list[Event] = []
        self.outputs: dict[int, Output] = {}
        self.attempts_of_life: Counter[int] = Counter()
        self.cancels = False
        self._names = 0
        self._windows = dict.fromkeys(self.run.graph.queue_names, 3)

    # -- whole lives

    def play_life(self) -> None:
        """Play what the tape says, then answer whatever is still open, until the run has ended."""
        self.decide()
        while self.tape.has_more and self.run.ended_at is None:
            self._act()
        if self.run.ended_at is None:
            self._drain()

    def retry(self) -> bool:
        """Begin another life, if there is anything to retry."""
        if not can_retry(self.run):
            return False
        self.hand = [message for message in self.hand if self.tape.choose(2)]  # the rest starts late, or never
        self._windows = dict.fromkeys(self._windows, 3 * self.tape.choose(2))
        self.attempts_of_life.clear()
        self.decide(RetryRequested())
        return True

    def repeat_everything(self) -> None:
        """Let whoever was not heard of yet begin and end, then say all that was ever said once more, last things first."""
        for message in list(self.hand):
            self.decide(self._say(self._start_of(message)))
            self.decide(self._say(self._outcome(message)))
        for event in reversed(self.said):
            self.decide(event)

    def kept(self) -> dict[int, Output]:
        """What a retry would keep, with its outputs: forward tasks that completed, and no undo job of which has begun."""
        size = len(self.run.tasks)
        return {
            task.number: self.outputs[task.number]
            for task in self.run.tasks
            if task.stored is TaskState.COMPLETED
            and self.run.graph.kind(task.number) is JobKind.FORWARD
            and not self.attempts_of_life[size + task.number]
        }

    def _drain(self) -> None:
        """Bring the run to its end: all signals, no pause, an answer to every message, and the time to wake."""
        self._windows = dict.fromkeys(self._windows, 1_000)
        self.stored.paused = False
        self.stored.signals.update(dict.fromkeys(SIGNALS, DATA))
        self._reload()
        decision = self.decide()
        for _ in range(MOST_ROUNDS):
            if self.run.ended_at is not None:
                return
            awaited = [message for message in self.hand if self._is_current(message) and self._is_awaited(message)]
            assert awaited or decision.wake_at is not None, "nothing is under way, and the run has not ended"
            self.now += timedelta(seconds=1)
            if not awaited and decision.wake_at is not None:
                self.now = max(self.now, decision.wake_at)
            decision = self.decide(*(self._say(self._outcome(message)) for message in awaited[:1]))
        raise AssertionError(f"the run has not ended after {MOST_ROUNDS} reports")

    def _is_awaited(self, message: Message) -> bool:
        """Whether the run waits for this report: a message that was cancelled on its queue may never be heard of."""
        job = self.run.at(message.number)
        return job is not None and job.state in (TaskState.READY, TaskState.RUNNING)

    # -- one step

    def _act(self) -> None:
        actions: list[Callable[[], Sequence[Event]]] = [
            self._finish_one,
            self._finish_one,
            self._finish_some_twice,
            self._start,
            self._start,
            self._repeat,
            self._talk_nonsense,
            self._reload,
            self._change_room,
            self._pause_or_resume,
            self._signal,
            self._cancel,
            self._give_up_undoing,
        ]
        self.now += timedelta(seconds=self.tape.choose(3))
        self.decide(*actions[self.tape.choose(len(actions))]())

    def decide(self, *events: Event) -> Decision:
        """One decision with all the answers it asks for, stored and checked."""
        before = Before.of(self.run)
        room = self._room()
        granted = Room(queues=dict(room.queues), dispatches=room.dispatches)
        decision = decide(self.run, events, now=self.now, room=room)
        self._keep_outputs(decision)
        while decision.resolves:
            asked = decision.resolves[self.tape.choose(len(decision.resolves)) :]
            decide(self.run, [self._answer(one) for one in asked], now=self.now, room=room, onto=decision)
            self._keep_outputs(decision)
        self._carry_out(decision)
        check(before, self.run, decision, now=self.now, granted=granted, left=room, stored=self.stored)
        return decision

    def _carry_out(self, decision: Decision) -> None:
        self.stored.commit(self.run, decision)
        for dispatch in decision.dispatches:
            index = self.attempts_of_life[dispatch.number]
            self.attempts_of_life[dispatch.number] += 1
            self.hand.append(Message(dispatch.number, self.run.life, dispatch.attempt, index))

    def _keep_outputs(self, decision: Decision) -> None:
        for number, output in decision.outputs.items():
            assert isinstance(output, Output)
            self.outputs[number] = output

    def _room(self) -> Room:
        ready = self.run.ready_counts()
        queues = {queue: window - ready.get(queue, 0) for queue, window in self._windows.items()}
        return Room(queues=queues, dispatches=plenty(self.run.graph).dispatches if self.tape.choose(4) == 0 else 2)

    def _answer(self, asked: ResolveOutputs) -> OutputsResolved:
        task = self.plan.definition.tasks[asked.number]
        reads = self.plan.questions[asked.number] is Question.READS
        unreadable = reads and any(not self.outputs[parent].readable for parent in asked.parents)
        values = {f"t{parent}": {"go": self.outputs[parent].go} for parent in asked.parents}
        return OutputsResolved(
            number=asked.number,
            values={name: values.get(name) for name in task.depends_on},
            error="it cannot be read" if unreadable else "",
        )

    # -- what can happen

    def _finish_one(self) -> list[Event]:
        return [self._say(self._outcome(self._pick()))] if self.hand else []

    def _finish_some_twice(self) -> list[Event]:
        """Several outcomes in one decision, each said twice, in either order."""
        some = {id(message): message for message in (self._pick() for _ in range(3))} if self.hand else {}
        events = [self._say(self._outcome(message)) for message in some.values()]
        return [*events, *events] if self.tape.choose(2) else [*events, *reversed(events)]

    def _start(self) -> list[Event]:
        if not self.hand:
            return []
        message = self._pick()
        if message.executions and self._losses(message.number) >= MOST_LOSSES:
            return []
        return [self._say(self._start_of(message))]

    def _repeat(self) -> list[Event]:
        """Something that was said before: a copy, or a message that took its time."""
        events = [event for event in self.said if not (isinstance(event, TaskStarted) and self._is_doubtful(event))]
        return [events[self.tape.choose(len(events))]] if events else []

    def _is_doubtful(self, event: TaskStarted) -> bool:
        """Whether the repetition would be taken for one more execution that vanished, and there were enough of them."""
        job = self.run.at(event.number)
        return job is not None and job.execution != event.execution and job.losses >= MOST_LOSSES

    def _losses(self, number: int) -> int:
        job = self.run.at(number)
        return 0 if job is None else job.losses

    def _talk_nonsense(self) -> list[Event]:
        """A report of a run, life, attempt or task there is not."""
        count = len(self.run.tasks)
        number = self.tape.choose(count)
        of_now = _Attempt(run=RUN, life=self.run.life, number=number, attempt=self.run.tasks[number].attempt)
        real: TaskSucceeded | TaskFailed = TaskSucceeded(
            output=Output(go=True, readable=True), execution="nobody", **of_now
        )
        if self.tape.choose(2):
            real = TaskFailed(cause=Cause.EXIT, execution="nobody", **of_now)
        wrong: list[Event] = [
            replace(real, run="other"),
            replace(real, life=real.life - 1),
            replace(real, life=real.life + 1),
            replace(real, attempt=real.attempt - 1),
            replace(real, attempt=real.attempt + 1),
            replace(real, number=2 * count + number + len(self.run.graph.hooks)),
            replace(real, number=-1 - number),
        ]
        return [wrong[self.tape.choose(len(wrong))]]

    def _reload(self) -> list[Event]:
        self.run = self.stored.load(self.run.graph)
        return []

    def _change_room(self) -> list[Event]:
        queue = self.run.graph.queue_names[self.tape.choose(len(self._windows))]
        self._windows[queue] = self.tape.choose(5)
        return []

    def _pause_or_resume(self) -> list[Event]:
        self.stored.paused = not self.stored.paused and self.run.ended_at is None
        return self._reload()

    def _signal(self) -> list[Event]:
        self.stored.signals[SIGNALS[self.tape.choose(len(SIGNALS))]] = DATA
        return self._reload()

    def _cancel(self) -> list[Event]:
        return [CancelRequested()] if self.cancels else []

    def _give_up_undoing(self) -> list[Event]:
        if self.cancels and self.run.state is WorkflowState.COMPENSATING:
            self.stored.abandoned = True
        return self._reload()

    # -- workers

    def _pick(self) -> Message:
        return self.hand[self.tape.choose(len(self.hand))]

    def _is_current(self, message: Message) -> bool:
        job = self.run.at(message.number)
        return job is not None and (message.life, message.attempt) == (self.run.life, job.attempt)

    def _start_of(self, message: Message) -> TaskStarted:
        execution = self._new_execution(message)
        return TaskStarted(execution=execution, worker="w", at=self.now, **self._attempt(message))

    def _outcome(self, message: Message) -> TaskSucceeded | TaskFailed:
        """The scripted end of an attempt, said by one of those who have it in hand."""
        if message in self.hand:
            self.hand.remove(message)
        script = self.plan.script(message.life - 1, message.number)
        cause = script.ending(message.index)
        if self.run.stop.ends(self.run.graph.kind(message.number)) and self.tape.choose(2):
            cause = Cause.CANCELLED
        execution = self._speaker(message, cause)
        if cause is None:
            return TaskSucceeded(output=script.output, execution=execution, at=self.now, **self._attempt(message))
        return TaskFailed(cause=cause, exit_code=1, execution=execution, at=self.now, **self._attempt(message))

    def _speaker(self, message: Message, cause: Cause | None) -> str:
        """The execution that reports; none where it is the coordinator who does."""
        if cause in (Cause.LOST, Cause.DISPATCH):
            return ""
        if not message.executions:
            return self._new_execution(message)
        may_change = self._losses(message.number) < MOST_LOSSES
        return message.executions[self.tape.choose(len(message.executions)) if may_change else -1]

    def _new_execution(self, message: Message) -> str:
        self._names += 1
        message.executions.append(f"x{self._names}")
        return message.executions[-1]

    def _attempt(self, message: Message) -> _Attempt:
        return _Attempt(run=RUN, life=message.life, number=message.number, attempt=message.attempt)

    def _say(self, event: Event) -> Event:
        self.said.append(event)
        return event
