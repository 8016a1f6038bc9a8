#!/usr/bin/env python3
"""The nine models of images and texts on the built-in images, ten minutes each; prints a table for docs/ablations/images-and-texts.md.

  bench/tables nine docs/ablations/images-and-texts.md bench/nine_models.py --program BUILD/tessera --output runs/nine [--cifar DIR] [NAME ...]

Trains their starting points first: a language model, a classifier for LiT, CLIP as the tower of LLaVA and Flamingo.
--cifar: folder of CIFAR-10's shards; CLIP learns the names of nine classes and is tested on the tenth. Runs with a
report are skipped. A short trial determines the steps for a run's minutes.
"""
import argparse
import os
import pathlib

from recipe_runs import Runs
from rounds import head, row

MINUTES = 10
BUILT_IN = "shapes:task=text,size=64,train=4000,val=10"
# name: (recipe, minutes, starting point)
MODELS = {
    "lm": ("lm/shapes.toml", 4, []),
    "tower": ("clip/shapes_tower.toml", MINUTES, []),
    "clip": ("clip/shapes.toml", MINUTES, []),
    "lit": ("clip/lit_shapes.toml", MINUTES, ["tower"]),
    "siglip": ("siglip/shapes.toml", MINUTES, []),
    "coca": ("coca/shapes.toml", MINUTES, []),
    "simvlm": ("simvlm/shapes.toml", MINUTES, []),
    "simvlm-one-stack": ("simvlm/shapes_one_stack.toml", MINUTES, []),
    "frozen": ("frozen/shapes.toml", MINUTES, ["lm"]),
    "flamingo": ("flamingo/shapes.toml", MINUTES, ["lm", "clip"]),
    "llava": ("llava/shapes.toml", MINUTES, ["lm", "clip"]),
}
CIFAR = "clip/cifar10.toml"
ANSWERS = ("caption", "colour", "place", "shape", "texture", "yes_no")
HEADINGS = ("image to text R@1", "shape by name", "exact captions", "CIDEr", "exact answers", "images blank", "answers by kind, %")


def trained(runs, name):
    recipe, minutes, before = MODELS[name]
    for one in before:
        trained(runs, one)
    if name == "lm" and not pathlib.Path("shapes.jsonl").exists():
        runs.tessera("data", "instruct", BUILT_IN, "--kinds", "conversation", "detail", "reasoning", "question", "-o", "shapes.jsonl")
        runs.tessera("tokens", "train", "shapes.jsonl", "--size", 512, "-o", "shapes-tokenizer.json")
    return runs.for_minutes(minutes, f"shapes-{name}", recipe, [])


def cells(found):
    """`exact` is a share of captions for models with CIDEr, of answers otherwise."""
    def share(key):
        return f"{100 * found[key]:.1f} %" if key in found else ""

    writes = "cider" in found
    kinds = ", ".join(f"{kind.replace('_', ' ')} {100 * found[f'exact_{kind}']:.0f}" for kind in ANSWERS if f"exact_{kind}" in found)
    return [share("image_to_text_r1"), share("zero_shot_top1"), share("exact") if writes else "",
            f"{found['cider']:.2f}" if writes else "", "" if writes else share("exact"), share("exact_blank"), kinds]


def shapes(runs, names):
    head("model", "steps", *HEADINGS)
    for name in names:
        folder = trained(runs, name)
        if name in ("lm", "tower"):
            continue
        steps = runs.logged(folder, "train")[-1]["step"]
        row(name, steps, *cells(runs.json_of("eval", "--weights", folder, "--threads", runs.options.threads)))


def cifar(runs, folder, without):
    template = "template=a photo of a {}"
    train = ["--data", f"named:without={without},{template},{folder}/train-{{000..004}}.tar.gz",
             "--val-data", f"named:{template},{folder}/test-000.tar.gz"]
    run = runs.for_minutes(MINUTES, f"cifar10-without-{without}", CIFAR, [], *train)
    found = runs.json_of("eval", "--weights", run, "--threads", runs.options.threads, "--per-class")
    print()
    head("CLIP on CIFAR-10's names", "top-1 of ten names", "top-5", f"of {without}, which it never saw")
    hidden = found["per_class"][without]
    row(f"without {without}", f"{100 * found['zero_shot_top1']:.1f} %", f"{100 * found['zero_shot_top5']:.1f} %",
        f"{100 * hidden['recall']:.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--cifar", type=pathlib.Path)
    parser.add_argument("--without", default="truck", help="the class of CIFAR-10 that training does not see")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1, help="factor of all minutes")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    options = parser.parse_args()
    options.program = options.program.resolve()
    folder = options.cifar and options.cifar.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    os.chdir(options.output)  # the recipes name each other's runs by runs/shapes-NAME
    options.output = pathlib.Path("runs")
    runs = Runs(options)
    shapes(runs, options.names or MODELS)
    if folder:
        cifar(runs, folder, options.without)


if __name__ == "__main__":
    main()
