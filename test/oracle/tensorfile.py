"""Reads and writes safetensors files (8 bytes length, a JSON header, the values) as dictionaries of NumPy arrays."""

import json
import struct

import numpy as np

KINDS = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "BOOL": np.bool_}


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin : 8 + length + end], KINDS[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).copy()
    return tensors


def write(path, tensors):
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    header, chunks, at = {}, [], 0
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": names[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))
