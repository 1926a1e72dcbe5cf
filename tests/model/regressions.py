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
    "a dispatch whose commit takes a minute is not taken for lost": {
        "seed": 20118,
        "plans": [
            {
                "workflow_id": "wf0",
                "definition": {
                    "name": "model",
                    "default_queue": "cpu-a",
                    "tasks": [
                        {"name": "t1", "kwargs": {"cmd": "true"}, "depends_on": ["t0"]},
                        {
                            "name": "t2",
                            "kwargs": {"cmd": "true"},
                            "depends_on": ["t0", "t1"],
                            "dep_policy": "any",
                            "queue": "cpu-a",
                            "num_retries": 2,
                        },
                        {"name": "t0", "kwargs": {"cmd": "true"}, "num_retries": 1, "timeout_s": 5},
                    ],
                },
                "outcomes": [
                    [[{"value": 5}]],
                    [[{"seconds": 11.65, "value": 9}, {"value": 3, "large": True}, {"seconds": 0.73, "value": 9}]],
                    [[{"value": 0}, {"value": 0}]],
                ],
            }
        ],
        "machines": [{"queue": "cpu-a"}],
        "faults": [("coordinator1.1", "transact", 5, "delay", 50.22)],
    },
    "a run that another coordinator ends between two reads is left alone": {
        "seed": 20379,
        "plans": [
            {
                "workflow_id": "wf0",
                "definition": {
                    "name": "model",
                    "default_queue": "cpu-a",
                    "tasks": [
                        {"name": "t0", "kwargs": {"cmd": "true"}},
                        {"name": "t9", "kwargs": {"cmd": "true"}, "queue": "cpu-a"},
                        {"name": "t11", "kwargs": {"cmd": "true"}, "num_retries": 2, "timeout_s": 4},
                    ],
                },
                "outcomes": [
                    [[{"value": 5}]],
                    [[{"seconds": 9.36, "value": 3}]],
                    [[{"exit_code": 2, "seconds": 24.0}, {}, {"seconds": 24.0, "value": 3}]],
                ],
                "cancels_at": [0.22447761303204006],
            },
            {
                "workflow_id": "wf1",
                "definition": {
                    "name": "model",
                    "default_queue": "cpu-a",
                    "tasks": [{"name": "t0", "kwargs": {"cmd": "true"}, "queue": "cpu-a", "num_retries": 2}],
                    "max_parallelism": 2,
                },
                "outcomes": [
                    [
                        [
                            {"exit_code": 2, "seconds": 0.11},
                            {"exit_code": 1, "seconds": 0.42},
                            {"seconds": 0.25, "value": 3},
                        ]
                    ]
                ],
            },
        ],
        "machines": [{"queue": "cpu-a", "slots": 3}, {"queue": "cpu-a"}],
        "coordinators": 2,
        "all_lead": True,
        "outbox": 1,
        "faults": [("coordinator2.1", "get", 6, "delay", 7.19)],
    },
}
