"""The config file ``jobq.yaml``: where it is looked for, and what may stand in it.

The first of these that exists is the one: the path that was asked for, ``JOBQ_WORKFLOW_CONFIG``, ``jobq.yaml`` and
``.jobq.yaml`` in the working directory, ``ai4s-jobq/jobq.yaml`` in the user's config directory. What its values mean is the
business of ``settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai4s.jobq.errors import SettingsError
from ai4s.jobq.ids import near_names

CONFIG_VARIABLE = "JOBQ_WORKFLOW_CONFIG"
CONNECTION_KEYS = ("storage", "prefix", "queues", "blobs")
SECTIONS = ("connection", "coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A config file as read; ``path`` is None when there is none. Values in ``connection`` are text."""

    path: Path | None = None
    connection: Mapping[str, str] = field(default_factory=dict)
    coordinator: Mapping[str, Any] = field(default_factory=dict)


def load_config(asked_for: str | None, environ: Mapping[str, str]) -> ConfigFile:
    """The config file that applies; an empty one when none is found.

    Raises: ``SettingsError``: a file that was asked for is not there, or what it holds is no configuration.
    """
    path = _find(asked_for, environ)
    return ConfigFile() if path is None else _read(path)


def check_keys(section: Mapping[str, Any], allowed: tuple[str, ...], *, where: str) -> None:
    """Raise ``SettingsError`` for the first key that is not allowed, with those that are."""
    for key in section:
        if key not in allowed:
            near = near_names(str(key), allowed, most=1)
            advice = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingsError(f"{where}: unknown key {key!r}.{advice} Allowed: {', '.join(allowed)}.")


def _find(asked_for: str | None, environ: Mapping[str, str]) -> Path | None:
    for source, text in (("--config", asked_for), (CONFIG_VARIABLE, environ.get(CONFIG_VARIABLE))):
        if text:
            path = Path(text).expanduser()
            if not path.is_file():
                raise SettingsError(f"Config file not found ({source}: {text}).")
            return path
    return next((path for path in _usual_places(environ) if path.is_file()), None)


def _usual_places(environ: Mapping[str, str]) -> tuple[Path, ...]:
    user = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return Path("jobq.yaml").absolute(), Path(".jobq.yaml").absolute(), Path(user) / "ai4s-jobq" / "jobq.yaml"


def _read(path: Path) -> ConfigFile:
    record = _mapping(_parse(path), where=str(path))
    check_keys(record, SECTIONS, where=str(path))
    connection = _mapping(record.get("connection"), where=f"{path}: connection")
    check_keys(connection, CONNECTION_KEYS, where=f"{path}: connection")
    for key, value in connection.items():
        if value is not None and not isinstance(value, str):
            raise SettingsError(f"{path}: connection.{key}: {value!r} is no text. Write it in quotes.")
    coordinator = _mapping(record.get("coordinator"), where=f"{path}: coordinator")
    for key, value in coordinator.items():
        if value is not None and not isinstance(value, str | int | float):
            raise SettingsError(f"{path}: coordinator.{key}: {value!r} is neither a number nor text.")
    return ConfigFile(
        path=path,
        connection={key: value for key, value in connection.items() if value},
        coordinator={key: value for key, value in coordinator.items() if value is not None},
    )


def _parse(path: Path) -> Any:
    import yaml  # here, because most commands find no config file and need not pay for it

    try:
        return yaml.safe_load(path.read_bytes())
    except OSError as exc:
        raise SettingsError(f"{path}: cannot be read: {exc.strerror}.") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{line}: this is no YAML: {getattr(exc, 'problem', None) or exc}.") from exc


def _mapping(value: Any, *, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: a mapping of keys to values is expected, this is a {type(value).__name__}.")
    return value
