"""The 15 corruptions of ImageNet-C: `tessera data corrupt` against imagecorruptions, in turns. bench/corrupt.sh runs it.

Both read JPEGs and write JPEGs. Our start-up, a run of one image, is excluded, as are their imports.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import cv2
import numba
import numpy
import skimage.filters
from PIL import Image

from rounds import head, row, seconds, take_turns, times_faster


def for_old_callers(gaussian):
    """scikit-image's filter with the argument name that imagecorruptions still uses."""
    def filtered(image, *words, multichannel=False, **named):
        return gaussian(image, *words, channel_axis=-1 if multichannel else None, **named)

    return filtered


skimage.filters.gaussian = for_old_callers(skimage.filters.gaussian)

import imagecorruptions  # noqa: E402, after the patch of its imports

cv2.setNumThreads(1)
numba.set_num_threads(1)


def prepare(source, folder, count):
    """Writes `count` JPEGs of 224 x 224 for both programs; returns their paths."""
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))[:count]
    if len(files) < count:
        sys.exit(f"corrupt_peer: {source} holds {len(files)} images, must hold {count}")
    (folder / "all").mkdir(parents=True)
    for number, path in enumerate(files):
        Image.open(path).convert("RGB").resize((224, 224), Image.BICUBIC).save(folder / "all" / f"{number:04}.jpg", quality=95)
    return sorted((folder / "all").iterdir())


def theirs(files, name):
    with tempfile.TemporaryDirectory() as directory:
        for path in files:
            pixels = numpy.asarray(Image.open(path).convert("RGB"))
            corrupted = imagecorruptions.corrupt(pixels, corruption_name=name, severity=3)
            Image.fromarray(corrupted).save(f"{directory}/{path.name}", quality=85)


def ours(program, folder, name):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([program, "data", "corrupt", folder, "-o", f"{directory}/out", "--split", "all", "--corruption", name,
                        "--severity", "3", "--quality", "85", "--threads", "1"], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory) / "set"
        files = prepare(options.folder, folder, options.images)
        one = pathlib.Path(directory) / "one"
        prepare(options.folder, one, 1)
        head("corruption", "tessera, images/s", "imagecorruptions, images/s", "tessera is faster by")
        ratios = []
        for name in imagecorruptions.get_corruption_names():
            theirs(files[:1], name)  # warm-up: the first call compiles
            times = take_turns({"ours": lambda name=name: seconds(lambda: ours(options.program, folder, name)) -
                                seconds(lambda: ours(options.program, one, name)),
                                "theirs": lambda name=name: seconds(lambda: theirs(files, name))}, options.rounds, name)
            ratios.append(times_faster(times["theirs"], times["ours"]))
            row(name, *(f"{len(files) / statistics.median(times[side]):.0f}" for side in ("ours", "theirs")), f"{ratios[-1]:.1f}")
        row("median", "", "", f"{statistics.median(ratios):.1f}")


if __name__ == "__main__":
    main()
