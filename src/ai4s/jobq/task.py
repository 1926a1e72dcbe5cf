"""What the scripts of tasks import: outputs of this task and of its parents, and whether it is cancelled.

Works from variables and files that the worker hands to the command; no service is asked, but for outputs too large to be
handed over. Importing this must take milliseconds, because every task pays for it: no other module is imported before it
is needed, which is also why the errors raised here live here.

Scripts in other languages do without it: write JSON to ``$JOBQ_OUTPUT_FILE``.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any, NoReturn, TypedDict, TypeVar

    from ai4s.jobq.worker.endings import Ending
    from ai4s.jobq.worker.sidecar import Parent

    T = TypeVar("T")

    class UpstreamStatus(TypedDict):
        """What ``get_upstream_status`` answers."""

        status: str
        exit_code: int | None
        error: str | None
        cause: str | None
        attempt: int | None


_FAILED = frozenset({"failed", "upstream_failed", "cancelled"})
_KEPT_SIDECARS = 64  # of a process that works on many tasks, one after another

_acting_as: ContextVar[Mapping[str, str] | None] = ContextVar("_acting_as", default=None)


class NotInTaskError(RuntimeError, ValueError):
    """This process was not started by a worker as the command of a workflow task."""


class NotUpstreamError(KeyError):
    """The named task is no direct parent of this one, so that its output need not exist yet."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote the sentence


class NoOutputError(LookupError):
    """The parent has no output. ``task_name`` is the parent, ``status`` its state."""

    def __init__(self, message: str, *, task_name: str = "", status: str = "") -> None:
        self.task_name = task_name
        self.status = status
        super().__init__(message)


class DependencyFailedError(NoOutputError):
    """The parent failed or was cancelled, so it has no output."""


def set_output(value: Any) -> None:
    """Make ``value`` the output of this task, if the task succeeds. The last call wins.

    Anything that JSON can say: text, numbers, booleans, None, lists and mappings of these.

    Raises: TypeError: a value of another type. ValueError: NaN, infinity, text that is no Unicode, a structure that
    contains itself. NotInTaskError: not called in a task.
    """
    path = _variable("JOBQ_OUTPUT_FILE")
    data = _encoded(value)
    part = f"{path}.part-{os.urandom(4).hex()}"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.replace(part, path)  # whoever reads sees the former output or this one, never half of it
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise


def get_upstream_output(name: str, *, strict: bool = False) -> Any:
    """The output of the direct parent ``name``; None when it has none.

    With ``strict`` a parent without output raises ``NoOutputError``, and ``DependencyFailedError`` when that is because it
    failed or was cancelled.

    Raises: NotUpstreamError (a KeyError): ``name`` is no direct parent. NotInTaskError: not called in a task.
    """
    return get_workflow_context().get_upstream_output(name, strict=strict)


def get_upstream_outputs() -> dict[str, Any]:
    """``{name of a direct parent: its output, or None if it has none}``, in ``depends_on`` order."""
    return get_workflow_context().get_available_upstream_outputs()


def get_upstream_status(name: str) -> UpstreamStatus:
    """How the direct parent ``name`` ended: ``{"status", "exit_code", "error", "cause", "attempt"}``.

    For tasks that run whatever became of their parents, and for undo jobs, whose one parent is the task they undo.
    ``status`` is ``completed``, ``failed``, ``upstream_failed``, ``skipped``, ``cancelled``, or ``pending`` while it has not
    ended. The rest is of a parent that ended badly, and None for others: ``exit_code`` (negative: the signal that ended it;
    a completed parent has 0), ``error``, ``cause`` (``exit``, ``timeout``, ``lost``, …), the number of its last ``attempt``.

    Raises: NotUpstreamError (a KeyError): ``name`` is no direct parent. NotInTaskError: not called in a task.
    """
    return get_workflow_context().get_upstream_status(name)


def get_real_upstream_tasks() -> list[str]:
    """The names of the direct parents, sorted."""
    return get_workflow_context().get_real_upstream_tasks()


def is_cancelled() -> bool:
    """Whether the workflow was cancelled meanwhile. SIGTERM comes with it, SIGKILL after ``JOBQ_KILL_TIMEOUT``."""
    return os.path.exists(_variable("JOBQ_CANCEL_FILE"))


def get_workflow_context() -> WorkflowContext:
    """Which task of which workflow this process is. Raises ``NotInTaskError`` (a ValueError) when it is none."""
    return WorkflowContext.from_environment()


def act_as(variables: Mapping[str, str]) -> None:
    """Let everything here answer for the task that these variables describe, in this context: an asyncio task, a thread.

    For workers that run tasks in their own process; a command has the variables in its environment.
    """
    _acting_as.set(variables)


class WorkflowContext:
    """One task, as its own script sees it. ``attempt`` is 1 for the first."""

    __slots__ = ("_sidecar", "attempt", "task_name", "workflow_id")

    def __init__(self, *, workflow_id: str, task_name: str, attempt: int, sidecar: Mapping[str, Any]) -> None:
        self.workflow_id = workflow_id
        self.task_name = task_name
        self.attempt = attempt
        self._sidecar = sidecar

    @classmethod
    def from_environment(cls) -> WorkflowContext:
        """The context that the worker described. Raises ``NotInTaskError``."""
        return cls(
            workflow_id=_variable("JOBQ_WORKFLOW_ID"),
            task_name=_variable("JOBQ_WORKFLOW_TASK"),
            attempt=int(_variable("JOBQ_WORKFLOW_ATTEMPT")),
            sidecar=_read_sidecar(_variables().get("JOBQ_SIDECAR")),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> WorkflowContext:
        """The context of the task that a custom processor was called for with these ``kwargs``. Raises ``NotInTaskError``.

        The context is not among them: the worker keeps it for each call.
        """
        return cls.from_environment()

    def get_upstream_output(self, name: str, *, strict: bool = False) -> Any:
        """See the function of this name."""
        parent = self._parent(name)
        if not _has_output(parent):
            return _no_output(name, parent) if strict else None
        return _outputs(self._sidecar, {name: parent})[name]

    def get_upstream_status(self, name: str) -> UpstreamStatus:
        """See the function of this name."""
        parent = self._parent(name)
        facts: Mapping[str, Any] = parent.get("ending") or {}
        if parent.get("ending_stored"):
            facts = _fetch_ending(self._sidecar, parent)
        return {
            "status": parent["state"],
            "exit_code": 0 if parent["state"] == "completed" else facts.get("exit_code"),
            "error": facts.get("error"),
            "cause": facts.get("cause"),
            "attempt": facts.get("attempt"),
        }

    def get_available_upstream_outputs(self) -> dict[str, Any]:
        """See ``get_upstream_outputs``."""
        parents = self._sidecar["parents"]
        found = _outputs(self._sidecar, {name: parent for name, parent in parents.items() if _has_output(parent)})
        return {name: found.get(name) for name in parents}

    def get_real_upstream_tasks(self) -> list[str]:
        """See the function of this name."""
        return sorted(self._sidecar["parents"])

    def is_cancelled(self) -> bool:
        """See the function of this name."""
        return is_cancelled()

    def close(self) -> None:
        """Nothing: a context holds nothing open."""

    def _parent(self, name: str) -> Parent:
        parents: dict[str, Parent] = self._sidecar["parents"]
        if name not in parents:
            known = ", ".join(map(repr, sorted(parents)[:20])) or "none"
            raise NotUpstreamError(
                f"{name!r} is not a direct upstream of task {self.task_name!r}: add it to depends_on. "
                f"Its direct upstream tasks: {known}"
            )
        return parents[name]


def _variables() -> Mapping[str, str]:
    acting_as = _acting_as.get()
    return os.environ if acting_as is None else acting_as


def _variable(name: str) -> str:
    value = _variables().get(name)
    if not value:
        raise NotInTaskError(f"{name} is not set: this works only in a command that a workflow worker runs")
    return value


def _encoded(value: Any) -> bytes:
    import json

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_refuse).encode()
    except UnicodeEncodeError as exc:
        raise ValueError("set_output: a text has a lone surrogate (half a character)") from exc
    except RecursionError as exc:
        raise ValueError("set_output: the value is nested too deeply") from exc
    except ValueError as exc:
        raise ValueError(f"set_output: {exc}. NaN and infinity are no JSON: use None or text") from exc


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"set_output: {value!r:.100} is {type(value).__name__}, which is no JSON: convert it first")


def _has_output(parent: Parent) -> bool:
    return "output" in parent or "blob" in parent or "stored" in parent


def _no_output(name: str, parent: Parent) -> NoReturn:
    state = parent["state"]
    error = DependencyFailedError if state in _FAILED else NoOutputError
    reason = parent.get("ending", {}).get("error", "").partition("\n")[0]
    why = f": {reason}" if reason else ""
    raise error(f"upstream task {name!r} has no output: it is {state}{why}", task_name=name, status=state)


_sidecars: dict[str, Mapping[str, Any]] = {}


def _read_sidecar(path: str | None) -> Mapping[str, Any]:
    """The sidecar file, read once per process: it never changes. Without one, the task has no parents."""
    if path is None:
        return {"parents": {}}
    if path not in _sidecars:
        import json

        with open(path, encoding="ascii") as file:
            found = json.load(file)
        if len(_sidecars) >= _KEPT_SIDECARS:
            _sidecars.clear()
        _sidecars[path] = found
    return _sidecars[path]


def _outputs(sidecar: Mapping[str, Any], parents: Mapping[str, Parent]) -> dict[str, Any]:
    """The outputs of parents that have one; those that were not handed over are read from the store, all at once."""
    texts = {name: parent["output"] for name, parent in parents.items() if "output" in parent}
    elsewhere = {name: parent for name, parent in parents.items() if name not in texts}
    if elsewhere:
        texts |= _fetch_outputs(sidecar, elsewhere)
    return {name: _value(text, sidecar["store"]) for name, text in texts.items()}


def _value(text: str, store: str) -> Any:
    """The value of an output; what it has of stored files can be read."""
    if "jobq_stash" in text:
        from ai4s.jobq.stash import loads

        return loads(text, store=store)
    import json

    return json.loads(text)


def _fetch_outputs(sidecar: Mapping[str, Any], parents: Mapping[str, Parent]) -> dict[str, str]:
    from ai4s.jobq.worker.upstream import read_outputs

    return run_apart(lambda: read_outputs(sidecar, parents))


def _fetch_ending(sidecar: Mapping[str, Any], parent: Parent) -> Ending:
    from ai4s.jobq.worker.upstream import read_ending

    return run_apart(lambda: read_ending(sidecar, parent))


def run_apart(read: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What ``read`` answers, in a thread and an event loop of its own, because the script may be inside a running one."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(read())).result()
