"""Makes the pictures of the README with the product itself: ``python docs/pictures.py`` in a checkout, after ``make demo``.

Runs the tutorial's diamond on a store of its own; the graph and the Gantt chart are the product's SVGs, the picture of
``watch`` is what it draws on a terminal of 100 columns, taken while the training tasks run.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "img"
TUTORIAL = Path(__file__).parents[1] / "examples" / "tutorial"
WIDTH = 100


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in TUTORIAL.glob("*.*"):
            shutil.copy(path, folder)
        slow = (Path(folder) / "diamond.yaml").read_text().replace("python train.py", "sleep 2; python train.py")
        (Path(folder) / "diamond.yaml").write_text(slow)
        environment = {
            **os.environ,
            "JOBQ_LOCAL_DIR": f"{folder}/store",
            "JOBQ_WORKFLOW_PREFIX": "local/Tutorial",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": str(WIDTH),
            "LINES": "24",
            "TERM": "xterm-256color",
        }
        workflow = ["ai4s-jobq", "workflow"]
        seen = _on_a_terminal([*workflow, "run", "diamond.yaml"], folder, environment)
        _save_screen(seen)
        listed = subprocess.run(
            [*workflow, "list"], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        workflow_id = listed.stdout.splitlines()[1].split()[0]
        for arguments in (["graph", workflow_id, "--format", "svg", "--output"], ["history", workflow_id, "--svg"]):
            target = str(IMAGES / f"{arguments[0]}.svg")
            subprocess.run([*workflow, *arguments, target], cwd=folder, env=environment, check=True)


def _on_a_terminal(command: list[str], folder: str, environment: dict[str, str]) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            break
        seen += piece
    process.wait()
    return seen.decode(errors="replace")


def _save_screen(seen: str) -> None:
    """The frame in which most is running, as SVG."""
    frames = [frame for frame in re.split(r"(?:\r?\x1b\[2K(?:\x1b\[1A)?)+", seen) if "running" in frame]
    frame = max(frames, key=lambda text: text.count("running"))
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    console.print(Text.from_ansi("$ ai4s-jobq workflow watch " + _id_in(frame)))
    console.print(Text.from_ansi(frame.replace("\r", "").strip("\n")))
    console.save_svg(str(IMAGES / "watch.svg"), title="ai4s-jobq workflow watch")


def _id_in(frame: str) -> str:
    found = re.search(r"\b[0-9a-f]{8}\b", frame)
    return found[0] if found else "ID"


if __name__ == "__main__":
    main()
