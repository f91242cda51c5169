#!/usr/bin/python3
"""A plan never changes a bit: final.safetensors after 50 steps over {budgets} x {strategies} x {micro-batches} x
{row blocks} x {threads}, with dropout, tied weights, decay and clipping present.

Budgets are: none, the smallest that compiles for that strategy and micro-batch (the compiler names it), and one in
between. With a budget, the peak of the process must be within it too. `--pairs` runs every pair of settings at
least once instead of the full product; `--program FILE --data DIR` takes another program.
"""

import argparse
import itertools
import re

import programs

STRATEGIES = ["none", "all", "sqrt", "every:2", "marked", "cheap", "auto"]
THREADS = [1, 2, 3]
MICROBATCHES = [8, 4, 2, 1]
BUDGETS = ["none", "middle", "smallest"]
# Rows of a block: chosen, none, positions of an example (8, 1), whole examples (32: one, 64: two)
ROW_BLOCKS = ["auto", "none", "8", "1", "32", "64"]

verdicts = programs.Verdicts()


def smallest_budget(program, flags):
    refused = programs.compiled(program, "refused", "--memory-budget", "1KiB", *flags, allowed=(1,))
    match = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout)
    if not match:
        raise programs.Failure("a budget of 1 KiB is refused without naming the smallest: " + refused.stdout[-500:])
    return int(match.group(1))


def without_refused(program, extra, row_blocks):
    """A program without work that can run in blocks of rows refuses every number of rows."""
    asked = [programs.CINCH, "plan", program, "--microbatch", "2", "--row-blocks", "64", *extra]
    if programs.NO_ROWS not in programs.call(asked, allowed=(0, 1)).stdout:
        return row_blocks
    print("no work in blocks of rows: " + ", ".join(rows for rows in row_blocks if not rows.isdigit()) + " only")
    return [rows for rows in row_blocks if not rows.isdigit()]


class Plans:
    """Executables by (strategy, micro-batch, row blocks, budget)."""

    def __init__(self, program, extra):
        self.program, self.extra, self.made, self.least = program, extra, {}, {}

    def get(self, strategy, microbatch, rows, budget):
        key = (strategy, microbatch, rows, budget)
        if key not in self.made:
            flags = [
                "--remat",
                strategy,
                "--microbatch",
                str(microbatch),
                "--row-blocks",
                rows,
                "--max-threads",
                str(max(THREADS)),
                *self.extra,
            ]
            limit = None
            if budget != "none":
                if key[:3] not in self.least:
                    self.least[key[:3]] = smallest_budget(self.program, flags)
                limit = self.least[key[:3]]
                limit = limit if budget == "smallest" else limit + limit // 4
                flags += ["--memory-budget", "%.10fKiB" % (limit / 1024)]
            name = "plan-" + "-".join(str(part).replace(":", "") for part in key)
            self.made[key] = programs.compiled(self.program, name, *flags), limit
        return self.made[key]


def pairs(settings):
    """Rows that hold every pair of values of two settings: greedily, the row with the most pairs still missing."""
    missing = {
        ((i, a), (j, b))
        for i, j in itertools.combinations(range(len(settings)), 2)
        for a in settings[i]
        for b in settings[j]
    }
    rows = []
    while missing:
        best = max(itertools.product(*settings), key=lambda row: len(missing & set(pairs_of(row))))
        missing -= set(pairs_of(best))
        rows.append(best)
    return rows


def pairs_of(row):
    return [((i, row[i]), (j, row[j])) for i, j in itertools.combinations(range(len(row)), 2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(programs.HERE / "gpt.cinch"))
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--microbatches", type=lambda text: [int(n) for n in text.split(",")], default=MICROBATCHES)
    parser.add_argument("--row-blocks", default=",".join(ROW_BLOCKS))
    parser.add_argument("--flags", default="", help="further flags of the compiler, blank-separated")
    options = parser.parse_args()
    data = options.data
    if not data:
        data = programs.FOLDER / "data"
        data.mkdir()
        (data / "train.txt").write_bytes(programs.byte_text(32 * 61 + 1))

    plans = Plans(options.program, options.flags.split())
    row_blocks = without_refused(options.program, plans.extra, options.row_blocks.split(","))
    settings = [STRATEGIES, options.microbatches, row_blocks, BUDGETS, THREADS]
    rows = pairs(settings) if options.pairs else list(itertools.product(*settings))
    rows = [row for row in rows if row[2] != "64" or row[1] % 2 == 0]  # two examples at a time
    reference = first = None

    def make(key):
        try:
            plans.get(*key)
        except programs.Failure:
            pass  # reported below, where it is asked for again

    by_plan = {}  # all budgets of a strategy and micro-batch in one go: the smallest is asked for once
    for row in rows:
        by_plan.setdefault(row[:3], set()).add(row[:4])
    programs.in_parallel(lambda group: [make(key) for key in sorted(group)], by_plan.values())
    for strategy, microbatch, blocks, budget, threads in rows:
        label = "remat %s, micro-batch %d, row blocks %s, budget %s, %d threads" % (
            strategy,
            microbatch,
            blocks,
            budget,
            threads,
        )
        try:
            exe, limit = plans.get(strategy, microbatch, blocks, budget)
            result = programs.run(exe, data, options.steps, "--threads", str(threads))
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (label, failure))
            continue
        if reference is None:
            reference, first = result, label
            start = programs.run(exe, data, 0).parameters
            verdicts.expect(
                all((start[name] != value).any() for name, value in result.parameters.items()),
                "every parameter has moved",
            )
            continue
        verdicts.expect(result.bytes == reference.bytes, "%s: other bits than with %s" % (label, first))
        verdicts.expect(result.losses == reference.losses, "%s: other losses than with %s" % (label, first))
        if limit is not None:
            verdicts.expect(
                result.peak <= limit, "%s: a peak of %d bytes, the budget is %d" % (label, result.peak, limit)
            )
    verdicts.finish()


main()
