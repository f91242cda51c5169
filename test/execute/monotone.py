#!/usr/bin/python3
"""Plans at random budgets, on the models of the tree: a smaller budget never peaks higher, a larger one is never predicted slower,
`auto` is never predicted slower than a named strategy that fits, one byte less than the smallest budget is refused, and no plan is below the
proven bound. What a refusal names holds for blocks of rows of any size. Some programs may be planned as several steps, with copies of their weights and without; what is proven holds for all of them, and each of several
workers.

usage: monotone.py [--count N] [--seed S]
"""
import argparse
import json
import pathlib
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
COPIES = """dim B = 256 batch, D = 512
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B, D])
layer block(x: f32[B, D]) -> f32[B, D] {
  use a = linear[D]
  return x + tanh(a(x))
}
model net(x: f32[B, D]) -> f32[B, D] {
  use h = repeat 6 block
  return h(x)
}
train net on train seed 1 {
  loss = mean[B, D] (net(x) - y) ^ 2
  precision bf16(master = f32, accumulate = f32)
  optimizer sgd(lr = 0.05)
  steps 3
}
"""
# name -> (program, options): bf16 on a GPU and on a CPU with AMX, where copies of the weights take memory, too; a sum with which the loop begins.
WRITTEN = {
    "copies": (COPIES, ["--target", "nvidia"]),
    "copies_of_stages": (COPIES, ["--target", "nvidia", "--stages", "2"]),
    "packed": ("""dim B = 16 batch, T = 32, D = 256
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, D], y: f32[B, T, D])
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use r = lstm[D], s = lstm[D]
  return s(r(x))
}
train net on train seed 1 {
  loss = mean[B, T, D] (net(x) - y) ^ 2
  precision bf16(master = f32, accumulate = f32)
  optimizer sgd(lr = 0.05)
  steps 3
}
""", ["--cpu", "sapphirerapids"]),
    "begins_with_a_sum": ("""dim B = 64 batch, D = 16384, H = 4096
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B])
layer stats(x: f32[B, D]) -> f32[B, 16] {
  state m: f32[D] ~ zeros
  update m = mean[B] x
  return x[:, :16]
}
model net(x: f32[B, D]) -> f32[B] {
  use s = stats, a = linear[H]
  param p: f32[] ~ ones
  w[b] = mean[h] tanh(a(s(x))[b, h])
  return stop_gradient(w) * p
}
train net on train seed 1 {
  loss = mean[B] tanh(net(x))
  optimizer sgd(lr = 0.05)
  freeze("a.*")
  steps 3
}
""", ["--target", "nvidia"]),
    "vocabulary": ("""dim B = 2 batch, T = 96, V = 512, D = 16
data train = text("t.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model lm(x: i32[B, T] below V) -> f32[B, T, V] {
  use e = embedding[V, D], o = linear[V]
  return o(e(x))
}
train lm on train seed 3 {
  loss = mean[B, T] cross_entropy(lm(text[:, :T]), text[:, 1:])
  predict first = f32(text[:, 0])
  optimizer sgd(lr = 1)
  steps 3
}
""", []),
}
# Of these it is tried whether blocks of rows that somebody asks for need less than what is named, or is proven, without asking.
IN_BLOCKS = {"vocabulary": ["1", "2", "8", "32", "96", "192"]}
NAMED = ["none", "all", "sqrt", "every:2", "cheap", "marked"]
verdicts = programs.Verdicts()


def planned(model, options, budget, strategy="auto"):
    """The plan, or None if it is refused."""
    limit = ["--memory-budget", "%.10fKiB" % (budget / 1024)] if budget else []
    done = programs.call([programs.CINCH, "plan", "--json", str(ROOT / model), *options, *limit, "--remat", strategy], allowed=(0, 1))
    return json.loads(done.stdout[done.stdout.index("{"):]) if done.returncode == 0 else None


def refused(model, options):
    """The smallest budget that compiles, and the proven bound."""
    done = programs.call([programs.CINCH, "plan", str(ROOT / model), *options, "--memory-budget", "1KiB"], allowed=(1,))
    return [int(re.search(words + r": +(\d+) bytes", done.stdout).group(1)) for words in ("smallest budget that compiles", "proven lower bound")]


def try_blocks(model, options, sizes):
    least, bound = refused(model, options)
    for rows in sizes:
        own, _ = refused(model, [*options, "--row-blocks", rows])
        verdicts.expect(least <= own and bound <= own,
                        "%s: blocks of %s rows need %d bytes, the smallest budget is %d, the bound %d" % (model, rows, own, least, bound))


def try_model(model, options, count, seed):
    rng = random.Random(seed)
    low, whole = refused(model, options)[0], planned(model, options, None)
    workers = whole.get("schedule", {}).get("workers", 1)  # each has the budget
    high = whole["memory"] // workers
    verdicts.expect(planned(model, options, low - 1) is None, "%s: one byte less than %d is refused" % (model, low))
    budgets = sorted([low] + [low + int((high - low) * rng.random() ** 2) for _ in range(count)])
    last = None
    for budget in budgets:
        plan = planned(model, options, budget)
        if not verdicts.expect(plan is not None and plan["memory"] <= budget * workers, "%s: %d bytes are kept" % (model, budget)):
            continue
        verdicts.expect(plan["budget_bound"] <= plan["memory"], "%s: a plan of %d bytes is below the bound, %d" % (model, plan["memory"], plan["budget_bound"]))
        if last:
            verdicts.expect(plan["seconds"] <= last["seconds"], "%s: %d bytes are not slower than less" % (model, budget))
            verdicts.expect(plan["memory"] >= last["memory"], "%s: less than %d bytes does not peak higher" % (model, budget))
        last = plan
        named = rng.choice(NAMED)
        other = planned(model, options, budget, named)
        verdicts.expect(other is None or plan["seconds"] <= other["seconds"], "%s: auto is not slower than %s at %d" % (model, named, budget))


def try_cuts(model, options, worst=1.05, parts=8, most=None):
    """Of several workers the cut is guessed before it is planned. So a larger budget may have a slower plan than a smaller one, but not by much."""
    low, whole = refused(model, options)[0], planned(model, options, None)
    high, best = int(most * low) if most else whole["memory"], float("inf")
    for part in range(parts + 1):
        seconds = planned(model, options, low + (high - low) * part // parts)["seconds"]
        verdicts.expect(seconds <= worst * best, "%s: %g s with %d/%d of the way from the smallest budget, %g with less" % (model, seconds, part, parts, best))
        best = min(best, seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=6, help="budgets a model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    def guarded(item):
        try:
            # Steps with copies and without take turns among close budgets.
            try_model(*item, arguments.count * (2 if "--stages" in item[1] else 1), arguments.seed)
            if sizes := IN_BLOCKS.get(pathlib.Path(item[0]).stem):
                try_blocks(*item, sizes)
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (item[0], failure))

    written = {str(programs.source(name, text)): options for name, (text, options) in WRITTEN.items()}
    programs.in_parallel(guarded, {**MODELS, **written}.items())
    two = ["--stages", "2", "--max-threads", "2"]
    try_cuts("test/execute/programs/random/batch-axis-last.cinch", two)
    try_cuts("bench/models/lstm.cinch", [*two, *"-D B=16 -D T=32 -D V=256 -D H=64".split()])
    try_cuts("examples/gpt/gpt.cinch", "-D N=2 -D D=64 -D A=2 -D T=64 --replicas 2 --max-threads 2".split(), 1.01, 12, 1.36)
    verdicts.finish()


main()
