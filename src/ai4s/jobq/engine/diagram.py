"""The transition tables as Mermaid state diagrams, so that the ones in the documentation cannot lag behind the code.

What can be drawn is what the tables say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai4s.jobq.engine.states import TASK_TRANSITIONS, WORKFLOW_TRANSITIONS, TaskState, WorkflowState


def task_diagram() -> str:
    """What can happen to a task, as Mermaid text without a final newline."""
    edges = {
        (str(old), str(new)): _label(old, new) for old, steps in TASK_TRANSITIONS.items() for new in steps.values()
    }
    ends = [state for state in TASK_TRANSITIONS if state.is_terminal]
    return _diagram(TaskState.PENDING, edges, ends)


def workflow_diagram() -> str:
    """What can happen to a workflow, as Mermaid text without a final newline."""
    edges = {
        (str(old), str(new)): "retry"
        if old.is_terminal and not new.is_terminal and new is not WorkflowState.COMPENSATING
        else ""
        for old, following in WORKFLOW_TRANSITIONS.items()
        for new in WorkflowState
        if new in following
    }
    ends = [state for state in WORKFLOW_TRANSITIONS if state.is_terminal]
    return _diagram(WorkflowState.PENDING, edges, ends)


def _label(old: TaskState, new: TaskState) -> str:
    """The steps that lead from one state to another; they share one arrow."""
    return " / ".join(str(step) for step, state in TASK_TRANSITIONS[old].items() if state is new)


def _diagram(start: str, edges: Mapping[tuple[str, str], str], ends: Sequence[str]) -> str:
    lines = [f"[*] --> {start}"]
    lines += [f"{old} --> {new}" + (f": {label}" if label else "") for (old, new), label in edges.items()]
    lines += [f"{state} --> [*]" for state in ends]
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in lines)])
