#!/usr/bin/python3
"""Reversible layers: in f64 loss and gradients against NumPy, which keeps everything; the same bits under every plan, CPU and number of
threads, at the smallest budget too; what is alive of the activations does not grow with depth; layers that are no coupling are refused.
"""

import json
import re

import numpy as np

import programs
from tape import Node, backward, lift

B, T, D = 6, 5, 8
HEAD = """dim B = %d batch, T = %d, D = %d
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, T, D], v: f32[B, T, D])
""" % (B, T, D)
TAIL = """train net on train seed 5 {
  loss = mean[B] sum[T, D] net(x) * v
  optimizer %s
  steps 3
}
"""
# A chain of three, then a part that is not reversible, then two more whose first takes one value as both streams.
MODEL = """layer mix(x: f32[B, T, D]) -> f32[B, T, D] {
  param w: f32[T, T] ~ normal(0.4)
  y[b, t, d] = sum[s] w[t, s] * x[b, s, d]
  return tanh(y)
}
layer wide(x: f32[B, T, D]) -> f32[B, T, D] {
  use up = linear[2 * D], down = linear[D]
  return down(sigmoid(up(x)))
}
reversible layer block(x1: f32[B, T, D], x2: f32[B, T, D]) -> (f32[B, T, D], f32[B, T, D]) {
  use f = mix, g = wide
  y1 = f(x2) + x1
  return y1, x2 + g(y1)
}
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use first = repeat 3 block, between = linear[D], last = repeat 2 block
  param p: f32[T, D] ~ normal(1)
  a, b = first(x * p, x + p)
  h = tanh(between(a * b))
  c, d = last(h, h)
  return c + d * 0.5
}
"""
# Only bits are compared: draws, norms with states, a hint, images.
DRAWN = """layer noisy(x: f32[B, T, D]) -> f32[B, T, D] {
  use l = linear[D], n = batch_norm(group = 3)
  h = reshape[B, T * D](l(x))
  @checkpoint
  m = n(h)
  return dropout(relu(reshape[B, T, D](m)), 0.3)
}
layer image(x: f32[B, T, D]) -> f32[B, T, D] {
  use c = conv[3, 3], e = conv[1, 3]
  return reshape[B, T, D](e(relu(c(reshape[B, 1, T, D](x)))))
}
reversible layer block(x1: f32[B, T, D], x2: f32[B, T, D]) -> (f32[B, T, D], f32[B, T, D]) {
  use f = noisy, g = image
  y1 = x1 + f(x2)
  y2 = x2 + g(y1)
  return y1, y2
}
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use blocks = repeat 4 block
  param p: f32[T, D] ~ normal(1)
  a, b = blocks(x * p, x)
  return a * b
}
"""
verdicts = programs.Verdicts()



def block(p, name, x1, x2):
    f = tanh(p[name + ".f.w"] @ x2)
    y1 = x1 + f
    up = y1 @ p[name + ".g.up.weight"].t + p[name + ".g.up.bias"]
    down = squash(up) @ p[name + ".g.down.weight"].t + p[name + ".g.down.bias"]
    return y1, x2 + down


def tanh(x):
    y = np.tanh(x.value)
    return Node(y, [(x, lambda g: g * (1 - y * y))])


def squash(x):
    y = 1 / (1 + np.exp(-x.value))
    return Node(y, [(x, lambda g: g * y * (1 - y))])


def loss_of(p, x, v):
    a, b = p["p"] * x, p["p"] + x
    for i in range(3):
        a, b = block(p, "first.%d" % i, a, b)
    h = tanh((a * b) @ p["between.weight"].t + p["between.bias"])
    c, d = h, h
    for i in range(2):
        c, d = block(p, "last.%d" % i, c, d)
    return ((c + d * 0.5) * v).sum() / B


def make_data():
    folder = programs.FOLDER / "data"
    folder.mkdir()
    rng = np.random.default_rng(4)
    data = {name: rng.normal(size=(2 * B, T, D)).astype(np.float32) for name in ("x", "v")}
    for name, values in data.items():
        np.save(folder / (name + ".npy"), values)
    return folder, {name: values[:B].astype(np.float64) for name, values in data.items()}


def against_numpy(folder, data):
    program = programs.source("f64", HEAD + MODEL + TAIL % "sgd(lr = 1)")
    exe = programs.compiled(program, "f64", "--set", "train.precision=f64", "--microbatch", "2")
    start = programs.run(exe, folder, 0).parameters
    after = programs.run(exe, folder, 1)
    p = {key: Node(value) for key, value in start.items()}
    loss = loss_of(p, data["x"], data["v"])
    backward(loss)
    verdicts.expect(abs(after.losses[0] - loss.value) <= 1e-10 * (1 + abs(loss.value)), "loss %r, NumPy %r" % (after.losses[0], float(loss.value)))
    for key, value in start.items():
        error = np.abs(value - after.parameters[key] - p[key].grad).max() / (1 + np.abs(p[key].grad).max())
        verdicts.expect(error < 1e-10, "gradient of %s differs by %.1e" % (key, error))


def same_bits(name, model, folder):
    program = programs.source(name, HEAD + model + TAIL % "adam(lr = 0.01)")
    want = programs.run(programs.compiled(program, name + "-base", "--remat", "none", "--microbatch", str(B)), folder, 3).bytes
    ways = [["--microbatch", "3", "--remat", "all"], ["--microbatch", "3", "--remat", "marked", "--order-seed", "7"],
            ["--cpu", "haswell", "--remat", "sqrt"], ["--stages", "2"]]
    if programs.has_avx512():
        ways.append(["--cpu", "skylake-avx512", "--remat", "cheap"])
    refusal = programs.call([programs.CINCH, program, "-o", folder / "small", "--memory-budget", "1KiB"], allowed=(1,)).stdout
    least = re.search(r"smallest budget that compiles: (\d+) bytes", refusal)
    if verdicts.expect(least, "%s: no smallest budget in\n%s" % (name, refusal)):
        ways.append(["--memory-budget", least.group(1)])
    for number, flags in enumerate(ways):
        exe = programs.compiled(program, "%s-%d" % (name, number), *flags)
        got = programs.run(exe, folder, 3, "--threads", str(1 + number % 3))
        verdicts.expect(got.bytes == want, "%s: bits differ with %s" % (name, " ".join(flags)))


DEEP = """dim B = 64 batch, D = 64, N = 10
data train = npy("x.npy") -> (x: f32[B, D])
reversible layer block(x1: f32[B, D], x2: f32[B, D]) -> (f32[B, D], f32[B, D]) {
  use f = linear[D], g = linear[D]
  y1 = x1 + relu(f(x2))
  y2 = x2 + relu(g(y1))
  return y1, y2
}
model net(x: f32[B, D]) -> f32[B, D] {
  use blocks = repeat N block
  param p: f32[D] ~ ones
  a, b = blocks(x * p, x)
  return a + b
}
train net on train seed 1 {
  loss = mean[B, D] net(x) ^ 2
  optimizer sgd(lr = 1e-3)
  steps 2
}
"""


def depth():
    """Bytes beyond parameters and their gradients, where nothing is computed again but what the layers themselves say."""
    program = programs.source("deep", DEEP)
    found = []
    for blocks in (5, 20, 60):
        plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json", "--remat", "none", "--microbatch", "64", "-D", "N=%d" % blocks]).stdout)
        state = blocks * 2 * (64 * 64 + 64) * 4 + 256
        found.append(plan["peak_live"] - 2 * state)
    verdicts.expect(max(found) <= min(found) + 4096, "activations at 5, 20 and 60 blocks: %s bytes" % found)


def block_of(body, signature="x1: f32[B, D], x2: f32[B, D]"):
    return "reversible layer r(%s) -> (f32[B, D], f32[B, D]) {\n%s\n}\n" % (signature, body)


WRONG = {
    "no addition": ("y1 = x1 * x2\n  return y1, x2 + y1", "`x1` and something added"),
    "the first reads itself": ("y1 = x1 + tanh(x1 + x2)\n  return y1, x2 + y1", "depends on it"),
    "the second reads the first stream": ("y1 = x1 + tanh(x2)\n  return y1, x2 + tanh(x1)", "depends on `x1`"),
    "the second reads itself": ("y1 = x1 + tanh(x2)\n  return y1, x2 + tanh(y1 * x2)", "depends on `x2`"),
    "exchanged": ("y1 = x1 + tanh(x2)\n  return x2 + tanh(y1), y1", "`x1` and something added"),
}


def refused():
    for name, (body, words) in WRONG.items():
        text = DEEP[: DEEP.index("reversible")] + block_of("  " + body) + DEEP[DEEP.index("model") :].replace("block\n", "r\n")
        text = text.replace("repeat N block", "repeat N r")
        done = programs.call([programs.CINCH, "check", programs.source("wrong", text)], allowed=(1,))
        verdicts.expect("E0705" in done.stdout and words in done.stdout, "%s: %s" % (name, done.stdout))


def main():
    folder, data = make_data()
    refused()
    depth()
    against_numpy(folder, data)
    same_bits("plain", MODEL, folder)
    same_bits("drawn", DRAWN, folder)


verdicts.run(main)
