"""Commands to advise: complete, for the very target that was looked at, ready to be pasted into a shell."""

from __future__ import annotations

import shlex

from ai4s.jobq.settings import BLOBS_VARIABLE, PREFIX_VARIABLE, QUEUES_VARIABLE, Source, Target


def workflow_command(target: Target, words: str) -> str:
    """``ai4s-jobq workflow ACCOUNT/PREFIX …`` with the options that were given by flags."""
    options = [
        f"--{key} {shlex.quote(value)} "
        for key, value in (("queues", target.queues), ("blobs", target.blobs))
        if value is not None and target.sources.get(key) is Source.FLAG
    ]
    return f"ai4s-jobq workflow {target.name} {''.join(options)}{words}"


def worker_command(target: Target, queue: str) -> str:
    """What starts a worker of this queue that knows the workflows of this target."""
    said = {PREFIX_VARIABLE: target.name, QUEUES_VARIABLE: target.queues, BLOBS_VARIABLE: target.blobs}
    variables = [f"{name}={shlex.quote(value)}" for name, value in said.items() if value is not None]
    return f"{' '.join(variables)} ai4s-jobq {target.queue_account}/{queue} worker"
