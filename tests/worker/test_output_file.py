"""Reading what a task wrote as its output."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ai4s.jobq.store.outputs import MAX_OUTPUT_BYTES, OutputError
from ai4s.jobq.worker.output_file import read_output_file


async def test_no_file_is_no_output(tmp_path: Path) -> None:
    assert await read_output_file(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "text",
    ["null", "0", '"é🚀"', '{"n": 18446744073709551616, "x": 1e-7}', '["\\ud83d\\ude80"]', "[" * 200 + "]" * 200],
)
async def test_json_is_kept_word_for_word(tmp_path: Path, text: str) -> None:
    path = tmp_path / "output.json"
    path.write_text(f"\n {text} \n", encoding="utf-8")

    assert await read_output_file(str(path)) == text


@pytest.mark.parametrize("size", [32_700, 32_800, 65_500, 65_600, 1_100_000])
async def test_every_size_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "output.json"
    path.write_text(json.dumps("é" * (size // 2), ensure_ascii=False), encoding="utf-8")

    text = await read_output_file(str(path))

    assert text is not None
    assert json.loads(text) == "é" * (size // 2)


async def test_a_byte_order_mark_is_no_part_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "output.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')

    assert await read_output_file(str(path)) == '{"a": 1}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a": ', "line 1 column 6"),
        (b"not json", "no JSON"),
        (b"1 2", "no JSON"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b'{"a": [0.5, -1e999]}', "-1e999"),
        (b'"\\ud800"', "surrogate"),
        (b'"\xff"', "not UTF-8 (byte 1)"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"9" * 5000, "too long"),
    ],
)
async def test_what_is_no_json_is_refused_with_a_reason(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "output.json"
    path.write_bytes(data)

    with pytest.raises(OutputError) as caught:
        await read_output_file(str(path))

    assert words in str(caught.value)


async def test_more_than_256_mib_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "output.json"
    path.touch()
    os.truncate(path, MAX_OUTPUT_BYTES + 1)

    with pytest.raises(OutputError, match="256 MiB"):
        await read_output_file(str(path))


@pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
async def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "output.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/passwd")

    with pytest.raises(OutputError, match="ordinary file"):
        await read_output_file(str(path))
