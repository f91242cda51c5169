#!/usr/bin/python3
"""--schedule 2bw, whose steps overlap: the programs of the tree with `delay 1`, and a GPT (tied weights, dropout), train to the bits of one worker,
logs, evaluations and checkpoints among them, over threads, TCP and MPI, at the smallest budget too; stopped and killed runs go on with any other
number of workers; bad numbers stop before the update; what the schedule cannot do is refused.

usage: overlap.py [--all]      --all: every number of workers for every program of the tree
"""
import csv
import re
import shutil
import signal
import subprocess
import sys
import time

import processes
import programs
import tree_programs

verdicts = programs.Verdicts()
STEPS = 6
# What a small model, or one whose steps cannot overlap, is refused for.
CANNOT = {"stages": "too few for", "micro-batches": "2bw needs as many micro-batches as stages", "loops": "that goes over the batch once",
          "state": "begins before the one before it has changed"}
NET = """dim B = 12 batch, I = 4, H = 6
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: f32[B, I])
data valid = npy("vx.npy", "vy.npy", shuffle = false) -> (x: f32[B, I], y: f32[B, I])
model net(x: f32[B, I]) -> f32[B, I] {
  use a = linear[H], b = linear[H], c = linear[H], d = linear[I]
  return d(tanh(c(dropout(tanh(b(tanh(a(log(x))))), 0.25))))
}
train net on train seed 9 {
  loss      = mean[B, I] squared_error(net(x), y)
  metric far = mean[B, I] abs(net(x) - y)
  optimizer adamw(lr = 0.02, decay = 0.1)
  schedule  cosine(warmup = 5, end = 0.1)
  clip      norm(0.5)
  ema       0.9
  delay     1
  steps     40
  every 7   eval(valid)
  every 5   checkpoint("run", keep = 3, best = min(far))
  every 1   log(csv)
}
"""
WATCH = """layer watch[B?, D?](x: f32[B, D]) -> f32[B, D] {
  state largest: f32[D] ~ zeros
  update largest = max[B] x
  return x
}
"""


def delayed(source, name):
    return programs.source(name, re.sub(r"(?m)^(train\b[^{]*\{)", r"\1\n  delay 1\n", source.read_text(), count=1))


def check_tree(program, number, everything):
    """How many numbers of workers train it, or why none does."""
    source, folder = tree_programs.prepared(program, "overlap%d" % number)
    source = delayed(source, "delayed%d" % number)
    one = programs.run(programs.compiled(source, "overlap%d-one" % number, *program.flags), folder, STEPS)
    done, why = 0, ""
    for workers in (2, 3, 4) if everything else (2 + number % 3,):
        flags = [*program.flags, "--stages", str(workers), "--schedule", "2bw", "--max-threads", "2"]
        label = "%s (%s), %d workers" % (program.name, " ".join(program.flags), workers)
        if number % 2:
            refused = programs.compiled(source, "refused%d" % number, *flags, "--memory-budget", "1KiB", allowed=(1,))
            budget = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout)
            flags += ["--memory-budget", budget.group(1)] if budget else []
        exe = programs.compiled(source, "overlap%d-%d" % (number, workers), *flags, allowed=(0, 1))
        if hasattr(exe, "stdout"):
            why = next((name for name, text in CANNOT.items() if text in exe.stdout), "")
            verdicts.expect(why, "%s: %s" % (label, exe.stdout[-600:]))
            continue
        done += 1
        found = programs.run(exe, folder, STEPS, "--threads", str(1 + number % 2), timeout=60)
        verdicts.expect(found.bytes == one.bytes and found.losses == one.losses, label + ": other bits than one worker's")
        if "--memory-budget" in flags:
            verdicts.expect(found.peak <= workers * int(flags[-1]), "%s: a peak of %d bytes, above %d x %s" % (label, found.peak, workers, flags[-1]))
    return done, why


def tree(everything):
    outcomes = []

    def one(entry):
        try:
            outcomes.append(check_tree(entry[1], entry[0], everything))
        except (programs.Failure, subprocess.TimeoutExpired) as failure:
            verdicts.expect(False, "%s: %s" % (entry[1].name, failure))

    programs.in_parallel(one, list(enumerate(tree_programs.all_programs())))
    trained = sum(done > 0 for done, _ in outcomes)
    print("%d programs of the tree trained; %s" % (trained, ", ".join("%d refused: %s" % (sum(w == why for d, w in outcomes if not d), why) for why in CANNOT)))
    verdicts.expect(trained >= 20, "only %d programs of the tree were trained" % trained)


def columns(path, left_out=("examples_per_second", "seconds")):
    with open(path) as lines:
        return [{key: value for key, value in row.items() if key not in left_out} for row in csv.DictReader(lines)]


def checkpoints(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "run").glob("*.safetensors"))}


class Net:
    def __init__(self):
        import numpy as np
        draw = np.random.default_rng(12)
        self.data = programs.FOLDER / "net-data"
        self.data.mkdir()
        for name, rows in (("x", 31), ("y", 31), ("vx", 10), ("vy", 10)):
            np.save(self.data / (name + ".npy"), draw.uniform(0.5, 2, (rows, 4)).astype(np.float32))
        self.path = programs.source("net", NET)
        self.one = programs.compiled(self.path, "net-one", "--microbatch", "4")
        self.whole = self.run(self.one, "whole")
        self.grids = {}
        for stages, microbatch in ((2, 6), (2, 1), (3, 4), (3, 2), (4, 3), (4, 1)):
            flags = ["--stages", str(stages), "--schedule", "2bw", "--microbatch", str(microbatch), "--max-threads", "2"]
            self.grids[stages, microbatch] = programs.compiled(self.path, "net-%d-%d" % (stages, microbatch), *flags)

    def run(self, exe, name, *flags, steps=40, workers=1, transport="threads", kill=None, fresh=True):
        folder = programs.FOLDER / ("out-" + name)
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        ended = processes.start(exe, workers, transport, ["--data", self.data, "--out", folder, "--steps", steps, *flags], kill)
        return folder, ended

    def check(self, label, folder, ended, logs=True):
        verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-600:]))
        final = folder / "final.safetensors"
        verdicts.expect(final.exists() and final.read_bytes() == (self.whole[0] / "final.safetensors").read_bytes(), label + ": other parameters")
        verdicts.expect(checkpoints(folder) == checkpoints(self.whole[0]), "%s: other checkpoints: %s" % (label, sorted(checkpoints(folder))))
        verdicts.expect(not logs or columns(folder / "log.csv") == columns(self.whole[0] / "log.csv"), label + ": other lines of the log")

    def check_grids(self):
        verdicts.expect(self.whole[1].all(0), "one worker: " + self.whole[1].text[-600:])
        libraries = [name for name, command in processes.MPIRUN.items() if shutil.which(command[0])]
        verdicts.expect(len(libraries) == 2, "openmpi-bin, libopenmpi3 and mpich are needed")
        for number, ((stages, microbatch), exe) in enumerate(self.grids.items()):
            # MPI libraries spin: few processes, as elsewhere.
            for transport in ("threads", libraries[number % 2] if libraries and stages < 4 else "tcp"):
                label = "%d stages, micro-batches of %d, over %s" % (stages, microbatch, transport)
                self.check(label, *self.run(exe, "grid", workers=stages, transport=transport))

    def check_resume(self):
        """A run that ends in the midst, and goes on elsewhere."""
        grids = [self.one, *self.grids.values()]
        for number, exe in enumerate(grids):
            folder, ended = self.run(exe, "part", steps=11 + number)
            verdicts.expect(ended.all(0), "a part: " + ended.text[-400:])
            other = grids[(number * 3 + 2) % len(grids)]
            self.check("resumed at step %d" % (11 + number), *self.run(other, "part", "--resume", fresh=False))

    def check_stop(self):
        """SIGTERM anywhere, over threads and TCP; and a worker that is killed."""
        long = NET.replace("steps     40", "steps     4000").replace("every 1   log(csv)\n", "").replace("every 5 ", "every 500 ")
        long = programs.source("long", long.replace("every 7 ", "every 900 "))
        one = programs.compiled(long, "long-one")
        exe = programs.compiled(long, "long-3", "--stages", "3", "--schedule", "2bw", "--microbatch", "2", "--max-threads", "1")
        folder = programs.FOLDER / "long-whole"
        arguments = lambda out: ["--data", self.data, "--out", out, "--quiet", "--threads", "1"]
        programs.call([one, *arguments(folder)])
        wanted = (folder / "final.safetensors").read_bytes()
        for number in range(4):
            out = programs.FOLDER / ("stopped%d" % number)
            process = subprocess.Popen([str(exe), *map(str, arguments(out))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            time.sleep(0.05 + 0.07 * number)
            process.send_signal(signal.SIGTERM)
            text = process.communicate(timeout=60)[0]
            verdicts.expect(process.returncode in (75, 0, -signal.SIGTERM), "stopped: %d %s" % (process.returncode, text[-300:]))
            programs.call([[one, exe][number % 2], *arguments(out), "--resume"])
            verdicts.expect((out / "final.safetensors").read_bytes() == wanted, "stopped and resumed: other bits; " + text[-300:])
        for victim in (0, 1, 2):
            out = programs.FOLDER / ("killed%d" % victim)
            ended = processes.over_tcp(exe, 3, arguments(out), kill=(victim, 0.4 + 0.2 * victim))
            codes = {code for rank, code in enumerate(ended.codes) if rank != victim}
            verdicts.expect(codes == {5} or codes == {0}, "worker %d killed: %s %s" % (victim, ended.codes, ended.text[-300:]))
            programs.call([[exe, one][victim % 2], *arguments(out), "--resume"])
            verdicts.expect((out / "final.safetensors").read_bytes() == wanted, "worker %d killed and resumed: other bits" % victim)
        self.check_names(exe, arguments)

    def check_names(self, exe, arguments):
        """A killed worker is named by the action whose result did not come; by the step alone where it is waited for at the step's end."""
        for attempt in range(15):
            victim = attempt % 3
            ended = processes.over_tcp(exe, 3, arguments(programs.FOLDER / "named"), kill=(victim, 0.5 + 0.03 * attempt))
            said = re.findall(r"worker %d \(stage %d\) lost in (\d)[FB](\d+) of step \d+: " % (victim, victim), ended.text)
            verdicts.expect(all(int(stage) == victim and int(microbatch) < 6 for stage, microbatch in said), "worker %d killed: %s" % (victim, said))
            if said:
                return
        verdicts.expect(False, "no killed worker was named by the action that it was lost in: " + ended.text[-300:])

    def check_bad_numbers(self):
        """A logarithm of 0 in an example that comes late: the same step, the same op, the parameters as before."""
        import numpy as np
        data = programs.FOLDER / "bad-data"
        shutil.copytree(self.data, data)
        x = np.load(data / "x.npy")
        x[17, 2] = 0
        np.save(data / "x.npy", x)

        def outcome(exe, workers, transport):
            out = programs.FOLDER / "bad"
            shutil.rmtree(out, ignore_errors=True)
            ended = processes.start(exe, workers, transport, ["--data", data, "--out", out, "--quiet"])
            return ended, checkpoints(out)

        expected = outcome(self.one, 1, "threads")
        verdicts.expect(expected[0].all(4), "bad numbers, one worker: " + expected[0].text[-300:])
        for transport in ("threads", "tcp"):
            for stages, microbatch in ((2, 6), (3, 2), (4, 1)):
                found = outcome(self.grids[stages, microbatch], stages, transport)
                label = "bad numbers, %d stages over %s" % (stages, transport)
                verdicts.expect(found[0].all(4) and processes.complaints(found[0].text)[0] == processes.complaints(expected[0].text)[0],
                                "%s: %s %s, expected %s" % (label, found[0].codes, found[0].text[-600:], processes.complaints(expected[0].text)))
                verdicts.expect(found[1] == expected[1] and "the parameters are intact" in found[0].text, label + ": other checkpoints")


def check_replicas(net):
    """Replicas of overlapping stages: sums that go on from one to the next, those of one grain and of several leave the bits of one worker, with
    `reduce` those of other schedules."""
    adds = NET.replace("  delay     1", "  delay     1\n  combine reduce(2)")
    reduced = programs.source("net-reduced", adds)
    # What is no sum goes on from one replica to the next all the same.
    largest = programs.source("net-largest", adds.replace("model net", WATCH + "model net").replace("use a =", "use s = watch, a =").replace("log(x)", "s(log(x))"))
    alone = ["--replicas", "2", "--stages", "2", "--microbatch", "3"]
    for name, path, flags, first in (("grain 6", net.path, ["--set", "train.grain=6"], []), ("grain 4", net.path, ["--set", "train.grain=4"], []),
                                     ("a chain", net.path, [], []), ("grain 2", net.path, ["--set", "train.grain=2"], []), ("reduce(2)", reduced, [], alone), ("reduce(2) and a largest value", largest, [], alone)):
        one = programs.compiled(path, "replicas-one", *flags, *first)
        net.whole = net.run(one, "replicas-whole")
        grids = {"grain 4": [(2, 2), (3, 1)], "grain 2": [(2, 2), (3, 2)]}
        for number, (stages, microbatch) in enumerate(grids.get(name, [(2, 3), (2, 1), (3, 2)])):
            count = 3 if name == "grain 4" else 2
            label = "%s, %d replicas of %d stages, micro-batches of %d" % (name, count, stages, microbatch)
            exe = programs.compiled(path, "replicas-2bw", *flags, "--replicas", str(count), "--stages", str(stages), "--schedule", "2bw", "--microbatch",
                                    str(microbatch), "--max-threads", "2")
            net.check(label, *net.run(exe, "replicas"))
            if number == 0:
                net.check(label + ", over TCP", *net.run(exe, "replicas", workers=count * stages, transport="tcp"))
            for begin, end in ((one, exe), (exe, one)):
                net.run(begin, "replicas-part", steps=11 + number)
                net.check(label + ", resumed", *net.run(end, "replicas-part", "--resume", fresh=False))


def check_shards(net):
    """Shards of overlapping stages leave the bits of the same shards without: evaluations, checkpoints and logs among them; resumed either way."""
    for shards in (2, 3):
        path = programs.source("net-shards%d" % shards, NET.replace("  delay     1", "  delay     1\n  shards %d" % shards))
        one = programs.compiled(path, "shards-one", "--microbatch", "4")
        net.whole = net.run(one, "shards-whole")
        for number, (stages, replicas, microbatch) in enumerate([(2, 1, 6), (2, 1, 1), (3, 1, 2), (2, 2, 3)] if shards == 2 else [(2, 1, 3)]):
            flags = ["--stages", str(stages), "--replicas", str(replicas), "--schedule", "2bw", "--microbatch", str(microbatch), "--max-threads", "2"]
            label = "%d shards, %s" % (shards, " ".join(flags))
            refused = programs.compiled(path, "refused", *flags, "--memory-budget", "1KiB", allowed=(1,))
            least = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout)
            for budget in [], ["--memory-budget", least.group(1)]:
                exe = programs.compiled(path, "shards-2bw", *flags, *budget)
                net.check(label + " ".join(budget), *net.run(exe, "shards"))
            if number == 0:
                net.check(label + ", over TCP", *net.run(exe, "shards", workers=shards * stages * replicas, transport="tcp"))
            for begin, end in ((one, exe), (exe, one)):
                net.run(begin, "shards-part", steps=12 + number)
                net.check(label + ", resumed", *net.run(end, "shards-part", "--resume", fresh=False))


def gpt():
    data = programs.FOLDER / "text"
    data.mkdir()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(programs.byte_text(8192))
    source = delayed(programs.HERE / "gpt.cinch", "gpt")
    flags = ["-D", "T=16", "-D", "D=24", "--max-threads", "2"]
    one = programs.run(programs.compiled(source, "gpt-one", *flags), data, 9)
    for stages, microbatch, precision in ((2, 2, "f32"), (3, 1, "f32"), (4, 2, "f32"), (2, 1, "bf16")):
        more = ["--set", "train.precision=" + precision] if precision != "f32" else []
        expected = programs.run(programs.compiled(source, "gpt-other", *flags, *more), data, 9) if more else one
        exe = programs.compiled(source, "gpt-many", *flags, *more, "--stages", str(stages), "--schedule", "2bw", "--microbatch", str(microbatch))
        found = programs.run(exe, data, 9, "--threads", "2")
        verdicts.expect(found.bytes == expected.bytes and found.losses == expected.losses, "gpt, %d stages, %s: other bits" % (stages, precision))
        plain = programs.compiled(source, "gpt-plain", *flags, *more, "--stages", str(stages), "--microbatch", str(microbatch))
        verdicts.expect(programs.run(plain, data, 9).bytes == expected.bytes, "gpt, 1f1b, %d stages: other bits" % stages)


def order_of_state():
    """A checkpoint's bytes are one worker's, where another worker reads the previous parameter than the one that updates it."""
    import numpy as np

    data = programs.FOLDER / "notes"
    data.mkdir()
    np.save(data / "t.npy", np.random.default_rng(1).integers(0, 16, (31, 3)).astype(np.int32))
    source = programs.source("order", """dim B = 4 batch, T = 2, V = 16, D = 4
data train = npy("t.npy") -> (t: i32[B, T + 1] below V)
model net(x: i32[B, T] below V) -> f32[B, T, V] {
  use wte = embedding[V, D], g = lstm[D], o = linear[V]
  return o(g(wte(x)))
}
train net on train seed 4 {
  loss = mean[B, T] cross_entropy(net(t[:, 0:T]), t[:, 1:T + 1])
  optimizer adam(lr = 0.05)
  delay 1
  every 2 checkpoint("run", keep = 1)
  steps 2
}
""")
    expected = None
    for stages, schedule in ((1, "1f1b"), (2, "2bw"), (3, "1f1b"), (4, "2bw")):
        more = ["--stages", str(stages), "--schedule", schedule, "--microbatch", "1"] if stages > 1 else []
        exe, out = programs.compiled(source, "order-exe", *more), programs.FOLDER / ("order-%d" % stages)
        programs.call([exe, "--data", data, "--out", out, "--quiet"])
        found = checkpoints(out)
        expected = expected or found
        verdicts.expect(found and found == expected, "the order of the state in a checkpoint of %d stages" % stages)


def main():
    order_of_state()
    net = Net()
    net.check_grids()
    net.check_resume()
    net.check_bad_numbers()
    net.check_stop()
    check_replicas(net)
    check_shards(net)
    gpt()
    tree("--all" in sys.argv)


if __name__ == "__main__":
    verdicts.run(main)
