"""The workflow shapes that are measured, as definitions of ``true``."""

from __future__ import annotations

from collections.abc import Callable

from ai4s.jobq.definition.model import Task, WorkflowDefinition

CMD = {"cmd": "true"}


def one_task() -> WorkflowDefinition:
    return WorkflowDefinition(name="one", tasks=(Task(name="t", kwargs=CMD),))


def fan_out(width: int = 500) -> WorkflowDefinition:
    """One root, then ``width`` tasks that depend on it."""
    leaves = (Task(name=f"leaf-{number}", kwargs=CMD, depends_on=("root",)) for number in range(width))
    return WorkflowDefinition(name="fan-out", tasks=(Task(name="root", kwargs=CMD), *leaves))


def chain(length: int = 60) -> WorkflowDefinition:
    tasks = [
        Task(name=f"link-{number}", kwargs=CMD, depends_on=(f"link-{number - 1}",) if number else ())
        for number in range(length)
    ]
    return WorkflowDefinition(name="chain", tasks=tuple(tasks))


def layers(depth: int = 10, width: int = 30) -> WorkflowDefinition:
    """Every task of a layer depends on all tasks of the one before."""
    tasks: list[Task] = []
    before: tuple[str, ...] = ()
    for layer in range(depth):
        names = tuple(f"layer-{layer}-{number}" for number in range(width))
        tasks += [Task(name=name, kwargs=CMD, depends_on=before) for name in names]
        before = names
    return WorkflowDefinition(name="layers", tasks=tuple(tasks))


SHAPES: dict[str, Callable[[], WorkflowDefinition]] = {
    "fan-out of 500": fan_out,
    "chain of 60": chain,
    "10 layers of 30": layers,
    "one task": one_task,
}
