#!/usr/bin/python3
"""Grids of workers never change a bit: stages x schedules x micro-batches x replicas x budgets x transports, on an MLP, a GPT (tied weights,
dropout), an LSTM, a net whose values skip stages, and a masked loss with a replica that has no chosen element. The choices are covering: every
two values of different columns meet in some run, over threads and over processes. Nothing may be refused, nothing is left out.

usage: grids.py [--all | --examples | --processes]
    --all: the whole product for the MLP, over threads, TCP and both MPIs, covering choices for the examples, and more runs over processes
    --examples, --processes: these parts of --all alone
"""
import itertools
import re
import subprocess
import sys

import numpy as np

import processes
import programs
import replicas
import shard_programs
import tree_programs

STEPS, BATCH = 3, 12
# What is tested is bits. On a machine with much else to do a run may be late without hanging: so long its workers wait for one another, and the test for it.
PATIENCE, LIMIT = 300, 600
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zbv"]
verdicts = programs.Verdicts()

TRAIN = """
train net on train seed 5 {
  loss = %s
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(0.5)
  steps 3
  every 1 log(jsonl)
}
"""
LABELS = """dim B = 12 batch, I = 7, H = 10, C = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
"""
MLP = LABELS + """model net(x: f32[B, I]) -> f32[B, C] {
  use a = linear[H], b = linear[H], c = linear[H], d = linear[H], e = linear[H], f = linear[H], g = linear[H], h = linear[H], z = linear[C]
  return z(relu(h(tanh(g(relu(f(tanh(e(relu(d(tanh(c(relu(b(tanh(a(x)))))))))))))))))
}
""" + TRAIN % "mean[B] cross_entropy(net(x), y)"
# x is read by the first and by the last stages, u and v by stages behind the next one; p is used at both ends.
SKIPS = LABELS + """model net(x: f32[B, I]) -> (f32[B, C], f32[B, H]) {
  param p: f32[I, H] ~ normal(0.5)
  use a = linear[H], b = linear[H], c = linear[H], d = linear[H], e = linear[H], f = linear[H], z = linear[C], n = layer_norm
  u = tanh(x @ p)
  v = relu(a(u))
  w = dropout(gelu(b(v)), 0.2)
  s = n(c(w) + u)
  t = tanh(d(s)) + v * w
  q = relu(e(t)) + u
  r = tanh(f(q) + x @ p) + s
  return z(r + v), q * u
}
train net on train seed 5 {
  k, l = net(x)
  loss = mean[B] cross_entropy(k, y) + 0.1 * mean[B, H] l ^ 2
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(0.5)
  steps 3
  every 1 log(jsonl)
}
"""
LSTM = """dim B = 12 batch, T = 5, V = 20, H = 8
data train = npy("t.npy") -> (t: i32[B, T + 1] below V)
model net(t: i32[B, T] below V) -> f32[B, T, V] {
  use e = embedding[V, H], one = lstm[H], two = lstm[H], a = linear[H], b = linear[H], out = linear[V]
  return out(relu(b(tanh(a(two(one(e(t))))))))
}
""" + TRAIN % "mean[B, T] cross_entropy(net(t[:, :T]), t[:, 1:])"
GPT = """dim B = 12 batch, T = 5, V = 20, D = 12, A = 3
data train = npy("t.npy") -> (t: i32[B, T + 1] below V)
model net(t: i32[B, T] below V) -> f32[B, T, V] {
  param wte: f32[V, D] ~ normal(0.3)
  use blocks = repeat 2 transformer_block[A, 2 * D](causal = true, rate = 0.1), norm = layer_norm
  return norm(blocks(dropout(wte[t], 0.1))) @ wte'
}
""" + TRAIN % "mean[B, T] cross_entropy(net(t[:, :T]), t[:, 1:])"


def numbers(folder, draw):
    np.save(folder / "x.npy", draw.randn(48, 7).astype(np.float32))
    np.save(folder / "y.npy", draw.randint(0, 4, 48).astype(np.int32))
    np.save(folder / "t.npy", draw.randint(0, 20, (48, 6)).astype(np.int32))


class Net:
    """A program with its data; the run of one worker that all others are compared with."""

    def __init__(self, name, program):
        self.name = re.sub(r"\W+", "-", name)
        self.source, self.data = tree_programs.prepared(program, self.name)
        self.flags = program.flags
        self.one = programs.run(programs.compiled(self.source, self.name + "-one", *self.flags, "--max-threads", "2"), self.data, STEPS)


def nets():
    texts = [("mlp", MLP), ("gpt", GPT), ("lstm", LSTM), ("skips", SKIPS)]
    found = [Net(name, tree_programs.Program("grid " + name, None, numbers, "", (), [], text)) for name, text in texts]
    # Its first six examples are chosen nowhere, and they are not shuffled: the first replica sees no chosen one. Here with layers to cut.
    masked = replicas.masked_program("chosen")
    masked.text = masked.text.replace("use l = linear[V]", "use l = linear[V], a = linear[D], b = linear[D], c = linear[D], d = linear[D]").replace(
        "l(dropout(tanh(x), 0.2))", "l(relu(d(tanh(c(relu(b(tanh(a(dropout(tanh(x), 0.2))))))))))")
    return found + [Net("masked", masked)]


class Grid:
    def __init__(self, stages, schedule, pieces, count, least):
        """pieces: micro-batches of a replica, "most": of one example each."""
        self.stages, self.replicas, self.least = stages, count, least
        share = BATCH // count
        size = {"one": share, "two": share // 2, "most": 1}[pieces]
        self.workers = stages * count
        self.flags = ["--stages", str(stages), "--replicas", str(count), "--microbatch", str(size)]
        if stages > 1:
            self.flags += ["--schedule", schedule]

    def compiled(self, net, name):
        flags = [*net.flags, *self.flags, "--max-threads", "2"]
        if self.least:
            refused = programs.compiled(net.source, name, *flags, "--memory-budget", "1KiB", allowed=(1,))
            least = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout)
            if not least:
                raise programs.Failure(refused.stdout[-600:])
            flags += ["--memory-budget", least.group(1)]
        return programs.compiled(net.source, name, *flags)

    def check(self, net, exe, name, transport):
        label = "%s %s%s over %s" % (net.name, " ".join(self.flags), " at the smallest budget" if self.least else "", transport)
        out = programs.FOLDER / ("out-" + name)
        try:
            ended = processes.start(exe, self.workers, transport, ["--data", net.data, "--out", out, "--steps", STEPS, "--log", "jsonl", "--threads", 1,
                                                                   "--worker-timeout", PATIENCE], limit=LIMIT)
        except subprocess.TimeoutExpired:
            return verdicts.expect(False, label + ": it hung")
        if not verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-600:])):
            return None
        found = programs.Result(out, ended.text)
        verdicts.expect(found.bytes == net.one.bytes, label + ": other parameters than one worker's")
        verdicts.expect(replicas.logged(found) == replicas.logged(net.one), "%s: logs %s" % (label, replicas.logged(found)))
        if self.least:
            processes.check_budget(ended, label)
        return None


def covering(columns, allowed, most):
    """At most so many choices; as many pairs of values of two columns as can be met come first, then pairs in threes. The order is fixed."""
    every = [choice for choice in itertools.product(*columns) if allowed(choice)]

    def meets(choice, size):
        return {(at, tuple(choice[i] for i in at)) for at in itertools.combinations(range(len(columns)), size)}

    picked, missing = [], {size: set().union(*(meets(choice, size) for choice in every)) for size in (2, 3)}
    while len(picked) < most and missing[3]:
        best = max(every, key=lambda choice: (len(meets(choice, 2) & missing[2]), len(meets(choice, 3) & missing[3])))
        picked.append(best)
        for size in (2, 3):
            missing[size] -= meets(best, size)
    verdicts.expect(not missing[2], "%d pairs of values meet in none of %d choices" % (len(missing[2]), len(picked)))
    return picked


# Why an example cannot take a grid: it has few kernels, or its batch norm sees two examples together.
CANNOT = ("too few for", "belong together")


def run_all(found, picked, refusals=()):
    """`refusals`: words of those that are right."""
    def one(entry):
        number, (at, stages, schedule, pieces, count, least, transport) = entry
        net, grid, name = found[at], Grid(stages, schedule, pieces, count, least), "%s-%d" % (transport, number)
        try:
            grid.check(net, grid.compiled(net, name), name, transport)
        except programs.Failure as failure:
            refused = any(words in str(failure) for words in refusals)
            verdicts.expect(refused, "%s %s: %s" % (net.name, " ".join(grid.flags), failure))
        except subprocess.TimeoutExpired as late: # of the compiler: a machine with much else to do
            verdicts.expect(False, "%s %s: %s" % (net.name, " ".join(grid.flags), late))

    programs.in_parallel(one, list(enumerate(picked)))


def several(choice):
    return choice[1] * choice[4] > 1


def whole_product(net):
    """Each program is compiled once, and run over every transport."""
    grids = [(1, "gpipe"), *itertools.product((2, 3, 4), SCHEDULES)]

    def one(entry):
        number, ((stages, schedule), pieces, count) = entry
        grid, name = Grid(stages, schedule, pieces, count, number % 4 == 0), "product-%d" % number
        try:
            exe = grid.compiled(net, name)
        except programs.Failure as failure:
            return verdicts.expect(False, "%s %s: %s" % (net.name, " ".join(grid.flags), failure))
        for transport in ("threads", "tcp", "openmpi", "mpich"):
            grid.check(net, exe, name, transport)
        return exe.unlink()

    wanted = [choice for choice in itertools.product(grids, ("one", "two", "most"), (1, 2, 3)) if choice[0][0] * choice[2] > 1]
    programs.in_parallel(one, list(enumerate(wanted)))


EXAMPLES = [
    ("examples/mlp/mlp.cinch", tree_programs.pictures(6, tree_programs.MNIST), "B=12 I=36 H=19"),
    ("examples/gpt/gpt.cinch", tree_programs.text, "B=12 T=10 V=64 D=24 A=3 N=2"),
    ("examples/lstm/lstm.cinch", tree_programs.text, "B=12 T=6 V=64 H=12"),
    ("examples/gru/gru.cinch", tree_programs.pictures(8, tree_programs.MNIST), "B=12 T=8 I=8 H=10"),
    ("examples/vit/vit.cinch", tree_programs.pictures(8, tree_programs.MNIST), "B=12 S=8 D=24 A=6 N=2"),
    ("examples/resnet/resnet.cinch", shard_programs.records(16), "B=12 G=2 F=4 S=16"),
    ("examples/unet/unet.cinch", shard_programs.segments, "B=12 S=16 F=4"),
]


def over_processes(found, columns, most):
    """A machine of two processors: four ranks at most."""
    few = lambda choice: several(choice) and choice[1] * choice[4] <= 4
    run_all(found, covering([range(len(found)), *columns[:3], (1, 2), [True], ["tcp", "openmpi", "mpich"]], few, 32)[:most])


def on_examples(columns):
    examples = [Net("example " + path.split("/")[1], tree_programs.Program(path, path, write, sizes)) for path, write, sizes in EXAMPLES]
    few = lambda choice: several(choice) and (choice[6] == "threads" or choice[1] * choice[4] <= 6)
    run_all(examples, covering([range(len(examples)), *columns, ["threads", "tcp", "openmpi", "mpich"]], few, 60), CANNOT)


def main():
    columns = [(1, 2, 3, 4), SCHEDULES, ("one", "two", "most"), (1, 2, 3), (False, True)]
    if "--examples" in sys.argv:
        return on_examples(columns)
    found = nets()
    if "--processes" in sys.argv:
        return over_processes(found, columns, 32)
    run_all(found, covering([range(len(found)), *columns, ["threads"]], several, 40))
    over_processes(found, columns, 32 if "--all" in sys.argv else 8)
    if "--all" in sys.argv:
        whole_product(found[0])
        on_examples(columns)
    return None


if __name__ == "__main__":
    verdicts.run(main)
