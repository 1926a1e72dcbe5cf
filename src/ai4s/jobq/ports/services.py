"""The services of one target: where tables, queues and blobs come from."""

from __future__ import annotations

from typing import Protocol

from ai4s.jobq.ports.blob import BlobStore
from ai4s.jobq.ports.queue import Queue
from ai4s.jobq.ports.table import Table


class Services(Protocol):
    """Opens tables, queues and blob containers by name; owns the connections behind them.

    The contract: handles are cheap, do no I/O when made, and the same name gives the same handle. They live as long as
    the services object, which is opened by ``async with`` (see ``adapters.factory.open_services``). Bad names raise
    ``UsageError`` here, not at the first request.
    """

    def table(self, name: str) -> Table: ...

    def queue(self, name: str) -> Queue: ...

    def blobs(self, container: str) -> BlobStore: ...

    @property
    def clock_ahead_s(self) -> float | None:
        """Seconds by which this machine's clock is ahead of the service's (behind: negative), to about a second.

        By the last answer of the service; None before there was any.
        """
        ...

    @property
    def requests(self) -> dict[str, int]:
        """Requests sent so far per kind (``table.get``, ``queue.send`` …), for ``--stats`` and benchmarks."""
        ...
