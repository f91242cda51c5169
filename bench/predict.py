#!/usr/bin/env python3
"""predict: predicted beside measured step times, with the built-in costs and with those of `cinch calibrate`.

    bench/predict.py [--quick] [--rounds N] [--threads N]

For the examples and the byte-level GPT of bench/models, at several budgets from the smallest that compiles up. Measured are seconds of
whole steps (what loads data and updates included; without row blocks, so that kernels are the same under all costs), the median of the rounds; the programs of a table take turns. The profile is
measured first, on the same machine. `predict.NAME.ratio` is predicted / measured under that profile, the geometric mean over the
budgets; `.spread` the largest ratio between budgets over the least: how far the model is from ranking plans rightly.
"""
import argparse
import math
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

ROOT = programs.BENCH.parent
MODELS = {"gpt": (programs.BENCH / "models/gpt.cinch", []), "example_gpt": (ROOT / "examples/gpt/gpt.cinch", []),
          "example_mlp": (ROOT / "examples/mlp/mlp.cinch", [])}
SMALL = ["-D", "N=2", "-D", "D=64", "-D", "A=2", "-D", "T=64", "-D", "B=8"]


def budgets_of(source, flags, quick):
    """From the smallest that compiles to what the fastest plan takes."""
    free = programs.plan(source, "--profile", "none", *flags)
    low, high = free["smallest_budget"], free["memory"]
    parts = (0.0, 1.0) if quick else (0.0, 0.05, 0.2, 1.0)
    return [round(low * (high / low) ** part) for part in parts]


def built_in(plan, source, flags):
    """What the built-in costs say to the runs of a plan: the kernels are the same, whatever they are said to cost."""
    other = programs.plan(source, *flags, "--profile", "none", "--remat", "none", "--microbatch", str(plan["microbatch"]))
    begin, end = plan["loop"]
    if [k["name"] for k in other["kernels"]] != [k["name"] for k in plan["kernels"]]:
        raise programs.Failed("the built-in costs have other kernels")
    return sum(other["kernels"][kernel]["seconds"] * (plan["count"] if begin <= t < end else 1)
               for t, kernel in enumerate(plan["runs"]["kernel"]))


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two small programs, one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    print(f"predicted and measured seconds a step, {arguments.threads} threads; {programs.machine_line()}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        profile = folder / "profile.json"
        done = subprocess.run([programs.CINCH, "calibrate", "-o", str(profile)], capture_output=True, text=True)
        if done.returncode:
            raise programs.Failed(f"cinch calibrate: exit {done.returncode}\n{done.stderr[-2000:]}")
        print(done.stdout.rstrip())
        data.text(folder)
        for part in ("train", "t10k"):
            data.pictures(folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte", 1000, 28)
        print(f"\n{'program':<14}{'budget MiB':>11}{'plan':>26}{'measured s':>12}{'built-in':>10}{'ratio':>7}{'profile':>10}{'ratio':>7}")
        for name, (source, flags) in MODELS.items():
            if arguments.quick and name == "gpt":
                continue
            flags = flags + ["--row-blocks", "none", "--max-threads", str(arguments.threads)] + (SMALL if arguments.quick and "mlp" not in name else [])
            runs = []
            for number, budget in enumerate(budgets_of(source, flags, arguments.quick)):
                exe = folder / f"{name}{number}"
                limit = ["--memory-budget", f"{-(-budget // 1024)}KiB", "--profile", str(profile)]
                built = programs.plan(source, *flags, *limit)
                programs.compile(source, exe, *flags, *limit)
                runs.append({"exe": exe, "budget": budget, "plan": built, "other": built_in(built, source, flags), "times": []})
            for _ in range(1 if arguments.quick else arguments.rounds):
                for run in runs:
                    steps = 3 if name == "gpt" else 20  # the examples log every tenth step
                    seconds, _ = programs.train(run["exe"], folder, folder / "out", steps, arguments.threads)
                    run["times"] += seconds
            ratios = []
            for run in runs:
                measured = programs.median(run["times"])
                ratios.append(run["plan"]["seconds"] / measured)
                plan = f"{run['plan']['count']} x {run['plan']['microbatch']} {run['plan']['remat']}"[:25]
                print(f"{name:<14}{run['budget'] / 2**20:11.1f}{plan:>26}{measured:12.4f}{run['other']:10.4f}"
                      f"{run['other'] / measured:7.2f}{run['plan']['seconds']:10.4f}{ratios[-1]:7.2f}", flush=True)
            programs.result(f"predict.{name}.ratio", math.exp(sum(map(math.log, ratios)) / len(ratios)))
            programs.result(f"predict.{name}.spread", max(ratios) / min(ratios))


programs.main(body)
