#!/usr/bin/python3
"""GPUs of several processes, executed on the CPU (standin.py, test/nvidia/nccl.cpp): messages of training steps by NCCL, steps as graphs that hold
them, a gate that nobody waits for; sums of `combine reduce` on devices, by the ring of replicas and by NCCL; every library that fails, is missing
or refuses; forgotten waits.

usage: nvidia_peers.py [NAME...]     NAME chooses by a part of the function's name
"""
import re
import sys

import numpy as np

import nvidia_runtime
import programs
import standin
from nvidia_runtime import final, verdicts


def log_of_each(program, workers, *arguments, **settings):
    path = programs.FOLDER / ("each-%d.log" % log_of_each.count)
    log_of_each.count += 1
    ended = program.run_each(workers, *arguments, log=path, **settings)
    return ended, path.read_text().split() if path.exists() else []


log_of_each.count = 0


def stages():
    """A tiny GPT, a process a worker: the bits of one worker on the CPU, steps as graphs, messages by NCCL alone."""
    source, data, sizes = nvidia_runtime.gpt()
    wanted = nvidia_runtime.trained_on_cpu(source, data, "gpt", *sizes)
    built = {}

    def train(entry):
        number, workers, flags = entry
        label = " ".join(flags)
        program, out = standin.Program(source, "stages%d" % number, *sizes, *flags), programs.FOLDER / ("stages%d-out" % number)
        built[number] = program
        ended, asked = log_of_each(program, workers, "--data", data, "--out", out, devices=workers, seed=number)
        verdicts.expect(ended.all(0) and final(out) == final(wanted), "%s: %s %s" % (label, ended.codes, ended.text[-2500:]))
        verdicts.expect("go by NCCL 22105" in ended.text, "%s: messages go another way: %s" % (label, ended.text[-1500:]))
        verdicts.expect(asked.count("graph") == 8 * workers and asked.count("instantiation") == 2 * workers,
                        "%s: %d steps of %d workers are graphs" % (label, asked.count("graph"), workers))
        verdicts.expect(asked.count("ncclSend") == asked.count("ncclRecv") > 0, "%s: %d messages sent, %d received" % (
            label, asked.count("ncclSend"), asked.count("ncclRecv")))

    programs.in_parallel(train, [(0, 2, ["--stages", "2", "--microbatch", "1"]), (1, 4, ["--stages", "2", "--replicas", "2", "--microbatch", "1", "--remat", "all"]),
                                 (2, 2, ["--stages", "2", "--schedule", "interleaved", "--microbatch", "2"]), (3, 4, ["--replicas", "4"])])
    program = built[0]
    for name, arguments, settings, says in (
            ("host", ["--gpu-messages", "host"], dict(devices=2), None), ("eager", [], dict(devices=2, eager=1), "by NCCL"),
            ("alone", [], dict(devices=2, fail="cuGraphInstantiateWithFlags"), "by NCCL"), ("times", ["--profile"], dict(devices=2), "by NCCL"),
            ("shared", [], dict(devices=1), "hosts, since NCCL says: invalid usage"), ("joinless", [], dict(devices=2, fail="ncclCommInitRank"), "hosts, since NCCL says: unhandled"),
            ("missing", [], dict(devices=2, fail="ncclGetVersion"), "is not here"), ("old", [], dict(devices=2, nccl=2804), "older than 2.9")):
        out = programs.FOLDER / ("stages-%s-out" % name)
        ended, asked = log_of_each(program, 2, "--data", data, "--out", out, *arguments, **settings)
        verdicts.expect(ended.all(0) and final(out) == final(wanted), "%s: %s %s" % (name, ended.codes, ended.text[-1500:]))
        verdicts.expect((says or "") in ended.text and ("ncclSend" in asked) == (says == "by NCCL"), "%s: %s" % (name, ended.text[-1500:]))
        graphs = 16 if name == "eager" else 0  # none where one worker, whose steps are waited for, has none
        verdicts.expect(asked.count("graph") == graphs, "%s: %d graphs, not %d" % (name, asked.count("graph"), graphs))
    out = programs.FOLDER / "stages-killed-out"
    ended = program.run_each(2, "--data", data, "--out", out, devices=2, fail="launch:700")
    verdicts.expect(5 in ended.codes and list(out.glob("run/step-*.safetensors")), "a kernel that fails: %s %s" % (ended.codes, ended.text[-800:]))
    ended = program.run_each(2, "--data", data, "--out", out, "--resume", devices=2)
    verdicts.expect(ended.all(0) and final(out) == final(wanted), "resumed by NCCL: %s %s" % (ended.codes, ended.text[-800:]))


def closed_gate():
    """A number that is not finite: the message and the parameters of one worker on the CPU; nobody hangs."""
    folder, source = nvidia_runtime.arrays("bad-data", spoiled=40), nvidia_runtime.mlp("bad", spoiled=True)
    cpu, said, saved = programs.compiled(source, "bad-cpu"), [], []
    device = standin.Program(source, "bad", "--stages", "2", "--microbatch", "3")
    for number in range(2):
        out = programs.FOLDER / ("bad%d-out" % number)
        if number:
            ended, asked = log_of_each(device, 2, "--data", folder, "--out", out, "--quiet", devices=2)
            text = ended.text
            verdicts.expect(ended.all(4) and "graph" in asked and "ncclSend" in asked, "a closed gate: %s %s" % (ended.codes, text[-1500:]))
        else:
            text = programs.call([cpu, "--data", folder, "--out", out, "--quiet"], allowed=(4,)).stdout
        said.append([re.sub(r" \(in kernel.*", "", line) for line in text.splitlines() if "cinch:" in line])
        (last,) = sorted(out.glob("checkpoints/*.safetensors"))
        saved.append({path: value.tobytes() for path, value in programs.tensorfile.read(last).items()})
    verdicts.expect(said[0] and said[0] == said[1], "one worker says %s, two %s" % tuple(said))
    verdicts.expect(saved[0] == saved[1], "the parameters behind the closed gate differ")


REDUCED = """dim B = 12 batch, I = 37, H = 29, C = 5
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
model mlp(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[H], fc2 = linear[C]
  return fc2(gelu(fc1(x)))
}
train mlp on train seed 42 {
  loss = mean[B] cross_entropy(mlp(x), y)
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(1)
  %s
  steps 6
}
"""


def reduced():
    """Replicas that are not exact: the bits of the CPU's replicas, whose sums are added in the same order; by NCCL's sums the same for two replicas,
    near for three, and two runs alike."""
    data = nvidia_runtime.arrays("reduced-data")
    for name, way, flags in (("two", "combine reduce(2)", ["--microbatch", "2"]), ("three", "combine reduce(3)", []), ("staged", "combine reduce(2)", ["--stages", "2"]),
                             ("ring", "combine ring_average(3)", []), ("async", "combine async(2, delay = 1)", []),
                             ("wide", "combine reduce(2)", ["--set", "train.precision=f64"])):
        source = programs.source(name, REDUCED % way)
        wanted = nvidia_runtime.trained_on_cpu(source, data, name, *flags)
        program = standin.Program(source, name, *flags)
        workers = int(re.search(r"\((\d)", way).group(1)) * (2 if "--stages" in flags else 1)
        out = programs.FOLDER / (name + "-threads-out")
        program.run("--data", data, "--out", out, devices=2, arenas=workers)
        verdicts.expect(final(out) == final(wanted), "%s, in one process: other parameters" % name)
        whole = programs.tensorfile.read(wanted / "final.safetensors")
        found = []
        for more in (["--gpu-messages", "host"], [], *([["--all-reduce", "nccl"]] * 2 if "reduce" in way else [])):
            label = "%s %s" % (name, " ".join(more))
            out = programs.FOLDER / ("%s-%d-out" % (name, len(found)))
            ended, asked = log_of_each(program, workers, "--data", data, "--out", out, *more, devices=workers, seed=len(found))
            verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-1500:]))
            verdicts.expect(("ncclAllReduce" in asked) == (more[:1] == ["--all-reduce"]) and ("ncclSend" in asked) == ("host" not in more), "%s: another way" % label)
            found.append(final(out))
            error = max(np.abs(programs.tensorfile.read(out / "final.safetensors")[key] - value).max() for key, value in whole.items())
            verdicts.expect(found[-1] == final(wanted) if len(found) < 3 or "(2)" in way else error < 1e-5, "%s: off by %.3g" % (label, error))
        verdicts.expect(len(found) < 4 or found[2] == found[3], "%s: two runs by NCCL differ" % name)
    refused = programs.compiled(programs.source("wild", REDUCED % "combine hogwild(2)"), "wild", "--target", "nvidia", allowed=(0, 1))
    verdicts.expect(getattr(refused, "returncode", 0) == 1 and "each GPU has memory of its own" in refused.stdout, "hogwild on GPUs")
    exact = standin.Program(programs.source("exact", REDUCED % "combine exact"), "exact", "--replicas", "2")
    for words, settings, code, what in ((["--all-reduce", "nccl"], {}, 2, "`combine reduce` in `train` asks for that"), (["--gpu-messages", "hots"], {}, 2, "did you mean `host`")):
        ended = exact.run_each(2, "--data", data, "--out", programs.FOLDER / "refused-out", *words, devices=2, **settings)
        verdicts.expect(ended.all(code) and what in ended.text, "%s: %s %s" % (words, ended.codes, ended.text[-500:]))
    ended = program.run_each(2, "--data", data, "--out", programs.FOLDER / "refused-out", "--all-reduce", "nccl", devices=1)
    verdicts.expect(ended.all(5) and "invalid usage" in ended.text, "one device for two, sums by NCCL: %s %s" % (ended.codes, ended.text[-500:]))


def forgotten_waits():
    """Each wait of a stream for an event is left out in turn, with copies as early and as late as they may be: that ends the run, changes the numbers, or
    there is no graph. A wait for the begin of the first step is none, nor are some for mailboxes that are empty long before."""
    data = nvidia_runtime.arrays("forgotten-data")
    source = programs.source("forgotten", REDUCED.replace("steps 6", "steps 3") % "")
    wanted = nvidia_runtime.trained_on_cpu(source, data, "forgotten")
    program = standin.Program(source, "forgotten", "--stages", "2", "--microbatch", "3")
    ended, asked = log_of_each(program, 2, "--data", data, "--out", programs.FOLDER / "forgotten-out", devices=2)
    verdicts.expect(ended.all(0) and final(programs.FOLDER / "forgotten-out") == final(wanted), "nothing is forgotten: %s" % ended.text[-800:])
    each, found = asked.count("waits") // 2, 0
    for number in range(1, each + 1):
        for eager in (0, 1):
            out = programs.FOLDER / ("forgotten-%d-%d-out" % (number, eager))
            ended = program.run_each(2, "--data", data, "--out", out, devices=2, forget=number, eager=eager, patience=5)
            if not ended.all(0) or final(out) != final(wanted) or "are no CUDA graph" in ended.text:
                found += 1
                break
    verdicts.expect(found >= each * 3 // 4, "of %d waits, %d were missed when they were left out" % (each, found))
    return found, each


def main():
    for test in (stages, closed_gate, reduced, forgotten_waits):
        if len(sys.argv) < 2 or any(word in test.__name__ for word in sys.argv[1:]):
            result = test()
            if result:
                print("%d of %d waits are missed when they are left out" % (result[1] - result[0], result[1]))


if __name__ == "__main__":
    verdicts.run(main)
