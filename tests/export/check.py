"""Compares exported files in other programs with the program that wrote them: check.py PROGRAM RECIPES [NAME…]

Every file passes onnx.checker with full check. onnxruntime's and OpenVINO's outputs for images of the test crop's size are
compared with the numbers of the program's commands, at batches 1, 2 and 5. Prints a row of Markdown for each file: the largest
differences as shares of the largest value. Exits with 1 if one is above the bound (5e-5, or 0.05 for rounded numbers), if a
result is not finite, or if OpenVINO cannot read a file.
"""
import json
import pathlib
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime
import openvino
from onnx.reference import ReferenceEvaluator
from PIL import Image

MOST, ROUNDED = 5e-5, 0.05
IMAGES = 5
FREE_SIDE = 64
# One published size of each family that classifies.
FAMILIES = ["deit3_tiny_patch16_224", "vil_tiny_patch16_224", "vil1_tiny_patch16_224", "illama_tiny_patch16_224",
            "visionllama_small_patch16_224", "visionllama_pyramid_small_224", "twins_svt_small", "swin_tiny_patch4_window7_224",
            "resnet18", "convnextv2_nano", "darl_base_patch16_224", "poolformerv2_s12", "vanillanet_5",
            "eva02_tiny_patch14_224", "vil_pyramid_tiny_224", "vim_tiny_patch16_224", "vrwkv_tiny_patch16_224"]
RECIPE = """[model]
name = "{}"
[data]
path = "shapes:train=8,val=2"
[preprocess]
size = 224
crop = 1.0
[augment]
crop = "centre"
[train]
epochs = 1
batch_size = 4
"""
TOWERS = ["task.embed_dim=16", "task.text_dim=16", "task.text_depth=1", "task.text_heads=2", "task.context_length=32"]
MASKS = ["task.mask_ratio=0.4", "task.mask_least=4"]
# The tests' recipes: name, recipe, further settings, arguments of export. BEiT predicts the tokens of `dvae`.
TASKS = [("segment", "segment", [], []), ("detr", "detr", [], []), ("diffuse", "diffuse", [], []), ("vae", "vae", [], []),
         ("dvae", "dvae", [], []), ("mae", "mae", [], []), ("darl", "darl", [], []),
         ("simmim", "tiny", ["task.name=simmim", "task.mask_patch=8"], []),
         ("maskfeat", "tiny", ["task.name=maskfeat", "task.cell=4", "model.final_norm=false", *MASKS], []),
         ("beit", "tiny", ["task.name=beit", "task.tokeniser=dvae/model.safetensors", "task.codes=8", *MASKS], []),
         ("igpt", "tiny", ["task.name=igpt", "model.name=igpt", "model.colours=16", "model.image_size=32",
                           "preprocess.std=[0.5,0.5,0.5]"], ["--features"]),
         ("clip", "tiny", ["task.name=clip", *TOWERS], []), ("siglip", "tiny", ["task.name=clip", "task.loss=sigmoid", *TOWERS], []),
         ("coca", "tiny", ["task.name=coca", "task.decoder_heads=2", "task.pooler_heads=2", *TOWERS], [])]
FOLDERS = ["clip", "siglip", "coca", "vae", "dvae"]  # tasks with several files


def tessera(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tessera {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def trained(name, recipe, settings):
    """Trains for a step or an epoch of a small set, so that no tensor is zero."""
    if not pathlib.Path(name, "model.safetensors").exists():
        tessera("train", recipe, "-o", name, *(["--set", *settings] if settings else []))


def drawn_images(side):
    """Writes pictures of the exact size, so that the test crop changes no pixel."""
    folder = pathlib.Path(f"images{side}")
    folder.mkdir(exist_ok=True)
    random = numpy.random.default_rng(1)
    for i in range(IMAGES):
        small = random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
        Image.fromarray(small).resize((side, side), Image.BICUBIC).save(folder / f"{i}.png")
    return sorted(folder.iterdir())


def prepared(model, paths):
    """Normalises pixels as the file's metadata prescribe: [batch, 3, side, side]."""
    stored = {entry.key: entry.value for entry in model.metadata_props}
    preprocess = json.loads(stored["tessera.preprocess"])
    pixels = numpy.stack([numpy.asarray(Image.open(path).convert("RGB")) for path in paths]).astype(numpy.float32) / 255
    mean, std = (numpy.array(preprocess[key], numpy.float32) for key in ("mean", "std"))
    return numpy.ascontiguousarray(((pixels - mean) / std).transpose(0, 3, 1, 2), numpy.float32)


class Runs:
    """A file in onnxruntime and OpenVINO."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.names = [one.name for one in self.session.get_inputs()]
        self.compiled, self.reason = None, ""
        try:
            core = openvino.Core()
            self.compiled = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        except RuntimeError as error:
            self.reason = " ".join(str(error).split())[-100:]

    def __call__(self, inputs):
        ours = self.session.run(None, dict(zip(self.names, inputs)))
        others = None
        if self.compiled:
            result = self.compiled(list(inputs))
            others = [result[i] for i in range(len(ours))]
        return ours, others


def difference(found, wanted):
    """Largest difference, relative to the largest wanted value; infinite for values that are not finite."""
    found, wanted = numpy.asarray(found, numpy.float64), numpy.asarray(wanted, numpy.float64)
    if found.shape != wanted.shape or not numpy.isfinite(found).all() or not numpy.isfinite(wanted).all():
        return float("inf")
    return float(numpy.abs(found - wanted).max() / max(numpy.abs(wanted).max(), 1e-30))


def softmax(x):
    e = numpy.exp(x.astype(numpy.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def examples(model, batch, seed):
    """Random inputs of the file's own shapes."""
    random = numpy.random.default_rng(seed)
    inputs = []
    for value in model.graph.input:
        sizes = value.type.tensor_type.shape.dim
        shape = [batch] + [one.dim_value or FREE_SIDE for one in sizes[1:]]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            inputs.append(random.integers(0, 8, shape))
        else:
            inputs.append(random.random(shape, numpy.float32))
    return inputs


def checked(path):
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(str(path), load_external_data=False)


def row(name, path, seconds, by_runtime, by_openvino, most):
    """Prints a row. `by_openvino` is a difference, or the reason why the file was not read."""
    read = not isinstance(by_openvino, str)
    ok = by_runtime <= most and read and by_openvino <= most
    shown = f"{by_openvino:.1e}" if read else f"NOT READ: {by_openvino}"
    print(f"| {name} | {pathlib.Path(path).stat().st_size / 2**20:.1f} | {seconds:.1f} | {by_runtime:.1e} | {shown} |"
          + ("" if ok else " FAILS"), flush=True)
    return ok


def classifier(name, side, export=(), most=MOST):
    """Compares probabilities with `predict`."""
    path = f"{name}{''.join(export)}.onnx"
    start = time.monotonic()
    tessera("export", name, "-o", path, *export)
    seconds = time.monotonic() - start
    model, images = checked(path), drawn_images(side)
    lines = [json.loads(line) for line in tessera("predict", *map(str, images), "--weights", name, "--json", "--top", "1000").splitlines()]
    wanted = numpy.array([[p["probability"] for p in sorted(line["predictions"], key=lambda p: p["index"])] for line in lines])
    inputs, runs, ours, others = prepared(model, images), Runs(path), 0, 0
    for first, last in ((0, 1), (1, 3), (0, 5)):
        got, other = runs([inputs[first:last]])
        ours = max(ours, difference(softmax(got[0]), wanted[first:last]))
        if other:
            others = max(others, difference(softmax(other[0]), wanted[first:last]))
    return row(path, path, seconds, ours, others if runs.compiled else runs.reason, most)


def features(name, side):
    """Compares a backbone's vector with `features`."""
    path = f"{name}.features.onnx"
    start = time.monotonic()
    tessera("export", name, "-o", path, "--features")
    seconds = time.monotonic() - start
    model, images = checked(path), drawn_images(side)
    tessera("features", *map(str, images), "--weights", name, "-o", "features.npy")
    runs = Runs(path)
    got, other = runs([prepared(model, images)])
    wanted = numpy.load("features.npy")
    return row(path, path, seconds, difference(got[0], wanted), difference(other[0], wanted) if other else runs.reason, MOST)


def parts(name, arguments):
    """Compares onnxruntime and OpenVINO with ONNX's own reference implementation; export compared the rest."""
    start = time.monotonic()
    folder = pathlib.Path(f"{name}.parts")
    several = name in FOLDERS
    tessera("export", name, "-o", str(folder) if several else f"{name}.onnx", *arguments)
    seconds, good = time.monotonic() - start, True
    for path in sorted(folder.glob("*.onnx")) if several else [pathlib.Path(f"{name}.onnx")]:
        model, runs, ours, others = checked(path), Runs(path), 0, 0
        reference = ReferenceEvaluator(str(path))
        for batch in (1, 2, 5):
            inputs = examples(model, batch, batch)
            wanted = reference.run(None, dict(zip(runs.names, inputs)))
            got, other = runs(inputs)
            ours = max(ours, *(difference(a, b) for a, b in zip(got, wanted)))
            if other:
                others = max(others, *(difference(a, b) for a, b in zip(other, wanted)))
        good &= row(str(path), path, seconds, ours, others if runs.compiled else runs.reason, MOST)
    return good


def main():
    global PROGRAM
    PROGRAM, recipes, chosen = sys.argv[1], sys.argv[2], sys.argv[3:]
    wants = lambda name: not chosen or name in chosen
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, OpenVINO {openvino.__version__}\n")
    print("| file | MB | seconds to export | onnxruntime | OpenVINO |\n|---|---|---|---|---|")
    good = True
    for name in filter(wants, FAMILIES):
        pathlib.Path(f"{name}.toml").write_text(RECIPE.format(name))
        trained(name, f"{name}.toml", [])
        good &= classifier(name, 224)
        good &= features(name, 224)
    for name, recipe, settings, export in TASKS:
        if wants(name):
            trained(name, f"{recipes}/{recipe}.toml", [*settings, "train.epochs=1"])
            good &= parts(name, export)
    if wants("half"):
        trained("half", f"{recipes}/tiny.toml", ["train.epochs=4"])
        good &= classifier("half", 32, ["--half"], ROUNDED)
    if wants("int8"):
        trained("uncalibrated", f"{recipes}/tiny.toml", ["train.epochs=4"])
        tessera("convert", "uncalibrated/model.safetensors", "int8.safetensors", "--calibrate", "shapes:train=256,val=64")
        good &= classifier("int8.safetensors", 32, ["--int8"], ROUNDED)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
