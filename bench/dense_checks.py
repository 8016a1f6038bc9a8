#!/usr/bin/env python3
"""Checks of trained segmenters and detectors that take real data; prints a table for docs/ablations/dense.md.

  bench/dense_checks.py --program BUILD/tessera --data DIR --detector RUN --segmenter RUN [CHECK ...]

RUN are those of recipes/mask_rcnn/nuclei.toml and recipes/upernet/camvid.toml; DIR contains their sets. Default: all
checks. `equal` (batches, threads), `tool` (COCO's own tool; needs pycocotools), `precision` (bf16, int8), `counts`
(large images in tiles), `tiles` (windows against the whole), `memory` (12,000 x 12,000 pixels; needs Pillow, like
`tiles`).
"""
import argparse
import collections
import contextlib
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

from rounds import head, row, run_watched

SCORE = 0.05  # task.score of the recipe: evaluation drops lower scores


def run(options, *words):
    done = subprocess.run([options.program, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def evaluated(options, weights, data, *words):
    return json.loads(run(options, "eval", "--weights", weights, "--val-data", data, "--json", *words))


def nuclei(options, split):
    return options.data / "nuclei-coco" / "annotations" / f"instances_{split}.json"


def images_of(options, split):
    truth = json.loads(nuclei(options, split).read_text())
    folder = options.data / "nuclei-coco" / "images"
    return truth, [folder / pathlib.Path(image["file_name"]).name for image in truth["images"]]


def equal(options):
    """Batches and threads do not change the detections."""
    ways = [("--batch", 1), ("--batch", 8), ("--batch", 8, "--threads", 1), ("--batch", 5, "--threads", 2)]
    found = []
    for way in ways:
        result = evaluated(options, options.detector, nuclei(options, "val"), *way)
        found.append(json.dumps({key: value for key, value in result.items() if not key.startswith("images_per")}))
    same = len(set(found)) == 1
    yield "nuclei: AP of batches of 1, 5, 8 by 1 and 2 threads", "the same numbers" if same else "differ", "the same"


def tool(options):
    """The AP of our result file by COCO's own tool."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    truth, files = images_of(options, "val")
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "found.json"
        named = [pathlib.Path(folder) / f"{image['id']}{path.suffix}" for path, image in zip(files, truth["images"])]
        for path, link in zip(files, named):
            link.symlink_to(path.resolve())
        run(options, "detect", *named, "--weights", options.detector, "--threshold", SCORE, "--results", results)
        written = json.loads(results.read_text())
        with contextlib.redirect_stdout(sys.stderr):
            sets = COCO(str(nuclei(options, "val")))
        ours = evaluated(options, options.detector, nuclei(options, "val"))
        for kind, key in (("bbox", "box_ap"), ("segm", "mask_ap")):
            with contextlib.redirect_stdout(sys.stderr):  # COCO's tool prints, also while it converts the
                                                          # list
                measure = COCOeval(sets, sets.loadRes(copy.deepcopy(written)), kind)
                measure.evaluate()
                measure.accumulate()
                measure.summarize()
            apart = abs(measure.stats[0] - ours[key])
            yield f"nuclei: {key} of our file by COCO's tool", f"{measure.stats[0]:.6f}, ours {ours[key]:.6f}, {apart:.0e} apart", "the same"


def precision(options):
    cases = [("nuclei, mask AP", options.detector, nuclei(options, "val"), "mask_ap"),
             ("nuclei, box AP", options.detector, nuclei(options, "val"), "box_ap"),
             ("CamVid, mIoU", options.segmenter, options.data / "camvid" / "images" / "test", "miou")]
    for name, weights, data, key in cases:
        if not weights:
            continue
        values, speeds = {}, {}
        for kind in ("fp32", "bf16", "int8"):
            result = evaluated(options, weights, data, "--precision", kind)
            values[kind], speeds[kind] = 100 * result[key], result["images_per_second"]
        for kind, allowed in (("bf16", 0.3), ("int8", 1.0)):
            yield (f"{name} in {kind}", f"{values[kind]:.2f}, in fp32 {values['fp32']:.2f}; "
                   f"{speeds[kind] / speeds['fp32']:.2f} x its images/s", f"within {allowed}")


def counts(options):
    """Counts nuclei in large images, found in tiles, with a threshold chosen on the validation set."""
    def found(split, *words):
        truth, files = images_of(options, split)
        lines = run(options, "detect", *files, "--weights", options.detector, "--threshold", SCORE, "--json", *words)
        true = collections.Counter(a["image_id"] for a in truth["annotations"])
        return [(true[image["id"]], [o["score"] for o in json.loads(line)["objects"]])
                for image, line in zip(truth["images"], lines.splitlines())]

    def total(of, threshold):
        return sum(sum(score >= threshold for score in scores) for _, scores in of)

    validation = found("val")
    true = sum(count for count, _ in validation)
    threshold = min((i / 100 for i in range(5, 96)), key=lambda t: abs(total(validation, t) - true))
    large = found("large", "--tile", options.tile)
    true = sum(count for count, _ in large)
    ours = total(large, threshold)
    off = [abs(sum(s >= threshold for s in scores) - count) / count for count, scores in large]
    off.sort()
    yield (f"nuclei of {len(large)} large images, tiles of {options.tile}",
           f"{ours} of {true}, {100 * (ours - true) / true:+.1f} %; median error of an image "
           f"{100 * off[len(off) // 2]:.0f} % (scores from {threshold:.2f}, chosen on val)", "within 15 %")


def tiles(options):
    """One window against the whole image, and a large image in windows against one window over all of it."""
    from PIL import Image
    picture = sorted((options.data / "camvid" / "images" / "test").glob("*.jpg"))[0]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def classes(image, *words):
            run(options, "segment", image, "--weights", options.segmenter, "-o", folder / "found.png", *words)
            return Image.open(folder / "found.png").tobytes()

        one, whole = classes(picture, "--tile", max(Image.open(picture).size)), classes(picture, "--whole")
        yield "one window against the whole", "the same" if one == whole else "differ", "the same"
        Image.open(picture).resize((2000, 2000), Image.BICUBIC).save(folder / "large.png")
        whole, windows = classes(folder / "large.png", "--tile", 2000), classes(folder / "large.png", "--tile", options.tile_pixels)
        unlike = sum(a != b for a, b in zip(whole, windows)) / len(whole)
        yield f"2,000 x 2,000 in windows of {options.tile_pixels}", f"{100 * unlike:.2f} % of the pixels unlike the whole", "0.5 %"


def memory(options):
    from PIL import Image
    Image.MAX_IMAGE_PIXELS = None
    picture = sorted((options.data / "camvid" / "images" / "test").glob("*.jpg"))[0]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        Image.open(picture).resize((12000, 12000), Image.BICUBIC).save(folder / "huge.jpg", quality=90)
        took, peak = run_watched([options.program, "segment", folder / "huge.jpg", "--weights", options.segmenter,
                                  "-o", folder / "huge.png", "--tile", 512])
        yield "JPEG of 12,000 x 12,000 pixels in tiles of 512", f"{peak / 1024:.2f} GB, {took:.0f} s", "2.5 GB"


# The metric of each check; `precision` uses the available ones.
CHECKS = {equal: ["detector"], tool: ["detector"], precision: [], counts: ["detector"], tiles: ["segmenter"],
          memory: ["segmenter"]}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--data", type=pathlib.Path, required=True)
    options.add_argument("--detector", type=pathlib.Path)
    options.add_argument("--segmenter", type=pathlib.Path)
    options.add_argument("--tile", type=int, default=256, help="of `counts`: the median side of the training images")
    options.add_argument("--tile-pixels", type=int, default=512, help="of `tiles`")
    options.add_argument("checks", nargs="*", metavar="CHECK")
    options = options.parse_args()
    head("check", "measured", "limit")
    for check, needs in CHECKS.items():
        if options.checks and check.__name__ not in options.checks:
            continue
        if all(getattr(options, weights) for weights in needs):
            for cells in check(options):
                row(*cells)


if __name__ == "__main__":
    main()
