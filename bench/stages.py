#!/usr/bin/env python3
"""stages: how good `cinch solve stages` is on transformers of 24 and 48 blocks, on 4 and 8 workers.   bench/stages.py [--quick]

A block keeps everything, all but attention's inside, or its input alone (bytes as in Korthikanti et al. 2022, with 5 a s / h = 40); an
embedding and a loss with the vocabulary stand at the ends. Budgets a quarter, half and three quarters of the way from the smallest that any split
needs to what keeping everything needs. Makespans beside the proven bound, and beside the best split in which all blocks do the same.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

WAYS = [{"seconds": 0, "held": 74}, {"seconds": 0.25, "held": 34, "work": 40}, {"seconds": 1, "held": 2, "work": 74}]


def model(blocks, ways):
    block = {"forward": 1, "input": 1, "weight": 1, "fixed": 400, "late": 18, "output": 2, "ways": ways}
    ends = {"forward": 0.2, "input": 0.2, "weight": 0.2, "fixed": 800, "output": 2, "ways": [{"held": 4}]}
    loss = {"forward": 1.5, "input": 1.5, "weight": 1.5, "fixed": 800, "late": 10, "ways": [{"held": 20, "work": 30}]}
    return {"latency": 0.005, "bandwidth": 100, "segments": [ends] + [block] * blocks + [loss]}


def solve(problem, schedule, workers, microbatches, *flags):
    """(answer, seconds); the answer's makespan is None if nothing fits."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(problem, file)
        file.flush()
        chunks = "2" if schedule in ("zbv", "interleaved") else "1"
        begin = time.monotonic()
        done = subprocess.run([programs.CINCH, "solve", "stages", file.name, "--schedule", schedule, "--stages", str(workers), "--chunks",
                               chunks, "--microbatches", str(microbatches), *flags], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise programs.Failed(f"cinch solve stages: {done.stderr[:2000]}")
    return json.loads(done.stdout), time.monotonic() - begin


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one model of 12 blocks")
    arguments = parser.parse_args()
    cases = [(12, 4)] if arguments.quick else [(24, 4), (24, 8), (48, 4), (48, 8)]
    print(f"micro-batches: four a worker; budgets between the smallest and what keeping everything needs; {programs.machine_line()}")
    print(f"{'blocks':>6} {'workers':>7} {'schedule':>12} {'budget':>8} {'makespan':>9} {'/ bound':>8} {'/ uniform':>9} {'status':>9} "
          f"{'s':>6}")
    of = {"one_chunk": [], "two_chunks": []}
    for blocks, workers in cases:
        for schedule in ("gpipe", "1f1b", "zb-h1", "interleaved", "zbv"):
            size = (schedule, workers, 4 * workers)
            free, _ = solve(model(blocks, WAYS), *size)
            keep = max(worker["bytes"] for worker in solve(model(blocks, WAYS[:1]), *size)[0]["workers"])
            for part in (0.25, 0.5, 0.75):
                budget = str(int(free["least_budget"] + part * (keep - free["least_budget"])))
                answer, seconds = solve(model(blocks, WAYS), *size, "--budget", budget)
                uniform = [solve(model(blocks, [way]), *size, "--budget", budget)[0]["makespan"] for way in WAYS]
                uniform = min((each for each in uniform if each), default=None)
                if answer["makespan"] is None:
                    raise programs.Failed(f"{blocks} blocks, {size}: no split under {budget}, {answer['status']}")
                ratio, gain = answer["makespan"] / answer["bound"], answer["makespan"] / uniform if uniform else float("nan")
                kind = "one_chunk" if schedule in ("gpipe", "1f1b", "zb-h1") else "two_chunks"
                of[kind].append((ratio, gain, seconds, answer["status"] == "optimal"))
                print(f"{blocks:6} {workers:7} {schedule:>12} {budget:>8} {answer['makespan']:9.2f} {ratio:8.3f} {gain:9.3f} "
                      f"{answer['status']:>9} {seconds:6.2f}")
    for kind, list_ in of.items():
        gains = [gain for _, gain, _, _ in list_ if gain == gain]
        programs.result(f"stages.{kind}.proved", sum(proved for *_, proved in list_) / len(list_))
        programs.result(f"stages.{kind}.worst_over_bound", max(ratio for ratio, *_ in list_))
        programs.result(f"stages.{kind}.mean_over_uniform", sum(gains) / len(gains) if gains else 1)
        programs.result(f"stages.{kind}.seconds", max(seconds for _, _, seconds, _ in list_))


programs.main(body)
