#!/usr/bin/python3
"""No silent wrong number: an overflow planted in a model ends the run with exit code 4 before any parameter changes, and the
message names the lines of the kernel that made it. The same under a plan that recomputes and splits the batch, and inside a
loop over blocks of rows, where outputs move from block to block, with one example of 32 that overflows."""
import re

import numpy as np

import programs

verdicts = programs.Verdicts()
MODEL = """dim B = 8 batch, D = 6
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  use a = linear[D], b = linear[D]
  h = a(x)
  e = exp(h * 1000)
  return b(tanh(h)) + e - e
}
train net on train seed 3 {
  loss      = mean[B] sum[D] squared_error(net(x), y)
  optimizer %s
  steps     5
}
"""
WIDE = """dim B = 8 batch, D = 6, W = 40
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  use a = linear[W], b = linear[D]
  h = a(x)
  e = exp(h * 10)
  return b(tanh(h) + e - e)
}
train net on train seed 3 {
  loss      = mean[B] sum[D] squared_error(net(x), y)
  optimizer %s
  steps     5
}
"""
LINE = 6  # of the exp, whose result is the first that is not finite


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    rng = np.random.default_rng(4)
    np.save(data / "x.npy", rng.standard_normal((32, 6)).astype(np.float32) * 3)
    np.save(data / "y.npy", rng.standard_normal((32, 6)).astype(np.float32))
    single = programs.FOLDER / "single"
    single.mkdir()
    x = np.zeros((32, 6), np.float32)
    x[13] = 1e4
    np.save(single / "x.npy", x)
    np.save(single / "y.npy", rng.standard_normal((32, 6)).astype(np.float32))
    for name, optimizer in (("sgd", "sgd(lr = 0.1)"), ("adamw", "adamw(lr = 1e-3, decay = 0.1)")):
        for model, plan in (
            (MODEL, ["--remat", "none", "--microbatch", "8"]),
            (MODEL, ["--remat", "all", "--microbatch", "2"]),
            (WIDE, ["--row-blocks", "2", "--microbatch", "8"]),
        ):
            program = programs.source("overflow-" + name, model % optimizer)
            if model is WIDE:
                scheduled = programs.call([programs.CINCH, program, *plan, "--emit", "plan", "-o", "-"])
                verdicts.expect("plan.row_blocks" in scheduled.stdout, "%s: nothing runs in blocks of rows" % name)
            exe = programs.compiled(program, "overflow", *plan)
            from_data = single if model is WIDE else data
            start, out = programs.FOLDER / "start", programs.FOLDER / ("out-%s-%s" % (name, plan[-1]))
            programs.call([exe, "--data", from_data, "--out", start, "--steps", 0, "--quiet"])
            done = programs.call([exe, "--data", from_data, "--out", out, "--quiet"], allowed=(4,))
            what = "%s %s" % (name, " ".join(plan))
            verdicts.expect(re.search(r"overflow-%s\.cinch:\d+: .*\b%d \([^)]*\bexp\b" % (name, LINE), done.stdout),
                            "%s: the exp of line %d is not named:\n%s" % (what, LINE, done.stdout))
            verdicts.expect(not (out / "final.safetensors").exists(), "%s: a final result was written" % what)
            if model is WIDE:
                continue  # it has made steps
            saved = sorted(out.glob("**/*.safetensors"))
            initial = programs.tensorfile.read(start / "final.safetensors")
            for path in saved:
                kept = programs.tensorfile.read(path)
                same = all(np.array_equal(kept[key], value) for key, value in initial.items())
                verdicts.expect(same, "%s: %s holds other parameters than the initial ones" % (what, path.name))
    verdicts.finish()


main()
