"""Generated workflows in the shapes of real ones, and the recorded ones where they lie beside the checkout."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

_BESIDE = Path(__file__).parents[3] / "shared" / "workloads"
WORKLOADS = Path(os.environ.get("JOBQ_TEST_WORKLOADS", _BESIDE))


def recorded_workloads() -> list[Path]:
    """Recorded workflows (YAML), if this machine has them; their names are not part of this project."""
    return sorted(WORKLOADS.glob("*.yaml")) if WORKLOADS.is_dir() else []


def _task(name: str, parents: list[str], *, cmd: str = "true", queue: str | None = None) -> dict[str, Any]:
    task: dict[str, Any] = {"name": name, "kwargs": {"cmd": cmd}}
    if parents:
        task["depends_on"] = parents
    if queue is not None:
        task["queue"] = queue
    return task


def fan(width: int) -> dict[str, Any]:
    """1 → ``width`` → 1."""
    middle = [f"part-{number:05d}" for number in range(width)]
    tasks = [_task("split", []), *(_task(name, ["split"]) for name in middle), _task("join", middle)]
    return {"name": f"fan-{width}", "tasks": tasks}


def mosaic(images: int = 100, *, seed: int = 1) -> dict[str, Any]:
    """The shape of an image mosaic: project each, fit overlapping pairs, one wide join, a background per image, add."""
    rng = random.Random(seed)
    project = [f"project-{number:04d}" for number in range(images)]
    tasks = [_task(name, []) for name in project]
    fits = []
    for number in range(images * 3):
        left = rng.randrange(images - 1)
        right = min(left + rng.randint(1, 12), images - 1)
        if left == right:
            continue
        fits.append(f"fit-{number:05d}")
        tasks.append(_task(fits[-1], [project[left], project[right]]))
    tasks.append(_task("concat", fits))
    tasks.append(_task("model", ["concat"]))
    backgrounds = [f"background-{number:04d}" for number in range(images)]
    tasks += [_task(name, ["model", project[number]]) for number, name in enumerate(backgrounds)]
    tasks += [_task("table", backgrounds), _task("add", ["table", *backgrounds]), _task("view", ["add"])]
    return {"name": "mosaic", "tasks": tasks}


def sequencing(samples: int = 14, *, seed: int = 2) -> dict[str, Any]:
    """The shape of a sequencing pipeline: long dotted names, three queues, multi-line commands with here-documents."""
    rng = random.Random(seed)
    steps = [
        "TRIM",
        "FASTQC",
        "ALIGN",
        "SORT",
        "DEDUP",
        "COVERAGE",
        "VARIANTS",
        "FILTER",
        "ANNOTATE",
        "CONSENSUS",
        "LINEAGE",
    ]
    tasks = [_sequencing_task("PREPARE", 0, [], rng)]
    ends = []
    for sample in range(samples):
        before = tasks[0]["name"]
        for step in steps:
            task = _sequencing_task(step, sample, [before], rng)
            before = task["name"]
            tasks.append(task)
        ends.append(before)
    tasks.append(_sequencing_task("REPORT", 0, ends, rng))
    return {"name": "sequencing", "tasks": tasks}


def _sequencing_task(step: str, sample: int, parents: list[str], rng: random.Random) -> dict[str, Any]:
    name = (
        f"PIPELINE.SAMPLES.{step}.{'_'.join(rng.choice(['LONG', 'NAME', 'PART']) for _ in range(18))}.{step}_{sample}"
    )
    cmd = f"cat <<'END' >/dev/null\n  {step.lower()} --in \\\n    'x{sample}.fq' \"$(not run)\" %s {{}}\nEND\ntrue"
    return _task(name[:124], parents, cmd=cmd, queue=rng.choice([None, "pool-1", "pool-2"]))
