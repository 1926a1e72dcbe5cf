"""Between the command line and the library: one event loop per command, and one place where errors become exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ai4s.jobq.cli.terminal import say, unwritable
from ai4s.jobq.errors import DefinitionError, JobqError
from ai4s.jobq.logs import set_up_logging
from ai4s.jobq.settings import Source, Target, resolve_target

if TYPE_CHECKING:
    from ai4s.jobq.client import WorkflowClient

INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell says of a program that SIGPIPE ended
OUR_BUG = 70

T = TypeVar("T")


@dataclass(slots=True)
class Invocation:
    """What the words before the subcommand said. The target is resolved when a command needs it, and announced once."""

    given: str | None = None
    queues: str | None = None
    blobs: str | None = None
    config: str | None = None
    _target: Target | None = field(default=None, init=False)

    def target(self, *, fallback: str | None = None) -> Target:
        """The target of this command. Raises ``SettingsError``."""
        if self._target is None:
            self._target = resolve_target(
                self.given,
                queues=self.queues,
                blobs=self.blobs,
                config=self.config,
                fallback=fallback,
                environ=os.environ,
            )
            say(_banner(self._target))
        return self._target

    def ask(self, question: Callable[[WorkflowClient], Coroutine[Any, Any, T]]) -> T:
        """Open the target, ask a client one question, close everything."""
        from ai4s.jobq.client import WorkflowClient

        target = self.target()

        async def session() -> T:
            async with WorkflowClient.open(target) as client:
                return await question(client)

        return asyncio.run(session())


def run_program(command: click.Command, args: Sequence[str], *, name: str) -> int:
    """Run a command line; its exit code. Nothing that goes wrong ends in a traceback, unless somebody debugs."""
    try:
        code = _invoke(command, args, name)
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, click.Abort):
        say("Interrupted.")
        return INTERRUPTED
    except click.ClickException as exc:
        with contextlib.suppress(OSError):  # nobody is there to be told
            exc.show(sys.stderr)
        return exc.exit_code
    except BrokenPipeError:
        return PIPE_CLOSED
    except Exception as exc:  # the outermost edge of the program: whatever it is, one line and an exit code
        cause = _first_of(exc)
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:  # click writes help texts itself
            cause = unwritable(cause)
        return _report(cause) if isinstance(cause, JobqError) else _report_bug(cause)


def _invoke(command: click.Command, args: Sequence[str], name: str) -> int:
    try:
        with command.make_context(name, list(args)) as context:
            command.invoke(context)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    return 0


def verbosity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-v`` and ``-q``, which may stand before and after the subcommand and add up in ``verbosity``."""
    for flags, step, text in (
        (("-q", "--quiet"), -1, "Log less; may be repeated."),
        (("-v", "--verbose"), 1, "Log more; may be repeated. Twice: of libraries too."),
    ):
        command = click.option(
            *flags, count=True, expose_value=False, callback=_counting(step), is_eager=True, help=text
        )(command)
    return command


def verbosity() -> int:
    """How often ``-v`` was given, minus ``-q``."""
    return int(click.get_current_context().meta.get(_VERBOSITY, 0))


_VERBOSITY = "ai4s.jobq.verbosity"


def _counting(step: int) -> Callable[[click.Context, click.Parameter, int], None]:
    def count(ctx: click.Context, _: click.Parameter, times: int) -> None:
        ctx.meta[_VERBOSITY] = ctx.meta.get(_VERBOSITY, 0) + step * times
        set_up_logging(ctx.meta[_VERBOSITY])

    return count


def _banner(target: Target) -> str:
    """One line that says where a command works, and where that was said if it was not the command line."""

    def said(key: str, value: str) -> str:
        source = target.sources.get(key, Source.DEFAULT)
        return value if source in (Source.ARGUMENT, Source.DEFAULT) else f"{value}({source})"

    parts = [f"▶ {said('storage', target.account)}/{said('prefix', target.prefix)}"]
    if not target.is_local:
        parts.append(f"queues={said('queues', target.queue_account)}")
        parts.append(f"blobs={said('blobs', f'{target.blob_account}/{target.container}')}")
    if target.config_path is not None:
        parts.append(f"[config: {target.config_path}]")
    return "  ".join(parts)


def _first_of(exc: Exception) -> Exception:
    """The error itself, or the first one in a group: what the other tasks of the group said follows from it."""
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _report(exc: JobqError) -> int:
    if isinstance(exc, DefinitionError):
        for problem in exc.problems:
            say(str(problem))
        count = len(exc.problems)
        say(f"Error: {count} problem{'s' * (count != 1)} found; nothing was done.")
        return exc.exit_code
    say(f"Error: {exc}")
    _show_traceback_to_debuggers(exc)
    return exc.exit_code


def _report_bug(exc: Exception) -> int:
    first_line = str(exc).partition("\n")[0]
    say(f"Error: internal error, please report it: {type(exc).__name__}: {first_line} (JOBQ_DEBUG=1 shows where)")
    _show_traceback_to_debuggers(exc)
    return OUR_BUG


def _show_traceback_to_debuggers(exc: Exception) -> None:
    if os.environ.get("JOBQ_DEBUG"):
        import traceback

        say("".join(traceback.format_exception(exc)))
