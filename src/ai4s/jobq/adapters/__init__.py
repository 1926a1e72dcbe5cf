"""Adapters: the ports of :mod:`ai4s.jobq.ports` on real stores.

An adapter translates names, calls and errors, and nothing else: no rule of the domain, no default of the program.
"""
