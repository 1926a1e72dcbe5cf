"""Every table, partition, row key, queue and blob name there is.

``<prefix>WorkflowTasks``: one partition per workflow, holding all that decides it: ``header``, the definition chunks
``d:<run>:<n>``, the task rows ``t000123`` (numbers, because Azure forbids characters in keys that users want in names).
``<prefix>Workflows``: the index, partitions ``active`` and ``ended``, the lease and the worker registry.

No other module spells such a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ai4s.jobq.ids import check_prefix

HEADER = "header"
ACTIVE = "active"
ENDED = "ended"
LEASE = "lease"
WORKERS = "workers"

DEFAULT_CONTAINER = "jobq-workflow-data"
LOCAL_ACCOUNT = "local"

FIRST_TASK_ROW = "t"
BEFORE_TASK_ROWS_END = "u"
BEFORE_JOB_ROWS_END = "v"  # undo jobs come right after the tasks

_FAR_MS = 253402300799999  # 9999-12-31: subtracted from, so that later times sort first


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one prefix."""

    prefix: str

    def __post_init__(self) -> None:
        check_prefix(self.prefix)

    @property
    def index_table(self) -> str:
        return f"{self.prefix}Workflows"

    @property
    def tasks_table(self) -> str:
        return f"{self.prefix}WorkflowTasks"

    @property
    def completion_queue(self) -> str:
        return f"{self.prefix.lower()}-workflow-completions"

    def workflow_blobs(self, workflow_id: str) -> str:
        """Blob name prefix of everything that submissions under this id wrote."""
        return f"{self.all_blobs}{workflow_id}/"

    def run_blobs(self, workflow_id: str, run: str) -> str:
        """Blob name prefix of everything one submission wrote."""
        return f"{self.workflow_blobs(workflow_id)}{run}/"

    @property
    def all_blobs(self) -> str:
        """Blob name prefix of everything that belongs to this prefix."""
        return f"{self.prefix}/"

    def output_blob(self, workflow_id: str, run: str, row: str, execution: str) -> str:
        """Where one execution of a task puts an output too large for its row."""
        return f"{self.run_blobs(workflow_id, run)}{row}/{execution}/output.json"

    def file_blob(self, workflow_id: str, run: str, row: str, execution: str, number: int) -> str:
        """Where one execution of a task puts the file ``number`` of its output: files of one name are kept apart."""
        return f"{self.run_blobs(workflow_id, run)}{row}/{execution}/files/{number:06d}"


def task_row(number: int) -> str:
    """Row key of task ``number`` (its position in the definition)."""
    return f"t{number:06d}"


def task_number(row: str) -> int:
    """The task number of a row key that ``task_row`` made. Raises ``ValueError`` for any other text."""
    if row[:1] != "t" or not (row[1:].isascii() and row[1:].isdigit()):
        raise ValueError(f"{row!r} is no task row")
    return int(row[1:])


def job_row(number: int, tasks: int) -> str:
    """Row key of a job of a run with so many tasks: ``t000123`` a task, ``u000123`` its undo job, ``h000001`` a hook.

    Jobs are numbered as ``engine.graph.Graph`` does: tasks, then undo jobs, then hooks.
    """
    kind, place = divmod(number, tasks) if number < 2 * tasks else (2, number - 2 * tasks)
    return f"{'tuh'[kind]}{place:06d}"


def job_number(row: str, tasks: int) -> int:
    """The job number of a row key that ``job_row`` made. Raises ``ValueError`` for any other text."""
    kind = "tuh".find(row[:1]) if row else -1
    if kind < 0 or not (row[1:].isascii() and row[1:].isdigit()):
        raise ValueError(f"{row!r} is no job's row")
    place = int(row[1:])
    if kind < 2 and place >= tasks:
        raise ValueError(f"{row!r} is no row of a workflow with {tasks} tasks")
    return kind * tasks + place


def is_beyond(row: str, tasks: int) -> bool:
    """Whether a row key is that of a task, or of its undo job, that a run with so many tasks does not have."""
    return row[:1] in ("t", "u") and row[1:].isascii() and row[1:].isdigit() and int(row[1:]) >= tasks


def hook_rows() -> tuple[str, str]:
    """First row key of hooks, and the key before which all of them lie."""
    return "h0", "h:"


def signal_row(name: str, rev: int) -> str:
    """Row key of a signal sent at revision ``rev`` of the header: rows of one name sort in the order they were sent."""
    return f"s:{name}:{rev:012d}"


def signal_name(row: str) -> str:
    """The name in a signal's row key."""
    return row.split(":")[1]


def signal_rows() -> tuple[str, str]:
    """First row key of signals, and the key before which all of them lie."""
    return "s:", "s;"


def chunk_row(run: str, number: int) -> str:
    """Row key of one definition chunk of a run."""
    return f"d:{run}:{number:05d}"


def chunk_rows(run: str) -> tuple[str, str]:
    """First row key, and the key before which all chunks of a run lie."""
    return f"d:{run}:", f"d:{run};"


def ended_row(ended_at: datetime, workflow_id: str) -> str:
    """Row key in the ``ended`` partition: inverted end time, then the id, so that the newest comes first."""
    return f"{_FAR_MS - int(ended_at.timestamp() * 1000):015d}-{workflow_id}"


def ended_rows_until(time: datetime) -> str:
    """The row key at which the ``ended`` partition reaches what ended at ``time`` or earlier."""
    return ended_row(time, "")


def private_queue(run: str, number: int) -> str:
    """Queue ``number`` (in sorted order) of a run that belongs to one process alone (``workflow run``)."""
    return f"run-{run}-{number}"


def private_completion_queue(run: str) -> str:
    """Completion queue of a private run."""
    return f"run-{run}-completions"


def task_queue(queue: str, *, private: str, run: str, queues: list[str]) -> str:
    """The real name of a definition's ``queue``: itself, or the private run's own; ``queues`` are all of them, sorted."""
    return private_queue(run, queues.index(queue)) if private else queue
