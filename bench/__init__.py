"""Benchmarks: ``make bench``. Figures are printed with what they are compared to; nothing here asserts anything."""
