"""The worker: takes messages from one queue, runs their commands, and reports what became of them.

``loop`` is the way in. A worker decides nothing about a workflow: it asks the store whether a task may still start, runs
it, and tells the coordinator, which alone changes rows.
"""
