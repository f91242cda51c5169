#!/usr/bin/python3
"""Convolutions, transposed ones, pools and resizing of odd shapes: in f64 the loss and every gradient, of the image too, against NumPy;
in f32 every micro-batch, strategy, number of threads and CPU must leave the same bits, at the smallest budget too.

A case weighs its result by fixed data; the image is data times a parameter, so that its gradient is seen.
"""

import re

import numpy as np

import programs
from tape import Node, backward, lift
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
        conv((20, 13), 20, 3, pad=2, dilate=2, groups=20),
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


def test(name):
    folder, data = make_data(name)
    in_f64(name, folder, data)
    same_bits(name, folder)


verdicts.run(lambda: programs.in_parallel(test, PROGRAMS))
