"""Run many schedules: ``python -m tests.model.explore --seeds 0-5000``, or one: ``--seed 17 --verbose``.

The first failure is shrunk and printed as a Python literal, which ``regressions.py`` takes as it is.
"""

from __future__ import annotations

import argparse
import pprint
import sys
import time
from collections.abc import Iterable

from tests.model.scenario import draw
from tests.model.shrink import shrunk
from tests.model.simulation import Verdict, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model.explore", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0-1000", metavar="A-B", help="seeds from A up to, not including, B")
    parser.add_argument("--seed", type=int, help="this seed only")
    parser.add_argument("--verbose", action="store_true", help="print every call of every actor")
    parser.add_argument(
        "--keep-going", action="store_true", help="list every failing seed instead of shrinking the first"
    )
    arguments = parser.parse_args()
    low, _, high = arguments.seeds.partition("-")
    seeds = range(int(low), int(high)) if arguments.seed is None else [arguments.seed]
    return explore(seeds, verbose=arguments.verbose, keep_going=arguments.keep_going)


def explore(seeds: Iterable[int], *, verbose: bool, keep_going: bool) -> int:
    """Run these schedules; 1 if one failed."""
    began, count, faults, failed = time.monotonic(), 0, 0, 0
    for seed in seeds:
        verdict = run(draw(seed), trace=verbose)
        count, faults = count + 1, faults + len(verdict.injected)
        if verbose:
            print("\n".join(verdict.trace))
        if verdict.problems:
            failed += 1
            print(f"seed {seed} fails: {verdict.problems[0]}")
            if not keep_going:
                print_script(verdict)
                break
        elif count % 500 == 0:
            print(f"… seed {seed}, {count / (time.monotonic() - began):.0f} schedules/s", file=sys.stderr)
    took_s = time.monotonic() - began
    print(f"{count} schedules, {faults} faults injected, {count / took_s:.0f} schedules/s, {failed} failed")
    return 1 if failed else 0


def print_script(verdict: Verdict) -> None:
    """Shrink a failure, and print the script that is left and what it does wrong."""
    scenario = shrunk(verdict)
    print("The script that is left:")
    pprint.pp(scenario.literal(), width=120)
    for problem in run(scenario).problems[:3]:
        print(f"  {problem}")


if __name__ == "__main__":
    sys.exit(main())
