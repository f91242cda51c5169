#!/usr/bin/python3
"""Draws pictures in which every pixel belongs to a kind: shapes.py FOLDER [--train N] [--valid N] [--side N] [--seed N]

FOLDER/train.npz and valid.npz hold x: u8[N, 3, side, side] and y: i32[N, side, side], 0 for the ground, 1 a plain disc, 2 a
striped square, 3 a triangle of checks. Two to five things lie on each other in random colours, sizes and angles, with noise. Needs NumPy.
"""
import argparse
import pathlib

import numpy

# Of a point (x, y), the thing reaching from -1 to 1: does it belong to the thing, and has it the thing's second colour?
THINGS = [
    (lambda x, y: x * x + y * y < 1, lambda x, y: x > 2),
    (lambda x, y: numpy.maximum(abs(x), abs(y)) < 0.85, lambda x, y: numpy.sin(9 * x) > 0),
    (lambda x, y: (-0.6 < y) & (y < 0.9) & (abs(x) < (0.9 - y) * 0.65), lambda x, y: numpy.sin(9 * x) * numpy.sin(9 * y) > 0),
]


def draw(side, rng):
    row, column = numpy.mgrid[0:side, 0:side] + 0.5
    picture = numpy.empty((3, side, side))
    picture[:] = rng.uniform(0, 255, (3, 1, 1))
    kinds = numpy.zeros((side, side), numpy.int32)
    for _ in range(rng.integers(2, 6)):
        kind, turn, size = rng.integers(3), rng.uniform(0, 2 * numpy.pi), rng.uniform(0.12, 0.3) * side
        left, top = rng.uniform(0.1 * side, 0.9 * side, 2)
        c, s = numpy.cos(turn) / size, numpy.sin(turn) / size
        x, y = c * (column - left) - s * (row - top), s * (column - left) + c * (row - top)
        inside, second = THINGS[kind][0](x, y), THINGS[kind][1](x, y)
        picture[:, inside] = rng.uniform(0, 255, (3, 1))
        picture[:, inside & second] = rng.uniform(0, 255, (3, 1))
        kinds[inside] = kind + 1
    return (picture + rng.normal(0, 15, picture.shape)).clip(0, 255).astype(numpy.uint8), kinds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--valid", type=int, default=200)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = numpy.random.default_rng(options.seed)
    for name, count in (("train", options.train), ("valid", options.valid)):
        pictures, kinds = zip(*(draw(options.side, rng) for _ in range(count)))
        numpy.savez(options.folder / (name + ".npz"), x=numpy.stack(pictures), y=numpy.stack(kinds))
        print("%s: %d pictures" % (options.folder / (name + ".npz"), count))


main()
