"""Everything on one machine, in one directory: tables and queues in an SQLite file, blobs as files beside it."""

from __future__ import annotations

from ai4s.jobq.adapters.local.services import LocalServices, open_local

__all__ = ["LocalServices", "open_local"]
