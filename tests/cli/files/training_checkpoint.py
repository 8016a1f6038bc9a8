"""What DiT's training program keeps, {model, ema, opt, args}, of a safetensors file: the average has its tensors, the model
the same ones times two. `training_checkpoint.py WEIGHTS OUT.pt [model]`; with `model` the average is left out."""
import array
import io
import json
import pickle
import sys
import zipfile
from collections import OrderedDict

with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = file.read()
header.pop("__metadata__", None)


class Named:
    """Is pickled as a name of PyTorch's, which need not be installed."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Storage:
    def __init__(self, content):
        self.content = content


class Tensor:
    def __init__(self, content, shape):
        self.storage, self.shape = Storage(content), tuple(shape)


class Writer(pickle._Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Named):
            self.write(b"c" + value.module.encode() + b"\n" + value.name.encode() + b"\n")
        elif isinstance(value, Tensor):
            steps, step = [], 1
            for side in reversed(value.shape):
                steps.insert(0, step)
                step *= side
            self.save(Named("torch._utils", "_rebuild_tensor_v2"))
            self.save((value.storage, 0, value.shape, tuple(steps), False, OrderedDict()))
            self.write(b"R")
        else:
            super().save(value, save_persistent_id)

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        self.storages.append(value.content)
        return ("storage", Named("torch", "FloatStorage"), str(len(self.storages) - 1), "cpu", len(value.content) // 4)


def tensors(factor):
    out = {}
    for name, one in header.items():
        numbers = array.array("f", data[slice(*one["data_offsets"])])
        out[name] = Tensor(array.array("f", (factor * number for number in numbers)).tobytes(), one["shape"])
    return out


tree = {"model": tensors(2), "ema": tensors(1), "opt": {"state": {}}, "args": {"model": "DiT-S/8"}}
if sys.argv[3:] == ["model"]:
    tree = {"model": tensors(1)}
pickled = io.BytesIO()
writer = Writer(pickled)
writer.dump(tree)
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_STORED) as archive:
    archive.writestr("archive/data.pkl", pickled.getvalue())
    for number, content in enumerate(writer.storages):
        archive.writestr(f"archive/data/{number}", content)
    archive.writestr("archive/version", "3\n")
