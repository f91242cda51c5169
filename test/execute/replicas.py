#!/usr/bin/python3
"""Exact replicas never change a bit: programs of every kind (tied weights, dropout, grains, running statistics, loops along an axis, masked
losses with a replica that has no chosen element) leave, after a few steps by D replicas of P workers, the parameters and the logs of one
worker. The same over TCP and under both mpiruns, at the smallest budget; eval and predict, a NaN, SIGKILL and resume on other grids.

usage: replicas.py [--all] [NAME...]      --all: replicas x stages x schedules x micro-batches for every program, every transport
"""
import argparse
import itertools
import json
import random
import re
import resource
import signal
import subprocess
import time

import numpy as np

import masked
import processes
import programs
import stages
import tree_programs

ROOT = programs.HERE.parent.parent
STEPS = 4
verdicts = programs.Verdicts()


# ---- Programs --------------------------------------------------------------------------------------------------------
def masked_data(folder, draw):
    """The first six examples of every file are chosen nowhere, and the file is not shuffled."""
    weights = draw.uniform(size=(48, 3)).astype(np.float32)
    weights[:6] = 0
    weights[14] = 0
    for name, values in (("x", draw.normal(size=(48, 3, 5)).astype(np.float32)), ("y", draw.randint(0, 4, (48, 3)).astype(np.int32)), ("w", weights)):
        np.save(folder / (name + ".npy"), values)


def masked_program(loss):
    text = masked.PROGRAM.replace("RATE", "0.2").replace("sgd(lr = 1)", "adam(lr = 0.01)").replace("steps 2", "steps 4") % masked.LOSSES[loss][0]
    return tree_programs.Program("masked, " + loss, None, masked_data, "", (), [], text)


def state_program(*settings):
    pictures = tree_programs.pictures(8, [("images", "labels"), ("valid-images", "valid-labels")])
    return tree_programs.Program("state", "test/execute/state.cinch", pictures, "B=24", settings)


def lstm_text(folder, draw):
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_bytes(draw.randint(0, 64, 3000).astype(np.uint8).tobytes())


PICKED = ["mlp", "mlp, grain", "examples/gpt", "gpt", "gpt, grain", "gpt, row blocks", "vae", "norms", "sums and roots", "case a layer called twice",
          "case attend, bias", "case draws without examples"]


def all_programs():
    """(program, examples that belong together, batch)"""
    tree = {program.name: program for program in tree_programs.all_programs()}
    picked = [tree[name] for name in PICKED]
    picked.append(tree_programs.Program("lstm", "examples/lstm/lstm.cinch", lstm_text, "B=8 T=7 V=64 H=12"))
    picked += [masked_program(loss) for loss in ("chosen", "gated", "three sums", "penalty")]
    picked += [state_program(), state_program("--set", "train.grain=12")]
    return picked


def together(program):
    if program.name == "state":
        return 12 if program.flags[-1] == "train.grain=12" else 6
    return 2 if tree_programs.GRAIN[1] in program.flags else 1


def batch(program):
    for word in program.flags:
        if word.startswith("B="):
            return int(word[2:])
    return {"sums and roots": 6, "norms": 8}.get(program.name, 12 if program.name.startswith("masked") else 4)


class Grid:
    def __init__(self, replicas, workers=1, schedule=None, microbatch=None, least=False, threads=1):
        self.replicas, self.workers, self.least, self.threads = replicas, workers, least, threads
        self.flags = ["--replicas", str(replicas)]
        if workers > 1:
            self.flags += ["--stages", str(workers)] + (["--schedule", schedule] if schedule else [])
        if microbatch and schedule != "naive":
            self.flags += ["--microbatch", str(microbatch)]

    def __str__(self):
        return " ".join(self.flags) + (", smallest budget" if self.least else "") + ", %d threads a worker" % self.threads


def counts(program):
    """Numbers of replicas that fit."""
    parts = batch(program) // together(program)
    return [d for d in (2, 3, 4, 6) if parts % d == 0]


def sizes(program, replicas):
    """Micro-batches that fit."""
    share, unit = batch(program) // replicas, together(program)
    return [size for size in range(unit, share + 1, unit) if share % size == 0]


def chosen(program, number):
    """Every number of replicas, with and without stages; all schedules come up over the programs."""
    rng = random.Random("replicas %d" % number)
    grids = []
    for i, replicas in enumerate(counts(program)[:3]):
        staged = (number + i) % 3 == 0
        schedule = stages.SCHEDULES[(number + i) // 3 % 6]
        grids.append(Grid(replicas, 2 if staged else 1, schedule, rng.choice([None, *sizes(program, replicas)[:2]]), (number + i) % 4 == 1,
                          rng.choice([1, 2])))
    return grids


def every(program):
    for replicas, workers in itertools.product(counts(program)[:3], (1, 2)):
        for schedule in stages.SCHEDULES if workers > 1 else [None]:
            for size in [None, *sizes(program, replicas)]:
                yield Grid(replicas, workers, schedule, size)


# ---- Bits ------------------------------------------------------------------------------------------------------------
def logged(result):
    return [(row["step"], row["loss"], row.get("norm")) for row in result.rows]


def check(program, number, grids):
    source, folder = tree_programs.prepared(program, "replicas%d" % number)
    try:
        one = programs.run(programs.compiled(source, "replicas%d-one" % number, *program.flags, "--max-threads", "2"), folder, STEPS)
    except programs.Failure as failure:
        return verdicts.expect(False, "%s by one worker: %s" % (program.name, failure))
    for i, grid in enumerate(grids):
        label = "%s (%s %s)" % (program.name, " ".join(program.flags), grid)
        try:
            made = stages.compiled(source, "replicas%d-%d" % (number, i), program.flags, grid)
            if made is None: # too few kernels for so many stages
                continue
            result = programs.run(made[0], folder, STEPS, "--threads", str(grid.threads), timeout=60)
        except (programs.Failure, subprocess.TimeoutExpired) as failure:
            verdicts.expect(False, "%s: %s" % (label, failure))
            continue
        verdicts.expect(result.bytes == one.bytes, label + ": other parameters than one worker's")
        verdicts.expect(logged(result) == logged(one), "%s: logs %s, expected %s" % (label, logged(result)[:2], logged(one)[:2]))
        if made[1]:
            budget = grid.replicas * grid.workers * made[1]
            verdicts.expect(result.peak <= budget, "%s: a peak of %d bytes, above %d" % (label, result.peak, budget))


# ---- What cannot be --------------------------------------------------------------------------------------------------
def check_refusals():
    source = ROOT / "test/execute/mlp.cinch"
    for flags, words in [
        (["-D", "B=12", "--replicas", "5"], "a batch of 12 examples cannot be divided among 5 replicas; expected --replicas 4 or 6"),
        (["-D", "B=12", "--replicas", "13"], "cannot be divided among 13 replicas; expected --replicas 12"),
        (["-D", "B=12", "--replicas", "4", "--set", "train.grain=2"], "of which 2 belong together (grain 2) cannot be divided among 4 replicas; expected --replicas 3 or 6"),
        (["-D", "B=12", "--replicas", "3", "--microbatch", "6"], "in micro-batches of 6 cannot be divided among 3 replicas; expected --replicas 2"),
        (["-D", "B=12", "--replicas", "2", "--microbatch", "5"], "expected a micro-batch that divides the 6 examples of a replica, got 5; nearest: 3 and 6"),
    ]:
        done = programs.compiled(source, "refused", *flags, allowed=(0, 1, 2, 70))
        verdicts.expect(hasattr(done, "stdout") and done.returncode == 1 and words in done.stdout, "%s: %s, expected: %s" % (
            flags, getattr(done, "stdout", "compiled")[:300], words))


def check_quick():
    """A refusal looks at every micro-batch, and is not much longer than a plan: what provably needs too much is not planned. In seconds of the CPU."""
    flags = ["--no-plan-cache", "--max-threads", "2", "--replicas", "4", "-D", "B=64", "-D", "N=2", "-D", "T=32", "-D", "D=32"]
    seconds = []
    for budget, code in (("8MiB", 0), ("1KiB", 1)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = programs.call([programs.CINCH, "plan", ROOT / "examples/gpt/gpt.cinch", *flags, "--memory-budget", budget], allowed=(code,))
        seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    verdicts.expect("smallest budget that compiles" in done.stdout, "no smallest budget: " + done.stdout[-300:])
    verdicts.expect(seconds[1] < 8 * seconds[0] + 1, "a plan takes %.1f s, its refusal %.1f s" % tuple(seconds))


# ---- A grain of bf16 -------------------------------------------------------------------------------------------------
BF16 = """dim B = 8 batch, T = 5, D = 8, C = 5
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, D], y: i32[B, T] below C)
model net(x: f32[B, T, D]) -> f32[B, T, C] {
  use a = linear[16], b = linear[D], head = linear[C]
  return head(b(gelu(a(x))))
}
train net on train seed 3 {
  loss = mean[B, T] cross_entropy(net(x), y)
  optimizer adam(lr = 0.01)
  steps 4
  grain 4
  precision bf16(master = f32, accumulate = f32)
}
"""


def check_bf16():
    """Products of bf16 sum pairs in blocks of 32 along a grain: where a replica has one grain its blocks begin where one worker's do."""
    folder, draw = programs.FOLDER / "bf16", np.random.RandomState(9)
    folder.mkdir()
    np.save(folder / "x.npy", draw.randn(32, 5, 8).astype(np.float32))
    np.save(folder / "y.npy", draw.randint(0, 5, (32, 5)).astype(np.int32))
    source = programs.source("bf16", BF16)
    one = programs.run(programs.compiled(source, "bf16-one", "--max-threads", "2"), folder, STEPS)
    for flags in (["--replicas", "2"], ["--replicas", "2", "--microbatch", "4"], ["--replicas", "2", "--stages", "2"]):
        result = programs.run(programs.compiled(source, "bf16-several", *flags, "--max-threads", "2"), folder, STEPS)
        verdicts.expect(result.bytes == one.bytes, "a grain of bf16, %s: other parameters than one worker's" % " ".join(flags))
    cut = programs.compiled(source, "bf16-cut", "--replicas", "2", "--microbatch", "2", allowed=(0, 1))
    verdicts.expect("is a multiple of 4 (grain 4), got 2; nearest: 4" in getattr(cut, "stdout", ""), "a micro-batch cuts a grain of bf16: %s" % getattr(
        cut, "stdout", "it compiles")[-300:])


# ---- Several grains a replica ----------------------------------------------------------------------------------------
HELD = """dim B = 24 batch, T = 24, V = 30, D = 20
data train = npy("x.npy", "y.npy") -> (x: i32[B, T] below V, y: i32[B, T] below V)
model net(x: i32[B, T] below V) -> f32[B, T, V] {
  param table: f32[V, D] ~ normal(0.5)
  use a = linear[3 * D], b = linear[D], n = layer_norm
  h = table[x]
  return n(h + b(dropout(gelu(a(h)), 0.1))) @ table'
}
train net on train seed 3 {
  loss = mean[B, T] cross_entropy(net(x), y)
  optimizer adam(lr = 0.01)
  clip norm(0.5)
  steps 5
  %s
}
"""


def held_flags():
    """(lines of `train`, flags): 2, 3 and 4 grains a replica, several of them a micro-batch, with stages, at a schedule that overlaps steps."""
    for grain, replicas in ((2, 2), (2, 3), (4, 3), (3, 2)):
        share = 24 // replicas
        for size in (size for size in range(grain, share + 1, grain) if share % size == 0):
            yield "grain %d" % grain, ["--replicas", str(replicas), "--microbatch", str(size)]
    for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zbv"):
        yield "grain 3", ["--replicas", "2", "--stages", "2", "--microbatch", "3", "--schedule", schedule]
    yield "grain 2\n  precision bf16", ["--replicas", "3", "--microbatch", "4"]
    for line in ("grain 3", ""):
        yield line + "\n  shards 2", ["--replicas", "2", "--microbatch", "3"]
    for line, replicas, size in (("grain 2", 2, 2), ("grain 4", 3, 4), ("grain 6", 2, 6), ("", 2, 3), ("", 3, 1)):
        yield line + "\n  delay 1", ["--replicas", str(replicas), "--stages", "2", "--microbatch", str(size), "--schedule", "2bw"]


def check_held():
    """A replica of several grains sums each at once, and holds the sums until that of the replica before has come; or its gradients wait."""
    folder, draw = programs.FOLDER / "held", np.random.RandomState(4)
    folder.mkdir()
    for name in ("x", "y"):
        np.save(folder / (name + ".npy"), draw.randint(0, 30, (60, 24)).astype(np.int32))
    ones, holding = {}, 0
    for i, (lines, flags) in enumerate(held_flags()):
        source = programs.source("held%d" % i, HELD % lines)
        if lines not in ones:
            plain = [] if "shards" not in lines else ["--replicas", "1"]
            ones[lines] = programs.run(programs.compiled(source, "held-one", *plain, "--max-threads", "2"), folder, 5)
        done = programs.compiled(source, "held-refused", *flags, "--memory-budget", "1KiB", allowed=(1,))
        least = re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout)
        if not verdicts.expect(least, "%s %s: %s" % (lines, flags, done.stdout[-300:])):
            continue
        for budget in ([], ["--memory-budget", least.group(1)], ["--memory-budget", str(int(least.group(1)) * 21 // 20)]):
            label = "%s %s %s" % (lines.replace("\n", ","), " ".join(flags), " ".join(budget))
            try:
                made = programs.compiled(source, "held-%d" % i, *flags, *budget)
                result = programs.run(made, folder, 5)
            except (programs.Failure, subprocess.TimeoutExpired) as failure:
                verdicts.expect(False, "%s: %s" % (label, failure))
                continue
            verdicts.expect(result.bytes == ones[lines].bytes and logged(result) == logged(ones[lines]), label + ": other bits than one worker's")
            holding += "holds the sums" in programs.call([made, "info"]).stdout
    verdicts.expect(holding >= 5, "only %d programs hold sums of grains" % holding)


# ---- Processes -------------------------------------------------------------------------------------------------------
class Gridded(processes.Program):
    """A program of processes.py, compiled for grids."""

    def grid(self, replicas, workers, budget=None):
        name = "%s-%dx%d%s" % (self.name, workers, replicas, "-least" if budget else "")
        return programs.compiled(self.path, name, *self.flags, *self.flags_of(replicas, workers), *(["--memory-budget", str(budget)] if budget else []))

    @staticmethod
    def flags_of(replicas, workers):
        return ["--replicas", str(replicas), *(["--stages", str(workers)] if workers > 1 else [])]

    def least(self, replicas, workers):
        done = programs.compiled(self.path, "refused", *self.flags, *self.flags_of(replicas, workers), "--memory-budget", "1KiB", allowed=(1,))
        return int(re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout).group(1))


def check_processes(everything):
    data = programs.FOLDER / "text"
    data.mkdir()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(programs.byte_text(8192))
    gpt = Gridded("gpt", ROOT / "examples/gpt/gpt.cinch", data, processes.GPT, 6)
    table = programs.FOLDER / "table"
    processes.write_table(table)
    net = Gridded("net", programs.source("net", processes.CSV), table, ["--microbatch", "4", "--max-threads", "2"], 40)
    transports = ["tcp", *(name for name in processes.MPIRUN if processes.shutil.which(processes.MPIRUN[name][0]))]
    two, four = gpt.grid(2, 1), gpt.grid(2, 2)
    for i, (exe, workers) in enumerate([(two, 2), (four, 4)]):
        for transport in transports if everything else {"tcp", transports[(i + 1) % len(transports)]}:
            gpt.check_bits(exe, workers, transport)
    least = gpt.grid(2, 1, gpt.least(2, 1))
    for transport in ["threads", "tcp"]:
        gpt.check_bits(least, 2, transport, budget=True)
    for transport in ["threads", *(transports if everything else ["tcp"])]:
        gpt.check_command(four, 4, transport, "generate", "--length", "12", "--prompt", "The ")
        gpt.check_command(two, 2, transport, "eval", "--quiet", "--on", "valid", "--batches", "2")
    for rate in ("1e18", "1e6"):
        gpt.check_bad_number(four, 4, "threads", rate)
    gpt.check_bad_number(two, 2, "tcp", "1e18")
    netted = net.grid(4, 1)
    net.check_command(netted, 4, "threads", "predict")
    net.train(net.one, 1, "threads", "whole", steps=3000)
    for number in range(6 if everything else 2):
        net.check_kill(netted, 4, number, [(net.one, 1), (net.grid(2, 2), 4)][number % 2], 3000, stages=1)
    check_stop(net, netted)


def check_stop(net, exe):
    """SIGTERM saves; another grid goes on to the same bits."""
    processes.shutil.rmtree(net.folder / "stopped", ignore_errors=True)
    arguments = ["--data", net.data, "--out", net.folder / "stopped", "--steps", 3000, "--threads", 1]
    process = subprocess.Popen([str(exe), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.4)
    process.send_signal(signal.SIGTERM)
    verdicts.expect(process.wait(timeout=60) == 75, "SIGTERM ends with %d, expected 75" % process.returncode)
    again = net.train(net.one, 1, "threads", "stopped", "--resume", steps=3000)
    verdicts.expect(again.all(0) and net.final("stopped") == net.final("whole"), "resumed by one worker: " + again.text[-500:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    processes.verdicts = verdicts
    picked = [(p, i) for i, p in enumerate(all_programs()) if not options.names or any(n in p.name for n in options.names)]

    def one(entry):
        program, number = entry
        check(program, number, list(every(program)) if options.all else chosen(program, number))

    programs.in_parallel(one, picked)
    if not options.names or "bf16" in options.names:
        check_bf16()
    if not options.names or "held" in options.names:
        check_held()
    if not options.names or "quick" in options.names:
        check_quick() # nothing else runs meanwhile
    if not options.names or "processes" in options.names:
        check_refusals()
        check_processes(options.all)
    verdicts.finish()


if __name__ == "__main__":
    main()
