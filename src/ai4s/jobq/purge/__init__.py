"""Deletes workflows with all that belongs to them. Safe to repeat, to interrupt, and to run twice at the same time."""
