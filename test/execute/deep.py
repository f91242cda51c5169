#!/usr/bin/python3
"""Deep programs: what is generated for them does not grow with the depth, and what is written for many operands computes what is
written for few of them does.

Of N equal layers every kernel's code exists once, calls of the runtime stand in the code as often as for few layers, the compiler
links once, the description stays within so many bytes a launch, and the compiler within a goal for all of them. Layers of many widths are planned in
little more time than of one. Programs of a thousand layers, operands or parameters compile (bench/run compile says how fast), and a batch that is a large prime as well.
"""
import json
import os
import re
import subprocess
import sys

import numpy as np

import programs

ROOT = programs.HERE.parent.parent
DEEP = {
    "plain layers": ("bench/models/plain.cinch", (8, 40), 1000),
    "transformer blocks": ("bench/models/blocks.cinch", (3, 9), 60),
}
# Layers, and bytes that the compiler may take at its peak for them when it generates all code: 122 and 168 MB were seen.
WITHIN = {"plain layers": (1000, 140e6), "transformer blocks": (200, 200e6)}
HEAD = """dim B = 12 batch, W = 5, C = 3
data train = npy("x.npy", "y.npy") -> (x: f32[B, W], y: i32[B] below C)
"""
TAIL = """train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(1.0)
  steps 5
}
"""
OPERANDS = 75  # three groups, the last one smaller
verdicts = programs.Verdicts()


def description(exe):
    """What the binary is told of its program."""
    data = exe.read_bytes()
    begin = data.index(b'{"program":')
    return json.loads(data[begin:data.index(b"\0", begin)])


def module(path, depth):
    done = programs.call([programs.CINCH, ROOT / path, "-D", "N=%d" % depth, "--emit", "llvm", "-o", "/dev/stdout", "--microbatch", "8"])
    return done.stdout


def code_does_not_grow(name):
    path, depths, _ = DEEP[name]
    few, many = (module(path, depth) for depth in depths)
    for what in ("llvm.func @kernel_", "llvm.func ", "llvm.call @cinch_launch", "llvm.call @cinch_zero", "llvm.call @launch_rows"):
        verdicts.expect(few.count(what) == many.count(what) > 0,
                        "%s: `%s` %d times at depth %d, %d times at %d" % (name, what, few.count(what), depths[0], many.count(what), depths[1]))
    rows = [int(re.search(r"@launches\(dense<.*> : tensor<(\d+)xi32>", text).group(1)) // 4 for text in (few, many)]
    verdicts.expect(rows[0] < rows[1], "%s: rows of the table of launches: %d and %d" % (name, *rows))


def compiles(name):
    path, _, depth = DEEP[name]
    exe = programs.compiled(ROOT / path, name.replace(" ", "-"), "-D", "N=%d" % depth, "--microbatch", "8")
    told = description(exe)
    verdicts.expect(len(told["launches"]) > 5 * depth, "%s: %d launches" % (name, len(told["launches"])))
    kernels = {launch["kernel"] for launch in told["launches"]}
    verdicts.expect(len(kernels) < 150, "%s: %d kernels" % (name, len(kernels)))
    per_launch = len(json.dumps(told["launches"], separators=(",", ":"))) / len(told["launches"])
    verdicts.expect(per_launch < 250, "%s: %d bytes a launch" % (name, per_launch))
    verdicts.expect(exe.stat().st_size < told["allowance"], "%s: %d bytes, %d are allowed" % (name, exe.stat().st_size, told["allowance"]))


def takes_little(name):
    path, (depth, most) = DEEP[name][0], WITHIN[name]
    process = subprocess.Popen([programs.CINCH, ROOT / path, "-D", "N=%d" % depth, "-o", programs.FOLDER / "deep", "--no-plan-cache",
                                "--no-kernel-cache"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    peak = usage.ru_maxrss * 1024
    verdicts.expect(status == 0 and peak <= most, "%d %s: exit %d, the compiler took %.1f MB, %.0f are allowed" %
                    (depth, name, status, peak / 1e6, most / 1e6))


def model(lines):
    return "model net(x: f32[B, W]) -> f32[B, C] {\n  use head = linear[C]\n" + "".join("  %s\n" % line for line in lines) + "}\n" + TAIL


def joined(parts):
    return "concat(%s, axis = -1)" % ", ".join(parts)


def concat(data):
    """Of many operands, and the same in groups: the same bits."""
    parts = ["x * %d" % (i + 1) if i % 3 else "sin(x + %d)" % i for i in range(OPERANDS)]
    groups = [joined(parts[begin:begin + 10]) for begin in range(0, OPERANDS, 10)]
    results = []
    for name, text in (("at-once", joined(parts)), ("in-groups", joined(groups))):
        exe = programs.compiled(programs.source("concat-" + name, HEAD + model(["return head(%s)" % text])), "concat-" + name)
        results.append(programs.run(exe, data, 5))
    verdicts.expect(results[0].bytes == results[1].bytes, "a concat of %d operands has the bits of concats of ten" % OPERANDS)
    verdicts.expect(all(np.isfinite(results[0].losses)), "its losses are finite")


def many_parameters(count):
    sums = ["h%d = %s + p%d" % (i + 1, "h%d" % i if i else "x", i) for i in range(count)]
    return HEAD + model(["param p%d: f32[W] ~ normal(0.1)" % i for i in range(count)] + sums + ["return head(h%d)" % count])


def parameters(data):
    """All of them are updated, each with states of its own."""
    exe = programs.compiled(programs.source("parameters", many_parameters(300)), "parameters")
    before, after = programs.run(exe, data, 0), programs.run(exe, data, 1)
    moved = [path for path in before.parameters if not np.array_equal(before.parameters[path], after.parameters[path])]
    verdicts.expect(len(moved) == len(before.parameters) == 302, "%d of %d parameters are updated" % (len(moved), len(before.parameters)))
    told = description(exe)
    verdicts.expect(len(told["slots"]) == 604, "%d slots" % len(told["slots"]))
    ends = sorted((stored["offset"], stored["path"]) for stored in told["parameters"] + told["slots"])
    verdicts.expect(len({offset for offset, _ in ends}) == 906, "each in bytes of its own")


def odd_numbers():
    batch = HEAD.replace("B = 12", "B = 268435399").replace("W = 5", "W = 2") + model(["return head(x)"])
    programs.compiled(programs.source("prime", batch), "prime", "--microbatch", "1")
    many = HEAD + model(["return head(%s)" % joined(["x"] * 1000)])
    programs.compiled(programs.source("operands", many), "operands")
    verdicts.expect(True, "they compile")


def many_widths():
    """Work of 40 different widths may run in blocks of rows, each in one of its own: a plan is found (bench/compile.py says how long it takes)."""
    layers = "".join("  use u%d = linear[%d], d%d = linear[8]\n  h%d = h%d + d%d(tanh(u%d(h%d)))\n" % (i, 16 + 7 * i, i, i + 1, i, i, i, i) for i in range(40))
    program = programs.source("widths", """dim B = 4 batch, T = 4, I = 8
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, I], y: f32[B])
model net(x: f32[B, T, I]) -> f32[B] {
  h0 = tanh(x)
%s  return sum[T, I] h40
}
train net on train seed 3 {
  loss = mean[B] (net(x) - y)^2
  optimizer sgd(lr = 0.02)
  steps 2
}
""" % layers)
    plan = [programs.CINCH, "plan", program, "--max-threads", "2", "--no-plan-cache"]
    whole, blocks = (programs.call([*plan, *more]).stdout for more in (["--row-blocks", "none"], []))
    least = [float(re.search(r"proven lower bound of any budget ([\d.]+) MiB", said).group(1)) for said in (whole, blocks)]
    verdicts.expect(least[1] <= least[0], "of 40 widths blocks of rows need %g MiB at least, the whole %g MiB" % (least[1], least[0]))


# Networks of the literature at their full size: parameters as published, a budget of about a third of what they need when all is kept.
PUBLISHED = {"resnet50": (25557032, "1200MiB"), "vgg16": (138357544, "1700MiB")}


def published(name, compiled):
    parameters, budget = PUBLISHED[name]
    program = ROOT / "bench/models" / (name + ".cinch")
    said = programs.call([programs.CINCH, "plan", program, "--memory-budget", budget, "--max-threads", "2"]).stdout
    kept = re.match(r"memory .* budget ", said)
    verdicts.expect(kept and "micro-batch" in said and "recomputed" in said, "%s: the plan says %s" % (name, said[:300]))
    if compiled:
        told = description(programs.compiled(program, name, "--memory-budget", budget))
        numbers = sum(int(np.prod(stored["shape"])) for stored in told["parameters"] if not stored.get("state"))
        verdicts.expect(numbers == parameters, "%s: %d parameters" % (name, numbers))


def many_names():
    """A file that a program has written: what is looked up for each name does not grow with their number, or these would take hours."""
    model = """model net(x: f32[B, W]) -> f32[B, C] {
  use fc = linear[C]
%s  return fc(x)
}
"""
    count = 64000
    files = {
        "constants": ("".join("const k%d = %d\n" % (i, i) for i in range(count)) + HEAD + model % "" + TAIL, 0),
        "layers": (HEAD + "".join("layer l%d(x: f32[B, W]) -> f32[B, W] { return x }\n" % i for i in range(count)) + model % "" + TAIL, 0),
        "unknown names": (HEAD + model % "".join("  w%d = z%d + x\n" % (i, i) for i in range(count)) + TAIL, 1),
        "sizes in a line": (HEAD.replace("C = 3", "C = 3" + "".join(", a%d = %d" % (i, i + 1) for i in range(count))) + model % "" + TAIL, 0),
    }
    for name, (text, code) in files.items():
        said = programs.call([programs.CINCH, "check", programs.source("many-" + name.split()[0], text)], allowed=(0, 1), timeout=60)
        verdicts.expect(said.returncode == code, "%s: exit %d" % (name, said.returncode))


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    rng = np.random.default_rng(3)
    np.save(data / "x.npy", rng.standard_normal((48, 5)).astype(np.float32))
    np.save(data / "y.npy", rng.integers(0, 3, 48).astype(np.int32))
    for name in DEEP:
        code_does_not_grow(name)
        compiles(name)
        takes_little(name)
    concat(data)
    parameters(data)
    odd_numbers()
    many_widths()
    many_names()
    for name in PUBLISHED:
        published(name, "--long" in sys.argv)


verdicts.run(main)
