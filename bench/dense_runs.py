#!/usr/bin/env python3
"""Trains the small recipes of dense prediction, measures them on their test splits, prints a table for docs/ablations/dense.md.

  bench/tables dense docs/ablations/dense.md bench/dense_runs.py --program BUILD/tessera --data DIR --output runs/dense [NAME ...]

DIR contains camvid, bccd-coco and nuclei-coco. Finished runs are skipped, an interrupted one is resumed. Default: all
runs, one after the other on all cores. The table has a row per finished run. --plot FILE.svg draws their validation
metrics by epoch.
"""
import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

from chart import write_chart

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Run:
    recipe: str                 # below recipes/, without ending
    test: str                   # measured set: below DIR, or "" for the recipe's own validation set
    target: str
    metrics: list               # (heading, key of `tessera eval --json`)
    data: str = ""              # below DIR; "" = the recipe's own
    classes: list = dataclasses.field(default_factory=list)  # (heading, class, column) of --per-class
    before: str = ""            # a run that provides this one's initial weights


PIXELS = [("mIoU", "miou"), ("pixels", "pixel_accuracy")]
STREETS = [(name, name, "iou") for name in ("sky", "road", "building")]
BOXES = [("AP50", "box_ap50"), ("AP", "box_ap")]
MASKS = [("mask AP50", "mask_ap50"), ("mask AP", "mask_ap"), ("box AP50", "box_ap50")]


def camvid(recipe, target="best 40 % mIoU, 82 % of pixels", before=""):
    return Run(recipe, "camvid/images/test", target, PIXELS, "camvid", STREETS, before)


def bccd(recipe, target):
    return Run(recipe, "bccd-coco/annotations/instances_test.json", target, BOXES, "bccd-coco", [("WBC AP50", "WBC", "AP50")])


RUNS = {
    "shapes-segment": Run("upernet/shapes", "", "90 % mIoU", PIXELS),
    "shapes-detect": Run("mask_rcnn/shapes", "", "mask AP50 90 %", MASKS),
    "camvid": camvid("upernet/camvid"),
    "camvid-swin": camvid("upernet/camvid_swin"),
    "camvid-visionllama": camvid("upernet/camvid_visionllama"),
    "camvid-mae": Run("upernet/camvid_mae", "", "", [], "camvid/images/training"),
    "camvid-pretrained": camvid("upernet/camvid_pretrained", "as measured", before="camvid-mae"),
    "bccd": bccd("mask_rcnn/bccd", "AP50 70 %, AP 35 %, WBC 90 %"),
    "bccd-detr": bccd("detr/bccd", "as measured"),
    "nuclei": Run("mask_rcnn/nuclei", "nuclei-coco/annotations/instances_val.json", "mask AP50 55 %", MASKS, "nuclei-coco"),
    "nuclei-vitdet": Run("vitdet/nuclei", "nuclei-coco/annotations/instances_val.json", "as measured", MASKS, "nuclei-coco"),
}


def folder_of(options, name):
    return options.output / name / f"seed-{options.seed}"


def train(options, name, run):
    folder = folder_of(options, name)
    if (folder / "report.html").exists():
        return
    words = [options.program, "train", HERE.parent / "recipes" / f"{run.recipe}.toml", "--output", folder,
             "--resume", "auto"]
    if run.data:
        words += ["--data", options.data / run.data]
    if run.before:
        words += ["--pretrained", folder_of(options, run.before) / "model.safetensors"]
    words += ["--set", f"train.seed={options.seed}", *options.set]
    subprocess.run(list(map(str, words)), check=True, stdout=sys.stderr)


def measured(options, name, run):
    folder = folder_of(options, name)
    words = [options.program, "eval", "--weights", folder, "--json", "--per-class"]
    if run.test:
        words += ["--val-data", options.data / run.test]
    done = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def minutes_of(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return max((line.get("seconds", 0.0) for line in lines), default=0.0) / 60


def row(options, name, run):
    result = measured(options, name, run)
    values = [f"{heading} {100 * result[key]:.1f} %" for heading, key in run.metrics if key in result]
    for heading, label, column in run.classes:
        value = result["per_class"].get(label, {}).get(column)
        if isinstance(value, (int, float)):
            values.append(f"{heading} {100 * value:.1f} %")
    minutes = minutes_of(folder_of(options, name))
    link = f"[{run.recipe}](../../recipes/{run.recipe}.toml)"
    return f"| {link} | {options.seed} | {minutes:.0f} min | {result['samples']} | {', '.join(values)} | {run.target} |"


def curve(options, name, key):
    """Returns (epoch, value) of a validation metric in percent; empty if the run has none."""
    path = folder_of(options, name) / "metrics.jsonl"
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    return [(line["epoch"], 100 * line[key]) for line in lines if line["kind"] == "eval" and key in line]


def plot(options):
    """Plots segmenters by mIoU, detectors by the first of their metrics."""
    panels = []
    for title, unit, chosen in (("Segmentation", "mIoU on validation images, %", lambda key: key == "miou"),
                                ("Detection", "AP50 of masks, else of boxes, on validation images, %", lambda key: key.endswith("ap50"))):
        curves = {run.recipe: curve(options, name, run.metrics[0][1]) for name, run in RUNS.items()
                  if run.metrics and chosen(run.metrics[0][1])}
        curves = {name: points for name, points in curves.items() if points}
        if curves:
            panels.append((title, "epoch", unit, curves, True))
    if panels:
        write_chart(options.plot, panels)
    else:
        print("nothing to plot: no run has validated", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of every training")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in RUNS]
    if unknown:
        sys.exit(f"no run {unknown[0]}: must be one of {', '.join(RUNS)}")
    for name in options.names or RUNS:
        train(options, name, RUNS[name])
    lines = ["| recipe | seed | training | images | measured on them | target |", "|---|---|---|---|---|---|"]
    lines += [row(options, name, run) for name, run in RUNS.items()
              if run.metrics and (folder_of(options, name) / "report.html").exists()]
    print("\n".join(lines))
    if options.plot:
        plot(options)


if __name__ == "__main__":
    main()
