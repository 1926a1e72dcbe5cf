"""``workflow run`` of ``true`` beside the bare spawn loop: whole processes, in turn, several times."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.shapes import SHAPES

ROUNDS = 5
SLOTS = 2 * (os.cpu_count() or 1)


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def report() -> None:
    print(f"Embedded: whole processes, {SLOTS} slots, median of {ROUNDS} rounds in turn")
    print(f"  {'shape':18} {'run':>8} {'loop':>8}   of the loop's rate   without start-up")
    idle_run = idle_loop = None
    for shape in ("one task", *(name for name in SHAPES if name != "one task")):
        ours, theirs = _pair(shape)
        if shape == "one task":
            idle_run, idle_loop = ours, theirs
        assert idle_run is not None
        assert idle_loop is not None
        net = (theirs - idle_loop) / max(ours - idle_run, 1e-9) if shape != "one task" else float("nan")
        print(f"  {shape:18} {ours:7.3f}s {theirs:7.3f}s   {theirs / ours:17.0%}   {net:15.0%}")


def _pair(shape: str) -> tuple[float, float]:
    """Median seconds of ours and of the loop."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workflow.json"
        file.write_text(json.dumps(SHAPES[shape]().to_json()))
        environment = {**os.environ, "JOBQ_LOCAL_DIR": f"{folder}/store", "JOBQ_WORKFLOW_PREFIX": "local/Bench"}
        run = [sys.executable, "-m", "ai4s.jobq.cli.main", "workflow", "run", str(file), "-n", str(SLOTS)]
        loop = [sys.executable, "-m", "bench.spawn_loop", str(file), str(SLOTS)]
        pairs = [(_seconds(run, environment), _seconds(loop, environment)) for _ in range(ROUNDS)]
    return statistics.median(ours for ours, _ in pairs), statistics.median(theirs for _, theirs in pairs)


if __name__ == "__main__":
    report()
