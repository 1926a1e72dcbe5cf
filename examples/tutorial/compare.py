"""Pick the better of the models that were trained upstream."""

from ai4s.jobq.workflow import get_upstream_outputs, set_output

results = sorted(get_upstream_outputs().values(), key=lambda result: result["mae"])
for result in results:
    print(f"{result['model']:10} {result['mae']:8.4f}")
set_output({"best": results[0]["model"], "mae": results[0]["mae"]})
