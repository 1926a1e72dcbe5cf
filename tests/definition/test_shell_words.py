"""Where a value may stand in a command: judged by rules here, and by the shell itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ai4s.jobq.definition.references import render
from ai4s.jobq.definition.shell_words import obstacles
from ai4s.jobq.definition.templates import parse_template
from tests.definition.documents import check_tasks, loaded, only_problem


def _obstacle(cmd: str) -> str | None:
    """What is in the way of the last value of a command, written as @."""
    pieces = parse_template(cmd.replace("@", "${{ params.x }}"))
    return obstacles(pieces).get(max(index for index, piece in enumerate(pieces) if not isinstance(piece, str)))


@pytest.mark.parametrize(
    "cmd",
    [
        "@",
        "run @",
        "run --x=@ --y=@",
        "run pre@post",
        "run 'a b'@\"c\"",
        "run 'it'\"'\"'s' @",
        'run "a \\" b" @',
        "run \\' @",
        "run \\\\@",
        "A=@ run",
        "a=(@ @)",
        "run $(cat @) x",
        'run "$(cat @)"',
        'run "$(cat "a b" @)" x',
        "(cd @ && run)",
        "run > @",
        "diff <(a @) <(b)",
        "run $'a\\'b' @",
        "run `date` @",
        "run ${HOME} @",
        'run "${A:-x}" @',
        "run $((1 + (2 * 3))) @",
        "((n++)); run @",
        "run $[1+2] @",
        "run # don't\nrun @",
        "run a#'b' @",
        "run $# @",
        "cat <<< @",
        "cat <<EOF\ndon't\nEOF\nrun @",
        "cat <<'EOF' && run @\nit's\nEOF",
        "cat <<-\tEOF\n\tdon't\n\tEOF\nrun @",
        "cat <<A <<\"B C\"\nit's\nA\ndon't\nB C\nrun @",
        "cat <<\\EOF\nit's\nEOF\nrun @",
        "echo ) @",
        "if true; then\n  run @\nfi",
    ],
)
def test_value_between_and_beside_words_is_safe(cmd: str) -> None:
    """B13: quoted, it is one word there, or a part of one."""
    assert _obstacle(cmd) is None


@pytest.mark.parametrize(
    ("cmd", "place"),
    [
        ('run "@"', 'inside "…"'),
        ("run '@'", "inside '…'"),
        ("run 'a @ b' c", "inside '…'"),
        ('run "a \\" @"', 'inside "…"'),
        ("run $'a\\' @'", "inside $'…'"),
        ("run `cat @`", "inside `…`"),
        ("run `echo '`'` @", "inside '…'"),  # no quote keeps a backtick from ending the first one
        ("run `echo \\` @`", "inside `…`"),
        ('run "`cat @`"', "inside `…`"),
        ("run $(`cat @`)", "inside `…`"),
        ("run `$(cat @)`", "inside `…`"),
        ("run ${A:-@}", "inside ${…}"),
        ('run "${A:-@}"', "inside ${…}"),
        ("run $((1 + @))", "inside an arithmetic expression"),
        ("run $(((1) + @))", "inside an arithmetic expression"),
        ('run "$((1 + @))"', "inside an arithmetic expression"),
        ("((n = @))", "inside an arithmetic expression"),
        ("run $[1 + @]", "inside an arithmetic expression"),
        ("cat <<EOF\n@\nEOF", "in a here-document"),
        ("cat <<'EOF'\na @ b\nEOF", "in a here-document"),
        ("cat <<EOF\nEOF \n@\nEOF", "in a here-document"),
        ("cat <<A <<B\nA\n@\nB", "in a here-document"),
        ("cat <<EOF\n@EOF\n@\nEOF", "in a here-document"),
        ("run # @", "in a comment"),
        ("# @", "in a comment"),
        ("run;#@", "in a comment"),
        ("run \\@", "after a backslash"),
        ('run "\\@"', "after a backslash"),
        ('run "$(cat "@")"', 'inside "…"'),
        ('run "a" "@', 'inside "…"'),
    ],
)
def test_value_inside_something_else_is_refused(cmd: str, place: str) -> None:
    """B13: there quotes are text, or end what is open, and a value could run as a command."""
    assert _obstacle(cmd) == place


def test_each_value_of_a_command_is_judged() -> None:
    """B13: by the place it has, the ones before it count as words."""
    pieces = parse_template("a ${{ params.x }} \"${{ params.x }}\" ${{ params.x }}'${{ params.x }}'")

    assert list(obstacles(pieces)) == [3, 7]


def test_raw_value_may_stand_anywhere() -> None:
    """B13: whoever writes raw takes it as it is."""
    assert obstacles(parse_template('run "${{ raw(params.x) }}" `${{ raw(params.x) }}`')) == {}


def test_problem_says_what_to_do() -> None:
    """B2: the three ways out."""
    found = only_problem(
        check_tasks("- {name: a}\n- {name: b, depends_on: [a], kwargs: {cmd: \"echo '${{ tasks.a.output }}'\"}}\n")
    )

    assert found.endswith(
        """the reference '${{ tasks.a.output }}' stands inside '…'. """
        """Its value is quoted already: take it out of there, pass it in env and write "$NAME", or use raw(…)."""
    )


def test_value_in_env_may_be_used_in_any_quotes() -> None:
    """B13: the way for every case: the shell never reads the value as text of a command."""
    text = (
        "- {name: a}\n- {name: b, depends_on: [a], kwargs: {cmd: 'echo \"$X\"', env: {X: '${{ tasks.a.output }}'}}}\n"
    )

    assert loaded(check_tasks(text))


HOSTILE = [
    "$(touch hit)",
    "`touch hit`",
    "'; touch hit; '",
    '"; touch hit; "',
    "\n touch hit\n",
    "x\\",
    "-n",
    "* ?",
    "'$(touch hit)'",
]
FRAGMENTS = [
    *(
        "echo a",
        " ",
        " ",
        "@",
        "@",
        "'",
        '"',
        "`",
        "$(",
        ")",
        "${A:-",
        "}",
        "$((",
        "((",
        "\\",
        "#",
        "\n",
        ";",
        "|",
        "&&",
    ),
    *("<<E\n", "\nE\n", "<<'E'\n", "$'", "b", "1", "<<<", "(", "$[", "]"),
]


@given(parts=st.lists(st.sampled_from(FRAGMENTS), min_size=2, max_size=10), value=st.sampled_from(HOSTILE))
@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
def test_no_value_runs_as_a_command_where_it_is_allowed(parts: list[str], value: str, tmp_path: Path) -> None:
    """B13: whatever stands around it, as bash itself sees it."""
    cmd = "".join(parts)
    assume("@" in cmd and not obstacles(parse_template(cmd.replace("@", "${{ params.x }}"))))
    command = render(cmd.replace("@", "${{ params.x }}"), params={"x": value}, outputs={}, in_cmd=True)

    subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )

    assert not (tmp_path / "hit").exists(), command
