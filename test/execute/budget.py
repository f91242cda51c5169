#!/usr/bin/python3
"""The budget is kept: for budgets from the smallest that compiles up to more than is needed, the peak of the whole
process (VmHWM, as the program reports it and as seen from outside) is within it, and the arena is as large as
planned. Evaluation, prediction and generation keep it too. Beside the arena the process needs at most the allowance,
which is no more than three times that. Where this machine lets us make a memory cgroup, one run lives inside one of
exactly that size. A binary that outgrows the planner's guess is planned anew, and so is one that needs less.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import time

import numpy as np

import programs

BUDGETS = 8
FOR_ARGUMENTS = 256 << 10  # of an allowance, for arguments and environment: rt::kArgumentBytes

verdicts = programs.Verdicts()


def smallest_budget(program, flags):
    refused = programs.compiled(program, "refused", "--memory-budget", "1KiB", *flags, allowed=(1,))
    match = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout)
    if not match:
        raise programs.Failure("a budget of 1 KiB is refused without naming the smallest: " + refused.stdout[-500:])
    return int(match.group(1))


def check_notations(program, flags, least):
    """Bytes as messages print them, and fractions of a unit, which are rounded down."""
    for word, bytes_meant in ((str(least), least), ("%.7fMiB" % (least / 2**20 + 0.6e-6), least)):
        done = programs.call([programs.CINCH, "plan", "--json", str(program), *flags, "--memory-budget", word], allowed=(0, 1, 2))
        plan = json.loads(done.stdout) if done.returncode == 0 else {}
        verdicts.expect(plan.get("budget") == bytes_meant, "a budget of %s: %s" % (word, plan.get("budget", done.stdout[-300:])))
    plain, exact = (programs.call([programs.CINCH, "plan", str(program), *flags, "--memory-budget", word], allowed=(1,)).stdout for word in ("3", "3B"))
    verdicts.expect("help: a number alone counts bytes; a unit stands behind it: 3MiB, 3GiB\n" in plain, "a budget of 3: " + plain)
    verdicts.expect("a number alone" not in exact, "a budget of 3B: " + exact)
    for word in ("12x", "-5", "1e9", "0.5"):
        done = programs.call([programs.CINCH, "plan", str(program), *flags, "--memory-budget", word], allowed=(0, 1, 2))
        verdicts.expect(done.returncode == 2 and "--memory-budget" in done.stdout, "a budget of %s is taken" % word)


def watched_run(exe, data, words, prefix=()):
    """Runs and looks at VmHWM from outside all the while: (text, highest peak seen, exit code)."""
    out = programs.FOLDER / ("out-" + exe.name)
    process = subprocess.Popen(
        [*prefix, str(exe), *words, "--out", str(out), *([] if "generate" in words else ["--data", str(data)])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # a model of bytes may write any
    )
    peak = 0
    while process.poll() is None:
        try:
            status = pathlib.Path("/proc/%d/status" % process.pid).read_text()
            name = re.search(r"Name:\s*(\S+)", status).group(1)
            match = re.search(r"VmHWM:\s*(\d+) kB", status)
            if match and exe.name.startswith(name):  # not the launcher before its exec, which has our own size
                peak = max(peak, int(match.group(1)) * 1024)
        except (OSError, AttributeError):
            pass
        time.sleep(0.002)
    return process.stdout.read(), peak, process.returncode


def check(exe, data, steps, budget):
    text, seen, code = watched_run(exe, data, ["--steps", str(steps), "--log", "csv,jsonl,tensorboard"])
    label = "no budget" if budget is None else "budget %d" % budget
    match = re.search(r"peak memory (\d+) bytes.*arena (\d+), allowance (\d+)", text)
    if not verdicts.expect(code == 0 and match, "%s: exit %d: %s" % (label, code, text[-500:])):
        return
    peak, arena, allowance = map(int, match.groups())
    verdicts.expect(
        0 < seen <= peak, "%s: from outside a peak of %d bytes is seen, the program says %d" % (label, seen, peak)
    )
    verdicts.expect(arena < peak, "%s: an arena of %d bytes in a process of %d" % (label, arena, peak))
    if budget is not None:
        verdicts.expect(peak <= budget, "%s: a peak of %d bytes" % (label, peak))
    beside = peak - arena
    verdicts.expect(
        beside + FOR_ARGUMENTS <= allowance <= 3 * beside,
        "%s: %d bytes beside the arena, %d are allowed, %d of them for arguments and environment" % (label, beside, allowance, FOR_ARGUMENTS),
    )
    print("%s: peak %d, arena %d, beside it %d of %d allowed" % (label, peak, arena, beside, allowance))
    for words in (["eval"], ["predict"], ["generate", "--length", "40"]):
        text, seen, code = watched_run(exe, data, words)
        verdicts.expect(
            (code == 0 or (code == 2 and "does not generate" in text)) and seen <= arena + allowance,
            "%s: %s: exit %d, a peak of %d bytes: %s" % (label, words[0], code, seen, text[-300:]),
        )


def new_cgroup(budget):
    """A memory cgroup of this size without swap, of version 2 or 1; raises OSError where none can be made."""
    name = "cinch-test-%d" % os.getpid()
    for root, limits in (
        (pathlib.Path("/sys/fs/cgroup"), {"memory.max": budget, "memory.swap.max": 0}),
        (pathlib.Path("/sys/fs/cgroup/memory"), {"memory.limit_in_bytes": budget, "memory.swappiness": 0}),
    ):
        if not (root / "cgroup.procs").exists():
            continue
        group = root / name
        group.mkdir()
        try:
            for file, value in limits.items():
                if "swap" not in file or (group / file).exists():
                    with open(group / file, "r+") as setting:  # a controller's file, never a new one
                        setting.write(str(value))
        except OSError:
            group.rmdir()
            raise
        return group
    raise OSError("no hierarchy of cgroups is mounted")


def inside_cgroup(exe, data, steps, budget):
    """A run inside a memory cgroup of the budget's size, without swap; skipped where none can be made."""
    try:
        group = new_cgroup(budget)
    except OSError as error:
        print("skipped: a memory cgroup cannot be made here: %s" % error)
        return
    try:
        enter = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(group)]
        text, _, code = watched_run(exe, data, ["--steps", str(steps)], enter)
        verdicts.expect(code == 0, "inside a cgroup of %d bytes: exit %d: %s" % (budget, code, text[-500:]))
    finally:
        time.sleep(0.1)
        group.rmdir()


def outgrown():
    """A binary larger than the planner guessed (here: by the length of names) is planned anew with what it takes."""
    names = ["fc%d" % i + "x" * 380 for i in range(60)]
    lines = ["  use %s = linear[I]" % name for name in names] + ["  h0 = x"]
    lines += ["  h%d = %s(h%d)" % (i + 1, name, i) for i, name in enumerate(names)]
    program = programs.source(
        "outgrown",
        """dim B = 16 batch, I = 8
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below I)
model net(x: f32[B, I]) -> f32[B, I] {
%s
  return h%d
}
train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 3
}
"""
        % ("\n".join(lines), len(names)),
    )
    data = programs.FOLDER / "outgrown-data"
    data.mkdir()
    np.save(data / "x.npy", np.ones((32, 8), np.float32))
    np.save(data / "y.npy", np.arange(32, dtype=np.int32) % 4)
    guessed = json.loads(programs.call([programs.CINCH, "plan", program, "--json"]).stdout)["memory"]
    free = programs.compiled(program, "outgrown-free")
    text, _, _ = watched_run(free, data, [])
    granted = sum(map(int, re.search(r"arena (\d+), allowance (\d+)", text).groups()))
    verdicts.expect(guessed < granted, "%d bytes were guessed and %d granted: nothing is tested" % (guessed, granted))
    check(free, data, 3, None)
    verdicts.expect(
        isinstance(programs.compiled(program, "outgrown", "--memory-budget", kibibytes(guessed), allowed=(0, 1)),
                   subprocess.CompletedProcess) and not (programs.FOLDER / "outgrown").exists(),
        "an executable that outgrew its budget stays",
    )
    check(programs.compiled(program, "outgrown", "--memory-budget", kibibytes(granted)), data, 3, granted)


def long_code():
    """A net of convolutions, no two alike: its code is long, and is guessed well enough that the budget a refusal names compiles."""
    program = programs.HERE.parent.parent / "bench/models/resnet18.cinch"
    flags = ["-D", "B=32", "-D", "S=32", "-D", "C=10", "-D", "F=64", "--max-threads", "2"]
    least = smallest_budget(program, flags)
    done = programs.compiled(program, "resnet18", *flags, "--memory-budget", kibibytes(least), allowed=(0, 1))
    verdicts.expect(isinstance(done, pathlib.Path), "the smallest budget that was named, %d bytes, does not compile" % least)


def what_is_not_needed():
    """What the code of a U-Net needs less than was guessed, its plan has instead; and what a run collects for its flags is within the budget."""
    program = programs.HERE.parent.parent / "bench/models/unet.cinch"
    flags = ["--max-threads", "2"]
    guessed = json.loads(programs.call([programs.CINCH, "plan", program, "--json", *flags]).stdout)["allowance"]
    least = smallest_budget(program, flags)
    data = programs.FOLDER / "unet-data"
    data.mkdir()
    draw = np.random.default_rng(1)
    np.save(data / "x.npy", draw.random((32, 3, 64, 64), dtype=np.float32))
    np.save(data / "y.npy", draw.integers(0, 4, (32, 64, 64)).astype(np.int32))
    for budget in (least, least + (least >> 3)):
        exe = programs.compiled(program, "unet%d" % budget, *flags, "--memory-budget", str(budget))
        for words in ([], ["--profile", "--kernel-times", str(data / "times"), "--log", "csv,jsonl,tensorboard,html"]):
            text, seen, code = watched_run(exe, data, ["--steps", "4", *words])
            match = re.search(r"peak memory (\d+) bytes.*arena (\d+), allowance (\d+)", text)
            peak, arena, allowance = map(int, match.groups()) if match else (0, 0, 0)
            label = "%d bytes for a U-Net %s" % (budget, " ".join(words))
            verdicts.expect(code == 0 and 0 < max(peak, seen) <= budget and arena + allowance <= budget, "%s: %s" % (label, text[-400:]))
            verdicts.expect(allowance < guessed, "%s: %d bytes are allowed beside the arena, as many as were guessed" % (label, allowance))
            print("%s: peak %d, beside the arena %d of %d allowed, %d guessed" % (label, peak, peak - arena, allowance, guessed))


EVALUATED = """dim B = 6 batch, I = 242
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: f32[B])
model net(x: f32[B, I]) -> f32[B] {
  use a = linear[127], b = linear[128], c = linear[1]
  return c(tanh(b(a(x))))[.., 0]
}
train net on train seed 1 {
  loss = mean[B] (net(x) - y) ^ 2
  optimizer sgd(lr = 0.05)
  steps 5
}
"""


def evaluation_alone():
    """Products of one example take more scratch than those of several: evaluation and prediction take the micro-batch that needs least, so that no
    micro-batch of training compiles in fewer bytes than are named without one."""
    program, flags = programs.source("evaluated", EVALUATED), ["--max-threads", "8"]
    least = smallest_budget(program, flags)
    for microbatch in (1, 2, 3, 6):
        fixed = smallest_budget(program, [*flags, "--microbatch", str(microbatch)])
        verdicts.expect(fixed >= least, "micro-batch %d compiles in %d bytes, and %d are named without" % (microbatch, fixed, least))
    done = programs.compiled(program, "evaluated", *flags, "--memory-budget", str(least), allowed=(0, 1))
    verdicts.expect(isinstance(done, pathlib.Path), "evaluation: the smallest budget that was named, %d bytes, does not compile" % least)


PADDED = """dim B = 8 batch
dim T = 9, D = %(width)d, V = %(words)d
data data = tokens("t.bin", u16, window = T + 1) -> (s: i32[B, T + 1] below V)
model net(x: i32[B, T] below V) -> f32[B, T, V] {
  use e = embedding[V, D], bl = repeat %(blocks)d transformer_block[4, D](rate = 0.5), o = linear[V]
  return o(bl(dropout(e(x), 0.5), x != 0))
}
train net on data seed 2068 {
  logits = net(s[:, 0:T])
  loss = mean[B, T] cross_entropy(logits, s[:, 1:T + 1], smooth = 0.1)
  predict best = argmax(logits)
  metric acc = mean[B, T] (argmax(logits) == s[:, 1:T + 1])
  optimizer radam(lr = 0.01)
  ema 0.9
  delay 1
  grain 8
  steps 5
  every 2 eval(data)
  every 3 checkpoint("run", keep = 3)
  every 1 log(csv)
}
"""


def longer_than_guessed():
    """Where the code of the smallest plan is longer than it was guessed, a larger plan with shorter code may need less: what is named compiles, `plan` says
    so, and less is refused by both."""
    for width, words, blocks, threads in ((8, 32, 1, 1), (32, 64, 1, 2), (8, 32, 2, 8), (16, 48, 3, 1)):
        program = programs.source("padded", PADDED % {"width": width, "words": words, "blocks": blocks})
        flags = ["--max-threads", str(threads)]
        least = smallest_budget(program, flags)
        for less, wanted in ((0, 0), (1, 1), (9000, 1), (1 << 16, 1), (130000, 1), (1 << 17, 1), (-1, 0), (-5000, 0), (-(1 << 16), 0), (-(1 << 17), 0)):
            budget = str(least - less)
            done = programs.call([programs.CINCH, program, "-o", programs.FOLDER / "padded", *flags, "--memory-budget", budget], allowed=(0, 1))
            plan = programs.call([programs.CINCH, "plan", program, *flags, "--memory-budget", budget], allowed=(0, 1))
            verdicts.expect(done.returncode == plan.returncode == wanted, "padded %d: of %d bytes %s: compiling ends with %d, plan with %d" % (width, least, budget, done.returncode, plan.returncode))
            verdicts.expect(wanted == 0 or done.stdout.count("compiles: %d bytes" % least) == 1, "padded: another budget is named: " + done.stdout[:300])


WIDE = """dim B = 2 batch, D = %(columns)d
data train = csv("t.csv", hold_out = 0.2) -> (x: f32[B, D] from (%(names)s) normalize, y: f32[B] from "y")
data valid = csv("t.csv", hold_out = 0.2, held = true) -> (x: f32[B, D] from (%(names)s) normalize, y: f32[B] from "y")
model net(x: f32[B, D]) -> f32[B] {
  param w: f32[D] ~ zeros
  h[b] = sum[d] x[b, d] * w[d]
  return h
}
train net on train seed 1 {
  loss = mean[B] (net(x) - y) ^ 2
  optimizer sgd(lr = 1e-6)
  steps 4
  every 2 eval(valid)
  every 2 checkpoint("run", keep = 1)
}
"""


def wide_table():
    """What the host holds of each column of a table is in the plan."""
    columns = 30000
    names = ["c%d" % column for column in range(columns)]
    folder = programs.FOLDER / "wide"
    folder.mkdir()
    rows = [",".join([str((7 * row + column) % 13) for column in range(columns)] + [str(row % 2)]) for row in range(20)]
    (folder / "t.csv").write_text("\n".join([",".join(names + ["y"]), *rows]) + "\n")
    program = programs.source("wide", WIDE % {"columns": columns, "names": ", ".join('"%s"' % name for name in names)})
    least = smallest_budget(program, [])
    check(programs.compiled(program, "wide-exe", "--memory-budget", str(least)), folder, 4, least)


MANY = """dim B = 24 batch, I = 6, H = 20, C = 6
data train = npz("p.npz") -> (x: f32[B, I], k: i32[B] below C)
layer block[H?](x: f32[.., H], rate = 0.1) -> f32[.., H] {
  use norm = layer_norm, fc = linear[H]
  return x + dropout(gelu(fc(norm(x))), rate)
}
model m(x: f32[B, I]) -> f32[B, C] {
  use up = linear[H], bn = batch_norm(group = %(group)d), blocks = repeat 3 block(rate = 0.2), out = linear[C]
  return out(blocks(bn(up(x))))
}
train m on train seed 3 {
  logits = m(x)
  loss = mean[B] cross_entropy(logits, k) + 1e-3 * sum[C, H] weight("out.weight") ^ 2
  predict share = softmax(logits)
  optimizer adamw(lr = 3e-3, decay = 0.01)
  clip norm(1.0)
  ema 0.9
  steps 60
}
"""


def many_replicas():
    """Replicas in the middle are alike, but messages wait at some of them only: the budget that a refusal names has room for these, too."""
    for group, replicas in ((4, 6), (2, 6), (2, 12)):
        program = programs.source("many%d" % replicas, MANY % {"group": group})
        flags = ["--stages", "3", "--replicas", str(replicas)]
        least = smallest_budget(program, flags)
        done = programs.compiled(program, "many%d-exe" % replicas, *flags, "--memory-budget", str(least), allowed=(0, 1))
        verdicts.expect(isinstance(done, pathlib.Path), "%d replicas: the smallest budget that was named, %d bytes, does not compile" % (replicas, least))


SEVERAL = """dim B = 15 batch, I = 6, D = 5
data train = npy("x.npy", "t.npy") -> (x: f32[B, I], t: f32[B, I])
model m(x: f32[B, I]) -> (f32[B, D], f32[B]) {
  use a = linear[12], b = linear[12], c = linear[D], k = linear[1]
  h = tanh(b(dropout(tanh(a(x)), 0.2)))
  return c(h), k(h)[.., 0]
}
train m on train seed 1 {
  p, u = m(x)
  q, v = m(t)
  mu = mean[B] u
  z = (u - mu) / sqrt(mean[B] (u - mu) ^ 2 + 0.01)
  loss = mean[B] (z - v) ^ 2 + mean[B, D] (p - q) ^ 2
  optimizer adam(lr = 0.01)
  steps 6
}
"""


def code_of_many():
    """The code of many workers is longer than is guessed before there is any: it is measured before a budget is named."""
    program = programs.source("several", SEVERAL)
    for flags in (["--stages", "3", "--replicas", "5"], ["--stages", "2", "--replicas", "5"]):
        least = smallest_budget(program, flags)
        done = programs.compiled(program, "several-exe", *flags, "--memory-budget", str(least), allowed=(0, 1))
        verdicts.expect(isinstance(done, pathlib.Path), "%s: the smallest budget that was named, %d bytes, does not compile" % (" ".join(flags), least))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(programs.HERE / "gpt.cinch"))
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--flags", default="", help="further flags of the compiler, blank-separated")
    options = parser.parse_args()
    data, flags = options.data, options.flags.split()
    if not data:
        data = programs.FOLDER / "data"
        data.mkdir()
        (data / "train.txt").write_bytes(programs.byte_text(32 * 61 + 1))
    free = programs.compiled(options.program, "free", *flags)
    text, _, _ = watched_run(free, data, ["--steps", str(options.steps)])
    most = int(re.search(r"peak memory (\d+) bytes", text).group(1))
    least = smallest_budget(options.program, flags)
    check_notations(options.program, flags, least)
    below = programs.compiled(
        options.program, "below", "--memory-budget", kibibytes(least - 1024), *flags, allowed=(0, 1)
    )
    verdicts.expect(not isinstance(below, pathlib.Path), "a budget below the smallest one compiles")
    check(free, data, options.steps, None)
    for i in range(BUDGETS):
        budget = least + (max(most, least) * 11 // 10 - least) * i // (BUDGETS - 1)
        exe = programs.compiled(options.program, "budget%d" % i, "--memory-budget", kibibytes(budget), *flags)
        check(exe, data, options.steps, budget)
        if i == 1:
            inside_cgroup(exe, data, options.steps, budget)
    outgrown()
    what_is_not_needed()
    evaluation_alone()
    longer_than_guessed()
    wide_table()
    many_replicas()
    code_of_many()
    long_code()


def kibibytes(count):
    return "%.10fKiB" % (count / 1024)


verdicts.run(main)
