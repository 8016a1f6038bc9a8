"""Images per second of one backbone: tessera against PyTorch (timm, or vil_peer.py for Vision-LSTM) and OpenVINO, in
turns in one run.

Prints a row of Markdown per implementation, and with --json one line with all rounds.
"""

import argparse
import contextlib
import copy
import json
import os
import statistics
import sys

import torch

from rounds import row, take_turns, tessera, timed, times_faster


def torch_step(model, images, dtype):
    model, images = model.to(dtype), images.to(dtype)

    def step():
        with torch.inference_mode():
            model(images)

    return step


@contextlib.contextmanager
def stdout_to_stderr():
    """Keeps a library's progress bars out of the printed table."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def openvino_step(model, images, precision, threads):
    import openvino

    network = openvino.convert_model(model, example_input=images, input=[tuple(images.shape)])
    if precision == "int8":
        import nncf

        samples = nncf.Dataset([torch.randn_like(images) for _ in range(4)])
        with stdout_to_stderr():
            network = nncf.quantize(network, samples, model_type=nncf.ModelType.TRANSFORMER)
    hint = {"fp32": "f32", "bf16": "bf16", "int8": "bf16"}[precision]
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": 1}
    request = openvino.compile_model(network, "CPU", options).create_infer_request()
    array = images.numpy()
    return lambda: request.infer([array])


def torch_training_step(model, images, precision):
    """Same work as `tessera bench train`: cross entropy, backward, AdamW; bf16 by autocast."""
    model = model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    labels = torch.arange(len(images))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            scores = model(images)
        torch.nn.functional.cross_entropy(scores.float(), labels).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def published(options):
    """The peer's network and its name in the table."""
    if options.model.startswith("vil_"):
        import vil_peer

        return vil_peer.create(options.model, options.program), "PyTorch"
    import timm

    return timm.create_model(options.model, pretrained=False).eval(), "PyTorch, timm"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", default="deit3_small_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="per implementation and round")
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--compile", action="store_true", help="torch.compile in bf16 too")
    parser.add_argument("--channels-last", action="store_true", help="PyTorch's tensors, for convolutions")
    parser.add_argument("--train", action="store_true", help="training steps")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    model, peer = published(options)
    images = torch.randn(options.batch, 3, 224, 224)
    if options.channels_last:
        model, images = (what.to(memory_format=torch.channels_last) for what in (model, images))
        peer += ", channels last"
    kind = "train" if options.train else "infer"

    def rate(step):
        return lambda: {"images_per_second": options.batch / timed(step, options.seconds)}

    ways = {}
    for precision in options.precisions.split(","):
        ways["tessera", precision] = lambda precision=precision: tessera(
            options.program, kind, model=options.model, batch=options.batch, threads=options.threads,
            seconds=options.seconds, precision=precision)
        if options.train:
            ways[peer, precision] = rate(torch_training_step(copy.deepcopy(model), images, precision))
            continue
        if precision != "int8":
            dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
            ways[peer, precision] = rate(torch_step(copy.deepcopy(model), images, dtype))
            if options.compile and precision == "bf16":
                ways["torch.compile", precision] = rate(torch_step(torch.compile(copy.deepcopy(model)), images, dtype))
        ways["OpenVINO", precision] = rate(openvino_step(copy.deepcopy(model), images, precision, options.threads))

    results = take_turns(ways, options.rounds, f"{kind} {options.model}, batch {options.batch}")
    rates = {way: [line["images_per_second"] for line in lines] for way, lines in results.items()}
    for (name, precision), values in rates.items():
        own = name == "tessera"
        limit = statistics.median(line["percent_of_limit"] for line in results[name, precision]) if own else None
        row(options.model, options.batch, precision, name, f"{statistics.median(values):.1f}",
            f"{limit:.0f} %" if own else "", "" if own else f"{times_faster(rates['tessera', precision], values):.2f}")
    if options.json:
        print(json.dumps({f"{name} {precision}": values for (name, precision), values in rates.items()}))


if __name__ == "__main__":
    main()
