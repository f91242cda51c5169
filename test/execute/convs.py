#!/usr/bin/python3
"""Convolutions, transposed ones, pools and resizing of odd shapes: in f64 the loss and every gradient, of the image too, against NumPy;
in f32 every micro-batch, strategy, number of threads and CPU must leave the same bits, at the smallest budget too. Ten steps of whole models against NumPy.

A case weighs its result by fixed data; the image is data times a parameter, so that its gradient is seen.
"""

import re

import numpy as np

import programs
from tape import Node, backward, cross_entropy, lift, relu, sqrt
from windows import conv2d, conv_transpose2d, places, pool2d

B = 6


class Case:
    def __init__(self, image, call, numpy, weight=None):
        self.image, self.call, self.numpy, self.weight = image, call, numpy, weight

    def result(self):
        x = Node(np.zeros((1,) + self.image))
        return self.numpy(x, Node(np.zeros(self.weight)) if self.weight else None).shape[1:]


def conv(image, out, kernel, stride=1, pad=0, dilate=1, groups=1):
    options = "stride = %d, pad = %d, dilate = %d, groups = %d" % (stride, pad, dilate, groups)
    if len(image) == 2:
        return Case(
            image,
            "conv1d(%s, %s, " + options + ")",
            lambda x, w: flat(conv2d(tall(x), tall(w), (1, stride), (0, pad), (1, dilate), groups)),
            (out, image[0] // groups, kernel),
        )
    k, l = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    return Case(
        image,
        "conv2d(%s, %s, " + options + ")",
        lambda x, w: conv2d(x, w, (stride, stride), (pad, pad), (dilate, dilate), groups),
        (out, image[0] // groups, k, l),
    )


def tall(x):
    return x.reshape(*x.shape[:-1], 1, x.shape[-1])


def flat(x):
    return x.reshape(*x.shape[:-2], x.shape[-1])


def transposed(image, out, kernel, stride=1, pad=0):
    options = "stride = %d, pad = %d" % (stride, pad)
    if len(image) == 2:
        numpy = lambda x, w: flat(conv_transpose2d(tall(x), tall(w), (1, stride), (0, pad)))
        return Case(image, "conv_transpose1d(%s, %s, " + options + ")", numpy, (image[0], out, kernel))
    numpy = lambda x, w: conv_transpose2d(x, w, (stride, stride), (pad, pad))
    return Case(image, "conv_transpose2d(%s, %s, " + options + ")", numpy, (image[0], out, kernel, kernel))


def pool(kind, image, window, stride, pad=0):
    options = "%d, stride = %d, pad = %d" % (window, stride, pad)
    largest = kind == "max"
    if len(image) == 2:
        numpy = lambda x, w: flat(pool2d(tall(x), (1, window), (1, stride), (0, pad), largest))
        return Case(image, kind + "_pool1d(%s, " + options + ")", numpy)
    return Case(image, kind + "_pool2d(%s, " + options + ")", lambda x, w: pool2d(x, (window, window), (stride, stride), (pad, pad), largest))


def bilinear(scale):
    """Rows of a matrix: the weights of the elements in each place of the larger axis."""

    def matrix(n):
        at = np.clip((np.arange(scale * n) + 0.5) / scale - 0.5, 0, n - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, n - 1)
        rows = np.zeros((scale * n, n))
        np.add.at(rows, (np.arange(scale * n), low), 1 - (at - low))
        np.add.at(rows, (np.arange(scale * n), high), at - low)
        return rows

    return lambda x, w: lift(matrix(x.shape[2])) @ (x @ lift(matrix(x.shape[3])).t)


def nearest(scale):
    def numpy(x, w):
        index = (Ellipsis, np.arange(scale * x.shape[2])[:, None] // scale, np.arange(scale * x.shape[3]) // scale)
        return x[index]

    return numpy


# Programs of several cases each.
PROGRAMS = {
    "plain": [
        conv((3, 7, 5), 4, 3, pad=1),
        conv((5, 13, 13), 33, 3, stride=2, pad=1),
        conv((16, 6, 5), 50, 1),
        conv((17, 5, 4), 3, 1, stride=2),
        conv((2, 3, 2), 5, 5, pad=2),
        conv((1, 1, 1), 1, 1),
        conv((1, 5, 5), 2, 2, stride=3),
        conv((3, 2, 3), 2, 5, stride=1, pad=3),
        conv((2, 9, 20), 33, 5, stride=2, pad=2),
        conv((4, 6, 6), 17, 3, pad=2),
    ],
    "strides and dilations": [
        conv((4, 9, 8), 6, 3, stride=2, pad=1, dilate=2),
        conv((3, 11, 7), 7, 2, stride=3, pad=0, dilate=2),
        conv((20, 5, 5), 18, 3, stride=1, pad=2, dilate=2),
        conv((3, 9, 9), 8, 7, stride=2, pad=3),
        conv((2, 13, 5), 3, (3, 1), stride=2),
        conv((2, 6, 13), 3, (1, 5), stride=3, pad=1),
        conv((3, 8, 8), 2, 2, stride=4, pad=2),
    ],
    "groups": [
        conv((6, 7, 6), 9, 3, pad=1, groups=3),
        conv((40, 5, 7), 40, 3, pad=1, groups=40),
        conv((13, 9, 5), 13, 3, stride=2, pad=1, groups=13),
        conv((5, 6, 6), 10, 3, pad=1, groups=5),
        conv((32, 4, 3), 16, 1, groups=2),
        conv((6, 5, 5), 3, 3, pad=2, dilate=2, groups=3),
        conv((18, 8, 3), 18, 5, stride=3, pad=2, groups=18),
        conv((12, 9), 24, 4, stride=2, pad=1, groups=4),
        conv((36, 5, 7), 36, 3, pad=1, groups=9),
        conv((10, 6, 5), 40, 3, stride=2, pad=1, groups=10),
        conv((40, 4, 5), 10, 2, pad=1, groups=10),
        conv((24, 20, 9), 48, (5, 1), stride=2, pad=2, groups=6),
        conv((22, 9), 44, 3, pad=2, dilate=2, groups=22),
        conv((20, 13), 20, 3, pad=2, dilate=2, groups=20),
        conv((16, 4, 56), 16, 3, pad=1, groups=16),
        conv((8, 60), 8, 9, pad=4, groups=8),
    ],
    # Remainders by the stride, of the image's rows and columns, that differ in their taps alone are one contraction; in groups if there are more than 16.
    "large strides": [
        conv((3, 10, 15), 4, 5, stride=5),
        conv((20, 16, 16), 24, 16, stride=16),
        conv((5, 23, 17), 6, 7, stride=5, pad=3),
        conv((3, 21, 14), 7, 3, stride=6, pad=1, dilate=2),
        conv((4, 19, 26), 3, 4, stride=6, pad=5, dilate=3),
        conv((4, 13, 9), 17, 2, stride=9, pad=1),
        conv((12, 18, 11), 18, 5, stride=5, pad=2, groups=6),
        conv((20, 18, 11), 20, 6, stride=5, pad=2, groups=20),
        conv((5, 60), 4, 40, stride=20, pad=3),
        transposed((5, 4, 6), 3, 2, stride=2),
        transposed((20, 5, 3), 40, 3, stride=3),
        transposed((6, 3, 2), 5, 8, stride=8),
        transposed((18, 2, 3), 20, 5, stride=7),
        transposed((3, 3, 4), 2, 11, stride=5, pad=3),
        transposed((2, 7), 3, 30, stride=18, pad=1),
    ],
    # Wide enough for bands: of several of them, of one channel, of taps that do not follow each other, of stretches that are cut.
    "bands": [
        conv((1, 12, 11), 5, 3, pad=1),
        conv((1, 14, 24), 3, 5, pad=4, dilate=2),
        conv((3, 21, 23), 33, 7, stride=2, pad=3),
        conv((16, 16, 30), 16, 3, pad=1),
        conv((64, 24, 40), 4, 3, pad=1),
        conv((5, 13, 40), 6, (1, 7), pad=3),
        conv((4, 140), 7, 5, pad=2),
        conv((3, 133), 50, 3, stride=3, pad=1),
        conv((1, 1700), 2, 5, pad=2),
        conv((330, 9, 9), 5, 3, pad=1),
        conv((2, 13, 19), 3, 3, stride=2, pad=3, dilate=3),
        transposed((3, 12, 13), 2, 4, stride=2, pad=1),
    ],
    # Enough channels and places for Winograd's minimal filtering, of even and odd sizes, of every padding, with panels and vectors that end within.
    "many channels": [
        conv((16, 9, 11), 20, 3, pad=1),
        conv((17, 8, 10), 33, 3),
        conv((24, 7, 10), 16, 3, pad=2),
        conv((40, 16, 12), 50, 3, pad=1),
        conv((19, 2, 40), 16, 3, pad=1),
        conv((16, 35, 2), 96, 3, pad=1),
        conv((64, 8, 8), 64, 3, pad=1),
        transposed((16, 8, 9), 18, 3, pad=1),
        transposed((20, 7, 9), 16, 3),
        # .. and for filters' gradients by it.
        conv((33, 9, 11), 40, 3, pad=1),
        conv((35, 8, 36), 32, 3, pad=2),
        transposed((32, 8, 9), 34, 3, pad=1),
    ],
    # Few columns of the result, so that lanes are places: squares with edges, rows that end within a vector, several rows a tile.
    "places in lanes": [
        conv((3, 30, 45), 21, 7, stride=2, pad=3),
        conv((2, 11, 37), 9, (3, 5), pad=4, dilate=2),
        conv((33, 10, 26), 2, 3, pad=1),
        conv((1, 9, 17), 1, 3, pad=1),
        conv((4, 6, 33), 17, (1, 3), pad=1),
        conv((1, 41), 19, 9, pad=4),
        conv((2, 100), 3, 3, stride=3, pad=1),
        transposed((9, 11, 14), 3, 4, stride=2, pad=1),
    ],
    "one axis": [
        conv((3, 13), 5, 3, pad=1),
        conv((17, 8), 20, 4, stride=3, pad=2),
        conv((2, 5), 3, 5, stride=2, pad=5, dilate=2),
        transposed((5, 6), 3, 4, stride=2, pad=1),
        transposed((3, 5), 18, 3, stride=3),
        pool("max", (3, 11), 3, 2, 1),
        pool("avg", (5, 7), 2, 2),
    ],
    "transposed": [
        transposed((4, 3, 5), 6, 4, stride=2, pad=1),
        transposed((17, 4, 4), 3, 2, stride=2),
        transposed((3, 5, 2), 20, 3),
        transposed((2, 3, 3), 1, 2, stride=3),
        transposed((5, 1, 1), 4, 3, stride=2, pad=1),
        transposed((6, 4, 3), 5, 3, stride=3, pad=2),
    ],
    "pools": [
        pool("max", (3, 7, 5), 2, 2),
        pool("max", (20, 6, 6), 3, 2, 1),
        pool("max", (1, 5, 13), 3, 1, 1),
        pool("max", (2, 9, 9), 2, 3),
        pool("avg", (3, 7, 5), 3, 2, 1),
        pool("avg", (17, 5, 5), 2, 1),
        pool("avg", (2, 4, 4), 4, 4, 3),
        Case((3, 5, 4), "resize_bilinear[3](%s)", bilinear(3)),
        Case((2, 1, 6), "resize_bilinear[2](%s)", bilinear(2)),
        Case((3, 3, 2), "upsample[2](%s)", nearest(2)),
    ],
}
PROGRAM = """dim B = %d batch
data train = npy(%s, shuffle = false)
  -> (%s)
model net(%s) -> f32[B] {
%s
}
train net on train seed 3 {
  loss = mean[B] net(%s)
  optimizer sgd(lr = %s)
  steps 2
}
"""
verdicts = programs.Verdicts()


def program_of(name, rate):
    cases = PROGRAMS[name]
    sizes = lambda shape: "f32[%s]" % ", ".join(["B"] + [str(n) for n in shape])
    fields, lines, letters = [], [], "ijk"
    for n, case in enumerate(cases):
        result = case.result()
        fields += ["x%d: %s" % (n, sizes(case.image)), "v%d: %s" % (n, sizes(result))]
        lines.append("  param g%d: f32%s ~ uniform(1)" % (n, list(case.image)))
        if case.weight:
            lines.append("  param w%d: f32%s ~ uniform(0.7)" % (n, list(case.weight)))
        index = ", ".join(letters[: len(case.image)])
        lines.append("  u%d[b, %s] = x%d[b, %s] * g%d[%s]" % (n, index, n, index, n, index))
        lines.append("  y%d = %s" % (n, case.call % (("u%d" % n, "w%d" % n) if case.weight else "u%d" % n)))
        index = ", ".join(letters[: len(result)])
        lines.append("  s%d[b] = sum[%s] (y%d[b, %s] + 0.3 * y%d[b, %s] ^ 2) * v%d[b, %s]" % (n, index, n, index, n, index, n, index))
    lines.append("  return " + " + ".join("s%d" % n for n in range(len(cases))))
    names = [f.split(":")[0] for f in fields]
    files = ", ".join('"%s.npy"' % f for f in names)
    return PROGRAM % (B, files, ", ".join(fields), ", ".join(fields), "\n".join(lines), ", ".join(names), rate)


def make_data(name):
    rng = np.random.default_rng(len(name))
    folder = programs.FOLDER / name.replace(" ", "-")
    folder.mkdir()
    data = {}
    for n, case in enumerate(PROGRAMS[name]):
        for field, shape in (("x", case.image), ("v", case.result())):
            values = rng.normal(size=(2 * B,) + shape).astype(np.float32)
            np.save(folder / ("%s%d.npy" % (field, n)), values)
            data[field + str(n)] = values[:B].astype(np.float64)
    return folder, data


def in_f64(name, folder, data):
    program = programs.source(folder.name + "-f64", program_of(name, 1))
    exe = programs.compiled(program, program.stem, "--set", "train.precision=f64", "--microbatch", "2")
    start = programs.run(exe, folder, 0).parameters
    after = programs.run(exe, folder, 1)
    p = {key: Node(value) for key, value in start.items()}
    loss = lift(0.0)
    for n, case in enumerate(PROGRAMS[name]):
        y = case.numpy(p["g%d" % n] * data["x%d" % n], p.get("w%d" % n))
        loss = loss + ((y + y * y * 0.3) * data["v%d" % n]).sum() / B
    backward(loss)
    verdicts.expect(abs(after.losses[0] - loss.value) <= 1e-10 * (1 + abs(loss.value)), "%s: loss %r, NumPy %r" % (name, after.losses[0], float(loss.value)))
    for key, value in start.items():
        got, want = value - after.parameters[key], p[key].grad
        error = np.abs(got - want).max() / (1 + np.abs(want).max())
        n = int(re.search(r"\d+", key).group())
        verdicts.expect(error < 1e-11, "%s: gradient of %s of %s differs by %.1e" % (name, key, PROGRAMS[name][n].call, error))


def same_bits(name, folder):
    program = programs.source(folder.name, program_of(name, 0.05))
    base = programs.compiled(program, folder.name + "-base", "--remat", "none", "--microbatch", str(B))
    want = programs.run(base, folder, 2).bytes
    verdicts.expect(want == programs.run(base, folder, 2, "--threads", "3").bytes, name + ": bits differ with three threads")
    ways = [["--microbatch", "1", "--remat", "all"], ["--microbatch", "3", "--remat", "sqrt"], ["--microbatch", "2", "--cpu", "haswell"]]
    if programs.has_avx512():
        ways.append(["--microbatch", "2", "--cpu", "skylake-avx512", "--remat", "cheap"])
    refusal = programs.call([programs.CINCH, program, "-o", folder / "small", "--memory-budget", "1KiB"], allowed=(1,)).stdout
    least = re.search(r"smallest budget that compiles: (\d+) bytes", refusal)
    if verdicts.expect(least, "%s: no smallest budget in\n%s" % (name, refusal)):
        ways.append(["--memory-budget", least.group(1)])
    for number, flags in enumerate(ways):
        exe = programs.compiled(program, "%s-%d" % (folder.name, number), *flags)
        for threads in ("1", "4"):
            got = programs.run(exe, folder, 2, "--threads", threads)
            verdicts.expect(got.bytes == want, "%s: bits differ with %s, %s threads" % (name, " ".join(flags), threads))


# ---- Whole models, ten steps against NumPy: a small ResNet with batch norms, windows.cinch, and the sizes of the library's layers that these do not give.
RESNET = """dim B = 6 batch, C = 5, S = 8, F = 4
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, 3, S, S], y: i32[B] below C)
layer basic[Co, s = 1, Ci?, H?, W?](x: f32[B, Ci, H, W]) -> f32[B, Co, H / s, W / s] {
  use a = conv_bn[Co, 3, s](group = B), b = conv_bn[Co, 3](group = B), p = conv_bn[Co, 1, s](group = B)
  skip = if s == 1 and Ci == Co then x else p(x)
  return relu(b(relu(a(x))) + skip)
}
model net(x: f32[B, 3, S, S]) -> f32[B, C] {
  use stem = conv_bn[F, 3](group = B), one = basic[F], two = basic[2 * F, 2], three = basic[3 * F, 2], head = linear[C]
  return head(global_avg_pool(three(two(one(max_pool2d(relu(stem(x)), 3, stride = 1, pad = 1))))))
}
train net on train seed 5 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.05, momentum = 0.9)
  steps 10
}
"""


def normed(p, name, x, shape, axes):
    """x less its mean and over its deviation, both over these axes of x in this shape, then scaled and moved by channels."""
    y = x.reshape(*shape)
    centred = y - y.mean(axes, True)
    scaled = (centred / sqrt((centred * centred).mean(axes, True) + 1e-5)).reshape(*x.shape)
    return scaled * p[name + ".weight"].reshape(1, -1, 1, 1) + p[name + ".bias"].reshape(1, -1, 1, 1)


def batch_norm(p, name, x, group):
    return normed(p, name, x, (-1, group, *x.shape[1:]), (1, 3, 4))


def conv_bn(p, name, x, stride, pad):
    return batch_norm(p, name + ".bn", conv2d(x, p[name + ".c.weight"], (stride, stride), (pad, pad)), x.shape[0])


def basic(p, name, x, stride):
    h = conv_bn(p, name + ".b", relu(conv_bn(p, name + ".a", x, stride, 1)), 1, 1)
    return relu(h + (x if stride == 1 else conv_bn(p, name + ".p", x, stride, 0)))


def resnet_loss(p, x, y):
    h = pool2d(relu(conv_bn(p, "stem", lift(x), 1, 1)), (3, 3), (1, 1), (1, 1), True)
    h = basic(p, "three", basic(p, "two", basic(p, "one", h, 1), 2), 2)
    return cross_entropy(h.mean(-1).mean(-1) @ p["head.weight"].t + p["head.bias"], y).mean()


def layer(p, name, x, stride=1, groups=1):
    pad = p[name + ".weight"].shape[-1] // 2
    return conv2d(x, p[name + ".weight"], (stride, stride), (pad, pad), groups=groups) + p[name + ".bias"].reshape(1, -1, 1, 1)


def windows_loss(p, x, y):
    stem = layer(p, "stem", lift(x))
    a, b = stem, relu(stem)
    for name in ("pairs.0", "pairs.1"):
        f = layer(p, name + ".f", b, groups=6)
        a = a + relu(normed(p, name + ".n", f, (f.shape[0], 2, -1), -1))
        b = b + layer(p, name + ".g", batch_norm(p, name + ".m", a, 3))
    h = a + b * 0.5
    down = layer(p, "down", pool2d(h, (3, 3), (1, 1), (1, 1), True), 2, 3)
    up = conv_transpose2d(relu(down), p["up.weight"], (2, 2)) + p["up.bias"].reshape(1, -1, 1, 1)
    e = pool2d(up + h, (2, 2), (2, 2), (0, 0), False)
    r = bilinear(2)(e, None) + nearest(2)(e, None)
    q = flat(conv2d(tall(r.reshape(*r.shape[:2], 64)), tall(p["w"]), (1, 2), (0, 2), (1, 2)))
    return cross_entropy((relu(q).mean(-1) + h.mean(-1).mean(-1)) @ p["head.weight"].t + p["head.bias"], y).mean()


SIZES = """dim B = 6 batch, C = 5, S = 8
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, 3, S, S], y: i32[B] below C)
model net(x: f32[B, 3, S, S]) -> f32[B, C] {
  use a = conv[4, 3, p = 2, d = 2], up = conv_transpose[6, 3, 2, p = 1], q = conv_seq[6, 3, 2, p = 4, g = 2, d = 4]
  use r = conv_seq[8, 5](with_bias = false), head = linear[C]
  h = relu(r(relu(q(reshape[B, 6, 225](up(relu(a(x))))))))
  m[b, c] = mean[t] h[b, c, t]
  return head(m)
}
train net on train seed 6 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.05, momentum = 0.9)
  steps 10
}
"""


def sizes_loss(p, x, y):
    a = relu(conv2d(lift(x), p["a.weight"], (1, 1), (2, 2), (2, 2)) + p["a.bias"].reshape(1, -1, 1, 1))
    up = conv_transpose2d(a, p["up.weight"], (2, 2), (1, 1)) + p["up.bias"].reshape(1, -1, 1, 1)
    q = flat(conv2d(tall(up.reshape(-1, 6, 225)), tall(p["q.weight"]), (1, 2), (0, 4), (1, 4), 2)) + p["q.bias"].reshape(1, -1, 1)
    r = flat(conv2d(tall(relu(q)), tall(p["r.weight"]), (1, 1), (0, 2)))
    return cross_entropy(relu(r).mean(-1) @ p["head.weight"].t + p["head.bias"], y).mean()


MODELS = {"resnet": (RESNET, resnet_loss), "sizes": (SIZES, sizes_loss), "windows": ((programs.HERE / "windows.cinch").read_text(), windows_loss)}


def ten_steps(model):
    text, loss_of = MODELS[model]
    folder = programs.FOLDER / model
    folder.mkdir()
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(12, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, 12).astype(np.int32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    exe = programs.compiled(programs.source(model, text), model + "-f64", "--set", "precision=f64")
    start = programs.run(exe, folder, 0).parameters
    after = programs.run(exe, folder, 10)
    trained = [name for name in start if "running" not in name]
    values, speed, losses = {name: start[name] for name in trained}, {name: 0 for name in trained}, []
    for step in range(10):
        p = {name: Node(value) for name, value in values.items()}
        part = slice(0, 6) if step % 2 == 0 else slice(6, 12)
        loss = loss_of(p, x[part].astype(np.float64), y[part])
        backward(loss)
        losses.append(float(loss.value))
        for name in trained:
            speed[name] = 0.9 * speed[name] + p[name].grad
            values[name] = values[name] - 0.05 * speed[name]
    verdicts.expect(np.allclose(losses, after.losses, rtol=1e-9), "%s: losses %s, NumPy %s" % (model, after.losses, losses))
    for name in trained:
        moved = np.abs(values[name] - start[name]).max()
        error = np.abs(after.parameters[name] - values[name]).max() / moved
        verdicts.expect(error < 1e-9, "%s: %s differs by %.1e of its movement" % (model, name, error))
    program = programs.source(model + "-f32", text)
    wants = [programs.run(programs.compiled(program, "%s-%d" % (model, i), *flags), folder, 10, "--threads", "2").bytes
             for i, flags in enumerate((["--remat", "none"], ["--remat", "all"], ["--remat", "sqrt", "--cpu", "haswell"]))]
    verdicts.expect(wants[0] == wants[1] == wants[2], model + ": bits differ")


def test(name):
    if name in MODELS:
        return ten_steps(name)
    folder, data = make_data(name)
    in_f64(name, folder, data)
    same_bits(name, folder)


verdicts.run(lambda: programs.in_parallel(test, [*MODELS, *PROGRAMS]))
