"""Compares the rate of `tessera eval` with the bare model's. Times analyses of a ViT-S, a plane of losses, and t-SNE
against scikit-learn. bench/analysis_speed.sh runs it."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import numpy

from rounds import head, row, seconds, take_turns, tessera, times_faster

POINTS = 5000  # points for t-SNE


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        # Weights of a ViT-S with one class per class of the JPEGs; its predictions do not matter.
        self.small = folder / "small"
        self.run("train", self.recipe(), "--output", self.small)

    def run(self, *words):
        return subprocess.run([self.options.program, *map(str, words)], check=True, capture_output=True, text=True).stdout

    def recipe(self):
        path = self.folder / "small.toml"
        path.write_text(f'[model]\nname = "vit_small_patch16_224"\n[data]\npath = "{self.options.jpegs}"\n'
                        '[preprocess]\nsize = 224\ncrop = 1.0\n[optimiser]\nname = "adamw"\nlr = 1e-4\n'
                        "[train]\nsteps = 1\nbatch_size = 8\neval_batch_size = 64\n", encoding="utf-8")
        return path

    def rates(self, what, weights, data, precision, batch):
        """`eval` over a set alternating with the bare model: the first rate as a share of the second."""
        ways = {"eval": lambda: json.loads(self.run("eval", "--weights", weights, "--data", data, "--precision", precision,
                                                    "--batch-size", batch, "--json", *self.all_of(data)))["images_per_second"],
                "model": lambda: tessera(self.options.program, "infer", weights=weights, batch=batch, precision=precision,
                                         seconds=10)["images_per_second"]}
        results = take_turns(ways, self.options.rounds, what)
        row(what, precision, f"{statistics.median(results['eval']):.0f} images/s",
            f"{statistics.median(results['model']):.0f} images/s, the bare model", f"{times_faster(*results.values()):.2f}")

    def all_of(self, data):
        return ["--val-data", data] if pathlib.Path(data).is_dir() and data == self.options.jpegs else []

    def times(self, what, *words, asked):
        took = min(seconds(lambda: self.run("analyse", *words)) for _ in range(self.options.rounds))
        row(what, "fp32", f"{took:.1f} s", f"{asked} asked", "")
        return took

    def looks(self):
        here = ("--weights", self.small, "--data", self.options.jpegs, "--split", "train")
        self.times("ViT-S: rank of attention, all layers and heads, 30 images", "attention", *here, "--images", "30",
                   asked="20 s")
        self.times("ViT-S: CKA between all layers, 256 images", "similarity", *here, "--images", "256", asked="60 s with the next")
        self.times("ViT-S: relevance, 256 images", "maps", *here, "--images", "256", "--method", "relevance", "--portions", "0",
                   "--report", self.folder / "maps.html", asked="60 s with the one before")
        took = seconds(lambda: self.run("analyse", "landscape", "--weights", self.options.run, "--data", self.options.cifar10,
                                        "--kind", "plane", "--points", "25", "--images", "512"))
        row("ViT of recipes/compare: a plane of 25 x 25 losses over 512 images", "fp32", f"{took:.0f} s", "240 s asked", "")

    def embedding(self):
        from sklearn.manifold import TSNE

        words = ("--weights", self.options.run, "--data", self.options.cifar10, "--images", POINTS, "--queries", "0")
        features = self.folder / "features.npy"
        self.run("features", "--weights", self.options.run, "--data", self.options.cifar10, "-o", features)
        points = numpy.load(features)[:POINTS].astype(numpy.float32)
        threads = len(os.sched_getaffinity(0))
        # The features' time is subtracted from ours: `pca` computes the same ones.
        ours = lambda: seconds(lambda: self.run("analyse", "embedding", *words, "--method", "tsne")) \
            - seconds(lambda: self.run("analyse", "embedding", *words, "--method", "pca"))
        theirs = lambda: seconds(lambda: TSNE(n_jobs=threads, init="random", random_state=0).fit_transform(points))
        results = take_turns({"tessera": ours, "scikit-learn": theirs}, self.options.rounds, "t-SNE")
        row(f"t-SNE of {POINTS} points", "fp32", f"{statistics.median(results['tessera']):.1f} s",
            f"{statistics.median(results['scikit-learn']):.1f} s, scikit-learn",
            f"{times_faster(results['scikit-learn'], results['tessera']):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("program", "jpegs", "cifar10", "run"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="jpegs,cifar10,looks,embedding", help="comma-separated")
    options = parser.parse_args()
    parts = options.parts.split(",")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, pathlib.Path(directory))
        head("what", "precision", "tessera", "beside", "ratio")
        if "jpegs" in parts:
            bench.rates("eval of a ViT-S on JPEGs of 224 x 224", bench.small, options.jpegs, "bf16", 64)
        if "cifar10" in parts:
            for precision in ("fp32", "bf16"):
                bench.rates("eval of the ViT of recipes/compare on CIFAR-10", options.run, options.cifar10, precision, 64)
        if "looks" in parts:
            bench.looks()
        if "embedding" in parts:
            bench.embedding()


if __name__ == "__main__":
    main()
