#!/usr/bin/env python3
"""Makes tests/data/pictures: small files of odd kinds, and pictures.safetensors with what Pillow makes of each.

Needs numpy, Pillow and safetensors. Arguments: the folder to fill.
output.<file> is Image.open(file).convert("RGB"), output_turned.<file> after ImageOps.exif_transpose.
"""
import io
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save_file

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
random = np.random.default_rng(20)
files = {}


def scene(width, height):
    """Smooth colour, an edge and some noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [127 + 120 * np.sin(x / 7 + c) * np.cos(y / (5 + c)) for c in range(3)]
    picture = np.stack(planes, -1) + random.normal(0, 8, (height, width, 3))
    picture[(x - y) > width / 4] += 60
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, kind, body, before=b"", interlaced=0):
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(body))
            + chunk(b"IEND", b""))


def lines(width, height, bits):
    """Random rows without filters."""
    size = (width * bits + 7) // 8
    return b"".join(b"\0" + random.integers(0, 256, size, dtype=np.uint8).tobytes() for _ in range(height))


def adam7(pixels):
    body = b""
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
                         (0, 1, 1, 2)):
        part = pixels[y::dy, x::dx]
        body += b"".join(b"\0" + row.tobytes() for row in part if row.size)
    return body


def saved(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


W, H = 13, 9
for depth in (1, 2, 4, 8, 16):
    files[f"gray{depth}_key.png"] = png(W, H, depth, 0, lines(W, H, depth), chunk(b"tRNS", b"\0\1"))
for depth in (1, 2, 4, 8):
    for entries in {2 ** depth, max(1, 2 ** (depth - 1) - 1)}:  # the second: pixels point behind the palette
        palette = chunk(b"PLTE", random.integers(0, 256, 3 * entries, dtype=np.uint8).tobytes())
        files[f"palette{depth}_{entries}.png"] = png(W, H, depth, 3, lines(W, H, depth),
                                                     palette + chunk(b"tRNS", b"\0\x80"[:entries]))
gamma = chunk(b"gAMA", struct.pack(">I", 100000))
for kind, channels in ((2, 3), (4, 2), (6, 4)):
    for depth in (8, 16):
        files[f"kind{kind}_{depth}.png"] = png(W, H, depth, kind, lines(W, H, channels * depth), gamma)
for name, kind, shape, dtype, top in (("rgb", 2, (23, 31, 3), np.uint8, 256), ("gray16", 0, (23, 31, 1), ">u2", 400),
                                      ("rgba16", 6, (11, 5, 4), ">u2", 65536), ("small", 2, (2, 3, 3), np.uint8, 256)):
    pixels = random.integers(0, top, shape).astype(dtype)
    files[f"adam7_{name}.png"] = png(shape[1], shape[0], 8 * pixels.dtype.itemsize, kind, adam7(pixels),
                                     interlaced=1)

picture = scene(67, 45)
with_alpha = picture.convert("RGBA")
with_alpha.putalpha(Image.fromarray(random.integers(0, 256, (45, 67), dtype=np.uint8)))
for name, source in (("rgb", picture), ("alpha", with_alpha), ("gray", picture.convert("L"))):
    files[f"lossy_{name}.webp"] = saved(source, "WEBP", quality=80)
    files[f"lossless_{name}.webp"] = saved(source, "WEBP", lossless=True)
files["animated.webp"] = saved(with_alpha, "WEBP", save_all=True, append_images=[picture.rotate(20)], duration=50)
files["animated.png"] = saved(picture, "PNG", save_all=True, append_images=[picture.rotate(20)])
files["ratio411.jpg"] = saved(picture, "JPEG", quality=85, subsampling="4:1:1")
files["direct_rgb.jpg"] = saved(picture, "JPEG", quality=85, keep_rgb=True)
files["cmyk_progressive.jpg"] = saved(picture.convert("CMYK"), "JPEG", quality=85, progressive=True)
small = picture.crop((0, 0, 21, 13))
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[274] = orientation
    files[f"turn{orientation}.jpg"] = saved(small, "JPEG", quality=90, exif=exif)
    files[f"turn{orientation}.png"] = saved(small, "PNG", exif=exif)
    files[f"turn{orientation}.webp"] = saved(small, "WEBP", quality=90, exif=exif)

arrays = {}
for name, content in sorted(files.items()):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)
    opened = Image.open(io.BytesIO(content))
    arrays["output." + name] = np.ascontiguousarray(opened.convert("RGB"))
    if name.startswith("turn"):
        turned = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
        arrays["output_turned." + name] = np.ascontiguousarray(turned.convert("RGB"))
save_file(arrays, os.path.join(folder, "pictures.safetensors"))
print(len(files), "files")
