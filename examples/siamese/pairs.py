#!/usr/bin/env python3
"""pairs.py DATA: from drawn digits (../mlp/digits.py DATA) 8,000 pairs of pictures, half of them of one digit: pairs.npz. Needs NumPy."""

import sys

import numpy as np

folder = sys.argv[1]
rng = np.random.default_rng(1)


def pairs(images, labels, count):
    pixels = np.fromfile(folder + "/" + images, np.uint8)[16:].reshape(-1, 28 * 28)
    digits = np.fromfile(folder + "/" + labels, np.uint8)[8:]
    a = rng.integers(0, len(digits), count)
    same = rng.random(count) < 0.5
    b = np.array([rng.choice(np.flatnonzero((digits == digits[i]) == s)) for i, s in zip(a, same)])
    return dict(a=pixels[a], b=pixels[b], same=same)


np.savez_compressed(folder + "/pairs.npz", **pairs("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 8000))
np.savez_compressed(folder + "/valid.npz", **pairs("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 2000))
