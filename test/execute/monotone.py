#!/usr/bin/python3
"""Plans at random budgets, on the models of the tree: a smaller budget never peaks higher, a larger one is never predicted slower,
`auto` is never predicted slower than a named strategy that fits, and one byte less than the smallest budget is refused.

usage: monotone.py [--count N] [--seed S]
"""
import argparse
import json
import random
import re

import programs

ROOT = programs.HERE.parent.parent
MODELS = {
    "examples/mlp/mlp.cinch": [],
    "examples/gpt/gpt.cinch": [],
    "test/execute/mlp.cinch": [],
    "test/execute/gpt.cinch": [],
    "bench/models/chain.cinch": ["-D", "N=24"],
    "bench/models/deep.cinch": ["-D", "N=6"],
    "bench/models/gpt2_124m.cinch": ["-D", "N=3", "-D", "B=8"],
}
NAMED = ["none", "all", "sqrt", "every:2", "cheap", "marked"]
verdicts = programs.Verdicts()


def planned(model, options, budget, strategy="auto"):
    """The plan, or None if it is refused."""
    limit = ["--memory-budget", "%.10fKiB" % (budget / 1024)] if budget else []
    done = programs.call([programs.CINCH, "plan", "--json", str(ROOT / model), *options, *limit, "--remat", strategy], allowed=(0, 1))
    return json.loads(done.stdout[done.stdout.index("{"):]) if done.returncode == 0 else None


def smallest(model, options):
    done = programs.call([programs.CINCH, "plan", str(ROOT / model), *options, "--memory-budget", "1KiB"], allowed=(1,))
    return int(re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout).group(1))


def try_model(model, options, count, seed):
    rng = random.Random(seed)
    low, high = smallest(model, options), planned(model, options, None)["memory"]
    verdicts.expect(planned(model, options, low - 1) is None, "%s: one byte less than %d is refused" % (model, low))
    budgets = sorted([low] + [low + int((high - low) * rng.random() ** 2) for _ in range(count)])
    last = None
    for budget in budgets:
        plan = planned(model, options, budget)
        if not verdicts.expect(plan is not None and plan["memory"] <= budget, "%s: %d bytes are kept" % (model, budget)):
            continue
        if last:
            verdicts.expect(plan["seconds"] <= last["seconds"], "%s: %d bytes are not slower than less" % (model, budget))
            verdicts.expect(plan["memory"] >= last["memory"], "%s: less than %d bytes does not peak higher" % (model, budget))
        last = plan
        named = rng.choice(NAMED)
        other = planned(model, options, budget, named)
        verdicts.expect(other is None or plan["seconds"] <= other["seconds"], "%s: auto is not slower than %s at %d" % (model, named, budget))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=6, help="budgets a model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    def guarded(item):
        try:
            try_model(*item, arguments.count, arguments.seed)
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (item[0], failure))

    programs.in_parallel(guarded, MODELS.items())
    verdicts.finish()


main()
