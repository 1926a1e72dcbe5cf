"""Files and directories as outputs: ``BlobStasher`` puts one into ``set_output``, ``BlobStash`` is what a reader gets.

All three are mappings that hold nothing but their own marker, so that any JSON encoder can write them, also into the output
of a task that passes on what it got.
"""

from __future__ import annotations

from ai4s.jobq.stash.values import BlobStash, BlobStashDirectory, BlobStasher, loads

__all__ = ["BlobStash", "BlobStashDirectory", "BlobStasher", "loads"]
