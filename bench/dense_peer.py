"""Dense prediction against its peers: whole models of transformers and torchvision, RoIAlign and NMS of torchvision, AP of
pycocotools. Prints rows of Markdown.

A model gets random weights from its peer, `tessera convert` reads them, and both process the same images. Times are CPU
times, which a busy machine disturbs less. Tessera's time per image is the difference between a run on several images
and one on a single image, divided by the additional images; it includes decoding and drawing. The fastest round counts.
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
CLASSES = 81  # including the background
LOWEST_SCORE = 0.001  # random weights give low scores; this finds at least as many objects as with trained
                      # weights


def processor_seconds(command):
    """Returns the CPU seconds of a program that runs to its end, and its output."""
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
    """Weights and images of one model in a separate folder."""

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
        """Returns seconds per image, and the program's output for all images."""
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
    model.save_pretrained(os.path.join(folder, "peer"))  # under the published names, which differ from the
                                                         # modules'
    state = load_file(os.path.join(folder, "peer", "model.safetensors"))
    state = {name: tensor for name, tensor in state.items() if "swin.layernorm" not in name}  # not used
    weights = place.convert(state, os.path.join(options.recipes, "upernet/swin_tiny.toml"), ["model.form=original"])
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


def mask_rcnn_step(options, folder):
    """A training step on two images; ours is the time of additional steps of a run."""
    import torchvision

    size, steps = 256, 4
    model = torchvision.models.detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=11, min_size=size, max_size=size).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = [torch.rand(3, size, size) for _ in range(2)]
    masks = torch.zeros(3, size, size, dtype=torch.uint8)
    boxes = torch.tensor([[20.0, 30, 120, 140], [100, 50, 220, 200], [60, 150, 140, 240]])
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist()):
        mask[top:bottom, left:right] = 1
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 4, 9]), "masks": masks} for _ in images]

    def step():
        optimiser.zero_grad()
        sum(model(images, targets).values()).backward()
        optimiser.step()

    theirs = fastest(step, options.rounds)
    times = {1: [], 1 + steps: []}
    for number in range(options.rounds):
        for count in times:
            out = os.path.join(folder, f"run-{number}-{count}")
            seconds, _ = processor_seconds(
                [options.program, "train", os.path.join(options.recipes, "mask_rcnn/resnet50_torchvision.toml"),
                 "--output", out, "--threads", "1", "--set", f"preprocess.size={size}", f"task.shortest=[{size}]",
                 f"task.longest={size}", "train.freeze=[]", "train.precision=fp32", "optimiser.lr=1e-4",
                 f"data.path=shapes:task=detect,train={2 * count},val=2,size={size}", "train.batch_size=2",
                 f"train.steps={count}", "train.eval_every=0"])
            times[count].append(seconds)
    ours = (min(times[1 + steps]) - min(times[1])) / steps
    compare_seconds("a training step of Mask R-CNN R50-FPN, 2 images of 256 x 256", "fp32", ours, theirs, "")


def detr(options, folder):
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    model = DetrForObjectDetection(DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, num_labels=91,
        backbone_config=ResNetConfig(out_features=["stage4"]))).eval()
    place = Workplace(options, folder, 512)
    model.save_pretrained(os.path.join(folder, "peer"))
    weights = place.convert(load_file(os.path.join(folder, "peer", "model.safetensors")),
                            os.path.join(options.recipes, "detr/resnet50.toml"),
                            ["task.shortest=[512]", "task.longest=512", "preprocess.size=512"])
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        ours, printed = place.own_seconds(
            ["detect", "--weights", weights, "--threshold", str(LOWEST_SCORE), "--json"], precision)
        images = place.tensor(0)
        with torch.inference_mode():
            peer = model.to(dtype)
            theirs = fastest(lambda: peer(images.to(dtype)), options.rounds)
            model.float()
            wanted = model(images).logits.softmax(2)[0, :, :-1].max(1).values
        best = json.loads(printed.splitlines()[0])["objects"][0]["score"]
        compare_seconds("DETR-R50, 512 x 512 (transformers)", precision, ours, theirs,
                        f"best score {best:.4f} beside {wanted.max().item():.4f}")


def average_precision(options, folder):
    """COCO's AP of boxes: 500 images of 80 classes with 50,000 detections."""
    import contextlib
    import io

    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    random = numpy.random.default_rng(0)
    truths, found = [], []
    for image in range(1, 501):
        for _ in range(8):
            width, height = random.uniform(10, 200, 2)
            box = [*random.uniform(0, 300, 2).tolist(), width, height]
            truths.append({"id": len(truths) + 1, "image_id": image, "category_id": int(random.integers(1, 81)),
                           "bbox": box, "area": width * height, "iscrowd": 0})
        for number in range(100):
            near = truths[-1 - number % 8]
            moved = (numpy.array(near["bbox"]) + random.normal(0, 15, 4)).clip(1).tolist()
            wrong = number % 3 == 0
            found.append({"image_id": image, "bbox": moved, "score": float(random.uniform()),
                          "category_id": int(random.integers(1, 81)) if wrong else near["category_id"]})
    paths = [os.path.join(folder, name) for name in ("truths.json", "found.json")]
    sets = {"images": [{"id": i, "width": 640, "height": 640, "file_name": f"{i}.jpg"} for i in range(1, 501)],
            "categories": [{"id": i, "name": str(i)} for i in range(1, 81)], "annotations": truths}
    for path, content in zip(paths, (sets, found)):
        with open(path, "w") as file:
            json.dump(content, file)
    done = subprocess.run([os.path.join(options.build, "bench", "coco_bench"), *paths, str(options.rounds)],
                          check=True, capture_output=True, text=True)
    ours, *own = map(float, done.stdout.split())
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(paths[0])
        results = coco.loadRes(paths[1])
        times = []
        for _ in range(options.rounds):
            evaluation = COCOeval(coco, results, "bbox")
            start = time.process_time()
            evaluation.evaluate()
            evaluation.accumulate()
            times.append(time.process_time() - start)
        evaluation.summarize()
    apart = max(abs(a - b) for a, b in zip(own, evaluation.stats))
    compare_seconds("COCO AP, 50,000 boxes (pycocotools)", "fp64", ours, min(times),
                    f"AP {own[0]:.6f}, {apart:.1e} apart at most")


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


PARTS = {"regions": regions, "suppression": suppression, "upernet": upernet, "mask_rcnn": mask_rcnn,
         "mask_rcnn_step": mask_rcnn_step, "detr": detr, "average_precision": average_precision}


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
