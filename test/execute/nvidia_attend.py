#!/usr/bin/python3
"""Attention of a GPU, executed on the CPU (standin.py): over sizes beside and beyond its tiles, masks, biases, groups, dropout, sums in
blocks, the parameters after two steps are those of the CPU's kernels, bit for bit, under other orders of threads and other plans.

usage: nvidia_attend.py [NAME...]      a NAME chooses cases by a part of it
"""
import sys

import numpy as np

import programs
import standin

verdicts = programs.Verdicts()

# Queries, keys and values are products of the data with parameters, so that every gradient reaches some.
TEXT = """dim B = %(B)d batch, T = %(T)d, S = %(S)d, A = %(A)d, G = %(G)d, K = %(K)d, E = %(E)d
data train = npz("t.npz") -> (x: f32[B, T, 7], z: f32[B, S, 7], keep: i32[B, S])
model net(x: f32[B, T, 7], z: f32[B, S, 7], keep: i32[B, S]) -> f32[B, A, T, E] {
  param wq: f32[7, A, K] ~ normal(0.7)
  param wk: f32[7, G, K] ~ normal(0.7)
  param wv: f32[7, G, E] ~ normal(0.7)
  %(bias)s
  q[b, a, t, f] = sum[d] x[b, t, d] * wq[d, a, f]
  k[b, g, s, f] = sum[d] z[b, s, d] * wk[d, g, f]
  v[b, g, s, e] = sum[d] z[b, s, d] * wv[d, g, e]
  %(keys)s
  return attend(q, k, v%(arguments)s)
}
train net on train seed 3 {
  y = net(x, z, keep)
  loss = sum[B, A, T, E] (y * y + y) / (B * T)
  optimizer sgd(lr = 0.1)
  steps 2
  %(more)s
}
"""
SIZES = dict(B=2, T=16, S=16, A=2, G=2, K=8, E=8)
CASES = [
    ("one tile", {}, ""),
    ("beside a tile", dict(T=21, S=19, K=17, E=5), ""),
    ("causal", dict(T=37, S=37, K=8, E=9), ", causal = true"),
    ("several blocks", dict(B=1, T=130, S=70, A=1, G=1, K=20, E=18), ""),
    ("several blocks, causal", dict(B=1, T=133, S=133, A=1, G=1), ", causal = true, dropout = 0.2"),
    ("more keys than queries, causal", dict(B=1, T=20, S=70, A=1, G=1), ", causal = true"),
    ("more queries than keys, causal", dict(B=1, T=70, S=20, A=1, G=1), ", causal = true"),
    ("groups", dict(A=4, G=2, T=9, S=9), ", causal = true"),
    ("keys", dict(T=9, S=13), ", keys"),
    ("bias", dict(T=18, S=9, A=4, G=2), ", bias = p"),
    ("bias, causal, grain", dict(B=4, T=66, S=66, A=1, G=1, K=4, E=4), ", bias = p, causal = true"),
    ("wide heads", dict(B=1, A=1, G=1, T=9, S=10, K=150, E=200), ""),
    ("dropout", dict(T=20, S=64), ", dropout = 0.4"),
    ("dropout, draws within groups", dict(T=7, S=67), ", keys, dropout = 0.4"),
]


def check(case):
    number, (name, sizes, arguments) = case
    sizes = {**SIZES, **sizes}
    bias = "param p: f32[A, T, S] ~ normal(1)" if "bias" in arguments else ""
    text = TEXT % dict(sizes, arguments=arguments, bias=bias, keys="keys = keep > 0" if "keys" in arguments else "", more="grain 2" if "grain" in name else "")
    folder = programs.FOLDER / ("data%d" % number)
    folder.mkdir()
    draw = np.random.default_rng(number)
    np.savez(folder / "t.npz", x=draw.standard_normal((8, sizes["T"], 7)).astype("f4"), z=draw.standard_normal((8, sizes["S"], 7)).astype("f4"),
             keep=draw.integers(0, 2, (8, sizes["S"])).astype("i4") * (np.arange(8) % 3 > 0)[:, None])
    source = programs.source("attend%d" % number, text)
    run = ["--data", folder, "--quiet"]
    wanted = programs.FOLDER / ("cpu%d" % number)
    programs.call([programs.compiled(source, "cpu%d.exe" % number), *run, "--out", wanted])
    built = standin.Program(source, "device%d" % number, *(["--microbatch", "2"] if "grain" in name else ["--microbatch", "1"]))
    out = programs.FOLDER / ("out%d" % number)
    built.run(*run, "--out", out, seed=number)
    final = [programs.tensorfile.read(folder / "final.safetensors") for folder in (wanted, out)]
    wrong = [path for path in final[0] if final[0][path].tobytes() != final[1][path].tobytes()]
    verdicts.expect(not wrong, "%s: other bits than the CPU's in %s" % (name, ", ".join(wrong)))
    moved = [path for path in final[0] if not np.isfinite(final[0][path]).all()]
    verdicts.expect(not moved, "%s: not finite: %s" % (name, ", ".join(moved)))


def main():
    chosen = [case for case in enumerate(CASES) if not sys.argv[1:] or any(word in case[1][0] for word in sys.argv[1:])]
    programs.in_parallel(check, chosen)


if __name__ == "__main__":
    verdicts.run(main)
