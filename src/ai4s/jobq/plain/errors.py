"""Errors of the plain queue that users' programs catch by these names."""

from __future__ import annotations

from ai4s.jobq.errors import JobqError, MessageLostError, OperationalError


class EmptyQueue(JobqError):  # the name that programs have always caught
    """There is no job on the queue that can be taken now."""


class LockLostError(MessageLostError):
    """The job's message could not be kept: it may be somebody else's by now, so the job was stopped."""


class WorkerCanceled(JobqError):  # see above
    """Raised by a job that was told to end: it goes back to the queue, and no retry is charged."""


class JobFailedError(OperationalError):
    """A job whose result was waited for has failed for good; the message is its error."""


class TooManyFailuresError(OperationalError):
    """So many jobs in a row failed that the worker left."""
