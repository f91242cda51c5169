#!/usr/bin/python3
"""precision bf16: ten steps against NumPy that rounds where the rules say, bit for bit, results of `predict` too; the same bits under
every plan, CPU and number of threads, at the smallest budget, stopped and resumed under another plan; rounded values take two bytes;
gradients are near those in f32. A GPT predicts what NumPy says of the
parameters that it was trained to, but for single roundings.   bf16.py [--all: more plans]
"""

import json

import numpy as np

import programs  # first: it finds the folder of the oracles
import rounding
from rounding import product, rounded
from same_bits import ALL, check_bits, check_near_f32

STEPS = 10
PRECISION = "precision bf16(master = f32, accumulate = f32)"
verdicts = programs.Verdicts()
expect = verdicts.expect

def column_sum(x):
    total = np.zeros(x.shape[1], np.float32)
    for row in x:
        total = total + row
    return total


# ---- Ten steps ---------------------------------------------------------------------------------------------------------
MLP = """dim B = %d batch, T = %d, I = %d, H = %d, C = 5
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, T, I], v: f32[B, T, C])
model net(x: f32[B, T, I]) -> f32[B, T, C] {
  use a = linear[H], b = linear[C]
  h = relu(a(x))
  return b(h)
}
train net on train seed 5 {
  loss = mean[B] sum[T, C] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  %s
  steps 10
}
"""


def mlp_data(folder, B, T, I):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    x, v = rng.standard_normal((2 * B, T, I)).astype(np.float32), rng.standard_normal((2 * B, T, 5)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "v.npy", v)
    return x, v


def forward(p, x):
    z = rounded(rounded(product(x, p["a.weight"].T)) + p["a.bias"])
    h = np.maximum(z, np.float32(0))
    return z, h, rounded(rounded(product(h, p["b.weight"].T)) + p["b.bias"])


def train_mlp(p, x, v, B, T, grain):
    lr, starts = np.float32(0.0078125), [i * T * (grain or 1) for i in range(B)]
    sums = grained(starts[: B // (grain or 1)], B * T) if grain else (lambda a, b: product(a, b, starts))
    for step in range(STEPS):
        first = step % 2 * B
        xs, vs = x[first : first + B].reshape(B * T, -1), v[first : first + B].reshape(B * T, -1)
        z, h, y = forward(p, xs)
        one = np.float32(1) / np.float32(B) * (y - vs)
        dy = rounded(one + one)
        dh = rounded(product(dy, p["b.weight"]))
        dz = np.where(z > 0, dh, np.float32(0))
        columns = (lambda d: sum_blocks(d, starts[: B // grain], column_sum)) if grain else column_sum
        gradient = {"a.weight": sums(dz.T, xs), "a.bias": columns(dz), "b.weight": sums(dy.T, h), "b.bias": columns(dy)}
        p = {name: value - lr * gradient[name] for name, value in p.items()}
    return p


def sum_blocks(rows, starts, reduce):
    total = None
    for begin, end in zip(starts, [*starts[1:], len(rows)]):
        part = reduce(rows[begin:end])
        total = part + np.float32(0) if total is None else total + part
    return total


def grained(starts, end):
    """Blocks of 32 go over the examples of a grain; the sums of grains are added."""

    def sums(a, b):
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for first, last in zip(starts, [*starts[1:], end]):
            total = total + product(a[:, first:last], b[first:last])
        return total

    return sums


def check_mlp(B, T, I, H, grain=0):
    what = "mlp of %d x %d x %d, %d wide, grain %d" % (B, T, I, H, grain)
    folder = programs.FOLDER / "mlp"
    x, v = mlp_data(folder, B, T, I)
    text = MLP % (B, T, I, H, PRECISION, "grain %d" % grain if grain else "")
    program = programs.source("mlp", text)
    exe = programs.compiled(program, "mlp.exe")
    start = programs.run(exe, folder, 0)
    end = programs.run(exe, folder, STEPS)
    wanted = train_mlp(start.parameters, x, v, B, T, grain)
    for name, value in wanted.items():
        same = np.array_equal(value.view(np.uint32), end.parameters[name].view(np.uint32))
        expect(same, "%s: %s differs by at most %g" % (what, name, np.abs(value - end.parameters[name]).max()))
    programs.call([exe, "predict", "--data", folder, "--out", end.out, "--quiet"])
    y = np.load(next(end.out.glob("predict/**/*.npy")))
    mine = forward(end.parameters, x.reshape(2 * B * T, I))[2].reshape(y.shape)
    expect(np.array_equal(y, mine), "%s: predict differs from the forward pass" % what)
    return program, folder


# ---- The same bits -----------------------------------------------------------------------------------------------------
MIXED = """dim B = 12 batch, T = 64, V = 40, D = 24
data train = npy("t.npy", "u.npy", shuffle = true) -> (t: i32[B, T] below V, u: f32[B, D])
layer block(x: f32[B, T, D]) -> f32[B, T, D] {
  use n = layer_norm, up = linear[2 * D], down = linear[D]
  h = up(n(x))
  return x + dropout(down(gelu(h)), 0.2)
}
model net(t: i32[B, T] below V, u: f32[B, D]) -> f32[B, T, V] {
  param e: f32[V, D] ~ normal(0.3)
  param q: f32[D, D] ~ normal(0.2)
  use blocks = repeat 2 block, n = layer_norm
  w = tanh(q)
  s = reshape[B, 1, D](u @ w)
  h = blocks(e[t] + expand[B, T, D](s))
  m[b, d] = max[i] h[b, i, d]
  k = concat(h[:, :, 0:10], h[:, :, 10:D] * h[:, :, 10:D], axis = -1)
  return n(k + expand[B, T, D](reshape[B, 1, D](m))) @ e'
}
train net on train seed 5 {
  loss = mean[B, T] cross_entropy(net(t, u), t)
  optimizer adamw(lr = 2e-3, decay = 0.01)
  clip norm(1.0)
  %s
  steps 6
}
"""


GPT = """dim B = 6 batch, T = 40, V = 40, D = 24
data train = npy("t.npy", shuffle = true) -> (t: i32[B, T + 1] below V)
model gpt(t: i32[B, T] below V) -> f32[B, T, V] {
  param e: f32[V, D] ~ normal(0.3)
  param q: f32[T, D] ~ normal(0.2)
  use blocks = repeat 2 transformer_block[2, 2 * D](causal = true, rate = 0.1), n = layer_norm
  h = dropout(e[t] + q, 0.1)
  return n(blocks(h)) @ e'
}
train gpt on train seed 5 {
  loss = mean[B, T] cross_entropy(gpt(t[:, :T]), t[:, 1:])
  optimizer adamw(lr = 2e-3, decay = 0.01)
  %s
  steps 4
}
"""


def gpt_data():
    folder = programs.FOLDER / "gpt"
    folder.mkdir(exist_ok=True)
    np.save(folder / "t.npy", np.random.default_rng(4).integers(0, 40, (30, 41)).astype(np.int32))
    return folder


def mixed_data():
    folder = programs.FOLDER / "mixed"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(4)
    np.save(folder / "t.npy", rng.integers(0, 40, (30, 64)).astype(np.int32))
    np.save(folder / "u.npy", rng.standard_normal((30, 24)).astype(np.float32))
    return folder


def check_gpt(trained, folder, exe):
    """What it predicts of the parameters that it was trained to is what NumPy says, but where the last bits of exp and the like decide a
    rounding; rounding a value more or less somewhere changes a tenth of the results and more."""
    p, t = trained.parameters, np.load(folder / "t.npy")
    programs.call([exe, "predict", "--data", folder, "--out", trained.out, "--quiet"])
    y = np.load(next(trained.out.glob("predict/**/*.npy")))
    blocks = sorted({name.rsplit(".ln1", 1)[0] for name in p if ".ln1." in name})
    mine = rounding.gpt(t[:, :-1], p, blocks, 2)
    same, off = np.mean(mine == y), np.abs(mine - y).max() / np.abs(y).max()
    expect(same > 0.98 and off < 0.02, "gpt: %.4f of what is predicted is NumPy's, the rest is off by up to %.4f" % (same, off))


def check_gpt_gradients(folder):
    """After one step of sgd(lr = 1) the parameters have moved by the gradients of NumPy, which rounds where the rules say. What is left of
    the difference comes from single roundings that went the other way: it is a small part of what rounding itself changes, and that is
    measured on the same program in f32."""
    text = (GPT % PRECISION).replace("adamw(lr = 2e-3, decay = 0.01)", "sgd(lr = 1)").replace("rate = 0.1", "rate = 0.0")
    program = programs.source("gpt.plain", text.replace("dropout(e[t] + q, 0.1)", "e[t] + q").replace("shuffle = true", "shuffle = false"))
    end = {}
    for precision in ("f32", "bf16"):
        exe = programs.compiled(program, "gpt.plain." + precision, "--set", "train.precision=" + precision)
        start = programs.run(exe, folder, 0).parameters
        end[precision] = {key: start[key] - value for key, value in programs.run(exe, folder, 1).parameters.items()}
    t = np.load(folder / "t.npy")[:6]
    blocks = sorted({name.rsplit(".ln1", 1)[0] for name in start if ".ln1." in name})
    mine = rounding.gpt_gradients(t[:, :-1], t[:, 1:], start, blocks, 2)
    expect(mine.keys() == start.keys(), "gpt: NumPy has gradients of %s" % ", ".join(mine))
    size = lambda x: float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))
    for key, value in mine.items():
        value = value.reshape(start[key].shape)
        off, rounds = size(value - end["bf16"][key]) / size(value), size(end["f32"][key] - end["bf16"][key]) / size(value)
        expect(off < 0.2 * rounds, "gpt: the gradient of %s is off NumPy's by %.5f of itself, off that in f32 by %.5f" % (key, off, rounds))


def check_bytes(program):
    """What is kept of wide activations halves."""
    peak = {}
    for precision in ("f32", "bf16"):
        done = programs.call([programs.CINCH, "plan", program, "--set", "train.precision=" + precision, "--microbatch", 12,
                              "--remat", "none", "--row-blocks", "none", "--max-threads", 1, "--json"])
        peak[precision] = json.loads(done.stdout)["peak_live"]
    expect(peak["bf16"] < 0.72 * peak["f32"], "bf16 needs %d bytes, f32 %d" % (peak["bf16"], peak["f32"]))


def main():
    check_mlp(3, 13, 33, 65)
    check_mlp(4, 5, 70, 33, grain=2)
    mlp, mlp_folder = check_mlp(6, 45, 20, 93)
    check_bits(verdicts, "mlp", mlp, mlp_folder, STEPS, [["--microbatch", 2, "--row-blocks", 45]])
    mixed, folder = programs.source("mixed", MIXED % PRECISION), mixed_data()
    check_bits(verdicts, "mixed", mixed, folder, 6, [["--row-blocks", 32]] + [["--row-blocks", 64, "--microbatch", 4]] * ALL)
    gpt, gpt_folder = programs.source("gpt", GPT % PRECISION), gpt_data()
    check_gpt(check_bits(verdicts, "gpt", gpt, gpt_folder, 4, []), gpt_folder, programs.FOLDER / "gpt.0")
    check_gpt_gradients(gpt_folder)
    plain = programs.source("attend", (GPT % "").replace("adamw(lr = 2e-3, decay = 0.01)", "sgd(lr = 1)"))
    check_near_f32(verdicts, plain, "attend", gpt_folder)
    check_bytes(mixed)
    if ALL:
        check_bits(verdicts, "grained", programs.source("grained", MIXED % (PRECISION + "; grain 3")), folder, 6, [], (3, 6, 12))
        plain = (MIXED % "").replace("adamw(lr = 2e-3, decay = 0.01)", "sgd(lr = 1)").replace("clip norm(1.0)", "")
        check_near_f32(verdicts, programs.source("plain", plain), "plain", folder)
        check_near_f32(verdicts, mlp, "mlp", mlp_folder)


verdicts.run(main)
