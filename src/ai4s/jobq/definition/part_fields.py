"""The fields of the smaller records of a definition (kwargs, jobs, retries, signals, matrices, params), and shared rules."""

from __future__ import annotations

from ai4s.jobq.definition.faults import (
    MAX_DESCRIPTION,
    MAX_PARAM_NAME,
    RESERVED_VARIABLES,
    command_fault,
    description_fault,
    directory_fault,
    likely_queue_name,
    nul_fault,
    param_name_fault,
    signal_name_fault,
    variable_name_fault,
)
from ai4s.jobq.definition.parts import Backoff, OnTimeout, ParamType
from ai4s.jobq.definition.rules import (
    AsWritten,
    Choice,
    Field,
    Free,
    Labelled,
    ListOf,
    MapOf,
    Number,
    OpenRecord,
    Record,
    Text,
    Truth,
    Whole,
)
from ai4s.jobq.ids import MAX_TASK_NAME, queue_name_problem, task_name_problem

MAX_TIMEOUT_S = 31_536_000  # a year
MAX_RETRIES = 1000
MAX_PRIORITY = 1000
MAX_AXES = 16

_NO_NUL = r"^[^\u0000]*$(?!\n)"
NOT_BLANK = r"^[^\u0000]*[^\u0000\s][^\u0000]*$(?!\n)"
_TRIMMED = r"^[^\s\u0000-\u001f\u007f]([^\u0000-\u001f\u007f]*[^\s\u0000-\u001f\u007f])?$(?!\n)"
NO_CONTROL = r"^[^\u0000-\u001f\u007f]*$(?!\n)"
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)"
_SIGNAL_NAME = r"^[A-Za-z0-9._-]+$(?!\n)"

TASK_NAME = Text(fault=task_name_problem, min_length=1, max_length=MAX_TASK_NAME, pattern=_TRIMMED, normalise=True)
QUEUE = Text(
    fault=queue_name_problem,
    min_length=3,
    max_length=63,
    pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$(?!\n)",
    better=likely_queue_name,
    templated=True,
)
TIMEOUT = Whole(minimum=1, maximum=MAX_TIMEOUT_S)
DIRECTORY = Text(fault=directory_fault, min_length=1, pattern=_NO_NUL)
_COMMAND = Text(fault=command_fault, min_length=1, pattern=NOT_BLANK)
_ENVIRONMENT = MapOf(
    value=AsWritten(fault=nul_fault, pattern=_NO_NUL),
    key_fault=variable_name_fault,
    key_pattern=r"^[^=\u0000]+$(?!\n)",
    reserved=RESERVED_VARIABLES,
)
PRIORITY = Whole(minimum=-MAX_PRIORITY, maximum=MAX_PRIORITY)
DELAY = Number(minimum=0, maximum=MAX_TIMEOUT_S)

KWARGS = OpenRecord(
    noun="kwargs",
    fields=(
        Field(
            name="cmd",
            rule=_COMMAND,
            description="The shell command. A task without it is for a custom processor; a shell worker fails it.",
        ),
        Field(
            name="env",
            rule=_ENVIRONMENT,
            description="Environment variables of the command. Values arrive exactly as written here.",
        ),
        Field(name="cwd", rule=DIRECTORY, description="The directory in which the command runs."),
        Field(
            name="bg_dirsync_to",
            rule=DIRECTORY,
            description="Where the working directory is copied to in the background while the command runs.",
        ),
    ),
)

_JOB_HINTS = {
    **dict.fromkeys(("command", "run", "script", "kwargs"), "A job is written {cmd: …}."),
    "timeout": "Did you mean 'timeout_s'?",
    **dict.fromkeys(("retries", "retry", "max_retries"), "Did you mean 'num_retries'?"),
}

TIMEOUT_S = Field(
    name="timeout_s",
    rule=TIMEOUT,
    description="Time limit in seconds, from the start of the command. Default: default_task_timeout_s.",
    nullable=True,
)
NUM_RETRIES = Field(
    name="num_retries",
    rule=Whole(minimum=0, maximum=MAX_RETRIES),
    description="How many more attempts follow a first one that failed.",
    default=0,
)

JOB = Record(
    noun="job",
    fields=(
        Field(name="cmd", rule=_COMMAND, description="The shell command.", required=True),
        Field(name="env", rule=_ENVIRONMENT, description="Environment variables of the command."),
        Field(name="cwd", rule=DIRECTORY, description="The directory in which the command runs."),
        Field(
            name="queue",
            rule=QUEUE,
            description="The queue whose workers run it. Default: the task's own for undo, default_queue for a hook.",
            nullable=True,
        ),
        TIMEOUT_S,
        NUM_RETRIES,
    ),
    hints=_JOB_HINTS,
)

RETRY = Record(
    noun="retry",
    fields=(
        Field(
            name="max",
            rule=Whole(minimum=0, maximum=MAX_RETRIES),
            description="How many more attempts may follow a first one that failed.",
            required=True,
        ),
        Field(name="delay_s", rule=DELAY, description="Seconds to wait before the first retry.", default=0),
        Field(
            name="backoff",
            rule=Choice(words=Backoff),
            description="Whether every delay is the same (fixed) or twice the one before (exponential).",
            default="fixed",
        ),
        Field(
            name="max_delay_s",
            rule=DELAY,
            description="The longest delay in seconds. Default: no limit.",
            nullable=True,
        ),
        Field(
            name="jitter",
            rule=Number(minimum=0, maximum=1),
            description="The share of each delay that is left to chance, so that many tasks do not come back at once.",
            default=0,
        ),
        Field(
            name="on_exit_codes",
            rule=ListOf(item=Whole(minimum=-255, maximum=255), plural="exit codes"),
            description="Retry after these exit codes only; negative ones are signals. Default: after any failure.",
        ),
    ),
    hints={
        **dict.fromkeys(("num_retries", "count", "attempts", "limit", "retries"), "Did you mean 'max'?"),
        "delay": "Did you mean 'delay_s'?",
        "max_delay": "Did you mean 'max_delay_s'?",
        "exit_codes": "Did you mean 'on_exit_codes'?",
    },
)

WAIT_FOR = Record(
    noun="wait_for",
    fields=(
        Field(
            name="signal",
            rule=Text(fault=signal_name_fault, min_length=1, max_length=100, pattern=_SIGNAL_NAME, templated=True),
            description="The name of the signal. Its data becomes the output of the task.",
            required=True,
        ),
        Field(
            name="timeout_s",
            rule=TIMEOUT,
            description="How many seconds to wait for it. Default: for ever.",
            nullable=True,
        ),
        Field(
            name="on_timeout",
            rule=Choice(words=OnTimeout),
            description="What becomes of the task when the signal does not come in time: fail, or skip.",
            default="fail",
        ),
    ),
    hints={"timeout": "Did you mean 'timeout_s'?", "name": "Did you mean 'signal'?"},
)

MATRIX = MapOf(
    value=ListOf(item=Labelled(), plural="values", min_items=1),
    key_fault=param_name_fault,
    key_pattern=IDENTIFIER,
    key_max_length=MAX_PARAM_NAME,
    min_items=1,
    max_items=MAX_AXES,
    plural="axes",
)

PARAM = Record(
    noun="param",
    fields=(
        Field(
            name="type",
            rule=Choice(words=ParamType),
            description="The type of its values. Default: that of its default, else of its first choice, else string.",
        ),
        Field(
            name="default",
            rule=Free(),
            description="The value when none is given at submit.",
            nullable=True,
        ),
        Field(
            name="required",
            rule=Truth(),
            description="Whether a value must be given. Default: yes, unless there is a default. If not, it is null.",
        ),
        Field(
            name="choices",
            rule=ListOf(item=Free(), plural="values", min_items=1),
            description="The only values allowed.",
        ),
        Field(
            name="description",
            rule=Text(fault=description_fault, max_length=MAX_DESCRIPTION),
            description="What it is for.",
        ),
    ),
    hints={
        **dict.fromkeys(("options", "enum", "values", "allowed"), "Did you mean 'choices'?"),
        "value": "Did you mean 'default'?",
        "help": "Did you mean 'description'?",
    },
)
