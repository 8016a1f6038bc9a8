"""What pre-training without labels is worth, in minutes of this machine: prints tables of docs/ablations/pretraining.md.

Parts: `cifar` pre-trains for 30 minutes and fine-tunes for 10, against 10 and 40 minutes from random weights, with the
ViT of recipes/compare. `scaling` compares validation loss and probe over eight sizes on the built-in images (45
minutes). `objectives` trains each objective for ten minutes on CIFAR-10 and probes it, next to the same network's random
weights. `samples` trains a denoising DARL for 45 minutes on the built-in images and on CIFAR-10, generates images, and
compares them with real ones, whole and with shuffled patches (needs numpy and Pillow). A short trial of each run
measures its images per second, which determines its steps. Runs with a report are skipped, so several calls with --ways
or --sets can share the work.
"""
import argparse
import pathlib

from chart import write_chart
from recipe_runs import RECIPES, Runs
from rounds import head, row

SIZE = ["model.dim=96", "model.depth=4", "model.heads=3", "model.patch_size=4", "model.mlp_ratio=3.75"]
# One direction, so no token sees a later one: 4 layers, as a vil layer without its pair is about a
# Transformer block.
VIL = ["model.name=vil", "model.dim=96", "model.depth=4", "model.patch_size=4", "model.directions=uni",
       "model.conv_kind=causal1d"]
# Pre-training of the table: its recipe, additional settings, and the settings of the classifier that starts
# from it.
WAYS = {
    "MAE": ("cifar10/vit_mae.toml", SIZE, []),
    "MAE, VisionLLaMA": ("cifar10/visionllama_mae.toml", SIZE, ["model.name=visionllama", "model.init_values=0"]),
    "DARL, mean squared error": ("cifar10/darl_pretrain.toml", SIZE, ["model.name=darl"]),
    "DARL, denoising": ("cifar10/darl_diffusion.toml", SIZE, ["model.name=darl"]),
    "next patch, Vision-LSTM": ("cifar10/vil_next_patch.toml", [], VIL),
}
SETS = ("shapes", "cifar10")
# Objectives of equal length: name, recipe, settings.
OBJECTIVES = {
    "MAE": ("cifar10/vit_mae.toml", SIZE),
    "DARL, mean squared error": ("cifar10/darl_pretrain.toml", [*SIZE, "model.name=darl"]),
    "DARL, denoising": ("cifar10/darl_diffusion.toml", [*SIZE, "model.name=darl"]),
    "SimMIM": ("cifar10/simmim.toml", []),
    "MaskFeat": ("cifar10/maskfeat.toml", []),
    "BEiT": ("cifar10/beit.toml", []),
    "iGPT": ("cifar10/igpt.toml", []),
    "DINO": ("cifar10/dino.toml", []),
    "MoCo v3": ("cifar10/moco_v3.toml", []),
}
PATCH = 4


def cifar(runs):
    data = ["--data", runs.options.data]
    head("first weights", "epochs without labels", "validation loss", "epochs with labels", "top-1", "best layer", "ridge top-1")
    for minutes in (10, 40):
        folder = runs.for_minutes(minutes, f"scratch-{minutes}", "compare/vit.toml", [], *data)
        row("drawn", "", "", f"{runs.logged(folder, 'eval')[-1]['epoch']:.1f}", runs.top1(folder), "", "")
    untrained = [*SIZE, "optimiser.lr=0.0", "schedule.warmup_epochs=0", "train.eval_every=0"]
    layer, accuracy = runs.probe(runs.train("drawn", "cifar10/vit_mae.toml", untrained, *data, steps=1), runs.options.per_class)
    row("drawn, as they are", "", "", "", "", layer, f"{accuracy:.1f} %")
    for number, (name, (recipe, settings, classifier)) in enumerate(WAYS.items()):
        if str(number) not in runs.options.ways.split(","):
            continue
        folder = runs.for_minutes(30, f"pretrained-{number}", recipe, settings, *data)
        layer, accuracy = runs.probe(folder, runs.options.per_class)
        before = runs.logged(folder, "eval")[-1]
        tuned = runs.for_minutes(10, f"tuned-{number}", f"compare/{'vil' if classifier == VIL else 'vit'}.toml", classifier, *data,
                                 "--pretrained", folder / "model.safetensors")
        row(name, f"{before['epoch']:.1f}", f"{before['loss']:.3f}", f"{runs.logged(tuned, 'eval')[-1]['epoch']:.1f}",
            runs.top1(tuned), layer, f"{accuracy:.1f} %")
    draw_masked(runs)


def objectives(runs):
    data = ["--data", runs.options.data]
    head("objective", "epochs", "ridge top-1", "best layer", "random weights", "best layer")
    for number, (name, (recipe, settings)) in enumerate(OBJECTIVES.items()):
        if name == "BEiT":
            tokens = runs.for_minutes(5, "objective-tokens", "cifar10/dvae.toml", [], *data)
            settings = [*settings, f"task.tokeniser={tokens / 'model.safetensors'}"]
        random = runs.train(f"objective-{number}-random", recipe,
                            [*settings, "optimiser.lr=0.0", "schedule.min_lr=0.0", "schedule.warmup_epochs=0", "train.eval_every=0"],
                            *data, steps=1)
        before, untrained = runs.probe(random, runs.options.per_class)
        folder = runs.for_minutes(10, f"objective-{number}", recipe, settings, *data)
        layer, accuracy = runs.probe(folder, runs.options.per_class)
        row(name, f"{runs.logged(folder, 'eval')[-1]['epoch']:.1f}", f"{accuracy:.1f} %", layer, f"{untrained:.1f} %", before)


def draw_masked(runs):
    """mae-loss.svg: loss and nearest neighbours of the two masked auto-encoders by epoch, if both exist."""
    loss, neighbours = {}, {}
    for number, name in enumerate(("ViT", "VisionLLaMA")):
        folder = runs.options.output / f"pretrained-{number}"
        if not folder.exists():
            return
        points = runs.logged(folder, "eval")
        loss[name] = [(point["epoch"], point["loss"]) for point in points]
        neighbours[name] = [(point["epoch"], 100 * point["knn"]) for point in points]
    write_chart(runs.options.output / "mae-loss.svg",
                [("Masked auto-encoding on CIFAR-10", "epoch", "loss on validation images", loss, True),
                 ("Nearest neighbours", "epoch", "k-NN top-1, %", neighbours, True)])


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(at) for at in range(len(values))]


def scaling(runs):
    folder = runs.options.output / "scaling"
    if not (folder / "sweep.html").exists():
        runs.tessera("sweep", RECIPES / "shapes/darl_scaling.toml", "--output", folder)
    head("run", "validation loss", "best layer", "ridge top-1")
    losses, accuracies, points = [], [], []
    for run in sorted(folder.glob("*/seed-0")):
        losses.append(runs.json_of("eval", "--weights", run)["loss"])
        layer, accuracy = runs.probe(run, runs.options.per_class)
        accuracies.append(accuracy)
        width, depth, epochs = (word for word in run.parent.name.replace("_", " ").replace(",", "").split() if word.isdigit())
        points.append((losses[-1], accuracy, f"{width} x {depth} ({epochs})"))
        row(run.parent.name.replace("_", " "), f"{losses[-1]:.4f}", layer, f"{accuracy:.1f} %")
    write_chart(runs.options.output / "scaling.svg",
                [("Width x depth (epochs)", "validation loss", "ridge top-1, %", {"": points}, False)])
    count = len(losses)
    squares = sum((a - b) ** 2 for a, b in zip(ranks(losses), ranks(accuracies)))
    print(f"\nRank correlation (Spearman) of loss and accuracy: {1 - 6 * squares / (count * (count * count - 1)):.2f}.")


def real_images(runs, name, data):
    """Writes two .npz batches in ADM's format: the validation images, and those with shuffled patches."""
    import io
    import tarfile

    import numpy
    from PIL import Image
    whole, parts = runs.options.output / f"real-{name}.npz", runs.options.output / f"shuffled-{name}.npz"
    if whole.exists() and parts.exists():
        return whole, parts
    shards = runs.options.output / f"packed-{name}"
    if not shards.exists():
        runs.tessera("data", "pack", data, "-o", shards)
    images = []
    for path in sorted([*shards.glob("val*.tar"), *shards.glob("test*.tar")]):
        with tarfile.open(path) as shard:
            for member in shard:
                if member.name.rpartition(".")[2] in ("png", "jpg", "jpeg"):
                    images.append(numpy.asarray(Image.open(io.BytesIO(shard.extractfile(member).read())).convert("RGB")))
    images = numpy.stack(images)[: runs.options.images]
    count, height, width, _ = images.shape
    patches = images.reshape(count, height // PATCH, PATCH, width // PATCH, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    patches = patches.reshape(count, -1, PATCH, PATCH, 3)
    random = numpy.random.default_rng(0)
    patches = numpy.stack([one[random.permutation(len(one))] for one in patches])
    shuffled = patches.reshape(count, height // PATCH, width // PATCH, PATCH, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    numpy.savez(whole, arr_0=images)
    numpy.savez(parts, arr_0=shuffled.reshape(images.shape))
    return whole, parts


def samples(runs):
    head("set", "images", "number", "FID", "precision", "recall")
    for name in runs.options.sets.split(","):
        data, recipe = "shapes:" if name == "shapes" else runs.options.data, f"{name}/darl_samples.toml"

        def measure(what, images):
            found = runs.json_of("fid", images, "--reference", data, "--reference-split", "train", "--weights",
                                 runs.options.classifier[name], "--metrics", "fid,pr", "--threads", runs.options.threads)
            row(name, what, runs.options.images, f"{found['fid']:.2f}", f"{found['precision']:.3f}", f"{found['recall']:.3f}")

        whole, parts = real_images(runs, name, data)
        measure("real, of the validation split", whole)
        measure("those with shuffled patches", parts)
        for objective in ("diffusion", "mse"):
            settings = [] if objective == "diffusion" else ["task.objective=mse", "task.decoder=auto", "task.gamma=false"]
            folder = runs.for_minutes(45, f"samples-{name}-{objective}", recipe, settings, "--data", data)
            drawn = folder / "drawn.npz"
            compute = ["--batch", 64, "--threads", runs.options.threads]
            if not drawn.exists():
                runs.tessera("generate", "--weights", folder, "-n", runs.options.images, *compute, "-o", drawn)
            runs.tessera("generate", "--weights", folder, "-n", 64, *compute, "-o", folder / "drawn.png")
            runs.tessera("complete", "--weights", folder, "--data", data, "-n", 8, "--given", 0.5, "--steps", 100, "-o",
                         folder / "completed.png")
            measure(f"drawn by DARL, {objective}", drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True, help="the shards of CIFAR-10")
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--part", default="cifar", choices=("cifar", "objectives", "scaling", "samples"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="bf16", help="precision of all trainings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default=",".join(map(str, range(len(WAYS)))), help="part cifar: numbers of its ways")
    parser.add_argument("--sets", default=",".join(SETS), help="part samples: of shapes and cifar10")
    parser.add_argument("--scale", type=float, default=1, help="factor of all minutes")
    parser.add_argument("--per-class", type=int, default=0, help="training images of the probe, 0 = all")
    parser.add_argument("--images", type=int, default=1000, help="part samples: images generated for FID")
    parser.add_argument("--classifier", nargs=2, metavar=("SHAPES", "CIFAR10"), default=("", ""),
                        help="part samples: classifiers for the features of FID")
    options = parser.parse_args()
    if options.part == "samples" and not all(options.classifier):
        parser.error("--part samples needs --classifier: weights of a classifier of each set")
    options.classifier = dict(zip(SETS, options.classifier))
    {"cifar": cifar, "objectives": objectives, "scaling": scaling, "samples": samples}[options.part](Runs(options))


if __name__ == "__main__":
    main()
