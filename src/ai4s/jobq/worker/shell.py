"""The shell processor: runs ``kwargs["cmd"]`` with ``bash -c`` (``sh`` where there is no bash), word for word.

The command gets the worker's environment, then ``kwargs["env"]``, then the variables of its job, which always win. What
belongs to another task (the worker may itself run inside one) is taken out first. ``kwargs["cwd"]`` is relative to the
worker's own directory. Values of ``env`` appear neither on a command line nor in a log or error.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Self

from ai4s.jobq.errors import SettingsError
from ai4s.jobq.ports.clock import Clock
from ai4s.jobq.store.task_logs import Stream
from ai4s.jobq.store.wire import Cause
from ai4s.jobq.worker.capture import Capture, LineLog, error_text
from ai4s.jobq.worker.child import Child, start_child
from ai4s.jobq.worker.command import Command, CommandError, read_command, start_problem
from ai4s.jobq.worker.masking import secrets_of
from ai4s.jobq.worker.processor import Job, JobResult, StopRequest
from ai4s.jobq.worker.reaper import Reaper
from ai4s.jobq.worker.settings import WorkerSettings

LOG = logging.getLogger(__name__)

# What names one task; never handed from the task a worker runs in to the tasks it runs.
TASK_VARIABLES = frozenset(
    {
        "JOBQ_CANCEL_FILE",
        "JOBQ_OUTPUT_FILE",
        "JOBQ_SIDECAR",
        "JOBQ_TASK_ID",
        "JOBQ_WORKFLOW_ATTEMPT",
        "JOBQ_WORKFLOW_ID",
        "JOBQ_WORKFLOW_STATUS",
        "JOBQ_WORKFLOW_TASK",
    }
)
GONE_WITHIN_S = 5.0  # a killed process that has not gone by then hangs in the kernel; nobody waits for it


class ShellProcessor:
    """Runs shell commands, each in a process group of its own. Implements ``Processor``."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        name: str = "ShellCommandProcessor",
        emulate_tty: bool = False,
    ) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._reaper = Reaper()
        inherited = {key: value for key, value in environment.items() if key not in TASK_VARIABLES}
        self._environment = {"PYTHONUNBUFFERED": "1"} | inherited | self._reaper.variables
        self._shell = _shell(settings, search_path=environment.get("PATH"))
        self._terminal = _terminal(environment.get("PATH")) if emulate_tty else None

    async def __aenter__(self) -> Self:
        # Ignored by whoever started us, it would make the kernel throw exit statuses away: failures would look fine.
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._reaper.close)

    async def __call__(self, job: Job) -> JobResult:
        try:
            command = read_command(job.kwargs)
            secrets = secrets_of(command.env)
            stdout = _capture(job, Stream.STDOUT, logging.INFO, secrets)
            stderr = _capture(job, Stream.STDERR, logging.WARNING, secrets)
            self._reaper.start()
            child = self._start(command, job.variables, stdout, stderr)
        except CommandError as exc:
            return JobResult(cause=Cause.EXIT, error=str(exc))
        started_at = self._clock.monotonic()
        job.on_start()
        stopped = await self._supervise(child, job)
        exit_code = child.finished.result()
        return JobResult(
            cause=_cause(stopped, exit_code),
            exit_code=exit_code,
            error=_error(stopped, exit_code, job.timeout_s, stderr, stdout),
            duration_s=self._clock.monotonic() - started_at,
        )

    def _start(self, command: Command, variables: Mapping[str, str], stdout: Capture, stderr: Capture) -> Child:
        environment = {**self._environment, **command.env, **variables, **self._reaper.variables}
        try:
            return start_child(
                self._words(command.cmd),
                environment=environment,
                cwd=command.cwd,
                stdout=stdout,
                stderr=stderr,
                reaper=self._reaper,
                drain_s=self._settings.drain_s,
            )
        except (OSError, ValueError) as exc:
            raise CommandError(start_problem(exc, command, environment, shell=self._shell[0])) from exc

    def _words(self, cmd: str) -> list[str]:
        """What is started: the shell, or with a terminal the program that makes one for it."""
        words = [*self._shell, cmd]
        if self._terminal is None:
            return words
        return [self._terminal, "--quiet", "--return", "--command", shlex.join(words), "/dev/null"]

    async def _supervise(self, child: Child, job: Job) -> StopRequest | None:
        """Wait until the command has ended; end it when it is asked to or out of time. Why it was ended, or None."""
        try:
            await asyncio.wait(
                (child.finished, job.stop.asked), timeout=job.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if child.finished.done():
                return None
            stop = job.stop.request or StopRequest(cause=Cause.TIMEOUT, grace_s=self._settings.kill_timeout_s)
            child.terminate(grace_s=stop.grace_s)
            await self._wait_for_end(child, job, timed_out=job.stop.request is None)
            return stop
        except asyncio.CancelledError:
            child.kill()
            await asyncio.wait((child.finished,), timeout=GONE_WITHIN_S)
            raise

    async def _wait_for_end(self, child: Child, job: Job, *, timed_out: bool) -> None:
        """A command in the grace time of its time-out gets less of it when the worker has to leave."""
        if timed_out:
            await asyncio.wait((child.finished, job.stop.asked), return_when=asyncio.FIRST_COMPLETED)
            if not child.finished.done() and job.stop.request is not None:
                child.hurry(grace_s=job.stop.request.grace_s)
        await asyncio.wait((child.finished,))


def _shell(settings: WorkerSettings, *, search_path: str | None) -> tuple[str, ...]:
    shell = shutil.which("bash", path=search_path) or shutil.which("sh", path=search_path) or "/bin/sh"
    options = ("-l", "-c", "--") if settings.login_shell else ("-c", "--")
    return (shell, *options)  # "--": a command may begin with a dash


def _terminal(search_path: str | None) -> str:
    """The program that runs a command on a terminal of its own. Raises ``SettingsError``: there is none."""
    found = shutil.which("script", path=search_path)
    if found is None:
        raise SettingsError(
            "--emulate-tty needs the program 'script' (of util-linux). Install it, or leave the option out."
        )
    return found


def _capture(job: Job, stream: Stream, level: int, secrets: tuple[bytes, ...]) -> Capture:
    fields: dict[str, object] = {"event": "task_printed", "job": job.label}
    return Capture(
        LineLog(LOG, level, fields) if LOG.isEnabledFor(level) else None,
        keep=None if job.log is None else partial(job.log.feed, stream),
        secrets=secrets,
    )


def _cause(stopped: StopRequest | None, exit_code: int) -> Cause | None:
    if stopped is not None:
        return stopped.cause
    return Cause.EXIT if exit_code else None


def _error(
    stopped: StopRequest | None, exit_code: int, timeout_s: float | None, stderr: Capture, stdout: Capture
) -> str | None:
    """Why the command did not succeed and the last it printed, or None when it did."""
    ending = f"exit code {exit_code}" if exit_code >= 0 else f"killed by {signal_name(-exit_code)}"
    if stopped is not None:
        reasons = {
            Cause.TIMEOUT: f"timed out after {timeout_s:g} s" if timeout_s else "timed out",
            Cause.CANCELLED: "workflow cancelled",
            Cause.PREEMPTED: "the worker was told to stop",
        }
        return error_text(f"{reasons.get(stopped.cause, str(stopped.cause))} ({ending})", stderr, stdout)
    if exit_code == 0:
        return None
    if exit_code > 128 and (name := signal_name(exit_code - 128)) != str(exit_code - 128):
        ending += f" (of a shell: killed by {name})"
    return error_text(ending, stderr, stdout)


def signal_name(number: int) -> str:
    """The signal's name such as ``SIGKILL``, or the number as text when it has none here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
