#!/usr/bin/python3
"""`grain g`: sums over examples are taken in blocks of g. A program whose gradients are plain sums of its data, by a
product, a sum of columns, an embedding, and the loss itself: NumPy adds the same numbers in the order the language's
pages give, and every bit must agree, for every micro-batch. A micro-batch that cuts a block is refused.
"""

import itertools

import numpy as np

import programs

PROGRAM = """dim B = 12 batch, T = 3, D = 21, O = 4, V = 6
data train = npy("x.npy", "ids.npy", "c.npy", shuffle = false)
    -> (x: f32[B, T, D], ids: i32[B, T] below V, c: f32[B])
model net(x: f32[B, T, D], ids: i32[B, T] below V) -> f32[B] {
  param w: f32[D, O] ~ zeros
  param b: f32[D] ~ zeros
  param e: f32[V, D] ~ zeros
  y[i, t, o] = sum[d] x[i, t, d] * w[d, o]
  return sum[T, O] y + sum[T, D] x * b + sum[T, D] x * e[ids]
}
train net on train seed 1 {
  loss      = sum[B] (net(x, ids) + c)
  optimizer sgd(lr = 1)
  steps     1
}
"""
verdicts = programs.Verdicts()


def sums(data, grain, dtype):
    """The gradients and the loss while all parameters are 0."""
    x, ids, c = data
    x, c = x.astype(dtype), c.astype(dtype)
    batch, positions, width = x.shape
    columns, rows, loss = np.zeros(width, dtype), np.zeros((6, width), dtype), dtype(0)
    for first in range(0, batch, grain):
        block, block_rows, block_loss = np.zeros(width, dtype), np.zeros((6, width), dtype), dtype(0)
        for b in range(first, first + grain):
            for t in range(positions):
                block = block + x[b, t]
                block_rows[ids[b, t]] += x[b, t]
            block_loss = block_loss + c[b]
        columns, rows, loss = columns + block, rows + block_rows, loss + block_loss
    return {"w": np.repeat(columns[:, None], 4, axis=1), "b": columns, "e": rows}, loss


def check(data, folder, sizes, grain, microbatch, threads, f64):
    batch = sizes["B"]
    label = "%s, grain %s, micro-batch %d, %d threads, %s" % (sizes, grain, microbatch, threads, "f64" if f64 else "f32")
    flags = [flag for name, size in sizes.items() for flag in ("-D", "%s=%d" % (name, size))]
    flags += ["--microbatch", str(microbatch), "--remat", "none", "--max-threads", "3"]
    flags += ["--set", "train.grain=%d" % grain] if grain else []
    flags += ["--set", "train.precision=f64"] if f64 else []
    name = "grain-" + "-".join(str(part) for part in (sizes["T"], grain, microbatch, int(f64)))
    try:
        exe = programs.compiled(programs.source(name + "-%d" % threads, PROGRAM), name + "-%d" % threads, *flags)
        result = programs.run(exe, folder, 1, "--threads", str(threads))
    except programs.Failure as failure:
        verdicts.expect(False, "%s: %s" % (label, failure))
        return
    dtype = np.float64 if f64 else np.float32
    expected, loss = sums(data, grain or batch, dtype)
    for path, value in expected.items():
        wrong = int((result.parameters[path] != -value).sum())
        verdicts.expect(wrong == 0, "%s: %d of %d elements of %s are other sums" % (label, wrong, value.size, path))
    got = [dtype(value) for value in result.losses]
    verdicts.expect(got == [loss], "%s: the loss is %r, expected %r" % (label, got, loss))


def closer_to_f64(data):
    """What a grain is for: blocks of long sums are more accurate than one chain."""
    exact = sums(data, 1, np.float64)[0]["b"]
    blocks, chain = (np.abs(sums(data, grain, np.float32)[0]["b"] - exact).mean() for grain in (1, len(data[0])))
    verdicts.expect(blocks < 0.5 * chain, "blocks are off by %.3g, one chain by %.3g" % (blocks, chain))


def refused(microbatch):
    done = programs.compiled(
        programs.source("cut", PROGRAM), "cut", "--set", "train.grain=4", "--microbatch", str(microbatch), allowed=(1,)
    )
    text = getattr(done, "stdout", "it compiles")
    verdicts.expect(
        "multiple of 4, the examples that belong together (grain, groups), got %d; nearest: 4 and 12" % microbatch in text,
        "a micro-batch of %d and a grain of 4: %s" % (microbatch, text[-300:]),
    )


def main():
    rng = np.random.default_rng(5)
    cases = []
    for batch, positions in ((12, 3), (12, 700)):  # the latter: a block of a product is several blocks of its kernel
        data = (
            rng.random((batch, positions, 21)).astype(np.float32),
            rng.integers(0, 6, (batch, positions)).astype(np.int32),
            rng.standard_normal(batch).astype(np.float32),
        )
        folder = programs.FOLDER / ("data%d" % positions)
        folder.mkdir()
        for name, values in zip(("x", "ids", "c"), data):
            np.save(folder / (name + ".npy"), values)
        sizes = {"B": batch, "T": positions}
        for grain, (microbatch, threads) in itertools.product((None, 1, 2, 6, 12), ((12, 1), (6, 3), (2, 2), (1, 3))):
            if microbatch % (grain or 1) == 0:
                cases.append((data, folder, sizes, grain, microbatch, threads, False))
        cases.append((data, folder, sizes, 2, 6, 2, True))
    closer_to_f64(cases[-1][0])
    programs.in_parallel(lambda case: check(*case), cases)
    for microbatch in (6, 5):
        refused(microbatch)
    verdicts.finish()


main()
