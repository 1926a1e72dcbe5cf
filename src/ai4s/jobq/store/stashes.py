"""Files and directories inside the JSON of an output: the markers that stand for them, and a directory's manifest.

A marker is a mapping whose only key is ``__jobq_stash__``. The task writes a *pending* one, with a path of its machine; when
the task has succeeded, the worker stores what is there and writes a *ready* one in its place, which readers can download::

    {"__jobq_stash__": {"v": 1, "state": "pending", "kind": "file", "local_path": "/tmp/m.bin", "filename": "m.bin"}}
    {"__jobq_stash__": {"v": 1, "state": "ready", "kind": "file", "blob": "…", "md5": "…", "size": 7, "filename": "m.bin"}}

``kind`` is ``file`` where it is left out. The blob of a directory is its manifest, and every file in it a blob of its own.

Read by the scripts of tasks, which pay for what is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ai4s.jobq.errors import JobqError

KEY = "__jobq_stash__"
VERSION = 1
PERMISSIONS = 0o777  # of a mode, what is kept: neither set-user-id nor sticky bits travel

_MD5 = re.compile(r"[0-9a-f]{32}")


class StashError(JobqError):
    """A file or directory in an output cannot be stored or read; the message says which one and why."""


class Kind(StrEnum):
    """What a marker stands for."""

    FILE = "file"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Where the bytes of a file are, and what they have to be. ``md5`` is hexadecimal."""

    blob: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A file or directory that is to be stored. ``path`` is absolute."""

    kind: Kind
    path: str
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A file, or the manifest of a directory, that has been stored."""

    kind: Kind
    file: StoredFile
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One file of a directory. ``path`` is relative, its parts separated by ``/``; ``mode`` holds permissions only."""

    path: str
    file: StoredFile
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a directory holds. ``directories`` has the mode of every directory below it by its path, empty ones included."""

    files: tuple[ManifestFile, ...]
    directories: Mapping[str, int]


def may_hold_marker(text: str) -> bool:
    """Whether this JSON text may hold a marker: a quick look, so that most outputs are not parsed for it."""
    return "jobq_stash" in text or "\\u" in text


def pending_marker(stash: Pending) -> dict[str, Any]:
    """What a task writes into its output."""
    fields = {"kind": str(stash.kind), "local_path": stash.path, "filename": stash.filename}
    return {KEY: {"v": VERSION, "state": "pending", **fields}}


def ready_marker(stash: Ready) -> dict[str, Any]:
    """What stands in a stored output."""
    fields = {"kind": str(stash.kind), **_file_record(stash.file), "filename": stash.filename}
    return {KEY: {"v": VERSION, "state": "ready", **fields}}


def read_marker(mapping: Mapping[str, Any]) -> Pending | Ready:
    """What a mapping that has our key stands for. Raises ``StashError``: it is no marker that this release understands."""
    fields = mapping[KEY]
    if len(mapping) != 1:
        raise StashError(f"{KEY!r} has to be the only key of its mapping, and there is {_other_key(mapping)!r} as well")
    if not isinstance(fields, Mapping) or not isinstance(fields.get("v"), int) or fields["v"] < 1:
        raise StashError(f"{KEY!r} holds no file or directory: write it with BlobStasher")
    if fields["v"] > VERSION:
        raise StashError(f"{KEY!r} has version {fields['v']}, this release reads up to {VERSION}: upgrade it")
    if fields.get("state") == "pending":
        return Pending(kind=_kind(fields), path=_path(fields), filename=_filename(fields))
    if fields.get("state") == "ready":
        return Ready(kind=_kind(fields), file=_stored_file(fields), filename=_filename(fields))
    raise StashError(f"{KEY!r} has the state {fields.get('state')!r}, which this release does not know")


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as it is stored."""
    record = {
        "v": VERSION,
        "files": [{"path": entry.path, "mode": entry.mode, **_file_record(entry.file)} for entry in manifest.files],
        "directories": [{"path": path, "mode": mode} for path, mode in manifest.directories.items()],
    }
    return json.dumps(record, separators=(",", ":")).encode()


def read_manifest(data: bytes) -> Manifest:
    """The manifest of a stored directory; no path in it leaves the directory. Raises ``StashError``."""
    try:
        record = json.loads(data)
        if record["v"] > VERSION:
            raise StashError(f"the directory's list has version {record['v']}, this release reads up to {VERSION}")
        files = tuple(
            ManifestFile(path=check_path(entry["path"]), file=_stored_file(entry), mode=_mode(entry))
            for entry in record["files"]
        )
        directories = {check_path(entry["path"]): _mode(entry) for entry in record["directories"]}
    except (ValueError, LookupError, TypeError) as exc:
        raise StashError(f"the directory's list is damaged: {type(exc).__name__}") from exc
    _check_places(files, directories)
    return Manifest(files=files, directories=directories)


def check_path(path: str) -> str:
    """A relative path unchanged. Raises ``StashError``: it would lead out of its directory, or names nothing."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise StashError(f"{path!r} is no path inside a directory")
    return path


def _check_places(files: tuple[ManifestFile, ...], directories: Mapping[str, int]) -> None:
    """Every path is there once, and below directories that are there too."""
    paths = {entry.path for entry in files}
    if len(paths) != len(files) or not paths.isdisjoint(directories):
        raise StashError("the directory's list names a path twice")
    for path in (*paths, *directories):
        parent = path.rpartition("/")[0]
        if parent and parent not in directories:
            raise StashError(f"the directory's list has {path!r}, but not the directory it is in")


def _file_record(file: StoredFile) -> dict[str, Any]:
    return {"blob": file.blob, "md5": file.md5, "size": file.size_bytes}


def _kind(fields: Mapping[str, Any]) -> Kind:
    try:
        return Kind(fields.get("kind", Kind.FILE))
    except ValueError:
        raise StashError(f"{KEY!r} has the kind {fields['kind']!r}, which this release does not know") from None


def _path(fields: Mapping[str, Any]) -> str:
    path = _text(fields, "local_path")
    if not path.startswith("/") or "\0" in path:
        raise StashError(f"{KEY!r}: local_path {path!r} is no absolute path")
    return path


def _filename(fields: Mapping[str, Any]) -> str:
    name = _text(fields, "filename")
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise StashError(f"{KEY!r}: filename {name!r} is no name of a file")
    return name


def _stored_file(fields: Mapping[str, Any]) -> StoredFile:
    md5, size_bytes = _text(fields, "md5"), fields.get("size")
    if not _MD5.fullmatch(md5) or not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or size_bytes < 0:
        raise StashError(f"{KEY!r}: md5 or size is damaged")
    return StoredFile(blob=_text(fields, "blob"), size_bytes=size_bytes, md5=md5)


def _mode(fields: Mapping[str, Any]) -> int:
    return int(fields["mode"]) & PERMISSIONS


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise StashError(f"{KEY!r} has no {name}: write it with BlobStasher")
    return value


def _other_key(mapping: Mapping[str, Any]) -> str:
    return next(key for key in mapping if key != KEY)
