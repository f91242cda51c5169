#!/usr/bin/python3
"""Loops along an axis (scan_cases.py). The loss is compared with a NumPy loop in f64, gradients with central differences of it; and every micro-batch,
strategy, CPU and number of threads must leave the same bits.
"""

import numpy as np

import programs
from scan_cases import CASES, DRAWS, PROGRAM, linear, loss_of, program_of, sigmoid

verdicts = programs.Verdicts()


def make_data():
    rng = np.random.default_rng(7)
    folder = programs.FOLDER / "data"
    folder.mkdir()
    data = {
        "x": rng.normal(size=(12, 8, 3)).astype(np.float32),
        "k": rng.integers(0, 7, (12, 8)).astype(np.int32),
        "m": rng.normal(size=(12, 2, 4)).astype(np.float32),
        "w": rng.normal(size=(12, 8, 4)).astype(np.float32),
    }
    for field, values in data.items():
        np.save(folder / (field + ".npy"), values)
    return folder, [v[:6].astype(v.dtype if v.dtype == np.int32 else np.float64) for v in data.values()]


def in_f64(name, folder, data):
    program = programs.source("f64-" + name.replace(" ", "-"), program_of(name))
    exe = programs.compiled(program, program.stem, "--set", "train.precision=f64", "--microbatch", "2")
    start = programs.run(exe, folder, 0).parameters
    result = programs.run(exe, folder, 1)
    expected = loss_of(name, start, data)
    verdicts.expect(
        abs(result.losses[0] - expected) <= 1e-11 * max(1, abs(expected)),
        "%s: the loss is %r, NumPy says %r" % (name, result.losses[0], expected),
    )
    for path, value in start.items():
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = {other: v.copy() for other, v in start.items()}
                moved[path][at] += step
                sides.append(loss_of(name, moved, data))
            gradient[at] = (sides[0] - sides[1]) / 2e-5
        error = np.abs(value - result.parameters[path] - gradient).max()
        verdicts.expect(
            error <= 1e-7 * max(1e-2, np.abs(gradient).max()), "%s: gradient of %s is off by %.3g" % (name, path, error)
        )


def same_bits(name, folder):
    program = programs.source("bits-" + name.replace(" ", "-"), program_of(name))
    first = None
    for number, flags in enumerate(
        (
            ["--microbatch", "6", "--remat", "none"],
            ["--microbatch", "1", "--remat", "all"],
            ["--microbatch", "3", "--remat", "sqrt", "--order-seed", "3"],
            ["--microbatch", "2", "--cpu", "haswell"],
        )
    ):
        exe = programs.compiled(program, program.stem + str(number), "--max-threads", "3", *flags)
        result = programs.run(exe, folder, 2, "--threads", str(1 + number % 3))
        first = first or result
        verdicts.expect(
            result.bytes == first.bytes and result.losses == first.losses, "%s under %s: other bits" % (name, " ".join(flags))
        )
    # The smallest budgets that refusals name, at any micro-batch and at the largest, where loops run in runs of trips.
    for flags in ([], ["--microbatch", "6"], ["--microbatch", "6", "--remat", "optimal"]):
        refusal = programs.compiled(program, "refused", "--memory-budget", "1KiB", *flags, allowed=(1,))
        least = int(programs.re.search(r"smallest budget that compiles: (\d+) bytes", refusal.stdout).group(1))
        exe = programs.compiled(program, program.stem + "-least", "--memory-budget", str(least), *flags)
        result = programs.run(exe, folder, 2)
        verdicts.expect(result.bytes == first.bytes and result.losses == first.losses, name + " at the smallest budget: other bits")
        verdicts.expect(result.peak <= least, "%s: peak %d above the budget %d" % (name, result.peak, least))


def lstm_gradients(p, x, w):
    """Loss and gradients of one LSTM layer by backpropagation through time, written out for itself."""
    n, rows, steps = 4, len(x), x.shape[1]
    u = linear(p, "r.inputs", x)
    h = c = np.zeros((rows, n))
    kept, loss = [], 0
    for t in range(steps):
        g = u[:, t] + linear(p, "r.cell.hidden", h)
        i, f, a, o = sigmoid(g[:, :n]), sigmoid(g[:, n : 2 * n]), np.tanh(g[:, 2 * n : 3 * n]), sigmoid(g[:, 3 * n :])
        kept.append((h, c, i, f, a, o))
        c = f * c + i * a
        h = o * np.tanh(c)
        loss += ((h + h**2) * w[:, t]).sum() / rows
    grads = {path: np.zeros_like(value) for path, value in p.items()}
    dh, dc = np.zeros((rows, n)), np.zeros((rows, n))
    for t in reversed(range(steps)):
        before, cell, i, f, a, o = kept[t]
        after = f * cell + i * a
        top = np.tanh(after)
        dh = dh + (1 + 2 * o * top) * w[:, t] / rows
        dc = dc + dh * o * (1 - top**2)
        dg = np.concatenate([dc * a * i * (1 - i), dc * cell * f * (1 - f), dc * i * (1 - a**2), dh * top * o * (1 - o)], 1)
        grads["r.inputs.weight"] += dg.T @ x[:, t]
        grads["r.cell.hidden.weight"] += dg.T @ before
        for path in ("r.inputs.bias", "r.cell.hidden.bias"):
            grads[path] += dg.sum(0)
        dh, dc = dg @ p["r.cell.hidden.weight"], dc * f
    return loss, grads


def ten_steps(folder):
    """Adam with a clipped norm against NumPy, in f64."""
    text = program_of("lstm").replace("sgd(lr = 1)", "adam(lr = 0.01)\n  clip norm(0.5)").replace("steps 2", "steps 10")
    program = programs.source("ten-steps", text)
    exe = programs.compiled(program, "ten-steps", "--set", "train.precision=f64", "--microbatch", "3")
    p = programs.run(exe, folder, 0).parameters
    result = programs.run(exe, folder, 10)
    x, w = (np.load(folder / (name + ".npy")).astype(np.float64) for name in "xw")
    first, second = ({path: np.zeros_like(value) for path, value in p.items()} for _ in range(2))
    for step in range(10):
        rows = slice(6 * (step % 2), 6 * (step % 2) + 6)
        loss, grads = lstm_gradients(p, x[rows], w[rows])
        verdicts.expect(abs(result.losses[step] - loss) <= 1e-9 * max(1, abs(loss)), "ten steps: loss %d is %r, NumPy says %r" % (step, result.losses[step], loss))
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        for path, g in grads.items():
            g = g * min(1, 0.5 / (norm + 1e-6))
            first[path] = 0.9 * first[path] + 0.1 * g
            second[path] = 0.999 * second[path] + 0.001 * g**2
            m, v = first[path] / (1 - 0.9 ** (step + 1)), second[path] / (1 - 0.999 ** (step + 1))
            p[path] = p[path] - 0.01 * m / (np.sqrt(v) + 1e-8)
    for path, value in p.items():
        error = np.abs(value - result.parameters[path]).max()
        verdicts.expect(error <= 1e-9, "ten steps: %s is off by %.3g" % (path, error))


def no_keys(folder):
    """A query without any key gives zeros, in the attention that loops are given as in the built-in one."""
    rng = np.random.default_rng(3)
    data = programs.FOLDER / "keys"
    data.mkdir()
    q, k, v = (rng.standard_normal((12, 2, 5, 3)).astype(np.float32) for _ in range(3))
    np.savez(data / "d.npz", q=q, k=k, v=v, m=np.arange(60).reshape(12, 5) % 7 > 1)
    tensors = ", ".join("%s: f32[B, A, T, K]" % name for name in "qkv") + ", m: bool[B, T]"
    source = programs.source("no-keys", """dim B = 6 batch, T = 5, A = 2, K = 3
data train = npz("d.npz") -> (%s)
model net(%s) -> (f32[B, A, T, K], f32[B, A, T, K]) {
  param w: f32[K, K] ~ normal(0.5)
  return attend(q @ w, k, v, m, causal = true), attend_written(q @ w, k, v, m, causal = true)
}
train net on train seed 3 {
  a, b = net(q, k, v, m)
  loss = mean[B, A, T, K] (a + b) ^ 2
  predict a = a
  predict b = b
  optimizer sgd(lr = 0.1)
  steps 3
}
""" % (tensors, tensors))
    exe, out = programs.compiled(source, "no-keys"), programs.FOLDER / "out-keys"
    programs.call([exe, "--data", data, "--out", out, "--quiet"])
    programs.call([exe, "predict", "--on", "train", "--data", data, "--out", out])
    a, b = (np.load(out / ("predict/train/%s.npy" % name)) for name in "ab")
    verdicts.expect(np.abs(a - b).max() < 1e-5, "attention with masks, written out: differs by %g" % np.abs(a - b).max())
    empty = (np.abs(a).sum(-1) == 0).any()
    verdicts.expect(empty and ((a == 0) == (b == 0)).all(), "a query without keys gives no zeros")


def bad_number(folder):
    """A number that is not finite is named with its op and example, in whichever trip it comes up."""
    layers = "layer cell(h: f32[B, H], m: f32[B, H]) -> f32[B, H] {\n  param a: f32[H] ~ constant(30)\n  return exp(h * a + m)\n}"
    text = PROGRAM % {
        "layers": layers,
        "model": "  use c = cell\n  return scan[T] c(0, expand[T, B, H](m[:, 0]))",
        "result": "f32[T, B, H]",
        "over": "mean",
        "loss": "sum[T, H] h",
    }
    exe = programs.compiled(programs.source("bad-number", text), "bad-number", "--microbatch", "3")
    done = programs.call([exe, "--data", folder, "--out", programs.FOLDER / "out-bad"], allowed=(4,))
    said = done.stdout + (done.stderr or "")
    verdicts.expect("exp made the first number that is not finite" in said and "of the batch" in said, "a bad number in a loop: " + said[-400:])


def main():
    folder, data = make_data()
    bad_number(folder)
    no_keys(folder)
    ten_steps(folder)
    programs.in_parallel(lambda name: in_f64(name, folder, data), CASES)
    programs.in_parallel(lambda name: same_bits(name, folder), {**CASES, **DRAWS})


verdicts.run(main)
