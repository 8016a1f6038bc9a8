#!/usr/bin/env python3
"""Compares the reader of COCO's annotations with pycocotools and detectron2, as a table for docs/data.md:

    bench/tables annotations docs/data.md PYTHON bench/annotations.py build/tessera

PYTHON has pycocotools, numpy and Pillow. Each row is one way of writing the second of two objects. `tessera data pack` writes the
object as it was read; pycocotools counts the pixels of its mask. detectron2's rules are those of load_coco_json (v0.6), which reads
the file by pycocotools and filters polygons itself.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
from PIL import Image
from pycocotools import mask as masks
from pycocotools.coco import COCO

WIDTH, HEIGHT, BOX = 64, 48, [10, 8, 20, 16]
GOOD = [10, 8, 30, 8, 30, 24, 10, 24]
TRIANGLE = [12, 30, 28, 30, 20, 44]
BITS = numpy.zeros((HEIGHT, WIDTH), order="F", dtype=numpy.uint8)
BITS[8:24, 10:30] = 1


def plain_runs():
    flat = BITS.flatten(order="F")
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate(([0], flat, [1 - flat[-1]]))))
    return {"size": [HEIGHT, WIDTH], "counts": [int(n) for n in numpy.diff(numpy.concatenate(([0], edges)))]}


def compressed_runs():
    runs = masks.encode(BITS)
    return {"size": [HEIGHT, WIDTH], "counts": runs["counts"].decode()}


def rows():
    yield "one polygon", {"segmentation": [GOOD]}
    yield "two polygons", {"segmentation": [GOOD, TRIANGLE]}
    yield "a polygon of two points among others", {"segmentation": [GOOD, [12, 30, 28, 30]]}
    yield "a polygon of two points alone", {"segmentation": [[12, 30, 28, 30]]}
    yield "an odd number of coordinates", {"segmentation": [GOOD, TRIANGLE + [5]]}
    yield "a polygon without its inner list", {"segmentation": GOOD}
    yield "run lengths", {"segmentation": plain_runs()}
    yield "compressed run lengths", {"segmentation": compressed_runs()}
    yield "run lengths that do not fill the image", {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [5, 9]}}
    yield "`[]`", {"segmentation": []}
    yield "`null`", {"segmentation": None}
    yield "no `segmentation`", {}
    yield "`iscrowd: 1`", {"segmentation": plain_runs(), "iscrowd": 1}
    yield '`iscrowd: "1"`', {"segmentation": [GOOD], "iscrowd": "1"}
    yield '`iscrowd: "0"`', {"segmentation": [GOOD], "iscrowd": "0"}
    yield "`id`, `image_id`, `category_id` as `2.0`", {"segmentation": [GOOD], "id": 2.0, "image_id": 1.0, "category_id": 1.0}
    yield "a box without area", {"segmentation": [GOOD], "bbox": [10, 8, 0, 16]}


def annotation_file(change):
    first = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [40, 20, 10, 10], "area": 100, "iscrowd": 0,
             "segmentation": [[40, 20, 50, 20, 50, 30, 40, 30]]}
    second = {"id": 2, "image_id": 1, "category_id": 1, "bbox": BOX, "area": 320, "iscrowd": 0} | change
    return {"images": [{"id": 1, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}],
            "categories": [{"id": 1, "name": "thing"}], "annotations": [first, second]}


def mask_of(coco, annotation):
    try:
        pixels = int(coco.annToMask(annotation).sum())
        return f"{pixels} pixels" if pixels <= WIDTH * HEIGHT else "no mask"
    except Exception as error:
        return type(error).__name__


def by_pycocotools(path):
    coco = COCO(path)
    annotation = next(one for one in coco.loadAnns(coco.getAnnIds(imgIds=[1])) if one["id"] == 2)
    return f"{'crowd' if annotation['iscrowd'] else 'box'}, {mask_of(coco, annotation)}"


def by_detectron2(annotation):
    crowd, segmentation = annotation.get("iscrowd", 0), annotation.get("segmentation")
    if isinstance(segmentation, list) and segmentation:
        try:
            segmentation = [one for one in segmentation if len(one) % 2 == 0 and len(one) >= 6]
        except TypeError as error:
            return type(error).__name__
        if not segmentation:
            return "left out"
    if crowd != 0:
        return "crowd"
    if annotation["bbox"][2] <= 0 or annotation["bbox"][3] <= 0:
        return "left out"
    if not segmentation:
        return "box"
    try:
        if isinstance(segmentation, list):
            runs = masks.merge(masks.frPyObjects(segmentation, HEIGHT, WIDTH))
        elif isinstance(segmentation["counts"], list):
            runs = masks.frPyObjects(segmentation, HEIGHT, WIDTH)
        else:
            runs = segmentation
        pixels = int(masks.decode(runs).sum())
        return f"box, {pixels} pixels" if pixels <= WIDTH * HEIGHT else "box, no mask"
    except Exception as error:
        return type(error).__name__


def by_tessera(tessera, folder):
    packed = folder / "packed"
    run = subprocess.run([tessera, "data", "pack", folder / "set", "--val-share", "0", "-o", packed], capture_output=True,
                         text=True, check=False)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    path = packed / "annotations" / "instances_train.json"
    coco = COCO(path)
    found = [one for one in coco.loadAnns(coco.getAnnIds()) if one["bbox"][0] != 40]
    if not found:
        return "left out"
    kind = "crowd" if found[0]["iscrowd"] else "box"
    return f"{kind}, {mask_of(coco, found[0])}" if found[0]["segmentation"] else kind


def main():
    tessera = pathlib.Path(sys.argv[1]).resolve()
    print("| the object's annotation | pycocotools | detectron2, training | tessera |\n|---|---|---|---|")
    stdout = sys.stdout
    for name, change in rows():
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            (folder / "set" / "annotations").mkdir(parents=True)
            (folder / "set" / "images").mkdir()
            Image.fromarray(BITS * 200).convert("RGB").save(folder / "set" / "images" / "a.png")
            path = folder / "set" / "annotations" / "instances_train.json"
            content = annotation_file(change)
            path.write_text(json.dumps(content), encoding="utf-8")
            sys.stdout = sys.stderr  # COCO prints
            cells = [by_pycocotools(path), by_detectron2(content["annotations"][1]), by_tessera(tessera, folder)]
            sys.stdout = stdout
        print("| " + " | ".join([name, *cells]) + " |")


if __name__ == "__main__":
    main()
