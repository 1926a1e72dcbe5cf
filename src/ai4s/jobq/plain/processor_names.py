"""From ``--proc module.Class`` to what runs jobs."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from ai4s.jobq.errors import UsageError
from ai4s.jobq.plain.processors import Processor

SHELL = "shell"


def processor_named(path: str, *, num_workers: int) -> Processor | Callable[..., Any]:
    """What ``module.Name`` names: a processor, made if it is a class, or a function. The working directory is searched too.

    Raises: ``UsageError``: there is none, or it cannot be made.
    """
    module_name, dot, name = path.rpartition(".")
    if not dot:
        raise UsageError(f"--proc {path!r}: write shell, or module.Class such as mypackage.jobs.Train")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as exc:
        raise UsageError(f"--proc {path!r}: {exc}. The module is looked for here and where Python does.") from exc
    return _made(found, path, num_workers) if inspect.isclass(found) else _checked(found, path)


def _made(kind: type, path: str, num_workers: int) -> Processor | Callable[..., Any]:
    try:
        takes_number = "num_workers" in inspect.signature(kind).parameters
        return _checked(kind(num_workers=num_workers) if takes_number else kind(), path)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"--proc {path!r}: cannot be made without arguments: {exc}") from exc


def _checked(found: Any, path: str) -> Callable[..., Any]:
    if not callable(found):
        raise UsageError(f"--proc {path!r}: is neither a Processor nor a function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]  # callable() tells nothing of the arguments
