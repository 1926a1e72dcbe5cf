"""What an operator may choose about a worker, as one frozen value.

The environment is read in one place, by :func:`worker_settings_from_environment`, and never again: everything else takes
the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ai4s.jobq.errors import SettingsError

WORKFLOW_VISIBILITY_S = 90.0  # three missed renewals, and another worker may have the task
PLAIN_VISIBILITY_S = 600.0  # what plain queues have always used; their users may renew by hand

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of one worker; durations in seconds.

    ``visibility_s`` is how long a message stays hidden without a renewal: the time until somebody else takes over a
    task whose worker vanished. ``idle_timeout_s`` counts from the last finished task; None means that a workflow
    worker stays, and a plain one leaves at the first empty poll. ``time_limit_s`` is soft: no new tasks after it.
    ``kill_timeout_s`` lies between SIGTERM and SIGKILL. ``drain_s`` is how long a finished command's left-over children
    may hold its output open. ``max_consecutive_failures`` counts plain jobs only; None means no limit.
    """

    queue: str
    slots: int = 1
    visibility_s: float = WORKFLOW_VISIBILITY_S
    idle_timeout_s: float | None = None
    max_idle_backoff_s: float = 30.0
    time_limit_s: float | None = None
    cancel_poll_s: float = 30.0
    kill_timeout_s: float = 30.0
    drain_s: float = 5.0
    stop_within_s: float = 15.0
    max_consecutive_failures: int | None = 10
    login_shell: bool = False

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise SettingsError(f"slots: {self.slots} is too few: a worker has at least one")
        for name in ("visibility_s", "max_idle_backoff_s", "cancel_poll_s", "kill_timeout_s", "stop_within_s"):
            _check_positive(name, getattr(self, name))

    @property
    def renew_every_s(self) -> float:
        """A message is renewed when its lease is this old."""
        return self.visibility_s / 3

    @property
    def lease_lost_after_s(self) -> float:
        """Without a renewal for this long, the lease counts as lost: somebody else may hold it soon."""
        return self.visibility_s * 2 / 3


def worker_settings_from_environment(settings: WorkerSettings, environment: Mapping[str, str]) -> WorkerSettings:
    """``settings`` with what ``JOBQ_CANCEL_POLL_INTERVAL``, ``JOBQ_KILL_TIMEOUT`` and ``JOBQ_USE_LOGIN_SHELL`` say.

    Raises: SettingsError: a variable is no positive number of seconds, or no yes or no.
    """
    return replace(
        settings,
        cancel_poll_s=_seconds(environment, "JOBQ_CANCEL_POLL_INTERVAL", settings.cancel_poll_s),
        kill_timeout_s=_seconds(environment, "JOBQ_KILL_TIMEOUT", settings.kill_timeout_s),
        login_shell=_flag(environment, "JOBQ_USE_LOGIN_SHELL", settings.login_shell),
    )


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise SettingsError(f"{name}: {text!r} is no number of seconds; write one such as 30 or 0.5") from None
    _check_positive(name, value)
    return value


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise SettingsError(f"{name}: {value:g} is no duration; write a number of seconds above 0")


def _flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = environment.get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise SettingsError(f"{name}: {text!r} is neither yes nor no; write 1 or 0")
