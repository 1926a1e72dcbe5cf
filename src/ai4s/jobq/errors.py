"""Every error this package raises on purpose.

Three groups, one exit code each (``exit_code``), so that a script and an operator know whose turn it is:

* **yours to fix** (:class:`UsageError` and its children): the input is wrong;
* **wait or look** (:class:`OperationalError`): the input is fine, the world is not;
* **our bug** (:class:`InternalError`): a promise inside the program was broken.

Constructors take facts and write the sentence: what was wrong, where, what to do. No message may contain a
key, a connection string or the output of a task. Translating SDK exceptions is the adapters' work, not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class JobqError(Exception):
    """Root of all errors raised on purpose by this package."""

    exit_code = 1


# -- yours to fix
class UsageError(JobqError):
    """The caller asked for something that cannot be: a wrong argument, name or combination."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting (flag, environment variable or config file entry) is missing or malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a definition: where it is, what it is, what to do about it.

    ``line`` and ``column`` are 1-based, or None when the place is not known (a definition built in Python).
    ``path`` is the place inside the document, such as ``tasks[3].depends_on``.
    """

    message: str
    path: str = ""
    source: str = ""
    line: int | None = None
    column: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part not in ("", None))
        head = ": ".join(part for part in (place, self.path) if part)
        tail = f" {self.hint}" if self.hint else ""
        return f"{head}: {self.message}{tail}" if head else f"{self.message}{tail}"


class DefinitionError(UsageError):
    """A workflow definition is wrong; ``problems`` lists every mistake found, in document order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConditionError(JobqError):
    """An expression has no value with the outputs there are: the task that has it fails with this message."""


class WorkflowNotFoundError(JobqError):
    """No workflow has this id under this prefix; ``near`` lists ids that look like it."""

    exit_code = 5

    def __init__(self, workflow_id: str, *, target: str, near: Sequence[str] = ()) -> None:
        self.workflow_id = workflow_id
        self.near = tuple(near)
        hint = f" Did you mean {', '.join(self.near)}?" if self.near else " See: ai4s-jobq workflow list"
        super().__init__(f"No workflow {workflow_id!r} in {target}.{hint}")


class WorkflowExistsError(JobqError):
    """The id is taken by a run of another definition."""

    exit_code = 4

    def __init__(self, workflow_id: str, *, target: str) -> None:
        self.workflow_id = workflow_id
        super().__init__(
            f"Workflow {workflow_id!r} already exists in {target} with another definition. "
            "Choose another --id, or purge the old one first."
        )


class NothingToRetryError(JobqError):
    """``retry`` was asked for a run in which nothing can be retried."""


class WaitTimeoutError(JobqError, TimeoutError):
    """A workflow had not ended when the time for waiting was over; it goes on."""

    exit_code = 124

    def __init__(self, workflow_id: str, *, state: str) -> None:
        self.workflow_id = workflow_id
        super().__init__(f"Workflow {workflow_id!r} is still {state}: the time for waiting is over. It goes on.")


# -- wait or look
class OperationalError(JobqError):
    """The request is legal, but the services or another process do not allow it now."""


class StorageUnavailableError(OperationalError):
    """A store cannot be reached or keeps failing; ``retry_after_s`` is its own advice, when it gave one."""

    exit_code = 6

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class AccessDeniedError(OperationalError):
    """The store answered that this identity may not do that (401 or 403)."""

    exit_code = 6


class StaleWriteError(OperationalError):
    """A conditional write found another state than it expected: somebody else wrote first, or the row is gone."""


class EntityExistsError(StaleWriteError):
    """An insert found its row already there."""


class MessageLostError(OperationalError):
    """The receipt of a message is no longer valid: it was completed, or its visibility timeout has passed."""


class MessageTooLargeError(OperationalError):
    """A message is larger than the queue service takes; sending it again will fail again."""


class EntityTooLargeError(OperationalError):
    """A row, a property or a transaction is larger than Table Storage takes."""


class BlobNotFoundError(OperationalError):
    """No blob (or no container) of that name."""


class LeaseHeldError(OperationalError):
    """Another coordinator leads this prefix."""


class NothingSentError(OperationalError):
    """The queue refuses this send for good (no such queue, forbidden): sending again will fail again."""


# -- our bug
class InternalError(JobqError):
    """A promise inside the program was broken; please report it."""

    exit_code = 70


class InvalidTransitionError(InternalError):
    """The engine was asked for a transition its table does not have."""


class CorruptRecordError(JobqError):
    """A stored row or message cannot be understood: damaged, hand-edited, or written by a newer version."""

    exit_code = 70


class NewerVersionError(CorruptRecordError):
    """A row or message was written by a newer version of this package; it is left alone."""
