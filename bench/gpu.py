#!/usr/bin/env python3
"""What a GPU has to show: tessera against PyTorch at its best (eager, compiled, max-autotune), in turns in one run.

  bench/tables gpu docs/performance.md bench/gpu.py --program BUILD/tessera [--only REGEX] [--rounds 3]

Prints rows of Markdown: forward passes with weights in bf16, training steps (cross entropy, AdamW) with bf16 by autocast, and
parts alone. --only chooses cases by their names: models, "one image", "896", "cell", "attention", "memory". Needs a Python with
torch for CUDA and timm; torchvision adds Mask R-CNN, mlstm-kernels the published cell. --tiny checks the program on a CPU.
"""
import argparse
import contextlib
import copy
import gc
import importlib.util
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import torch
from torch.nn import functional

import gpu_modules
from rounds import head, row, take_turns, tessera, times_faster

TOKENS_OF_CELLS = 65536


class Bench:
    def __init__(self, options):
        self.options, self.device = options, "cpu" if options.tiny else "cuda"

    def wants(self, name):
        return re.search(self.options.only, name) is not None

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def rate(self, step, count):
        """Returns `count` per second: the median over synchronised steps."""
        for _ in range(1 if self.options.tiny else 3):
            step()
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < self.options.seconds or len(times) < 3:
            self.wait()
            start = time.perf_counter()
            step()
            self.wait()
            times.append(time.perf_counter() - start)
        return count / statistics.median(times)

    def autocast(self):
        return torch.autocast(self.device, torch.bfloat16)

    def compare(self, case, what, ours, peers, unit="images/s"):
        """Runs all ways in turns; each returns a rate. Prints a row for each."""
        rates = take_turns({"tessera": ours, **peers}, self.options.rounds, f"{what} {case}")
        best = max((name for name in peers), key=lambda name: statistics.median(rates[name]), default=None)
        for way, values in rates.items():
            faster = "" if way == "tessera" else f"{times_faster(rates['tessera'], values):.2f}"
            row(case, what, way + (" (best peer)" if way == best else ""), f"{statistics.median(values):.4g} {unit}", faster)


def forward_step(model, inputs):
    model = model.to(torch.bfloat16).eval()
    inputs = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs]

    def step():
        with torch.inference_mode():
            model(*inputs)

    return step


def training_step(bench, model, inputs, loss):
    model = model.train()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)

    def step():
        with bench.autocast():
            out = model(*inputs)
        loss(out.float()).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def best_ways(bench, make, model, count, modes=None):
    """The peers of a network: {name: rate()}. A way that fails, for lack of memory or in its compiler, is left out by name."""
    ways = {"PyTorch": lambda network: network}
    if not bench.options.tiny:
        ways |= {f"torch.compile ({mode})": lambda network, mode=mode: torch.compile(network, mode=mode) for mode in modes or bench.options.modes.split(",")}
    found = {}
    for name, prepared in ways.items():
        try:
            step = make(prepared(copy.deepcopy(model)))
            step()
            bench.wait()
        except Exception as error:  # noqa: BLE001: a peer that does not run is no failure of ours
            print(f"{name} is left out: {str(error).splitlines()[0]}", flush=True)
            continue
        found[name] = lambda step=step: bench.rate(step, count)
    return found


def classifier_loss(bench, batch):
    labels = torch.arange(batch, device=bench.device)
    return lambda scores: functional.cross_entropy(scores, labels)


def models(bench):
    """name: batch, pixels, network."""
    def timm_model(name):
        import timm

        return timm.create_model(name, pretrained=False)

    def vil(name, pixels=224):
        import vil_peer

        return vil_peer.create(name, bench.options.program) if pixels == 224 else vil_peer.VisionLstm(vil_peer.WIDTHS[name], pixels)

    cases = {name: (batch, 224, lambda name=name: timm_model(name)) for name, batch in (
        ("deit3_small_patch16_224", 128), ("deit3_base_patch16_224", 128), ("vit_large_patch16_224", 64))}
    cases |= {name: (128, 224, lambda name=name: gpu_modules.create(name)) for name in gpu_modules.SIZES}
    cases |= {name: (batch, 224, lambda name=name: vil(name)) for name, batch in (
        ("vil_tiny_patch16_224", 64), ("vil_small_patch16_224", 64), ("vil_base_patch16_224", 32))}
    cases |= {name + " at 896": (4, 896, lambda name=name: vil(name, 896)) for name in (
        "vil_tiny_patch16_224", "vil_small_patch16_224", "vil_base_patch16_224")}
    return cases


def measure_model(bench, case, batch, pixels, network):
    name = case.split()[0]
    if bench.options.tiny:
        batch = 1
    model, images = network().to(bench.device), torch.randn(batch, 3, pixels, pixels, device=bench.device)
    loss = classifier_loss(bench, batch)
    makes = {"forward": lambda m: forward_step(m, [images]), "training step": lambda m: training_step(bench, m, [images], loss)}
    for what, make in makes.items():
        kind = "infer" if what == "forward" else "train"
        peers = best_ways(bench, make, model, batch)
        if name.startswith("vil_") and (kernel := published_cell(bench)):
            import vil_peer

            with_cell = copy.deepcopy(model)
            for module in with_cell.modules():
                if isinstance(module, vil_peer.Cell):
                    module.kernel = kernel
            peers |= {"published cell, " + key: way for key, way in best_ways(bench, make, with_cell, batch, ("default",)).items()}
        bench.compare(case, what, lambda: tessera(bench.options.program, kind, model=name, batch=batch, size=pixels,
                                                  device=bench.device, precision="bf16", seconds=bench.options.seconds)
                      ["images_per_second"], peers)


def measure_one_image(bench):
    import timm
    import vil_peer

    for name, network in (("deit3_small_patch16_224", lambda n: timm.create_model(n, pretrained=False)),
                          ("vil_tiny_patch16_224", lambda n: vil_peer.VisionLstm(vil_peer.WIDTHS[n]))):
        image = torch.randn(1, 3, 224, 224, device=bench.device)
        peers = best_ways(bench, lambda m: forward_step(m, [image]), network(name).to(bench.device), 1)
        bench.compare("one image", name, lambda: tessera(bench.options.program, "infer", model=name, batch=1,
                                                         device=bench.device, precision="bf16",
                                                         seconds=bench.options.seconds)["images_per_second"], peers)


def measure_dit(bench):
    import generate_peer

    batch = 1 if bench.options.tiny else 32
    size = (384, 2, 6) if bench.options.tiny else (1152, 28, 16)
    model = generate_peer.Dit(False, *size).to(bench.device)
    generate_peer.fill(model)
    x, noise, label = (t.to(bench.device) for t in generate_peer.inputs(batch))
    wanted = torch.randn_like(x)
    makes = {"infer": lambda m: forward_step(m, [x, noise, label]),
             "train": lambda m: training_step(bench, m, [x, noise, label],
                                              lambda out: (out[:, :generate_peer.CHANNELS] - wanted).square().mean())}
    ours = "dit_s_patch2" if bench.options.tiny else "dit_xl_patch2"
    for kind, make in makes.items():
        settings = {"task": "diffuse"} if kind == "train" else {}
        bench.compare("DiT-XL/2", {"infer": "forward", "train": "training step"}[kind],
                      lambda: tessera(bench.options.program, kind, model=ours, batch=batch, size=32, device=bench.device,
                                      precision="bf16", seconds=bench.options.seconds, **settings)["images_per_second"],
                      best_ways(bench, make, model, batch))


def measure_mask_rcnn(bench):
    """Ours is the time of additional steps of a run, with decoding and augmentation."""
    import torchvision

    size, batch, steps = (128, 1, 2) if bench.options.tiny else (800, 4, 40)
    model = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=11,
                                                               min_size=size, max_size=size).to(bench.device).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = [torch.rand(3, size, size, device=bench.device) for _ in range(batch)]
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.6], [0.4, 0.2, 0.9, 0.8], [0.2, 0.6, 0.6, 0.95]], device=bench.device) * size
    masks = torch.zeros(3, size, size, dtype=torch.uint8, device=bench.device)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist()):
        mask[top:bottom, left:right] = 1
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 4, 9], device=bench.device), "masks": masks} for _ in images]

    def step():
        optimiser.zero_grad()
        with bench.autocast():
            loss = sum(model(images, targets).values())
        loss.backward()
        optimiser.step()

    recipe = pathlib.Path(__file__).resolve().parent.parent / "recipes/mask_rcnn/resnet50_torchvision.toml"

    def seconds_of(count):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            subprocess.run([bench.options.program, "train", recipe, "--output", folder + "/run", "--device", bench.device, "--set",
                            f"preprocess.size={size}", f"task.shortest=[{size}]", f"task.longest={size}", "train.freeze=[]",
                            "train.precision=bf16", "optimiser.lr=1e-4",
                            f"data.path=shapes:task=detect,train={batch * count},val=2,size={size}",
                            f"train.batch_size={batch}", f"train.steps={count}", "train.eval_every=0"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.perf_counter() - start

    bench.compare("Mask R-CNN R50", "training step", lambda: steps * batch / max(1e-9, seconds_of(1 + steps) - seconds_of(1)),
                  {"torchvision": lambda: bench.rate(step, batch)})


def measure_attention(bench):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (1, 2, 20, 64) if bench.options.tiny else (128, 6, 197, 64)
    q, k, v = (torch.randn(shape, device=bench.device, dtype=torch.bfloat16) for _ in range(3))
    backends = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                "cuDNN": SDPBackend.CUDNN_ATTENTION}
    for what in ("forward", "forward and backward"):
        def step_of(backend, both=what != "forward"):
            def step():
                with sdpa_kernel(backend), contextlib.nullcontext() if both else torch.no_grad():
                    inputs = [x.detach().requires_grad_(both) for x in (q, k, v)]
                    out = functional.scaled_dot_product_attention(*inputs)
                    if both:
                        torch.autograd.grad(out, inputs, q)

            return step

        peers = {}
        for name, backend in backends.items():
            try:
                step_of(backend)()
            except RuntimeError:
                continue
            peers["SDPA, " + name] = lambda step=step_of(backend): bench.rate(step, 1)

        def ours():
            line = tessera(bench.options.program, "attention", batch=shape[0], heads=shape[1], tokens=shape[2], head_dim=shape[3],
                           device=bench.device, seconds=bench.options.seconds)
            return 1e3 / line["forms"][f"bf16 {what}"]["ms"]

        bench.compare("attention of 197 tokens", what, ours, peers, "passes/s")


def published_cell(bench, chunk=64):
    """Returns the kernel of mlstm-kernels for any number of tokens, or None without the package or a GPU."""
    if bench.options.tiny or importlib.util.find_spec("mlstm_kernels") is None:
        return None
    from mlstm_kernels.torch import get_mlstm_kernel

    kernel = get_mlstm_kernel("chunkwise--triton_xl_chunk")

    def padded(q, k, v, i, f):
        tokens = q.shape[2]
        rest = -tokens % chunk
        q, k, v = (functional.pad(x, (0, 0, 0, rest)).contiguous() for x in (q, k, v))
        i, f = (functional.pad(x, (0, rest)).float().contiguous() for x in (i, f))
        return kernel(q, k, v, i, f, chunk_size=chunk)[:, :, :tokens]

    return padded


def measure_cells(bench):
    tokens_of = (270,) if bench.options.tiny else (1024, 4096, 16384, 65536)
    for dim in (48,) if bench.options.tiny else (96, 128, 192, 256, 384, 512):
        for tokens in tokens_of:
            batch = max(1, TOKENS_OF_CELLS // tokens) if not bench.options.tiny else 1
            shape = (batch, 4, tokens, dim)
            make = lambda *size: torch.randn(*size, device=bench.device, dtype=torch.bfloat16)  # noqa: E731
            q, k, v = make(*shape), make(*shape), make(*shape)
            i, f = make(*shape[:3]).float(), make(*shape[:3]).float() + 4
            for what in ("forward", "forward and backward"):
                def step_of(cell, both=what != "forward"):
                    def step():
                        inputs = [x.detach().requires_grad_(both) for x in (q, k, v, i, f)]
                        with contextlib.nullcontext() if both else torch.no_grad():
                            out = cell(*inputs)
                            if both:
                                torch.autograd.grad(out, inputs, torch.ones_like(out))

                    return step

                peers = {}
                for chunk in (64, 128, 256):
                    if cell := published_cell(bench, chunk):
                        with contextlib.suppress(Exception):
                            step = step_of(cell)
                            step()
                            peers[f"mlstm-kernels, chunks of {chunk}"] = lambda step=step: bench.rate(step, 1)

                def ours():
                    line = tessera(bench.options.program, "mlstm", batch=batch, heads=4, tokens=tokens, head_dim=dim,
                                   device=bench.device, seconds=bench.options.seconds)
                    name = "chunkwise bf16" if bench.options.tiny else "bf16"
                    return 1e3 / line["forms"][f"{name} {what}"]["ms"]

                bench.compare(f"cell, 4 heads of {dim}, {batch} x {tokens} tokens", what, ours, peers, "passes/s")


def measure_memory(bench):
    """Peak memory of the tensors of training steps of Vision-LSTM T, in MB; no rounds."""
    import vil_peer

    gc.collect()
    if bench.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    batch = 1 if bench.options.tiny else 64
    ours = tessera(bench.options.program, "train", model="vil_tiny_patch16_224", batch=batch, device=bench.device, precision="bf16",
                   seconds=0)
    model = vil_peer.VisionLstm(vil_peer.WIDTHS["vil_tiny_patch16_224"]).to(bench.device)
    step = training_step(bench, model, [torch.randn(batch, 3, 224, 224, device=bench.device)], classifier_loss(bench, batch))
    for _ in range(3):  # the optimiser's moments exist from the second step on
        step()
    theirs = torch.cuda.max_memory_allocated() / 2**20 if bench.device == "cuda" else float("nan")
    own = ours.get("peak_gpu_mb", float("nan"))
    row("memory", "training step of vil_tiny_patch16_224", "tessera", f"{own:.0f} MB", "")
    row("memory", "training step of vil_tiny_patch16_224", "PyTorch", f"{theirs:.0f} MB", f"{own / theirs:.2f} of it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="", help="a regular expression of the cases' names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="per implementation and round")
    parser.add_argument("--modes", default="default,max-autotune", help="of torch.compile; max-autotune takes minutes a network")
    parser.add_argument("--tiny", action="store_true", help="one small pass of everything on a CPU")
    options = parser.parse_args()
    bench = Bench(options)
    print(f"{'CPU' if options.tiny else torch.cuda.get_device_name()}, bf16:\n")
    head("case", "measured", "way", "", "tessera is faster by")
    for case, (batch, pixels, network) in models(bench).items():
        if bench.wants(case):
            measure_model(bench, case, batch, pixels, network)
    parts = {"one image": measure_one_image, "DiT-XL/2": measure_dit, "attention": measure_attention, "cell": measure_cells,
             "memory": measure_memory}
    if importlib.util.find_spec("torchvision"):
        parts["Mask R-CNN"] = measure_mask_rcnn
    for name, part in parts.items():
        if bench.wants(name):
            part(bench)


if __name__ == "__main__":
    main()
