#!/usr/bin/env python3
"""What the images of a trained generator are worth: prints a row of Markdown for docs/ablations/generation.md.

  bench/generator_quality.py --program BUILD/tessera --run RUN --classifier CLASSIFIER --data DATA --sampler dpmpp_2m --steps 20

RUN is a run of task diffuse on pixels, CLASSIFIER a classifier of the same classes, DATA their images with a training and
a validation split. A classifier recognises an image if its top prediction is the requested class. FID uses the
classifier's features against the validation images: for the samples, for the training images, and for images drawn from
a Gaussian of each class's pixels, the minimum that a generator must beat. Needs NumPy and Pillow.
"""
import argparse
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile

import numpy
from PIL import Image

from rounds import head, row


def said(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def images_by_class(shards):
    """Returns the images of WebDataset shards, [images, height, width, 3] for each class."""
    found = {}
    for path in sorted(shards):
        with tarfile.open(path) as archive:
            files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        for name, data in files.items():
            if name.endswith(".cls"):
                continue
            label = int(files[name.rsplit(".", 1)[0] + ".cls"])
            found.setdefault(label, []).append(numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    return {label: numpy.stack(images) for label, images in sorted(found.items())}


def gaussian_pictures(classes, count, path):
    """Writes `count` images in total, from a normal distribution of the pixels of each class."""
    generator, drawn = numpy.random.default_rng(0), []
    for images in classes.values():
        pixels = images.reshape(len(images), -1) / 255.0
        mean = pixels.mean(0)
        # With fewer images than pixels, random weights of the centred images sample the same covariance.
        weights = generator.standard_normal((count // len(classes), len(images))) / numpy.sqrt(len(images) - 1)
        drawn.append(mean + weights @ (pixels - mean))
    shape = next(iter(classes.values())).shape[1:]
    numpy.savez(path, arr_0=(numpy.concatenate(drawn).clip(0, 1) * 255).astype(numpy.uint8).reshape(-1, *shape))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("program", "run", "classifier", "data", "sampler"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cfg", type=float, default=1.5)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--precision", default="bf16")
    options = parser.parse_args()

    def fid(samples, *words):
        return said(options.program, "fid", samples, "--reference", options.data, "--reference-split", "validation", "--weights",
                    options.classifier, "--metrics", "fid", "--json", *words)["fid"]

    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        drawn = said(options.program, "generate", "--weights", options.run, "-o", folder / "drawn", "-n", options.images,
                     "--shard-size", 1000, "--batch-size", 100, "--sampler", options.sampler, "--steps", options.steps, "--cfg",
                     options.cfg, "--precision", options.precision, "--json")
        recognised = said(options.program, "eval", "--weights", options.classifier, "--data", folder / "drawn", "--val-data",
                          folder / "drawn", "--json")["top1"]
        real = said(options.program, "eval", "--weights", options.classifier, "--data", options.data, "--json")["top1"]
        subprocess.run([options.program, "data", "pack", options.data, "-o", str(folder / "packed")], check=True,
                       stdout=subprocess.DEVNULL)
        gaussian_pictures(images_by_class((folder / "packed").glob("train*.tar")), options.images, folder / "gaussian.npz")
        samples, train = fid(folder / "drawn"), fid(options.data, "--split", "train", "--count", options.images)
        gaussian = fid(folder / "gaussian.npz")
    head("sampler", "evaluations", "seconds", "recognised", "of real images", "FID", "training images", "Gaussians", "share")
    row(f"{options.sampler}, {options.steps} steps, guidance {options.cfg:g}", drawn["evaluations"], f"{drawn['seconds']:.0f}",
        f"{100 * recognised:.1f} %", f"{100 * real:.1f} %", f"{samples:.2f}", f"{train:.2f}", f"{gaussian:.2f}",
        f"{(samples - train) / (gaussian - train):.3f}")


if __name__ == "__main__":
    main()
