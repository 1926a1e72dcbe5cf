"""Examines a project from the outside: one function per check, each answers a ``Finding``. Only ``repair`` writes."""
