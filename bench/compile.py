#!/usr/bin/env python3
"""compile: compile time and size of the binary for GPT-2's shape of 12, 24 and 48 blocks, how fast `info` answers, and the
share of planning in the compile time of the examples and of GPT-2's shape under several budgets.

    bench/compile.py [--quick] [--rounds N]

The search over micro-batches and recomputation is part of it: the budget, 8 GiB for 12 blocks, grows with the blocks. Medians of
rounds. Planning is what a compilation takes that stops behind it, less one that stops before it, in seconds of the processor.
"""
import argparse
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


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one block and four, narrow, one round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
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
    first, last = blocks[0], blocks[-1]
    shape = "tiny" if arguments.quick else "gpt2_124m"
    programs.result(f"compile.{shape}.seconds", seconds[first])
    programs.result(f"binary.{shape}.bytes", size[first])
    programs.result(f"compile.{last}_over_{first}", seconds[last] / seconds[first])
    programs.result("info.milliseconds", info[first])
    programs.result("compile.planning_share_worst", worst)


programs.main(body)
