"""Layers: many alike tasks of a workflow seen as one, for workflows too large to be looked at task by task.

A layer is a task name without its number: ``train-0001`` and ``train-0002_3`` are of ``train``, and so is ``train[lr=0.1]``,
an instance of a matrix. Any other task is a layer of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai4s.jobq.engine.run import WorkflowRun
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.store.workflows import WorkflowStore
from ai4s.jobq.views.reading import load_existing
from ai4s.jobq.views.status import WorkflowStatus, status_of

_NUMBER = re.compile(r"-\d{3,}(?:_\d+)?$", re.ASCII)
_INSTANCE = re.compile(r"\[[^\[\]]+=.*\]$")


def layer_of(task_name: str) -> str:
    """The layer of a task of this name."""
    return _NUMBER.sub("", _INSTANCE.sub("", task_name)) or task_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStatus:
    """Where the tasks of one layer stand; ``counts`` are per task state."""

    layer: str
    total: int
    counts: Mapping[TaskState, int]

    @property
    def failed(self) -> int:
        """Tasks that ended badly: failed, upstream_failed or cancelled."""
        return sum(count for state, count in self.counts.items() if state.is_bad)

    @property
    def settled(self) -> int:
        """Tasks that have ended, in whatever way."""
        return sum(count for state, count in self.counts.items() if state.is_terminal)

    def count(self, state: TaskState) -> int:
        return self.counts.get(state, 0)

    def to_json(self) -> dict[str, Any]:
        """The layer as a JSON object."""
        return {
            "layer": self.layer,
            "total": self.total,
            "pending": self.count(TaskState.PENDING),
            "ready": self.count(TaskState.READY),
            "running": self.count(TaskState.RUNNING),
            "completed": self.count(TaskState.COMPLETED),
            "failed": self.failed,
            "skipped": self.count(TaskState.SKIPPED),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredStatus:
    """A workflow without its tasks, and its layers in the order in which the file names them first."""

    status: WorkflowStatus
    layers: tuple[LayerStatus, ...]

    def to_json(self) -> dict[str, Any]:
        return self.status.to_json() | {"layers": [layer.to_json() for layer in self.layers]}


async def read_layers(store: WorkflowStore, workflow_id: str) -> LayeredStatus:
    """A workflow by layers; neither outputs nor errors are read. Raises: ``WorkflowNotFoundError``."""
    loaded = await load_existing(store, workflow_id)
    return LayeredStatus(status=status_of(loaded.header), layers=layers_of(loaded.run))


def layers_of(run: WorkflowRun) -> tuple[LayerStatus, ...]:
    """The layers of a run."""
    counts: dict[str, Counter[TaskState]] = {}
    for task, task_run in zip(run.graph.definition.tasks, run.tasks, strict=True):
        counts.setdefault(layer_of(task.name), Counter())[task_run.state] += 1
    return tuple(
        LayerStatus(layer=layer, total=states.total(), counts=dict(states)) for layer, states in counts.items()
    )
