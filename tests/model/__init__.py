"""The model check: the real engine, store, coordinator and worker on ports in memory, in virtual time, with faults.

``python -m tests.model.explore`` runs as many schedules as one likes; ``tests/model/test_schedules.py`` runs some
thousands of them in every test run. See ``docs/reliability.md``.
"""
