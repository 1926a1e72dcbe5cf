"""Settings of a coordinator. Options, environment names and config keys are derived from these fields."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ai4s.jobq.durations import duration_s
from ai4s.jobq.errors import SettingsError, UsageError

NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """How a coordinator paces itself. Times are in seconds.

    Each field's metadata holds its help text and, of a number, its least and greatest value. Raises ``SettingsError`` out
    of range.
    """

    batch_size: int = field(default=32, metadata={"help": "Messages received at a time.", "low": 1, "high": 32})
    visibility_s: float = field(
        default=30.0, metadata={"help": "Seconds for which received reports stay hidden.", "low": 2, "high": 3600}
    )
    idle_sleep_s: float = field(
        default=0.5,
        metadata={
            "help": "At most seconds before an empty completion queue is looked at again.",
            "low": 0.01,
            "high": 60,
        },
    )
    sweep_s: float = field(
        default=10.0,
        metadata={"help": "Seconds between two looks at all active workflows.", "low": 0.1, "high": 3600},
    )
    queue_window: int = field(
        default=1000, metadata={"help": "Most tasks that wait on one queue at a time.", "low": 1, "high": 100_000}
    )
    task_visibility_s: float = field(
        default=90.0,
        metadata={
            "help": "The workers' visibility timeout in seconds; a task without a message for that long is lost.",
            "low": 1,
            "high": 86_400,
        },
    )
    lease_ttl_s: float = field(
        default=30.0,
        metadata={"help": "Seconds after which a standby takes over from a silent leader.", "low": 3, "high": 600},
    )

    retention: str = field(
        default=NEVER, metadata={"help": "Purge workflows that ended so long ago, such as 7d; or never."}
    )

    def __post_init__(self) -> None:
        self._check_retention()
        for spec in fields(self):
            if "low" not in spec.metadata:
                continue
            value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise SettingsError(f"{spec.name} is {value!r}, it must be a number from {low} to {high}")

    @property
    def retention_s(self) -> float | None:
        """How long ended workflows are kept, in seconds; None: for ever."""
        return None if self.retention == NEVER else duration_s(self.retention)

    def _check_retention(self) -> None:
        try:
            if not isinstance(self.retention, str):
                raise UsageError(f"{self.retention!r}. Expected a text such as 7d, or {NEVER}.")
            retention_s = self.retention_s
        except UsageError as exc:
            raise SettingsError(f"retention is {exc}") from exc
        if retention_s == 0:
            raise SettingsError(
                f"retention is {self.retention!r}: nothing could be looked at after its end. Write {NEVER}, or 1d."
            )
