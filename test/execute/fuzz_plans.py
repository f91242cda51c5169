#!/usr/bin/python3
"""A fuzzer of plans: random small programs (dense and index-notation products, norms, batch norms with state, attention, gathers, dropout, tied
parameters, residual sums, averages of parameters; sums over examples in blocks or not) are each compiled under several random plans and random
orders of their kernels, and all plans must leave the same bits.

usage: fuzz_plans.py [--count N] [--seed S]; a failing program is printed with its plans.
"""
import argparse
import math
import pathlib
import random

import numpy as np

import programs

STRATEGIES = ["none", "all", "sqrt", "every:1", "every:2", "marked", "cheap", "auto"]
GROUP = 2  # examples of a batch norm
verdicts = programs.Verdicts()


class Writer:
    """Writes one random program: a model from i32[B, T] below V or f32[B, D] to logits."""

    def __init__(self, rng):
        self.rng = rng
        self.layers, self.uses, self.lines, self.count = [], [], [], 0

    def name(self, stem):
        self.count += 1
        return "%s%d" % (stem, self.count)

    def activation(self, x):
        kind = self.rng.choice(["relu(%s)", "gelu(%s)", "gelu_tanh(%s)", "silu(%s)", "tanh(%s)", "sigmoid(%s)", "elu(%s)",
                                "hard_swish(%s)", "mish(%s)", "softplus(%s)", "sin(%s)", "leaky_relu(%s)"])
        return kind % x

    def use(self, stem, what):
        name = self.name(stem)
        self.uses.append("  use %s = %s" % (name, what))
        return name

    def define(self, expression, hint=""):
        name = self.name("v")
        if hint:
            self.lines.append("  " + hint)
        self.lines.append("  %s = %s" % (name, expression))
        return name

    def step(self, x, sequence):
        """One more part of the network, of the same shape as x."""
        r = self.rng
        hint = r.choice(["", "", "", "@checkpoint", "@recompute"])
        kinds = ["dense", "norm", "drop", "residual", "gate", "wide", "index"] + (["attend", "rope", "shift"] if sequence else [])
        kind = r.choice(kinds)
        if kind == "dense":
            f = self.use("f", "linear[D]")
            return self.define(self.activation("%s(%s)" % (f, x)), hint)
        if kind == "norm":
            n = self.use("n", r.choice(["layer_norm", "rms_norm", "batch_norm(group = %d)" % GROUP]))
            return self.define("%s(%s)" % (n, x), hint)
        if kind == "drop":
            return self.define("dropout(%s, %s)" % (x, r.choice(["0.1", "0.5"])), hint)
        if kind == "residual":
            inner = self.step(x, sequence)
            return self.define("%s + %s" % (x, inner), hint)
        if kind == "gate":
            f = self.use("f", "linear[D]")
            return self.define("%s * sigmoid(%s(%s))" % (x, f, x), hint)
        if kind == "wide":
            f, g = self.use("f", "linear[W]"), self.use("g", "linear[D]")
            middle = self.activation("%s(%s)" % (f, x))
            if r.random() < 0.4:
                middle = "dropout(%s, 0.3)" % middle
            return self.define("%s(%s)" % (g, middle), hint)
        if kind == "index":
            w, out = self.name("w"), self.name("v")
            self.uses.append("  param %s: f32[D, D] ~ normal(0.3)" % w)
            use = "%s[d, e]" % w if r.random() < 0.5 else "tanh(%s[d, e])" % w  # the latter: a batch-free value
            self.lines.append("  %s[.., e] = sum[d] %s[.., d] * %s" % (out, x, use))
            return out
        if kind == "attend":
            a = self.use("a", "multi_head_attention[A](causal = %s, rate = %s)" % (r.choice(["true", "false"]),
                                                                                   r.choice(["0", "0.2"])))
            return self.define("%s(%s)" % (a, x), hint)
        if kind == "rope":
            return self.define("rope(%s)" % x, hint)
        return self.define("concat(%s[:, 1:T], %s[:, 0:1], axis = 1)" % (x, x), hint)

    def program(self):
        r = self.rng
        sequence = r.random() < 0.6
        batch = r.choice([4, 6, 8])
        sizes = dict(D=r.choice([6, 8, 12, 20]), W=r.choice([5, 18, 33, 48]), A=2, T=r.choice([3, 5, 18]), V=r.choice([7, 19]))
        dims = "dim B = %d batch, %s\n" % (batch, ", ".join("%s = %d" % item for item in sizes.items()))
        block = Writer(r)
        block.count = 100
        x = "x"
        for _ in range(r.randint(1, 3)):
            x = block.step(x, sequence)
        shape = "f32[B, T, D]" if sequence else "f32[B, D]"
        layer = "layer block(x: %s) -> %s {\n%s\n  return %s\n}\n" % (
            shape, shape, "\n".join(block.uses + block.lines), x)
        if sequence:
            data = 'data train = text("train.txt", window = T + 1) -> (text: i32[B, T + 1] below 256)\n'
            self.uses.append("  param table: f32[256, D] ~ normal(0.5)")
            x = self.define("table[text]")
            signature, result = "model net(text: i32[B, T] below 256) -> f32[B, T, 256]", "table'"
        else:
            data = 'data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: i32[B] below V)\n'
            signature, result = "model net(x: f32[B, D]) -> f32[B, V]", None
            x = "x"
        blocks = self.use("blocks", "repeat %d block" % r.randint(1, 4))
        x = self.define("%s(%s)" % (blocks, x), r.choice(["", "@checkpoint"]))
        for _ in range(r.randint(0, 2)):
            x = self.step(x, sequence)
        if result:  # tied: the table is used again
            self.lines.append("  return %s @ %s" % (x, result))
        else:
            head = self.use("head", "linear[V]")
            self.lines.append("  return %s(%s)" % (head, x))
        loss = "mean[B, T] cross_entropy(net(text[.., :T]), text[.., 1:])" if sequence else "mean[B] cross_entropy(net(x), y)"
        optimizer = r.choice(["sgd(lr = 0.1, momentum = 0.9)", "adamw(lr = 1e-3, decay = 0.1)", "adam(lr = 1e-3)",
                              "sgd(lr = 0.1, momentum = 0.5, nesterov = true, decay = 1e-3)"])
        clip = r.choice(["", "  clip norm(0.5)\n"]) + r.choice(["", "", "  ema 0.5\n"])
        train = "train net on train seed %d {\n  loss = %s\n  optimizer %s\n%s  steps 3\n}\n" % (
            r.randrange(1000), loss, optimizer, clip)
        body = "\n".join(self.uses + self.lines)
        return dims + data + layer + signature + " {\n" + body + "\n}\n" + train, batch, sizes, sequence


def data_folder(name, seed, sizes):
    rng = np.random.default_rng(seed)
    folder = programs.FOLDER / name
    folder.mkdir()
    (folder / "train.txt").write_bytes(bytes(rng.integers(0, 256, 600, dtype=np.uint8)))
    np.save(folder / "x.npy", rng.standard_normal((40, sizes["D"])).astype(np.float32))
    np.save(folder / "y.npy", rng.integers(0, sizes["V"], 40).astype(np.int32))
    return folder


def random_blocks(rng, microbatch, positions, sequence, grain):
    """Rows of a block: positions that divide an example's, or whole examples (grains) that divide the micro-batch."""
    positions = positions if sequence else 1
    rows = [p for p in range(1, positions) if positions % p == 0 and not grain]
    rows += [e * positions for e in range(max(grain, 1), microbatch + 1, max(grain, 1)) if microbatch % e == 0]
    return rng.choice(["auto", "none"] + [str(r) for r in rows] * 2)


def try_one(number, seed):
    rng = random.Random(seed * 100003 + number)
    text, batch, sizes, sequence = Writer(rng).program()
    program = programs.source("fuzz%d" % number, text)
    data = data_folder("fuzz%d-data" % number, number, sizes)
    grain = rng.choice([0, 0, 1, 2])
    grained = ["--set", "train.grain=%d" % grain] if grain else []
    together = math.lcm(max(grain, 1), GROUP if "batch_norm" in text else 1)
    divisors = [d for d in range(1, batch + 1) if batch % d == 0 and d % together == 0]
    plans = [(["--remat", "none", "--microbatch", str(batch), *grained], 1)]
    for _ in range(3):
        microbatch = rng.choice(divisors)
        blocks = random_blocks(rng, microbatch, sizes["T"], sequence, together if grain or together > 1 else 0)
        plans.append((["--remat", rng.choice(STRATEGIES), "--microbatch", str(microbatch), "--row-blocks", blocks,
                       *grained], rng.choice([1, 2, 3])))
    first = None
    for index, (flags, threads) in enumerate(plans):
        if index and rng.random() < 0.7:  # a random legal order of the kernels, too
            flags = flags + ["--order-seed", str(rng.randrange(1, 1000))]
        name = "fuzz%d-%d" % (number, index)
        exe = programs.compiled(program, name, "--max-threads", "3", *flags, allowed=(0, 1))
        if not isinstance(exe, pathlib.Path):  # it has no work for blocks of rows: without them
            verdicts.expect(programs.NO_ROWS in exe.stdout, "program %d: %s: %s\n%s" % (number, " ".join(flags), exe.stdout, text))
            flags[flags.index("--row-blocks") + 1] = "auto"
            exe = programs.compiled(program, name, "--max-threads", "3", *flags)
        result = programs.run(exe, data, 3, "--threads", str(threads))
        first = first or result
        finite = all(np.isfinite(p).all() for p in result.parameters.values())
        same = verdicts.expect(result.bytes == first.bytes, "program %d: %s with %d threads differs from %s\n%s" % (
            number, " ".join(flags), threads, " ".join(plans[0][0]), text))
        verdicts.expect(finite, "program %d: parameters are not finite\n%s" % (number, text))
        if not same:
            break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def guarded(number):
        try:
            try_one(number, options.seed)
        except programs.Failure as failure:
            verdicts.expect(False, "program %d: %s" % (number, failure))

    programs.in_parallel(guarded, range(options.count))
    verdicts.finish()


main()
