"""Why a workflow or a task is not (or no longer) running: evidence is gathered, then judged by pure functions."""
