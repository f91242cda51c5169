#!/usr/bin/env python3
"""bound: how far the plans of the examples are from what is proven to be impossible, at eight budgets each (--points).

    bench/bound.py [--quick] [--model NAME] [--points N] [--cpu NAME]

Budgets lie evenly between the smallest that compiles and what is needed if everything is kept; the micro-batch and the blocks of
rows are the planner's, or given (the whole batch, where recomputation matters most). The bound holds for the micro-batch and
the blocks of rows of the plan (`cinch plan --bound`): whatever the order, and whatever is computed again. Scratch, and with it budgets and plans, differ from CPU to CPU: --cpu names one, as
`cinch --cpu` does; without it they are this machine's. The last column is processor time of the whole command, planning included.
"""
import argparse
import pathlib
import resource
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

ROOT = programs.BENCH.parent


def processor_seconds():
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two budgets of the small example")
    parser.add_argument("--model", action="append", help="only this example (its folder's name); may be given several times")
    parser.add_argument("--points", type=int, default=8, help="budgets of each example (8)")
    parser.add_argument("--cpu", help="plans for this CPU instead of this machine's")
    args = parser.parse_args()
    # Of the others' whole batches the planner's own choice is near enough: gpt is where recomputation matters most.
    fixed = {"gpt": "32"}
    sources = {path.parent.name: path for path in sorted((ROOT / "examples").glob("*/*.cinch"))}
    names, points = (["mlp"], 2) if args.quick else (args.model or list(sources), args.points)
    print(f"{'':22}{'budget MiB':>11}{'micro-batch':>12}{'plan s':>10}{'proven s':>10}{'above':>9}{'without':>10}{'took s':>8}")
    results = []
    for name, setting in ((name, setting) for name in names for setting in ("chosen", "given")):
        if setting == "given" and name not in fixed:
            continue
        source, options = sources[name], ["--profile", "none", "--max-threads", "4", "--no-plan-cache"]
        options += ["--cpu", args.cpu] if args.cpu else []
        if setting == "given":
            options += ["--microbatch", fixed[name], "--row-blocks", "none"]
        low = programs.smallest_budget(source, *options)
        high = programs.plan(source, *options, "--remat", "none", "--memory-budget", "1024GiB")["memory"]
        gaps = []
        for i in range(points):
            budget = low + (high - low) * i // max(1, points - 1)
            limit = ["--memory-budget", f"{budget / 1024:.10f}KiB"]
            begin = processor_seconds()
            found = programs.plan(source, *options, *limit, "--bound")
            taken = processor_seconds() - begin
            gaps.append(found["seconds"] / found["fixed_seconds_bound"] - 1)
            plain = found["seconds"] / (found["seconds"] - found["recompute_seconds"]) - 1
            print(f"{name + ', ' + setting:22}{budget / 2**20:11.2f}{found['microbatch']:12}{found['seconds']:10.5f}{found['fixed_seconds_bound']:10.5f}"
                  f"{100 * gaps[-1]:7.2f} %{100 * plain:8.2f} %{taken:8.1f}", flush=True)
        results += [(f"bound.{name}.{setting}.within_5_percent", sum(gap <= 0.05 for gap in gaps)),
                    (f"bound.{name}.{setting}.worst", max(gaps))]
    for name, value in results:
        programs.result(name, value)


programs.main(body)
