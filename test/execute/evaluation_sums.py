#!/usr/bin/python3
"""Sums of an evaluation go over all batches of a data set: means, sums, counts, tables and means of classes of 20 million rows are those of
NumPy in f64, rounded once; and they have the same bits under every micro-batch, for every CPU, number of threads and of workers, and for a GPU.
"""
import json

import numpy as np

import programs
import standin

ROWS = 20_000_000  # nine tenths of them are more than 2^24, beyond which an f32 does not count by ones
FEW = 5_003        # for plans, the last batch of which is not full
PROGRAM = """dim B = %d batch, C = 2
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B] scale 1/10, y: i32[B] below C)
model net(x: f32[B]) -> f32[B] {
  param w: f32[] ~ zeros
  return x + w
}
train net on train seed 3 {
  p = net(x)
  loss = mean[B] (p - 3) ^ 2
  guess = p > 0.15
  c = range[C]
  given[b, i] = where(y[b] == c[i], 1.0, 0.0)
  guessed[b, j] = where(c[j] == 1 and guess[b] or c[j] == 0 and not guess[b], 1.0, 0.0)
  table[i, j] = sum[b] given[b, i] * guessed[b, j]
  classes[i] = (sum[b] given[b, i] * p[b]) / (sum[b] given[b, i])
  metric average = mean[B] p
  metric total = sum[B] p
  metric spread = mean[B] (p - mean[B] p) ^ 2
  metric chosen = mean[B where y == 1] p
  metric flags = sum[B] (y == 1)
  metric table = table
  metric classes = classes
  optimizer sgd(lr = 1)
  steps 1
}
"""
verdicts = programs.Verdicts()


def make_data(name, rows):
    folder = programs.FOLDER / name
    folder.mkdir()
    rng = np.random.default_rng(5)
    x = rng.choice(np.array([0, 2, 3], np.uint8), rows, p=[0.05, 0.6, 0.35])
    y = (rng.random(rows) < 0.95).astype(np.uint8)
    np.save(folder / "x.npy", x), np.save(folder / "y.npy", y)
    return folder, x, y


def expected(x, y):
    p = (x.astype(np.float32) * np.float32(0.1)).astype(np.float64)
    guess = p > 0.15
    return {
        "loss": ((p - 3) ** 2).mean(),
        "average": p.mean(),
        "total": p.sum(),
        "spread": p.var(),
        "chosen": p[y == 1].mean(),
        "flags": (y == 1).sum(),
        "table": [[((y == i) & (guess == j)).sum() for j in range(2)] for i in range(2)],
        "classes": [p[y == i].mean() for i in range(2)],
    }


def printed_by(done):
    return json.loads(done.stdout.strip().splitlines()[-1])


def evaluated(exe, folder, *flags):
    """The metrics that `eval` prints of the initial parameters."""
    start = programs.run(exe, folder, 0, *flags)
    return printed_by(programs.call([exe, "eval", "--data", folder, "--out", start.out, *flags]))


def many_rows():
    folder, x, y = make_data("many", ROWS)
    printed = evaluated(programs.compiled(programs.source("many", PROGRAM % 50_000), "many-exe"), folder)
    for metric, value in expected(x, y).items():
        error = np.abs(np.array(printed[metric]) / np.array(value) - 1).max()
        verdicts.expect(error <= 3e-7, "%s of %d rows is %r, NumPy says %r" % (metric, ROWS, printed[metric], value))


def same_bits():
    folder, x, y = make_data("few", FEW)
    program = programs.source("few", PROGRAM % 48)
    first = None
    for number, flags in enumerate((["--microbatch", "48"], ["--microbatch", "1"], ["--microbatch", "16", "--cpu", "haswell"], ["--replicas", "2"])):
        exe = programs.compiled(program, "few%d" % number, "--max-threads", "3", *flags)
        printed = evaluated(exe, folder, "--threads", str(1 + number % 3))
        first = first or printed
        verdicts.expect(printed == first, "%s: %s instead of %s" % (" ".join(flags), printed, first))
    for flags in (["--microbatch", "48"], ["--microbatch", "16"]):
        built = standin.Program(program, "few-device" + flags[1], *flags)
        out = programs.FOLDER / (built.name + "-out")
        built.run("--data", folder, "--out", out, "--steps", "0", "--quiet")
        printed = printed_by(built.run("eval", "--data", folder, "--out", out))
        verdicts.expect(printed == first, "GPU, %s: %s instead of %s" % (" ".join(flags), printed, first))
    for metric, value in expected(x, y).items():
        error = np.abs(np.array(first[metric]) / np.array(value) - 1).max()
        verdicts.expect(error <= 3e-7, "%s of %d rows is %r, NumPy says %r" % (metric, FEW, first[metric], value))

def main():
    many_rows()
    same_bits()


if __name__ == "__main__":
    verdicts.run(main)
