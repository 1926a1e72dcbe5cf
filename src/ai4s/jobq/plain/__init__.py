"""The plain queue in Python: jobs without a workflow, and what users write to make and to run them.

``jobq.JobQ`` is the way in. What a worker does with such a job is in ``worker.plain``.
"""
