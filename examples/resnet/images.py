#!/usr/bin/python3
"""Draws pictures of ten kinds into files of CIFAR-10's names and format (a label, then 32 x 32 bytes of red, of green, of blue):
images.py FOLDER [--train N] [--test N] [--seed N]

A picture is one thing of any colour, size, place and angle on a ground of another colour, with noise. Python alone.
"""
import argparse
import math
import pathlib
import random

SIDE = 32
# Inside? of a point (x, y), the thing reaching from -1 to 1; `wave` is how often a pattern repeats.
KINDS = [
    ("disc", lambda x, y, wave: x * x + y * y < 1),
    ("ring", lambda x, y, wave: 0.45 < x * x + y * y < 1),
    ("square", lambda x, y, wave: max(abs(x), abs(y)) < 0.85),
    ("triangle", lambda x, y, wave: -0.6 < y < 0.9 and abs(x) < (0.9 - y) * 0.6),
    ("cross", lambda x, y, wave: min(abs(x), abs(y)) < 0.25 and max(abs(x), abs(y)) < 1),
    ("stripes", lambda x, y, wave: max(abs(x), abs(y)) < 0.95 and math.sin(wave * x) > 0),
    ("squares", lambda x, y, wave: max(abs(x), abs(y)) < 0.95 and math.sin(wave * x) * math.sin(wave * y) > 0),
    ("half disc", lambda x, y, wave: x * x + y * y < 1 and y > 0),
    ("moon", lambda x, y, wave: x * x + y * y < 1 and (x - 0.5) ** 2 + y * y > 0.7),
    ("star", lambda x, y, wave: math.hypot(x, y) < 0.62 + 0.38 * math.cos(5 * math.atan2(y, x))),
]


def draw(kind, rng):
    inside, size, turn = KINDS[kind][1], rng.uniform(8, 14), rng.uniform(0, 2 * math.pi)
    left, top, wave = SIDE / 2 + rng.gauss(0, 2.5), SIDE / 2 + rng.gauss(0, 2.5), rng.uniform(5, 8)
    ground = [rng.uniform(0, 255) for _ in range(3)]
    colour = [(level + rng.choice((-1, 1)) * rng.uniform(60, 160)) for level in ground]
    c, s = math.cos(turn) / size, math.sin(turn) / size
    planes = [bytearray(SIDE * SIDE) for _ in range(3)]
    for at in range(SIDE * SIDE):
        column, row = at % SIDE - left, at // SIDE - top
        levels = colour if inside(c * column - s * row, s * column + c * row, wave) else ground
        noise = rng.gauss(0, 18)
        for plane, level in zip(planes, levels):
            plane[at] = min(255, max(0, int(level + noise)))
    return b"".join(map(bytes, planes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=5000, help="pictures for training, in five files")
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    names = ["data_batch_%d.bin" % i for i in range(1, 6)] + ["test_batch.bin"]
    for name, count in zip(names, [options.train // 5] * 5 + [options.test]):
        kinds = [rng.randrange(10) for _ in range(count)]
        (options.folder / name).write_bytes(b"".join(bytes([kind]) + draw(kind, rng) for kind in kinds))
        print("%s: %d pictures" % (options.folder / name, count))


main()
