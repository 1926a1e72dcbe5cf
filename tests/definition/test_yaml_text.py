"""YAML text: what is kept as written, and what is refused in one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import yaml

from ai4s.jobq.definition.document import ListNode, MappingNode, Node, Scalar
from ai4s.jobq.definition.tree_builder import TreeBuilder
from ai4s.jobq.definition.yaml_text import read_yaml
from tests.definition.documents import check_tasks, check_yaml, kwargs_of, loaded, only_problem, problems, tasks_of

GOOD = "name: é\ntasks:\n- name: a\n  kwargs:\n    cmd: |\n      echo a\n      echo b\n"


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("- name: a\n  depends_on: [b]\n  kwargs: {}\n  depends_on: [c]\n", "depends_on", "lines 4 and 6"),
        ("- name: a\n  kwargs:\n    cmd: x\n    cmd: y\n", "cmd", "lines 5 and 6"),
        ("- name: a\ntasks:\n- name: b\n", "tasks", "lines 2 and 4"),
        ("- name: a\n  kwargs: {free: {x: 1, 'x': 2}}\n", "x", "both on line 4"),
    ],
)
def test_duplicate_key_is_refused_with_both_lines(text: str, key: str, lines: str) -> None:
    """A01: the last of two equal keys must not win silently."""
    found = next(line for line in problems(check_tasks(text)) if "duplicate" in line)

    assert f"duplicate key {key!r} ({lines})" in found


@pytest.mark.parametrize("word", ["NO", "no", "on", "off", "yes", "Y", "true", "False", "=", "<<x"])
def test_word_of_yaml_1_1_stays_the_name_that_was_written(word: str) -> None:
    """A02: no task is ever called True."""
    tasks = tasks_of(f"- name: {word}\n- name: child\n  depends_on: [{word}]\n")

    assert (tasks[0].name, tasks[1].depends_on) == (word, (word,))


@pytest.mark.parametrize(
    "word", ["NO", "on", "true", "1.10", "08", "012", "1:30", "0x1F", "1_000", "1e3", ".inf", "2024-01-01"]
)
def test_variable_has_the_value_that_was_written(word: str) -> None:
    """A02, A03: env values are text, whatever they look like."""
    assert kwargs_of(f"{{env: {{V: {word}}}}}")["env"] == {"V": word}


@pytest.mark.parametrize("name", ["012", "1:30", "0x1F", "1_000", "1.10", "7", "-5", "1e3"])
def test_number_looking_name_is_kept(name: str) -> None:
    """A03: task 012 does not become task 10."""
    tasks = tasks_of(f"- name: {name}\n- {{name: child, depends_on: [{name}]}}\n")

    assert (tasks[0].name, tasks[1].depends_on) == (name, (name,))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("9007199254740993", 9007199254740993),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("NO", "NO"),
        ("012", "012"),
        ("0x1F", "0x1F"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2024-01-01", "2024-01-01"),
        ("-x", "-x"),
    ],
)
def test_free_value_is_a_number_only_where_everybody_would_say_so(written: str, value: object) -> None:
    """A02, A03: elsewhere in kwargs a bare word has the type it has in YAML 1.2, without its surprises."""
    (task,) = tasks_of(f"- name: a\n  kwargs:\n    x: {written}\n")

    assert task.kwargs["x"] == value
    assert type(task.kwargs["x"]) is type(value)


def test_bare_word_in_a_text_field_is_text() -> None:
    """A03: a command may be called 5 or true."""
    assert kwargs_of("{cmd: true, cwd: 012}") == {"cmd": "true", "cwd": "012"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("---\n", "must be a mapping"),
        ("hello\n", "must be a mapping, this is the string 'hello'"),
        ("- a\n- b\n", "must be a mapping, this is a list"),
        ("name: w\ntasks:\n", "flow.yaml:2:7: tasks: 'tasks' has no value, it must be a list of tasks"),
        ("name: w\ntasks: []\n", "'tasks' must not be empty"),
        ("name: w\ntasks: {a: {}}\n", "'tasks' must be a list of tasks, this is a mapping"),
        ("name: w\ntasks:\n- name:\n", "flow.yaml:3:8: tasks[0].name: 'name' has no value, it must be a string"),
        ("name: w\ntasks:\n- {name: a, kwargs: {cmd: ~}}\n", "'cmd' has no value"),
        ("name: w\ntasks:\n- {name: a, kwargs: {cmd: {a}}}\n", "'cmd' must be a string, this is a mapping. Quote it"),
        ("name: w\ntasks:\n\t- name: a\n", "flow.yaml:3:1: tasks: not valid YAML"),
        ("name: w\ntasks:\n- {name: a, kwargs: {cmd: *.txt}}\n", "Quote a text that begins with such a character"),
        ("name: w\ntasks:\n- {name: a, kwargs: {cmd: *txt}}\n", "no anchor '&txt' before this alias. Quote it"),
        ("name: w\ntasks:\n- name: a\n  kwargs: {cmd: !foo x}\n", "the tag '!foo' is not allowed here. Quote it"),
        ("name: w\ntasks:\n- name: a\n  kwargs:\n    cmd: %s\n", "Quote a text that begins with such a character"),
        ("name: w\ntasks:\n- name: a\n  kwargs:\n    cmd: a: b\n", "Quote a text that holds ': '"),
        ("name: w\x01\n", "flow.yaml:1:8: the character U+0001 is not allowed in YAML"),
    ],
)
def test_wrong_file_is_refused_in_one_line(text: str, expected: str) -> None:
    """A05: file, line, field and what is expected; never a traceback."""
    assert expected in only_problem(check_yaml(text))


def test_tab_is_told_from_other_syntax_errors() -> None:
    """A05: an indentation by tabs says so."""
    assert "Indent with blanks" in only_problem(check_yaml("name: w\ntasks:\n\t- name: a\n"))


def _bomb(field: str) -> str:
    levels = "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    return f"name: w\ntasks:\n- name: a\n  {field}:\n    a0: &a0 [{', '.join(['lol'] * 9)}]\n{levels}"


@pytest.mark.parametrize("field", ["kwargs", "unknown"])
def test_alias_bomb_is_refused_unexpanded(field: str) -> None:
    """A06: nine levels of nine aliases would be 387 million items."""
    tracemalloc.start()
    found = problems(check_yaml(_bomb(field)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "aliases of this document are far too large" in found[-1]
    assert peak_bytes < 10_000_000


def test_bomb_of_merge_keys_is_refused_unexpanded() -> None:
    """A06: merging copies keys, so a chain of merges grows with the square of the file."""
    keys = ", ".join(f"k{n}: v" for n in range(10_000))
    links = "".join(f"- &m{n} {{<<: *m{n - 1}}}\n" for n in range(1, 2000))

    assert "far too large" in problems(check_yaml(f"- &m0 {{{keys}}}\n{links}"))[0]


def test_task_that_aliases_make_too_large_is_refused_unread() -> None:
    """A06: a bomb below the document's limit is stopped by that of the task."""
    levels = "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 6))

    found = check_yaml(f"name: w\ntasks:\n- name: a\n  kwargs:\n    a0: &a0 [{', '.join(['lol'] * 9)}]\n{levels}")

    assert "this task is larger than 256 KiB" in only_problem(found)


def test_ordinary_anchors_work() -> None:
    """A06: an alias is a copy of its value."""
    first, second = tasks_of("- {name: a, kwargs: {env: &e {A: 1}}}\n- {name: b, kwargs: {env: *e}}\n")

    assert first.kwargs == second.kwargs == {"env": {"A": "1"}}


@pytest.mark.parametrize("value", ["&x [*x]", "&x {y: *x}", "&x [[*x]]"])
def test_value_that_contains_itself_is_refused(value: str) -> None:
    """A07: a recursive alias."""
    assert "contains itself" in only_problem(check_tasks(f"- name: a\n  kwargs:\n    x: {value}\n"))


@pytest.mark.parametrize(
    "value",
    [
        "[" * 2000,
        "[" * 200 + "]" * 200,
        "{a: " * 200 + "1" + "}" * 200,
        "\n" + "".join(f"{' ' * (6 + n)}-\n" for n in range(500)),
        "[&a " + "[" * 60 + "]" * 60 + ", &b " + "[" * 60 + "*a" + "]" * 60 + "]",
    ],
    ids=["unclosed", "lists", "mappings", "block", "by alias"],
)
def test_very_deep_nesting_is_refused(value: str) -> None:
    """A07: no RecursionError, at whatever depth."""
    found = only_problem(check_tasks(f"- name: a\n  kwargs:\n    x: {value}\n"))

    assert "nest" in found


@pytest.mark.parametrize("second", ["name: x\ntasks: [{name: b}]\n", "", "# nothing\n"])
def test_second_document_is_refused(second: str) -> None:
    """A08: the first one never wins silently, and a stray separator is a second document."""
    found = only_problem(check_yaml(f"name: w\ntasks: [{{name: a}}]\n---\n{second}"))

    assert found.startswith("flow.yaml:3:1: a second document begins here")


def test_markers_around_one_document_are_accepted() -> None:
    """A08: one workflow may be wrapped in its own markers."""
    assert loaded(check_yaml("%YAML 1.1\n---\nname: w\ntasks: [{name: a}]\n...\n")).name == "w"


@pytest.mark.parametrize(
    "data", [GOOD.encode(), GOOD.encode("utf-8-sig"), GOOD.replace("\n", "\r\n").encode()], ids=["plain", "bom", "crlf"]
)
def test_byte_order_mark_and_crlf_change_nothing(data: bytes) -> None:
    """A09: the same good file, saved by another editor."""
    definition = loaded(check_yaml(data))

    assert (definition.name, definition.tasks[0].kwargs["cmd"]) == ("é", "echo a\necho b\n")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-16", "UTF-16 (byte 0)"), ("utf-32", "UTF-32 (byte 0)"), ("latin-1", "byte 6 (0xE9) is not UTF-8")],
)
def test_other_encoding_is_refused_with_the_byte(encoding: str, expected: str) -> None:
    """A09: one line that says where."""
    assert expected in only_problem(check_yaml(GOOD.encode(encoding)))


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_file_reads_alike_in_every_locale(tmp_path: Path, locale: str) -> None:
    """A09: the locale decides nothing."""
    path = tmp_path / "flow.yaml"
    path.write_bytes(GOOD.encode())
    code = f"from ai4s.jobq.definition.load import load_file; print(ascii(load_file({str(path)!r}).name))"
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("'\\xe9'\n", "")


@pytest.mark.parametrize(
    ("written", "command"),
    [
        ("echo a #b", "echo a"),
        ("echo s=\\t test", "echo s=\\t test"),
        ('"echo s=\\t test"', "echo s=\t test"),
        ("'echo s=\\t $$ {x} %d'", "echo s=\\t $$ {x} %d"),
        (">\n      one\n      two\n", "one two\n"),
        ("|-\n      one\n        two\n", "one\n  two"),
    ],
)
def test_command_is_what_yaml_yields(written: str, command: str) -> None:
    """A14: no expansion of our own."""
    (task,) = tasks_of(f"- name: a\n  kwargs:\n    cmd: {written}\n")

    assert task.kwargs["cmd"] == command


SHARED_BASE = """\
- &base
  name: a
  num_retries: 2
  kwargs: &kwargs
    cmd: run
    env: &env {A: 1, B: 2}
- <<: *base
  name: b
  kwargs:
    <<: *kwargs
    env: {<<: *env, A: x}
- <<: *base
  name: c
"""


def test_merge_keys_give_each_task_its_own_values() -> None:
    """A15: an override stays with its task."""
    a, b, c = tasks_of(SHARED_BASE)

    assert [task.kwargs["env"]["A"] for task in (a, b, c)] == ["1", "x", "1"]
    assert b.kwargs == {"cmd": "run", "env": {"A": "x", "B": "2"}}
    assert c.num_retries == 2


def test_merged_tasks_share_nothing_mutable() -> None:
    """A15: changing one changes no other."""
    a, _, c = tasks_of(SHARED_BASE)

    a.kwargs["env"]["A"] = "changed"

    assert c.kwargs["env"]["A"] == "1"


def test_tasks_may_be_merged_in_a_long_chain() -> None:
    """A15: merging adds no level of nesting."""
    links = "".join(f"- &t{n} {{<<: *t{n - 1}, name: t{n}}}\n" for n in range(1, 300))

    assert tasks_of(f"- &t0 {{name: t0, num_retries: 3}}\n{links}")[-1].num_retries == 3


def test_first_of_several_merged_mappings_wins() -> None:
    """A15: as the YAML merge key says."""
    assert kwargs_of("{x: &x {k: 1}, y: &y {k: 2, l: 2}, z: {<<: [*x, *y]}}")["z"] == {"k": 1, "l": 2}


@pytest.mark.parametrize("value", ["1", "[*x, 2]", "text"])
def test_merging_something_else_is_refused(value: str) -> None:
    """A15: only mappings can be merged."""
    found = only_problem(check_tasks(f"- name: a\n  kwargs: {{x: &x {{}}, y: {{<<: {value}}}}}\n"))

    assert "'<<' merges a mapping or a list of mappings" in found


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['touch {}']",
        "!!python/name:os.system",
        "!!binary aGk=",
        "!!set {{a}}",
        "!x [1]",
    ],
)
def test_foreign_tag_is_refused_and_runs_nothing(tmp_path: Path, value: str) -> None:
    """A16: no code runs on the submitter's machine."""
    trace = tmp_path / "pwned"

    found = problems(check_tasks(f"- name: a\n  kwargs:\n    x: {value.format(trace)}\n"))

    assert "is not allowed here" in found[0]
    assert not trace.exists()


def test_key_that_is_no_text_is_refused() -> None:
    """A05: ``? [a]`` is legal YAML, but no JSON."""
    assert "a key must be a string" in only_problem(check_tasks("- name: a\n  kwargs: {? [a] : b}\n"))


def _values(node: Node) -> object:
    match node:
        case Scalar():
            return (node.text, node.style)
        case ListNode():
            return [_values(item) for item in node.items]
        case MappingNode():
            return {key: _values(entry.value) for key, entry in node.entries.items()}


@pytest.mark.parametrize("text", [GOOD, f"name: w\ntasks:\n{SHARED_BASE}", "a: !!str 5\nb: '6'\nc: ! 7\n"])
def test_pure_parser_reads_what_libyaml_reads(text: str) -> None:
    """Where PyYAML was built without libyaml, nothing changes but the speed."""
    trees = []
    for parser in (yaml.SafeLoader, yaml.CSafeLoader):
        builder = TreeBuilder()
        read_yaml(text, builder, parser=parser)
        assert builder.root is not None
        trees.append(_values(builder.root))

    assert trees[0] == trees[1]
