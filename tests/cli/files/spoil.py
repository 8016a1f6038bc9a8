"""Copies a weights file with a NaN in front of every tensor of 32-bit numbers, or with the names of a tensor and a row, of that row."""
import json
import math
import struct
import sys

data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
only, row = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 4 else (None, 0)
for name, tensor in json.loads(data[8:start]).items():
    if name != "__metadata__" and tensor["dtype"] == "F32" and only in (None, name):
        begin = start + tensor["data_offsets"][0] + 4 * row * math.prod(tensor["shape"][1:])
        data[begin:begin + 4] = struct.pack("<f", float("nan"))
open(sys.argv[2], "wb").write(data)
