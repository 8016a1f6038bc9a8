"""Compares exported files with the published code of models: published.py PROGRAM [NAME…]

timm, OpenCLIP and Vision-LSTM's own code build their models, with random weights that let no part vanish, and save them in the form
in which their weights are published. The program opens and exports them. onnxruntime's logits are compared with the published
code's. Exits with 1 if one is further away than 1e-4. VISION_LSTM names a copy of NX-AI/vision-lstm, if GitHub cannot be reached.
"""
import os
import pathlib
import sys

import numpy
import onnx
import onnxruntime
import open_clip
import timm
import torch

import check
from check import checked, tessera

MOST, IMAGES = 1e-4, 5


def randomised(model):
    """Draws matrices by their inputs, and moves vectors, so that gates, layer scale and biases have an effect."""
    torch.manual_seed(7)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.05 if parameter.shape[0] == 1 else parameter[0].numel() ** -0.5)
            elif parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def outputs(path, values):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: values.numpy()})[0]


def row(name, code, found, wanted):
    difference = float(numpy.abs(found - wanted).max())
    good = difference <= MOST and numpy.isfinite(found).all() and wanted.std(0).min() > 1e-2
    print(f"| {name} | {code} | {numpy.abs(wanted).max():.2f} | {difference:.1e} |" + ("" if good else " FAILS"), flush=True)
    return good


def classifier(name, code, model, weights, *options):
    tessera("export", weights, "-o", f"{name}.onnx", *options)
    checked(f"{name}.onnx")
    images = torch.randn(IMAGES, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return row(name, code, outputs(f"{name}.onnx", images), model(images).numpy())


def deit3(name):
    model = randomised(timm.create_model("deit3_small_patch16_224"))
    timm.models.save_for_hf(model, name, safe_serialization=True)
    return classifier(name, f"timm {timm.__version__}, model.safetensors", model, name)


def vision_lstm(name):
    copy = os.environ.get("VISION_LSTM")
    model = randomised(torch.hub.load(copy or "NX-AI/vision-lstm", name, source="local" if copy else "github", pretrained=False,
                                      **({} if copy else {"trust_repo": True})))
    torch.save({"state_dict": model.state_dict()}, f"{name}.th")
    return classifier(name, f"NX-AI/vision-lstm, {name}.th", model, f"{name}.th")


def clip(name):
    model = randomised(open_clip.create_model("ViT-B-32"))
    with torch.no_grad():
        model.logit_scale.fill_(4.6052)  # 100, as trained models have
    torch.save(model.state_dict(), f"{name}.bin")
    tessera("export", f"{name}.bin", "-o", name)
    image, text = (checked(f"{name}/{part}.onnx") for part in ("image", "text"))
    images = torch.randn(IMAGES, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    ids = torch.zeros(IMAGES, 77, dtype=torch.int64)
    for i, line in enumerate(ids):
        length = 4 + 15 * i
        line[:length] = torch.randint(1, 49406, (length,), generator=torch.Generator().manual_seed(i))
        line[0], line[length] = 49406, 49407
    scale = next(float(entry.value) for entry in image.metadata_props if entry.key == "tessera.logit_scale")
    with torch.no_grad():
        wanted = (model.logit_scale.exp() * model.encode_image(images, normalize=True) @ model.encode_text(ids, normalize=True).T)
    found = numpy.exp(scale) * outputs(f"{name}/image.onnx", images) @ outputs(f"{name}/text.onnx", ids).T
    return row(name, f"OpenCLIP {open_clip.__version__}, {name}.bin", found, wanted.numpy())


CASES = {"deit3_small_patch16_224": deit3, "vil-tiny": vision_lstm, "vil2-tiny": vision_lstm, "clip_vit_b32": clip}


def main():
    check.PROGRAM, chosen = sys.argv[1], sys.argv[2:]
    torch.manual_seed(7)
    print(f"torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}\n")
    print("| model | published code, form of its weights | largest logit | largest difference |\n|---|---|---|---|")
    good = [compare(name) for name, compare in CASES.items() if not chosen or name in chosen]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
