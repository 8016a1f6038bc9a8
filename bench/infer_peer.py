"""Images a second of one backbone: tessera beside timm in PyTorch and OpenVINO, taking turns in one run.

Prints a row of Markdown for each way, best first within its precision, and with --json one line with all rounds.
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import time

import torch


def timed(step, seconds):
    """Images are counted by the caller; here the median seconds of a step, after two to warm up."""
    step(), step()
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_step(model, images, dtype):
    model, images = model.to(dtype), images.to(dtype)

    def step():
        with torch.inference_mode():
            model(images)

    return step


def openvino_step(model, images, precision, threads):
    import openvino

    network = openvino.convert_model(model, example_input=images, input=[tuple(images.shape)])
    if precision == "int8":
        import nncf

        samples = nncf.Dataset([torch.randn_like(images) for _ in range(4)])
        network = nncf.quantize(network, samples, model_type=nncf.ModelType.TRANSFORMER)
    hint = {"fp32": "f32", "bf16": "bf16", "int8": "bf16"}[precision]
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": 1}
    request = openvino.compile_model(network, "CPU", options).create_infer_request()
    array = images.numpy()
    return lambda: request.infer([array])


def tessera_rate(program, arguments):
    command = [program, "bench", "infer", "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", default="deit3_small_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each way in each round")
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    import copy

    import timm

    model = timm.create_model(options.model, pretrained=False).eval()
    images = torch.randn(options.batch, 3, 224, 224)
    ways = {}
    for precision in options.precisions.split(","):
        arguments = ["--model", options.model, "--batch", str(options.batch), "--threads", str(options.threads),
                     "--seconds", str(options.seconds), "--dtype", precision]
        ways["tessera", precision] = lambda a=arguments: tessera_rate(options.program, a)
        if precision != "int8":
            dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
            ways["PyTorch, timm", precision] = torch_step(copy.deepcopy(model), images, dtype)
        ways["OpenVINO", precision] = openvino_step(copy.deepcopy(model), images, precision, options.threads)

    rates = {way: [] for way in ways}
    limits = {}
    for round_number in range(options.rounds):
        for way, step in ways.items():
            if way[0] == "tessera":
                line = step()
                rates[way].append(line["images_per_s"])
                limits.setdefault(way[1], []).append(line["percent_of_limit"])
            else:
                rates[way].append(options.batch / timed(step, options.seconds))
        print(f"round {round_number + 1} of {options.rounds}", file=sys.stderr)

    for (name, precision), values in rates.items():
        ours = rates["tessera", precision]
        ratio = statistics.median(a / b for a, b in zip(ours, values))
        limit = f"{statistics.median(limits[precision]):.0f} %" if name == "tessera" else ""
        times = "" if name == "tessera" else f"{ratio:.2f}"
        print(f"| {options.model} | {options.batch} | {precision} | {name} | {statistics.median(values):.1f} | {limit} | {times} |")
    if options.json:
        print(json.dumps({f"{name} {precision}": values for (name, precision), values in rates.items()}))


if __name__ == "__main__":
    main()
