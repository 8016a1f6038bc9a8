# Writes a set of Pascal VOC's layout and the same of YOLO's, 6 images each: labels.py VOC YOLO IMAGE
import os
import shutil
import sys

voc, yolo, image = sys.argv[1:]
side = 64
for folder in (f"{voc}/Annotations", f"{voc}/JPEGImages", f"{voc}/ImageSets/Main"):
    os.makedirs(folder)
for split, count in ("train", 4), ("val", 2):
    os.makedirs(f"{yolo}/{split}/images")
    os.makedirs(f"{yolo}/{split}/labels")
    names = [f"{split}{i}" for i in range(count)]
    with open(f"{voc}/ImageSets/Main/{split}.txt", "w") as file:
        file.write("".join(name + "\n" for name in names))
    for i, name in enumerate(names):
        shutil.copy(image, f"{voc}/JPEGImages/{name}.png")
        shutil.copy(image, f"{yolo}/{split}/images/{name}.png")
        label = ["moon", "star"][i % 2]
        left, top, right, bottom = 5 + i, 6, 37, 31
        with open(f"{voc}/Annotations/{name}.xml", "w") as file:
            file.write(f"""<annotation>
  <filename>{name}.png</filename>
  <size><width>{side}</width><height>{side}</height><depth>3</depth></size>
  <object>
    <name>{label}</name>
    <difficult>0</difficult>
    <bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox>
  </object>
</annotation>
""")
        with open(f"{yolo}/{split}/labels/{name}.txt", "w") as file:
            box = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
            file.write(f"{i % 2} " + " ".join(str(value / side) for value in box) + "\n")
with open(f"{yolo}/data.yaml", "w") as file:
    file.write("train: ../train/images\nval: ../val/images\n\nnc: 2\nnames: ['moon', 'star']\n")
