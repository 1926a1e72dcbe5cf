"""Schedules that once failed, shrunk, by the name of what they showed. ``test_regressions.py`` replays them all.

Take in what the explorer prints as it is, under a name that says what went wrong.
"""

from __future__ import annotations

from typing import Any

REGRESSIONS: dict[str, dict[str, Any]] = {
    "a message that vanished between two looks at a queue that was empty before": {
        "seed": 6238,
        "plans": [
            {
                "workflow_id": "wf0",
                "definition": {
                    "name": "model",
                    "default_queue": "cpu-a",
                    "tasks": [
                        {"name": "t0", "kwargs": {"cmd": "true"}},
                        {"name": "t1", "kwargs": {"cmd": "true"}, "depends_on": ["t0"]},
                    ],
                },
                "outcomes": [[[{"value": 0}]], [[{"seconds": 43.98}]]],
                "submit_at": 5.0,
            }
        ],
        "machines": [{"queue": "cpu-a", "slots": 2}, {"queue": "cpu-a"}, {"queue": "cpu-a", "slots": 2}],
        "page": 1,
        "incidents": [{"at": 8.268006425671315, "kind": "clear", "target": "cpu-a"}],
        "faults": [],
    },
}
