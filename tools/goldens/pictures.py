#!/usr/bin/env python3
"""Makes tests/data/pictures: small files of odd kinds, and pictures.safetensors with Pillow's result for each.

Needs numpy, Pillow and safetensors. Arguments: the folder to fill.
output.<file> is Image.open(file).convert("RGB"), output_turned.<file> is that after ImageOps.exif_transpose.
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
    for entries in {2 ** depth, max(1, 2 ** (depth - 1) - 1)}:  # the second: indices past the palette
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


def bmp(width, height, bits, body, palette=b"", compression=0, masks=b"", entries=0, header=40):
    """Rows from the bottom unless the height is negative."""
    start = 14 + header + len(masks) + len(palette)
    if header == 12:
        information = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        information = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(body), 0, 0, entries, 0)
        information += b"\0" * (header - 40)
    return struct.pack("<2sIHHI", b"BM", start + len(body), 0, 0, start) + information + masks + palette + body


def bmp_rows(width, height, bits):
    return random.integers(0, 256, (width * bits + 31) // 32 * 4 * height, dtype=np.uint8).tobytes()


random = np.random.default_rng(21)
for bits in (1, 4, 8):
    palette = random.integers(0, 256, 4 * 2 ** bits, dtype=np.uint8).tobytes()
    files[f"palette{bits}.bmp"] = bmp(W, H, bits, bmp_rows(W, H, bits), palette)
files["palette4_short.bmp"] = bmp(W, H, 4, bytes(i % 12 * 17 for i in range(8 * H)), palette[:40], entries=10)
files["palette8_os2.bmp"] = bmp(W, H, 8, bmp_rows(W, H, 8), palette[:768], header=12)
for bits in (16, 24, 32):
    files[f"rgb{bits}.bmp"] = bmp(W, H, bits, bmp_rows(W, H, bits))
files["from_top.bmp"] = bmp(W, -H, 24, bmp_rows(W, H, 24))
files["fields565.bmp"] = bmp(W, H, 16, bmp_rows(W, H, 16), compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
files["fields_bgr.bmp"] = bmp(W, H, 32, bmp_rows(W, H, 32), compression=3,
                              masks=struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00))
runs = b"\5\7\0\3\1\2\3\0\5\x09\0\0" + b"\0\2\3\1" + b"\4\x11\x0d\x21" + b"\0\0" + b"\x0d\x33\0\0" * 8
files["runs8.bmp"] = bmp(W, H, 8, runs, palette, compression=1)
files["runs4.bmp"] = bmp(W, H, 4, runs.replace(b"\0\3\1\2\3\0", b"\0\3\x12\x30"), palette[:64], compression=2)

for name, source in (("gray", picture.convert("L")), ("palette", picture.quantize(37)), ("white", picture.convert("1"))):
    files[f"{name}.gif"] = saved(source, "GIF")
files["interlaced.gif"] = saved(picture.quantize(200), "GIF", interlace=1)
files["animated.gif"] = saved(picture.quantize(16), "GIF", save_all=True, append_images=[picture.rotate(20)], duration=50)
few = picture.quantize(16)
few.info["transparency"] = 3
files["transparent.gif"] = saved(few, "GIF", transparency=3)
whole = bytearray(files["transparent.gif"])
at = whole.index(b",\0\0\0\0")  # the frame's offset
whole[6:10] = struct.pack("<HH", 80, 60)
whole[at + 1:at + 5] = struct.pack("<HH", 7, 21)
files["frame_outside.gif"] = bytes(whole)

for name, source, compression in (
        ("gray", picture.convert("L"), "tiff_lzw"), ("rgb", picture, "raw"), ("palette", picture.quantize(200), "packbits"),
        ("white", picture.convert("1"), "raw"), ("cmyk", picture.convert("CMYK"), "tiff_lzw"),
        ("alpha", with_alpha, "tiff_adobe_deflate"), ("gray_alpha", with_alpha.convert("LA"), "tiff_lzw")):
    files[f"{name}_{compression}.tif"] = saved(source, "TIFF", compression=compression)
files["fax.tif"] = saved(picture.convert("1"), "TIFF", compression="group4")
files["jpeg.tif"] = saved(picture, "TIFF", compression="jpeg", quality=85)
files["strips.tif"] = saved(picture, "TIFF", compression="tiff_lzw", strip_size=1500)
files["gray16.tif"] = saved(Image.fromarray(random.integers(0, 400, (H, W)).astype(np.uint16)), "TIFF")


def tiff(width, height, fields, blocks, order="<"):
    """One directory; `fields` by tag as lists of 16-bit numbers."""
    fields = {256: [width], 257: [height], 259: [1], 277: [1], **fields}
    places, data = [], b""
    for block in blocks:
        places.append(8 + len(data))
        data += block + b"\0" * (len(block) % 2)
    tiled = 322 in fields
    if not tiled:
        fields[278] = [-(-height // (len(blocks) // (fields[277][0] if fields.get(284) == [2] else 1)))]
    fields[324 if tiled else 273] = places
    fields[325 if tiled else 279] = [len(block) for block in blocks]
    extra, entries, directory = b"", b"", 8 + len(data)
    behind = directory + 2 + 12 * len(fields) + 4
    for tag, values in sorted(fields.items()):
        packed = struct.pack(order + f"{len(values)}H", *values)
        if len(packed) > 4:
            packed, extra = struct.pack(order + "I", behind + len(extra)), extra + packed + b"\0" * (len(packed) % 4)
        entries += struct.pack(order + "HHI", tag, 3, len(values)) + packed.ljust(4, b"\0")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, directory)
    return head + data + struct.pack(order + "H", len(fields)) + entries + b"\0" * 4 + extra


def noise(size):
    return random.integers(0, 256, size, dtype=np.uint8).tobytes()


for bits in (1, 2, 4, 8):
    row = (W * bits + 7) // 8
    for name, kind in (("black", 1), ("white", 0)):
        files[f"gray{bits}_{name}_zero.tif"] = tiff(W, H, {258: [bits], 262: [kind]}, [noise(row * H)])
    colours = random.integers(0, 65536, 3 * 2 ** bits).tolist()
    files[f"palette{bits}.tif"] = tiff(W, H, {258: [bits], 262: [3], 320: colours}, [noise(row * H)])
files["rgb16.tif"] = tiff(W, H, {258: [16] * 3, 262: [2], 277: [3]}, [noise(W * H * 6)])
files["rgb16_big_endian.tif"] = tiff(W, H, {258: [16] * 3, 262: [2], 277: [3]}, [noise(W * H * 6)], ">")
files["multiplied_alpha.tif"] = tiff(W, H, {258: [8] * 4, 262: [2], 277: [4], 338: [1]}, [noise(W * H * 4)])
files["planes.tif"] = tiff(W, H, {258: [8] * 3, 262: [2], 277: [3], 284: [2]}, [noise(W * H) for _ in range(3)])
files["tiles.tif"] = tiff(37, 20, {258: [8] * 3, 262: [2], 277: [3], 322: [16], 323: [16]},
                          [noise(16 * 16 * 3) for _ in range(6)])
for orientation in range(1, 9):
    files[f"orientation{orientation}.tif"] = tiff(W, H, {258: [8] * 3, 262: [2], 277: [3], 274: [orientation]},
                                                  [noise(W * H * 3)])

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
