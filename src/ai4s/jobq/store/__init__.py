"""Our data on the ports: names, rows, messages and outputs, and how they are read and written together.

Nothing here decides what a workflow does (``engine``) or when (``coordinator``, ``worker``); no SDK is known here.
"""
