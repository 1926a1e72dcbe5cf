"""All benchmarks, one after another."""

from __future__ import annotations

from bench import azurite_requests, embedded, engine_cost

if __name__ == "__main__":
    for part in (embedded, engine_cost, azurite_requests):
        part.report()
        print()
