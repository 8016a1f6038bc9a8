"""Dense prediction beside its peers: whole models of transformers and torchvision, RoIAlign and NMS of torchvision, AP of
pycocotools. Prints rows of Markdown.

A model gets random weights from its peer, `tessera convert` reads them, and both see the same images. Time is that of
the processor, so that a busy machine spoils less: for Tessera the difference between a run of the program on several
images and one on a single image, shared among the others; it holds decoding and drawing too. What counts is the
fastest of the rounds.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from PIL import Image
from rounds import head, row
from safetensors.torch import load_file, save_file

IMAGES = 4
CLASSES = 81  # and one of them is the background
LOWEST_SCORE = 0.001  # random weights are unsure; with it as many objects are found as with trained ones, or more


def processor_seconds(command):
    """Of a program that runs to its end, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/dense_peer.py: {' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def fastest(step, rounds):
    step()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return min(times)


class Workplace:
    """Weights and images of one model in a folder of their own."""

    def __init__(self, options, folder, side):
        self.options, self.folder = options, folder
        os.makedirs(os.path.join(folder, "one"))
        os.makedirs(os.path.join(folder, "all"))
        random = numpy.random.default_rng(0)
        self.pictures = []
        for number in range(IMAGES):
            small = Image.fromarray(random.integers(0, 256, (side // 16, side // 16, 3), dtype=numpy.uint8))
            picture = small.resize((side, side), Image.BICUBIC)
            self.pictures.append(picture)
            for name in ["all"] + ["one"] * (number == 0):
                picture.save(os.path.join(folder, name, f"{number}.png"))

    def convert(self, state, recipe, settings):
        source, target = os.path.join(self.folder, "peer.safetensors"), os.path.join(self.folder, "own.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, source)
        command = [self.options.program, "convert", source, target, "--recipe", recipe]
        subprocess.run(command + (["--set", *settings] if settings else []), check=True, capture_output=True)
        return target

    def own_seconds(self, command, precision):
        """Of an image, and what the program printed of all."""
        times, printed = {"one": [], "all": []}, ""
        for _ in range(self.options.rounds):
            for name in times:
                seconds, printed = processor_seconds(
                    [self.options.program, *command, "--threads", "1", "--precision", precision,
                     os.path.join(self.folder, name)])
                times[name].append(seconds)
        return (min(times["all"]) - min(times["one"])) / (IMAGES - 1), printed

    def tensor(self, number, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)):
        pixels = torch.from_numpy(numpy.array(self.pictures[number])).permute(2, 0, 1)[None] / 255
        return (pixels - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(deviation).view(1, 3, 1, 1)


def compare_seconds(name, precision, ours, theirs, same):
    row(name, precision, f"{ours * 1e3:.4g}", f"{theirs * 1e3:.4g}", f"{theirs / ours:.2f}", same)


def upernet(options, folder):
    from transformers import SwinConfig, UperNetConfig, UperNetForSemanticSegmentation

    backbone = SwinConfig(embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=7,
                          out_features=["stage1", "stage2", "stage3", "stage4"])
    model = UperNetForSemanticSegmentation(
        UperNetConfig(backbone_config=backbone, auxiliary_in_channels=384, num_labels=150)).eval()
    place = Workplace(options, folder, 512)
    model.save_pretrained(os.path.join(folder, "peer"))  # under the published names, which differ from the modules'
    state = load_file(os.path.join(folder, "peer", "model.safetensors"))
    state = {name: tensor for name, tensor in state.items() if "swin.layernorm" not in name}  # not used
    weights = place.convert(state, os.path.join(options.recipes, "upernet/swin_tiny.toml"), ["model.form=transformers"])
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        masks = os.path.join(folder, "masks-" + precision)
        ours, _ = place.own_seconds(["segment", "--weights", weights, "--whole", "--output", masks], precision)
        images = place.tensor(0)
        with torch.inference_mode():
            wanted = model(images).logits.argmax(1)[0].numpy()
            peer = model.to(dtype)
            theirs = fastest(lambda: peer(images.to(dtype)), options.rounds)
            model.float()
        got = numpy.array(Image.open(os.path.join(masks, "0.png")))
        compare_seconds("UperNet-Swin-T, 512 x 512 (transformers)", precision, ours, theirs,
                        f"{100 * (got == wanted).mean():.2f} % of pixels as in fp32")


def mask_rcnn(options, folder):
    import torchvision

    model = torchvision.models.detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=CLASSES, min_size=256, max_size=256,
        box_score_thresh=LOWEST_SCORE).eval()
    place = Workplace(options, folder, 256)
    recipe = os.path.join(folder, "recipe.toml")
    with open(recipe, "w") as file:
        file.write(
            f'[task]\nname = "detect"\ncode = "torchvision"\nscore = {LOWEST_SCORE}\n[model]\nname = "resnet50"\n'
            '[preprocess]\nsize = 256\n[train]\nepochs = 1\n')
    weights = place.convert(model.state_dict(), recipe, [])
    ours, printed = place.own_seconds(
        ["detect", "--weights", weights, "--threshold", str(LOWEST_SCORE), "--json"], "fp32")
    found = [json.loads(line) for line in printed.splitlines()]
    image = torch.from_numpy(numpy.array(place.pictures[0])).permute(2, 0, 1) / 255
    with torch.inference_mode():
        wanted = model([image])[0]
        theirs = fastest(lambda: model([image]), options.rounds)
    compare_seconds("Mask R-CNN R50-FPN, 256 x 256 (torchvision)", "fp32", ours, theirs,
                    f"{len(found[0]['objects'])} objects beside {len(wanted['boxes'])}")


def regions(options, _):
    import torchvision

    printed = subprocess.run([os.path.join(options.build, "src/kernels/roi_align_bench")], check=True,
                             capture_output=True, text=True).stdout
    own = {int(bins): (float(forward), float(backward)) for bins, forward, backward in
           re.findall(r"(\d+) x \d+ bins: forward ([\d.]+) ms, backward ([\d.]+) ms", printed)}
    corner, size = torch.rand(512, 2) * 200, torch.rand(512, 2) * 142 + 8
    boxes = torch.cat([torch.zeros(512, 1), corner, corner + size], 1)
    for bins, (forward, backward) in own.items():
        x = torch.randn(1, 256, 64, 64, requires_grad=True)

        def pool():
            return torchvision.ops.roi_align(x, boxes, bins, 0.25, 0, True)

        y = pool()
        gradient = torch.ones_like(y)
        theirs = fastest(lambda: pool().detach(), options.rounds)
        theirs_back = fastest(lambda: torch.autograd.grad(y, x, gradient, retain_graph=True), options.rounds)
        compare_seconds(f"RoIAlign of 512 boxes, {bins} x {bins}", "fp32", forward / 1e3, theirs, "")
        compare_seconds(f"its gradient, {bins} x {bins}", "fp32", backward / 1e3, theirs_back, "")


def suppression(options, _):
    import torchvision

    printed = subprocess.run([os.path.join(options.build, "src/kernels/nms_bench")], check=True, capture_output=True,
                             text=True).stdout
    own = [float(number) for number in re.findall(r"([\d.]+) ms", printed)]
    corner, size = torch.rand(5000, 2) * 800, torch.rand(5000, 2) * 196 + 4
    boxes, scores, classes = torch.cat([corner, corner + size], 1), torch.rand(5000), torch.randint(80, (5000,))
    ops = torchvision.ops
    for name, ours, step in (("at 0.7", own[0], lambda: ops.nms(boxes, scores, 0.7)),
                             ("at 0.5", own[1], lambda: ops.nms(boxes, scores, 0.5)),
                             ("80 classes, at 0.5", own[2], lambda: ops.batched_nms(boxes, scores, classes, 0.5))):
        compare_seconds("NMS of 5,000 boxes, " + name, "fp32", ours / 1e3, fastest(step, options.rounds), "")


PARTS = {"regions": regions, "suppression": suppression, "upernet": upernet, "mask_rcnn": mask_rcnn}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--recipes", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    options = parser.parse_args()
    options.program = os.path.join(options.build, "tessera")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    head("what", "precision", "tessera, ms", "peer, ms", "tessera is faster by", "results")
    for part in options.parts:
        print(part, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](options, folder)


if __name__ == "__main__":
    main()
