"""Ports: what the program needs from tables, queues, blobs and time, as Protocols.

The docstrings are the contract that every adapter keeps and that ``tests/contract`` checks. No domain rule, no
default of the program, and no name of a service SDK belongs here.
"""
