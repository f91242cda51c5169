#!/usr/bin/python3
"""Formulas at the points where they change: gradients at 0 and at bounds, both kinds of clipping, counts beyond what f32 tells apart.

usage: corners.py [NAME...]     NAME chooses by a part of the function's name
"""
import json
import sys

import numpy as np
import programs

verdicts = programs.Verdicts()
expect = verdicts.expect

ONE = """dim B = 4 batch, D = 2
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B])
model net(x: f32[B, D]) -> f32[B] {
  param w: f32[D] ~ zeros
  h[b] = sum[d] x[b, d] * w[d]
  return %s
}
train net on train seed 1 {
  loss = mean[B] (net(x) - y) ^ 2
  optimizer sgd(lr = 1)
  %s
  precision f64
  steps 1
}
"""


def after_a_step(name, value, rules="", x=1.0, y=1.0):
    """The parameter, which was 0: minus its gradient."""
    folder = programs.arrays(name, x=np.full((4, 2), x), y=np.full(4, y))
    return programs.run(programs.compiled(programs.source(name, ONE % (value, rules)), name + ".exe"), folder, 1).parameters["w"]


def derivatives():
    """Of a smooth function at 0, and of a value that stands at a bound."""
    for name, value, slope in (("elu", "elu(h)", 1.0), ("elu2", "elu(h, alpha = 2)", 2.0), ("open", "min(1, max(0, h))", 1.0), ("flat", "min(max(h, 0), 1)", 0.0),
                               ("relu", "relu(h)", 0.0), ("power", "(h + 1) ^ (h + 2)", 2.0), ("nothing", "h ^ (0 * h) + h", 1.0)):
        got = after_a_step(name, value, y=1.0 if name not in ("power", "nothing") else 2.0)
        # (f - y)^2 with f - y = -1, but for powers, where f is 1.
        want = 2 * slope
        expect(np.allclose(got, want, rtol=1e-12), "%s: %s after a step, not %s" % (value, got, want))


def clips():
    """Values first, then the norm of what that leaves."""
    gradient = np.array([-2000.0, -2000.0])  # x = 1000
    for name, rules in (("value", "clip value(1)"), ("norm", "clip norm(1)"), ("both", "clip value(1)\n  clip norm(1)"), ("turned", "clip norm(1)\n  clip value(1)")):
        g = gradient
        if "value" in rules:
            g = np.clip(g, -1, 1)
        if "norm" in rules:
            g = g * min(1, 1 / (np.sqrt((g * g).sum()) + 1e-6))
        got = after_a_step("clip-" + name, "h", rules, x=1000.0)
        expect(np.allclose(got, -g, rtol=1e-12), "%s: %s, not %s" % (rules, got, -g))


CLASSES = """dim B = 4 batch, C = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, C], y: i32[B] below C)
model net(x: f32[B, C]) -> f32[B, C] {
  param w: f32[C] ~ zeros
  return x + w
}
train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y%s)
  optimizer sgd(lr = 1)
  steps 1
}
"""


def far_logits():
    """Of logits that have much in common, the loss keeps its digits."""
    logits = np.array([0.0, 1.0, 2.0, 3.0])
    p = np.exp(logits) / np.exp(logits).sum()
    for smooth in (0, 0.25):
        exe = programs.compiled(programs.source("far%d" % (smooth > 0), CLASSES % (", smooth = %s" % smooth if smooth else "")), "far%d.exe" % (smooth > 0))
        share = np.full(4, smooth / 4) + (1 - smooth) * np.eye(4)
        for offset in (0, 1e4, 1e6, -1e7):
            folder = programs.arrays("far%d%g" % (smooth > 0, offset), x=logits + offset + np.zeros((4, 1)))
            np.save(folder / "y.npy", np.arange(4, dtype=np.int32))
            result = programs.run(exe, folder, 1)
            want = -(share @ np.log(p)).mean()
            expect(abs(result.losses[0] - want) < 1e-6 * want, "logits about %g, smooth %g: a loss of %.9g, not %.9g" % (offset, smooth, result.losses[0], want))
            expect(np.allclose(result.parameters["w"], (share - p).mean(0), atol=1e-6), "logits about %g, smooth %g: %s" % (offset, smooth, result.parameters["w"]))


DROPPED = """dim B = 64 batch, D = 512
data train = npy("x.npy") -> (x: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  param w: f32[D] ~ zeros
  return %s
}
train net on train seed 1 {
  loss = sum[B, D] net(x)
  optimizer sgd(lr = 1)
  precision f64
  steps 1
}
"""


def dropouts():
    """What is kept is divided by the share that is kept, which is a multiple of 1/65536; a rate whose share is near one of these divides by itself."""
    folder = programs.arrays("dropped", x=np.ones((64, 512)))
    attended = "reshape[B, D](attend(reshape[B, 1, D, 1](0 * x), reshape[B, 1, D, 1](0 * x), reshape[B, 1, D, 1](x * w), dropout = %s))"
    for name, value in (("dropout", "dropout(x * w, %s)"), ("path", "drop_path(x * w, %s)"), ("attend", attended)):
        for rate, share in (("0.1", 0.9), ("0.9995", 33 / 65536), ("0.99999", 1 / 65536)):
            program = programs.source("dropped-" + name, DROPPED % (value % rate))
            gradient = -programs.run(programs.compiled(program, program.stem + rate), folder, 1).parameters["w"]
            kept = gradient * share * (512 if name == "attend" else 1)  # how many of the examples, or of examples and queries, kept an element
            error = np.abs(kept - np.round(kept)).max()
            expect(error < 1e-6, "%s(%s): what is kept is not divided by %.8f: off by %g" % (name, rate, share, error))


def counts():
    """More rows than f32 tells apart, all of them right."""
    rows = 18_000_000
    folder = programs.FOLDER / "counts"
    folder.mkdir()
    np.save(folder / "x.npy", np.ones(64, "u1"))
    np.save(folder / "many.npy", np.ones(rows, "u1"))
    exe = programs.compiled(programs.source("counts", """dim B = 64 batch
data train = npy("x.npy") -> (x: f32[B])
data many = npy("many.npy") -> (x: f32[B])
model net(x: f32[B]) -> f32[B] {
  param w: f32[] ~ ones
  return x * w
}
train net on train seed 1 {
  p = net(x)
  loss = mean[B] (p - x) ^ 2
  metric right = mean[B] (p > 0.5)
  metric number = sum[B] (p > 0.5)
  metric half = mean[B where x > 0] (p > 0.5)
  optimizer sgd(lr = 0.1)
  steps 1
}
"""), "counts.exe")
    out = programs.FOLDER / "counts-out"
    programs.call([exe, "--data", folder, "--out", out, "--quiet"])
    done = programs.call([exe, "eval", "--on", "many", "--data", folder, "--out", out, "--threads", "1"])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    expect(found["right"] == 1 and found["half"] == 1 and found["number"] == rows, "%s" % found)


def main():
    for test in (derivatives, clips, far_logits, dropouts, counts):
        if len(sys.argv) == 1 or any(name in test.__name__ for name in sys.argv[1:]):
            test()


verdicts.run(main)
