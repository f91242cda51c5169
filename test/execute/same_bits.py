"""What tests of `precision bf16` ask of a program: the same bits under every plan, and gradients near those in f32."""

import re
import sys

import numpy as np

import programs

ALL = "--all" in sys.argv


def smallest_budget(program):
    done = programs.call([programs.CINCH, program, "-o", programs.FOLDER / "no", "--memory-budget", "1KiB", "--max-threads", "2"], allowed=(1,))
    return int(re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout).group(1))


def check_bits(verdicts, name, program, folder, steps, others, micro=(1, 3, 6)):
    first = programs.run(programs.compiled(program, name + ".0"), folder, steps, "--threads", 1)
    least = smallest_budget(program)
    wide = ["--cpu", "skylake-avx512"] if programs.has_avx512() else []
    plans = [
        ["--microbatch", micro[0], *wide],
        ["--microbatch", micro[1], "--remat", "all", "--cpu", "haswell"],
        ["--memory-budget", least, "--max-threads", 2],
        *others,
    ]
    if ALL:
        plans += [["--microbatch", micro[2]], ["--remat", "sqrt"], ["--row-blocks", "none", "--cpu", "haswell"]]

    def run(numbered):
        number, flags = numbered
        exe = programs.compiled(program, "%s.%d" % (name, number + 1), *flags)
        threads = 1 + number % 2
        result = programs.run(exe, folder, steps, "--threads", threads)
        verdicts.expect(result.bytes == first.bytes, "%s: %s with %d threads gives other bits" % (name, " ".join(map(str, flags)), threads))

    programs.in_parallel(run, list(enumerate(plans)))
    # Stopped, and resumed under another plan.
    out = programs.FOLDER / (name + ".resumed")
    for exe, until, more in ((name + ".1", 2, []), (name + ".2", steps, ["--resume"])):
        programs.call([programs.FOLDER / exe, "--data", folder, "--out", out, "--steps", until, "--quiet", *more])
    verdicts.expect((out / "final.safetensors").read_bytes() == first.bytes, "%s: stopped and resumed gives other bits" % name)
    return first


def check_near_f32(verdicts, program, name, folder):
    """After one step of sgd, parameters have moved as in f32, but for the roundings."""
    exe = {p: programs.compiled(program, name + p, "--set", "train.precision=" + p) for p in ("f32", "bf16")}
    start = programs.run(exe["f32"], folder, 0).parameters
    moved = {p: {k: v - start[k] for k, v in programs.run(exe[p], folder, 1).parameters.items()} for p in exe}
    for key, value in moved["f32"].items():
        error = np.sqrt(np.mean((moved["bf16"][key] - value) ** 2) / np.mean(value**2))
        verdicts.expect(error < 0.1, "%s: the gradient of %s is off by %.3f of itself" % (name, key, error))
        verdicts.expect(error > 0, "%s: the gradient of %s is that of f32" % (name, key))
