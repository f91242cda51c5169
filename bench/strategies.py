#!/usr/bin/env python3
"""strategies: `auto` beside every named strategy, and beside deciding one thing after the other, at 8 budgets.

    bench/strategies.py [--quick] [--rounds N] [--model NAME] [--profile FILE]

Budgets go from the smallest that compiles to the one under which nothing needs to be recomputed. Each strategy may choose its
micro-batch. "Micro-batch first": the largest with which the step fits without recomputation (the smallest there is if none does), then
the best recomputation for that one. "Recomputation first": the best for the whole batch, or if that does not fit the named strategy that
needs least, then the micro-batch. Where `auto` has another plan than its best rival, the programs of both are run, in pairs that take
turns. Costs are the built-in ones, or those of a profile that `cinch calibrate` wrote.
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

ROOT = programs.BENCH.parent
THREADS = 2
NAMED = ["none", "all", "sqrt", "every:2", "marked", "cheap"]
MODELS = {
    "examples/mlp": (ROOT / "examples/mlp/mlp.cinch", []),
    "examples/gpt": (ROOT / "examples/gpt/gpt.cinch", []),
    "small mlp": (ROOT / "test/execute/mlp.cinch", []),
    "small gpt": (ROOT / "test/execute/gpt.cinch", []),
    "chain": (programs.BENCH / "models/chain.cinch", ["-D", "N=32"]),
    "deep": (programs.BENCH / "models/deep.cinch", ["-D", "N=8"]),
    "gpt": (programs.BENCH / "models/gpt.cinch", []),
}


class Plans:
    """Plans of one program under flags, each asked for once."""

    def __init__(self, source, options):
        self.source, self.options, self.known = source, [*options, "--max-threads", str(THREADS)], {}

    def flags(self, remat, microbatch, budget):
        limit = ["--memory-budget", f"{budget / 1024:.10f}KiB" if budget else "1024GiB"]  # also beside a budget of the file
        return [*self.options, "--remat", remat, "--microbatch", str(microbatch), *limit]

    def get(self, remat, microbatch="auto", budget=None):
        key = remat, microbatch, budget
        if key not in self.known:
            self.known[key] = programs.plan(self.source, *self.flags(*key))
        return self.known[key]


def rivals(plans, budget, batch, least):
    """Name -> the flags of each rival that fits, and its plan."""
    asked = {name: (name, "auto", budget) for name in NAMED}
    plain = plans.get("none", "auto", budget)
    asked["micro-batch first"] = ("auto", plain["microbatch"] if plain else 1, budget)
    whole = plans.get("auto", batch, budget)
    asked["recomputation first"] = ("auto", batch, budget) if whole else (least, "auto", budget)
    found = {name: (key, plans.get(*key)) for name, key in asked.items()}
    return {name: pair for name, pair in found.items() if pair[1]}


def write_data(folder, name):
    if name in ("chain", "deep"):
        data.vectors(folder, 256, 10, 256)
    elif name == "small mlp":
        data.pictures(folder / "images", folder / "labels", 256, 8)
    elif name == "examples/mlp":
        for part in ("train", "t10k"):
            data.pictures(folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte", 256, 28)
    else:
        data.text(folder)


def measure(plans, pair, rounds, steps, folder):
    """Time of `auto` over that of `rival`: the median of the ratios of turns, of each the least step."""
    for name, key in pair.items():
        programs.compile(plans.source, folder / name, *plans.flags(*key))
    ratios = []
    for turn in range(rounds):
        taken = {}
        for name in sorted(pair, reverse=turn % 2 == 1):
            seconds, _ = programs.train(folder / name, folder, folder / "out", steps, THREADS)
            taken[name] = min(seconds)
        ratios.append(taken["auto"] / taken["rival"])
    return programs.median(ratios)


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two small models, three budgets, nothing is run")
    parser.add_argument("--rounds", type=int, default=5, help="of measuring; 0: predicted times only")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one")
    parser.add_argument("--profile", default="none", help="of this machine, by cinch calibrate")
    arguments = parser.parse_args()
    names = arguments.model or (["small mlp", "small gpt"] if arguments.quick else list(MODELS))
    points, rounds = (3, 0) if arguments.quick else (8, arguments.rounds)
    programs.use_processors(THREADS)
    print(f"auto beside what it could have done, {THREADS} threads; {programs.machine_line()}")
    worst, gains, ratios, rises = 0.0, [], [], 0
    for name in names:
        source, options = MODELS[name]
        plans = Plans(source, [*options, "--profile", arguments.profile])
        free = plans.get("none")
        batch = free["batch"]
        low, high = programs.smallest_budget(source, *plans.options), plans.get("none", batch)["memory"]
        least = min(NAMED, key=lambda strategy: plans.get(strategy, batch)["memory"])
        print(f"\n{name}: batch {batch}, smallest budget {low / 2**20:.2f} MiB, without recomputation {high / 2**20:.2f} MiB")
        print(f"{'budget MiB':>11}{'auto ms':>11}{'micro-batch':>12}  {'best rival':<22}{'ms':>10}{'auto / rival':>13}{'measured':>10}")
        last = None
        for point in range(points):
            budget = low + int((high - low) * (point / (points - 1)) ** 2)
            auto = plans.get("auto", "auto", budget)
            if auto is None:
                raise programs.Failed(f"{name}: auto refuses {budget} bytes, the smallest is {low}")
            if last:
                rises += auto["seconds"] > last["seconds"] or auto["memory"] < last["memory"]
            last = auto
            others = rivals(plans, budget, batch, least)
            if not others:
                print(f"{budget / 2**20:11.2f}{1e3 * auto['seconds']:11.3f}{auto['microbatch']:12}  no other fits", flush=True)
                continue
            rival = min(others, key=lambda other: others[other][1]["seconds"])
            key, plan = others[rival]
            ratio = auto["seconds"] / plan["seconds"]
            worst = max(worst, ratio)
            gains.append(ratio)
            shown = ""
            if rounds and ratio < 1:
                steps = int(min(400, max(6, 1 / plan["seconds"])))
                with tempfile.TemporaryDirectory() as temporary:
                    write_data(pathlib.Path(temporary), name)
                    ratios.append(measure(plans, {"auto": ("auto", "auto", budget), "rival": key}, rounds, steps, pathlib.Path(temporary)))
                shown = f"{ratios[-1]:10.3f}"
            print(f"{budget / 2**20:11.2f}{1e3 * auto['seconds']:11.3f}{auto['microbatch']:12}  {rival:<22}{1e3 * plan['seconds']:10.3f}"
                  f"{ratio:13.4f}{shown}", flush=True)
    programs.result("strategies.worst_over_best_rival", worst)
    programs.result("strategies.mean_over_best_rival", sum(gains) / len(gains))
    programs.result("strategies.not_monotone", rises)
    if ratios:
        programs.result("strategies.measured_worst", max(ratios))
        programs.result("strategies.measured_median", programs.median(ratios))


programs.main(body)
