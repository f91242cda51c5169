#!/usr/bin/env python3
"""busy: small programs on one thread and on all of them, alone and beside processes that want every processor.

    bench/busy.py [--quick] [--old CINCH] [--rounds N] [--under COMMAND]

Each program is compiled at its smallest budget: one example at a time, so that thousands of kernels of less than a microsecond make a step. `--old` is
another build of the compiler, whose programs take turns with ours. Seconds a step are medians over the rounds; `alone` is under COMMAND (`chrt -f 10`,
say). `busy.NAME.threads` is what all threads take beside what one thread does, and `.beside` the same while others want the processors.
"""
import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

MODELS = {
    "lstm": ("lstm.cinch", ["-D", "H=24", "-D", "B=32", "-D", "T=32"]),
    "gpt": ("gpt.cinch", ["-D", "N=2", "-D", "D=32", "-D", "A=2", "-D", "T=16", "-D", "B=32"]),
}


def seconds_of(exe, folder, threads, steps, under):
    """Of a step: the whole run, less what a run of one step takes."""
    took = []
    for count in (1, 1 + steps):
        command = [*under, exe, "--data", folder, "--out", folder / "out", "--steps", count, "--threads", threads, "--quiet", "--log", "none"]
        begin = time.perf_counter()
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        took.append(time.perf_counter() - begin)
        if done.returncode:
            raise programs.Failed(f"{exe}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return max(took[1] - took[0], 1e-9) / steps


def measured(exes, folder, threads, arguments, under):
    times = {(name, count): [] for name in exes for count in (1, threads)}
    for _ in range(arguments.rounds):
        for name, count in times:
            times[name, count].append(seconds_of(exes[name], folder, count, arguments.steps, under))
    return {key: programs.median(values) for key, values in times.items()}


def try_model(model, folder, arguments, threads):
    source, flags = programs.BENCH / "models" / MODELS[model][0], [*MODELS[model][1], "--max-threads", str(threads), "--set", "train.steps=100000"]
    budget = programs.smallest_budget(source, *flags)
    exes = {}
    for name, compiler in (("new", programs.CINCH), ("old", arguments.old)):
        if compiler:
            exes[name] = folder / f"{model}-{name}"
            done = subprocess.run([compiler, str(source), "-o", str(exes[name]), *flags, "--memory-budget", str(budget * 21 // 20)], capture_output=True, text=True)
            if done.returncode:
                raise programs.Failed(f"{compiler} {source}: exit {done.returncode}\n{done.stderr[:2000]}")
    alone = measured(exes, folder, threads, arguments, shlex.split(arguments.under))
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(threads)]
    try:
        beside = measured(exes, folder, threads, arguments, [])
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    for name in exes:
        print(f"{model:6} {name:4} alone: one thread {alone[name, 1] * 1e3:9.2f} ms, {threads} threads {alone[name, threads] * 1e3:9.2f} ms;   "
              f"beside {threads} others: {beside[name, 1] * 1e3:9.2f} ms, {beside[name, threads] * 1e3:9.2f} ms")
        end = "" if name == "new" else ".old"
        programs.result(f"busy.{model}.threads{end}", alone[name, threads] / alone[name, 1])
        programs.result(f"busy.{model}.beside{end}", beside[name, threads] / beside[name, 1])


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--old", help="another build of the compiler")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--under", default="", help="a command before the programs that run alone")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.steps = 1, 2
    threads = len(os.sched_getaffinity(0))
    print(f"seconds a step at the smallest budget and 5 % more; {programs.processor()}, {programs.machine_line()}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data.text(folder)
        (folder / "text.txt").write_bytes((folder / "train.txt").read_bytes())
        for model in MODELS:
            try_model(model, folder, arguments, threads)


programs.main(body)
