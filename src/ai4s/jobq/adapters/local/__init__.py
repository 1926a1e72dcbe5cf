"""Everything on one machine, in one directory: tables and queues in an SQLite file, blobs as files beside it."""

from __future__ import annotations

from ai4s.jobq.adapters.local.services import LocalServices, blob_address, open_local

__all__ = ["LocalServices", "blob_address", "open_local"]
