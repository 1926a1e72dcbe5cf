"""A real Azurite for tests: the pinned one of ``package.json``, on free ports.

``shared_azurite`` is the one emulator of a test process; tests that stop, break or configure an emulator start their
own :class:`Azurite`. A missing installation is an error and never a skip: a suite that skips proves nothing.

Two habits of Azurite 3.37 shape this file. It does not leave on SIGTERM while a client holds a connection, so its
process group is killed. And told to keep its data in memory it answers nobody for most of a minute while it cleans up
after thousands of messages, which it does once a minute (5,000 tasks: 202 s, and 94 s with files), so its data is always
on disk. ``ensure_healthy`` asks every service for an answer and restarts the emulator when one is mute.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import os
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ai4s.jobq.adapters.azure.credentials import AzuritePorts, Service
from tests.support.ports import listener

ALL_SERVICES: tuple[Service, ...] = ("blob", "queue", "table")
BINARIES = Path(__file__).parents[2] / "node_modules" / ".bin"
START_DEADLINE_S = 60.0  # a cold start takes 1-2 s; a loaded build machine may need many times that
ANSWER_S = 5.0  # a healthy service answers an unsigned request in milliseconds
START_TRIES = 5  # somebody else may take a free port between our looking and Azurite's binding


class AzuriteStartError(RuntimeError):
    """Azurite is not installed, or did not come up."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and key (PEM) for https; Azurite then also takes Entra tokens."""

    certificate: Path
    key: Path


class Azurite:
    """One emulator, running between ``start`` and ``stop`` (or inside ``with``).

    ``services`` other than all three run as one process each (``azurite-queue``, ``azurite-table``), as for a user who
    has no need of blobs. ``location`` keeps the data over ``restart`` (less what was written in the last 5 s, as it is
    killed); None means a temporary folder, which a restart forgets. Without ``ports`` free ones are drawn; they stay the
    same over ``restart``.
    ``any_api_version`` False leaves out ``--skipApiVersionCheck``.
    """

    def __init__(
        self,
        *,
        services: Sequence[Service] = ALL_SERVICES,
        ports: AzuritePorts | None = None,
        location: Path | None = None,
        tls: TlsFiles | None = None,
        any_api_version: bool = True,
    ) -> None:
        self.services = tuple(services)
        self.ports = ports or free_ports()
        self._ports_are_given = ports is not None
        self._location = location
        self._tls = tls
        self._any_api_version = any_api_version
        self._processes: list[subprocess.Popen[bytes]] = []
        self._forgotten: tempfile.TemporaryDirectory[str] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return bool(self._processes) and all(process.poll() is None for process in self._processes)

    def port(self, service: Service) -> int:
        return {"blob": self.ports.blob, "queue": self.ports.queue, "table": self.ports.table}[service]

    def start(self) -> None:
        """Start it and wait until every service answers. Raises: ``AzuriteStartError``."""
        for tries_left in reversed(range(START_TRIES)):
            try:
                self.restart()
            except AzuriteStartError:
                if self._ports_are_given or not tries_left:
                    raise
                self.ports = free_ports()
            else:
                break

    def restart(self) -> None:
        """Stop it and start it again on the same ports."""
        self.stop()
        try:
            for command in self._commands(self._location or self._new_folder()):
                self._processes.append(self._spawn(command))
            for service in self.services:
                self._wait_for(service)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill it with everything it started. Stopping twice is no error."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):  # it has gone by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        if self._forgotten is not None:
            self._forgotten.cleanup()
            self._forgotten = None

    def ensure_healthy(self) -> None:
        """Start it when it does not run, restart it when a service does not answer."""
        if not self._processes:
            self.start()
        elif not self.running or not all(self.answers(service) for service in self.services):
            self.restart()

    def answers(self, service: Service) -> bool:
        """Whether the service gives any answer, a refusal included, within a few seconds."""
        connection = self._connection(self.port(service))
        try:
            connection.request("GET", "/devstoreaccount1?comp=list")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def _connection(self, port: int) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        trust = ssl.create_default_context(cafile=str(self._tls.certificate))
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=ANSWER_S, context=trust)

    def _new_folder(self) -> Path:
        self._forgotten = tempfile.TemporaryDirectory(prefix="azurite-")
        return Path(self._forgotten.name)

    def _commands(self, location: Path) -> Iterator[list[str]]:
        together = set(self.services) == set(ALL_SERVICES)
        for services in [self.services] if together else [(service,) for service in self.services]:
            name = "azurite" if together else f"azurite-{services[0]}"
            ports = [part for service in services for part in (f"--{service}Port", str(self.port(service)))]
            yield [str(_binary(name)), "--silent", "--disableTelemetry", *ports, *self._options(location)]

    def _options(self, location: Path) -> Iterator[str]:
        if self._any_api_version:
            yield "--skipApiVersionCheck"
        yield from ("--location", str(location))
        if self._tls is not None:
            yield from ("--oauth", "basic", "--cert", str(self._tls.certificate), "--key", str(self._tls.key))

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=tempfile.gettempdir(),  # it writes into the working directory when it is given no location
            start_new_session=True,
        )

    def _wait_for(self, service: Service) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.answers(service):
            if not self.running or time.monotonic() > deadline:
                raise AzuriteStartError(f"Azurite's {service} service did not start: {self._last_words()}")
            time.sleep(0.05)  # between two questions; the loop ends by the answer

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-2000:] or "it printed nothing"


def free_ports() -> AzuritePorts:
    """Three ports of 127.0.0.1 that are free now."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(listener()) for _ in range(3)]
        blob, queue, table = (server.getsockname()[1] for server in servers)
    return AzuritePorts(blob=blob, queue=queue, table=table)


@functools.cache
def shared_azurite() -> Azurite:
    """The emulator of this test process, stopped at its exit; call ``ensure_healthy`` before each use."""
    azurite = Azurite()
    atexit.register(azurite.stop)
    return azurite


def _binary(name: str) -> Path:
    path = BINARIES / name
    if not path.exists():
        raise AzuriteStartError(f"{path} is missing. Install the pinned Azurite in the root of the repository: npm ci")
    return path
