#!/usr/bin/python3
"""Several workers, one process each: a GPT (tied weights, dropout) and a classifier on a csv file (normalized) train over TCP and under both mpiruns
to the bits of one worker, each process within its worker's budget, at the smallest too; eval, predict, generate and bad numbers are those of
one worker; a killed worker ends the run, which any number of workers resumes.

usage: processes.py [--all]      --all: every number of workers with every transport, and more kills
"""
import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import programs

ROOT = programs.HERE.parent.parent
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}
ROOTS = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
GPT = ["-D", "D=64", "-D", "N=3", "-D", "T=32", "-D", "B=16", "--microbatch", "2", "--max-threads", "2"]
CSV = """dim B = 16 batch, I = 3, H = 24, C = 3

data train = csv("train.csv") -> (x: f32[B, I] from ("a", "b", "c") normalize, y: i32[B] below C from "kind")
data valid = csv("valid.csv") -> (x: f32[B, I] from ("a", "b", "c") normalize, y: i32[B] below C from "kind")

model net(x: f32[B, I]) -> f32[B, C] {
  use a = linear[H], b = linear[H], c = linear[H], d = linear[C]
  return d(relu(c(relu(b(relu(a(x)))))))
}

train net on train seed 3 {
  loss       = mean[B] cross_entropy(net(x), y)
  metric acc = mean[B] (argmax(net(x)) == y)
  predict    guess = net(x)
  predict    right = argmax(net(x)) == y
  optimizer  sgd(lr = 0.1, momentum = 0.9)
  steps      3000
  every 20   eval(valid)
  every 100  checkpoint("run", keep = 2, best = max(acc))
}
"""
verdicts = programs.Verdicts()


class Ended:
    def __init__(self, codes, text):
        self.codes, self.text = codes, text

    def all(self, code):
        return set(self.codes) == {code}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def over_tcp(exe, workers, arguments, kill=None, environment=(), limit=120):
    """kill: (worker, seconds). `limit`: seconds after which it hangs."""
    port = free_port()
    processes = []
    for rank in range(workers):
        own = dict(os.environ, **dict(environment), RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(subprocess.Popen([str(exe), *map(str, arguments)], env=own, text=True, errors="replace",
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    if kill:
        time.sleep(kill[1])
        processes[kill[0]].kill()
    texts = []
    for process in processes:
        try:
            texts.append(process.communicate(timeout=limit)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            texts.append(process.communicate()[0] + "(it hung)")
    return Ended([process.returncode for process in processes], "".join(texts))


def start(exe, workers, transport, arguments, kill=None, limit=120):
    if transport == "tcp":
        return over_tcp(exe, workers, arguments, kill, limit=limit)
    command = [str(exe), *map(str, arguments)]
    if transport != "threads":
        command = [*MPIRUN[transport], "-np", str(workers), *command]
    done = subprocess.run(command, env=dict(os.environ, **ROOTS), text=True, errors="replace", timeout=limit,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return Ended([done.returncode], done.stdout)


def complaints(text):
    return re.findall(r"(?:warning|error): .*", text.replace("\r", "\n"))  # mpirun may draw a bar before them


def check_budget(ended, label):
    """The lines at the end: each process beside what MPI takes within its worker's budget."""
    lines = re.findall(r"peak memory (\d+) bytes.*budget (\d+) \([^)]*\)(?:, beside it (\d+) of)?", ended.text)
    verdicts.expect(lines, label + ": no line about memory")
    for peak, budget, beside in lines:
        verdicts.expect(int(peak) - int(beside or 0) <= int(budget), "%s: peak %s beside %s above %s" % (label, peak, beside, budget))


class Program:
    def __init__(self, name, path, data, flags, steps):
        self.name, self.path, self.data, self.flags, self.steps = name, path, data, flags, steps
        self.folder = programs.FOLDER / name
        self.folder.mkdir()
        self.one = programs.compiled(path, name + "-one", *flags)
        ended = self.train(self.one, 1, "threads", "one")
        verdicts.expect(ended.all(0), "%s by one worker: %s" % (name, ended.text[-500:]))
        self.bytes = self.final("one")

    def final(self, out):
        path = self.folder / out / "final.safetensors"
        return path.read_bytes() if path.exists() else None

    def train(self, exe, workers, transport, out, *more, kill=None, steps=None):
        if "--resume" not in more:
            shutil.rmtree(self.folder / out, ignore_errors=True)
        arguments = ["--data", self.data, "--out", self.folder / out, "--steps", steps or self.steps, "--threads", 1, *more]
        return start(exe, workers, transport, arguments, kill)

    def staged(self, workers, budget=None):
        name = "%s-%d%s" % (self.name, workers, "-least" if budget else "")
        return programs.compiled(self.path, name, *self.flags, "--stages", str(workers), *(["--memory-budget", str(budget)] if budget else []))

    def least(self, workers):
        done = programs.compiled(self.path, "refused", *self.flags, "--stages", str(workers), "--memory-budget", "1KiB", allowed=(1,))
        return int(re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout).group(1))

    def check_bits(self, exe, workers, transport, budget=False):
        label = "%s, %d workers over %s%s" % (self.name, workers, transport, ", smallest budget" if budget else "")
        ended = self.train(exe, workers, transport, "out")
        verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-700:]))
        verdicts.expect(self.final("out") == self.bytes, label + ": other bits than one worker's")
        if budget:
            check_budget(ended, label)

    def check_command(self, exe, workers, transport, *command):
        """The same output, and results, from the parameters of one worker."""
        arguments = [*command, "--out", self.folder / "one", *(["--data", self.data] if command[0] != "generate" else [])]
        expected = start(self.one, 1, "threads", arguments)
        found = start(exe, workers, transport, arguments)
        verdicts.expect(expected.all(0) and found.all(0) and found.text.replace("\r", "") == expected.text, "%s %s over %s: %s, expected %s" % (
            self.name, command[0], transport, found.text[-300:], expected.text[-300:]))

    def check_bad_number(self, exe, workers, transport, rate):
        expected = self.train(self.one, 1, "threads", "bad", "--set", "lr=" + rate)
        found = self.train(exe, workers, transport, "bad", "--set", "lr=" + rate)
        verdicts.expect(expected.all(4) and found.all(4) and complaints(found.text) == complaints(expected.text), "%s over %s: %s %s, expected %s" % (
            self.name, transport, found.codes, complaints(found.text), complaints(expected.text)))

    def check_kill(self, exe, workers, number, others, steps, stages=None):
        """`stages`: of each replica, if there are several. `others`: who resumes. The folder `whole` has the result of a run never killed."""
        rng = random.Random(number)
        victim, after = rng.randrange(workers), 0.05 + rng.random()
        begun = time.time()
        ended = self.train(exe, workers, "tcp", "killed", kill=(victim, after), steps=steps)
        seconds = time.time() - begun - after
        survivors = {code for rank, code in enumerate(ended.codes) if rank != victim}
        verdicts.expect(survivors == {5} and seconds < 10, "worker %d killed after %.2f s: %s in %.1f s: %s" % (
            victim, after, ended.codes, seconds, ended.text[-500:]))
        place = "stage %d" % victim if stages is None else "replica %d, stage %d" % divmod(victim, stages)
        named = r"worker %d \(%s\) lost (in (\d+[FIBW]\d+|gate|update) of step \d+|in step \d+|before the first step): " % (victim, place)
        verdicts.expect(re.search(named, ended.text), "worker %d killed: %s" % (victim, ended.text[-300:]))
        again = self.train(others[0], others[1], "threads", "killed", "--resume", steps=steps)
        verdicts.expect(again.all(0) and self.final("killed") == self.final("whole"), "resumed by %d workers: %s" % (
            others[1], again.text[-500:]))


# Its parameters are large beside the work of an example: half of a step is behind the loop.
WIDE = """dim B = 2 batch, I = 3, H = 900
data train = csv("train.csv") -> (x: f32[B, I] from ("a", "b", "c") normalize, y: i32[B] below 3 from "kind")
model net(x: f32[B, I]) -> f32[B, 3] {
  use a = linear[H], b = linear[H], c = linear[H], d = linear[3]
  return d(relu(c(relu(b(relu(a(x)))))))
}
train net on train seed 3 {
  loss      = mean[B] cross_entropy(net(x), y)
  optimizer adam(lr = 0.001)
  clip      norm(1.0)
  steps     100000
}
"""


def lost_behind(data):
    """A worker that is killed behind the loop of a step is named by the gate or the update, and every line says how it was noticed."""
    exe = programs.compiled(programs.source("wide", WIDE), "wide", "--stages", "2", "--microbatch", "1", "--max-threads", "1")
    named = set()
    for attempt in range(16):
        ended = over_tcp(exe, 2, ["--data", data, "--out", programs.FOLDER / "wide-out", "--threads", 1], kill=(1, 1 + 0.03 * attempt))
        said = re.search(r"worker 1 \(stage 1\) lost in (?:(\S+) of )?step \d+: its connection has ended", ended.text)
        if not verdicts.expect(said and ended.codes[0] == 5, "killed behind the loop: %s %s" % (ended.codes, ended.text[-300:])):
            return
        named.add(said.group(1))
        if named & {"gate", "update"}:
            return
    verdicts.expect(False, "killed 16 times, and never lost in the gate or the update: %s" % named)


def reserve(program, transport):
    """What MPI takes is said at the start; inside the budget it has to keep what was reserved for it."""
    for size, code in (("64MiB", 0), ("64KiB", 5)):
        exe = programs.compiled(program.path, "reserve-" + size, *program.flags, "--stages", "2", "--transport-reserve", size)
        ended = program.train(exe, 2, transport, "reserve")
        verdicts.expect(ended.all(code), "%s, --transport-reserve %s: %s %s" % (transport, size, ended.codes, ended.text[-400:]))
        wanted = "inside the budget; every link has carried" if code == 0 else "was compiled with --transport-reserve 65536"
        verdicts.expect(wanted in ended.text, "%s, --transport-reserve %s: %s" % (transport, size, ended.text[-400:]))


def small_messages(program, transport):
    """Six workers hand one another little: what the library takes for that while they train was measured at the start, too."""
    grid = ["--stages", "3", "--replicas", "2", "--schedule", "zbv", "--microbatch", "1"]
    refused = programs.compiled(program.path, "small", *grid, "--max-threads", "1", "--memory-budget", "1KiB", allowed=(1,))
    least = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout).group(1)
    exe = programs.compiled(program.path, "small", *grid, "--max-threads", "1", "--memory-budget", least)
    ended = program.train(exe, 6, transport, "small")
    verdicts.expect(ended.all(0) and program.final("small") == program.bytes, "six workers over %s: %s %s" % (transport, ended.codes, ended.text[-500:]))
    check_budget(ended, "six workers over " + transport)


def write_table(folder):
    folder.mkdir()
    rng = random.Random(5)
    for name, rows in (("train.csv", 200), ("valid.csv", 60)):
        lines = ["a,b,c,kind"]
        for _ in range(rows):
            a, b, c = (rng.gauss(5, 3) for _ in range(3))
            lines.append("%g,%g,%g,%d" % (a, b, c, (a > 5) + (b > 6)))
        (folder / name).write_text("\n".join(lines) + "\n")


def check_bar(program, exe, workers):
    """Worker 0 on a terminal draws the bar, which names the slowest of all processes."""
    control, terminal = pty.openpty()
    port, out = free_port(), program.folder / "bar"
    others = []
    for rank in range(workers):
        place = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="localhost", MASTER_PORT=str(port))
        command = [exe, "--data", program.data, "--out", out, "--steps", program.steps, "--threads", 1]
        streams = terminal if rank == 0 else subprocess.DEVNULL
        others.append(subprocess.Popen([str(word) for word in command], env=place, stdout=streams, stderr=streams))
    os.close(terminal)
    seen = b""
    while True:
        try:
            part = os.read(control, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    codes = [process.wait(timeout=60) for process in others]
    verdicts.expect(codes == [0] * workers and re.search(rb"worker \d slowest, waits \d+ %", seen), "the bar over TCP: %s %s" % (codes, seen[-300:]))


def other_bytes(program, exe, workers):
    """A field that two workers read, of the same length, with one other byte on the machine of the last one: nothing is trained."""
    other = programs.FOLDER / "other-bytes"
    shutil.copytree(program.data, other)
    text = bytearray((other / "train.txt").read_bytes())
    text[777] ^= 1
    (other / "train.txt").write_bytes(text)
    port, begun = free_port(), []
    for rank in range(workers):
        place = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        command = [exe, "--data", other if rank == workers - 1 else program.data, "--out", program.folder / "other", "--steps", program.steps, "--threads", 1]
        begun.append(subprocess.Popen([str(word) for word in command], env=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    said = [process.communicate(timeout=60)[0] for process in begun]
    differ = re.search(r"field `text` of worker 0 and of worker %d differ: .* checksum \w+, .* \w+" % (workers - 1), said[0])
    verdicts.expect({process.returncode for process in begun} == {3} and differ, "data that differs in a byte: %s %s" % (
        [process.returncode for process in begun], said))


def main():
    everything = "--all" in sys.argv
    data = programs.FOLDER / "text"
    data.mkdir()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_bytes(programs.byte_text(8192))
    gpt = Program("gpt", ROOT / "examples/gpt/gpt.cinch", data, GPT, 8)
    table = programs.FOLDER / "table"
    write_table(table)
    net = Program("net", programs.source("net", CSV), table, ["--microbatch", "4", "--max-threads", "2"], 40)

    missing = [name for name, command in MPIRUN.items() if not shutil.which(command[0])]
    verdicts.expect(not missing, "no mpirun of %s: openmpi-bin, libopenmpi3 and mpich are needed" % missing)
    transports = ["tcp", *(name for name in MPIRUN if name not in missing)]
    staged = {(program, workers): program.staged(workers) for program in (gpt, net) for workers in (2, 3)}
    for i, ((program, workers), exe) in enumerate(staged.items()):
        for transport in transports if everything else {"tcp", transports[i % len(transports)]}:
            program.check_bits(exe, workers, transport)
    least = gpt.staged(2, gpt.least(2))
    for transport in ["threads", *transports]:
        gpt.check_bits(least, 2, transport, budget=True)
    check_bar(gpt, staged[gpt, 3], 3)
    other_bytes(gpt, staged[gpt, 2], 2)
    for transport in transports if everything else ["tcp"]:
        gpt.check_command(staged[gpt, 2], 2, transport, "generate", "--length", "20", "--prompt", "The ")
        gpt.check_command(staged[gpt, 3], 3, transport, "eval", "--quiet", "--on", "valid", "--batches", "2")
        net.check_command(staged[net, 2], 2, transport, "eval", "--quiet")
        net.check_command(staged[net, 3], 3, transport, "predict")
        net.check_command(staged[net, 3], 3, transport, "predict", "--only", "guess")
        gpt.check_bad_number(staged[gpt, 3], 3, transport, "1e18")
    for transport in [name for name in transports if name != "tcp"]:
        reserve(net, transport)
        small_messages(net, transport)
    lost_behind(table)
    steps = 3000
    net.train(net.one, 1, "threads", "whole", steps=steps)
    for number in range(20 if everything else 3):
        others = [(net.one, 1), (staged[net, 2], 2), (staged[net, 3], 3)][number % 3]
        net.check_kill(staged[net, 3], 3, number, others, steps)


if __name__ == "__main__":
    verdicts.run(main)
