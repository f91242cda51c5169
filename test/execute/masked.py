#!/usr/bin/python3
"""Losses that need sums over the whole batch before an example has its gradient: means over chosen elements, weighted means, functions
of means, means of what a mean was taken from. The loss and the metrics are compared with NumPy in f64, gradients with central
differences of the NumPy loss; and every micro-batch, strategy and number of threads must leave the same bits. One example has no
chosen element, and one data set none at all. Largest, smallest and product over the batch are what metrics and states may have.
"""

import numpy as np

import programs

SIZES = {"B": 12, "T": 3, "D": 5, "V": 4}
PROGRAM = """dim B = 12 batch, T = 3, D = 5, V = 4
data train = npy("x.npy", "y.npy", "w.npy", shuffle = false) -> (x: f32[B, T, D], y: i32[B, T] below V, w: f32[B, T])
model net(x: f32[B, T, D]) -> f32[B, T, V] {
  use l = linear[V]
  return l(dropout(tanh(x), RATE))
}
train net on train seed 3 {
  p = net(x)
  e = cross_entropy(p, y)
  s = sum[V] p
%s
  metric chosen = mean[B, T where w > 0.5] f32(argmax(p) == y)
  metric r2 = 1 - (sum[B, T] (s - w) ^ 2) / (sum[B, T] (w - mean[B, T] w) ^ 2)
  optimizer sgd(lr = 1)
  steps 2
}
"""


def cross_entropy(p, y):
    top = p.max(-1, keepdims=True)
    return np.log(np.exp(p - top).sum(-1)) + top[..., 0] - np.take_along_axis(p, y[..., None], -1)[..., 0]


def masked_mean(values, mask):
    return (values * mask).sum() / max(mask.sum(), 1)


def three_sums(s):
    c = s - s.mean()
    z = c / np.sqrt((c**2).mean() + 1)
    return np.logaddexp(0, z).mean()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name -> (text, the same in NumPy of e, s, w, and of the layer's parameters where it is a penalty)
LOSSES = {
    "chosen": ("  loss = mean[B, T where w > 0.5] e", lambda e, s, w: masked_mean(e, w > 0.5)),
    "weighted": ("  loss = (sum[B, T] w * e) / (sum[B, T] w)", lambda e, s, w: (w * e).sum() / w.sum()),
    "root": ("  loss = sqrt(mean[B, T] e)", lambda e, s, w: np.sqrt(e.mean())),
    "product": ("  a = mean[B, T] e\n  loss = a * a + mean[B, T] s ^ 2", lambda e, s, w: e.mean() ** 2 + (s**2).mean()),
    "gated": (
        "  g = sigmoid(s)\n  loss = (sum[B, T] g * e) / (sum[B, T] g)",
        lambda e, s, w: (sigmoid(s) * e).sum() / sigmoid(s).sum(),
    ),
    "centred": ("  c = mean[B, T] s\n  loss = mean[B, T] (s - c) ^ 2", lambda e, s, w: ((s - s.mean()) ** 2).mean()),
    "three sums": (
        "  c = s - mean[B, T] s\n  v = mean[B, T] c ^ 2\n  loss = mean[B, T] softplus(c / sqrt(v + 1))",
        lambda e, s, w: three_sums(s),
    ),
    # The penalty stands before the call that the parameter exists by, and is a factor, too.
    "penalty": (
        '  w1 = weight("l.weight")\n  loss = 0.1 * (sum[V, D] w1 ^ 2) + (mean[B, T] e) * (1 + sum[v] tanh(weight("l.bias")[v] + 0.5))',
        lambda e, s, w, weight, bias: 0.1 * (weight**2).sum() + e.mean() * (1 + np.tanh(bias + 0.5).sum()),
    ),
}
verdicts = programs.Verdicts()


def make_data(name, chosen):
    rng = np.random.default_rng(7)
    folder = programs.FOLDER / name
    folder.mkdir()
    x = rng.normal(size=(24, 3, 5)).astype(np.float32)
    y = rng.integers(0, 4, (24, 3)).astype(np.int32)
    w = rng.random((24, 3)).astype(np.float32) * chosen
    w[2] = 0  # an example without a chosen element
    for field, values in (("x", x), ("y", y), ("w", w)):
        np.save(folder / (field + ".npy"), values)
    return folder, x, y, w


def value_of(loss, e, s, w, weight, bias):
    return loss(e, s, w, weight, bias) if loss.__code__.co_argcount == 5 else loss(e, s, w)


def reference(loss, weight, bias, x, y, w):
    p = np.tanh(x.astype(np.float64)) @ weight.T + bias
    return value_of(loss, cross_entropy(p, y), p.sum(-1), w.astype(np.float64), weight, bias)


def differences(loss, parameters, batch):
    """Central differences of the NumPy loss."""
    gradients = {}
    for path, value in parameters.items():
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = {name: v.copy() for name, v in parameters.items()}
                moved[path][at] += step
                sides.append(reference(loss, moved["l.weight"], moved["l.bias"], *batch))
            gradient[at] = (sides[0] - sides[1]) / 2e-5
        gradients[path] = gradient
    return gradients


def in_f64(name, data):
    folder, x, y, w = data
    text, loss = LOSSES[name]
    program = programs.source("f64-" + name.replace(" ", "-"), (PROGRAM % text).replace("RATE", "0"))
    exe = programs.compiled(program, program.stem, "--set", "train.precision=f64", "--microbatch", "4")
    start = programs.run(exe, folder, 0).parameters
    result = programs.run(exe, folder, 1)
    batch = (x[:12], y[:12], w[:12])
    expected = reference(loss, start["l.weight"], start["l.bias"], *batch)
    verdicts.expect(
        abs(result.losses[0] - expected) <= 1e-11 * max(1, abs(expected)),
        "%s: the loss is %r, NumPy says %r" % (name, result.losses[0], expected),
    )
    for path, gradient in differences(loss, start, batch).items():
        error = np.abs(start[path] - result.parameters[path] - gradient).max()
        verdicts.expect(
            error <= 1e-7 * max(1e-2, np.abs(gradient).max()), "%s: gradient of %s is off by %.3g" % (name, path, error)
        )
    # Metrics over the whole set, whose last batch is not full.
    p = np.tanh(x.astype(np.float64)) @ result.parameters["l.weight"].T + result.parameters["l.bias"]
    s, f64 = p.sum(-1), w.astype(np.float64)
    metrics = {
        "loss": value_of(loss, cross_entropy(p, y), s, f64, result.parameters["l.weight"], result.parameters["l.bias"]),
        "chosen": masked_mean(p.argmax(-1) == y, w > 0.5),
        "r2": 1 - ((s - f64) ** 2).sum() / ((f64 - f64.mean()) ** 2).sum(),
    }
    done = programs.call([exe, "eval", "--data", folder, "--out", result.out])
    printed = programs.json.loads(done.stdout.strip().splitlines()[-1])
    for metric, expected in metrics.items():
        verdicts.expect(
            abs(printed[metric] - expected) <= 1e-6 * max(1, abs(expected)),
            "%s: metric %s is %r, NumPy says %r" % (name, metric, printed[metric], expected),
        )


def same_bits(name, data):
    folder = data[0]
    program = programs.source("bits-" + name.replace(" ", "-"), (PROGRAM % LOSSES[name][0]).replace("RATE", "0.3"))
    first = None
    for number, flags in enumerate(
        (
            ["--microbatch", "12", "--remat", "none"],
            ["--microbatch", "1", "--remat", "all"],
            ["--microbatch", "4", "--remat", "sqrt", "--order-seed", "3"],
            ["--microbatch", "3", "--row-blocks", "3"],
            ["--microbatch", "2", "--cpu", "haswell"],
        )
    ):
        label = "%s under %s" % (name, " ".join(flags))
        exe = programs.compiled(program, program.stem + str(number), "--max-threads", "3", *flags, allowed=(0, 1))
        if not isinstance(exe, programs.pathlib.Path):
            verdicts.expect(programs.NO_ROWS in exe.stdout, "%s: %s" % (label, exe.stdout[-500:]))
            continue
        result = programs.run(exe, folder, 2, "--threads", str(1 + number % 3))
        first = first or result
        verdicts.expect(result.bytes == first.bytes and result.losses == first.losses, label + ": other bits")
    # The smallest budget that a refusal names.
    refusal = programs.compiled(program, "refused", "--memory-budget", "1KiB", allowed=(1,))
    least = int(programs.re.search(r"smallest budget that compiles: (\d+) bytes", refusal.stdout).group(1))
    result = programs.run(programs.compiled(program, program.stem + "-least", "--memory-budget", str(least)), folder, 2)
    verdicts.expect(result.bytes == first.bytes and result.losses == first.losses, name + " at the smallest budget: other bits")
    verdicts.expect(result.peak <= least, "%s: peak %d above the budget %d" % (name, result.peak, least))


def nothing_chosen(data):
    """The mean over nothing is 0, with gradient 0: the step counts."""
    program = programs.source("nothing", (PROGRAM % LOSSES["chosen"][0]).replace("RATE", "0"))
    exe = programs.compiled(program, "nothing", "--microbatch", "4")
    start, result = programs.run(exe, data[0], 0), programs.run(exe, data[0], 2)
    verdicts.expect(result.losses == [0, 0], "nothing chosen: the losses are %s" % result.losses)
    verdicts.expect(start.bytes == result.bytes, "nothing chosen: the parameters moved")


EXTREMES = """dim B = 6 batch, T = 3, D = 5, V = 4
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, T, D], y: i32[B, T] below V)
layer watched(x: f32[B, T, D]) -> f32[B, T, D] {
  state top: f32[D] ~ zeros
  state low: f32[] ~ zeros
  update top = max[B, T] x
  update low = min(low, min[B, T, D] x)
  return x
}
model net(x: f32[B, T, D]) -> f32[B, T, V] {
  use w = watched, l = linear[V]
  return l(tanh(w(x)))
}
train net on train seed 3 {
  p = net(x)
  s = sum[V] p
  loss = mean[B, T] cross_entropy(p, y)
  metric largest = max[B, T, D] x
  metric smallest = min[B, T, D] x
  metric widest = max[B, T] p
  metric deepest = min[B] (max[T] s)
  metric product = prod[B, T] (1 + tanh(s) / 50)
  metric label = max[B, T] y
  metric first = min[B, T] y
  metric below = mean[B, T] (max[B, T] s - s)
  optimizer sgd(lr = 0.1)
  steps 3
}
"""


def extremes():
    """Largest, smallest and product over the batch, whose elements all lie on one side of 0; 17 rows leave a last batch of 5."""
    rng = np.random.default_rng(11)
    folder = programs.FOLDER / "extremes"
    folder.mkdir()
    for sign in (-1, 1):
        x = (sign * (0.5 + rng.random((17, 3, 5)))).astype(np.float32)
        y = rng.integers(1, 4, (17, 3)).astype(np.int32)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        program = programs.source("extremes", EXTREMES)
        first = None
        for number, flags in enumerate(
            (
                ["--microbatch", "6", "--remat", "none"],
                ["--microbatch", "1", "--remat", "all"],
                ["--microbatch", "3", "--order-seed", "5"],
                ["--microbatch", "2", "--cpu", "haswell"],
                ["--microbatch", "2", "--stages", "2"],
                ["--set", "train.grain=2", "--microbatch", "2"],
            )
        ):
            label = "extremes under " + " ".join(flags)
            exe = programs.compiled(program, "extremes%d" % number, "--max-threads", "3", *flags)
            result = programs.run(exe, folder, 3, "--threads", str(1 + number % 3))
            done = programs.call([exe, "eval", "--data", folder, "--out", result.out])
            printed = programs.json.loads(done.stdout.strip().splitlines()[-1])
            state = {name: result.parameters["w." + name] for name in ("top", "low")}
            batches = x[np.arange(18) % 17].reshape(3, 6, 3, 5)  # the walk goes on behind the end
            verdicts.expect((state["top"] == batches[2].max((0, 1))).all(), label + ": top is %s" % state["top"])
            verdicts.expect(state["low"] == min(0, batches.min()), label + ": low is %s" % state["low"])
            weights = result.parameters["l.weight"].astype(np.float64), result.parameters["l.bias"].astype(np.float64)
            p = np.tanh(x.astype(np.float64)) @ weights[0].T + weights[1]
            s = p.sum(-1)
            expected = {
                "largest": x.max(),
                "smallest": x.min(),
                "widest": p.max((0, 1)),
                "deepest": s.max(1).min(),
                "product": (1 + np.tanh(s) / 50).prod(),
                "label": y.max(),
                "first": y.min(),
                "below": (s.max() - s).mean(),
            }
            for metric, value in expected.items():
                error = np.abs(np.array(printed[metric]) - value).max()
                verdicts.expect(error <= 1e-5, "%s: %s is %r, NumPy says %r" % (label, metric, printed[metric], value))
            if "grain" in flags[1]:
                continue  # another program
            first = first or (result, printed)
            verdicts.expect(result.bytes == first[0].bytes and printed == first[1], label + ": other bits")


def main():
    extremes()
    data = make_data("some", 1)
    programs.in_parallel(lambda name: in_f64(name, data), LOSSES)
    programs.in_parallel(lambda name: same_bits(name, data), LOSSES)
    nothing_chosen(make_data("none", 0))


if __name__ == "__main__":
    verdicts.run(main)
