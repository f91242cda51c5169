#!/usr/bin/env python3
"""chains: memory and time of every rematerialization strategy for chains of equal layers.   bench/chains.py [--quick]

Activation bytes are what is alive at the peak beside the parameters, the optimizer's state and the gradient accumulators: those three
grow with the number of layers whatever is recomputed. The micro-batch is the whole batch, so that only the strategy differs. Times are
those of the plan, and for the shorter chains also measured: medians of steps, the strategies alternating.
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

MODEL = programs.BENCH / "models" / "chain.cinch"
WIDTH, CLASSES, BATCH, THREADS = 256, 10, 64, 2
STRATEGIES = ["none", "cheap", "every:4", "sqrt", "all", "optimal", "auto"]
# `optimal` and `auto` are made for a budget; without one they keep everything. They are shown at the memory of `sqrt`.
BUDGETED = ["optimal", "auto"]


def options_of(layers, strategy, budget=None):
    extra = ["--memory-budget", f"{-(-budget // 1024)}KiB"] if budget else []
    return ["-D", f"N={layers}", "--remat", strategy, "--microbatch", str(BATCH), "--max-threads", str(THREADS), *extra]


def measured(layers, plans, rounds, folder):
    """Milliseconds a step of every strategy: the programs run in turn, `rounds` times."""
    for strategy, (_, options) in plans.items():
        programs.compile(MODEL, folder / strategy.replace(":", ""), *options)
    seconds = {strategy: [] for strategy in plans}
    for _ in range(rounds):
        for strategy in plans:
            steps, _ = programs.train(folder / strategy.replace(":", ""), folder, folder / "out", 20, THREADS)
            seconds[strategy].append(programs.median(steps))
    return {strategy: programs.median(values) for strategy, values in seconds.items()}


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="short chains, one round")
    parser.add_argument("--rounds", type=int, default=3, help="of measuring; 0: predicted times only")
    arguments = parser.parse_args()
    lengths, measure_to, rounds = ([4, 16], 4, 1) if arguments.quick else ([16, 64, 256, 1024], 256, arguments.rounds)
    programs.use_processors(THREADS)
    print(f"chains of linear[{WIDTH}] and relu, batch {BATCH}, {THREADS} threads; {programs.machine_line()}")
    print(f"{'layers':>6}  {'strategy':<10}{'activations KiB':>16}{'arena MiB':>11}{'recomputed':>12}{'plan ms':>9}{'step ms':>9}")
    activations, worst = {}, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data.vectors(folder, WIDTH, CLASSES, 2 * BATCH)
        for layers in lengths:
            plans = {}
            for strategy in STRATEGIES:
                budget = plans["sqrt"][0]["memory"] if strategy in BUDGETED else None
                options = options_of(layers, strategy, budget)
                found = programs.plan(MODEL, *options)
                if found is None:
                    print(f"{layers:6}  {strategy:<10} refuses the budget of sqrt: {budget} bytes")
                    continue
                plans[strategy] = found, options
            times = measured(layers, plans, rounds, folder) if rounds and layers <= measure_to else {}
            for strategy, (found, _) in plans.items():
                held = found["peak_live"] - found["persistent"] - found["peak_accumulators"]
                activations[strategy, layers] = held
                took = f"{1e3 * times[strategy]:9.2f}" if strategy in times else f"{'-':>9}"
                print(f"{layers:6}  {strategy:<10}{held / 1024:16.0f}{found['arena'] / 2**20:11.2f}{found['recomputed_runs']:12}"
                      f"{1e3 * found['seconds']:9.2f}{took}", flush=True)
            if "auto" in plans:
                worst = max(worst, plans["auto"][0]["seconds"] / plans["sqrt"][0]["seconds"])
    for short, long in zip(lengths, lengths[1:]):
        programs.result(f"chain.sqrt_growth_{short}_{long}", activations["sqrt", long] / activations["sqrt", short])
    programs.result("chain.auto_over_sqrt", worst)


programs.main(body)
