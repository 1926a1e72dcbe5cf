"""Runs the workers of a plain queue from a program of the user's own."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ai4s.jobq.jobq import JobQ, Seconds, seconds
from ai4s.jobq.logs import set_up_logging
from ai4s.jobq.plain.callbacks import for_worker
from ai4s.jobq.plain.errors import TooManyFailuresError
from ai4s.jobq.plain.processors import Processor
from ai4s.jobq.plain.pulling import UnrenewedSettings
from ai4s.jobq.ports.clock import SystemClock
from ai4s.jobq.worker.loop import Worker, WorkerSummary
from ai4s.jobq.worker.settings import WorkerSettings, worker_settings_from_environment
from ai4s.jobq.worker.signals import leaving_on_signals

LOG = logging.getLogger(__name__)


async def launch_workers(
    queue: JobQ,
    processor: Processor | Callable[..., Any],
    time_limit: Seconds = timedelta(days=1),
    visibility_timeout: Seconds = timedelta(hours=1),
    with_heartbeat: bool = True,
    max_consecutive_failures: int | None = 50,
    num_workers: int = 1,
    show_progress: bool = True,
    worker_id: str | None = None,
    environment_name: str | None = None,
    idle_timeout: Seconds | None = None,
    max_idle_backoff: Seconds = timedelta(seconds=30),
) -> WorkerSummary:
    """Run ``num_workers`` jobs at a time until the queue is empty, for ``idle_timeout`` where one is given; what was done.

    ``time_limit`` is soft: no job is taken after it. Without a heartbeat a job is killed after ``visibility_timeout``.
    In the main thread SIGTERM and SIGINT stop it: jobs in hand go back. ``show_progress`` logs each job at its end, and
    ``environment_name`` appears in the log.

    Raises: ``TooManyFailuresError``: so many jobs in a row failed that it gave up.
    """
    settings = _settings(
        WorkerSettings if with_heartbeat else UnrenewedSettings,
        queue=queue.name,
        slots=num_workers,
        visibility_s=seconds(visibility_timeout),
        time_limit_s=seconds(time_limit),
        idle_timeout_s=None if idle_timeout is None else seconds(idle_timeout),
        max_idle_backoff_s=seconds(max_idle_backoff),
        max_consecutive_failures=max_consecutive_failures,
    )
    clock = SystemClock()
    runs = for_worker(processor, settings, clock=clock, environment=os.environ, worker_id=worker_id or "")
    worker = Worker(queue.services, settings, clock=clock, processor=runs)
    worker.worker_id = worker_id or worker.worker_id
    if environment_name:
        LOG.info("Environment: %s", environment_name)
    with contextlib.ExitStack() as listening:
        if threading.current_thread() is threading.main_thread():
            listening.enter_context(leaving_on_signals(worker))
        summary = await worker.run()
    if summary.gave_up:
        raise TooManyFailuresError(f"{max_consecutive_failures} jobs of {queue.full_name} in a row failed.")
    return summary


def setup_logging(
    queue_spec: str,
    app_insights_connection_string: str | None = None,
    environment: str | None = None,
    internal_log_level: int = logging.INFO,
    base_log_level: int = logging.WARNING,
) -> None:
    """Log to stderr: this package from ``internal_log_level`` on, everything else from ``base_log_level`` on.

    Application Insights is not supported: attach its handler to the root logger yourself.
    """
    set_up_logging(0, level=internal_log_level)
    logging.getLogger().setLevel(base_log_level)
    if app_insights_connection_string:
        LOG.warning("Logs are not sent to Application Insights: attach its handler to the root logger yourself")
    LOG.debug("Logging of %s, environment %s", queue_spec, environment)


def _settings(kind: type[WorkerSettings], **values: Any) -> WorkerSettings:
    return worker_settings_from_environment(kind(**values), os.environ)
