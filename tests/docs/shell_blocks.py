"""The shell blocks of a page, as one bash session: what a reader would type, in the order of the page."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXITS = re.compile(r"#.*exits with (\d+)")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, and the exit code that the page says it has."""

    text: str
    exit_code: int


def commands(page: str) -> list[Command]:
    """The commands of all ``console`` blocks: the lines that begin with a prompt."""
    lines = [line[2:] for block in _BLOCK.findall(page) for line in block.splitlines() if line.startswith("$ ")]
    return [Command(line, int(found[1]) if (found := _EXITS.search(line)) else 0) for line in lines]


def script(typed: list[Command]) -> str:
    """A bash script that runs them one by one and stops at the first that ends otherwise than the page says."""
    lines = ["set -u"]
    for number, command in enumerate(typed):
        text = re.sub(r"^make\b", "make -n", command.text)  # the verbs have tests of their own; here they must exist
        lines += [
            f"echo '--- {number}' >&2",
            text,
            f'code=$?; if [ "$code" -ne {command.exit_code} ]; then echo "exit code $code" >&2; exit 99; fi',
        ]
    return "\n".join(lines)


def run(page: str, *, folder: Path, environment: Mapping[str, str], timeout_s: float) -> None:
    """Run a page's commands; fails with the command that went wrong and what it printed."""
    typed = commands(page)
    log = folder / "session.log"
    with log.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script(typed)],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = shell.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of what the page started
                os.killpg(shell.pid, signal.SIGKILL)
    said = log.read_text(errors="replace")
    last = int(re.findall(r"^--- (\d+)$", said, re.MULTILINE)[-1])
    assert code == 0, f"{typed[last].text!r} went wrong:\n{said[-3000:]}"
