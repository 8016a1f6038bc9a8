"""Exported files in onnxruntime and OpenVINO next to the program, with the same weights, in turns in one run.

  bench/exported.py --program BUILD/tessera --folder FOLDER

Trains each model one step for its weights and exports it. Prints a row of Markdown for each model: seconds and peak memory of the
export, the file's size over its weights, and images per second of the three. Needs numpy, onnxruntime and openvino.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys

import numpy
import onnxruntime
import openvino
from rounds import row, run_watched, take_turns, tessera, timed

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
steps = 1
batch_size = 2
"""


def exported(options, model):
    """Returns the file, its weights in MB, and seconds and MB of its export."""
    run, file = options.folder / model, options.folder / f"{model}.onnx"
    if not (run / "model.safetensors").exists():
        recipe = options.folder / f"{model}.toml"
        recipe.write_text(RECIPE.format(model))
        subprocess.run([options.program, "train", recipe, "--output", run], check=True, capture_output=True)
    seconds, peak = run_watched([options.program, "export", run, "-o", file, "--json"])
    return file, (run / "model.safetensors").stat().st_size / 1e6, seconds, peak * 1.048576


def onnxruntime_step(file, images, threads):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {session.get_inputs()[0].name: images})


def openvino_step(file, images, threads):
    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    network = core.read_model(str(file))
    network.reshape(list(images.shape))
    request = core.compile_model(network, "CPU", options).create_infer_request()
    return lambda: request.infer([images])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="deit3_small_patch16_224,vil_tiny_patch16_224,convnextv2_nano,deit3_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    row("model", "export", "peak memory", "file / weights", "Tessera", "onnxruntime", "OpenVINO")
    row(*["---"] * 7)
    images = numpy.random.default_rng(0).standard_normal((options.batch, 3, 224, 224)).astype(numpy.float32)
    for model in options.models.split(","):
        file, weights, took, peak = exported(options, model)
        steps = {"onnxruntime": onnxruntime_step, "OpenVINO": openvino_step}
        steps = {name: make(file, images, options.threads) for name, make in steps.items()}
        ways = {"Tessera": lambda: tessera(options.program, "infer", model=model, batch=options.batch, precision="fp32",
                                           threads=options.threads, seconds=options.seconds)["images_per_second"]}
        for name, step in steps.items():
            ways[name] = lambda step=step: options.batch / timed(step, options.seconds)
        found = {name: statistics.median(all) for name, all in take_turns(ways, options.rounds, model).items()}
        others = [f"{found[name]:.1f} ({found['Tessera'] / found[name]:.2f})" for name in steps]
        row(f"`{model}`", f"{took:.1f} s", f"{peak:.0f} MB ({peak / weights:.1f} x)", f"{file.stat().st_size / 1e6 / weights:.3f}",
            f"{found['Tessera']:.1f}", *others)


if __name__ == "__main__":
    sys.exit(main())
