"""Prints width and height of PNG files."""
import struct
import sys

for path in sys.argv[1:]:
    width, height = struct.unpack(">II", open(path, "rb").read(24)[16:24])
    print(f"{path} {width} x {height}")
