"""What a check finds, and the report made of it. The JSON is a promise to scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How serious a finding is. Only ``fail`` makes the examination fail; ``info`` is not counted."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was looked at, what was seen, and what to do about it (None: nothing)."""

    verdict: Verdict
    name: str
    message: str
    hint: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"name": self.name, "status": str(self.verdict), "message": self.message, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one examination, in the order of the checks."""

    findings: Sequence[Finding]

    def count(self, verdict: Verdict) -> int:
        return sum(finding.verdict is verdict for finding in self.findings)

    @property
    def has_failed(self) -> bool:
        return self.count(Verdict.FAIL) > 0

    def to_json(self) -> dict[str, object]:
        counted = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
        return {
            "checks": [finding.to_json() for finding in self.findings],
            "summary": {str(verdict): self.count(verdict) for verdict in counted},
        }
