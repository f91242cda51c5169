#!/usr/bin/python3
"""Replicas that hand out the updates: each has the optimizer's state of some parameters. The bits stay those of one worker (tied weights,
dropout, several optimizers, averages, running statistics, grains, shards, stages, steps that overlap), over threads and TCP, at the smallest
budget, which is smaller for it; large parameters in runs of rows; a NaN stops all before the update; what was killed is resumed with the updates
handed out, and without.

usage: pieces.py [NAME...]      NAME: part of a case's name
"""
import json
import re
import subprocess
import sys

import numpy as np

import processes
import programs
import replicas
import standin

ROOT = programs.HERE.parent.parent
STEPS = 4
SAID, ROWS = "updates are handed out", "or of some rows of them"
verdicts = programs.Verdicts()

# Parameters and state are most of what a worker has.
NET = """dim B = 12 batch, T = 3, V = 40, D = 96
data train = npy("x.npy", "y.npy") -> (x: i32[B, T] below V, y: i32[B, T] below V)
model net(x: i32[B, T] below V) -> f32[B, T, V] {
  param table: f32[V, D] ~ normal(0.5)
  param still: f32[D] ~ normal(0.5)
  use a = linear[2 * D], b = linear[D], n = layer_norm, c = linear[D], d = linear[D]
  h = table[x] + still
  g = n(h + b(dropout(gelu(a(h)), 0.1)))
  return tanh(d(tanh(c(g)))) @ table'
}
train net on train seed 3 {
  loss = mean[B, T] cross_entropy(net(x), y)
  freeze("still")
  steps 4
  %s
}
"""
# One table, used at both ends, is most of it: only in runs of its rows its state can be shared.
TABLE = """dim B = 12 batch, T = 3, V = 1920, D = 64
data train = npy("x.npy", "y.npy") -> (x: i32[B, T] below V, y: i32[B, T] below V)
model net(x: i32[B, T] below V) -> f32[B, T, V] {
  param table: f32[V, D] ~ normal(0.5)
  param still: f32[D] ~ normal(0.5)
  use a = linear[D], b = linear[D], n = layer_norm, c = linear[D], d = linear[D]
  h = table[x] + still
  return tanh(d(tanh(c(dropout(gelu(b(tanh(a(n(h))))), 0.1))))) @ table'
}
train net on train seed 3 {
  loss = mean[B, T] cross_entropy(net(x), y)
  freeze("still")
  steps 4
  %s
}
"""
# Used once: of several stages the one with the table needs most.
ALONE = TABLE.replace("-> f32[B, T, V] {", "-> f32[B, T, 40] {").replace("d = linear[D]", "d = linear[D], e = linear[40]").replace(
    "return tanh(d(tanh(c(dropout(gelu(b(tanh(a(n(h))))), 0.1))))) @ table'", "return e(tanh(d(tanh(c(dropout(gelu(b(tanh(a(n(h))))), 0.1))))))").replace(
    "y: i32[B, T] below V)", "y: i32[B, T] below 40)")
ADAM = "optimizer adamw(lr = 0.01, decay = 0.1)\n  clip norm(0.5)"
MIXED = 'optimizer muon(lr = 0.01) on ("a.weight", "b.weight"); optimizer adam(lr = 0.01)\n  clip norm(0.5)'
MUON = 'muon(lr = 0.01) on ("table", "a.weight", "b.weight", "c.weight", "d.weight"); optimizer adam(lr = 0.01)'
# Running statistics are state of the model, which no optimizer has: the last replica goes on with them.
STATED = """dim B = 12 batch, I = 6, H = 40
data train = npy("u.npy", "v.npy") -> (u: f32[B, I], v: f32[B, I])
model net(u: f32[B, I]) -> f32[B, I] {
  use a = linear[H], n = batch_norm(group = 2), b = linear[H], m = batch_norm(group = 2), c = linear[I]
  return c(tanh(m(b(tanh(n(a(u)))))))
}
train net on train seed 3 {
  loss = mean[B, I] squared_error(net(u), v)
  steps 4
  %s
}
"""


def cases():
    """(name, program, lines of `train`, flags of the grid)"""
    for count in (2, 3, 4):
        yield "adamw", NET, ADAM, ["--replicas", count]
        yield "pieces of several micro-batches", NET, ADAM, ["--replicas", count, "--microbatch", 1]
    for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zbv"):
        yield "stages", NET, ADAM, ["--replicas", 2, "--stages", 2, "--schedule", schedule, "--microbatch", 2]
    yield "three stages", NET, ADAM, ["--replicas", 3, "--stages", 3]
    yield "several optimizers", NET, MIXED, ["--replicas", 3]
    yield "several optimizers, stages", NET, MIXED, ["--replicas", 2, "--stages", 2]
    yield "averages", NET, ADAM + "\n  ema 0.9", ["--replicas", 3]
    yield "momentum", NET, "optimizer sgd(lr = 0.1, momentum = 0.9)\n  clip value(0.01)", ["--replicas", 2]
    # Optimizers whose parameter reads the state that stood before the step, or values made of it.
    for rule in ("lion(lr = 0.001, decay = 0.1)", MUON, "rmsprop(lr = 0.001, momentum = 0.9)"):
        yield rule.split("(")[0], NET, "optimizer " + rule, ["--replicas", 3]
        yield rule.split("(")[0] + ", stages", NET, "optimizer " + rule, ["--replicas", 2, "--stages", 2]
    yield "one grain", NET, ADAM + "\n  grain 4", ["--replicas", 3, "--microbatch", 2]
    yield "grains", NET, ADAM + "\n  grain 2", ["--replicas", 2, "--microbatch", 2]
    yield "bf16", NET, ADAM + "\n  precision bf16", ["--replicas", 2]
    yield "delay", NET, ADAM + "\n  delay 1", ["--replicas", 3]
    yield "delay, stages", NET, ADAM + "\n  delay 1", ["--replicas", 2, "--stages", 2]
    yield "steps that overlap", NET, ADAM + "\n  delay 1", ["--replicas", 2, "--stages", 2, "--microbatch", 2, "--schedule", "2bw"]
    for count in (2, 3, 4, 6):
        yield "rows", TABLE, ADAM, ["--replicas", count]
        yield "rows, several micro-batches", TABLE, ADAM, ["--replicas", count, "--microbatch", 1]
    for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zbv"):
        yield "rows, stages", ALONE, ADAM, ["--replicas", 3, "--stages", 2, "--schedule", schedule, "--microbatch", 1]
    yield "rows, three stages", ALONE, ADAM, ["--replicas", 2, "--stages", 3, "--microbatch", 2]
    yield "tied rows, stages", TABLE, ADAM, ["--replicas", 3, "--stages", 2, "--schedule", "zbv", "--microbatch", 1]
    # 1945 rows are five times 389: three replicas have unlike numbers of them.
    yield "rows, five runs", TABLE.replace("V = 1920", "V = 1945"), ADAM, ["--replicas", 3]
    yield "rows, momentum", TABLE, "optimizer sgd(lr = 0.1, momentum = 0.9)\n  clip value(0.01)", ["--replicas", 4]
    yield "rows, several optimizers", TABLE, 'optimizer muon(lr = 0.01) on ("a.weight", "b.weight"); optimizer adam(lr = 0.01)', ["--replicas", 3]
    yield "rows, one grain", TABLE, ADAM + "\n  grain 4", ["--replicas", 3, "--microbatch", 2]
    yield "rows, grains", TABLE, ADAM + "\n  grain 2", ["--replicas", 2, "--microbatch", 2]
    yield "rows, bf16", TABLE, ADAM + "\n  precision bf16", ["--replicas", 3]
    yield "rows, delay", ALONE, ADAM + "\n  delay 1", ["--replicas", 2, "--stages", 2]
    yield "rows, steps that overlap", ALONE, ADAM + "\n  delay 1", ["--replicas", 2, "--stages", 2, "--microbatch", 2, "--schedule", "2bw"]
    yield "shards", NET, ADAM + "\n  shards 2", ["--replicas", 2]
    yield "shards, stages", NET, ADAM + "\n  shards 2", ["--replicas", 2, "--stages", 2, "--microbatch", 2]
    yield "running statistics", STATED, ADAM, ["--replicas", 3]
    yield "running statistics, stages", STATED, ADAM, ["--replicas", 2, "--stages", 2]


def data():
    folder, draw = programs.FOLDER / "data", np.random.RandomState(4)
    folder.mkdir()
    for name in ("x", "y"):
        np.save(folder / (name + ".npy"), draw.randint(0, 40, (60, 3)).astype(np.int32))
    for name in ("u", "v"):
        np.save(folder / (name + ".npy"), draw.randn(60, 6).astype(np.float32))
    return folder


def workers(flags):
    numbers = {flag: int(number) for flag, number in zip(flags, flags[1:]) if flag in ("--replicas", "--stages")}
    return numbers["--replicas"] * numbers.get("--stages", 1)


def least(source, *flags):
    done = programs.compiled(source, "refused", *flags, "--memory-budget", "1KiB", allowed=(1,))
    found = re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout)
    if not found:
        raise programs.Failure(done.stdout[-600:])
    return int(found.group(1))


def least_arena(source, *flags):
    """What the smallest budget has beside code, stacks and the runtime, which take more with several workers."""
    text = programs.compiled(source, "refused", *flags, "--memory-budget", "1KiB", allowed=(1,)).stdout
    return least(source, *flags) - int(re.search(r"of these for code, stacks and runtime: (\d+) bytes", text).group(1))


def check_bits(number, case, folder):
    name, text, lines, flags = case
    flags = [*map(str, flags), "--max-threads", "2"]
    label, shards = "%s, %s" % (name, " ".join(flags)), 2 if "shards" in lines else 1
    source = programs.source("pieces%d" % number, text % lines)
    # Shards change last digits, replicas of them do not.
    one = programs.run(programs.compiled(source, "pieces%d-one" % number, "--replicas", "1", "--max-threads", "2"), folder, STEPS)
    smallest = least(source, *flags)
    for budget in (smallest, smallest * 21 // 20, None):
        exe = programs.compiled(source, "pieces%d-exe" % number, *flags, *(["--memory-budget", str(budget)] if budget else []))
        result = programs.run(exe, folder, STEPS, "--threads", str(1 + number % 2), timeout=60)
        at = "%s, budget %s" % (label, budget)
        same = result.bytes == one.bytes and replicas.logged(result) == replicas.logged(one)
        verdicts.expect(same, at + ": other bits than one worker's")
        if budget:
            count = workers(flags) * shards
            verdicts.expect(result.peak <= count * budget, "%s: a peak of %d bytes" % (at, result.peak))
        said = programs.call([exe, "info"]).stdout
        # The other model has little state; muon's products need most; four hand on more of a table than a quarter of momentum takes.
        if budget == smallest and "still" in text and not name.startswith(("muon", "rows, momentum")):
            verdicts.expect(SAID in said, at + ": the updates are not handed out")
        if budget == smallest and name.startswith("rows") and name != "rows, momentum":
            verdicts.expect(ROWS in said, at + ": no rows are handed out")
        if budget == smallest and name == "rows":
            other_grids(number, exe, folder, one, at)


def other_grids(number, exe, folder, one, at):
    """What rows of the state are saved as: one worker goes on from there, and the grid from what one worker saved."""
    first = programs.FOLDER / ("pieces%d-one" % number)
    for begins, ends in ((exe, first), (first, exe)):
        out = programs.run(begins, folder, STEPS // 2).out
        programs.call([ends, "--data", folder, "--out", out, "--steps", STEPS, "--quiet", "--resume"], timeout=60)
        verdicts.expect((out / "final.safetensors").read_bytes() == one.bytes, "%s: resumed by %s: other bits" % (at, ends.name))


# ---- What it frees ---------------------------------------------------------------------------------------------------
def plan(source, *flags):
    return json.loads(programs.call([programs.CINCH, "plan", source, "--json", "--no-plan-cache", *map(str, flags)]).stdout)


def told(source, *flags):
    return programs.call([programs.CINCH, "plan", source, *map(str, flags)]).stdout


def check_bytes():
    """The smallest budget of a worker falls with the number of replicas by the state that it need not have, where its examples take more than what
    it hands out and takes in beside the updates."""
    flags = ["--max-threads", "2", "--microbatch", "1"]
    state = 2 * 4 * (40 * 256 + 2 * (2 * 256 * 256) + 2 * 256 * 256 + (2 + 1 + 1 + 1 + 2) * 256)
    for count, length in ((2, 96), (4, 48)):
        source = programs.source("bytes%d" % count, NET.replace("T = 3", "T = %d" % length).replace("D = 96", "D = 256") % ADAM)
        one = least_arena(source, *flags, "--replicas", "1")
        smallest, arena = least(source, *flags, "--replicas", str(count)), least_arena(source, *flags, "--replicas", str(count))
        freed = state - state // count
        verdicts.expect(arena <= one - 0.7 * freed, "%d replicas: %d bytes, one worker %d; %d of state need not be there" % (
            count, arena, one, freed))
        found = plan(source, *flags, "--replicas", count, "--memory-budget", smallest)
        once = [worker["state_once"] for worker in found["workers"]]
        verdicts.expect(sum(once) == state, "%d replicas have %s bytes of state, expected %d in all" % (count, once, state))
        verdicts.expect(max(once) <= 1.4 * state / count, "%d replicas share %d bytes of state as %s" % (count, state, once))
        said = told(source, *flags, "--replicas", count, "--memory-budget", smallest)
        verdicts.expect(re.search(r"updates are handed out: .* a worker at most, which frees [\d.]+ (KiB|MiB) of the last", said), said[:900])
    check_rows()
    plain = programs.source("plain", NET.replace("D = 96", "D = 256") % "optimizer sgd(lr = 0.1)")
    said = told(plain, *flags, "--replicas", 2, "--memory-budget", least(plain, *flags, "--replicas", "2"))
    verdicts.expect(SAID not in said, "a program without state hands out updates: " + said[:900])


def check_rows():
    """A table that is most of the model: each replica holds its part of the state. One worker adds its two gradients in the place of one of them;
    replicas have up to a table of rows on their way instead."""
    source, flags = programs.source("rows", TABLE.replace("V = 1920, D = 64", "V = 4096, D = 128") % ADAM), ["--max-threads", "2", "--microbatch", "1"]
    table = 4 * 4096 * 128
    one = least_arena(source, *flags, "--replicas", "1")
    for count in (2, 4):
        smallest, arena = least(source, *flags, "--replicas", str(count)), least_arena(source, *flags, "--replicas", str(count))
        freed = 2 * table * (count - 1) // count
        verdicts.expect(arena <= one + table - 0.9 * freed, "a table on %d replicas: %d bytes, one worker %d; %d of its state need not be there" % (
            count, arena, one, freed))
        once = [worker["state_once"] for worker in plan(source, *flags, "--replicas", count, "--memory-budget", smallest)["workers"]]
        verdicts.expect(max(once) <= 9 * sum(once) / (8 * count), "a table's state on %d replicas: %s" % (count, once))


def check_devices():
    """GPUs, here under a driver that is none: the bits of one worker on the CPU, at the smallest budget."""
    folder = programs.FOLDER / "data"

    def one(entry):
        number, (text, lines, flags) = entry
        source, name = programs.source("device%d" % number, text % lines), "device%d" % number
        cpu = programs.run(programs.compiled(source, name + "-cpu", "--max-threads", "2"), folder, STEPS)
        device = standin.Program(source, name, *flags, "--memory-budget", str(least(source, "--target", "nvidia", "--ptxas", "none", *flags)))
        verdicts.expect(SAID in device.run("info").stdout, "%s %s on GPUs: the updates are not handed out" % (lines, flags))
        out = programs.FOLDER / (name + "-out")
        done = device.run("--data", folder, "--out", out, "--steps", STEPS, devices=6, allowed=range(256))
        verdicts.expect(done.returncode == 0 and (out / "final.safetensors").read_bytes() == cpu.bytes, "%s %s on GPUs: other bits than the CPU's: %s" % (
            lines, flags, done.stdout[-500:]))

    tried = [(NET, ADAM, ["--replicas", "2"]), (NET, MIXED, ["--replicas", "3", "--microbatch", "2"]), (TABLE, ADAM, ["--replicas", "4"])]
    programs.in_parallel(one, list(enumerate(tried)))


# ---- Processes -------------------------------------------------------------------------------------------------------
class Gridded(replicas.Gridded):
    def handed(self, count, stages=1):
        """At the smallest budget, which asks for it."""
        exe = self.grid(count, stages, self.least(count, stages))
        verdicts.expect(SAID in programs.call([exe, "info"]).stdout, "%s, %d replicas: the updates are not handed out" % (self.name, count))
        return exe


def check_processes():
    text = programs.FOLDER / "text"
    text.mkdir()
    for name in ("train.txt", "valid.txt"):
        (text / name).write_bytes(programs.byte_text(8192))
    gpt = Gridded("gpt", ROOT / "examples/gpt/gpt.cinch", text, processes.GPT, 6)
    two, four = gpt.handed(2), gpt.handed(2, 2)
    for exe, count in ((two, 2), (four, 4), (gpt.handed(4), 4)):
        for transport in ("threads", "tcp"):
            gpt.check_bits(exe, count, transport, budget=True)
    for transport in (name for name in processes.MPIRUN if processes.shutil.which(processes.MPIRUN[name][0])):
        gpt.check_bits(two, 2, transport)
    gpt.check_command(four, 4, "tcp", "eval", "--quiet", "--on", "valid", "--batches", "2")
    gpt.check_bad_number(four, 4, "threads", "1e18")
    gpt.check_bad_number(two, 2, "tcp", "1e18")
    table = programs.FOLDER / "table"
    processes.write_table(table)
    csv = processes.CSV.replace("sgd(lr = 0.1, momentum = 0.9)", "adam(lr = 0.003)").replace("H = 24", "H = 128")
    net = Gridded("net", programs.source("net", csv), table, ["--microbatch", "4", "--max-threads", "2"], 40)
    net.train(net.one, 1, "threads", "whole", steps=3000)
    handed = net.handed(4)
    # Resumed by one worker, with the updates handed out in another way, and by replicas that hand out none.
    for number, others in enumerate([(net.one, 1), (net.handed(2, 2), 4), (net.grid(2, 1), 2), (handed, 4)]):
        net.check_kill(handed, 4, number, others, 3000, stages=1)


def main():
    names = sys.argv[1:]
    processes.verdicts = replicas.verdicts = verdicts
    folder = data()

    def one(entry):
        try:
            check_bits(entry[0], entry[1], folder)
        except (programs.Failure, subprocess.TimeoutExpired) as failure:
            verdicts.expect(False, "%s %s: %s" % (entry[1][0], entry[1][3], failure))

    programs.in_parallel(one, [(i, case) for i, case in enumerate(cases()) if not names or any(name in case[0] for name in names)])
    if not names or "bytes" in names:
        check_bytes()
    if not names or "devices" in names:
        check_devices()
    if not names or "processes" in names:
        check_processes()


if __name__ == "__main__":
    verdicts.run(main)
