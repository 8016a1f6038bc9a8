"""Writes a weights file again without its class head."""
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
metadata = header.pop("__metadata__")
model = json.loads(metadata["tessera.model"])
model["settings"]["classes"] = 0
kept, body = {"__metadata__": metadata | {"tessera.model": json.dumps(model), "tessera.class_names": "[]"}}, b""
for name, tensor in header.items():
    if not name.startswith("head."):
        begin, end = tensor["data_offsets"]
        kept[name] = tensor | {"data_offsets": [len(body), len(body) + end - begin]}
        body += data[start + begin:start + end]
text = json.dumps(kept).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body)
