#!/usr/bin/env python3
"""compile: compile time and size of the binary for GPT-2's shape of 12, 24 and 48 blocks, and how fast `info` answers.

    bench/compile.py [--quick] [--rounds N]

The search over micro-batches and recomputation is part of it: the budget, 8 GiB for 12 blocks, grows with the blocks. Medians of rounds.
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
    first, last = blocks[0], blocks[-1]
    shape = "tiny" if arguments.quick else "gpt2_124m"
    programs.result(f"compile.{shape}.seconds", seconds[first])
    programs.result(f"binary.{shape}.bytes", size[first])
    programs.result(f"compile.{last}_over_{first}", seconds[last] / seconds[first])
    programs.result("info.milliseconds", info[first])


programs.main(body)
