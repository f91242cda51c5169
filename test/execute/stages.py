#!/usr/bin/python3
"""Several workers never change a bit: the programs of the tree (tree_programs.py), an LSTM, masked losses and a classifier with states are
divided into stages under every schedule, and their parameters after a few steps are those of one worker.

usage: stages.py [--all] [NAME...]      --all: every schedule and number of workers for every program
"""
import argparse
import itertools
import json
import random
import re
import subprocess

import numpy as np

import programs
import recorded_bits
import tree_programs

STEPS = recorded_bits.STEPS
SCHEDULES = ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zbv"]
TOO_FEW = "too few for"  # stages of a small model
verdicts = programs.Verdicts()


class Setting:
    def __init__(self, workers, schedule, microbatch, least=False, threads=1, chunks=None):
        self.least, self.threads = least, threads
        self.flags = ["--stages", str(workers), "--schedule", schedule]
        if microbatch and schedule != "naive":
            self.flags += ["--microbatch", str(microbatch)]
        if chunks and schedule == "interleaved":
            self.flags += ["--chunks", str(chunks)]

    def __str__(self):
        return " ".join(self.flags) + (", smallest budget" if self.least else "") + ", %d threads a worker" % self.threads


def chosen(number, together):
    """Two settings for a program: all schedules, numbers of workers and micro-batches come up over the programs."""
    rng = random.Random("stages %d" % number)
    first = Setting(2 + number % 3, SCHEDULES[number % 6], together * rng.choice([1, 2]), threads=rng.choice([1, 2]))
    second = Setting(2 + (number + 1) % 3, SCHEDULES[(number + 3) % 6], rng.choice([None, together]), number % 3 == 0, chunks=3)
    return [first, second]


def every(together):
    return [Setting(workers, schedule, microbatch) for workers, schedule, microbatch in
            itertools.product([2, 3, 4], SCHEDULES, [None, together, 2 * together])]


def compiled(source, name, flags, setting):
    """(executable, budget of a worker), or None if the model is too small for so many stages."""
    flags = [*flags, *setting.flags, "--max-threads", "2"]
    budget = None
    if setting.least:
        refused = programs.compiled(source, name, *flags, "--memory-budget", "1KiB", allowed=(1,))
        if TOO_FEW in refused.stdout:
            return None
        budget = int(re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout).group(1))
        flags += ["--memory-budget", str(budget)]
    exe = programs.compiled(source, name, *flags, allowed=(0, 1))
    if not hasattr(exe, "stdout"):
        return exe, budget
    if TOO_FEW not in exe.stdout:
        raise programs.Failure(exe.stdout[-2000:])
    return None


def check(program, number, settings, expected):
    """`expected`: hashes by path."""
    source, folder = tree_programs.prepared(program, "stages%d" % number)
    for i, setting in enumerate(settings):
        label = "%s (%s %s)" % (program.name, " ".join(program.flags), setting)
        try:
            made = compiled(source, "stages%d-%d" % (number, i), program.flags, setting)
            if made is None:
                continue
            result = programs.run(made[0], folder, STEPS, "--threads", str(setting.threads), timeout=60)
        except (programs.Failure, subprocess.TimeoutExpired) as failure:
            verdicts.expect(False, "%s: %s" % (label, failure))
            continue
        found = recorded_bits.hashes(result.parameters)
        wrong = sorted(path for path in {*expected, *found} if expected.get(path) != found.get(path))
        verdicts.expect(not wrong, "%s: other bits than one worker's in %d of %d tensors: %s" % (
            label, len(wrong), len(expected), ", ".join(wrong[:5])))
        workers = int(setting.flags[1])
        if made[1]:
            verdicts.expect(result.peak <= workers * made[1], "%s: a peak of %d bytes, above %d x %d" % (label, result.peak, workers, made[1]))


def check_loops():
    """An LSTM over two workers, at the smallest budget: loops keep states before runs of trips. The bits of one worker that keeps all."""
    data, draw = programs.FOLDER / "bytes", np.random.RandomState(4)
    data.mkdir()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(draw.randint(0, 64, 4000).astype(np.uint8).tobytes())
    source, flags = programs.HERE.parent.parent / "examples/lstm/lstm.cinch", ["-D", "B=4", "-D", "T=64", "-D", "V=64", "-D", "H=16"]
    one = programs.run(programs.compiled(source, "loops-one", *flags), data, STEPS)
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        setting = Setting(2, schedule, None, True)
        exe, least = compiled(source, "loops", flags, setting)
        verdicts.expect(programs.run(exe, data, STEPS).bytes == one.bytes, "loops along an axis, %s: other bits" % setting)
        plan = programs.call([programs.CINCH, "plan", source, *flags, "--stages", "2", "--schedule", schedule, "--memory-budget", str(least)])
        verdicts.expect(schedule == "zb-h1" or "states are kept before each run of trips" in plan.stdout, "loops, %s: %s" % (setting, plan.stdout[:600]))


def check_row_blocks():
    """A wide layer whose gradients of inputs and of parameters run in parts of their own: each part works in blocks of rows."""
    data, draw = programs.FOLDER / "wide", np.random.RandomState(6)
    data.mkdir()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(draw.randint(0, 64, 2000).astype(np.uint8).tobytes())
    source, flags = programs.HERE.parent.parent / "examples/gpt/gpt.cinch", "-D B=4 -D T=32 -D D=16 -D N=3 -D V=64 -D A=2".split()
    one = programs.run(programs.compiled(source, "wide-one", *flags), data, STEPS)
    for schedule in ("1f1b", "gpipe", "zb-h1", "zbv"):
        wanted = [*flags, "--stages", "2", "--schedule", schedule, "--row-blocks", "8", "--max-threads", "2"]
        result = programs.run(programs.compiled(source, "wide-" + schedule, *wanted), data, STEPS)
        verdicts.expect(result.bytes == one.bytes, "blocks of rows, %s: other bits" % schedule)
        plan = json.loads(programs.call([programs.CINCH, "plan", source, *wanted, "--json"]).stdout)
        ranges = [len(worker["plan"]["row_blocks"]) for worker in plan["workers"]]
        verdicts.expect(max(ranges) >= 3, "blocks of rows, %s: %s ranges" % (schedule, ranges))
    check_wide()
    # The first worker has no work that is worth it.
    narrow = programs.compiled(source, "narrow", *"-D B=4 -D T=16 -D D=16 -D N=1 -D V=64 -D A=2 --stages 3 --row-blocks 8 --max-threads 2".split(), allowed=(0, 1))
    verdicts.expect(not hasattr(narrow, "stdout"), "blocks of rows for those workers that have such work: %s" % getattr(narrow, "stdout", "")[:300])


WIDE = """dim B = 8 batch, T = 4, V = 96, D = 4
data train = npy("x.npy") -> (x: i32[B, T] below V)
model net(x: i32[B, T] below V) -> (f32[B, T, V], f32[B, T, V]) {
  use e = embedding[V, D], a = linear[V], b = linear[V], up = linear[16 * D], down = linear[D], n = layer_norm
  h = e(x)
  k = n(h + down(relu(up(h))))
  return a(k), b(h)
}
train net on train seed 3 {
  p, q = net(x)
  loss = mean[B, T] cross_entropy(p, x) + 0.5 * mean[B, T] cross_entropy(q, x) + 0.01 * mean[B, T, V] p ^ 2
  optimizer adam(lr = 0.01)
  steps 4
}
"""


def check_wide():
    """Two wide losses on workers whose gradients of parameters wait for another replica: what a part computes again for its blocks of rows is
    its own, and a worker whose rows are others than the program's has a plan as it is."""
    data = programs.FOLDER / "two-wide"
    data.mkdir()
    np.save(data / "x.npy", np.random.RandomState(10).randint(0, 96, (32, 4)).astype("i4"))
    source = programs.source("two-wide", WIDE)
    one = programs.run(programs.compiled(source, "two-wide-one", "--max-threads", "2"), data, STEPS)
    for schedule in ("zbv", "zb-h1", "gpipe"):
        flags = ["--stages", "2", "--replicas", "2", "--schedule", schedule, "--row-blocks", "4", "--max-threads", "2"]
        result = programs.run(programs.compiled(source, "two-wide-" + schedule, *flags), data, STEPS)
        verdicts.expect(result.bytes == one.bytes, "two wide losses, %s: other bits" % " ".join(flags))


def check_again():
    """zbv computes values again: at the smallest budget, which is below that of the plan that keeps everything, the bits of one worker."""
    data = programs.FOLDER / "again"
    data.mkdir()
    draw = np.random.RandomState(8)
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(draw.randint(0, 64, 2000).astype(np.uint8).tobytes())
    source, flags = programs.HERE.parent.parent / "examples/gpt/gpt.cinch", "-D B=4 -D T=32 -D D=16 -D N=4 -D V=64 -D A=2".split()
    one = programs.run(programs.compiled(source, "again-one", *flags), data, STEPS)
    for workers in (2, 3):
        setting = Setting(workers, "zbv", None, True)
        exe, least = compiled(source, "again%d" % workers, flags, setting)
        verdicts.expect(programs.run(exe, data, STEPS).bytes == one.bytes, "%s: other bits" % setting)
        wanted = [programs.CINCH, "plan", source, *flags, *setting.flags, "--max-threads", "2", "--memory-budget", str(least)]
        again = re.findall(r"(\d+) of \d+ kernel runs done again", programs.call(wanted).stdout)
        verdicts.expect(any(int(count) > 0 for count in again), "%s: nothing is computed again: %s" % (setting, again))
        kept = subprocess.run([*map(str, wanted), "--remat", "none"], capture_output=True, text=True)
        verdicts.expect(kept.returncode == 1, "%s: the plan that keeps everything fits, too" % setting)


PREDICTED = """dim B = 12 batch, I = 37, H = 45, C = 5
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
model net(x: f32[B, I]) -> f32[B, C] {
  use a = linear[H], norm = layer_norm, b = linear[H], c = linear[C]
  return c(relu(b(dropout(gelu(norm(a(x))), 0.25))))
}
train net on train seed 3 { loss = mean[B] cross_entropy(net(x), y); optimizer sgd(lr = 0.1); steps 3 }
"""


def check_predictions():
    """`predict` of several workers, where a result may wait for its turn while the next micro-batches go on: the files of one worker."""
    data, draw = programs.FOLDER / "predicted", np.random.RandomState(5)
    data.mkdir()
    np.save(data / "x.npy", draw.randn(50, 37).astype("f4"))
    np.save(data / "y.npy", draw.randint(0, 5, 50).astype("i4"))
    source = programs.source("predicted", PREDICTED)
    wanted = None
    for number, flags in enumerate(([], ["--stages", "2"], ["--stages", "2", "--schedule", "interleaved"], ["--stages", "2", "--schedule", "zbv"])):
        exe = programs.compiled(source, "predicted%d" % number, *flags, *(["--microbatch", "2"] if flags else []))
        out = programs.FOLDER / ("predicted%d-out" % number)
        programs.call([exe, "--data", data, "--out", out, "--quiet"])
        programs.call([exe, "predict", "--data", data, "--out", out, "--quiet"])
        found = {path.name: path.read_bytes() for path in out.glob("predict/train/*.npy")}
        wanted = wanted or found
        verdicts.expect(len(found) == 1 and found == wanted, "predict, %s: other results than one worker's" % " ".join(flags))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    record = json.loads(recorded_bits.RECORD.read_text())
    picked = [(p, i) for i, p in enumerate(tree_programs.all_programs()) if not options.names or any(n in p.name for n in options.names)]

    def one(entry):
        program, number = entry
        together = 2 if tree_programs.GRAIN[1] in program.flags else 1
        settings = every(together) if options.all else chosen(number, together)
        check(program, number, settings, record[program.name])

    programs.in_parallel(one, picked)
    if not options.names or "loops" in options.names:
        check_loops()
    if not options.names or "rows" in options.names:
        check_row_blocks()
    if not options.names or "again" in options.names:
        check_again()
    if not options.names or "predict" in options.names:
        check_predictions()
    verdicts.finish()


if __name__ == "__main__":
    main()
