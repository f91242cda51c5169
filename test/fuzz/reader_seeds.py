#!/usr/bin/env python3
"""Sound files of every format the readers know, as seeds.  usage: reader_seeds.py FOLDER

A seed is one byte (format + 5 * variant, see readers.cpp) and the file.
"""
import json, os, struct, sys

folder = sys.argv[1]
count = 0


def seed(kind, content):
    global count
    for variant in range(0, 16, 3):
        with open(os.path.join(folder, f"reader_{count:03d}"), "wb") as out:
            out.write(bytes([kind + 5 * variant]) + content)
        count += 1


def npy(descr, shape, data, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    size = 10 if version == 1 else 12
    header += b" " * (-(size + len(header) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def tensors(metadata, entries):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, dtype, shape, content in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


for code, unit in ((8, 1), (9, 1), (11, 2), (12, 4), (13, 4), (14, 8)):
    seed(0, bytes([0, 0, code, 2]) + struct.pack(">II", 3, 4) + bytes(12 * unit))
seed(0, bytes([0, 0, 8, 3]) + struct.pack(">III", 3, 2, 2) + bytes(range(12)))
for descr, unit in (("<f4", 4), ("<f8", 8), ("<f2", 2), ("|u1", 1), ("|b1", 1), (">i4", 4), ("<i8", 8), ("<u2", 2)):
    seed(1, npy(descr, "(3, 4)", bytes(12 * unit)))
seed(1, npy("<f4", "(3, 2, 2)", bytes(48), version=2))
seed(2, struct.pack("<20H", *range(20)))
seed(3, b"some plain text, longer than one window")
weight, scalar = ("a.weight", "F32", [2, 3], bytes(24)), ("b", "F64", [], bytes(8))
seed(4, tensors(None, [weight, scalar]))
seed(4, tensors({"step": "3", "cinch": "checkpoint 1", "loss": "1.5", "pending": "1"},
                [weight, scalar, ("optimizer.a", "BF16", [4], bytes(8))]))
seed(4, tensors(None, [("a.weight", "F64", [2, 3], bytes(48)), ("b", "F32", [], bytes(4))]))
