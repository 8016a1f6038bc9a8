# Writes a set of COCO's layout: one object in a training image, none in validation. coco.py FOLDER IMAGE
import json
import os
import shutil
import sys

folder, image = sys.argv[1:]
os.makedirs(f"{folder}/annotations")
for split, names, objects in ("train", ["a.png", "b.png"], 1), ("val", ["c.png"], 0):
    os.makedirs(f"{folder}/{split}")
    for name in names:
        shutil.copy(image, f"{folder}/{split}/{name}")
    images = [{"id": i + 1, "file_name": name, "width": 64, "height": 64} for i, name in enumerate(names)]
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 30, 20], "area": 600, "iscrowd": 0,
                    "segmentation": [[5, 5, 35, 5, 35, 25, 5, 25]]}] * objects
    with open(f"{folder}/annotations/instances_{split}.json", "w") as file:
        json.dump({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "star"}]}, file)
