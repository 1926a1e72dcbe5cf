"""C2, K05, K07, K09: what tasks printed, for people and for pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from ai4s.jobq.cli.logs import LastLines
from tests.cli.conftest import Program, flow, task
from tests.support.project import Project, until
from tests.support.streams import pipe


@pytest.fixture
def printed(program: Program) -> str:
    """The id of a workflow whose tasks have printed this and that."""
    steps = flow(
        task("talks", "seq 5; echo oops >&2"),
        task("silent"),
        task("wild", r"printf '\033[2Jred\r 50%%\r100%%\n\033[31mcaf\303\251\033[0m\377\n'"),
        task("retries", "echo attempt $JOBQ_WORKFLOW_ATTEMPT; exit 1", num_retries=1),
        task("never", depends_on=["retries"]),
    )
    answer = program.workflow("run", program.write(steps), "--json")
    return str(answer.json["workflow_id"])


def test_logs_shows_both_streams(program: Program, printed: str) -> None:
    answer = program.workflow("logs", printed, "talks")

    assert answer.code == 0
    assert sorted(answer.out.split()) == ["1", "2", "3", "4", "5", "oops"]
    assert answer.talk == []


def test_tail_shows_the_last_lines_only(program: Program, printed: str) -> None:
    every = program.workflow("logs", printed, "talks").out.splitlines()

    assert program.workflow("logs", printed, "talks", "--tail", "2").out.splitlines() == every[-2:]
    assert program.workflow("logs", printed, "talks", "--tail", "0").out == ""
    assert program.workflow("logs", printed, "talks", "--tail", "99").out.splitlines() == every


def test_the_last_attempt_is_shown_unless_another_is_asked_for(program: Program, printed: str) -> None:
    assert program.workflow("logs", printed, "retries").out == "attempt 2\n"
    assert program.workflow("logs", printed, "retries", "--attempt", "1").out == "attempt 1\n"


def test_an_attempt_that_was_not_made_is_an_error(program: Program, printed: str) -> None:
    answer = program.workflow("logs", printed, "retries", "--attempt", "3")

    assert answer.code == 5
    assert answer.talk == [f"Error: 'retries' of {printed!r} has no attempt 3: it has had 2."]


def test_an_unknown_task_is_told_with_near_names(program: Program, printed: str) -> None:
    answer = program.workflow("logs", printed, "talk")

    assert answer.code == 5
    assert answer.out == ""
    assert answer.talk == [f"Error: Workflow {printed!r} has no task 'talk'. Did you mean 'talks'?"]


def test_a_task_that_printed_nothing_is_said_to(program: Program, printed: str) -> None:
    silent, never = program.workflow("logs", printed, "silent"), program.workflow("logs", printed, "never")

    assert (silent.code, silent.out) == (0, "")
    assert silent.talk == [f"Nothing was captured of attempt 1 of 'silent' of {printed}."]
    assert (never.code, never.out) == (0, "")
    assert never.talk == ["'never' was never started, so there is no output."]


def test_an_earlier_attempt_that_printed_is_pointed_at(program: Program) -> None:
    steps = flow(task("a", "test $JOBQ_WORKFLOW_ATTEMPT = 2 || { echo first; exit 1; }", num_retries=1))
    workflow_id = str(program.workflow("run", program.write(steps), "--json").json["workflow_id"])

    answer = program.workflow("logs", workflow_id, "a")

    assert answer.talk[0].endswith("Of attempt 1 there is some: add --attempt 1")


def test_a_pipe_gets_every_byte_as_it_was_printed(here: Project) -> None:
    workflow_id = run(here, "wild", r"printf '\033[2Jred\r 50%%\n\377\000\n'")

    answer = here.told("workflow", "logs", workflow_id, "wild")

    assert answer.stdout == b"\x1b[2Jred\r 50%\n\xff\x00\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_gets_no_control_characters(here: Project, encoding: str) -> None:
    workflow_id = run(here, "wild", r"printf '\033[2Jred\r 50%%\r100%%\n\ta\033[31mb\033[0m\377\303\251\010\n'")
    here.forks = None
    here.environment["PYTHONIOENCODING"] = encoding

    _, shown = here.on_terminal("workflow", "logs", workflow_id, "wild")

    assert "\x1b" not in shown
    assert shown.splitlines()[1] == "100%"
    assert "\tab" in shown
    assert "\x08" not in shown


def test_following_shows_what_comes_until_the_task_is_over(here: Project) -> None:
    step = task("slow", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two")
    write(here, flow(step))
    running = here.start("workflow", "run", "flow.json", log="run.log")
    workflow_id = first_id(here)
    followed, err = here.folder / "followed", here.folder / "err"
    following = here.begin("workflow", "logs", workflow_id, "slow", "--follow", out=followed, err=err)
    until(lambda: followed.exists() and followed.read_bytes() == b"one\n", "the first line")
    (here.folder / "go").touch()

    assert following.wait(60) == 0
    running.wait(60)
    assert followed.read_bytes() == b"one\ntwo\n"


def test_following_a_task_that_ended_silently_ends_too(
    program: Program, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ai4s.jobq.views.log_reading.LATE_S", 0.1)
    monkeypatch.setattr("ai4s.jobq.views.log_reading.LOOK_S", 0.05)
    answer = program.workflow("logs", printed, "silent", "--follow")

    assert answer.code == 0
    assert answer.talk[-1].startswith("Nothing was captured")


def test_a_reader_that_closes_the_pipe_ends_it_silently(here: Project) -> None:
    """K05."""
    workflow_id = run(here, "much", "seq 300000")
    with pipe(here.folder) as out:
        process = here.begin("workflow", "logs", workflow_id, "much", out=out.path, err=here.folder / "err")
        assert out.line() == b"1\n"
        out.close()

        assert process.wait(60) == 141
    assert (here.folder / "err").read_text().count("\n") == 1


def test_what_was_not_kept_is_marked(program: Program) -> None:
    workflow_id = run_one(program, task("much", "seq -f '%012.0f' 1000000"))

    out = program.workflow("logs", workflow_id, "much").out

    assert out.startswith("000000000001\n")
    assert out.endswith("000001000000\n")
    assert "bytes were not kept ...]" in out


def test_output_of_a_store_that_was_never_used_is_an_unknown_workflow(program: Program) -> None:
    assert program("workflow", "local/never", "logs", "x", "y").code == 5


@pytest.mark.parametrize(
    ("pieces", "most", "text"),
    [([b"a\nb", b"c\nd"], 2, b"bc\nd"), ([b"a\n", b"b\n"], 1, b"b\n"), ([], 3, b""), ([b"x"], 0, b"")],
)
def test_last_lines_are_found_across_pieces(pieces: list[bytes], most: int, text: bytes) -> None:
    last = LastLines(most)
    for piece in pieces:
        last.add(piece)

    assert last.text() == text


def run_one(program: Program, step: dict[str, object]) -> str:
    return str(program.workflow("run", program.write(flow(step)), "--json").json["workflow_id"])


def write(here: Project, definition: Mapping[str, object]) -> None:
    (here.folder / "flow.json").write_text(json.dumps(definition))


def run(here: Project, name: str, cmd: str) -> str:
    write(here, flow(task(name, cmd)))
    here.cli("workflow", "run", "flow.json")
    return first_id(here)


def first_id(here: Project) -> str:
    until(lambda: bool(here.json("list")), "the workflow")
    return str(here.json("list")[0]["workflow_id"])
