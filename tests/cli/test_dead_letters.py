"""A23, D07: what was set aside can be seen, put back, and dropped."""

from __future__ import annotations

import random
import string

import pytest

from ai4s.jobq.ports.limits import MAX_MESSAGE_BYTES
from ai4s.jobq.store.workflows import WorkflowStore
from tests.cli.conftest import Program, flow, task
from tests.cli.operations import in_store, set_aside

COMPLETIONS = "default-workflow-completions"


def bodies(program: Program, queue: str) -> list[str]:
    async def act(store: WorkflowStore) -> list[str]:
        return [message.body for message in await store.services.queue(queue).peek(32)]

    return in_store(program, act)


def letter_ids(program: Program) -> list[str]:
    return [
        letter["message_id"]
        for box in program.workflow("dead-letters", "list", "--json").json
        for letter in box["letters"]
    ]


def test_letters_of_the_completion_queue_and_of_known_task_queues_are_listed(program: Program) -> None:
    program.submit(flow(task("a", queue="gpu")))
    set_aside(program, COMPLETIONS, "hello")
    set_aside(program, "gpu", "{}")
    set_aside(program, "nobody-knows-it", "[]")

    answer = program.workflow("dead-letters", "list", "--json")

    assert [(box["queue"], box["count"]) for box in answer.json] == [(COMPLETIONS, 1), ("gpu", 1)]
    assert answer.json[0]["letters"][0]["reason"] == "the message is no JSON"
    named = program.workflow("dead-letters", "list", "--queue", "nobody-knows-it")
    assert named.out.splitlines()[1].split()[:2] == ["nobody-knows-it", "m0"]


def test_a_list_shows_32_of_each_queue_and_says_so(program: Program) -> None:
    for number in range(2):
        set_aside(program, COMPLETIONS, *(f"body {number} {item}" for item in range(20)))

    answer = program.workflow("dead-letters", "list", "--json")

    assert (answer.json[0]["count"], len(answer.json[0]["letters"])) == (40, 32)
    assert answer.talk == [f"(showing 32 of 40 of queue {COMPLETIONS})"]


def test_a_list_shows_no_body_and_show_does(program: Program) -> None:
    """L01: a task message holds the environment of its command."""
    set_aside(program, COMPLETIONS, "s3cr3t \x1b[2J")

    assert "s3cr3t" not in program.workflow("dead-letters", "list", "--json").out
    shown = program.workflow("dead-letters", "show", "m0")
    assert shown.out.splitlines()[-1] == "s3cr3t \\x1b[2J"
    assert program.workflow("dead-letters", "show", "m0", "--json").json["body"] == "s3cr3t \x1b[2J"


def test_requeue_puts_the_message_back_as_it_was(program: Program) -> None:
    body = '{"v": 1, "text": "naïve ☃"}'
    set_aside(program, COMPLETIONS, body, "other")

    answer = program.workflow("dead-letters", "requeue", "m0", "--json")

    assert answer.json == {"requeued": 1, "queues": {COMPLETIONS: 1}}
    assert bodies(program, COMPLETIONS) == [body]
    assert letter_ids(program) == ["m1"]


def test_all_can_be_put_back(program: Program) -> None:
    set_aside(program, COMPLETIONS, "a", "b", "c")

    assert program.workflow("dead-letters", "requeue", "--all").out == "3 messages put back.\n"
    assert sorted(bodies(program, COMPLETIONS)) == ["a", "b", "c"]


def test_a_letter_beyond_the_first_32_is_found(program: Program) -> None:
    set_aside(program, COMPLETIONS, *(f"body {number}" for number in range(20)))
    set_aside(program, COMPLETIONS, *(f"more {number}" for number in range(13)), "the last")

    assert program.workflow("dead-letters", "show", "m13").code == 0
    assert len(letter_ids(program)) == 32


def test_a_message_that_was_cut_is_not_put_back(program: Program) -> None:
    choice = random.Random(1).choice  # what cannot be deflated does not fit with its reason
    noise = "".join(choice(string.printable[:90]) for _ in range(MAX_MESSAGE_BYTES))
    set_aside(program, COMPLETIONS, noise)

    answer = program.workflow("dead-letters", "requeue", "m0")

    assert answer.code == 1
    assert "cannot be put back" in answer.err
    assert program.workflow("dead-letters", "show", "m0", "--json").json["whole"] is False
    assert bodies(program, COMPLETIONS) == []


def test_drop_deletes_what_is_named(program: Program) -> None:
    set_aside(program, COMPLETIONS, "a", "b")

    assert program.workflow("dead-letters", "drop", "m0", "--yes").out == "1 message deleted.\n"
    assert letter_ids(program) == ["m1"]


def test_drop_without_a_terminal_needs_yes_and_deletes_nothing(program: Program) -> None:
    set_aside(program, COMPLETIONS, "a")

    answer = program.workflow("dead-letters", "drop", "--all", stdin="y\n")

    assert answer.code == 2
    assert "--yes" in answer.err
    assert letter_ids(program) == ["m0"]


@pytest.mark.parametrize("command", [("requeue",), ("drop", "--yes")])
def test_nothing_or_both_named_is_a_usage_error(program: Program, command: tuple[str, ...]) -> None:
    assert program.workflow("dead-letters", *command).code == 2
    assert program.workflow("dead-letters", *command, "m0", "--all").code == 2


@pytest.mark.parametrize("command", [("show",), ("requeue",), ("drop", "--yes")])
def test_an_unknown_id_is_an_error(program: Program, command: tuple[str, ...]) -> None:
    assert program.workflow("dead-letters", *command, "nope").code == 1


def test_none_is_no_error(program: Program) -> None:
    assert program.workflow("dead-letters", "list").out == "No dead letters.\n"
    assert program.workflow("dead-letters", "list", "--json").json == []
    assert program.workflow("dead-letters", "drop", "--all", "--yes").out == "0 messages deleted.\n"
