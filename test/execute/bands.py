#!/usr/bin/python3
"""Chains of convolutions, pools and element-wise work in bands of image rows: every number of rows, micro-batch and number of threads must
leave the bits of the whole images, at odd heights, with strides and dilations, at the smallest budget too.

A chain is narrow at both ends, so that bands are worth while; its image is data times a parameter, so that the gradient of the image is seen.
"""

import argparse
import json
import pathlib
import random
import re

import numpy as np

import programs

B = 4
WIDE = 12  # the image has two channels, so that its channels are turned in a kernel of their own

PROGRAM = """dim B = %d batch
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, 2, %d, %d], v: f32[B, %d, %d, %d])
model net(x: f32[B, 2, %d, %d], v: f32[B, %d, %d, %d]) -> f32[B] {
  param g: f32[2, %d, %d] ~ uniform(1)
%s
  s[b] = sum[c, h, w] (%s[b, c, h, w] + 0.3 * %s[b, c, h, w] ^ 2) * v[b, c, h, w]
  return s
}
train net on train seed 3 {
  loss = mean[B] net(x, v)
  optimizer sgd(lr = 0.02)
  steps 2
}
"""
verdicts = programs.Verdicts()


class Chain:
    """Layers one after the other: each a text of the language, and the shape behind it."""

    def __init__(self, height, width):
        self.shape = self.image = (2, height, width)
        self.lines, self.count = [], 0
        self.value = "y0"

    def add(self, text, shape):
        self.count += 1
        self.shape, before, self.value = shape, self.value, "y%d" % self.count
        self.lines.append("  %s = %s" % (self.value, text.replace("@", before)))
        return self

    def conv(self, out, kernel, stride=1, dilate=1, groups=1, pad=None, tall=None):
        channels, height, width = self.shape
        tall = kernel if tall is None else tall
        pad = dilate * (max(kernel, tall) - 1) // 2 if pad is None else pad
        size = lambda n, k: (n + 2 * pad - dilate * (k - 1) - 1) // stride + 1
        shape = out, size(height, tall), size(width, kernel)
        name, bias = "w%d" % self.count, "b%d" % self.count
        self.lines.append("  param %s: f32[%d, %d, %d, %d] ~ uniform(0.4)" % (name, out, channels // groups, tall, kernel))
        self.lines.append("  param %s: f32[%d] ~ uniform(0.5)" % (bias, out))
        self.add("conv2d(@, %s, stride = %d, pad = %d, dilate = %d, groups = %d)" % (name, stride, pad, dilate, groups), shape)
        return self.each("relu(%s[b, c, h, w] + " + bias + "[c])")

    def each(self, text):
        return self.add("", self.shape).instead("  %s[b, c, h, w] = %s" % (self.value, text % ("y%d" % (self.count - 1))))

    def instead(self, line):
        self.lines[-1] = line
        return self

    def pool(self, kind, window=2, stride=2):
        channels, height, width = self.shape
        size = lambda n: (n - window) // stride + 1
        return self.add("%s_pool2d(@, %d, stride = %d)" % (kind, window, stride), (channels, size(height), size(width)))

    def plus(self, other):
        return self.each("%s[b, c, h, w] + " + other + "[b, c, h, w]")

    def text(self):
        h, w = self.image[1:]
        lines = ["  y0[b, c, h, w] = x[b, c, h, w] * g[c, h, w]"] + self.lines
        return PROGRAM % ((B, h, w) + self.shape + (h, w) + self.shape + (h, w, "\n".join(lines), self.value, self.value))


def chains():
    same = lambda h, w, k=3, d=1: Chain(h, w).conv(WIDE, k, dilate=d).conv(WIDE, k, dilate=d).conv(1, k, dilate=d)
    yield "16 rows", same(16, 9), True
    for height in (2, 3, 5, 13, 17):
        yield "%d rows" % height, same(height, 7), True
    yield "one row", same(1, 9), False
    yield "taps of 1", same(12, 5, 1), True
    yield "taps of 5", same(12, 7, 5), True
    yield "dilated", same(15, 11, 3, 2), True
    yield "dilated, five taps, more than there are rows", same(5, 9, 5, 3), True
    yield "stride 2", Chain(16, 9).conv(WIDE, 3).conv(WIDE, 3, stride=2).conv(WIDE, 3).conv(1, 3), True
    yield "stride 2, odd inside", Chain(26, 9).conv(3 * WIDE, 3, stride=2).conv(3 * WIDE, 3).conv(1, 3), True
    yield "stride 2, five taps", Chain(24, 7).conv(WIDE, 5).conv(WIDE, 5, stride=2).conv(1, 3), True
    yield "stride 2, one tap", Chain(16, 8).conv(WIDE, 3).conv(WIDE, 1, stride=2).conv(1, 3), True
    yield "stride 3", Chain(18, 8).conv(WIDE, 3).conv(WIDE, 3, stride=3).conv(1, 3), True
    yield "two strides", Chain(16, 8).conv(WIDE, 3).conv(2 * WIDE, 3, stride=2).conv(4 * WIDE, 3, stride=2).conv(1, 3), True
    yield "largest", Chain(16, 8).conv(WIDE, 3).conv(WIDE, 3).pool("max").conv(1, 3), True
    yield "means", Chain(12, 8).conv(WIDE, 3).pool("avg").conv(WIDE, 3).conv(1, 1), True
    yield "windows that overlap", Chain(13, 9).conv(WIDE, 3).pool("avg", 3, 1).conv(1, 3), False
    yield "depthwise", Chain(12, 9).conv(WIDE, 1).conv(WIDE, 3, groups=WIDE).conv(1, 1), True
    yield "groups, stride 2", Chain(12, 9).conv(WIDE, 3).conv(2 * WIDE, 3, stride=2, groups=3).conv(1, 1), True
    yield "residual", (lambda c: c.conv(WIDE, 3).plus(c.kept).conv(1, 3))(kept(Chain(14, 8).conv(WIDE, 3))), True
    yield "no padding", Chain(16, 9).conv(WIDE, 3, pad=0).conv(WIDE, 3, pad=0).conv(1, 3), False
    yield "more padding", Chain(12, 9).conv(WIDE, 3, pad=2).conv(1, 3), False
    yield "tall taps", Chain(15, 6).conv(WIDE, 1, tall=5).conv(WIDE, 3).conv(1, 3), True


def kept(chain):
    chain.kept = chain.value
    return chain


def drawn(rng):
    """A chain that nobody would write."""
    chain = Chain(rng.choice([1, 2, 3, 5, 6, 8, 12, 13, 16, 17, 20]), rng.randint(1, 12))
    for _ in range(rng.randint(1, 4)):
        way = rng.random()
        wide = rng.choice([WIDE, WIDE, 17, 24])
        if way < 0.15 and min(chain.shape[1:]) >= 2:
            chain.pool(rng.choice(["max", "avg"]), rng.choice([2, 2, min(3, min(chain.shape[1:]))]), 2)
        elif way < 0.25 and chain.shape[0] > 1:
            chain.conv(chain.shape[0], rng.choice([3, 5]), groups=chain.shape[0])
        elif way < 0.4 and chain.shape[0] > 1:
            before = chain.value
            chain.conv(chain.shape[0], rng.choice([1, 3])).plus(before)
        else:
            kernel, dilate = rng.choice([1, 3, 3, 5]), rng.choice([1, 1, 2])
            stride = rng.choice([1, 1, 2]) if min(chain.shape[1:]) > 1 else 1
            chain.conv(wide, kernel, stride, dilate)
        if rng.random() < 0.3:
            chain.each(rng.choice(["tanh(%s[b, c, h, w])", "0.5 * %s[b, c, h, w] + 0.1", "exp(0.1 * %s[b, c, h, w])"]))
    return chain.conv(1, rng.choice([1, 3]))


def sizes_of(program):
    """Numbers of rows that a block of one example may have, all of its rows included; none where nothing runs in blocks."""
    plan = programs.call([programs.CINCH, "plan", program, "--json", "--row-blocks", "1", "--microbatch", "1"], allowed=(0, 1))
    if plan.returncode:
        return []
    ranges = json.loads(plan.stdout[plan.stdout.index("{") :])["row_blocks"]
    positions = max((part["blocks"] for part in ranges), default=1)
    return [rows for rows in range(1, positions + 1) if positions % rows == 0]


def check(name, chain, must, rng, most):
    stem = re.sub(r"\W+", "-", name)
    folder = programs.FOLDER / stem
    folder.mkdir()
    data = np.random.default_rng(len(name))
    np.save(folder / "x.npy", data.normal(size=(2 * B,) + chain.image).astype(np.float32))
    np.save(folder / "v.npy", data.normal(size=(2 * B,) + chain.shape).astype(np.float32))
    program = programs.source(stem, chain.text())
    want = programs.run(programs.compiled(program, stem + "-base", "--remat", "none", "--row-blocks", "none", "--microbatch", str(B)), folder, 2).bytes
    sizes = sizes_of(program)
    if must:
        verdicts.expect(sizes, name + ": nothing runs in bands")
    for rows in rng.sample(sizes, min(most, len(sizes))):
        flags = ["--row-blocks", str(rows), "--microbatch", rng.choice(["1", "2", "4"]), "--remat", rng.choice(["auto", "none", "all"])]
        exe = programs.compiled(program, "%s-%d" % (stem, rows), *flags, allowed=(0, 1))
        if not isinstance(exe, pathlib.Path):  # blocks of several examples, which the micro-batch cuts
            continue
        for threads in ("1", "3"):
            got = programs.run(exe, folder, 2, "--threads", threads).bytes
            verdicts.expect(got == want, "%s: bits differ with %s, %s threads" % (name, " ".join(flags), threads))
    refusal = programs.call([programs.CINCH, program, "-o", folder / "small", "--memory-budget", "1KiB"], allowed=(1,)).stdout
    least = re.search(r"smallest budget that compiles: (\d+) bytes", refusal)
    if verdicts.expect(least, "%s: no smallest budget in\n%s" % (name, refusal)):
        exe = programs.compiled(program, stem + "-small", "--memory-budget", least.group(1))
        verdicts.expect(programs.run(exe, folder, 2).bytes == want, name + ": bits differ at the smallest budget")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12, help="drawn chains")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=2, help="numbers of rows that are tried of each")
    parser.add_argument("--only", default="", help="of the chains, those whose name has this in it")
    options = parser.parse_args()
    list_of = [case for case in chains()]
    for number in range(options.count):
        rng = random.Random(1000 * options.seed + number)
        list_of.append(("drawn %d" % (1000 * options.seed + number), drawn(rng), False))
    work = [case for case in list_of if options.only in case[0]]
    programs.in_parallel(lambda case: check(*case, random.Random(case[0] + str(options.seed)), options.most), work)


if __name__ == "__main__":
    verdicts.run(main)
