"""Shell commands with real processes: how they start, end, print, and are ended."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import stat
import uuid
from pathlib import Path

import pytest

from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.store.wire import Cause
from ai4s.jobq.worker.settings import WorkerSettings
from ai4s.jobq.worker.shell import ShellProcessor
from tests.worker.conftest import Shell
from tests.worker.waiting import processes_with, until


async def test_a_command_that_exits_0_succeeds(shell: Shell) -> None:
    result = await shell.run("true")

    assert (result.cause, result.exit_code, result.error) == (None, 0, None)


@pytest.mark.parametrize(
    ("cmd", "exit_code", "words"),
    [
        ("exit 255", 255, "exit code 255"),
        ("exit 256", None, ""),
        ("kill -9 $$", -9, "SIGKILL"),
        ("kill -TERM $$", -15, "SIGTERM"),
        ("kill -RTMIN $$", -34, "SIGRTMIN"),
        ("no-such-program-here", 127, "no-such-program-here"),
        ("/etc/passwd", 126, "ermission denied"),
        ("if then", 2, "syntax error"),
        ("(kill -9 $BASHPID); exit $?", 137, "SIGKILL"),
    ],
)
async def test_every_ending_is_told_by_its_exit_code_and_a_name(
    shell: Shell, cmd: str, exit_code: int | None, words: str
) -> None:
    result = await shell.run(cmd)

    if exit_code is None:  # 256 is 0 to a shell
        assert (result.cause, result.exit_code) == (None, 0)
    else:
        assert (result.cause, result.exit_code) == (Cause.EXIT, exit_code)
        assert words in (result.error or "")


async def test_exit_minus_1_is_what_the_shell_makes_of_it(shell: Shell) -> None:
    result = await shell.run("exit -1")

    assert result.cause is Cause.EXIT
    assert result.exit_code in (2, 255)


async def test_the_error_ends_with_what_the_command_printed_last(shell: Shell) -> None:
    result = await shell.run("echo to stdout; echo first >&2; echo 'Error: no such column' >&2; exit 3")

    assert result.error == "exit code 3\nfirst\nError: no such column"


async def test_stdout_is_the_error_text_when_stderr_is_silent(shell: Shell) -> None:
    assert (await shell.run("echo it went wrong; exit 1")).error == "exit code 1\nit went wrong"


@pytest.mark.parametrize(
    "cmd",
    [
        "head -c 200000 /dev/zero | tr '\\0' x",
        "yes 'a line of output that goes on and on' | head -c 50000000",
        "for i in $(seq 2000); do echo out $i; echo err $i >&2; done",
        "head -c 300000 /dev/urandom",
    ],
    ids=["one long line", "50 MB of lines", "both streams", "binary"],
)
async def test_any_amount_of_output_neither_hangs_nor_fails_a_command(shell: Shell, cmd: str) -> None:
    assert (await shell.run(cmd)).exit_code == 0


async def test_memory_does_not_grow_with_the_output(shell: Shell) -> None:
    await shell.run("head -c 5000000 /dev/zero")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    await shell.run("head -c 100000000 /dev/zero")

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20_000


async def test_the_error_of_binary_output_is_valid_short_text(shell: Shell) -> None:
    result = await shell.run("head -c 300000 /dev/urandom >&2; printf 'caf\\xc3'; printf '\\xa9' >&2; exit 3")

    assert result.exit_code == 3
    error = result.error or ""
    assert len(error.encode()) <= 4096
    assert all(char in "\n\t" or char.isprintable() or not char.isascii() for char in error)


async def test_standard_input_is_empty(shell: Shell) -> None:
    result = await shell.run("cat; read x; test $? -eq 1 && readlink /proc/self/fd/0; exit 9", timeout_s=20)

    assert result.error == "exit code 9\n/dev/null"


async def test_a_command_inherits_the_environment_and_adds_its_own(shell: Shell) -> None:
    result = await shell.run('echo "$HOME-$A-$N-$B-$NONE."; exit 1', env={"A": "1", "N": 2.5, "B": True, "NONE": None})

    assert result.error == f"exit code 1\n{os.environ['HOME']}-1-2.5-true-."


async def test_reserved_variables_win_over_the_tasks_own(shell: Shell) -> None:
    result = await shell.run("echo $JOBQ_WORKFLOW_TASK; exit 1", env={"JOBQ_WORKFLOW_TASK": "another"})

    assert result.error == "exit code 1\ntrain"


async def test_no_variable_of_one_task_reaches_the_next(shell: Shell) -> None:
    await shell.run("true", env={"LEAK": "yes"})

    assert (await shell.run("echo ${LEAK-unset}; exit 1")).error == "exit code 1\nunset"


async def test_variables_of_the_task_a_worker_runs_in_are_not_handed_on() -> None:
    environment = {**os.environ, "JOBQ_OUTPUT_FILE": "/outer", "JOBQ_SIDECAR": "/outer", "JOBQ_WORKFLOW_PREFIX": "a/B"}
    async with ShellProcessor(WorkerSettings(queue="q"), clock=SystemClock(), environment=environment) as processor:
        result = await Shell(processor).run(
            "echo ${JOBQ_OUTPUT_FILE-none} ${JOBQ_SIDECAR-none} $JOBQ_WORKFLOW_PREFIX $PYTHONUNBUFFERED; exit 1"
        )

    assert result.error == "exit code 1\nnone none a/B 1"


async def test_a_name_no_shell_would_take_is_a_variable_all_the_same(shell: Shell) -> None:
    result = await shell.run("env | grep ^BAD-NAME; exit 1", env={"BAD-NAME": "x"})

    assert result.error == "exit code 1\nBAD-NAME=x"


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"env": {"BIG": "s3cr3t" * 25_000}}, "'BIG' is 150004 bytes"),
        ({"env": {f"V{number}": "x" * 100_000 for number in range(40)}}, "too large for this system"),
        ({"env": {"A=B": "s3cr3t"}}, "'A=B'"),
        ({"env": {"A": "s3cr3t\0"}}, "'A'"),
        ({"env": {"A": "s3cr3t\ud800"}}, "'A'"),
        ({"env": {"A": ["s3cr3t"]}}, "'A'"),
        ({"env": "A=s3cr3t"}, "'env' is str"),
        ({"cwd": "/nope"}, "/nope"),
        ({"cwd": "/etc/passwd"}, "/etc/passwd"),
        ({"cwd": 7}, "'cwd' is int"),
        ({"cmd": "true" + " " * 140_000}, "the command is 140004 bytes"),
        ({"cmd": "true \0"}, "the command has a NUL"),
        ({"cmd": None}, "a shell worker needs 'cmd'"),
        ({"cmd": ["true"]}, "'cmd' that is list"),
    ],
)
async def test_what_cannot_be_started_fails_and_says_why_without_values(
    shell: Shell, kwargs: dict[str, object], words: str
) -> None:
    result = await shell.processor(shell.job({"cmd": "true", **kwargs}))

    assert result.cause is Cause.EXIT
    assert words in (result.error or "")
    assert "s3cr3t" not in (result.error or "")


async def test_the_processor_goes_on_after_a_command_it_could_not_start(shell: Shell) -> None:
    await shell.run("true", cwd="/nope")

    assert (await shell.run("true")).cause is None


async def test_a_relative_cwd_is_relative_to_the_worker(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path)

    assert (await shell.run("pwd; exit 1", cwd="a b")).error == f"exit code 1\n{tmp_path}/a b"


async def test_a_worker_whose_directory_was_deleted_still_runs_commands(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert (await shell.run("true")).cause is None


@pytest.mark.parametrize(
    ("cmd", "printed"),
    [
        ("echo '{x} %s %d $$ ${HOME} \\t \"q\"'", '{x} %s %d $$ ${HOME} \\t "q"'),
        ("cat <<'END'\n" + "\n".join(f"`line` $ {number} !" for number in range(40)) + "\nEND", "`line` $ 39 !"),
        ("-x 2>/dev/null; echo after", "after"),
        ("echo a\\\nb", "ab"),
        ("[[ abc == a* ]] && echo bash", "bash"),
        ("echo grüße 🚀", "grüße 🚀"),
    ],
    ids=["quoting", "heredoc", "leading dash", "continuation", "bash", "unicode"],
)
async def test_a_command_reaches_the_shell_word_for_word(shell: Shell, cmd: str, printed: str) -> None:
    result = await shell.run(f"{cmd}\nexit 1")

    assert (result.error or "").splitlines()[-1] == printed


async def test_a_carriage_return_in_a_command_shows_in_the_error(shell: Shell) -> None:
    assert r"\r" in ((await shell.run("true_\r")).error or "")


async def test_a_timeout_ends_the_whole_group(shell: Shell) -> None:
    marker = uuid.uuid4().hex

    result = await shell.run(f"bash -c 'sleep 600 # {marker}' & sleep 600", timeout_s=0.3, env={"MARK": marker})

    assert result.cause is Cause.TIMEOUT
    assert (result.error or "").startswith("timed out after 0.3 s (killed by SIGTERM)")
    await until(lambda: processes_with(marker) == [])


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_time(shell: Shell) -> None:
    result = await shell.run("trap '' TERM INT; while :; do sleep 0.05; done", timeout_s=0.2)

    assert (result.cause, result.exit_code) == (Cause.TIMEOUT, -9)


async def test_a_stopped_process_is_ended_too(shell: Shell) -> None:
    assert (await shell.run("kill -STOP $$", timeout_s=0.2)).cause is Cause.TIMEOUT


async def test_a_child_of_the_shell_has_the_grace_time_to_finish(shell: Shell, tmp_path: Path) -> None:
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    child = f"trap 'sleep 0.1; touch {saved}; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    job = shell.job({"cmd": f'bash -c "{child}" > /dev/null 2>&1; true'})
    running = asyncio.create_task(shell.processor(job))
    await until(ready.exists)

    job.stop.ask(Cause.PREEMPTED, grace_s=20)
    result = await running

    assert result.cause is Cause.PREEMPTED
    assert saved.exists()


@pytest.mark.parametrize("cause", [Cause.CANCELLED, Cause.PREEMPTED])
async def test_a_job_that_is_asked_to_stop_ends_with_that_cause(shell: Shell, cause: Cause, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    job = shell.job({"cmd": f"touch {ready}; exec sleep 600"})
    running = asyncio.create_task(shell.processor(job))
    await until(ready.exists)

    job.stop.ask(cause, grace_s=20)
    result = await running

    assert (result.cause, result.exit_code) == (cause, -15)


async def test_a_cancelled_call_leaves_no_process(shell: Shell, tmp_path: Path) -> None:
    marker, ready = uuid.uuid4().hex, tmp_path / "ready"
    job = shell.job({"cmd": f"trap '' TERM; touch {ready}; sleep 600 & sleep 600", "env": {"MARK": marker}})
    running = asyncio.create_task(shell.processor(job))
    await until(ready.exists)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: processes_with(marker) == [])


async def test_fifty_commands_that_end_as_they_are_stopped_all_end(shell: Shell) -> None:
    jobs = [shell.job({"cmd": "sleep 0.2"}, timeout_s=0.2) for _ in range(50)]

    results = await asyncio.gather(*map(shell.processor, jobs))

    assert {result.cause for result in results} <= {None, Cause.TIMEOUT}


async def test_a_left_over_child_holding_the_output_does_not_hang_the_job(shell: Shell) -> None:
    marker = uuid.uuid4().hex

    result = await shell.run("echo done; sleep 600 & exit 0", env={"MARK": marker})

    assert result.exit_code == 0
    await until(lambda: processes_with(marker) == [])


async def test_a_left_over_child_that_left_the_group_does_not_hang_the_job(shell: Shell) -> None:
    marker = uuid.uuid4().hex

    result = await shell.run("setsid sleep 600 & exit 4", env={"MARK": marker})

    assert result.exit_code == 4
    for pid in processes_with(marker):
        os.kill(pid, signal.SIGKILL)


async def test_what_a_finished_command_left_in_the_background_is_killed(shell: Shell) -> None:
    marker = uuid.uuid4().hex

    await shell.run("sleep 600 > /dev/null 2>&1 &", env={"MARK": marker})

    await until(lambda: processes_with(marker) == [])


async def test_commands_leave_no_open_files_behind(shell: Shell) -> None:
    await shell.run("true")
    before = set(os.listdir("/proc/self/fd"))

    for cmd in ("true", "exit 3", "sleep 600 & exit 0"):
        await shell.run(cmd)
    await shell.run("sleep 9", timeout_s=0.1)
    await shell.run("true", cwd="/nope")

    assert set(os.listdir("/proc/self/fd")) == before


async def test_without_bash_there_is_sh(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    environment = {"PATH": str(tmp_path)}
    async with ShellProcessor(WorkerSettings(queue="q"), clock=SystemClock(), environment=environment) as processor:
        result = await Shell(processor).run("echo ${BASH_VERSION-none} $0; exit 1")

    assert str(tmp_path / "sh") in (result.error or "")


async def test_a_login_shell_reads_the_profile(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text("FROM_PROFILE=yes\n")
    settings = WorkerSettings(queue="q", login_shell=True)
    environment = {**os.environ, "HOME": str(tmp_path)}
    async with ShellProcessor(settings, clock=SystemClock(), environment=environment) as processor:
        result = await Shell(processor).run("echo $FROM_PROFILE; exit 1")

    assert result.error == "exit code 1\nyes"


async def test_lines_are_logged_as_they_come(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="ai4s.jobq.worker.shell"):
        await shell.run("printf 'half '; echo line; echo 50%; printf '10%%\\r20%%\\r' >&2; echo >&2; printf rest")

    printed = {(record.levelname, record.getMessage()) for record in caplog.records}
    assert printed == {("INFO", "half line"), ("INFO", "50%"), ("WARNING", "20%"), ("INFO", "rest")}


async def test_a_failure_is_seen_though_sigchld_was_ignored_by_our_parent() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with ShellProcessor(WorkerSettings(queue="q"), clock=SystemClock(), environment=os.environ) as processor:
            result = await Shell(processor).run("exit 3")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert result.exit_code == 3


async def test_a_directory_that_may_not_be_entered_is_named(shell: Shell, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0)
    try:
        result = await shell.run("true", cwd=str(locked / "inside"))
    finally:
        locked.chmod(stat.S_IRWXU)

    assert str(locked) in (result.error or "")
