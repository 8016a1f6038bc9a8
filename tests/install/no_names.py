"""Copies a weights file without its class names."""
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
del header["__metadata__"]["tessera.class_names"]
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[start:])
