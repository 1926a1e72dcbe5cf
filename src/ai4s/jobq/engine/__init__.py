"""Decisions: what a run does next, given what happened. Pure.

No I/O, no clock, no logging, no randomness, no environment: time and room come in as arguments, effects go out as values.
The same run, events, time and room always give the same decision. Only code in here changes a ``WorkflowRun``.
"""
