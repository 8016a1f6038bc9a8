"""compare.py PROGRAM: serves the runs of this folder; clients of other programs get the answers of the commands."""
import functools
import io
import json
import os
import re
import subprocess
import sys
import urllib.request

import numpy
import tritonclient.http as triton
from openapi_spec_validator import validate
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

PROGRAM, IMAGES = sys.argv[1], 100


def write_images():
    random = numpy.random.default_rng(0)
    os.makedirs("images", exist_ok=True)
    for i in range(IMAGES):
        side = (64, 48)[i % 2]
        Image.fromarray(random.integers(0, 256, (side, 64, 3), dtype=numpy.uint8)).save(f"images/{i:03}.png")


def command(*words):
    done = subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def encoded(i):
    with open(f"images/{i:03}.png", "rb") as file:
        return file.read()


@functools.cache
def metadata(client, model):
    return client.get_model_metadata(model)


def ask(client, model, name, datatype, values, binary, **options):
    tensor = triton.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values, binary_data=binary)
    outputs = [triton.InferRequestedOutput(one["name"], binary_data=binary)
               for one in metadata(client, model)["outputs"]]
    return client.async_infer(model, [tensor], outputs=outputs, parameters=options or None)


def as_bytes(i):
    return numpy.array([encoded(i)], dtype=numpy.object_)


def pixels(i):
    return numpy.asarray(Image.open(io.BytesIO(encoded(i))).convert("RGB"))[None]


def forms(client, model, i, **options):
    """One image as encoded bytes in binary, as pixels in binary, and as pixels in JSON."""
    yield ask(client, model, "image", "BYTES", as_bytes(i), True, **options)
    yield ask(client, model, "pixels", "UINT8", pixels(i), True, **options)
    yield ask(client, model, "pixels", "UINT8", pixels(i), False, **options)


def many(client, model, compare, **options):
    """Compares all images, with up to 24 requests on the way, so that batches differ. Returns the largest error."""
    errors = []
    for first in range(0, IMAGES, 8):
        sent = [(i, request) for i in range(first, min(first + 8, IMAGES)) for request in forms(client, model, i, **options)]
        errors += [compare(i, request.get_result()) for i, request in sent]
    return max(errors)


def classes(client):
    wanted = command("predict", "images", "--weights", "classify", "--json", "--top", "10")

    def error(i, got):
        rows = sorted(zip(got.as_numpy("index")[0], got.as_numpy("probability")[0]))
        lines = sorted((p["index"], p["probability"]) for p in wanted[i]["predictions"])
        assert [index for index, _ in rows] == [index for index, _ in lines]
        return max(abs(a - b) for (_, a), (_, b) in zip(rows, lines))
    return many(client, "classify", error, top=10)


def masks(client):
    command("segment", "images", "--weights", "segment", "-o", "masks", "--json")
    wanted = [numpy.asarray(Image.open(f"masks/{i:03}.png")) for i in range(IMAGES)]
    return many(client, "segment", lambda i, got: float((got.as_numpy("mask")[0] != wanted[i]).mean()))


def objects(client):
    wanted = command("detect", "images", "--weights", "detr", "--json", "--threshold", "0")

    def error(i, got):
        boxes = numpy.array([o["box"] for o in wanted[i]["objects"]])
        scores = numpy.array([o["score"] for o in wanted[i]["objects"]])
        return max(abs(got.as_numpy("box") - boxes).max() / 64, abs(got.as_numpy("score") - scores).max())
    return many(client, "detr", error, threshold=0.0)


def names(client):
    wanted = command("zeroshot", "images", "--weights", "clip", "--json", "--class", "star", "--class", "disc")

    def error(i, got):
        rows = dict(zip((name if isinstance(name, str) else name.decode() for name in got.as_numpy("class")[0]), got.as_numpy("share")[0]))
        return max(abs(rows[p["class"]] - p["share"]) for p in wanted[i]["predictions"])
    return many(client, "clip", error, **{"class": "star\ndisc"})


def drawings(client):
    options = {"count": IMAGES // 2, "steps": 5, "sampler": "ddim", "cfg": 1.5}
    command("generate", "--weights", "diffuse", "-o", "drawn.npz", "-n", str(options["count"]), "--steps", "5",
            "--sampler", "ddim", "--json")
    drawn = numpy.load("drawn.npz")
    got = client.infer("diffuse", [], parameters=options).as_numpy("images")
    return float(abs(got.astype(int) - drawn[drawn.files[0]].astype(int)).max()) / 255


def read(address, path):
    with urllib.request.urlopen(address + path) as reply:
        return reply.read().decode()


def main():
    write_images()
    server = subprocess.Popen([PROGRAM, "serve", "classify", "segment", "detr", "clip", "diffuse", "--port", "0"],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://\S+", server.stdout.readline()).group()
        client = triton.InferenceServerClient(address.removeprefix("http://"), concurrency=24)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("classify")
        failed = False
        for name, compare in (("classes", classes), ("masks", masks), ("objects", objects), ("names", names),
                              ("drawings", drawings)):
            error = compare(client)
            failed |= error > 1e-6
            print(f"{name:10} largest error {error:.2g}{'  TOO LARGE' if error > 1e-6 else ''}")
        families = list(text_string_to_metric_families(read(address, "/metrics")))
        batches = [sample for family in families for sample in family.samples if sample.name == "tessera_batch_images_sum"]
        validate(json.loads(read(address, "/openapi.json")))
        print(f"metrics    {len(families)} families, {int(sum(sample.value for sample in batches))} images in batches")
        print("openapi    valid")
        sys.exit(1 if failed else 0)
    finally:
        server.terminate()
        server.wait(60)


main()
