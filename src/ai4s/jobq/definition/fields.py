"""Every field of a workflow definition, once: the reader, the JSON Schema and the documentation follow this table."""

from __future__ import annotations

from types import MappingProxyType

from ai4s.jobq.definition.faults import (
    MAX_EXPRESSION,
    MAX_LABEL_NAME,
    MAX_LABEL_VALUE,
    MAX_PARAM_NAME,
    MAX_WORKFLOW_NAME,
    condition_fault,
    label_name_fault,
    label_value_fault,
    param_name_fault,
    workflow_name_fault,
)
from ai4s.jobq.definition.labels import MAX_LABELS
from ai4s.jobq.definition.model import DepPolicy, ResultPolicy
from ai4s.jobq.definition.part_fields import (
    DELAY,
    IDENTIFIER,
    JOB,
    KWARGS,
    MATRIX,
    NO_CONTROL,
    NOT_BLANK,
    NUM_RETRIES,
    PARAM,
    PRIORITY,
    QUEUE,
    RETRY,
    TASK_NAME,
    TIMEOUT,
    TIMEOUT_S,
    WAIT_FOR,
)
from ai4s.jobq.definition.rules import (
    AsWritten,
    Choice,
    ChoiceOrWhole,
    Field,
    ListOf,
    MapOf,
    Record,
    ShortForm,
    Text,
    Timestamp,
    Truth,
    TruthOr,
    Whole,
)

MAX_TASKS = 250_000
MAX_TASK_BYTES = (
    256 * 1024
)  # of canonical JSON without depends_on: a task travels in one chunk of the stored definition
MAX_PARAMS = 256

_LABEL_NAME = r"^[^=\s\u0000-\u001f\u007f]([^=\u0000-\u001f\u007f]*[^=\s\u0000-\u001f\u007f])?$(?!\n)"

TASK = Record(
    noun="task",
    fields=(
        Field(
            name="name",
            rule=TASK_NAME,
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
            rule=ListOf(item=TASK_NAME, plural="task names", unique=True),
            description="Names of the tasks that come before this one: its parents.",
        ),
        Field(
            name="queue",
            rule=QUEUE,
            description="The queue whose workers run this task. Default: the workflow's default_queue.",
            nullable=True,
        ),
        Field(
            name="dep_policy",
            rule=ChoiceOrWhole(choice=Choice(words=DepPolicy), whole=Whole(minimum=1, maximum=MAX_TASKS)),
            description=(
                "When the task may run: all parents succeeded, any did, at least N did, all have ended and one "
                "succeeded (all_settled), all have ended somehow (always), or all have ended and one failed (on_failure)."
            ),
            default="all",
        ),
        TIMEOUT_S,
        NUM_RETRIES,
        Field(
            name="condition",
            rule=Text(fault=condition_fault, min_length=1, max_length=MAX_EXPRESSION, pattern=NOT_BLANK),
            description=(
                "An expression over the outputs of the parents, such as inputs.train.mae < 0.2. The task is skipped "
                "when it is false."
            ),
            nullable=True,
        ),
        Field(
            name="allow_failure",
            rule=Truth(),
            description="Whether the workflow may complete although this task failed.",
            default=False,
        ),
        Field(
            name="undo",
            rule=JOB,
            description="A job that takes back what the task did, when the workflow fails or is cancelled after it.",
            nullable=True,
        ),
        Field(
            name="priority",
            rule=PRIORITY,
            description="Which tasks are dispatched first: those with the higher number.",
            default=0,
        ),
        Field(
            name="retry",
            rule=RETRY,
            description="How the task is tried again after a failure; num_retries is its short form.",
            nullable=True,
        ),
        Field(
            name="delay_s",
            rule=DELAY,
            description="Seconds to wait after the last parent has ended.",
            default=0,
        ),
        Field(
            name="not_before",
            rule=Timestamp(),
            description="The task does not start before this time, written with its zone: 2030-01-31T08:00:00Z.",
            nullable=True,
        ),
        Field(
            name="wait_for",
            rule=WAIT_FOR,
            description="A signal that the task waits for instead of running a command: an approval, an event.",
            nullable=True,
        ),
        Field(
            name="matrix",
            rule=MATRIX,
            description="Lists of values: the task becomes one task for each combination, with ${{ matrix.axis }} inside.",
            nullable=True,
        ),
    ),
    hints={
        **{key: f"It belongs under 'kwargs': kwargs: {{{key}: …}}." for key in ("cmd", "env", "cwd", "bg_dirsync_to")},
        **dict.fromkeys(("command", "run", "script"), "A command is written kwargs: {cmd: …}."),
        **dict.fromkeys(("needs", "requires", "after", "dependencies"), "Did you mean 'depends_on'?"),
        **dict.fromkeys(("if", "when"), "Did you mean 'condition'?"),
        **dict.fromkeys(("retries", "num_retry", "max_retries"), "Did you mean 'num_retries'?"),
        **dict.fromkeys(("compensate", "compensation", "rollback"), "Did you mean 'undo'?"),
        **dict.fromkeys(("strategy", "foreach", "with_items"), "Did you mean 'matrix'?"),
        "continue_on_error": "Did you mean 'allow_failure'?",
        "delay": "Did you mean 'delay_s'?",
        "timeout": "Did you mean 'timeout_s'?",
    },
    max_bytes=MAX_TASK_BYTES,
    uncounted="depends_on",
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
                pattern=NO_CONTROL,
                normalise=True,
            ),
            description="What people call this workflow. Need not be unique.",
            required=True,
        ),
        Field(
            name="default_queue",
            rule=QUEUE,
            description="The queue of the tasks that name none.",
            default="default",
        ),
        Field(
            name="default_task_timeout_s",
            rule=TIMEOUT,
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
            name="params",
            rule=MapOf(
                value=ShortForm(record=PARAM, field="default"),
                key_fault=param_name_fault,
                key_pattern=IDENTIFIER,
                key_max_length=MAX_PARAM_NAME,
                max_items=MAX_PARAMS,
                plural="params",
            ),
            description="Values that are chosen at submit and read as ${{ params.name }}. Short form: name: default.",
        ),
        Field(
            name="labels",
            rule=MapOf(
                value=AsWritten(fault=label_value_fault, pattern=NO_CONTROL, max_length=MAX_LABEL_VALUE),
                key_fault=label_name_fault,
                key_pattern=_LABEL_NAME,
                key_max_length=MAX_LABEL_NAME,
                max_items=MAX_LABELS,
                plural="labels",
            ),
            description="Marks to find workflows by. They change nothing else.",
        ),
        Field(
            name="priority",
            rule=PRIORITY,
            description="Which workflows' tasks are dispatched first: those with the higher number.",
            default=0,
        ),
        Field(
            name="fail_fast",
            rule=TruthOr(word="kill"),
            description=(
                "Whether the first failure that nothing handles cancels what has not started; kill: also what runs."
            ),
            default=False,
        ),
        Field(
            name="undo_on_cancel",
            rule=Truth(),
            description="Whether a cancel runs the undo jobs of completed tasks.",
            default=True,
        ),
        Field(
            name="timeout_s",
            rule=TIMEOUT,
            description="Time limit in seconds of the whole run. Default: no limit.",
            nullable=True,
        ),
        Field(
            name="deadline",
            rule=Timestamp(),
            description="The time by which the run must have ended, written with its zone: 2030-01-31T08:00:00Z.",
            nullable=True,
        ),
        Field(
            name="on_success",
            rule=JOB,
            description="A job that runs after a run that completed.",
            nullable=True,
        ),
        Field(
            name="on_failure",
            rule=JOB,
            description="A job that runs after a run that failed.",
            nullable=True,
        ),
        Field(
            name="on_end",
            rule=JOB,
            description="A job that runs after every run, however it ended.",
            nullable=True,
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
        "timeout": "Did you mean 'timeout_s' (of the run) or 'default_task_timeout_s' (of each task)?",
        "arguments": "Values of params are given at submit.",
        **dict.fromkeys(("inputs", "parameters", "variables"), "Did you mean 'params'?"),
        **dict.fromkeys(("tags", "annotations"), "Did you mean 'labels'?"),
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
