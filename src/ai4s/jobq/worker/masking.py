"""Keeps secrets of a task's ``env`` out of what is logged, stored and shown of its output.

A secret is the value of a variable whose name says so (``API_TOKEN``), the password in a URL, or the key in a connection
string. Other values stay readable: a log in which every path and number is hidden helps nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = b"***"
SHORTEST = 6  # characters of a value that is hidden for its name: "true" and "1" are no secrets

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS|PWD|CREDENTIAL|CONN(ECTION)?_?STR|SIGNATURE|(^|_)(API|ACCESS|ACCOUNT|PRIVATE|SSH|AUTH|SAS)?_?KEY($|_)"
    r"|(^|_)(SAS|AUTH|COOKIE|BEARER)($|_)",
    re.IGNORECASE,
)
_SECRET_PART = re.compile(
    r"://[^/\s:@]*:(?P<password>[^/\s@]{4,})@"
    r"|(?:AccountKey|SharedAccessKey|SharedAccessSignature|Password|Pwd)=(?P<field>[^;\s]{4,})"
    r"|[?&]sig=(?P<signature>[^&;\s]{4,})",
    re.IGNORECASE,
)


def secrets_of(env: Mapping[str, str]) -> tuple[bytes, ...]:
    """The secrets among these variables, longest first."""
    found: set[str] = set()
    for name, value in env.items():
        if len(value) >= SHORTEST and _SECRET_NAME.search(name):
            found.add(value)
            found.add(value.strip())  # $(…) and shell words drop the line end of a value that was read from a file
        found.update(text for part in _SECRET_PART.finditer(value) for text in part.groups() if text)
    texts = (text.encode("utf-8", "surrogateescape") for text in found if len(text) >= 4)
    return tuple(sorted(texts, key=len, reverse=True))


class Mask:
    """Replaces secrets in one stream, however it is cut into pieces."""

    __slots__ = ("_held", "_pattern", "_secrets")

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = secrets
        self._pattern = re.compile(b"|".join(map(re.escape, secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown now. The end is held back while it may be the beginning of a secret, or of a longer one."""
        data = self._held + data
        shown = len(data) - self._open_end(data)
        for match in self._pattern.finditer(data):
            if match.start() < shown < match.end():  # it began within a secret that is complete
                shown = len(data) - self._open_end(data[match.end() :])
        self._held = data[shown:]
        return self._pattern.sub(MASK, data[:shown])

    def close(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return self._pattern.sub(MASK, held)

    def _open_end(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret."""
        return max(
            (
                size
                for secret in self._secrets
                for size in range(min(len(secret) - 1, len(data)), 0, -1)
                if data.endswith(secret[:size])
            ),
            default=0,
        )
