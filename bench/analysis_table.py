"""Prints the Markdown table of bench/analysis.sh from its steps' JSON: analysis_table.py OUTPUT MODEL..."""

import json
import pathlib
import sys

output, models = pathlib.Path(sys.argv[1]), sys.argv[2:]


def found(name):
    """Returns the first line that a step wrote; None if the step was skipped."""
    path = output / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8").splitlines()[0]) if path.exists() else None


def share(value, low=None, high=None):
    """"81.2 % (80.4 to 82.0)"."""
    interval = "" if low is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{interval}"


def shape_bias(cues):
    """Returns the share of shape decisions with its interval; "" if no decision was for either cue."""
    if cues is None:
        return ""
    counts = cues["models"][0]["all"]
    return "" if counts["shape_bias"] is None else share(counts["shape_bias"], counts["low"], counts["high"])


columns = ["model", "top-1", "ECE", "temperature", "ECE with it", "mean rank", "largest eigenvalue", "mean rise",
           "corrupted error", "mCE", "shape bias, cue conflict", "shape bias, shapes"]
print("| " + " | ".join(columns) + " |")
print("|---" * len(columns) + "|")
for model in models:
    row, attention = found(f"predictions-{model}"), found(f"attention-{model}")
    measures, plane = row["measures"], found(f"plane-{model}")
    robust = found(f"robustness-{model}")["models"][0]
    cells = [model, share(row["top1"], row["top1_low"], row["top1_high"]), f"{measures['ece']:.4f}",
             f"{measures['temperature']:.3f}", f"{measures['rest_ece_scaled']:.4f}",
             f"{attention['rank_mean']:.1f} of {attention['layers'][-1]['tokens']}" if attention else "",
             f"{plane['hessian']['largest']:.2f}", f"{plane['mean_rise']:.3f}", share(robust["mean_error"]),
             share(robust["mce"]) if "mce" in robust else "100 % (baseline)",
             shape_bias(found(f"cues-{model}")), shape_bias(found(f"shapes-cues-{model}"))]
    print("| " + " | ".join(cells) + " |")
