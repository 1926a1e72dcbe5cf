"""Which workflows, queues and blobs a command works on: the target, and where each part of it was said.

The environment is handed in, read here once, and never looked at again. Precedence, for each part by itself: flag or
positional, environment, config file, default. Values are never repeated in an error when they may hold a secret.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ai4s.jobq.config_file import ConfigFile, check_keys, load_config
from ai4s.jobq.errors import SettingsError, UsageError
from ai4s.jobq.ids import check_prefix
from ai4s.jobq.ports.limits import check_container_name
from ai4s.jobq.store.layout import DEFAULT_CONTAINER, LOCAL_ACCOUNT

PREFIX_VARIABLE = "JOBQ_WORKFLOW_PREFIX"
QUEUES_VARIABLE = "JOBQ_WORKFLOW_QUEUES"
BLOBS_VARIABLE = "JOBQ_WORKFLOW_BLOBS"
LOCAL_DIR_VARIABLE = "JOBQ_LOCAL_DIR"

LOCAL_TARGET = f"{LOCAL_ACCOUNT}/default"
PLAIN_PREFIX = "JobQ"  # of a plain queue, which has no workflows: a target needs one

_REPLACED = {"JOBQ_WORKFLOW": PREFIX_VARIABLE, "JOBQ_WORKFLOW_STATE": PREFIX_VARIABLE}
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")


class Source(StrEnum):
    """Where a value was said."""

    ARGUMENT = "argument"
    FLAG = "flag"
    ENV = "env"
    FILE = "file"
    DEFAULT = "default"


class NotConfiguredError(SettingsError):
    """Nobody has said which account and prefix to use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorPorts:
    """Where Azurite listens on 127.0.0.1."""

    blob: int = 10000
    queue: int = 10001
    table: int = 10002


def default_local_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the local store: ``JOBQ_LOCAL_DIR``, else ``ai4s-jobq`` in the user's data directory."""
    if chosen := environ.get(LOCAL_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "win32":
        data = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        data = home / "Library" / "Application Support"
    else:
        data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return data / "ai4s-jobq"


@dataclass(frozen=True, slots=True)
class Target:
    """One ``account/prefix`` and where its queues and blobs are.

    ``queues`` is an account, ``blobs`` an ``account/container``; None means the account itself. ``sources`` says for
    ``storage``, ``prefix``, ``queues`` and ``blobs`` where the value was said.
    """

    account: str
    prefix: str
    queues: str | None = None
    blobs: str | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    config_path: Path | None = None
    local_dir: Path = field(default_factory=default_local_dir)
    ports: EmulatorPorts = field(default_factory=EmulatorPorts)

    @property
    def name(self) -> str:
        return f"{self.account}/{self.prefix}"

    @property
    def is_local(self) -> bool:
        return self.account == LOCAL_ACCOUNT

    @property
    def queue_account(self) -> str:
        return self.queues or self.account

    @property
    def blob_account(self) -> str:
        return self.blobs.rpartition("/")[0] if self.blobs else self.account

    @property
    def container(self) -> str:
        return self.blobs.rpartition("/")[2] if self.blobs else DEFAULT_CONTAINER

    def variables(self) -> dict[str, str]:
        """The environment variables that lead another process to this target, whatever its working directory."""
        said = {
            PREFIX_VARIABLE: self.name,
            QUEUES_VARIABLE: self.queues,
            BLOBS_VARIABLE: self.blobs,
            LOCAL_DIR_VARIABLE: str(self.local_dir) if self.is_local else None,
        }
        return {name: value for name, value in said.items() if value is not None}


def resolve_target(
    positional: str | None = None,
    *,
    queues: str | None = None,
    blobs: str | None = None,
    config: str | None = None,
    fallback: str | None = None,
    environ: Mapping[str, str],
) -> Target:
    """The target that flags, environment and config file describe; ``fallback`` is used when none of them names one.

    Raises: ``NotConfiguredError``: nobody named account and prefix. ``SettingsError``: a part is malformed.
    """
    for old, new in _REPLACED.items():
        if environ.get(old):
            raise SettingsError(f"{old} is no longer read. Set {new}=<account>/<prefix> instead.")
    file = load_config(config, environ)
    sources: dict[str, Source] = {}
    account, prefix = _storage(positional, file, fallback, environ, sources)
    queue_account = _part("queues", "--queues", queues, QUEUES_VARIABLE, file, environ, sources)
    container = _part("blobs", "--blobs", blobs, BLOBS_VARIABLE, file, environ, sources)
    if queue_account is not None:
        _check_queues(queue_account, account)
    if container is not None:
        _check_blobs(container, account)
    return Target(
        account=account,
        prefix=prefix,
        queues=queue_account,
        blobs=container,
        sources=sources,
        config_path=file.path,
        local_dir=default_local_dir(environ),
        ports=emulator_ports(environ),
    )


def resolve_queue(positional: str | None, *, environ: Mapping[str, str]) -> tuple[Target, str]:
    """The target and the queue name that ``ACCOUNT/QUEUE`` (else ``JOBQ_STORAGE_QUEUE``) names. Raises ``SettingsError``."""
    text = positional or environ.get("JOBQ_STORAGE_QUEUE")
    if not text:
        raise NotConfiguredError(
            "No queue is named. Write it before the command, such as ai4s-jobq local/default worker, "
            "or set JOBQ_STORAGE_QUEUE."
        )
    if text.startswith("sb://"):
        raise _no_service_bus("a queue")
    account, queue = split_pair(text, what=_said(positional, "JOBQ_STORAGE_QUEUE"), second="queue-name")
    check_account(account)
    target = Target(account, PLAIN_PREFIX, local_dir=default_local_dir(environ), ports=emulator_ports(environ))
    return target, queue


def split_pair(text: str, *, what: str, second: str) -> tuple[str, str]:
    """``<account>/<second>`` at its last slash. Raises ``SettingsError``; ``what`` says in it where the text comes from."""
    expected = f"Expected <account>/<{second}>, such as {LOCAL_TARGET}."
    if any(mark in text for mark in ("://", ";", "=")):
        raise SettingsError(f"{what} cannot be a URL or connection string. {expected}")
    account, slash, name = text.rpartition("/")
    if not slash:
        raise SettingsError(f"Missing {second} in {what}: {text!r}. {expected}")
    if not account or not name:
        raise SettingsError(f"{what}: {text!r}. Both segments must be non-empty. {expected}")
    return account, name


def check_account(account: str) -> str:
    """The account name unchanged. Raises ``SettingsError`` unless it can be one."""
    if not _ACCOUNT.fullmatch(account):
        raise SettingsError(
            f"{account!r} is no storage account: 3 to 24 lower-case letters and digits "
            f"({LOCAL_ACCOUNT} for a directory of this machine, devstoreaccount1 for Azurite)."
        )
    return account


def emulator_ports(environ: Mapping[str, str]) -> EmulatorPorts:
    """Azurite's ports: ``JOBQ_AZURITE_{BLOB,QUEUE,TABLE}_PORT``, else ``{BLOB,QUEUE,TABLE}_PORT``, else the usual ones."""
    usual = EmulatorPorts()
    return EmulatorPorts(
        blob=_port("BLOB", usual.blob, environ),
        queue=_port("QUEUE", usual.queue, environ),
        table=_port("TABLE", usual.table, environ),
    )


Settings = TypeVar("Settings")


def settings_from(
    kind: type[Settings], flags: Mapping[str, Any], section: Mapping[str, Any], *, where: str
) -> Settings:
    """The settings of one actor: ``flags`` that are not None, else what the config file's ``section`` says, else defaults.

    ``kind`` is a dataclass; its fields are the keys. Raises ``SettingsError`` for unknown keys; ``kind`` checks the values.
    """
    names = tuple(spec.name for spec in fields(kind))  # type: ignore[arg-type]  # a dataclass, which no type can say
    check_keys(section, names, where=where)
    chosen = {**section, **{name: value for name, value in flags.items() if value is not None}}
    return kind(**chosen)


def _storage(
    positional: str | None,
    file: ConfigFile,
    fallback: str | None,
    environ: Mapping[str, str],
    sources: dict[str, Source],
) -> tuple[str, str]:
    said = positional if positional is not None else environ.get(PREFIX_VARIABLE)
    if said:
        what = _said(positional, PREFIX_VARIABLE)
        account, prefix = split_pair(said, what=what, second="prefix")
        source = Source.ENV if positional is None else Source.ARGUMENT
    elif file.connection.keys() & {"storage", "prefix"} or fallback is None:
        what = str(file.path)
        account, prefix = _storage_of_file(file)
        source = Source.FILE
    else:
        what, source = "the default target", Source.DEFAULT
        account, prefix = split_pair(fallback, what=what, second="prefix")
    sources["storage"] = sources["prefix"] = source
    try:
        return check_account(account), check_prefix(prefix)
    except UsageError as exc:
        raise SettingsError(f"{what}: {exc}") from exc


def _storage_of_file(file: ConfigFile) -> tuple[str, str]:
    missing = [word for word, key in (("account", "storage"), ("prefix", "prefix")) if key not in file.connection]
    if missing:
        raise NotConfiguredError(
            f"Workflow storage {' and '.join(missing)} not configured. "
            f"Set {PREFIX_VARIABLE}=<account>/<prefix>, or write it after 'workflow' (workflow {LOCAL_TARGET} …), "
            "or put connection: {storage: …, prefix: …} into jobq.yaml."
        )
    return file.connection["storage"], file.connection["prefix"]


def _part(
    key: str,
    flag: str,
    given: str | None,
    variable: str,
    file: ConfigFile,
    environ: Mapping[str, str],
    sources: dict[str, Source],
) -> str | None:
    for source, value in (
        (Source.FLAG, given),
        (Source.ENV, environ.get(variable)),
        (Source.FILE, file.connection.get(key)),
    ):
        if value:
            sources[key] = source
            return value
    sources[key] = Source.DEFAULT
    return None


def _check_queues(queues: str, account: str) -> None:
    if queues.startswith("sb://"):
        raise _no_service_bus(QUEUES_VARIABLE)
    if any(mark in queues for mark in ("://", ";", "=", "/")):
        raise SettingsError(
            f"{QUEUES_VARIABLE} (--queues) cannot be a URL or connection string. Expected the name of a storage account."
        )
    check_account(queues)
    _check_mix(QUEUES_VARIABLE, queues, account)


def _check_blobs(blobs: str, account: str) -> None:
    what = f"{BLOBS_VARIABLE} (--blobs)"
    blob_account, container = split_pair(blobs, what=what, second="container")
    check_account(blob_account)
    try:
        check_container_name(container)
    except UsageError as exc:
        raise SettingsError(f"{what}: {exc}") from exc
    _check_mix(BLOBS_VARIABLE, blob_account, account)


def _check_mix(variable: str, other: str, account: str) -> None:
    if (other == LOCAL_ACCOUNT) != (account == LOCAL_ACCOUNT):
        raise SettingsError(
            f"{variable} names account {other!r}, but the workflows are in {account!r}: "
            f"a {LOCAL_ACCOUNT} store keeps everything in one directory. Unset {variable}, or use one kind of account."
        )


def _no_service_bus(what: str) -> SettingsError:
    return SettingsError(f"{what} on Service Bus (sb://…) is not available in this release yet. Use a storage account.")


def _said(positional: str | None, variable: str) -> str:
    return variable if positional is None else "the argument"


def _port(service: str, usual: int, environ: Mapping[str, str]) -> int:
    for variable in (f"JOBQ_AZURITE_{service}_PORT", f"{service}_PORT"):
        text = environ.get(variable, "").strip()
        if text:
            if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
                raise SettingsError(f"{variable}: {text!r} is no port. Write a number from 1 to 65535.")
            return int(text)
    return usual
