#!/usr/bin/python3
"""How programs for a GPU use the driver, executed on the CPU (standin.py): the host asks for the next step before it knows the last one,
steps are graphs, data come from pinned memory, times come from events; a gate that closes late changes nothing; a driver that lacks graphs
or pinned memory, and every failure in the middle; several workers on one device and on several, in one process and in one each.

usage: nvidia_runtime.py [NAME...]     NAME chooses by a part of the function's name
"""
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np

import processes
import programs
import standin
import tree_programs

verdicts = programs.Verdicts()

# Running statistics, an average of the parameters, dropout, clipping: what stands behind the gate is more than an update.
MLP = """dim B = 12 batch, I = 37, H = 45, C = 5

data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)

model mlp(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[H], norm = batch_norm(group = 3), fc2 = linear[C]
  return fc2(dropout(gelu(norm(fc1(x))), 0.25))
}

train mlp on train seed 42 {
  loss = mean[B] cross_entropy(mlp(x), y)
  optimizer adamw(lr = 0.01, decay = 0.1)
  schedule cosine(warmup = 3, end = 0.1)
  clip norm(1)
  steps 12
  RULES
}
"""


def arrays(name, spoiled=None):
    """Data of 60 examples, one of which may hold a number that no step survives."""
    rng = np.random.default_rng(1)
    folder = programs.FOLDER / name
    folder.mkdir()
    x = rng.standard_normal((60, 37)).astype("f4")
    if spoiled is not None:
        x[spoiled, 5] = 3e38
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", rng.integers(0, 5, 60).astype("i4"))
    return folder


def mlp(name, rules="", spoiled=False):
    text = MLP.replace("RULES", rules)
    if spoiled: # the large number becomes an infinity
        text = text.replace("fc1(x)", "fc1(x * (1 - 1e-30 * x))")
    return programs.source(name, text)


def gpt():
    """A tiny GPT of the examples, with evaluations and checkpoints in a short run; and its data."""
    folder = programs.FOLDER / "gpt-data"
    if not folder.exists():
        folder.mkdir()
        rng = np.random.default_rng(3)
        for name in ("train.txt", "valid.txt"):
            (folder / name).write_bytes(rng.integers(0, 64, 600).astype(np.uint8).tobytes())
    text = (tree_programs.ROOT / "examples" / "gpt" / "gpt.cinch").read_text()
    for old, new in (("steps        5000", "steps        9"), ("every 250    eval(valid, batches = 20)", "every 4      eval(valid, batches = 1)"),
                     ("every 1000   checkpoint", "every 2      checkpoint"), ("warmup = 100", "warmup = 3")):
        verdicts.expect(old in text, "examples/gpt lost the line `%s`" % old)
        text = text.replace(old, new)
    return programs.source("gpt", text), folder, "-D B=4 -D T=6 -D V=64 -D N=2 -D D=12 -D A=2".split()


def final(out):
    return (out / "final.safetensors").read_bytes()


def trained_on_cpu(source, data, name, *flags):
    out = programs.FOLDER / (name + "-cpu-out")
    programs.call([programs.compiled(source, name + "-cpu", *flags), "--data", data, "--out", out, "--quiet"])
    return out


def log_of(program, *arguments, **settings):
    """What the driver was asked for, word by word; and what the run said."""
    path = programs.FOLDER / ("driver-%d.log" % time.monotonic_ns())
    said = program.run(*arguments, log=path, **settings).stdout
    return path.read_text().split(), said


# ---- Steps -----------------------------------------------------------------------------------------------------------


def steps_ahead():
    """The second step on is a graph; each is asked for before the one before it is known; nothing waits in between."""
    data, source = arrays("ahead-data"), mlp("ahead", "every 4 log(jsonl)")
    wanted = trained_on_cpu(source, data, "ahead")
    program = standin.Program(source, "ahead", "--microbatch", "3")
    out = programs.FOLDER / "ahead-out"
    asked, said = log_of(program, "--data", data, "--out", out, seed=1)
    verdicts.expect(final(out) == final(wanted), "steps that are asked for ahead leave other parameters")
    same = (out / "log.jsonl").read_text().count("\n") == 3
    drop = lambda text: re.sub(r'"(examples_per_second|seconds)":[^,}]*', "", text)
    verdicts.expect(same and drop((out / "log.jsonl").read_text()) == drop((wanted / "log.jsonl").read_text()), "the logs differ")
    steps = [word for word in asked if word in ("graph", "event", "wait", "instantiation")]
    first = steps.index("graph")
    between = steps[first:len(steps) - steps[::-1].index("graph")]
    verdicts.expect(between.count("graph") == 11 and asked.count("instantiation") == 2, "not 11 steps of 12 are graphs: %s" % between)
    verdicts.expect("wait" not in between and between.count("event") <= 11, "the host waits between steps: %s" % between)
    behind = [word for word in steps[len(steps) - steps[::-1].index("graph"):] if word != "wait"]
    verdicts.expect(len(behind) == 2, "the last step is not asked for before the one before it is known: %s" % steps)
    last = re.search(r"(\d+) graphs of the steps.*pinned memory of the host (\d+) bytes", said)
    verdicts.expect(last and int(last.group(1)) == 2, "the end does not tell of graphs and pinned memory: %s" % said[-300:])
    verdicts.expect(asked.count("allocation") == 1, "%d allocations on the device" % asked.count("allocation"))


def steps_in_a_loop():
    """The trips of a loop along an axis are part of the graph; so are the loops over the batch of a step that has several."""
    for name, text, write in (("loop", LSTM, lambda folder: np.save(folder / "x.npy", np.random.default_rng(1).standard_normal((20, 5, 3)).astype("f4"))),
                              ("masked", MASKED, lambda folder: np.save(folder / "x.npy", np.random.default_rng(2).standard_normal((20, 6)).astype("f4")))):
        folder = programs.FOLDER / (name + "-data")
        folder.mkdir()
        write(folder)
        source = programs.source(name, text)
        wanted = trained_on_cpu(source, folder, name)
        program = standin.Program(source, name, "--microbatch", "2")
        out = programs.FOLDER / (name + "-out")
        asked, _ = log_of(program, "--data", folder, "--out", out, "--quiet", seed=5)
        verdicts.expect(final(out) == final(wanted) and asked.count("graph") == 5, "%s: other bits than the CPU's, or no graph" % name)


LSTM = """dim B = 4 batch, T = 5, I = 3, H = 6
data train = npy("x.npy") -> (x: f32[B, T, I])
model net(x: f32[B, T, I]) -> f32[B, T, I] { use cell = lstm[H], out = linear[I]; return out(cell(x)) }
train net on train seed 1 { loss = mean[B, T, I] squared_error(net(x), x); optimizer adam(lr = 0.01); clip norm(1); steps 6 }
"""
# The divisor of the loss is a sum over the whole batch.
MASKED = """dim B = 4 batch, D = 6
data train = npy("x.npy") -> (x: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] { use a = linear[D]; return a(x) }
train net on train seed 1 {
  loss = sum[B, D] where(x > 0, squared_error(net(x), x), 0) / sum[B, D] f32(x > 0)
  optimizer sgd(lr = 0.1, momentum = 0.9)
  steps 6
}
"""


def ended_by(how, program, line, *arguments, **settings):
    """Exit code and last words of a run that gets a signal when it prints a line that begins so."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(standin.DRIVER), STANDIN_KERNELS=str(program.library))
    environment.update({"STANDIN_" + name.upper(): str(value) for name, value in settings.items()})
    process = subprocess.Popen([str(word) for word in (program.exe, *arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for said in process.stdout:
        if said.startswith(line):
            process.send_signal(how)
            break
    said = process.stdout.read()
    return process.wait(), said


def stopped():
    """SIGTERM in the middle: 75, nothing is lost; killed: neither. On with another plan."""
    data, source = arrays("stop-data"), mlp("stop", "every 3 checkpoint(\"run\", keep = 2)").read_text().replace("steps 12", "steps 60")
    source = programs.source("stop", source)
    wanted = trained_on_cpu(source, data, "stop")
    program = standin.Program(source, "stop", "--microbatch", "3")
    other = standin.Program(source, "stop-other", "--microbatch", "6", "--remat", "all")
    for number, (how, code) in enumerate(((signal.SIGTERM, 75), (signal.SIGKILL, -9))):
        out = programs.FOLDER / ("stop%d-out" % number)
        ended, said = ended_by(how, program, "step %d/" % (12 + 9 * number), "--data", data, "--out", out)
        verdicts.expect(ended == code and not (out / "final.safetensors").exists(), "%s: exit %d, %s" % (how, ended, said[-200:]))
        other.run("--data", data, "--out", out, "--resume", "--quiet", seed=number)
        verdicts.expect(final(out) == final(wanted), "%s: a resumed run has other parameters" % how)


# ---- The gate --------------------------------------------------------------------------------------------------------


def closed_gate():
    """A number that no step survives appears after some steps: it is named, the parameters are those before it, whatever was asked for since."""
    folder = arrays("bad-data", spoiled=40)
    source = mlp("bad", spoiled=True)
    said, saved = [], []
    cpu = programs.compiled(source, "bad-cpu")
    device = standin.Program(source, "bad", "--microbatch", "3")
    for number, run in enumerate((lambda *w: programs.call([cpu, *w], allowed=(4,)), lambda *w: device.run(*w, allowed=(4,), seed=2),
                                  lambda *w: device.run(*w, allowed=(4,), fail="cuStreamBeginCapture_v2"))):
        out = programs.FOLDER / ("bad%d-out" % number)
        text = run("--data", folder, "--out", out, "--quiet").stdout.replace(str(out), "OUT")
        said.append([line for line in text.splitlines() if "note:" not in line])
        saved.append([path.read_bytes() for path in sorted(out.glob("checkpoints/*.safetensors"))])
    verdicts.expect(any("bad.cinch:" in line for line in said[0]) and saved[0], "the CPU's run ended otherwise: %s" % said[0])
    verdicts.expect(said[0] == said[1] == said[2], "the CPU says %s, the device %s, without graphs %s" % tuple(said))
    tensors = [{path: value.tobytes() for path, value in programs.tensorfile.read(sorted((programs.FOLDER / ("bad%d-out" % i)).glob("checkpoints/*.safetensors"))[-1]).items()} for i in range(3)]
    verdicts.expect(tensors[0] == tensors[1] == tensors[2], "the checkpoints behind the closed gate differ")


def copies_for_a_report():
    """What is said of a closed gate takes a few copies of what the launches read and wrote, not the arena for each of them."""
    rows, width = 256, 512
    text = """dim B = %d batch, I = %d, C = 5
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
model wide(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[I], fc2 = linear[I], fc3 = linear[C]
  return fc3(tanh(fc2(tanh(fc1(x * (1 - 1e-30 * x))))))
}
train wide on train seed 1 {
  loss = mean[B] cross_entropy(wide(x), y)
  optimizer sgd(lr = 0.01, momentum = 0.9)
  steps 2
}
""" % (rows, width)
    folder = programs.FOLDER / "report-data"
    folder.mkdir()
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2 * rows, width)).astype("f4")
    x[:, 5] = 3e38 # becomes an infinity
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", rng.integers(0, 5, 2 * rows).astype("i4"))
    program = standin.Program(programs.source("report", text), "report", "--microbatch", str(rows))
    out = programs.FOLDER / "report-out"
    asked, said = log_of(program, "--data", folder, "--out", out, "--quiet", allowed=(4,))
    arena = int(re.search(r"arena (\d+) bytes", programs.call([program.exe, "info"]).stdout.replace(",", "")).group(1))
    copied = [int(asked[i + 1]) for i, word in enumerate(asked) if word == "from"]
    verdicts.expect("report.cinch:5: " in said and "first number that is not finite" in said, "the report says %s" % said)
    verdicts.expect(max(copied) < arena / 4 and sum(copied) < 3 * arena, "of an arena of %d bytes, copies of %d bytes and more, %d in all" %
                    (arena, max(copied), sum(copied)))


# ---- Drivers that lack something, times ----------------------------------------------------------------------------------


def without_graphs():
    """What a driver lacks is said, and no bit changes."""
    data, source = arrays("lack-data"), mlp("lack")
    wanted = trained_on_cpu(source, data, "lack")
    program = standin.Program(source, "lack")
    for number, fail in enumerate(("cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags")):
        out = programs.FOLDER / ("lack%d-out" % number)
        asked, said = log_of(program, "--data", data, "--out", out, fail=fail)
        verdicts.expect("note: the steps are no CUDA graph" in said and "graph" not in asked and final(out) == final(wanted), "%s: %s" % (fail, said[:600]))


def times():
    """--kernel-times: each launch has its time from events, without a wait behind each; --profile has its table."""
    data, source = arrays("times-data"), mlp("times")
    program = standin.Program(source, "times", "--microbatch", "12")
    out, path = programs.FOLDER / "times-out", programs.FOLDER / "times.tsv"
    asked, _ = log_of(program, "--data", data, "--out", out, "--quiet", "--kernel-times", path, "--profile")
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    calls = sum(int(row[1]) for row in rows)
    verdicts.expect(rows and all(float(row[2]) > 0 and "times.cinch:" in row[6] + "times.cinch:" for row in rows), "no times: %s" % rows[:2])
    verdicts.expect(calls == asked.count("launch") - 2 * 12, "%d launches have times, %d were asked for" % (calls, asked.count("launch")))
    verdicts.expect(asked.count("wait") < calls, "%d waits for %d launches" % (asked.count("wait"), calls))
    verdicts.expect((out / "profile.tsv").exists(), "--profile wrote nothing")


def machine_code():
    """Machine code beside the PTX, where an assembler is at hand: taken by devices that it suits, and nothing is lost without it."""
    data, source = arrays("code-data"), mlp("code")
    wanted = trained_on_cpu(source, data, "code")
    good, bad = programs.FOLDER / "good-ptxas", programs.FOLDER / "bad-ptxas"
    asked_for = programs.FOLDER / "assembled.txt"
    good.write_text('#!/bin/sh\necho once >> ' + str(asked_for) + '\n[ "$1" = -arch=sm_80 ] && grep -q "entry cinch_gate" "$2" && printf "\\177ELF code" > "$4"\n')
    bad.write_text('#!/bin/sh\necho "ptxas fatal: no such architecture" >&2\nexit 255\n')
    for path in (good, bad):
        path.chmod(0o755)
    said = programs.call([programs.CINCH, source, "--target", "nvidia", "--ptxas", bad, "-o", programs.FOLDER / "code-bad"]).stdout
    verdicts.expect("PTX alone: %s: ptxas fatal: no such architecture" % bad in said, said)
    program = standin.Program(source, "code", "--ptxas", good)
    again = standin.Program(source, "code-again", "--ptxas", good)
    verdicts.expect(again.exe.read_bytes() == program.exe.read_bytes() and asked_for.read_text() == "once\n", "machine code is made once and found again")
    os.utime(good, (1, 1))
    standin.Program(source, "code-anew", "--ptxas", good)
    verdicts.expect(asked_for.read_text() == "once\n" * 2, "another assembler makes it anew")
    for number, (settings, taken) in enumerate((({"capability": 86}, True), ({"capability": 90}, False), ({"capability": 80, "fail": "cubin"}, True))):
        out = programs.FOLDER / ("code%d-out" % number)
        asked, _ = log_of(program, "--data", data, "--out", out, "--quiet", **settings)
        verdicts.expect(("cubin" in asked) == taken and final(out) == final(wanted), "machine code on %s" % settings)


# ---- Failures ----------------------------------------------------------------------------------------------------------


def failures():
    """Kernels and memory that fail in the middle of graphs; a device that is another's. The last checkpoint is good for going on."""
    data, source = arrays("fail-data"), mlp("fail", "every 2 checkpoint(\"run\", keep = 2)")
    wanted = trained_on_cpu(source, data, "fail")
    program = standin.Program(source, "fail", "--microbatch", "6")
    cases = (("launch:400", r"CUDA_ERROR_LAUNCH_FAILED.*CUDA_LAUNCH_BLOCKING=1.*--resume", {}),
             ("launch:400", r"do a kernel, in .* \(fail\.cinch:\d+\), in step \d+: unspecified launch failure.*--resume", {"CUDA_LAUNCH_BLOCKING": "1"}),
             ("ecc:400", r"uncorrectable ECC error.*memory is faulty.*--resume", {}))
    for number, (fail, pattern, environment) in enumerate(cases):
        out = programs.FOLDER / ("fail%d-out" % number)
        os.environ.update(environment)
        ended = program.run("--data", data, "--out", out, "--quiet", fail=fail, allowed=range(256))
        for name in environment:
            del os.environ[name]
        where = ended.stdout.replace(str(programs.FOLDER) + "/", "")
        verdicts.expect(ended.returncode == 5 and re.search(pattern, where), "%s: exit %d, %s" % (fail, ended.returncode, ended.stdout[-400:]))
        verdicts.expect(list((out / "run").glob("step-*.safetensors")), "%s: no checkpoint is left" % fail)
        program.run("--data", data, "--out", out, "--quiet", "--resume")
        verdicts.expect(final(out) == final(wanted), "%s: the resumed run has other parameters" % fail)
    out = programs.FOLDER / "taken-out"
    for what, pattern, settings in (("another's alone", "another process's alone", {"fail": "cuDevicePrimaryCtxRetain"}),
                                    ("no pinned memory", "pinned memory", {"fail": "cuMemAllocHost_v2"})):
        ended = program.run("--data", data, "--out", out, allowed=range(256), **settings)
        verdicts.expect(ended.returncode == 5 and re.search(pattern, ended.stdout), "%s: exit %d, %s" % (what, ended.returncode, ended.stdout[-300:]))


# ---- Several workers -----------------------------------------------------------------------------------------------------


def several_devices():
    """A tiny GPT: two stages on two devices and on one, exact replicas: the bits of one worker on the CPU, after kills, too."""
    source, data, sizes = gpt()
    wanted = trained_on_cpu(source, data, "gpt", *sizes)
    built = {}

    def train(entry):
        number, flags, settings, count = entry
        program = built[number] = standin.Program(source, "gpt%d" % number, *sizes, *flags)
        out = programs.FOLDER / ("gpt%d-out" % number)
        asked, said = log_of(program, "--data", data, "--out", out, seed=number, **settings)
        verdicts.expect(final(out) == final(wanted), "%s: other parameters" % " ".join(flags))
        verdicts.expect(asked.count("allocation") == count and ("which workers share" in said) == (settings["devices"] < count),
                        "%s: %d allocations; %s" % (" ".join(flags), asked.count("allocation"), said[:200]))
        verdicts.expect(("peer" in asked) == (settings["devices"] > 1), "%s: messages take another way" % " ".join(flags))
        verdicts.expect(asked.count("graph") == 8 and asked.count("instantiation") == 2,
                        "%s: %d of 9 steps are graphs of all workers" % (" ".join(flags), asked.count("graph")))

    programs.in_parallel(train, [(0, ["--stages", "2", "--microbatch", "1"], dict(devices=2), 2),
                                 (1, ["--stages", "2", "--microbatch", "2", "--remat", "all"], dict(devices=1, arenas=2), 2),
                                 (2, ["--replicas", "2"], dict(devices=3), 2),
                                 (3, ["--stages", "2", "--replicas", "2", "--microbatch", "1"], dict(devices=3, arenas=2), 4)])
    for number, (flag, settings) in enumerate((("eager", dict(eager=1)), ("alone", dict(fail="cuGraphInstantiateWithFlags")))):
        out = programs.FOLDER / ("gpt-%s-out" % flag)
        asked, said = log_of(built[0], "--data", data, "--out", out, seed=number, devices=2, **settings)
        right = final(out) == final(wanted) and ("graph" in asked) == (flag == "eager")
        verdicts.expect(right, "%s: other parameters, or graphs: %s" % (flag, said[-300:]))
    out = programs.FOLDER / "gpt-killed-out"
    killed, _ = ended_by(signal.SIGKILL, built[0], "step 4/9", "--data", data, "--out", out, devices=2)
    verdicts.expect(killed == -9 and list(out.glob("run/step-*.safetensors")), "the run that was killed ended with %d" % killed)
    built[1].run("--data", data, "--out", out, "--quiet", "--resume", devices=1, arenas=2)
    verdicts.expect(final(out) == final(wanted), "two stages, killed, then on one device: other parameters")
    small = built[1].run("--data", data, "--out", programs.FOLDER / "gpt-small-out", devices=1, arenas=2, memory=60000, allowed=(5,)).stdout
    verdicts.expect("workers of this run share it" in small or "smaller --memory-budget" in small, "too small a device for both: %s" % small)


def schedules():
    """Steps that overlap, several stages a worker: training, evaluation, prediction, as on the CPU."""
    folder = arrays("schedules-data")
    text = MLP.replace("RULES", "metric right = mean[B] f32(argmax(mlp(x)) == y)\n  every 4 eval(train)").replace("batch_norm(group = 3)", "layer_norm")
    for number, (name, line, flags) in enumerate((("late", "clip norm(1)\n  delay 1", ["--schedule", "2bw", "--microbatch", "2"]),
                                                  ("chunks", "clip norm(1)", ["--schedule", "interleaved", "--microbatch", "3"]))):
        source = programs.source(name, text.replace("clip norm(1)", line))
        wanted = trained_on_cpu(source, folder, name)
        programs.call([programs.FOLDER / (name + "-cpu"), "predict", "--data", folder, "--out", wanted, "--quiet"])
        program, out = standin.Program(source, name, "--stages", "2", *flags), programs.FOLDER / (name + "-out")
        program.run("--data", folder, "--out", out, "--quiet", devices=2, seed=number)
        program.run("predict", "--data", folder, "--out", out, "--quiet", devices=1, arenas=2)
        (results,) = wanted.glob("predict/*/*.npy")
        verdicts.expect(final(out) == final(wanted), "%s: other parameters" % name)
        verdicts.expect((out / results.relative_to(wanted)).read_bytes() == results.read_bytes(), "%s: other results" % name)


def several_bad():
    """A gate that closes for several workers: the message and the parameters of one worker."""
    folder, source = arrays("several-bad-data", spoiled=40), mlp("several", spoiled=True)
    said, saved = [], []
    cpu = programs.compiled(source, "several-cpu")
    device = standin.Program(source, "several", "--stages", "2", "--microbatch", "3")
    for number, run in enumerate((lambda *w: programs.call([cpu, *w], allowed=(4,)), lambda *w: device.run(*w, allowed=(4,), devices=2))):
        out = programs.FOLDER / ("several%d-out" % number)
        text = run("--data", folder, "--out", out, "--quiet").stdout
        said.append([re.sub(r" \(in kernel.*", "", line) for line in text.splitlines() if "cinch:" in line])
        (last,) = sorted(out.glob("checkpoints/*.safetensors"))
        saved.append({path: value.tobytes() for path, value in programs.tensorfile.read(last).items()})
    verdicts.expect(said[0] and said[0] == said[1], "one worker says %s, two %s" % tuple(said))
    verdicts.expect(saved[0] == saved[1], "the parameters behind the closed gate differ")


def one_process_each():
    """The same with a process a worker, which meet over TCP: messages go through the host."""
    source, data, sizes = gpt()
    wanted = programs.FOLDER / "gpt-cpu-out"
    if not wanted.exists():
        trained_on_cpu(source, data, "gpt", *sizes)
    program = standin.Program(source, "gpt-tcp", *sizes, "--stages", "2", "--microbatch", "2")
    out = programs.FOLDER / "gpt-tcp-out"
    os.environ.update(LD_LIBRARY_PATH=str(standin.DRIVER), STANDIN_KERNELS=str(program.library), STANDIN_DEVICES="2")
    ended = processes.over_tcp(program.exe, 2, ["--data", data, "--out", out])
    for name in ("LD_LIBRARY_PATH", "STANDIN_KERNELS", "STANDIN_DEVICES"):
        del os.environ[name]
    verdicts.expect(ended.codes == [0, 0] and final(out) == final(wanted), "over TCP: %s %s" % (ended.codes, ended.text))


def main():
    for test in (steps_ahead, steps_in_a_loop, stopped, closed_gate, copies_for_a_report, without_graphs, times, machine_code, failures, several_devices, schedules, several_bad, one_process_each):
        if len(sys.argv) < 2 or any(word in test.__name__ for word in sys.argv[1:]):
            test()


if __name__ == "__main__":
    verdicts.run(main)
