"""The form of a dead letter, which every adapter writes and ``doctor`` reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai4s.jobq.errors import CorruptRecordError, NewerVersionError
from ai4s.jobq.ports.dead_letters import DeadLetter, dead_letter_body, dead_letter_queue_name, read_dead_letter
from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES, check_queue_name
from ai4s.jobq.ports.queue import Message


def message(body: str, message_id: str = "id") -> Message:
    return Message(message_id=message_id, body=body, receipt="r", delivery_count=1, sent_at_s=0)


@given(st.text(), st.text(max_size=500), st.text(max_size=200))
def test_dead_letter_comes_back_as_it_was_written(body: str, reason: str, message_id: str) -> None:
    letter = dead_letter_body(message(body, message_id), reason)

    assert letter.isascii()
    assert read_dead_letter(letter) == DeadLetter(message_id=message_id, reason=reason, body=body)


def test_large_compressible_body_comes_back_whole() -> None:
    body = '{"é":"\\u00e9"}' * 4500

    letter = dead_letter_body(message(body), "reason")

    assert len(letter) <= MAX_MESSAGE_BYTES
    assert read_dead_letter(letter).body == body


def test_body_that_cannot_be_compressed_is_cut_with_a_mark() -> None:
    noise = random.Random(1)
    body = "".join(chr(noise.randrange(0x21, 0x7F)) for _ in range(MAX_MESSAGE_BYTES))

    letter = dead_letter_body(message(body), "é" * 10_000)

    read = read_dead_letter(letter)
    kept, mark, _ = read.body.partition(" [cut from 65536 characters]")
    assert len(letter) <= MAX_MESSAGE_BYTES
    assert mark
    assert len(kept) > 50_000
    assert body.startswith(kept)
    assert read.reason == "é" * 500


@pytest.mark.parametrize("body", ["", "hello", "[]", "{}", "null", '{"v":1}', '{"v":1,"deflated":"!","message_id":"","reason":""}', '{"v":0}'])  # fmt: skip
def test_other_text_is_no_dead_letter(body: str) -> None:
    with pytest.raises(CorruptRecordError):
        read_dead_letter(body)


def test_newer_dead_letter_is_told_from_a_damaged_one() -> None:
    with pytest.raises(NewerVersionError, match="Upgrade"):
        read_dead_letter('{"v":2}')


def test_dead_letters_are_kept_beside_their_queue() -> None:
    assert dead_letter_queue_name("proj-gpu") == "proj-gpu-failed"


def test_long_queue_names_have_legal_and_different_dead_letter_queues() -> None:
    names = ["x" * 62 + "a", "x" * 62 + "b", "x" * 46 + "-" + "y" * 16]

    dead = [dead_letter_queue_name(name) for name in names]

    for name in dead:
        check_queue_name(name)
    assert len(set(dead)) == len(names)
