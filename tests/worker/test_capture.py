"""What is kept of a command's output."""

from __future__ import annotations

import logging

import pytest

from ai4s.jobq.worker.capture import KEPT_BYTES, MAX_ERROR_BYTES, Capture, LineLog, error_text, fit_error, readable


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("tab\there", "tab\there"),
        ("next\u2028line", "next\nline"),
        ("half \ud83d of one", "half  of one"),
        ("grüße 🚀", "grüße 🚀"),
    ],
)
def test_shown_text_has_no_control_characters(raw: str, shown: str) -> None:
    assert readable(raw) == shown


def test_the_end_of_a_stream_is_kept_whatever_comes_before() -> None:
    capture = Capture()

    for number in range(20_000):
        capture.feed(b"line %d\n" % number)

    text = capture.text()
    assert text.endswith("line 19999\n")
    assert KEPT_BYTES - 20 <= len(text) <= KEPT_BYTES


def test_a_single_large_piece_is_cut_to_its_end() -> None:
    capture = Capture()

    capture.feed(b"x" * 1_000_000 + b"end")

    assert capture.text() == "x" * (KEPT_BYTES - 3) + "end"


def test_an_error_keeps_its_reason_and_the_last_lines() -> None:
    capture = Capture()
    capture.feed("".join(f"Zeile {number} ü\n" for number in range(2000)).encode())

    error = error_text("exit code 1", capture)

    assert error.startswith("exit code 1\n")
    assert error.endswith("Zeile 1999 ü")
    assert len(error.encode()) <= MAX_ERROR_BYTES


@pytest.mark.parametrize("char", ["x", "é", "語", "🚀"])
def test_an_error_of_any_text_fits(char: str) -> None:
    assert len(fit_error(char * 10_000).encode()) <= MAX_ERROR_BYTES
    assert len(fit_error(f"{char * 3000}\n{char * 10_000}").encode()) <= MAX_ERROR_BYTES


def test_a_character_split_between_two_reads_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    lines = LineLog(logging.getLogger("printed"), logging.WARNING, {})

    lines.feed(b"caf\xc3")
    lines.feed(b"\xa9\nrest")
    lines.close()

    assert [record.getMessage() for record in caplog.records] == ["café", "rest"]


def test_an_endless_line_is_logged_in_pieces(caplog: pytest.LogCaptureFixture) -> None:
    lines = LineLog(logging.getLogger("printed"), logging.WARNING, {})

    for _ in range(100):
        lines.feed(b"x" * 1000)
    lines.close()

    assert sum(len(record.getMessage()) for record in caplog.records) == 100_000
    assert max(len(record.getMessage()) for record in caplog.records) <= 8192
