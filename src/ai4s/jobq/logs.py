"""Where log lines go and how they look: stderr, one line per event, never stdout."""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
_TASK_OUTPUT = "task_printed"  # the event of lines that a task's command wrote


def set_up_logging(verbosity: int, *, level: int = logging.WARNING, task_output: bool = True) -> None:
    """Log to stderr from ``level`` on; each step of ``verbosity`` (``-v`` minus ``-q``) moves it by one level.

    Libraries stay at WARNING until ``verbosity`` is 2. Without ``task_output`` what commands print is left out.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    if not task_output:
        handler.addFilter(_is_no_task_output)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    logging.getLogger("ai4s").setLevel(max(level - 10 * verbosity, logging.DEBUG))


def _is_no_task_output(record: logging.LogRecord) -> bool:
    return getattr(record, "event", "") != _TASK_OUTPUT
