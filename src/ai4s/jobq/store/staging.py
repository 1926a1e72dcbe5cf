"""A submission that begins with rows of tasks, and is too large for one transaction.

Task rows do not say which run they belong to, so none may be there without its header. The header comes first, marked as
in a purge: for every reader the workflow does not exist yet. Each transaction renews it, the last one takes the mark away.
A crash in between leaves what an interrupted purge leaves, and the next purge clears it away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ai4s.jobq.errors import EntityExistsError, OperationalError, StaleWriteError
from ai4s.jobq.ids import new_nonce
from ai4s.jobq.ports.table import ETag, Insert, Operation, Replace, Table, Value
from ai4s.jobq.store.layout import HEADER
from ai4s.jobq.store.records import PURGING, Header


async def store_in_stages(table: Table, header: Header, parts: Sequence[Sequence[Insert]]) -> None:
    """Store these rows, a transaction per part, and at last let the header be seen.

    Raises: ``EntityExistsError``: the id is taken, and nothing was stored; ``OperationalError``: a purge came in between.
    """
    etag = await _claim(table, header)
    for part in parts:
        etag = await _stage(table, header.workflow_id, part, _marked(header), etag)
    await _stage(table, header.workflow_id, (), header.values(), etag)


async def _claim(table: Table, header: Header) -> ETag:
    try:
        etags = await table.transact(header.workflow_id, [Insert(HEADER, _marked(header))])
        return etags[0]
    except EntityExistsError:
        entity = await table.get(header.workflow_id, HEADER)
        if entity is None or entity.values.get("run") != header.run:
            raise
        return entity.etag  # our own: the first answer was lost


async def _stage(
    table: Table, workflow_id: str, rows: Sequence[Insert], values: Mapping[str, Value], etag: ETag
) -> ETag:
    operations: list[Operation] = [*rows, Replace(HEADER, values, etag)]
    try:
        return (await table.transact(workflow_id, operations))[-1]
    except StaleWriteError as exc:
        entity = await table.get(workflow_id, HEADER)
        if entity is not None and entity.values.get("commit_id") == values["commit_id"]:
            return entity.etag  # the first answer was lost
        raise OperationalError(
            f"Workflow {workflow_id!r} was purged while it was being submitted. Nothing of it is left; try again."
        ) from exc


def _marked(header: Header) -> dict[str, Value]:
    """The header's row as nobody sees it yet; a different one each time, so that a lost answer can be told."""
    return {**replace(header, commit=new_nonce()).values(), PURGING: True}
