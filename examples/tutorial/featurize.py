"""Make a small data set: noisy points on a curve. A stand-in for whatever your first step reads and cleans."""

import argparse
import json
import random
from pathlib import Path

from ai4s.jobq.workflow import set_output

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rows", type=int, default=200)
parser.add_argument("--seed", type=int, default=7)
args = parser.parse_args()

noise = random.Random(args.seed)
rows = [(x, 0.5 * x * x - 2 * x + noise.gauss(0, 1.5)) for x in (noise.uniform(-4, 6) for _ in range(args.rows))]

path = Path("features.json").resolve()
path.write_text(json.dumps(rows))
print(f"wrote {len(rows)} rows to {path}")
set_output({"path": str(path), "rows": len(rows)})
