"""What one completion costs the engine, by the size of the workflow: it should not depend on it."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime

from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.engine.decide import decide
from ai4s.jobq.engine.events import Event, Room, TaskSucceeded
from ai4s.jobq.engine.graph import Graph
from ai4s.jobq.engine.run import WorkflowRun

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLES = 2000


def cost_per_completion_us(size: int) -> float:
    """Median microseconds of ``decide`` for one completion that makes one child ready, in pairs of tasks."""
    tasks: list[Task] = []
    for number in range(size // 2):
        tasks.append(Task(name=f"a{number}"))
        tasks.append(Task(name=f"b{number}", depends_on=(f"a{number}",)))
    run = WorkflowRun(Graph(WorkflowDefinition(name="pairs", tasks=tuple(tasks))), run="bench")
    samples = min(SAMPLES, size // 2)
    decide(run, [], now=NOW, room=Room(queues={"default": samples}, dispatches=samples))
    ready = [task.number for task in run.tasks if task.attempt == 1]
    times = []
    for number in ready:
        event: list[Event] = [TaskSucceeded(run="bench", number=number, life=1, attempt=1, execution="1-x")]
        started = time.perf_counter()
        decide(run, event, now=NOW, room=Room(queues={"default": 1}, dispatches=1))
        times.append((time.perf_counter() - started) * 1e6)
    return statistics.median(times)


def report() -> None:
    print("Engine: microseconds per completion that makes one task ready (median)")
    costs = {size: cost_per_completion_us(size) for size in (1_000, 10_000, 100_000)}
    smallest = costs[1_000]
    for size, cost in costs.items():
        print(f"  {size:>7} tasks  {cost:8.1f} us   {cost / smallest:5.2f} x the smallest")


if __name__ == "__main__":
    report()
