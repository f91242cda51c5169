#!/usr/bin/python3
"""Draws digits into files of MNIST's names and format (IDX, 28 x 28 bytes):  digits.py FOLDER [--train N] [--test N] [--seed N]

A digit is a few strokes, turned, leaned, stretched, moved, of varying thickness and strength, on a noisy ground. Python alone.
"""
import argparse
import math
import pathlib
import random
import struct

SIDE = 28


def arc(x, y, rx, ry, begin, end, parts=8):
    """Points of a part of an ellipse; angles in degrees, 0 to the right, 90 down."""
    angles = [math.radians(begin + (end - begin) * i / parts) for i in range(parts + 1)]
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


# Strokes in a box from (-1, -1), top left, to (1, 1).
SHAPES = [
    [arc(0, 0, 0.6, 0.95, 0, 360, 14)],
    [[(-0.35, -0.6), (0.1, -0.95), (0.1, 0.95)]],
    [arc(0, -0.45, 0.55, 0.5, 190, 380) + [(-0.6, 0.95), (0.65, 0.95)]],
    [arc(-0.05, -0.48, 0.5, 0.46, 200, 450), arc(-0.05, 0.45, 0.58, 0.5, 270, 510)],
    [[(0.25, 0.95), (0.25, -0.95), (-0.65, 0.35), (0.65, 0.35)]],
    [[(0.55, -0.95), (-0.4, -0.95), (-0.5, -0.1)] + arc(-0.05, 0.38, 0.6, 0.57, 230, 510)],
    [[(0.4, -0.9)] + arc(0.0, 0.4, 0.55, 0.55, 200, 560, 14), [(0.4, -0.9), (-0.52, 0.2)]],
    [[(-0.6, -0.95), (0.6, -0.95), (-0.1, 0.95)]],
    [arc(0, -0.47, 0.48, 0.46, 0, 360, 12), arc(0, 0.47, 0.58, 0.48, 0, 360, 12)],
    [arc(0, -0.4, 0.52, 0.52, 0, 360, 12), [(0.52, -0.4), (0.35, 0.95)]],
]


def draw(digit, rng):
    turn, lean = rng.gauss(0, 0.12), rng.gauss(0, 0.2)
    wide, high = rng.uniform(5.5, 8.5), rng.uniform(7.5, 10)
    left, top = SIDE / 2 + rng.gauss(0, 1.2), SIDE / 2 + rng.gauss(0, 1.2)
    thick, strong = rng.uniform(0.7, 1.7), rng.uniform(170, 255)

    def place(x, y):
        x, y = (x + lean * -y + rng.gauss(0, 0.05)) * wide, (y + rng.gauss(0, 0.05)) * high
        return left + x * math.cos(turn) - y * math.sin(turn), top + x * math.sin(turn) + y * math.cos(turn)

    picture = [max(0, int(rng.gauss(-20, 20))) for _ in range(SIDE * SIDE)]
    reach = thick + 1
    for stroke in SHAPES[digit]:
        points = [place(x, y) for x, y in stroke]
        for (ax, ay), (bx, by) in zip(points, points[1:]):
            dx, dy = bx - ax, by - ay
            square = dx * dx + dy * dy or 1e-9
            for row in range(max(0, math.ceil(min(ay, by) - reach)), min(SIDE - 1, math.floor(max(ay, by) + reach)) + 1):
                for column in range(max(0, math.ceil(min(ax, bx) - reach)), min(SIDE - 1, math.floor(max(ax, bx) + reach)) + 1):
                    along = min(1, max(0, ((column - ax) * dx + (row - ay) * dy) / square))
                    away = math.hypot(column - ax - along * dx, row - ay - along * dy)
                    ink = int(strong * min(1, max(0, reach - away)))
                    at = row * SIDE + column
                    if ink > picture[at]:
                        picture[at] = ink
    return bytes(picture)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=12000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    for name, count in (("train", options.train), ("t10k", options.test)):
        labels = [rng.randrange(10) for _ in range(count)]
        pictures = b"".join(draw(digit, rng) for digit in labels)
        (options.folder / (name + "-images-idx3-ubyte")).write_bytes(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + pictures)
        (options.folder / (name + "-labels-idx1-ubyte")).write_bytes(struct.pack(">II", 0x801, count) + bytes(labels))
        print("%s: %d digits" % (options.folder / (name + "-images-idx3-ubyte"), count))


main()
