"""Blob names as paths below a container's directory, and back.

Reversible, for any name: nothing escapes from the directory, names differing only in case stay apart on file systems
that fold it, and a blob ``a`` can live beside a blob ``a/b``. Letters, digits, ``-``, ``_`` and ``.`` stay readable:
``logs/5f3a/T1.log`` is the file ``logs@/5f3a@/=t1.log``. A name too long for a file system is a directory named by its
hash that holds the name and the data.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

LONG = "~long"  # cannot be an encoded segment: after ~ there are two hexadecimal digits
LONG_NAME, LONG_DATA = "name", "data"
DIRECTORY_MARK = "@"

_MAX_SEGMENT = 200  # of the 255 bytes a file name may have
_MAX_PATH = 1000  # of the 4096 (Linux) or 1024 (macOS) bytes of a path, most of which macOS users need for theirs
_PLAIN = re.compile(r"[a-z0-9_-](?:[a-z0-9._-]*[a-z0-9_-])?")
_ENCODED_PART = re.compile(r"=([a-z])|((?:~[0-9a-f]{2})+)")


def blob_path(name: str) -> Path:
    """The relative path of the file that holds this blob."""
    *parents, last = [_encoded_segment(segment) for segment in name.split("/")]
    parts = [parent + DIRECTORY_MARK for parent in parents] + [last]
    if max(map(len, parts)) > _MAX_SEGMENT or sum(map(len, parts)) > _MAX_PATH // 2:
        return Path(LONG, hashlib.sha256(name.encode()).hexdigest(), LONG_DATA)
    return Path(*parts)


def segment_of(file_name: str) -> str:
    """The segment that ``blob_path`` encoded as this file or directory name."""
    return _ENCODED_PART.sub(_decoded_part, file_name.removesuffix(DIRECTORY_MARK))


def _encoded_segment(segment: str) -> str:
    if _PLAIN.fullmatch(segment):
        return segment
    text = "".join(map(_encoded_character, segment))
    # A dot at an end hides the file (Unix) or is dropped (Windows).
    if text.startswith("."):
        text = "~2e" + text[1:]
    return text[:-1] + "~2e" if text.endswith(".") else text


def _encoded_character(character: str) -> str:
    if character.isascii() and character.isupper():
        return "=" + character.lower()
    if character in "._-" or (character.isascii() and character.isalnum()):
        return character
    return "".join(f"~{byte:02x}" for byte in character.encode())


def _decoded_part(match: re.Match[str]) -> str:
    letter, encoded = match.groups()
    return letter.upper() if letter else bytes.fromhex(encoded.replace("~", "")).decode()
