"""Every field of a workflow definition, once: the reader, the JSON Schema and the documentation follow this table."""

from __future__ import annotations

import re
from types import MappingProxyType

from ai4s.jobq.definition.expression_parser import MAX_TEXT
from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.definition.rules import (
    AsWritten,
    Choice,
    ChoiceOrWhole,
    Field,
    ListOf,
    MapOf,
    OpenRecord,
    Record,
    Text,
    Whole,
)
from ai4s.jobq.ids import MAX_TASK_NAME, queue_name_problem, task_name_problem

MAX_TASKS = 250_000
MAX_TASK_BYTES = 256 * 1024  # of canonical JSON: a task travels in one chunk of the stored definition
MAX_WORKFLOW_NAME = 255
MAX_TIMEOUT_S = 31_536_000  # a year
MAX_RETRIES = 1000

RESERVED_VARIABLES = ("JOBQ_WORKFLOW_ID", "JOBQ_WORKFLOW_TASK", "JOBQ_WORKFLOW_ATTEMPT", "JOBQ_OUTPUT_FILE")

_NO_NUL = r"^[^\u0000]*$(?!\n)"
_NOT_BLANK = r"^[^\u0000]*[^\u0000\s][^\u0000]*$(?!\n)"
_TRIMMED = r"^[^\s\u0000-\u001f\u007f]([^\u0000-\u001f\u007f]*[^\s\u0000-\u001f\u007f])?$(?!\n)"
_NO_CONTROL = r"^[^\u0000-\u001f\u007f]*$(?!\n)"


def workflow_name_fault(name: str) -> str | None:
    """What is wrong with the name of a workflow."""
    if not 1 <= len(name) <= MAX_WORKFLOW_NAME:
        return f"the name of a workflow has 1 to {MAX_WORKFLOW_NAME} characters, this one has {len(name)}"
    if not name.isprintable():
        return "the name of a workflow is printable text on one line"
    return None


def command_fault(cmd: str) -> str | None:
    """What is wrong with a shell command."""
    if not cmd.strip():
        return "'cmd' must not be empty"
    return nul_fault(cmd)


def nul_fault(text: str) -> str | None:
    """Whether the text has a NUL character, which no process can be given."""
    return f"a NUL character (at character {text.index(chr(0)) + 1}) is not allowed" if "\0" in text else None


def directory_fault(path: str) -> str | None:
    """What is wrong with a path of a directory."""
    return nul_fault(path) if path else "a path must not be empty"


def variable_name_fault(name: str) -> str | None:
    """What is wrong with the name of an environment variable."""
    if not name or "=" in name or "\0" in name:
        return "the name of an environment variable is not empty and has no '=' and no NUL character"
    if name in RESERVED_VARIABLES:
        return "this variable is set by the worker for every task, a task cannot set it"
    return None


def condition_fault(text: str) -> str | None:
    """What is wrong with a condition before it is parsed."""
    if not text.strip():
        return "'condition' must not be empty"
    if len(text) > MAX_TEXT:
        return f"a condition has at most {MAX_TEXT} characters, this one has {len(text)}"
    return nul_fault(text)


def likely_queue_name(name: str) -> str:
    """The legal queue name nearest to this one; may still be too short."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63]


_TASK_NAME = Text(fault=task_name_problem, min_length=1, max_length=MAX_TASK_NAME, pattern=_TRIMMED, normalise=True)
_QUEUE = Text(
    fault=queue_name_problem,
    min_length=3,
    max_length=63,
    pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$(?!\n)",
    better=likely_queue_name,
)
_TIMEOUT = Whole(minimum=1, maximum=MAX_TIMEOUT_S)
_DIRECTORY = Text(fault=directory_fault, min_length=1, pattern=_NO_NUL)

KWARGS = OpenRecord(
    noun="kwargs",
    fields=(
        Field(
            name="cmd",
            rule=Text(fault=command_fault, min_length=1, pattern=_NOT_BLANK),
            description="The shell command. A task without it is for a custom processor; a shell worker fails it.",
        ),
        Field(
            name="env",
            rule=MapOf(
                value=AsWritten(fault=nul_fault, pattern=_NO_NUL),
                key_fault=variable_name_fault,
                key_pattern=r"^[^=\u0000]+$(?!\n)",
                reserved=RESERVED_VARIABLES,
            ),
            description="Environment variables of the command. Values arrive exactly as written here.",
        ),
        Field(name="cwd", rule=_DIRECTORY, description="The directory in which the command runs."),
        Field(
            name="bg_dirsync_to",
            rule=_DIRECTORY,
            description="Where the working directory is copied to in the background while the command runs.",
        ),
    ),
)

TASK = Record(
    noun="task",
    fields=(
        Field(
            name="name",
            rule=_TASK_NAME,
            description="Unique name of the task: printable Unicode, no blank at its ends.",
            required=True,
        ),
        Field(
            name="kwargs",
            rule=KWARGS,
            description="What the worker is given: cmd, env, cwd for the shell; any other keys for a custom processor.",
        ),
        Field(
            name="depends_on",
            rule=ListOf(item=_TASK_NAME, plural="task names", unique=True),
            description="Names of the tasks that come before this one: its parents.",
        ),
        Field(
            name="queue",
            rule=_QUEUE,
            description="The queue whose workers run this task. Default: the workflow's default_queue.",
            nullable=True,
        ),
        Field(
            name="dep_policy",
            rule=ChoiceOrWhole(choice=Choice(words=DepPolicy), whole=Whole(minimum=1, maximum=MAX_TASKS)),
            description=(
                "When the task may run: all parents succeeded, any did, at least N did, or all have ended and one "
                "succeeded (all_settled)."
            ),
            default="all",
        ),
        Field(
            name="timeout_s",
            rule=_TIMEOUT,
            description="Time limit in seconds, from the start of the command. Default: default_task_timeout_s.",
            nullable=True,
        ),
        Field(
            name="num_retries",
            rule=Whole(minimum=0, maximum=MAX_RETRIES),
            description="How many more attempts follow a first one that failed.",
            default=0,
        ),
        Field(
            name="condition",
            rule=Text(fault=condition_fault, min_length=1, max_length=MAX_TEXT, pattern=_NOT_BLANK),
            description=(
                "An expression over the outputs of the parents, such as inputs.train.mae < 0.2. The task is skipped "
                "when it is false."
            ),
            nullable=True,
        ),
    ),
    hints={
        **{key: f"It belongs under 'kwargs': kwargs: {{{key}: …}}." for key in ("cmd", "env", "cwd", "bg_dirsync_to")},
        **dict.fromkeys(("command", "run", "script"), "A command is written kwargs: {cmd: …}."),
        **dict.fromkeys(("needs", "requires", "after", "dependencies"), "Did you mean 'depends_on'?"),
        **dict.fromkeys(("if", "when"), "Did you mean 'condition'?"),
        **dict.fromkeys(("retries", "retry", "num_retry", "max_retries"), "Did you mean 'num_retries'?"),
        "timeout": "Did you mean 'timeout_s'?",
    },
    max_bytes=MAX_TASK_BYTES,
)

WORKFLOW = Record(
    noun="workflow",
    fields=(
        Field(
            name="name",
            rule=Text(
                fault=workflow_name_fault,
                min_length=1,
                max_length=MAX_WORKFLOW_NAME,
                pattern=_NO_CONTROL,
                normalise=True,
            ),
            description="What people call this workflow. Need not be unique.",
            required=True,
        ),
        Field(
            name="default_queue",
            rule=_QUEUE,
            description="The queue of the tasks that name none.",
            default="default",
        ),
        Field(
            name="default_task_timeout_s",
            rule=_TIMEOUT,
            description="Time limit in seconds of the tasks that have none. Default: no limit.",
            nullable=True,
        ),
        Field(
            name="max_parallelism",
            rule=Whole(minimum=1, maximum=MAX_TASKS),
            description="How many tasks of this workflow may be dispatched at a time. Default: no limit.",
            nullable=True,
        ),
        Field(
            name="result_policy",
            rule=Choice(words=ResultPolicy),
            description="Whether the workflow counts as completed when all its sinks succeeded, or all its tasks.",
            default="all_sinks_succeed",
        ),
        Field(
            name="tasks",
            rule=ListOf(item=TASK, plural="tasks", min_items=1, max_items=MAX_TASKS),
            description="The tasks. Together with their depends_on they form a graph without cycles.",
            required=True,
        ),
    ),
    hints={
        **dict.fromkeys(("queue", "default_que"), "Did you mean 'default_queue'?"),
        **dict.fromkeys(("timeout_s", "timeout"), "Did you mean 'default_task_timeout_s'?"),
        **dict.fromkeys(("jobs", "steps", "nodes"), "Did you mean 'tasks'?"),
        "parallelism": "Did you mean 'max_parallelism'?",
    },
    ignored=("$schema",),
)

MISTAKEN_KWARGS = MappingProxyType(
    {
        **dict.fromkeys(("command", "commands", "cmds", "cmdline", "cmd_line", "command_line", "comand"), "cmd"),
        **dict.fromkeys(("run", "script", "shell"), "cmd"),
        **dict.fromkeys(("environment", "environ", "envs", "env_vars", "envvars", "variables"), "env"),
        **dict.fromkeys(("workdir", "working_dir", "working_directory", "work_dir", "chdir", "directory"), "cwd"),
    }
)
"""Keys of kwargs that are legal, but probably meant for one that the shell worker reads."""
