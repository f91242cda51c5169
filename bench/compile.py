#!/usr/bin/env python3
"""compile: compile time and size of the binary for GPT-2's shape of 12, 24 and 48 blocks, how fast `info` answers, and the
share of planning in the compile time of the examples and of GPT-2's shape under several budgets, and what depth and odd numbers cost:
many layers, many operands, many parameters, many widths, large strides, a prime batch.

    bench/compile.py [--quick] [--rounds N] [--numbers] [--again]

`--again`: what compiling a second time takes, with the kernels of the first time at hand: examples/gpt as it is, with another constant (the rate of its
dropout, another epsilon), and the first time on one processor and on all.

The search over micro-batches and recomputation is part of it: the budget, 8 GiB for 12 blocks, grows with the blocks. Medians of
rounds. Planning is what a compilation takes that stops behind it, less one that stops before it, in seconds of the processor.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

MODEL = programs.BENCH / "models" / "gpt2_124m.cinch"


def info_milliseconds(exe):
    taken = []
    for _ in range(15):
        start = time.perf_counter()
        done = subprocess.run([str(exe), "info"], capture_output=True)
        taken.append(1e3 * (time.perf_counter() - start))
        if done.returncode:
            raise programs.Failed(f"{exe} info: exit {done.returncode}")
    return programs.median(taken)


def processor_seconds(source, exe, *options):
    return programs.compile(source, exe, "--no-plan-cache", *options)[1]


def planning_share(name, source, budget, rounds, exe, *options):
    limit = ["--memory-budget", f"{budget / 1024:.10f}KiB"]
    parts = {"before": ["--stop-after=differentiated"], "planned": ["--stop-after=planned"], "whole": []}
    taken = {part: [] for part in parts}
    for _ in range(rounds):
        for part, more in parts.items():
            taken[part].append(processor_seconds(source, exe, *options, *limit, *more))
    before, planned, whole = (programs.median(taken[part]) for part in parts)
    print(f"{name:28}{budget / 2**20:12.2f}{whole:10.2f}{planned - before:10.2f}{100 * (planned - before) / whole:9.1f} %", flush=True)
    return (planned - before) / whole


def planning_shares(rounds, quick):
    examples = programs.BENCH.parent / "examples"
    asked = {"examples/mlp": (examples / "mlp/mlp.cinch", [])}
    if not quick:
        asked["examples/gpt"] = (examples / "gpt/gpt.cinch", [])
        asked["GPT-2 124M, batch 8"] = (MODEL, [])
    print(f"\n{'planning':28}{'budget MiB':>12}{'compile s':>10}{'plan s':>10}{'share':>11}")
    shares = []
    with tempfile.TemporaryDirectory() as temporary:
        exe = pathlib.Path(temporary) / "train"
        for name, (source, options) in asked.items():
            low = programs.smallest_budget(source, *options)
            high = programs.plan(source, "--memory-budget", "1024GiB", "--remat", "none", *options)["memory"]
            for point in range(4):
                shares.append(planning_share(name, source, low + (high - low) * point // 3, rounds, exe, *options))
    return max(shares)


HEAD = """dim B = 32 batch, W = 64, C = 10
data train = npy("x.npy", "y.npy") -> (x: f32[B, W], y: i32[B] below C)
"""
TAIL = """train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 10
}
"""


def model(lines):
    return "model net(x: f32[B, W]) -> f32[B, C] {\n  use head = linear[C]\n" + "".join(f"  {line}\n" for line in lines) + "}\n" + TAIL


def concatenated(count):
    return HEAD + model([f"return head(concat({', '.join(['x'] * count)}, axis = -1))"])


def written_by_hand(count):
    layers = "".join(f"layer block{i}(x: f32[B, W]) -> f32[B, W] {{\n  use fc = linear[W]\n  return x + tanh(fc(x))\n}}\n"
                     for i in range(count))
    calls = [f"h{i + 1} = b{i}({f'h{i}' if i else 'x'})" for i in range(count)]
    return HEAD + layers + model([*(f"use b{i} = block{i}" for i in range(count)), *calls, f"return head(h{count})"])


def many_parameters(count):
    sums = [f"h{i + 1} = {f'h{i}' if i else 'x'} + p{i}" for i in range(count)]
    return HEAD + model([*(f"param p{i}: f32[W] ~ normal(0.1)" for i in range(count)), *sums, f"return head(h{count})"])


def prime_batch(count):
    return HEAD.replace("B = 32", f"B = {count}").replace("W = 64", "W = 2") + model(["return head(x)"])


def many_widths(count):
    """Each may run in blocks of rows of its own."""
    layers = "".join(f"  use u{i} = linear[{16 + 7 * i}], d{i} = linear[8]\n  h{i + 1} = h{i} + d{i}(tanh(u{i}(h{i})))\n" for i in range(count))
    return f"""dim B = 4 batch, T = 4, I = 8
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, I], y: f32[B])
model net(x: f32[B, T, I]) -> f32[B] {{
  h0 = tanh(x)
{layers}  return sum[T, I] h{count}
}}
train net on train seed 3 {{
  loss = mean[B] (net(x) - y)^2
  optimizer sgd(lr = 0.02)
  steps 2
}}
"""


def large_stride(stride):
    """Patches of an image behind another convolution, whose gradient they give, and a transposed convolution by which they become an image again."""
    return f"""dim B = 4 batch, H = {4 * stride}
data train = npy("x.npy", "y.npy") -> (x: f32[B, 3, H, H], y: f32[B])
model net(x: f32[B, 3, H, H]) -> f32[B] {{
  use a = conv[8, 3], p = conv[32, {stride}, s = {stride}, p = 0]
  param t: f32[32, 3, {stride}, {stride}] ~ normal(0.1)
  y = conv_transpose2d(tanh(p(a(x))), t, stride = {stride})
  r[b] = sum[c, i, j] y[b, c, i, j]
  return r
}}
train net on train seed 3 {{
  loss = mean[B] (net(x) - y)^2
  optimizer sgd(lr = 0.02)
  steps 2
}}
"""


def seconds_and_mebibytes(exe, source, *options):
    """Of the processor and of memory at its peak, that a compilation takes."""
    command = [programs.CINCH, str(source), "-o", str(exe), "--no-plan-cache", "--profile", "none", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise programs.Failed(f"{' '.join(command)}: exit {status}\n{said.decode()[:2000]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def odd_numbers(quick):
    """Of depth and numbers nobody expects: the name of each figure and the figure."""
    folder = programs.BENCH / "models"
    small = {"layers.8": (folder / "plain.cinch", ["-D", "N=8"]), "blocks.2": (folder / "blocks.cinch", ["-D", "N=2"]),
             "concat.40": (concatenated(40), []), "by_hand.5": (written_by_hand(5), []),
             "parameters.30": (many_parameters(30), []), "widths.5": (many_widths(5), []), "stride.5": (large_stride(5), []), "prime_batch": (prime_batch(7919), [])}
    large = {**{f"layers.{n}": (folder / "plain.cinch", ["-D", f"N={n}"]) for n in (50, 400, 1000)},
             **{f"blocks.{n}": (folder / "blocks.cinch", ["-D", f"N={n}"]) for n in (12, 48, 100, 200)},
             "concat.1000": (concatenated(1000), []), "by_hand.500": (written_by_hand(500), []),
             "parameters.3000": (many_parameters(3000), []), "widths.40": (many_widths(40), []),
             "widths.40.no_blocks": (many_widths(40), ["--row-blocks", "none"]), "stride.4": (large_stride(4), []), "stride.16": (large_stride(16), []),
             "stride.32": (large_stride(32), []), "prime_batch": (prime_batch(268435399), [])}
    print(f"\n{'':18}{'processor s':>12}{'peak MiB':>10}")
    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, (program, options) in (small if quick else large).items():
            source = program
            if isinstance(program, str):
                source = pathlib.Path(temporary) / "net.cinch"
                source.write_text(program)
            seconds, mebibytes = seconds_and_mebibytes(pathlib.Path(temporary) / "train", source, *options)
            print(f"{name:18}{seconds:12.2f}{mebibytes:10.0f}", flush=True)
            figures[f"compile.{name}.seconds"], figures[f"compile.{name}.mebibytes"] = seconds, mebibytes
    return figures


def again(rounds, quick):
    """Seconds by the clock, and of the processor: the first compilation with empty caches, then the same, then with a changed constant."""
    source = programs.BENCH.parent / "examples/gpt/gpt.cinch"
    narrow = ["-D", "D=32", "-D", "T=16", "-D", "N=1", "-D", "B=4"] if quick else []
    ways = {"first_on_one_processor": ["taskset", "-c", "0"], "first": [], "again": [], "changed_constant": []}
    taken = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(rounds):
            for way, prefix in ways.items():
                cache = "one" if way == "first_on_one_processor" else "all"
                changed = ["-D", f"rate=0.{2 + number}"] if way == "changed_constant" else []
                command = [*prefix, programs.CINCH, str(source), "-o", f"{temporary}/train", *narrow, *changed]
                start = time.perf_counter()
                process = subprocess.Popen(command, env=dict(os.environ, XDG_CACHE_HOME=f"{temporary}/{cache}{number}"),
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                said = process.stderr.read()
                _, status, usage = os.wait4(process.pid, 0)
                if status:
                    raise programs.Failed(f"{' '.join(command)}: exit {status}\n{said.decode()[:2000]}")
                taken[way].append((time.perf_counter() - start, usage.ru_utime + usage.ru_stime))
    print(f"{'examples/gpt':26}{'seconds':>10}{'of processor':>14}")
    figures = {}
    for way in ways:
        wall, work = (programs.median([pair[side] for pair in taken[way]]) for side in (0, 1))
        print(f"{way.replace('_', ' '):26}{wall:10.2f}{work:14.2f}", flush=True)
        figures[f"compile.gpt.{way}.seconds"] = wall
    figures["compile.gpt.first_over_one_processor"] = figures["compile.gpt.first.seconds"] / figures["compile.gpt.first_on_one_processor.seconds"]
    return figures


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one block and four, narrow, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--numbers", action="store_true", help="only what depth and odd numbers cost")
    parser.add_argument("--again", action="store_true", help="only what compiling again takes")
    arguments = parser.parse_args()
    if arguments.again:
        for name, figure in again(arguments.rounds, arguments.quick).items():
            programs.result(name, figure)
        return
    if arguments.numbers:
        for name, figure in odd_numbers(arguments.quick).items():
            programs.result(name, figure)
        return
    if arguments.quick:
        blocks, per_block, narrow, rounds = [1, 4], 64, ["-D", "D=64", "-D", "A=2", "-D", "T=32", "-D", "V=500", "-D", "B=4"], 1
    else:
        blocks, per_block, narrow, rounds = [12, 24, 48], 8192 / 12, [], arguments.rounds
    print(f"GPT-2's shape; {programs.machine_line()}")
    print(f"{'blocks':>6}{'seconds':>10}{'of processor':>14}{'binary bytes':>14}{'info ms':>9}")
    seconds, size, info = {}, {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        taken = {count: [] for count in blocks}
        for _ in range(rounds):
            for count in blocks:
                exe = pathlib.Path(temporary) / f"train{count}"
                taken[count].append(programs.compile(MODEL, exe, "-D", f"N={count}", *narrow, "--memory-budget",
                                                     f"{count * per_block:.0f}MiB"))
        for count in blocks:
            exe = pathlib.Path(temporary) / f"train{count}"
            seconds[count] = programs.median([wall for wall, _ in taken[count]])
            work = programs.median([work for _, work in taken[count]])
            size[count], info[count] = exe.stat().st_size, info_milliseconds(exe)
            print(f"{count:6}{seconds[count]:10.2f}{work:14.2f}{size[count]:14}{info[count]:9.2f}", flush=True)
    worst = planning_shares(rounds, arguments.quick)
    odd = {**odd_numbers(arguments.quick), **again(rounds, arguments.quick)}
    first, last = blocks[0], blocks[-1]
    shape = "tiny" if arguments.quick else "gpt2_124m"
    programs.result(f"compile.{shape}.seconds", seconds[first])
    programs.result(f"binary.{shape}.bytes", size[first])
    programs.result(f"compile.{last}_over_{first}", seconds[last] / seconds[first])
    programs.result("info.milliseconds", info[first])
    programs.result("compile.planning_share_worst", worst)
    for name, figure in odd.items():
        programs.result(name, figure)


programs.main(body)
