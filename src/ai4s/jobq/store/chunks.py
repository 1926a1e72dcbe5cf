"""Definition chunks: a definition cut into rows of compressed JSON, and back.

Whole tasks per chunk. Chunks are immutable and keyed by run. Parents are kept as task numbers: a join of 10,000 tasks whose
names have 255 characters is 60 KB of numbers, and its names would fit no row. Version 1 kept their names.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ai4s.jobq.definition.model import Task, WorkflowDefinition, canonical_json
from ai4s.jobq.errors import CorruptRecordError, NewerVersionError, UsageError
from ai4s.jobq.ports.table import Entity, Insert
from ai4s.jobq.store.columns import DAMAGE
from ai4s.jobq.store.layout import chunk_row

VERSION = 2
CHUNK_BYTES = 256 * 1024  # of JSON before compression; a single task may be as large, its parents come on top
PROPERTY_BYTES = 60 * 1024  # Azure Tables: at most 64 KiB per property
MAX_COMPRESSED_BYTES = 16 * 1024 * 1024
MAX_INFLATED_BYTES = 8 * 1024 * 1024  # of one chunk; bounds a damaged one


def definition_chunks(definition: WorkflowDefinition, run: str) -> list[Insert]:
    """The rows that hold a definition, in order. Raises ``UsageError`` when they would be larger than 16 MiB."""
    rows: list[Insert] = []
    total = 0
    for number, body in enumerate(_bodies(definition)):
        data = zlib.compress(body.encode("ascii"), 6)
        total += len(data)
        if total > MAX_COMPRESSED_BYTES:
            raise UsageError(
                f"the definition of {definition.name!r} is larger than 16 MiB compressed: "
                "move large values from kwargs into files or blobs"
            )
        pieces = {
            f"p{piece}": data[start : start + PROPERTY_BYTES]
            for piece, start in enumerate(range(0, len(data), PROPERTY_BYTES))
        }
        rows.append(Insert(chunk_row(run, number), {"v": VERSION, **pieces}))
    return rows


def read_definition(entities: Sequence[Entity], *, chunks: int) -> WorkflowDefinition:
    """The definition that these chunk rows hold, in row order. Raises ``CorruptRecordError``, ``NewerVersionError``."""
    if len(entities) != chunks:
        raise CorruptRecordError(f"the definition has {len(entities)} of its {chunks} chunks")
    head: dict[str, Any] = {}
    tasks: list[Task] = []
    for entity in entities:
        _check_version(entity)
        try:
            record = _inflate(entity)
            head.update(record.get("head", {}))
            tasks.extend(Task.from_json(task) for task in record["tasks"])
        except (*DAMAGE, zlib.error) as exc:
            raise CorruptRecordError(f"{_place(entity)} is damaged: {type(exc).__name__}: {exc}") from exc
    try:
        return WorkflowDefinition.from_json({**head, "tasks": []}).with_tasks(_with_names(tasks))
    except DAMAGE as exc:
        raise CorruptRecordError(f"{_place(entities[0])} has no workflow: {type(exc).__name__}: {exc}") from exc


def _bodies(definition: WorkflowDefinition) -> Iterator[str]:
    """The JSON of each chunk; the first one also carries the workflow's own fields."""
    head = f'"head":{canonical_json(definition.head_json())},'
    numbers = {task.name: number for number, task in enumerate(definition.tasks)}
    batch: list[str] = []
    size = 0
    for task in definition.tasks:
        text = canonical_json(_with_numbers(task.to_json(), numbers))
        if batch and size + len(text) > CHUNK_BYTES:
            yield f'{{{head}"tasks":[{",".join(batch)}]}}'
            head, batch, size = "", [], 0
        batch.append(text)
        size += len(text)
    yield f'{{{head}"tasks":[{",".join(batch)}]}}'


def _with_numbers(record: dict[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    """The record of a task with its parents as numbers."""
    if "depends_on" in record:
        record["depends_on"] = [numbers[name] for name in record["depends_on"]]
    return record


def _with_names(tasks: Sequence[Task]) -> Iterator[Task]:
    """The tasks with their parents by name; a parent of version 1 is a name already."""
    names = [task.name for task in tasks]
    lists: dict[tuple[int | str, ...], tuple[str, ...]] = {}  # tasks with the same parents share one list
    for task in tasks:
        if task.depends_on not in lists:
            lists[task.depends_on] = tuple(_name_of(parent, names) for parent in task.depends_on)
        yield replace(task, depends_on=lists[task.depends_on]) if task.depends_on else task


def _name_of(parent: int | str, names: Sequence[str]) -> str:
    if isinstance(parent, str):
        return parent
    if not 0 <= parent < len(names):
        raise ValueError(f"there is no task {parent}")
    return names[parent]


def _inflate(entity: Entity) -> dict[str, Any]:
    data = b"".join(_piece(entity, piece) for piece in range(sum(name.startswith("p") for name in entity.values)))
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, MAX_INFLATED_BYTES)
    if not inflater.eof:
        raise ValueError("it is cut")
    record = json.loads(text)
    if not isinstance(record, dict):
        raise TypeError("it is no JSON object")
    return record


def _piece(entity: Entity, piece: int) -> bytes:
    value = entity.values[f"p{piece}"]
    if not isinstance(value, bytes):
        raise TypeError("a piece is not binary")
    return value


def _check_version(entity: Entity) -> None:
    version = entity.values.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptRecordError(f"{_place(entity)} has no readable version")
    if version > VERSION:
        raise NewerVersionError(
            f"{_place(entity)} has version {version}, this release reads up to {VERSION}: upgrade it"
        )


def _place(entity: Entity) -> str:
    return f"definition chunk {entity.row!r} of {entity.partition!r}"
