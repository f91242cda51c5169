#!/usr/bin/python3
"""No silent wrong number: an overflow planted in a model ends the run with exit code 4 before any parameter changes, and the
message names the op of the program that made the first bad number, its line, what it was computed from, and the example. So it
does wherever the op is computed: in a fused kernel, in a product, in attention, behind a mask, in a gradient, in a
recomputation, in one of many micro-batches, in a block of rows; every plan says the same. Infinities that a mask or a softmax
takes away again are not to blame."""
import re

import numpy as np

import programs
import tensorfile

verdicts = programs.Verdicts()
PROGRAM = """dim B = 8 batch, D = 6, W = 40, T = 4
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, %(x)s], y: f32[B, %(y)s])
model net(x: f32[B, %(x)s]%(arguments)s) -> f32[B, %(y)s] {
  use a = linear[%(width)s], b = linear[D]
  h = a(x)
%(body)s
}
train net on train seed 3 {
  loss      = %(loss)s
  optimizer %(optimizer)s
  steps     5
}
%(layers)s"""
LINE = 6  # of the body's first line
SQUARES = "mean[B] sum[D] squared_error(net(x), y)"


def source(name, body, width="D", x="D", y="D", loss=SQUARES, optimizer="sgd(lr = 0.1)", arguments="", layers=""):
    settings = dict(width=width, x=x, y=y, loss=loss, optimizer=optimizer, arguments=arguments, layers=layers)
    return programs.source(name, PROGRAM % dict(settings, body="\n".join("  " + line for line in body)))


class Case:
    """A model's lines; which of them is to blame, the name of the op, and how the message tells its operands."""

    def __init__(self, name, body, line, op, equation, **settings):
        self.name, self.body, self.line, self.op, self.equation, self.settings = name, body, line, op, equation, settings


MADE = "a value is inf, and what it read is finite"
ZERO, FLOAT = r"-?0", r"-?[\d.]+(e[-+]?\d+)?"
CASES = [
    Case(
        "log of zero, used a line later",
        ["q = h * 0", "z = log(q)", "r = z * 2", "return b(h + r)"],
        1, "log", r"log\(%s\) = -inf" % ZERO,
    ),
    Case("log of relu", ["z = log(relu(h * 0 - 1))", "return b(h + z)"], 0, "log", r"log\(0\) = -inf"),
    Case("exp", ["e = exp(h * 0 + 100)", "return b(tanh(h)) + e - e"], 0, "exp", r"exp\(100\) = inf"),
    Case("division", ["return b(h / (h * 0))"], 0, "/", "%s / %s = -?inf" % (FLOAT, ZERO)),
    Case("root of a negative number", ["q = sqrt(h * 0 - 2)", "return b(q)"], 0, "sqrt", r"sqrt\(-2\) = nan"),
    Case("large factor", ["n = gelu(h * 0 + 3e38)", "return b(n * 2)"], 1, "*", r"3e\+?38 \* 2 = inf"),
    Case("power", ["return b((h * 0 - 2) ^ 0.3)"], 0, "^", r"-2 \^ 0.3\d* = nan"),
    Case(
        "square in a layer of the library",
        ["return b(h) + squared_error(h * 1e30, h)"],
        0, "^ in squared_error", "%s [*] %s = inf" % (FLOAT, FLOAT),
    ),
    Case(
        "sum",
        ["c = h * 0 + 1e38", "s[i] = sum[d] c[i, d]", "r[i, d] = h[i, d] + s[i]", "return b(r)"],
        1, "sum", "a sum of finite numbers = inf",
    ),
    Case(
        "mean",
        ["c = h * 0 + 1e38", "s[i] = mean[d] c[i, d]", "r[i, d] = h[i, d] + s[i]", "return b(r)"],
        1, "mean", "a sum of finite numbers = inf",
    ),
    Case(
        "product",
        ["param w: f32[D, D] ~ constant(1)", "c = h * 0 + 1e38", "return b(c @ w)"],
        2, "product", "a sum of finite numbers = inf",
    ),
    Case(
        "factor of a product",
        ["param w: f32[D, D] ~ constant(100)", "c = h * 0 + 1e38", "return b(c @ w)"],
        2, "product", r"1e\+?38 \* 100 = inf",
    ),
    Case(
        "NaN behind a mask",
        ["m = where(h > 0, log(h), 0)", "q = sqrt(0 * h - 4)", "return b(m + q)"],
        1, "sqrt", r"sqrt\(-4\) = nan",
    ),
    Case(
        "NaN behind a mask that another kernel applies",
        ["m = log(h)", "k = b(where(h > 0, m, 0))", "p = where(k > 1e9, m, 0)", "return p + sqrt(k * 0 - 1)"],
        3, "sqrt", r"sqrt\(-1\) = nan",
    ),
    Case(
        "NaN in a product behind a mask",
        [
            "param w: f32[D, D] ~ constant(1)", "m = log(h) @ w", "k = b(h)", "p = where(k > 1e9, m, 0)",
            "return p + sqrt(k * 0 - 1)",
        ],
        4, "sqrt", r"sqrt\(-1\) = nan",
    ),
    Case(
        "softmax takes infinities away",
        ["c = log(relu(h))", "p = softmax(c)", "q = log(where(p >= 0, p, 1) * 0 - 1)", "return b(q)"],
        2, "log", r"log\(-1\) = nan",
    ),
    Case(
        "softmax of a row of infinities",
        ["c = log(relu(h * 0))", "return b(softmax(c))"],
        0, "log", r"log\(0\) = -inf",
    ),
    Case("log_softmax", ["c = where(h > 0, 3e38, -3e38)", "return b(log_softmax(c))"], 1, "log_softmax", "-inf"),
    Case(
        "cross entropy",
        ["c = where(h > 0, 3e38, -3e38) + h", "return c + b(h) * 0"],
        4, "cross_entropy", "= inf", loss="mean[B] cross_entropy(net(x), i32(y[.., 0] > 0))",
    ),
    Case(
        "gradient of a root",
        ["q = sqrt(h * 0)", "return b(h + q)"],
        0, "gradient of sqrt", "%s / %s = -?inf" % (FLOAT, ZERO),
    ),
    Case(
        "gradient of a logarithm",
        ["q = log(h * 0 + 1e-39)", "return b(h + q)"],
        0, "gradient of log", "%s / 1e-39 = -?inf" % FLOAT,
    ),
    Case(
        "norm of the gradients",
        ["k = a(x * 0) * 3e38", "return k + b(h) * 0"],
        4, "norm of the gradients", r"f32\(%s\) = inf" % FLOAT, loss="mean[B] sum[D] net(x)",
    ),
    Case(
        "norm of the gradients, clipped",
        ["k = a(x * 0) * 3e38", "return k + b(h) * 0"],
        4, "norm of the gradients", r"f32\(%s\) = inf" % FLOAT, loss="mean[B] sum[D] net(x)",
        optimizer="sgd(lr = 0.1); clip norm(1)",
    ),
    Case(
        "a draw",
        ["n = random_uniform[B, D]", "q = log(n - 2)", "return b(h + q)"],
        1, "log", r"log\(-1\.\d+\) = nan",
    ),
    Case("behind dropout", ["q = dropout(log(h * 0), 0.5)", "return b(h + q)"], 0, "log", r"log\(%s\) = -inf" % ZERO),
    Case(
        "attention",
        [
            "q = reshape[B, 1, T, D](h)", "o = attend(q * 1e30, q * 1e30, q)", "k = b(reshape[B, T, D](o))",
            "r[i, d] = sum[t] k[i, t, d]", "return r",
        ],
        1, "attend", "a value is nan, and what it read is finite", x="T, D",
    ),
    Case(
        "attention over a hidden key",
        [
            "q = reshape[B, 1, T, D](h)", "o = attend(q, q, q, bias = log(random_uniform[1, T, T] * 0))",
            "p = reshape[B, T, D](o) * 0", "k = b(log(p - 1))", "r[i, d] = sum[t] k[i, t, d]", "return r",
        ],
        3, "log", r"log\(-1\) = nan", x="T, D",
    ),
    Case(
        "gradient of rows",
        ["param w: f32[2, D] ~ zeros", "r = w[i32(y[.., 0] > 100)] * 3e38 * 8", "return b(h) * 0 + r"],
        1, "gradient of indexing", "a sum of finite numbers = inf", loss="mean[B] sum[D] net(x, y)",
        arguments=", y: f32[B, D]",
    ),
    Case(
        "a loss that needs a sum first", ["return b(log(h * 0 - 1))"], 0, "log", r"log\(-1\) = nan",
        loss="(sum[B, D] net(x)) / (sum[B, D] (net(x) ^ 2 + y * 0))",
    ),
    Case(
        "convolution",
        ["param w: f32[3, 2, 2] ~ constant(1)", "c = reshape[B, 2, 3](h) * 0 + 1e38", "return b(reshape[B, D](conv1d(c, w)))"],
        2, "convolution", MADE,
    ),
    Case(
        "convolution of each channel by itself",
        ["param w: f32[2, 1, 3] ~ constant(1)", "c = reshape[B, 2, 3](h) * 0 + 3e38", "v = conv1d(c, w, groups = 2, pad = 1)", "return b(reshape[B, D](v))"],
        2, "convolution", MADE,
    ),
    Case(
        "transposed convolution",
        ["param w: f32[3, 2, 2] ~ constant(1)", "c = reshape[B, 3, 2](h) * 0 + 1e38", "v = conv_transpose1d(c, w)", "return b(reshape[B, D](v))"],
        2, "convolution", MADE,
    ),
    Case(
        "gradient of a filter",
        ["param w: f32[1, 1, 1] ~ zeros", "c = reshape[B, 1, D](h) * 0 + 3e38", "return b(h) + reshape[B, D](conv1d(c, w)) * 8"],
        2, "gradient of convolution", MADE,
    ),
    Case(
        "means of windows",
        ["c = reshape[B, 1, D](h) * 0 + 3e38", "v = avg_pool1d(c, 3, stride = 1, pad = 1)", "return b(reshape[B, D](v))"],
        1, "sum_pool", MADE,
    ),
    Case(
        "batch norm",
        ["use n = batch_norm(group = 1)", "c = reshape[B, 2, 3](h) * 0 + 3e38", "return b(reshape[B, D](n(c)))"],
        0, "mean in batch_norm", "a sum of finite numbers = inf",
    ),
    Case(
        "reversible layer",
        ["use r = repeat 2 coupled", "p, q = r(h, b(h))", "return p + q"],
        10, "log", r"log\(%s\) = -inf" % ZERO,
        layers="reversible layer coupled(u: f32[B, D], v: f32[B, D]) -> (f32[B, D], f32[B, D]) {\n  p = u + log(v * 0)\n  return p, v + tanh(p)\n}\n",
    ),
    Case(
        "two in one kernel",
        ["p = sqrt(h * 0 - 1)", "q = log(h * 0 - 1)", "return b(q + p)"],
        0, "sqrt", r"sqrt\(-1\) = nan",
    ),
]
PLANS = (["--remat", "none", "--microbatch", "8"], ["--remat", "all", "--microbatch", "2"], ["--remat", "all", "--microbatch", "1"])


def headline(text):
    """What is the same under every plan: not the kernel."""
    found = re.search(r"^warning: (\S+\.cinch:\d+: .*) \(in kernel .*\)$", text, re.M)
    return found.group(1).replace(str(programs.FOLDER) + "/", "") if found else ""


def failed_run(exe, data, out):
    return programs.call([exe, "--data", data, "--out", out, "--quiet"], allowed=(4,)).stdout


def check_parameters(what, start, out):
    verdicts.expect(not (out / "final.safetensors").exists(), "%s: a final result was written" % what)
    initial = programs.tensorfile.read(start / "final.safetensors")
    for path in sorted(out.glob("**/*.safetensors")):
        kept = programs.tensorfile.read(path)
        same = all(np.array_equal(kept[key], value) for key, value in initial.items())
        verdicts.expect(same, "%s: %s holds other parameters than the initial ones" % (what, path.name))


def check_case(number, case, data):
    program = source("case%d" % number, case.body, **case.settings)
    expected = r"case%d\.cinch:%d: %s made the first number that is not finite: .*%s" % (
        number, LINE + case.line, re.escape(case.op), case.equation)
    for plan in PLANS:
        what = "%s, %s" % (case.name, " ".join(plan))
        exe = programs.compiled(program, "case", *plan)
        start, out = programs.FOLDER / ("start%d" % number), programs.FOLDER / ("out%d-%s" % (number, plan[-1]))
        programs.call([exe, "--data", data, "--out", start, "--steps", 0, "--quiet"])
        text = failed_run(exe, data, out)
        said = headline(text)
        verdicts.expect(re.search(expected + "(, example|$)", said), "%s: expected %s\n%s" % (what, expected, text))
        if plan is PLANS[0]:
            first = said
        verdicts.expect(said == first, "%s: another plan says\n%s\nand this one\n%s" % (what, first, said))
        check_parameters(what, start, out)


def main():
    rng = np.random.default_rng(4)
    folders = {}
    for x in ("D", "T, D"):
        folders[x] = programs.FOLDER / ("data" + x.replace(", ", ""))
        folders[x].mkdir()
        shape = (32, 6) if x == "D" else (32, 4, 6)
        np.save(folders[x] / "x.npy", rng.standard_normal(shape).astype(np.float32) * 3)
        np.save(folders[x] / "y.npy", rng.standard_normal((32, 6)).astype(np.float32))
    for number, case in enumerate(CASES):
        try:
            check_case(number, case, folders[case.settings.get("x", "D")])
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (case.name, failure))
    check_place(rng)
    check_groups(rng)
    check_bf16(rng)
    check_updates(rng)
    check_infinite_parameters(rng)
    verdicts.finish()


def check_bf16(rng):
    """Products that read and write two bytes an element: a step that is much too long, and a sum that only rounding makes infinite."""
    data = programs.FOLDER / "pairs"
    data.mkdir()
    np.save(data / "x.npy", rng.standard_normal((32, 34)).astype(np.float32))
    np.save(data / "ones.npy", np.ones((32, 34), np.float32))
    np.save(data / "y.npy", rng.standard_normal((32, 6)).astype(np.float32))
    text = """dim B = 8 batch, I = 34, D = 6
data train = npy("%s.npy", "y.npy") -> (x: f32[B, I], y: f32[B, D])
model net(x: f32[B, I]) -> f32[B, D] {
  use a = linear[64]%s, b = linear[D]
  return b(%s)
}
train net on train seed 3 {
  loss = mean[B] sum[D] squared_error(net(x), y)
  optimizer sgd(lr = 1e30)
  precision bf16(master = f32, accumulate = f32)
  steps 40
}
"""
    for name, filled in (("far", ("x", "", "relu(a(x))")), ("rounded", ("ones", "(init = constant(1.00054e37), with_bias = false)", "a(x) * 1e-38"))):
        program = programs.source("pairs-" + name, text % filled)
        first = None
        for plan in (["--microbatch", "8"], ["--microbatch", "2", "--remat", "all"], ["--cpu", "haswell"]):
            exe = programs.compiled(program, "in-pairs", *plan)
            said = headline(failed_run(exe, data, programs.FOLDER / ("pairs-" + name + "-".join(plan[1::2]))))
            first = first or said
            verdicts.expect(said == first and "made the first number that is not finite" in said, "bf16, %s, %s: %r" % (name, plan, said))
        if name == "rounded":
            verdicts.expect(re.search(r":4: product in linear made .* = inf, example 0", first), "bf16, rounded: %r" % first)


def check_place(rng):
    """One position of one example overflows, the sixth of the second step: every plan finds it."""
    data = programs.FOLDER / "single"
    data.mkdir()
    x = np.zeros((32, 4, 6), np.float32)
    x[13, 2] = 1e4
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", rng.standard_normal((32, 4, 6)).astype(np.float32))
    body = ["e = exp(h * 10)", "return b(tanh(h) + e - e)"]
    for name, optimizer in (("sgd", "sgd(lr = 0.1)"), ("adamw", "adamw(lr = 1e-3, decay = 0.1)")):
        program = source("place-" + name, body, width="W", x="T, D", y="T, D", optimizer=optimizer,
                         loss="mean[B] sum[T, D] squared_error(net(x), y)")
        plans = [["--row-blocks", "none", "--microbatch", size] for size in ("8", "2", "1")]
        plans += [["--row-blocks", rows, "--microbatch", "8"] for rows in ("1", "2", "4", "8")]
        plans += [["--row-blocks", "2", "--microbatch", "2"], ["--row-blocks", "2", "--microbatch", "4", "--remat", "all"]]
        first = None
        for plan in plans:
            what = "%s %s" % (name, " ".join(plan))
            if plan[1] != "none":
                scheduled = programs.call([programs.CINCH, program, *plan, "--emit", "plan", "-o", "-"])
                verdicts.expect("over #plan.row_blocks" in scheduled.stdout, "%s: nothing runs in blocks of rows" % what)
            exe = programs.compiled(program, "place", *plan)
            text = failed_run(exe, data, programs.FOLDER / ("place-" + "-".join(plan[1::2])))
            said = headline(text)
            expected = r":%d: exp made .*: exp\(.*\) = inf, example 5 of the batch, element \[2, \d+\]$" % LINE
            verdicts.expect(re.search(expected, said), "%s: not exp, example 5, position 2:\n%s" % (what, text))
            first = first or said
            agrees = said == first
            verdicts.expect(agrees, "%s: another plan says\n%s\nand this one\n%s" % (what, first, said))


def check_groups(rng):
    """Inside a mean over groups of four, the sixth example of the second step: what the mean is taken of, and the mean itself."""
    data = programs.FOLDER / "groups"
    data.mkdir()
    x = np.zeros((32, 6), np.float32)
    x[13] = 1e4
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", rng.standard_normal((32, 6)).astype(np.float32))
    for name, inner, said_of_it in (
        ("value", "exp(h * 10)", r"exp made .*: exp\(.*\) = inf, example 5 of the batch, element \[\d+\]$"),
        ("sum", "h * 0 + 1e38 + x * 1e34", r"group_mean made .*: a sum of finite numbers = inf, example [04] of the batch, element"),
    ):
        body = ["g = if training then group_mean(%s, group = 4) else h" % inner, "return b(tanh(h) + g * 1e-38)"]
        program = source("groups-" + name, body)
        first = None
        for plan in (["--microbatch", "8"], ["--microbatch", "4"], ["--microbatch", "4", "--remat", "all"]):
            what = "groups, %s, %s" % (name, " ".join(plan))
            exe = programs.compiled(program, "in-groups", *plan)
            text = failed_run(exe, data, programs.FOLDER / ("groups-" + name + "-".join(plan[1::2])))
            said = headline(text)
            verdicts.expect(re.search(":%d: " % LINE + said_of_it, said), "%s: got %r\n%s" % (what, said, text))
            first = first or said
            verdicts.expect(said == first, "%s: another plan says\n%s\nand this one\n%s" % (what, first, said))


def check_infinite_parameters(rng):
    """Infinities that a file holds meet somewhere and become a NaN: then no operation is said to have made it of finite numbers."""
    data = programs.FOLDER / "met-data"
    data.mkdir()
    np.savez(data / "t.npz", x=np.abs(rng.standard_normal((8, 6))).astype(np.float32))
    program = programs.source("met", """dim B = 8 batch, D = 6, H = 5
data train = npz("t.npz") -> (x: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  use a = linear[H], b = linear[H], c = linear[D]
  return c(b(relu(a(x))))
}
train net on train seed 3 {
  loss      = mean[B] sum[D] net(x) ^ 2
  optimizer sgd(lr = 0.01)
  steps     2
}
""")
    exe, begin = programs.compiled(program, "met"), programs.FOLDER / "met-begin"
    programs.call([exe, "--data", data, "--out", begin, "--quiet", "--steps", "0"])
    tensors = tensorfile.read(begin / "final.safetensors")
    tensors["a.weight"] = tensors["a.weight"].copy()
    tensors["a.weight"][1, 1] = np.inf
    tensorfile.write(programs.FOLDER / "met.safetensors", tensors)
    for plan in ([], ["--microbatch", "1", "--remat", "all"]):
        exe = programs.compiled(program, "met", *plan)
        text = programs.call([exe, "--data", data, "--out", programs.FOLDER / "met-out", "--quiet", "--init", programs.FOLDER / "met.safetensors"],
                             allowed=(4,)).stdout
        verdicts.expect("made a nan of infinite numbers that no operation made, but a constant, a parameter or data: " in text and
                        "of finite numbers" not in text, "infinite parameters: " + text)
        verdicts.expect("`a.weight` was not finite before the first step" in text, "infinite parameters: " + text)


UPDATES = """dim B = 8 batch, D = 6, W = 50
data train = npz("t.npz", shuffle = false) -> (t: i32[B] below 7, x: f32[B, D])
model net(t: i32[B] below 7) -> f32[B, D] {
  param table: f32[W, D] ~ normal(0.1)
  param mask: f32[D] ~ constant(0.0)
  state walls: f32[D] ~ zeros
  return table[t] + exp(mask) * 0 + exp(walls) * 0
}
train net on train seed 3 {
  loss      = %s mean[B] sum[D] squared_error(net(t), x)
  optimizer %s
  freeze("mask")
  steps     3
  every 1   checkpoint("ck", keep = 3)
}
"""


def check_updates(rng):
    """What an update makes infinite is seen before it is saved, although no loss is made of it: rows of a table that no example reads, the last step.
    What no optimizer changes may be infinite."""
    data = programs.FOLDER / "updates"
    data.mkdir()
    np.savez(data / "t.npz", t=rng.integers(0, 7, 8).astype(np.int32), x=rng.standard_normal((8, 6)).astype(np.float32))
    for name, factor, optimizer in (("zero", "", "adam(lr = 0.01, eps = 0)"), ("large", "1e10 *", "sgd(lr = 1e38)")):
        program = programs.source("updates-" + name, UPDATES % (factor, optimizer))
        for plan in ([], ["--replicas", "2"]):
            out = programs.FOLDER / ("updates-out-" + name + "".join(plan))
            text = programs.call([programs.compiled(program, "updates-" + name, *plan), "--data", data, "--out", out, "--quiet"], allowed=(4,)).stdout
            what = "updates, %s %s: " % (name, " ".join(plan))
            said = "step 1: `table` is not finite any more: an update overflowed or divided by zero"
            verdicts.expect(said in text, what + text)
            left = [path.name for path in out.rglob("*.safetensors")]
            verdicts.expect(not left, what + "it left %s" % left)
    program = programs.source("updates-fine", UPDATES % ("", "adam(lr = 0.01)"))
    exe, begin, out = programs.compiled(program, "updates-fine"), programs.FOLDER / "updates-begin", programs.FOLDER / "updates-fine-out"
    programs.call([exe, "--data", data, "--out", begin, "--quiet", "--steps", "0"])
    tensors = tensorfile.read(begin / "final.safetensors")
    tensors["mask"] = tensors["walls"] = np.full(6, -np.inf, np.float32)
    tensorfile.write(programs.FOLDER / "masked.safetensors", tensors)
    programs.call([exe, "--data", data, "--out", out, "--quiet", "--init", programs.FOLDER / "masked.safetensors"])
    left = tensorfile.read(out / "final.safetensors")
    verdicts.expect((left["mask"] == -np.inf).all() and (left["walls"] == -np.inf).all(), "what is frozen, or a state, may be infinite")
    # A row of the table that no example reads, and that was infinite when training began, is no update's fault, in a run that goes on neither.
    program = programs.source("updates-began", UPDATES % ("", "sgd(lr = 0.01)"))
    tensors["table"] = tensors["table"].copy()
    tensors["table"][40] = -np.inf
    tensorfile.write(programs.FOLDER / "began.safetensors", tensors)
    for plan in ([], ["--replicas", "2"]):
        exe = programs.compiled(program, "updates-began", *plan)
        out = programs.FOLDER / ("updates-began-out" + "".join(plan))
        for steps, flags in (("2", ["--init", programs.FOLDER / "began.safetensors"]), ("3", ["--resume"])):
            text = programs.call([exe, "--data", data, "--out", out, "--quiet", "--steps", steps, *flags], allowed=(0, 4)).stdout
            verdicts.expect("not finite" not in text, "began with an infinite row, %s: %s" % (" ".join(plan), text))
        left = tensorfile.read(out / "final.safetensors")
        verdicts.expect((left["table"][40] == -np.inf).all() and np.isfinite(left["table"][:40]).all(), "an infinite row stays, the others are finite")


main()
