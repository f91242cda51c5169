#!/usr/bin/env python3
"""Draws of a step, from their definition (runtime/FORMULAS.md), one element at a time, without any library.

Usage: philox_reference.py FILE     compares what `draws --print` printed: one line a case, whole numbers in hexadecimal
                                    (uniform ones times 2^24); normal numbers may differ by 3e-6
"""
import math
import sys

MASK = 0xFFFFFFFF


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def halves(x):
    return x & MASK, x >> 32 & MASK


def words(seed, step, key, example, block):
    d = philox(halves(key) + halves(step), halves(seed))
    return philox(halves(block) + halves(example), d[:2])


def draw(kind, parameter, seed, step, key, example, e):
    group = 64 if kind == "bool" else 32
    w = words(seed, step, key, example, e // group * 8 + e % 8)
    j = e % group // 8
    if kind == "bool":
        return int((w[j // 2] >> 16 * (j % 2) & 0xFFFF) < math.floor(parameter * 65536 + 0.5))
    if kind == "uniform":
        return w[j] >> 8
    if kind == "int":
        return w[j] * parameter >> 32
    u1, u2 = ((w[j & 2] >> 8) + 1) / 2**24, (w[j & 2 | 1] >> 8) / 2**24
    angle = 2 * math.pi * u2
    return math.sqrt(-2 * math.log(u1)) * (math.sin(angle) if j % 2 else math.cos(angle))


# Published answers of the generator (Random123's kat_vectors).
assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
assert philox((MASK,) * 4, (MASK,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
    0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)

lines = iter(open(sys.argv[1]).read().splitlines())
for kind, parameter in (("bool", 0.9), ("bool", 0.3), ("uniform", 0), ("int", 50257), ("normal", 0)):
    for seed, step, first in ((0, 0, 0), (0x9876543212345678, 3000000019, 7000000000)):
        for example in range(3):
            printed = next(lines).split()
            assert printed[:2] == [kind, str(example)] and len(printed) == 202, "line of %s %d" % (kind, example)
            for e, text in enumerate(printed[2:], start=5):
                number = draw(kind, parameter, seed, step, 0xFEDCBA9876543210, first + example, e)
                same = abs(float(text) - number) < 3e-6 if kind == "normal" else int(text, 16) == number
                if not same:
                    sys.exit("%s, example %d, element %d: expected %s, got %s" % (kind, example, e, number, text))
