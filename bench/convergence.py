#!/usr/bin/env python3
"""Do generators with VisionLLaMA's blocks learn faster (VisionLLaMA, Tables 1 and 10)? Prints a table of
docs/ablations/generation.md.

  bench/convergence.py --program BUILD/tessera --classifier CLASSIFIER --output runs/convergence --plot convergence.svg

DiT against DiT-LLaMA and SiT against SiT-LLaMA, of equal size on the built-in images, 20 minutes each; a short trial of
each determines the steps. FID at four points of each run, with the features of CLASSIFIER. Runs with a report are
skipped, so several calls with --pairs can share the work.
"""
import argparse
import pathlib

from chart import write_chart
from recipe_runs import Runs
from rounds import head, row

PAIRS = {"DiT": "shapes/dit_llama.toml", "SiT": "shapes/sit_llama.toml"}
TRAINING_IMAGES, POINTS, MINUTES = 20000, 4, 20


def curve(runs, name, recipe, llama):
    """(minutes, steps, FID) at the points of a run."""
    folder = runs.options.output / name
    # A constant learning rate, so each point equals the end of a shorter run.
    settings = [f"model.llama={str(llama).lower()}", f"data.path=shapes:train={TRAINING_IMAGES},val=2000",
                "schedule.name=constant"]
    if not (folder / "report.html").exists():
        steps, batch = runs.steps_of(MINUTES, name, recipe, settings)
        part = steps // POINTS
        steps, epoch = part * POINTS, TRAINING_IMAGES // batch
        settings += [f"train.eval_every={part / epoch}", f"task.fid.classifier={runs.options.classifier}",
                     f"task.fid.samples={runs.options.images}"]
        runs.train(name, recipe, settings, steps=steps)
    points = [(line["step"], line["fid"]) for line in runs.logged(folder, "eval") if "fid" in line]
    minutes = MINUTES * runs.options.scale
    return [(minutes * step / points[-1][0], step, fid) for step, fid in points]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--classifier", required=True, type=pathlib.Path, help="weights for the features of FID")
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1, help="factor of all minutes")
    parser.add_argument("--images", type=int, default=1000, help="images generated for FID at each point")
    parser.add_argument("--plot", help="file for the curves (SVG)")
    options = parser.parse_args()
    options.classifier = options.classifier.resolve()
    runs, panels = Runs(options), []
    head("generator", "minutes of training", "steps", "FID")
    for pair in options.pairs.split(","):
        series = {}
        for name, llama in ((pair, False), (f"{pair}-LLaMA", True)):
            points = curve(runs, name.lower(), PAIRS[pair], llama)
            series[name] = [(minutes, fid) for minutes, _, fid in points]
            for minutes, step, fid in points:
                row(name, f"{minutes:.1f}", step, f"{fid:.2f}")
        panels.append((f"{pair} and {pair}-LLaMA", "minutes of training", "FID", series, True))
    if options.plot:
        write_chart(options.plot, panels)


if __name__ == "__main__":
    main()
