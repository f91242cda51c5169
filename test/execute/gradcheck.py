#!/usr/bin/python3
"""Gradients of every operation in f64 against central differences, from outside: with sgd(lr = 1) the gradient is
what one step takes away from the parameters; a perturbed --init file gives the losses.

A case is an expression over `u` f32[B, I, J] (data times parameters, so that the example axis and parameters are
both in it), parameters p f32[I, J], q f32[J, K] and s f32[J], and data; its result is weighed by fixed data, so
that no term cancels.
"""

import pathlib
import re
import sys

import numpy as np

import programs
import tensorfile

B, I, J, K = 4, 3, 6, 5
RTOL, ATOL, H = 1e-5, 1e-7, 1e-5


class Case:
    def __init__(
        self, name, body, axes, result="y", more="", outside="", positive=False, loss="mean[B] tested({args})", group=1, weighed=True
    ):
        self.name, self.body, self.axes, self.result = name, body, axes, result
        self.more, self.outside, self.positive, self.loss = more, outside, positive, loss
        self.group = group  # examples that a micro-batch holds together
        self.weighed = weighed  # else, with a sum as loss, the gradient of the result is 1, and a factor is a gradient as it is


def functions():
    """Name and least argument of the functions of one number that the oracle lists and the prelude declares."""
    root = pathlib.Path(__file__).resolve().parents[2]
    prelude = (root / "compiler/frontend/prelude.cinch").read_text()
    listed = re.findall(r"^FUNCTION\(\w+, (\w+), ([^,]+),", (root / "test/oracle/Functions.def").read_text(), re.M)
    return [(name, float(least)) for name, least in listed if "builtin %s(" % name in prelude]


def elementwise():
    one = [
        "-u",
        "relu(u)",
        "relu6(3 * u)",
        "leaky_relu(u)",
        "elu(u)",
        "gelu(u)",
        "gelu_tanh(u)",
        "silu(u)",
        "mish(u)",
        "hard_sigmoid(2 * u)",
        "hard_swish(2 * u)",
        "u ^ 2",
        "u ^ 3",
        "1 / (3 + u ^ 2)",
        "max(u, 0.1)",
        "min(u, 0.1)",
        "f32(u > 0.2) * u",
        "where(u > 0.1, u * u, 3 * u)",
        "where(not (u > 0.1) and u < 2, u, -u)",
        "2 - u",
        "floor(u) * u",
    ]
    positive = ["u ^ 0.3", "2 ^ u", "u ^ p", "1 / u", "p / u"]
    two = [
        "u + p",
        "u - p",
        "p - u",
        "u * p",
        "u / (2 + tanh(p))",
        "max(u, p)",
        "min(u, p)",
        "where(u > p, u, p)",
        "u + s",
        "u * u",
        "u * tanh(p)",
        "squared_error(u, 2 * x - u)",
        "absolute_error(u, 2 * x - u)",
        "huber(u, 2 * x - u)",
        "huber(4 * u, 2 * x - u)",
        "bce_with_logits(u, sigmoid(x - u))",
        "kl_normal(u, 2 * x - u)",
    ]
    for name, least in functions():
        (positive if least > -1 else one).append(name + "(u)")
    cases = [Case("element-wise " + e, "y = " + e, "B I J") for e in one + two]
    return cases + [Case("element-wise " + e, "y = " + e, "B I J", positive=True) for e in positive]


def shapes():
    return [
        Case("transpose", "y = u'", "B J I"),
        Case("index notation moves axes", "y[j, b, i] = u[b, i, j]", "J B I"),
        Case("index notation gathers by a range", "r = range[I]\n  y[b, i, k] = u[b, r[i], k] * p[r[i], k]", "B I J"),
        Case("reshape", "y = reshape[B, 2, 9](u)", "B 2 9"),
        Case("reshape of a parameter", "v = reshape[J, I](p)\n  y[b, j, i] = u[b, i, j] * v[j, i]", "B J I"),
        Case("slice", "y = u[.., 1:4]", "B I 3"),
        Case("slices that overlap", "y = u[.., 0:4] * u[.., 2:6]", "B I 4"),
        Case("constant index", "y = u[:, 1]", "B J"),
        Case("pad", "y = pad(u, 1, 2, axis = 2, value = 0.5)", "B I 9"),
        Case("concat", "y = concat(u, tanh(u), expand[B, I, J](p), axis = 1)", "B 9 J"),
        Case("reverse", "y = reverse(u, axis = -1) * p", "B I J"),
        Case("expand adds an axis", "e = expand[B, I, J](s)\n  y = u * e", "B I J"),
        Case("expand stretches an axis", "c = reshape[I, 1](p[:, 0])\n  e = expand[I, J](c)\n  y = u * e", "B I J"),
        Case("broadcast of leading axes", "y = u + s * p", "B I J"),
        Case("gather by data", "y = p[ids]", "B I J", more="ids"),
        Case("gather by data, along the last axis", "y = p[:, cols]", "I B J", more="cols"),
        Case("embedding", "use e = embedding[7, J]\n  y = e(ids) * u", "B I J", more="ids"),
        Case("gather inside of index notation", "y[b, i, j] = u[b, i, j] * p[ids[b, i], j]", "B I J", more="ids"),
    ]


def ends_of_pads():
    """Pads of the program that are contributions to a gradient, as those of slices are: they lie end to end."""
    all_ones = {"loss": "sum[B] tested({args})", "weighed": False}
    first, second = "u * pad(x[.., 0:2], 0, 4, axis = 2, value = %d)", "u * pad(x[.., 2:6], 2, 0, axis = 2, value = %d)"
    return [
        Case("pads end to end", "y = %s + %s" % (first % 5, second % 7), "B I J", **all_ones),
        Case("pads end to end, one of zeros", "y = %s + %s" % (first % 0, second % 7), "B I J", **all_ones),
        Case("pads of zeros end to end", "y = %s + %s" % (first % 0, second % 0), "B I J", **all_ones),
        Case("a pad beside a slice", "y = %s + pad(u[.., 2:6] ^ 2, 2, 0, axis = 2)" % (first % 5), "B I J", **all_ones),
        Case("a pad of zeros beside a slice", "y = %s + pad(u[.., 2:6] ^ 2, 2, 0, axis = 2)" % (first % 0), "B I J", **all_ones),
    ]


def reductions():
    cases = [
        Case("reduce %s[%s]" % (op, over), "z = tanh(u)\n  y = %s[%s] z" % (op, over), axes)
        for op in ("sum", "mean", "max", "min", "prod")
        for over, axes in (("J", "B I"), ("I", "B J"), ("I, J", "B"))
    ]
    return cases + [
        Case("reduce where", "y = mean[J where u > 0] u", "B I"),
        Case("reduce where, sum", "y = sum[I where u > 0.3] (u * p)", "B J"),
        Case("reduce with index names", "y[b, j] = sum[i] u[b, i, j] * p[i, j]", "B J"),
        Case("reduce a parameter", "n = sum[I, J] p ^ 2\n  y = u * n", "B I J"),
        Case("softmax", "y = softmax(u)", "B I J"),
        Case("softmax over another axis", "y = softmax(u, axis = 1)", "B I J"),
        Case("log_softmax", "y = log_softmax(u)", "B I J"),
        Case("log_softmax over another axis", "y = log_softmax(u, axis = 1)", "B I J"),
        Case("cross_entropy", "y = cross_entropy(u, cols6)", "B I", more="cols6"),
        Case("cross_entropy, smooth", "y = cross_entropy(u, cols6, smooth = 0.1)", "B I", more="cols6"),
        Case("cross_entropy over another axis", "y = cross_entropy(u, row3, axis = 1)", "B J", more="row3"),
        Case("kl", "y = kl(log_softmax(u), log_softmax(u * p))", "B I"),
        Case("one_hot", "y = one_hot[J](cols6) * u", "B I J", more="cols6"),
    ]


def contractions():
    return [
        Case("matmul", "y = u @ q", "B I K"),
        Case("matmul, transposed", "y = u @ (q')'", "B I K"),
        Case("matmul of parameters", "y = u * (p @ q @ q')", "B I J"),
        Case("matmul, batched", "y = u @ u'", "B I I"),
        Case("contraction of two axes", "y[b, k] = sum[i, j] u[b, i, j] * w3[i, j, k]", "B K", outside="w3"),
        Case("contraction, outer axes", "y[b, i, j, k] = u[b, i, j] * q[j, k]", "B I J K"),
        Case("contraction by example", "y[b, i, h] = sum[j] u[b, i, j] * u[b, h, j]", "B I I", result="y"),
        Case("linear", "use l = linear[K]\n  y = l(u)", "B I K"),
        Case("linear without bias", "use l = linear[K](with_bias = false)\n  y = l(u)", "B I K"),
        Case("a layer called twice", "use l = linear[J]\n  y = l(tanh(l(u)))", "B I J"),
        Case("a parameter used twice", "y = (u @ q) @ q'", "B I J"),
        Case("batch-free operations", "w = tanh(p) * exp(p)\n  y = u * w + w", "B I J"),
        Case("repeat", "use l = repeat 3 dense(bias = 0.1)\n  y = l(u)", "B I J", outside="dense"),
        Case("swiglu", "y = swiglu(u)", "B I 3"),
        Case("feed_forward", "use f = feed_forward[K]\n  y = f(u)", "B I J"),
    ]


def norms_and_attention():
    heads = "h = reshape[B, I, 2, 3](u)\n  t[b, a, i, e] = h[b, i, a, e]\n  "
    back = "v[b, i, a, e] = o[b, a, i, e]\n  y = reshape[B, I, J](v)"
    return [
        Case("layer_norm", "use n = layer_norm\n  y = n(u)", "B I J"),
        Case("rms_norm", "use n = rms_norm\n  y = n(u)", "B I J"),
        Case("group_mean", "y = if training then group_mean(u, group = 2) * u else u", "B I J", group=2),
        Case("group_mean of all", "y = if training then group_mean(tanh(u), group = B) * u else u", "B I J", group=B),
        Case(
            "group_mean of a vector and of moved axes",
            "v[i, j, b] = u[b, i, j]\n  n = sum[I, J] u\n"
            "  g = if training then group_mean(v, group = 2) else v\n  m = if training then group_mean(n, group = 2) else n\n"
            "  y[b, i, j] = g[i, j, b] * m[b] * u[b, i, j]",
            "B I J",
            group=2,
        ),
        Case("batch_norm", "h = reshape[B, I * J](u)\n  use n = batch_norm(group = 2)\n  y = n(h)", "B 18", group=2),
        Case("batch_norm over all examples", "h = sum[I] u\n  use n = batch_norm(group = B)\n  y = n(h)", "B J", group=B),
        Case("rope", "y = rope(u)", "B I J"),
        Case("attend", heads + "o = attend(t, sin(t), cos(t))\n  " + back, "B I J"),
        Case("attend, causal", heads + "o = attend(t, sin(t), t * t, causal = true)\n  " + back, "B I J"),
        Case("attend, scale", heads + "o = attend(t, sin(t), t * t, scale = 0.3)\n  " + back, "B I J"),
        Case("attend, keys", heads + "k = ids > 0\n  o = attend(t, sin(t), t * t, k)\n  " + back, "B I J", more="ids"),
        Case("attend, bias", heads + "o = attend(t, sin(t), t * t, bias = bias3)\n  " + back, "B I J", outside="bias3"),
        Case(
            "attend, grouped heads",
            heads + "g = t[:, 0:1]\n  o = attend(t, sin(g), g * g, causal = true)\n  " + back,
            "B I J",
        ),
        Case(
            "attend, dropout", heads + "o = attend(t, sin(t), t * t, causal = true, dropout = 0.3)\n  " + back, "B I J"
        ),
        Case("multi_head_attention", "use m = multi_head_attention[2](causal = true)\n  y = m(u)", "B I J"),
        Case("transformer_block", "use m = transformer_block[2, 8](causal = true, rate = 0.2)\n  y = m(u)", "B I J"),
        Case("two transformer blocks", "use m = repeat 2 transformer_block[2, 8](rate = 0.1)\n  y = m(u)", "B I J"),
        Case("dropout", "y = dropout(u, 0.4)", "B I J"),
        Case("drop_path", "y = drop_path(u, 0.4)", "B I J"),
        Case("random_uniform", "y = u * random_uniform[B, I, J]", "B I J"),
        Case("random_normal", "y = u * random_normal[B, I, J]", "B I J"),
        Case("equal truth values", "y = where((u > 0.1) == (p < 0.2), u, p)", "B I J"),
        Case("unequal truth values", "y = where((u > 0.1) != (p < 0.2), u, p)", "B I J"),
        Case("random_bool", "y = where(random_bool[B, I, J](0.5), u, p)", "B I J"),
        Case("random_int", "y = u * f32(random_int[B, I, J](4))", "B I J"),
        Case("draws without examples", "y = u * random_uniform[I, J]", "B I J"),
    ]


def windows():
    image = "h = reshape[B, I, 2, 3](u)\n  "
    weight = "w = reshape[J, I, 1, 1](p' * 1)\n  "
    return [
        Case("conv1d", "y = conv1d(u, w3, pad = 1)", "B K 6", outside="w1"),
        Case("conv1d, stride, dilation", "y = conv1d(u, w3, stride = 2, pad = 2, dilate = 2)", "B K 3", outside="w1"),
        Case("conv1d, groups", "c = concat(u, tanh(u), axis = 1)\n  y = conv1d(c, w6, groups = 2, pad = 1)", "B J 6", outside="w6"),
        Case("conv2d", image + "y = conv2d(h, w4, pad = 1)", "B K 3 4", outside="w4"),
        Case("conv2d, stride", image + "y = conv2d(h, w4, stride = 2, pad = 1)", "B K 2 2", outside="w4"),
        Case("conv2d by a parameter used elsewhere", image + weight + "y = conv2d(h, w)", "B J 2 3"),
        Case("conv2d, each channel by itself", image + "y = conv2d(h, w5, pad = 1, groups = I)", "B I 2 3", outside="w5"),
        Case("conv2d, each channel by itself, fewer taps than the stride",
             image + "y = conv2d(pad(tanh(h), 2, 3, axis = 2), w7, stride = 3, pad = 1, groups = I)", "B I 3 2", outside="w7"),
        Case("conv_transpose1d", "y = conv_transpose1d(u, t3, stride = 2, pad = 1)", "B K 11", outside="t3"),
        Case("conv_transpose2d", image + "y = conv_transpose2d(h, t4, stride = 2)", "B K 4 6", outside="t4"),
        Case("max_pool2d", image + "y = max_pool2d(h, 2, stride = 1, pad = 1)", "B I 3 4"),
        Case("avg_pool2d", image + "y = avg_pool2d(h, 2, stride = 1)", "B I 1 2"),
        Case("max_pool1d", "y = max_pool1d(u, 3, stride = 2)", "B I 2"),
        Case("global_avg_pool", image + "y = global_avg_pool(h)", "B I"),
        Case("upsample", image + "y = upsample[2](h)", "B I 4 6"),
        Case("resize_bilinear", image + "y = resize_bilinear[2](h)", "B I 4 6"),
        Case("conv", image + "use c = conv[K, 3]\n  y = c(h)", "B K 2 3"),
        Case("conv, dilation", image + "use c = conv[K, 2, p = 1, d = 2]\n  y = c(h)", "B K 2 3"),
        Case("conv_seq", "use c = conv_seq[K, 3, d = 2]\n  y = c(u)", "B K 4"),
        Case("conv_transpose, padding", image + "use c = conv_transpose[K, 3, 2, p = 1]\n  y = c(h)", "B K 3 5"),
        Case("conv_transpose", image + "use c = conv_transpose[K, 2, 2]\n  y = c(h)", "B K 4 6"),
        Case("group_norm", image + "use n = group_norm[3]\n  y = n(h)", "B I 2 3"),
        Case("group_norm_seq", "use n = group_norm_seq[3]\n  y = n(u)", "B I J"),
        Case("batch_norm of images", image + "use n = batch_norm(group = 2)\n  y = n(h)", "B I 2 3", group=2),
        Case("conv_bn", image + "use c = conv_bn[K, 3](group = B)\n  y = relu(c(h))", "B K 2 3", group=B),
    ]


def all_cases():
    return elementwise() + shapes() + ends_of_pads() + reductions() + contractions() + norms_and_attention() + windows()


OUTSIDE = {
    "w3": "param w3: f32[I, J, K] ~ normal(0.5)\n  ",
    "bias3": "param bias3: f32[2, I, I] ~ normal(0.5)\n  ",
    "w1": "param w3: f32[K, I, 3] ~ normal(0.5)\n  ",
    "w4": "param w4: f32[K, I, 2, 2] ~ normal(0.5)\n  ",
    "w5": "param w5: f32[I, 1, 3, 3] ~ normal(0.5)\n  ",
    "w7": "param w7: f32[I, 1, 2, 1] ~ normal(0.5)\n  ",
    "w6": "param w6: f32[J, I, 3] ~ normal(0.5)\n  ",
    "t3": "param t3: f32[I, K, 3] ~ normal(0.5)\n  ",
    "t4": "param t4: f32[I, K, 2, 2] ~ normal(0.5)\n  ",
    "dense": "",
    "": "",
}
LAYERS = """layer dense[O?](x: f32[.., O], bias) -> f32[.., O] {
  param weight: f32[O, O] ~ normal(0.4)
  return tanh(x @ weight + bias)
}
"""
EXTRA = {  # more data fields: name -> type
    "ids": "ids: i32[B, I] below I",
    "cols": "cols: i32[B, J] below J",
    "cols6": "cols6: i32[B, I] below J",
    "row3": "row3: i32[B, J] below I",
}
LIMITS = {"ids": ("I", 3), "cols": ("J", 6), "cols6": ("I", 6), "row3": ("J", 3)}


def size(name):
    return {"B": B, "I": I, "J": J, "K": K}.get(name) or int(name)


def text_of(case):
    axes = case.axes.split()
    weights = [axis for axis in axes if axis != "B"]
    names = ["i%d" % i for i in range(len(axes))]
    slots = ", ".join(names)
    example = names[axes.index("B")] if "B" in axes else None
    summed = [name for name in names if name != example]
    weigh = "weights[%s]" % ", ".join([example] + summed)
    fields = ["x: f32[B, I, J]", "weights: f32[%s]" % ", ".join(["B"] + weights)] + (
        [EXTRA[case.more]] if case.more else []
    )
    files = ["x.npy", "r.npy"] + (["ids.npy"] if case.more else [])
    arguments = ["x", "weights"] + ([case.more] if case.more else [])
    u = "u = x * (1.5 + 0.25 * tanh(p))" if case.positive else "u = x * p"
    total = "total[%s] = %s" % (
        example,
        ("sum[%s] " % ", ".join(summed) if summed else "") + "y[%s]" % slots + " * %s" % weigh * case.weighed,
    )
    keep = "k0 = (sum[I, J] p) + (sum[J, K] q) + (sum[J] s)"
    return """dim B = %d batch, I = %d, J = %d, K = %d
data train = npy(%s, shuffle = false) -> (%s)
%smodel tested(%s) -> f32[B] {
  param p: f32[I, J] ~ normal(1)
  param q: f32[J, K] ~ normal(1)
  param s: f32[J] ~ normal(1)
  %s%s
  %s
  %s
  %s
  return total + 0.01 * k0
}
train tested on train seed 5 {
  loss       = %s
  optimizer  sgd(lr = 1)
  steps      1
}
""" % (
        B,
        I,
        J,
        K,
        ", ".join('"%s"' % name for name in files),
        ", ".join(fields),
        LAYERS if case.outside == "dense" else "",
        ", ".join(fields),
        OUTSIDE[case.outside],
        u,
        case.body,
        total,
        keep,
        case.loss.replace("{args}", ", ".join(arguments)),
    )


def data_of(case, folder, rng):
    folder.mkdir()
    x = rng.uniform(0.4, 1.6, (B, I, J)) * (1 if case.positive else rng.choice([-1, 1], (B, I, J)))
    np.save(folder / "x.npy", x)
    np.save(folder / "r.npy", rng.normal(size=[B] + [size(axis) for axis in case.axes.split() if axis != "B"]))
    if case.more:
        axis, limit = LIMITS[case.more]
        np.save(folder / "ids.npy", rng.integers(0, limit, (B, size(axis))).astype(np.int32))


def check(case, number, verdicts):
    rng = np.random.default_rng(number + 1)
    name = "case%d" % number
    data = programs.FOLDER / (name + "-data")
    data_of(case, data, rng)
    try:
        exe = programs.compiled(
            programs.source(name, text_of(case)), name, "--set", "train.precision=f64", "--remat", "none"
        )
        start = programs.run(exe, data, 0).parameters
        for key in start:  # away from zeros and ones, where mistakes hide
            start[key] = start[key] + 0.3 * rng.normal(size=start[key].shape)
        point = data / "point.safetensors"

        def run_at(parameters):
            tensorfile.write(point, parameters)
            return programs.run(exe, data, 1, init=point)

        after = run_at(start).parameters
        trained = [key for key in start if "running_" not in key]  # states are no parameters
        gradient = {key: start[key] - after[key] for key in trained}
        for key in sorted(trained):
            directions = [rng.normal(size=start[key].shape)]
            single = np.zeros(start[key].shape)
            single.flat[rng.integers(single.size)] = 1
            for direction in directions + [single]:
                losses = []
                for sign in (1, -1):
                    moved = dict(start)
                    moved[key] = start[key] + sign * H * direction
                    losses.append(run_at(moved).losses[0])
                expected = (losses[0] - losses[1]) / (2 * H)
                got = float((gradient[key] * direction).sum())
                verdicts.expect(
                    abs(got - expected) <= ATOL + RTOL * abs(expected),
                    "%s: %s: gradient %.10g, by differences %.10g" % (case.name, key, got, expected),
                )
        verdicts.expect(any(np.abs(g).max() > 1e-3 for g in gradient.values()), case.name + ": some gradient is not 0")
    except programs.Failure as failure:
        verdicts.expect(False, "%s: %s" % (case.name, failure))


def check_stop_gradient(verdicts):
    """Differences see through it, so it is checked alone: 0.01 is left, from the term that keeps p in use."""
    case = Case("stop_gradient", "y = stop_gradient(u) * x", "B I J")
    data = programs.FOLDER / "stop-data"
    data_of(case, data, np.random.default_rng(1))
    try:
        exe = programs.compiled(programs.source("stop", text_of(case)), "stop", "--set", "train.precision=f64")
        start, after = programs.run(exe, data, 0).parameters, programs.run(exe, data, 1).parameters
        verdicts.expect(
            np.allclose(start["p"] - after["p"], 0.01, rtol=0, atol=1e-12), "stop_gradient lets a gradient through"
        )
    except programs.Failure as failure:
        verdicts.expect(False, "stop_gradient: %s" % failure)


def main():
    verdicts = programs.Verdicts()
    cases = all_cases()
    wanted = sys.argv[1:]
    chosen = [
        (case, number) for number, case in enumerate(cases) if not wanted or any(word in case.name for word in wanted)
    ]
    if not wanted or "stop_gradient" in wanted:
        check_stop_gradient(verdicts)
    programs.in_parallel(lambda entry: check(*entry, verdicts), chosen)
    verdicts.finish()


if __name__ == "__main__":
    main()
