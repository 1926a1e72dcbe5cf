"""Which strings of a definition may hold references, and what each of them is for: the one list of them.

``strings_of_*`` walk over them with their places; ``map_*`` put something in place of each. Paths are those of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ai4s.jobq.definition.document import Path
from ai4s.jobq.definition.model import Task, WorkflowDefinition
from ai4s.jobq.definition.parts import Job
from ai4s.jobq.definition.templates import Setting, has_template

_SETTINGS = {"cmd": Setting.COMMAND, "env": Setting.TEXT, "cwd": Setting.TEXT, "bg_dirsync_to": Setting.TEXT}


class Templated(NamedTuple):
    """A string that holds ``${{``: where it is and what it is for."""

    path: Path
    text: str
    setting: Setting


Change = Callable[[Templated], Any]
"""What is put in place of a string."""


def strings_of_kwargs(kwargs: Mapping[str, Any], path: Path = ()) -> Iterator[Templated]:
    """The templates in kwargs."""
    for key, value in kwargs.items():
        yield from _strings(value, _SETTINGS.get(key, Setting.VALUE), (*path, key))


def strings_of_job(job: Job, path: Path = ()) -> Iterator[Templated]:
    """The templates in an undo job or a hook."""
    yield from strings_of_kwargs(job.kwargs, path)
    yield from _strings(job.queue, Setting.NAME, (*path, "queue"))


def strings_of_task(task: Task, path: Path = ()) -> Iterator[Templated]:
    """The templates in a task."""
    yield from strings_of_kwargs(task.kwargs, (*path, "kwargs"))
    yield from _strings(task.queue, Setting.NAME, (*path, "queue"))
    if task.wait_for is not None:
        yield from _strings(task.wait_for.signal, Setting.NAME, (*path, "wait_for", "signal"))
    if task.undo is not None:
        yield from strings_of_job(task.undo, (*path, "undo"))


def strings_of_head(definition: WorkflowDefinition) -> Iterator[Templated]:
    """The templates at the level of the workflow."""
    yield from _strings(definition.default_queue, Setting.NAME, ("default_queue",))
    for name, hook in definition.hooks().items():
        yield from strings_of_job(hook, (name,))


def map_kwargs(kwargs: Mapping[str, Any], change: Change, path: Path = ()) -> dict[str, Any]:
    """The kwargs with every template changed."""
    return {key: _map(value, _SETTINGS.get(key, Setting.VALUE), (*path, key), change) for key, value in kwargs.items()}


def map_job(job: Job, change: Change, path: Path = ()) -> Job:
    """The job with every template changed."""
    kwargs = map_kwargs(job.kwargs, change, path)
    return replace(job, kwargs=kwargs, queue=_map(job.queue, Setting.NAME, (*path, "queue"), change))


def map_task(task: Task, change: Change, path: Path = ()) -> Task:
    """The task with every template changed; itself when it has none."""
    if next(strings_of_task(task), None) is None:
        return task
    wait_for = task.wait_for
    if wait_for is not None:
        signal = _map(wait_for.signal, Setting.NAME, (*path, "wait_for", "signal"), change)
        wait_for = replace(wait_for, signal=signal)
    return replace(
        task,
        kwargs=map_kwargs(task.kwargs, change, (*path, "kwargs")),
        queue=_map(task.queue, Setting.NAME, (*path, "queue"), change),
        wait_for=wait_for,
        undo=None if task.undo is None else map_job(task.undo, change, (*path, "undo")),
    )


def map_head(definition: WorkflowDefinition, change: Change) -> WorkflowDefinition:
    """The definition with every template at the level of the workflow changed."""
    hooks = {name: map_job(hook, change, (name,)) for name, hook in definition.hooks().items()}
    default_queue = _map(definition.default_queue, Setting.NAME, ("default_queue",), change)
    return replace(
        definition,
        default_queue=default_queue,
        on_success=hooks.get("on_success"),
        on_failure=hooks.get("on_failure"),
        on_end=hooks.get("on_end"),
    )


def strings_of(value: Any, setting: Setting = Setting.VALUE) -> Iterator[Templated]:
    """The templates in any value."""
    return _strings(value, setting, ())


def map_value(value: Any, setting: Setting, change: Change) -> Any:
    """Any value with every template in it changed."""
    return _map(value, setting, (), change)


def _strings(value: Any, setting: Setting, path: Path) -> Iterator[Templated]:
    if isinstance(value, str):
        if has_template(value):
            yield Templated(path, value, setting)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, setting, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strings(item, setting, (*path, index))


def _map(value: Any, setting: Setting, path: Path, change: Change) -> Any:
    if isinstance(value, str):
        return change(Templated(path, value, setting)) if has_template(value) else value
    if isinstance(value, Mapping):
        return {key: _map(item, setting, (*path, key), change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map(item, setting, (*path, index), change) for index, item in enumerate(value)]
    return value
