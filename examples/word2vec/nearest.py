#!/usr/bin/env python3
"""nearest.py OUT/final.safetensors DATA/words.txt WORD ..: the words whose vectors point nearly the same way. Needs NumPy."""

import json
import struct
import sys

import numpy as np

with open(sys.argv[1], "rb") as file:
    (length,) = struct.unpack("<Q", file.read(8))
    entry = json.loads(file.read(length))["words.weight"]
    file.seek(8 + length + entry["data_offsets"][0])
    vectors = np.frombuffer(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]), np.float32).reshape(entry["shape"])
known = open(sys.argv[2]).read().split()
vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
for word in sys.argv[3:]:
    order = np.argsort(-(vectors @ vectors[known.index(word)]))
    print("%s: %s" % (word, " ".join(known[i] for i in order[1:6])))
