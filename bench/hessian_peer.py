#!/usr/bin/env python3
"""The largest eigenvalue of the Hessian of a ViT of recipes/compare, by `tessera analyse landscape` and by Lanczos in PyTorch.

  bench/hessian_peer.py --program BUILD/tessera --run RUN --cifar10 DATA

RUN is a run of recipes/compare/vit.toml, DATA the shards of CIFAR-10. The peer is timm's ViT with the same weights, on
the same images, with SciPy's eigsh of products by double backpropagation, in float64. Prints rows of Markdown. Needs
torch, timm, SciPy, Pillow and safetensors.
"""

import argparse
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile

import numpy
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy.sparse.linalg import LinearOperator, eigsh
from torch.nn import functional

from rounds import head, row

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # recipes/compare/base.toml


def images_of(shards, count, folder):
    """Writes the first images of the test shard as PNGs by class; returns them as a batch with labels."""
    names = (pathlib.Path(shards) / "classes.txt").read_text().split()
    for name in names:  # all classes, so that their indices match the weights
        (folder / name).mkdir(parents=True)
    pixels, labels, waiting = [], [], {}
    with tarfile.open(pathlib.Path(shards) / "test-000.tar.gz") as shard:
        for member in shard:
            key, _, ending = member.name.rpartition(".")
            waiting.setdefault(key, {})[ending] = shard.extractfile(member).read()
            parts = waiting[key]
            picture = next((parts[kind] for kind in ("jpg", "png") if kind in parts), None)
            if picture is None or "cls" not in parts:
                continue
            image, label = Image.open(io.BytesIO(picture)).convert("RGB"), int(parts["cls"])
            image.save(folder / names[label] / f"{len(labels):05d}.png")
            pixels.append(numpy.asarray(image))
            labels.append(label)
            if len(labels) == count:
                break
    for empty in (path for path in folder.iterdir() if not any(path.iterdir())):
        raise SystemExit(f"bench/hessian_peer.py: no image of class {empty.name}: take more")
    batch = torch.tensor(numpy.stack(pixels)).permute(0, 3, 1, 2).double() / 255
    return (batch - torch.tensor(MEAN).double()[:, None, None]) / torch.tensor(STD).double()[:, None, None], \
        torch.tensor(labels)


def largest_by_lanczos(run, images, labels):
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=4, embed_dim=96, depth=4, num_heads=3, mlp_ratio=3.75, num_classes=10).double().eval()
    model.load_state_dict({name: value.double() for name, value in load_file(run / "model.safetensors").items()})
    for block in model.blocks:
        block.attn.fused_attn = False  # the fused one has no second derivative
    parameters = list(model.parameters())
    with torch.enable_grad():
        loss = functional.cross_entropy(model(images), labels)
        gradient = torch.cat([one.flatten() for one in torch.autograd.grad(loss, parameters, create_graph=True)])

    def times(vector):
        product = torch.autograd.grad(gradient, parameters, torch.tensor(vector).flatten(), retain_graph=True)
        return torch.cat([one.flatten() for one in product]).numpy()

    size = gradient.numel()
    return eigsh(LinearOperator((size, size), matvec=times, dtype=numpy.float64), k=1, which="LA",
                 return_eigenvectors=False, tol=1e-6)[0], loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--run", required=True, type=pathlib.Path)
    parser.add_argument("--cifar10", required=True)
    parser.add_argument("--images", type=int, default=128)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        images, labels = images_of(options.cifar10, options.images, folder)
        head("way", "largest eigenvalue", "beside Lanczos", "loss")
        wanted, loss = largest_by_lanczos(options.run, images, labels)
        row("PyTorch, float64, Lanczos", f"{wanted:.4f}", "", f"{loss:.6f}")
        for precision in ("fp64", "fp32"):
            said = json.loads(subprocess.run(
                [options.program, "analyse", "landscape", "--weights", options.run, "--data", folder, "--split", "all",
                 "--images", str(options.images), "--points", "2", "--hessian", "300", "--precision", precision, "--json"],
                check=True, capture_output=True, text=True).stdout)
            found = said["hessian"]["largest"]
            row(f"tessera, {precision}, power iteration", f"{found:.4f}", f"{100 * (found / wanted - 1):+.2f} %",
                f"{said['loss']:.6f}" if "loss" in said else "")


if __name__ == "__main__":
    main()
