#!/usr/bin/env python3
"""packing: bytes of the arena beside the bytes that are alive at the plan's worst moment.   bench/packing.py [--quick] [--model NAME]

Planned, not run: every example and every model of the benchmarks at budgets from the smallest that compiles to where nothing limits
the plan. No placement needs less than what is alive at one moment; what is more is lost to holes between buffers.
"""
import argparse
import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

ROOT = programs.BENCH.parent
MODELS = programs.MODELS


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two small models, three budgets")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one")
    arguments = parser.parse_args()
    names = arguments.model or (["small mlp", "small gpt"] if arguments.quick else list(MODELS))
    points = 3 if arguments.quick else 8
    print(f"bytes of the arena beside those alive at once; {programs.machine_line()}")
    print(f"{'program':<14}{'budget':>14}{'alive':>14}{'arena':>14}{'arena / alive':>15}{'seconds':>9}")
    ratios = []
    for name in names:
        source, options = ROOT / MODELS[name][0], [*MODELS[name][1], "--max-threads", "2"]
        low = programs.smallest_budget(source, *options)
        high = programs.plan(source, *options)["memory"]
        budgets = [low + int((high - low) * (point / (points - 1)) ** 2) for point in range(points - 1)] + [None]
        for budget in budgets:
            limit = ["--memory-budget", f"{budget / 1024:.10f}KiB"] if budget else []
            begin = time.perf_counter()
            found = programs.plan(source, *options, *limit)
            took = time.perf_counter() - begin
            if found is None:
                raise programs.Failed(f"{name}: {budget} bytes are refused, the smallest is {low}")
            ratios.append(found["arena"] / found["peak_live"])
            print(f"{name:<14}{budget or 'none':>14}{found['peak_live']:14}{found['arena']:14}{ratios[-1]:15.5f}{took:9.2f}", flush=True)
    programs.result("packing.above_1005", sum(ratio > 1.005 for ratio in ratios))
    programs.result("packing.worst", f"{max(ratios):.5f}")
    programs.result("packing.geomean", f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.5f}")


programs.main(body)
