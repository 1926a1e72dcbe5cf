"""Fit one model to the features and report its mean absolute error on held-out rows."""

import argparse
import json
from pathlib import Path

from ai4s.jobq.workflow import get_upstream_output, set_output


def fit_line(rows):
    """Least squares with a straight line."""
    n = len(rows)
    mean_x, mean_y = sum(x for x, _ in rows) / n, sum(y for _, y in rows) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in rows) / sum((x - mean_x) ** 2 for x, _ in rows)
    return lambda x: mean_y + slope * (x - mean_x)


def nearest(rows, k=5):
    """The mean of the k nearest neighbours."""
    return lambda x: sum(y for _, y in sorted(rows, key=lambda row: abs(row[0] - x))[:k]) / k


MODELS = {"line": fit_line, "nearest": nearest}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", choices=sorted(MODELS), default="line")
args = parser.parse_args()

features = get_upstream_output("featurize")
rows = json.loads(Path(features["path"]).read_text())
cut = len(rows) * 3 // 4
model = MODELS[args.model](rows[:cut])
mae = sum(abs(model(x) - y) for x, y in rows[cut:]) / (len(rows) - cut)
print(f"{args.model}: mean absolute error {mae:.3f} on {len(rows) - cut} rows")
set_output({"model": args.model, "mae": round(mae, 4)})
