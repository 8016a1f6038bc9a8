"""Compares exported files of trained weights with the program that trained them: trained.py PROGRAM RECIPES DATA [NAME…]

DATA has camvid, bccd-coco, emoji and cifar10. Each recipe is trained briefly, unless an earlier call has done it. onnxruntime then
computes the validation set from the file, and the program's commands from the weights. Prints a row of Markdown for each: what both
achieve, and how far they agree. Exits with 1 if a result is further away than its bound.
"""
import contextlib
import io
import json
import math
import pathlib
import sys
import tarfile

import numpy
import onnx
import onnxruntime
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import check
from check import checked, prepared, tessera

BATCH, WINDOW, IGNORED = 50, 192, 255
# Recipe, data, settings of a training of a few minutes.
RUNS = {
    "demo": ("demo.toml", [], []),
    "camvid": ("upernet/camvid.toml", ["--data", "{}/camvid"],
               ["train.epochs=3", "train.eval_every=3", "schedule.warmup_steps=20"]),
    "bccd": ("detr/bccd.toml", ["--data", "{}/bccd-coco"],
             ["train.epochs=2", "train.eval_every=2", "schedule.warmup_steps=10"]),
    "emoji": ("clip/emoji.toml", ["--data", "{}/emoji/train-{{000..003}}.tar.gz", "--val-data", "{}/emoji/val-000.tar.gz"],
              ["train.epochs=3", "train.eval_every=3", "schedule.warmup_steps=20"]),
    "dit": ("shapes/dit_llama.toml", [], ["train.steps=600", "schedule.warmup_steps=50"]),
    "cifar10": ("cifar10/convnext.toml", ["--data", "{}/cifar10"],
                ["train.epochs=1", "schedule.warmup_epochs=0", "schedule.warmup_steps=20"]),
}


def train(name):
    recipe, data, settings = RUNS[name]
    if not pathlib.Path(name, "model.safetensors").exists():
        tessera("train", f"{RECIPES}/{recipe}", "-o", name, *(word.format(DATA) for word in data), "--set", *settings)


def exported(weights, path, *options):
    tessera("export", weights, "-o", path, *options)
    return checked(path)


def opened(path):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # trainings may run on the same cores
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def outputs(path, *inputs):
    """Runs a file on batches: a list with the array of each output."""
    session = opened(path)
    names = [one.name for one in session.get_inputs()]
    parts = [session.run(None, {name: values[i:i + BATCH] for name, values in zip(names, inputs)})
             for i in range(0, len(inputs[0]), BATCH)]
    return [numpy.concatenate(part) for part in zip(*parts)]


def json_lines(*arguments):
    return [json.loads(line) for line in tessera(*arguments, "--json").splitlines() if line.startswith("{")]


def stored(model, key):
    return next(json.loads(entry.value) for entry in model.metadata_props if entry.key == f"tessera.{key}")


def row(name, measure, ours, theirs, most, more, ok):
    """Prints a row. `ours`, `theirs` and `most` are in points."""
    good = ok and abs(ours - theirs) <= most
    print(f"| {name} | {measure} | {ours:.2f} | {theirs:.2f} | {more} |" + ("" if good else " FAILS"), flush=True)
    return good


def samples(shard):
    """Returns the samples of a shard: bytes by ending."""
    found = {}
    with tarfile.open(shard) as archive:
        for member in archive:
            stem, ending = member.name.rsplit(".", 1)
            found.setdefault(stem, {})[ending] = archive.extractfile(member).read()
    return list(found.values())


def images_of(name, found):
    """Writes images with their own bytes."""
    folder = pathlib.Path(f"{name}.images")
    folder.mkdir(exist_ok=True)
    for i, sample in enumerate(found):
        ending = next(ending for ending in ("png", "jpg") if ending in sample)
        (folder / f"{i:05}.{ending}").write_bytes(sample[ending])
    return sorted(folder.iterdir())


# --- classes

def classify(name, found, weights, least, most, export=(), precision="fp32"):
    paths, labels = images_of(name, found), numpy.array([int(sample["cls"]) for sample in found])
    path = f"{name}{''.join(export)}.onnx"
    model = exported(weights, path, *export)
    theirs = outputs(path, prepared(model, paths))[0].argmax(1)
    lines = json_lines("predict", f"{name}.images", "--weights", weights, "--top", "1", "--precision", precision)
    ours = numpy.array([line["predictions"][0]["index"] for line in lines])
    same = float((ours == theirs).mean() * 100)
    return row(f"{name}, {precision}", f"top-1 of {len(paths)} images", float((ours == labels).mean() * 100),
               float((theirs == labels).mean() * 100), most, f"same class in {same:.2f} %", same >= least)


def validation_of(name):
    if name == "cifar10":
        return samples(f"{DATA}/cifar10/test-000.tar.gz")[:500]
    if not pathlib.Path("demo.shards").exists():
        tessera("data", "pack", "shapes:train=1,val=2000", "-o", "demo.shards")
    return samples("demo.shards/val-000.tar")


def rounded(name):
    """int8, with step sizes from calibration: agreement in 99 %, accuracy within 0.3 points."""
    weights = f"{name}.int8.safetensors"
    tessera("convert", f"{name}/model.safetensors", weights, "--calibrate",
            f"{DATA}/cifar10" if name == "cifar10" else "shapes:train=512,val=64")
    return classify(name, validation_of(name), weights, 99, 0.3, ["--int8"], "int8")


# --- pixels

def stretched(size, target):
    """Returns [target, size]: linear interpolation between centres of cells."""
    at = ((numpy.arange(target) + 0.5) * size / target - 0.5).clip(0, size - 1)
    low = at.astype(int)
    weights = numpy.zeros((target, size), numpy.float32)
    weights[range(target), low] += 1 - (at - low)
    weights[range(target), (low + 1).clip(max=size - 1)] += at - low
    return weights


def window_classes(path, pixels):
    """Returns the classes of an image [1, 3, height, width] whose windows overlap only at the last ones of each axis."""
    height, width = pixels.shape[2:]
    places = [(y, x) for y in starts(height) for x in starts(width)]
    scores = outputs(path, numpy.concatenate([pixels[:, :, y:y + WINDOW, x:x + WINDOW] for y, x in places]))[0]
    larger = stretched(scores.shape[2], WINDOW)
    total, count = numpy.zeros((scores.shape[1], height, width), numpy.float32), numpy.zeros((height, width), numpy.float32)
    for (y, x), one in zip(places, scores):
        total[:, y:y + WINDOW, x:x + WINDOW] += larger @ one @ larger.T
        count[y:y + WINDOW, x:x + WINDOW] += 1
    return (total / count).argmax(0)


def starts(side):
    return sorted({min(i, side - WINDOW) for i in range(0, side, WINDOW)})


def mean_iou(found, wanted, classes):
    """Pixels of all images as one vector."""
    known = wanted != IGNORED
    counts = numpy.bincount(wanted[known].astype(int) * classes + found[known], minlength=classes**2).reshape(classes, classes)
    union = counts.sum(0) + counts.sum(1) - counts.diagonal()
    return float((counts.diagonal()[union > 0] / union[union > 0]).mean() * 100)


def segment(name):
    images = sorted(pathlib.Path(DATA, "camvid/images/validation").iterdir())
    path = f"{name}.onnx"
    model = exported(name, path, "--size", str(WINDOW))
    tessera("segment", *map(str, images), "--weights", name, "-o", f"{name}.masks", "--tile", str(WINDOW), "--stride", str(WINDOW))
    ours, theirs, wanted = [], [], []
    for image in images:
        ours.append(numpy.asarray(Image.open(f"{name}.masks/{image.stem}.png")))
        theirs.append(window_classes(path, prepared(model, [image])))
        wanted.append(numpy.asarray(Image.open(f"{DATA}/camvid/annotations/validation/{image.stem}.png")))
    ours, theirs, wanted = (numpy.concatenate([one.ravel() for one in all]) for all in (ours, theirs, wanted))
    classes, same = len(stored(model, "class_names")), float((ours == theirs).mean() * 100)
    return row(name, f"mIoU of {len(images)} images", mean_iou(ours, wanted, classes), mean_iou(theirs, wanted, classes), 0.1,
               f"same class in {same:.3f} % of the pixels", same >= 99.9)


# --- objects

def average_precision(truth, results):
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0] * 100)


def padded(annotations, colour):
    """Writes images as squares: the file has no mask for padding, which the program masks."""
    folder = pathlib.Path("bccd.images")
    folder.mkdir(exist_ok=True)
    for entry in annotations["images"]:
        image = Image.open(f"{DATA}/bccd-coco/images/{entry['file_name']}").convert("RGB")
        square = Image.new("RGB", (max(image.size),) * 2, colour)
        square.paste(image, (0, 0))
        entry["file_name"] = pathlib.Path(entry["file_name"]).stem + ".png"
        entry["width"], entry["height"] = square.size
        square.save(folder / entry["file_name"])
    pathlib.Path("bccd.json").write_text(json.dumps(annotations))
    return [folder / entry["file_name"] for entry in annotations["images"]]


def objects_of(logits, boxes, image, numbers):
    """Returns results in COCO's format, as the published code reads DETR's output."""
    shares = check.softmax(logits)[:, :-1]
    centre, half = boxes[:, :2].astype(float), boxes[:, 2:].astype(float) / 2
    corners = numpy.concatenate([centre - half, centre + half], 1) * ([image["width"], image["height"]] * 2)
    corners = corners.clip(0, [image["width"], image["height"]] * 2)
    return [{"image_id": image["id"], "category_id": numbers[share.argmax()], "score": float(share.max()),
             "bbox": [float(x) for x in (*corner[:2], *(corner[2:] - corner[:2]))]} for share, corner in zip(shares, corners)]


def detr(name):
    path = f"{name}.onnx"
    model = exported(name, path)
    preprocess, numbers = stored(model, "preprocess"), stored(model, "class_numbers")
    annotations = json.loads(pathlib.Path(DATA, "bccd-coco/annotations/instances_val.json").read_text())
    paths = padded(annotations, tuple(round(255 * value) for value in preprocess["mean"]))
    small = pathlib.Path(f"{name}.small")
    small.mkdir(exist_ok=True)
    for one in paths:
        Image.open(one).resize((preprocess["size"],) * 2, Image.BILINEAR).save(small / one.name)
    logits, boxes = outputs(path, prepared(model, [small / one.name for one in paths]))
    theirs = [found for one in zip(logits, boxes, annotations["images"]) for found in objects_of(*one, numbers)]
    tessera("detect", *map(str, paths), "--weights", name, "--results", f"{name}.ours.json", "--ids", "bccd.json")
    ours = json.loads(pathlib.Path(f"{name}.ours.json").read_text())
    truth = quiet(COCO, "bccd.json")
    score, pixels = largest_differences(ours, theirs)
    return row(name, f"AP of {len(paths)} images", average_precision(truth, ours), average_precision(truth, theirs), 0.1,
               f"scores differ by at most {score:.1e}, boxes by {pixels:.1e} pixels", score < 1e-4 and pixels < 0.1)


def quiet(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


def largest_differences(ours, theirs):
    """Compares each result with the closest one of the other list: scores, and sides of boxes in pixels."""
    worst = [0.0, 0.0]
    for image in {one["image_id"] for one in ours + theirs}:
        a, b = (numpy.array([[one["score"], *one["bbox"]] for one in all if one["image_id"] == image]) for all in (ours, theirs))
        if a.shape != b.shape:
            return [float("inf")] * 2
        apart = numpy.abs(a[:, None] - b[None])
        nearest = apart[range(len(a)), apart.max(2).argmin(1)]
        worst = [max(worst[0], nearest[:, 0].max()), max(worst[1], nearest[:, 1:].max())]
    return worst


# --- images and texts

def token_ids(name, texts, length):
    ids = numpy.zeros((len(texts), length), numpy.int64)
    for line, text in zip(ids, texts):
        found = json_lines("tokens", "show", text, "--tokenizer", name)[0]["ids"]
        assert len(found) <= length, f"'{text}' is longer than the context"
        line[:len(found)] = found
    return ids


def recall(similarities, relevant):
    """R@1 of rows: the best relevant column is ahead of all others."""
    return float((numpy.where(relevant, similarities, -2).max(1) > numpy.where(relevant, -2, similarities).max(1)).mean() * 100)


def clip(name):
    found = samples(f"{DATA}/emoji/val-000.tar.gz")
    captions = [json.loads(sample["json"])["captions"][:1] for sample in found]
    texts = sorted({text for own in captions for text in own})
    tessera("export", name, "-o", f"{name}.parts")
    image, text = (checked(f"{name}.parts/{part}.onnx") for part in ("image", "text"))
    ids = token_ids(name, texts, text.graph.input[0].type.tensor_type.shape.dim[1].dim_value)
    similarities = (outputs(f"{name}.parts/image.onnx", prepared(image, images_of(name, found)))[0]
                    @ outputs(f"{name}.parts/text.onnx", ids)[0].T)
    relevant = numpy.array([[text in own for text in texts] for own in captions])
    ours = json_lines("eval", "--weights", name, "--data", f"{DATA}/emoji/val-000.tar.gz", "--captions", "first")[0]
    good = True
    for way, theirs in (("image_to_text", recall(similarities, relevant)), ("text_to_image", recall(similarities.T, relevant.T))):
        good &= row(name, f"R@1 {way.replace('_', ' ')}, {len(found)} images", ours[f"{way}_r1"] * 100, theirs, 0.1,
                    f"{len(texts)} texts", True)
    return good


# --- drawn images

def cosine_levels(steps):
    left = [math.cos((i / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(steps + 1)]
    return numpy.cumprod([1 - min(1 - after / before, 0.999) for before, after in zip(left, left[1:])])


def sampled(predict, x, steps, guidance, levels):
    """Draws images from noise by DDIM for a network of v; predict(x, time, guided) returns v with and without a class."""
    times = [round(len(levels) * (1 - i / steps)) - 1 for i in range(steps)]
    for i, time in enumerate(times):
        alpha, sigma = math.sqrt(levels[time]), math.sqrt(1 - levels[time])
        with_class, without = predict(x, time)
        v = without + guidance * (with_class - without)
        clean, noise = (alpha * x - sigma * v).clip(-1, 1), alpha * v + sigma * x
        after = levels[times[i + 1]] if i + 1 < steps else 1
        x = math.sqrt(after) * clean + math.sqrt(1 - after) * noise
    return x.astype(numpy.float32)


def without_output(weights, path):
    """Copies weights with zeros in the last layer: DDIM then returns a multiple of the noise that it begins with."""
    data = bytearray(pathlib.Path(weights).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for key, entry in json.loads(data[8:begin]).items():
        if key.startswith("final_layer.linear."):
            first, last = entry["data_offsets"]
            data[begin + first:begin + last] = bytes(last - first)
    pathlib.Path(path).write_bytes(data)


def diffuse(name):
    classes, steps, guidance, levels = 10, 50, 1.5, cosine_levels(1000)

    def drawn(weights, *words):
        tessera("generate", "--weights", weights, "--sampler", "ddim", "-n", str(classes), *words, "-o", f"{name}.drawn.npy")
        return numpy.load(f"{name}.drawn.npy")

    without_output(f"{name}/model.safetensors", f"{name}.zero.safetensors")
    nothing = lambda x, time: (0 * x, 0 * x)
    noise = drawn(f"{name}.zero.safetensors", "--steps", "1", "--cfg", "1") / sampled(nothing, numpy.ones(1), 1, 1, levels)
    exported(name, f"{name}.onnx")
    session = opened(f"{name}.onnx")
    labels = numpy.arange(classes)

    def predict(x, time):
        inputs = {"x": numpy.concatenate([x, x]).astype(numpy.float32), "time": numpy.full(2 * classes, time, numpy.float32),
                  "labels": numpy.concatenate([labels, numpy.full(classes, classes)])}
        return numpy.split(session.run(None, inputs)[0][:, :3], 2)

    theirs = sampled(predict, noise, steps, guidance, levels)
    ours = drawn(name, "--steps", str(steps), "--cfg", str(guidance))
    grey = lambda x: ((x * 0.5 + 0.5) * 255).round().clip(0, 255)
    apart = float(numpy.abs(grey(ours) - grey(theirs)).max())
    return row(name, f"mean of {classes} images, {steps} steps of DDIM, guidance {guidance}", float(grey(ours).mean()),
               float(grey(theirs).mean()), 1, f"pixels differ by at most {apart:.0f} of 255 "
               f"({numpy.abs(ours - theirs).max() * 127.5:.1e} before rounding)", apart <= 1)


CASES = {"demo": lambda name: classify(name, validation_of(name), name, 99.9, 0.1), "camvid": segment, "bccd": detr, "emoji": clip,
         "dit": diffuse, "cifar10": lambda name: classify(name, validation_of(name), name, 99.9, 0.1)}


def main():
    global RECIPES, DATA
    check.PROGRAM, RECIPES, DATA, chosen = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}\n")
    print("| weights | measure | tessera | file | agreement |\n|---|---|---|---|---|")
    good = True
    for name, compare in CASES.items():
        if not chosen or name in chosen:
            train(name)
            good &= compare(name)
            if name in ("demo", "cifar10"):
                good &= rounded(name)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
