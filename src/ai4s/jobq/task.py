"""What the scripts of tasks import: outputs of this task and of its parents, and whether it is cancelled.

Works from variables and files that the worker hands to the command; no service is asked, but for outputs too large to be
handed over. Importing this must take milliseconds, because every task pays for it: no other module is imported before it
is needed, which is also why the errors raised here live here.

Scripts in other languages do without it: write JSON to ``$JOBQ_OUTPUT_FILE``.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from ai4s.jobq.worker.sidecar import Parent

_FAILED = frozenset({"failed", "upstream_failed", "cancelled"})


class NotInTaskError(RuntimeError, ValueError):
    """This process was not started by a worker as the command of a workflow task."""


class NotUpstreamError(KeyError):
    """The named task is no direct parent of this one, so that its output need not exist yet."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote the sentence


class NoOutputError(LookupError):
    """The parent ended, but it has no output."""


class DependencyFailedError(NoOutputError):
    """The parent did not complete, so it has no output."""


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


def get_real_upstream_tasks() -> list[str]:
    """The names of the direct parents, sorted."""
    return get_workflow_context().get_real_upstream_tasks()


def is_cancelled() -> bool:
    """Whether the workflow was cancelled meanwhile. SIGTERM comes with it, SIGKILL after ``JOBQ_KILL_TIMEOUT``."""
    return os.path.exists(_variable("JOBQ_CANCEL_FILE"))


def get_workflow_context() -> WorkflowContext:
    """Which task of which workflow this process is. Raises ``NotInTaskError`` (a ValueError) when it is none."""
    return WorkflowContext.from_environment()


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
            sidecar=_read_sidecar(os.environ.get("JOBQ_SIDECAR")),
        )

    def get_upstream_output(self, name: str, *, strict: bool = False) -> Any:
        """See the function of this name."""
        parent = self._parent(name)
        if not _has_output(parent):
            return _no_output(name, parent["state"]) if strict else None
        return _outputs(self._sidecar, {name: parent})[name]

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

    def _parent(self, name: str) -> Parent:
        parents: dict[str, Parent] = self._sidecar["parents"]
        if name not in parents:
            known = ", ".join(map(repr, sorted(parents)[:20])) or "none"
            raise NotUpstreamError(
                f"{name!r} is not a direct upstream of task {self.task_name!r}: add it to depends_on. "
                f"Its direct upstream tasks: {known}"
            )
        return parents[name]


def _variable(name: str) -> str:
    value = os.environ.get(name)
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


def _no_output(name: str, state: str) -> NoReturn:
    error = DependencyFailedError if state in _FAILED else NoOutputError
    raise error(f"upstream task {name!r} has no output: it is {state}")


_sidecars: dict[str, Mapping[str, Any]] = {}


def _read_sidecar(path: str | None) -> Mapping[str, Any]:
    """The sidecar file, read once per process: it never changes. Without one, the task has no parents."""
    if path is None:
        return {"parents": {}}
    if path not in _sidecars:
        import json

        with open(path, encoding="ascii") as file:
            _sidecars[path] = json.load(file)
    return _sidecars[path]


def _outputs(sidecar: Mapping[str, Any], parents: Mapping[str, Parent]) -> dict[str, Any]:
    """The outputs of parents that have one; those that were not handed over are read from the store, all at once."""
    import json

    texts = {name: parent["output"] for name, parent in parents.items() if "output" in parent}
    elsewhere = {name: parent for name, parent in parents.items() if name not in texts}
    if elsewhere:
        texts |= _fetch(sidecar, elsewhere)
    return {name: json.loads(text) for name, text in texts.items()}


def _fetch(sidecar: Mapping[str, Any], parents: Mapping[str, Parent]) -> dict[str, str]:
    """Read the store in a thread of its own, because the script may be inside a running event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from ai4s.jobq.worker.upstream import read_outputs

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(read_outputs(sidecar, parents))).result()
