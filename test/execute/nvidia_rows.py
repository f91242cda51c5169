#!/usr/bin/python3
"""Long rows of bf16 whose length is no multiple of eight (transforms/PadRows), in random programs for a GPU, executed on the CPU (standin.py): products
of such rows along them and across them, norms, losses, parts and runs of them. Whatever the plan, the bits are the same, under the smallest budget that a
refusal names, too; and the parameters are near those of the CPU's program, whose rows lie side by side.

usage: nvidia_rows.py [--count N] [--seed S] [--one SEED]
"""
import argparse
import random
import re

import numpy as np

import nvidia_bf16 as bf16
import nvidia_random
import programs

verdicts = bf16.verdicts
WIDE = (513, 515, 518, 519, 522, 525, 527, 531) # 7 to 1 beyond a multiple of eight
ROWS = ["up(x)", "relu(up(x))", "dropout(gelu_tanh(up(x)), 0.2)", "norm(up(x))", "tanh(up(x)) * scale", "up(x) + 0.1 * other(x)", "softmax(up(x))"]
# What is done with the rows h: `y` are labels below V or numbers, `o` has features of an example and a position.
HEADS = [
    ("V", "", "mean[B, T] cross_entropy(net(x), y)", "h"),
    ("V", "", "mean[B, T] cross_entropy(net(x), y) + 0.01 * (mean[B, T, V] squared_error(net(x), 0))", "h"), # taken as one run of elements
    ("V", "", "mean[B, U] cross_entropy(net(x)[:, 0 : U], y[:, 0 : U])", "h"),
    ("D", "", "mean[B, T, D] squared_error(net(x), y)", "down(h)"),
    ("D", "  s[b, v, d] = sum[t] h[b, t, v] * x[b, t, d]\n  o[b, t, d] = sum[v] h[b, t, v] * s[b, v, d]\n", "mean[B, T, D] squared_error(net(x), y)", "0.1 * o"),
    ("D", "  g = other(x)\n  s[b, t, u] = sum[v] h[b, t, v] * g[b, u, v]\n  o[b, t, d] = sum[u] s[b, t, u] * x[b, u, d]\n",
     "mean[B, T, D] squared_error(net(x), y)", "0.01 * o"),
    ("D", "  o[b, t, d] = (max[v] h[b, t, v]) * x[b, t, d]\n", "mean[B, T, D] squared_error(net(x), y)", "o"),
    ("D", "  r = h[:, T - 1]\n  o[b, t, d] = x[b, t, d] * (mean[v] r[b, v])\n", "mean[B, T, D] squared_error(net(x), y)", "o + down(h)"),
]


def case_of(seed):
    draw = random.Random(seed)
    out, lines, loss, result = draw.choice(HEADS)
    T = draw.choice([2, 5, 9, 32])
    sizes = "T = %d, U = %d, D = %d, V = %d" % (T, T - 1, draw.choice([8, 24, 40]), draw.choice(WIDE))
    body = "  h = %s\n%s  return %s\n}" % (draw.choice(ROWS), lines, result)
    owned = {"up": "  use up = linear[V](with_bias = %s)\n" % draw.choice(["true", "false"]), "other": "  use other = linear[V]\n",
             "down": "  use down = linear[D]\n", "norm": "  use norm = layer_norm\n", "scale": "  param scale: f32[V] ~ ones\n"}
    used = "".join(text for name, text in owned.items() if re.search(r"\b%s\b" % name, body))
    model = "model net(x: f32[B, T, D]) -> f32[B, T, %s] {\n%s%s" % (out, used, body)
    plans = [["--microbatch", "1"], ["--microbatch", "4", "--remat", "all", "--order-seed", str(seed)], ["--microbatch", "2"]]
    return bf16.Case("program %d" % seed, sizes, "f32[B, T, D]", "i32[B, T] below V" if out == "V" else "f32[B, T, D]", model, loss, plans)


def check(seed):
    case, target = case_of(seed), random.Random(seed).choice(["a100", "sm_90a"])
    try:
        source = programs.source("rows%d" % seed, case.text)
        case.plans.append(nvidia_random.smallest(source, ["--target", "nvidia:" + target]))
        bf16.check((seed, case), (target,))
    except programs.Failure as failure:
        verdicts.expect(False, "%d: %s\n%s" % (seed, failure, case.text))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--one", type=int, help="this program only, which is printed")
    options = parser.parse_args()
    if options.one is not None:
        print(case_of(options.one).text)
        check(options.one)
    else:
        first = options.seed * 1000
        programs.in_parallel(check, range(first, first + options.count))


if __name__ == "__main__":
    verdicts.run(main)
