#!/usr/bin/env python3
"""Compares decoded images with Pillow's, pixel by pixel: bench/image_modes.py build/bench/image_pixels

Writes one image of every mode, format and depth (Pillow, tifffile and a small PNG writer), decodes each with both programs and
prints a Markdown table. Pillow's pixels are ImageOps.exif_transpose(Image.open(f)).convert("RGB"). Gray of more than 8 bits is
compared with its upper 8 bits, because Pillow clips it at 255. Needs pillow, numpy, tifffile. Fails if a number differs.
"""
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
import tifffile
from PIL import Image, ImageOps, __version__

if len(sys.argv) != 2:
    sys.exit(__doc__)
program = sys.argv[1]
HEIGHT, WIDTH = 24, 32
draw = numpy.random.default_rng(0)
ramp = numpy.add.outer(numpy.arange(HEIGHT) * 5, numpy.arange(WIDTH) * 4) % 256
colour = numpy.stack([ramp, 255 - ramp, draw.integers(0, 256, ramp.shape)], axis=-1).astype(numpy.uint8)
alpha = draw.integers(0, 256, ramp.shape).astype(numpy.uint8)
gray = colour[..., 0]
wide_gray = (gray.astype(numpy.uint16) << 8) + draw.integers(0, 256, ramp.shape).astype(numpy.uint16)
wide_colour = (colour.astype(numpy.uint16) << 8) + 77
rows = []  # format, mode, bits, file's bytes, expected pixels (None: Pillow's), "" or the reason for another rule


def pillow(kind, mode, bits, image, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    rows.append((kind, mode, bits, buffer.getvalue(), None, ""))


def tiff(mode, bits, array, expected=None, rule="", **options):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, array, **options)
    rows.append(("TIFF", mode, bits, buffer.getvalue(), expected, rule))


def png(mode, bits, kind, lines, expected=None, rule="", extra=b""):
    """A PNG of packed lines of big-endian numbers."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    rows.append(("PNG", mode, bits, data, expected, rule))


def packed(array, bits):
    digits = (array[..., None] >> numpy.arange(bits)[::-1]) & 1
    return [numpy.packbits(line).tobytes() for line in digits.reshape(HEIGHT, -1).astype(numpy.uint8)]


def grays(values):
    return numpy.repeat(values.astype(numpy.uint8)[..., None], 3, axis=-1)


def transparent(data, name=b"tRNS"):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


UPPER = "upper 8 bits"
rgb = Image.fromarray(colour)
rgba = Image.merge("RGBA", (*rgb.split(), Image.fromarray(alpha)))
luma = Image.fromarray(gray)
pair = Image.merge("LA", (luma, Image.fromarray(alpha)))
palette = rgb.quantize(64)
cmyk = rgb.convert("CMYK")
bilevel = luma.convert("1")
for bits in (1, 2, 4, 8):
    png("gray", bits, 0, packed(gray.astype(numpy.int64) >> (8 - bits), bits))
png("gray", 16, 0, [line.astype(">u2").tobytes() for line in wide_gray], grays(wide_gray >> 8), UPPER)
png("gray, tRNS", 16, 0, [line.astype(">u2").tobytes() for line in wide_gray], grays(wide_gray >> 8), UPPER,
    transparent(struct.pack(">H", int(wide_gray[0, 0]))))
png("gray + alpha", 16, 4, [numpy.stack([a, a], -1).astype(">u2").tobytes() for a in wide_gray],
    grays(wide_gray >> 8), UPPER)
png("RGB", 16, 2, [line.astype(">u2").tobytes() for line in wide_colour])
png("RGBA", 16, 6, [numpy.concatenate([line, line[:, :1]], -1).astype(">u2").tobytes() for line in wide_colour])
for mode, image in (("gray + alpha", pair), ("RGB", rgb), ("RGBA", rgba), ("palette", palette)):
    pillow("PNG", mode, 8, image)
pillow("PNG", "palette, tRNS", 8, palette, transparency=3)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind in ("JPEG", "PNG", "WebP", "TIFF"):
        pillow(kind, f"RGB, orientation {orientation}", 8, rgb, exif=exif,
               **({"lossless": True} if kind == "WebP" else {}))
for mode, image in (("gray", luma), ("RGB", rgb), ("CMYK", cmyk)):
    pillow("JPEG", mode, 8, image, quality=90)
    pillow("JPEG", f"{mode}, progressive", 8, image, quality=90, progressive=True)
for mode, image in (("gray", luma), ("RGB", rgb), ("RGBA", rgba)):
    pillow("WebP", f"{mode}, lossless", 8, image, lossless=True)
    pillow("WebP", f"{mode}, lossy", 8, image, quality=80)
for mode, bits, image in (("gray", 1, bilevel), ("gray", 8, luma), ("RGB", 8, rgb), ("RGBA", 8, rgba),
                          ("palette", 8, palette)):
    pillow("BMP", mode, bits, image)
for mode, image in (("gray", luma), ("palette", palette)):
    pillow("GIF", mode, 8, image)
for mode, bits, image in (("gray", 1, bilevel), ("gray", 8, luma), ("gray + alpha", 8, pair), ("RGB", 8, rgb),
                          ("RGBA", 8, rgba), ("palette", 8, palette), ("CMYK", 8, cmyk)):
    pillow("TIFF", mode, bits, image, compression="tiff_lzw" if bits == 8 else "group4")
for order, name in ((">", "big-endian"), ("<", "little-endian")):
    tiff(f"gray, {name}", 16, wide_gray, grays(wide_gray >> 8), UPPER, byteorder=order)
tiff("gray, white is 0", 16, wide_gray, grays(255 - (wide_gray >> 8)), UPPER, photometric="miniswhite")
tiff("gray, white is 0", 8, gray, photometric="miniswhite")
tiff("gray", 32, wide_gray.astype(numpy.uint32) << 16, grays(wide_gray >> 8), UPPER)
tiff("RGB", 16, wide_colour, photometric="rgb")
tiff("RGB, planes", 8, numpy.moveaxis(colour, -1, 0).copy(), photometric="rgb", planarconfig="separate")
for mode, bits, array in (("gray, floating point", 32, gray.astype(numpy.float32) / 255),
                          ("gray, signed", 16, wide_gray.astype(numpy.int16))):
    tiff(mode, bits, array, "refused", "refused by name")

with tempfile.TemporaryDirectory() as folder:
    files = []
    for number, row in enumerate(rows):
        files.append(pathlib.Path(folder) / str(number))
        files[-1].write_bytes(row[3])
    lines = subprocess.run([program, *map(str, files)], check=True, capture_output=True, text=True).stdout.splitlines()

print(f"Against Pillow {__version__}, {len(rows)} files of {WIDTH} x {HEIGHT} pixels:\n")
print("| format | mode | bits | expected | largest difference |\n|---|---|---|---|---|")
wrong = 0
for (kind, mode, bits, data, expected, rule), line in zip(rows, lines):
    if isinstance(expected, str):
        difference = "refused" if line.startswith("refused ") else "decoded"
        wrong += difference == "decoded"
    elif line.startswith("refused "):
        difference, wrong = line, wrong + 1
    else:
        width, height, pixels = line.split()
        ours = numpy.frombuffer(bytes.fromhex(pixels), numpy.uint8).reshape(int(height), int(width), 3)
        theirs = expected
        if theirs is None:
            theirs = numpy.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
        same = ours.shape == theirs.shape
        difference = int(abs(ours.astype(int) - theirs.astype(int)).max()) if same else f"{ours.shape} {theirs.shape}"
        wrong += difference != 0
    print(f"| {kind} | {mode} | {bits} | {rule or 'Pillow'} | {difference} |")
sys.exit(1 if wrong else 0)
