"""The ``ai4s-jobq`` command: parse, call one library function, render. No rule of workflows lives here.

Results go to stdout, everything else to stderr. Whatever costs time to import is imported by the function that needs it, so
that ``--help`` answers at once and needs no configuration.
"""
