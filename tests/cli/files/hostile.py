# Writes small files that claim or unpack to far more than they are. hostile.py FOLDER
import json
import os
import struct
import sys
import zlib

folder = sys.argv[1]
os.makedirs(f"{folder}/set/a")
SIDE, ROWS = 20000, 1000

# Strips of zeros, all at one place of the file.
strip = zlib.compress(bytes(SIDE * ROWS), 9)
count = SIDE // ROWS
tags = [(256, 4, 1, SIDE), (257, 4, 1, SIDE), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (273, 4, count, None),
        (277, 3, 1, 1), (278, 4, 1, ROWS), (279, 4, count, None)]
first = 8 + 2 + 12 * len(tags) + 4
places = {273: first, 279: first + 4 * count}
data = first + 8 * count
tiff = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags))
for tag, kind, number, value in tags:
    tiff += struct.pack("<HHII", tag, kind, number, places[tag] if value is None else value)
tiff += struct.pack("<I", 0) + struct.pack(f"<{count}I", *[data] * count)
tiff += struct.pack(f"<{count}I", *[len(strip)] * count) + strip

def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

packer = zlib.compressobj(9)
rows = b"".join(packer.compress(bytes(SIDE + 1)) for _ in range(SIDE)) + packer.flush()
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0))
png += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
for name, content in ("bomb.tif", tiff), ("bomb.png", png):
    for place in "", "set/a/":
        with open(f"{folder}/{place}{name}", "wb") as file:
            file.write(content)

# Weights that claim a terabyte.
header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
with open(f"{folder}/huge.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header)

# A tokeniser that makes ten billion characters of one.
replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
tokeniser = {"version": "1.0", "normalizer": {"type": "Sequence", "normalizers": [replace] * 10},
             "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
with open(f"{folder}/tokenizer.json", "w") as file:
    json.dump(tokeniser, file)
with open(f"{folder}/deep.json", "w") as file:
    file.write("[" * 2000000)
