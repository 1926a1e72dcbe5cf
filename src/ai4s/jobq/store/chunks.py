"""Definition chunks: a definition cut into rows of compressed JSON, and back.

Whole tasks per chunk, so that a worker can read one task's share alone. Chunks are immutable and keyed by run.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from ai4s.jobq.definition.model import Task, WorkflowDefinition, canonical_json
from ai4s.jobq.errors import CorruptRecordError, UsageError
from ai4s.jobq.ports.table import Entity, Insert
from ai4s.jobq.store.layout import chunk_row

CHUNK_BYTES = 256 * 1024  # of JSON before compression; a single task may be as large
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
        rows.append(Insert(chunk_row(run, number), {"v": 1, **pieces}))
    return rows


def read_definition(entities: Sequence[Entity], *, chunks: int) -> WorkflowDefinition:
    """The definition that these chunk rows hold, in row order. Raises ``CorruptRecordError``."""
    if len(entities) != chunks:
        raise CorruptRecordError(f"the definition has {len(entities)} of its {chunks} chunks")
    head: dict[str, Any] = {}
    tasks: list[Task] = []
    for entity in entities:
        record = _inflate(entity)
        head.update(record.get("head", {}))
        tasks.extend(Task.from_json(task) for task in record["tasks"])
    return WorkflowDefinition.from_json({**head, "tasks": []}).with_tasks(tasks)


def _bodies(definition: WorkflowDefinition) -> Iterator[str]:
    """The JSON of each chunk; the first one also carries the workflow's own fields."""
    head = f'"head":{canonical_json(definition.head_json())},'
    batch: list[str] = []
    size = 0
    for task in definition.tasks:
        text = canonical_json(task.to_json())
        if batch and size + len(text) > CHUNK_BYTES:
            yield f'{{{head}"tasks":[{",".join(batch)}]}}'
            head, batch, size = "", [], 0
        batch.append(text)
        size += len(text)
    yield f'{{{head}"tasks":[{",".join(batch)}]}}'


def _inflate(entity: Entity) -> dict[str, Any]:
    try:
        data = b"".join(_piece(entity, piece) for piece in range(sum(name.startswith("p") for name in entity.values)))
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, MAX_INFLATED_BYTES)
        if not inflater.eof:
            raise ValueError("cut")
        record = json.loads(text)
        record["tasks"]
    except (KeyError, TypeError, ValueError, zlib.error) as exc:
        raise CorruptRecordError(f"definition chunk {entity.row!r} of {entity.partition!r} is damaged: {exc}") from exc
    return dict(record)


def _piece(entity: Entity, piece: int) -> bytes:
    value = entity.values[f"p{piece}"]
    if not isinstance(value, bytes):
        raise TypeError("a piece is not binary")
    return value
