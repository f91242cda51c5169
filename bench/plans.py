#!/usr/bin/env python3
"""plans: what plans reach beside those in bench/plans.json, of the planner before steps were trees, priced with the built-in rates of today.

    bench/plans.py [--quick] [--record] [--model NAME]

For the programs of `strategies` and GPT-2's shape: the smallest budget that compiles, and the predicted seconds of a step at eight
budgets from it to the one under which nothing is recomputed. The budgets are those of the record, so that old and new are asked
for the same; below its own smallest budget a compiler has no plan. Costs are the built-in ones of one named CPU and nothing is
run, so the figures are the same on every machine.
"""
import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

ROOT = programs.BENCH.parent
RECORD = programs.BENCH / "plans.json"
CPU, THREADS, POINTS = "skylake-avx512", 4, 8
MODELS = programs.MODELS


def flags_of(options, *more):
    return [*options, "--max-threads", str(THREADS), "--cpu", CPU, "--profile", "none", "--no-plan-cache", *more]


def budgets_of(source, options, least):
    """Denser where less memory is left: eight from the smallest to what keeping everything of the whole batch takes."""
    plain = ["--remat", "none", "--memory-budget", "1024GiB"]
    batch = programs.plan(source, *flags_of(options, *plain))["batch"]
    kept = programs.plan(source, *flags_of(options, *plain, "--microbatch", str(batch)))
    return [least + int((kept["memory"] - least) * (point / (POINTS - 1)) ** 2) for point in range(POINTS)]


def explored(name, known):
    """{"smallest": bytes, "budgets": [..], "seconds": [.. or None]}, at the budgets that are recorded."""
    path, options = MODELS[name]
    source = ROOT / path
    least = programs.smallest_budget(source, *flags_of(options))
    budgets = known["budgets"] if known else budgets_of(source, options, least)
    plans = [programs.plan(source, *flags_of(options, "--memory-budget", str(budget))) for budget in budgets]
    return {"smallest": least, "budgets": budgets, "seconds": [plan and float(plan["seconds"]) for plan in plans]}


def compare(name, old, new, ratios):
    """Prints the rows of a program, collects new / old."""

    def row(label, before, now, form):
        shown = [form(value) if value is not None else "refused" for value in (before, now)]
        ratio = now / before if before is not None and now is not None else None
        print(f"{name:<14}{label:>14}{shown[0]:>14}{shown[1]:>14}" + (f"{ratio:10.4f}" if ratio is not None else ""), flush=True)
        return ratio

    ratios["smallest"].append(row("smallest", old["smallest"], new["smallest"], lambda value: f"{value / 2**20:.3f} MiB"))
    for budget, before, now in zip(new["budgets"], old["seconds"], new["seconds"]):
        ratio = row(f"{budget / 2**20:.2f} MiB", before, now, lambda value: f"{1e3 * value:.4f} ms")
        if ratio is not None:
            ratios["seconds"].append(ratio)
        ratios["refused"] += now is None and before is not None


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two small programs")
    parser.add_argument("--record", action="store_true", help="write bench/plans.json anew")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one")
    arguments = parser.parse_args()
    names = arguments.model or (["small mlp", "small gpt"] if arguments.quick else list(MODELS))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    ratios = {"smallest": [], "seconds": [], "refused": 0}
    print(f"{'program':<14}{'budget':>14}{'old':>14}{'new':>14}{'ratio':>10}")
    for name in names:
        known = None if arguments.record else record.get(name)
        if not arguments.record and not known:
            raise programs.Failed(f"nothing is recorded of {name}: bench/plans.py --record --model '{name}'")
        found = explored(name, known)
        compare(name, known or found, found, ratios)
        if arguments.record:
            record[name] = found
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for kind in ("smallest", "seconds"):
        programs.result(f"plans.{kind}_worst", max(ratios[kind]))
        programs.result(f"plans.{kind}_geomean", math.exp(sum(map(math.log, ratios[kind])) / len(ratios[kind])))
    programs.result("plans.refused", ratios["refused"])  # budgets that had a plan and have none


programs.main(body)
