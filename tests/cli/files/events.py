"""Reads a run's TensorBoard files by the published formats (TFRecord frames, protocol-buffer wire format) and compares
them with metrics.jsonl; prints a line a kind."""
import glob
import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(content):
    while content:
        length, check = struct.unpack("<QI", content[:12])
        message, end = content[12:12 + length], content[12 + length:16 + length]
        assert check == masked(content[:8]) and struct.unpack("<I", end)[0] == masked(message), "wrong checksum"
        yield message
        content = content[16 + length:]


def fields(message):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = message[at:at + size]
            assert len(value) == size, "a field longer than its message"
            at += size
        yield key >> 3, value


scalars = {}
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    for message in frames(open(path, "rb").read()):
        event = dict(fields(message))
        for _, value in fields(event.get(5, b"")):
            entry = dict(fields(value))
            if 2 not in entry:  # text and pictures
                continue
            scalars[entry[1].decode(), event.get(2, 0)] = struct.unpack("<f", entry[2])[0]

counts = {}
for line in open(sys.argv[1] + "/metrics.jsonl"):
    line = json.loads(line)
    for name, value in line.items():
        tag = (line["kind"] + "/" + name, line["step"])
        if name in ("kind", "step", "epoch", "seconds"):
            continue
        assert abs(scalars.pop(tag) - value) <= 1e-6 * abs(value) + 1e-12, tag
        counts[line["kind"]] = counts.get(line["kind"], 0) + 1
assert not scalars, scalars
for kind, count in sorted(counts.items()):
    print(kind, count, "scalars")
