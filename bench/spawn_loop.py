"""The yardstick: the same DAG run by a bare asyncio loop that spawns ``bash -c true`` and remembers nothing.

Run as ``python -m bench.spawn_loop FILE SLOTS``: a process of its own, like what it is compared with.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any


async def run(tasks: list[dict[str, Any]], slots: int) -> None:
    """Run every task after its parents, at most ``slots`` at a time."""
    room = asyncio.Semaphore(slots)
    done = {task["name"]: asyncio.Event() for task in tasks}

    async def one(task: dict[str, Any]) -> None:
        for parent in task.get("depends_on", ()):
            await done[parent].wait()
        async with room:
            process = await asyncio.create_subprocess_exec("bash", "-c", task["kwargs"]["cmd"])
            await process.wait()
        done[task["name"]].set()

    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(one(task))


if __name__ == "__main__":
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())["tasks"], int(sys.argv[2])))
