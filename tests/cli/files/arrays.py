"""What is in a .npy or .npz file, read as the formats say: type, shape, and whether rows are NaN or all equal.

--other FILE writes weights of a model that is none of the program's instead.
"""
import ast
import json
import struct
import sys
import zipfile


def describe(name, data):
    assert data[:8] == b"\x93NUMPY\x01\x00", "no .npy of version 1.0"
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    body, shape = data[10 + length:], header["shape"]
    words = [name, header["descr"], str(shape)]
    if header["descr"] == "<f4" and len(shape) == 2:
        values = struct.unpack(f"<{shape[0] * shape[1]}f", body)
        rows = [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
        words += [f"NaN in row {i}" for i, row in enumerate(rows) if any(x != x for x in row)]
        words += ["equal rows"] if len(set(rows)) == 1 else []
    print(*words)


if sys.argv[1] == "--other":
    shapes = {"mel.filters": [64, 3, 7, 7], "token.table": [10, 64]}
    header, body = {}, b""
    for name, shape in shapes.items():
        numbers = 1
        for extent in shape:
            numbers *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * numbers]}
        body += bytes(4 * numbers)
    text = json.dumps(header).encode()
    open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body)
elif sys.argv[1].endswith(".npz"):
    with zipfile.ZipFile(sys.argv[1]) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            describe(name, archive.read(name))
else:
    describe(sys.argv[1], open(sys.argv[1], "rb").read())
