"""Made the files of this folder, with PyTorch 2.15 and safetensors: python make.py (in this folder)."""
import argparse
import collections

import numpy as np
import torch
from safetensors.torch import save_file

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 5))
optimiser = torch.optim.AdamW(model.parameters())
sum(p.sum() for p in model.parameters()).backward()
optimiser.step()
model.zero_grad()
weights = model.state_dict()
torch.save(weights, "plain.pth")
torch.save(weights, "old_form.pth", _use_new_zipfile_serialization=False)
torch.save(model, "whole_model.pth")
torch.jit.script(model[2]).save("script.pt")
save_file({k: v.contiguous() for k, v in weights.items()}, "plain.safetensors")

# A training script's checkpoint, with what such scripts keep beside the weights.
checkpoint = {
    "epoch": 3, "arch": "small", "state_dict": collections.OrderedDict(("module." + k, v) for k, v in weights.items()),
    "state_dict_ema": {k: v.double() for k, v in weights.items()}, "optimizer": optimiser.state_dict(),
    "args": argparse.Namespace(lr=0.1, name="a", betas=(0.9, 0.99), none=None, flag=True),
    "metric": np.float64(71.25), "best": np.float32(3.5), "count": np.int64(5), "dtype": torch.float32,
    "size": torch.Size([1, 2]), "device": torch.device("cpu"), "counter": collections.Counter("aab"), "set": {1, 2},
    "big": 2**70, "negative": -5, "scheduler": torch.optim.lr_scheduler.MultiStepLR(optimiser, [3, 4]).state_dict()}
torch.save(checkpoint, "checkpoint.pth")

# Every type, and every way to look at a storage.
base = torch.arange(24.0).reshape(4, 6)
tagged = torch.nn.Parameter(torch.ones(2))
tagged.tag = "x"
views = {
    "transposed": base.t(), "rows": base[1:3], "column": base[:, 2], "steps": base[::2, ::3],
    "expanded": torch.arange(3.0).expand(4, 3), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
    "permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), "one_long": base[:, :1],
    "parameter": torch.nn.Parameter(torch.ones(2)), "tagged": tagged, "buffer": torch.nn.Buffer(torch.ones(3)),
    "f64": torch.ones(2, dtype=torch.float64), "f16": torch.ones(2).half(), "bf16": torch.ones(2).bfloat16(),
    "i64": torch.arange(3), "i32": torch.arange(3, dtype=torch.int32), "i16": torch.arange(3, dtype=torch.int16),
    "i8": torch.arange(-1, 2, dtype=torch.int8), "u8": torch.arange(253, 256, dtype=torch.uint8),
    "bool": torch.tensor([True, False]), "same": base, "same_again": base}
torch.save({"model": views}, "views.pth")
torch.save({"model": views}, "views_protocol4.pth", pickle_protocol=4)
save_file({k: v.detach().clone().contiguous() for k, v in views.items()}, "views.safetensors")
torch.save({"a": torch.ones(2, dtype=torch.complex64)}, "complex.pth")
torch.save({"a": torch.ones(3, 4).to_sparse()}, "sparse.pth")

# A timm ViT as a training script keeps it: tests/cli fine-tunes it. The numbers are small on purpose.
import argparse  # noqa: E402

import timm  # noqa: E402

torch.manual_seed(1)
vit = timm.models.vision_transformer.VisionTransformer(
    img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=7)
half = {name: value.half() for name, value in vit.state_dict().items()}
torch.save({"model": half, "epoch": 3, "args": argparse.Namespace(lr=1e-3)}, "vit.pth")

# Arrays as detectron2's model zoo keeps them.
import pickle  # noqa: E402

plain = np.random.default_rng(1).standard_normal((2, 3)).astype("f4")
arrays = {
    "plain": plain, "turned": np.asfortranarray(plain), "half": plain.astype("f2"), "wide": plain.astype("f8"),
    "count": np.array(7), "none": np.zeros((0, 3), "f4"), "bytes": np.arange(5, dtype="u1")}
zoo = {"model": arrays, "__author__": "Detectron2 Model Zoo", "matching_heuristics": True, "iteration": np.float64(3)}
for protocol in (3, 4):
    with open(f"arrays_protocol{protocol}.pkl", "wb") as file:
        pickle.dump(zoo, file, protocol=protocol)
save_file({name: torch.tensor(array) for name, array in arrays.items()}, "arrays.safetensors")
