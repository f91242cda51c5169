#!/usr/bin/python3
"""Chains of convolutions, pools and element-wise work in bands of image rows: every number of rows, micro-batch and number of threads must
leave the bits of the whole images, at odd heights, with strides and dilations, at the smallest budget too. So must chains of one axis.

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

PROGRAM = """dim B = %(batch)d batch
data train = npy("x.npy", "v.npy", "m.npy", shuffle = false) -> (x: f32[B, %(image)s], v: f32[B, %(shape)s], m: f32[B, %(longer)s])
model net(x: f32[B, %(image)s], v: f32[B, %(shape)s], m: f32[B, %(longer)s]) -> f32[B] {
  param g: f32[%(image)s] ~ uniform(1)
%(lines)s
  s[b] = sum[c, %(axes)s] (%(value)s[b, c, %(axes)s] + 0.3 * %(value)s[b, c, %(axes)s] ^ 2) * v[b, c, %(axes)s]
  return s
}
train net on train seed 3 {
  loss = mean[B] net(x, v, m)
  optimizer sgd(lr = 0.02)
  steps 2
}
"""
verdicts = programs.Verdicts()


def listed(numbers):
    return ", ".join(str(number) for number in numbers)


class Chain:
    """Layers one after the other, on images of (height, width) or on lines of (length): each a text of the language, and the shape behind it."""

    def __init__(self, *size):
        self.shape = self.image = (2,) + size
        self.axes = "h, w" if len(size) == 2 else "l"
        self.lines, self.count = [], 0
        self.longer = (size[0] + 1,) + size[1:] # of a tensor with one row more than the image
        self.value = "y0"

    def add(self, text, shape):
        self.count += 1
        self.shape, before, self.value = shape, self.value, "y%d" % self.count
        self.lines.append("  %s = %s" % (self.value, text.replace("@", before)))
        return self

    def conv(self, out, kernel, stride=1, dilate=1, groups=1, pad=None, tall=None):
        channels, *size = self.shape
        taps = [kernel if tall is None else tall, kernel][-len(size) :]
        pad = dilate * (max(taps) - 1) // 2 if pad is None else pad
        shape = (out,) + tuple((n + 2 * pad - dilate * (k - 1) - 1) // stride + 1 for n, k in zip(size, taps))
        name, bias = "w%d" % self.count, "b%d" % self.count
        self.lines.append("  param %s: f32[%s] ~ uniform(0.4)" % (name, listed([out, channels // groups] + taps)))
        self.lines.append("  param %s: f32[%d] ~ uniform(0.5)" % (bias, out))
        self.add("conv%dd(@, %s, stride = %d, pad = %d, dilate = %d, groups = %d)" % (len(size), name, stride, pad, dilate, groups), shape)
        return self.each("relu(% + " + bias + "[c])")

    def at(self, value):
        return "%s[b, c, %s]" % (value, self.axes)

    def each(self, text):
        before = self.at("y%d" % self.count)
        self.add("", self.shape)
        self.lines[-1] = "  %s = %s" % (self.at(self.value), text.replace("%", before))
        return self

    def pool(self, kind, window=2, stride=2):
        channels, *size = self.shape
        shape = (channels,) + tuple((n - window) // stride + 1 for n in size)
        return self.add("%s_pool%dd(@, %d, stride = %d)" % (kind, len(size), window, stride), shape)

    def plus(self, other):
        return self.each("% + " + self.at(other))

    def watched(self):
        """A state that is made of the rows here, and of as many of the longer tensor."""
        size, axes = self.shape[1:], self.axes
        self.lines.append("  state seen: f32[%s] ~ zeros" % listed(size))
        self.lines.append("  later = m[:, 1:%d%s]" % (size[0] + 1, ", :" * (len(size) - 1)))
        self.lines.append("  t[b, %s] = sum[c] %s * later[b, %s]" % (axes, self.at(self.value), axes))
        self.lines.append("  update seen = mean[B] (t ^ 2)")
        return self

    def text(self):
        lines = ["  %s = %s * g[c, %s]" % (self.at("y0"), self.at("x"), self.axes)] + self.lines
        return PROGRAM % dict(batch=B, image=listed(self.image), shape=listed(self.shape), longer=listed(self.longer), axes=self.axes, value=self.value, lines="\n".join(lines))


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
    yield "stride 2, odd inside", Chain(26, 9).conv(30, 3, stride=2).conv(30, 3).conv(1, 3), True
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
    yield "rows of a longer tensor", Chain(16, 9).conv(WIDE, 3).conv(WIDE, 3).watched().conv(1, 3), True
    many = lambda h, w, **more: Chain(h, w).conv(16, 3).conv(20, 3, **more).conv(16, 3).conv(1, 3)
    yield "many channels", many(16, 9), True
    for height in (9, 10, 15):
        yield "many channels, %d rows" % height, many(height, 8), True
    yield "many channels, stride 2", many(32, 18, stride=2), True
    yield "many channels, no padding", Chain(16, 10).conv(16, 3).conv(20, 3, pad=0).conv(16, 3, pad=2).conv(1, 3), False
    # Filters' gradients by Winograd's minimal filtering, too: of 2 rows together, and of 4. None of these divides an odd number of rows.
    more = lambda h, w: Chain(h, w).conv(32, 3).conv(35, 3).conv(32, 3).conv(1, 3)
    yield "more channels", more(16, 34), True
    yield "more channels, short rows", more(24, 15), True
    yield "more channels, odd rows", more(9, 34), False
    yield "line", Chain(64).conv(WIDE, 3).conv(WIDE, 5, dilate=2).conv(1, 3), True
    yield "line of 17, stride 2", Chain(34).conv(WIDE, 3).conv(WIDE, 3, stride=2).conv(1, 3), True
    yield "line, largest", Chain(36).conv(WIDE, 3).pool("max").conv(WIDE, 3).pool("avg").conv(1, 3), True
    yield "line, depthwise and residual", (lambda c: c.conv(WIDE, 3, groups=WIDE).plus(c.kept).conv(1, 1))(kept(Chain(40).conv(WIDE, 3))), True
    yield "line of one", Chain(1).conv(WIDE, 3).conv(1, 3), False


def kept(chain):
    chain.kept = chain.value
    return chain


def drawn(rng):
    """A chain that nobody would write."""
    size = rng.choice([1, 2, 3, 5, 6, 8, 12, 13, 16, 17, 20]), rng.randint(1, 12)
    chain = Chain(*size) if rng.random() < 0.75 else Chain(size[0] * size[1])
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
            chain.each(rng.choice(["tanh(%)", "0.5 * % + 0.1", "exp(0.1 * %)"]))
    return chain.conv(1, rng.choice([1, 3]))


def sizes_of(program):
    """Numbers of rows that a block of one example may have, all of its rows included; none where nothing runs in blocks. Some kernels need two rows
    or four together."""
    for least in (1, 2, 4):
        plan = programs.call([programs.CINCH, "plan", program, "--json", "--row-blocks", str(least), "--microbatch", "1"], allowed=(0, 1))
        if plan.returncode == 0:
            ranges = json.loads(plan.stdout[plan.stdout.index('{\n"') :])["row_blocks"]  # warnings stand before it
            positions = least * max((part["blocks"] for part in ranges), default=1)
            return [rows for rows in range(least, positions + 1, least) if positions % rows == 0]
    return []


def check(name, chain, must, rng, most):
    stem = re.sub(r"\W+", "-", name)
    folder = programs.FOLDER / stem
    folder.mkdir()
    data = np.random.default_rng(len(name))
    np.save(folder / "x.npy", data.normal(size=(2 * B,) + chain.image).astype(np.float32))
    np.save(folder / "v.npy", data.normal(size=(2 * B,) + chain.shape).astype(np.float32))
    np.save(folder / "m.npy", data.normal(size=(2 * B,) + chain.longer).astype(np.float32))
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
