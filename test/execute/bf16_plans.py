#!/usr/bin/python3
"""precision bf16 of whole models, with convolutions, pools, batch norms, loops and reversible layers: the same bits under every plan, CPU,
number of threads and of workers, at the smallest budget, stopped and resumed; gradients are near those in f32.
bf16_plans.py [--all: more plans and models]
"""

import numpy as np

import programs
from same_bits import ALL, check_bits, check_near_f32

PRECISION = "precision bf16(master = f32, accumulate = f32)"
verdicts = programs.Verdicts()


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


# A program of the examples, made smaller: what is written otherwise in it.
SMALL = {
    "resnet": [("B = 128", "B = 12"), ("S = 32", "S = 8"), ("F = 64", "F = 5"), ("G = 32", "G = 3")],
    "mobilenet": [("B = 128", "B = 12"), ("S = 32", "S = 16"), ("G = 32", "G = 3")],
    "revnet": [("B = 128", "B = 12"), ("S = 32", "S = 8"), ("G = 32", "G = 3"), ("N = 9", "N = 2"), ("M = 32", "M = 3")],
    "unet": [("B = 32", "B = 12"), ("S = 64", "S = 16"), ("F = 16", "F = 4")],
}
LOOPS = """dim B = 12 batch, T = 35, I = 5, H = 17, K = 3
data train = npy("x.npy", "v.npy", shuffle = true) -> (x: f32[B, T, I], v: f32[B, T, K])
layer step(h: f32[B, H], p: f32[B, H], m: f32[B, 6, H], x: f32[B, H]) -> (f32[B, H], f32[B, H]) {
  use n = layer_norm, u = linear[H]
  s[b, i] = sum[d] m[b, i, d] * h[b, d]
  w = softmax(s)
  r[b, d] = sum[i] w[b, i] * m[b, i, d]
  y = tanh(n(u(h) + x) * 0.2 + r * 0.5)
  return y, p * 0.5 + y * x
}
model net(x: f32[B, T, I]) -> f32[B, T, K] {
  use a = lstm[H], b = gru[H], again = repeat 3 shared linear[H], c = step, l = linear[K]
  h = a(x)
  g = dropout(b(h), 0.1)
  m = again(g[:, 0:6] + h[:, 6:12])
  first = again(h[:, 0])
  k, p = scan[T] c(first, 0, m, g)
  return l(k + p * h)
}
train net on train seed 5 {
  loss = mean[B] sum[T, K] (net(x) - v) ^ 2
  optimizer adamw(lr = 2e-3, decay = 0.01)
  clip norm(1.0)
  %s
  steps 4
}
"""
# Weights of whole blocks, which AMX reads in place, in a loop and in a loop of a loop.
NESTED = """dim B = 12 batch, T = 7, P = 4, H = 32, K = 3
data train = npy("x.npy", "v.npy", shuffle = true) -> (x: f32[B, T, P, H], v: f32[B, T, K])
layer inner(h: f32[B, H], x: f32[B, H]) -> f32[B, H] {
  use u = linear[H]
  return tanh(u(h) + x)
}
layer outer(h: f32[B, H], x: f32[B, P, H]) -> f32[B, H] {
  use i = inner, w = linear[H]
  y = scan[P] i(h, x)
  return w(y[:, 3]) + h * 0.5
}
model net(x: f32[B, T, P, H]) -> f32[B, T, K] {
  use o = outer, l = linear[K]
  return l(scan[T] o(0, x))
}
train net on train seed 5 {
  loss = mean[B] sum[T, K] (net(x) - v) ^ 2
  optimizer adamw(lr = 2e-3, decay = 0.01)
  %s
  steps 4
}
"""
IMAGES = """dim B = 12 batch, S = 11, K = 4
data train = npy("x.npy", "v.npy", shuffle = true) -> (x: f32[B, 3, S, S], v: f32[B, K])
layer pooled[C?](x: f32[B, C, S, S]) -> f32[B, C, 4, 4] {
  use n = batch_norm(group = 3), c = conv[C, 3, 3, 1, g = C]
  return c(n(x)) + avg_pool2d(x, 3, stride = 3, pad = 1) * max_pool2d(x, 3, stride = 3, pad = 1)
}
model net(x: f32[B, 3, S, S]) -> f32[B, K] {
  use a = conv[33, 5], p = pooled, d = conv[66, 3, g = 33], e = conv[2, 3, g = 2], t = conv_transpose[5, 3, 2], l = linear[K]
  param w: f32[7, 5, 2, 3] ~ normal(0.2)
  param q: f32[7, 5, 2, 3] ~ normal(0.2)
  h = relu(a(x))
  m = e(gelu(d(p(h))))
  y = conv2d(t(m), w * tanh(q), stride = 2, pad = 1)
  return l(reshape[B, 7 * 5 * 5](y))
}
train net on train seed 5 {
  loss = mean[B] sum[K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.01, momentum = 0.9)
  %s
  steps 4
}
"""


def example(name):
    path = programs.HERE.parent.parent / "examples" / name / (name + ".cinch")
    text = path.read_text()
    for old, new in SMALL[name]:
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text.replace("  optimizer ", "  %s\n  optimizer " % PRECISION, 1)


def pictures(folder, rng, side):
    folder.mkdir(exist_ok=True)
    rows = rng.integers(0, 256, (12, 1 + 3 * side * side)).astype(np.uint8)
    rows[:, 0] %= 10
    for file in ["data_batch_%d.bin" % i for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / file).write_bytes(rows.tobytes())
    values = {"x": rng.integers(0, 256, (60, 3, side, side)).astype(np.uint8), "y": rng.integers(0, 4, (60, side, side)).astype(np.int32)}
    for file in ("train.npz", "valid.npz"):
        np.savez(folder / file, **values)
    return folder


def arrays(name, rng, **shapes):
    folder = programs.FOLDER / name
    folder.mkdir(exist_ok=True)
    for field, shape in shapes.items():
        np.save(folder / (field + ".npy"), random(rng, *shape))
    return folder


def main():
    rng = np.random.default_rng(9)
    loops = arrays("loops", rng, x=(30, 35, 5), v=(30, 35, 3))
    images = arrays("images", rng, x=(30, 3, 11, 11), v=(30, 4))
    two = ["--stages", 2, "--microbatch", 3]
    check_bits(verdicts, "loops", programs.source("loops", LOOPS % PRECISION), loops, 4, [two])
    check_bits(verdicts, "whole_loops", programs.source("whole_loops", LOOPS.replace("H = 17", "H = 32") % PRECISION), loops, 4, [two])
    nested = arrays("nested", rng, x=(30, 7, 4, 32), v=(30, 7, 3))
    check_bits(verdicts, "nested", programs.source("nested", NESTED % PRECISION), nested, 4, [two])
    check_bits(verdicts, "images", programs.source("images", IMAGES % PRECISION), images, 4, [two], (3, 6, 12))
    for name in SMALL if ALL else ("revnet", "unet"):
        side = int(dict(SMALL[name])["S = 64" if name == "unet" else "S = 32"][4:])
        folder = pictures(programs.FOLDER / (name + ".data"), rng, side)
        check_bits(verdicts, name, programs.source(name, example(name)), folder, 4, [two] * ALL, (3, 6, 12))
    if ALL:
        for name, text, folder in (("loops", LOOPS, loops), ("images", IMAGES, images)):
            program = programs.source(name + ".grained", text % (PRECISION + "; grain 3"))
            check_bits(verdicts, name + ".grained", program, folder, 4, [], (3, 6, 12))
    plain = (LOOPS % "").replace("adamw(lr = 2e-3, decay = 0.01)", "sgd(lr = 1)").replace("clip norm(1.0)", "")
    check_near_f32(verdicts, programs.source("plain_loops", plain), "loops", loops)
    plain = (IMAGES % "").replace("sgd(lr = 0.01, momentum = 0.9)", "sgd(lr = 1)")
    check_near_f32(verdicts, programs.source("plain_images", plain), "images", images)


verdicts.run(main)
