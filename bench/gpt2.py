#!/usr/bin/env python3
"""gpt2: what GPT-2 124M's shape needs and what each budget costs (B = 8, T = 1024, tied embedding, AdamW).   bench/gpt2.py [--quick]

Planned, not run: the smallest budget that compiles, the proven bound below which no plan of these kernels exists, and the predicted time
of a step under budgets from 2.5 to 8 GiB; with row blocks and without, where the compiler has them.
"""
import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

MODEL = programs.BENCH / "models" / "gpt2_124m.cinch"
BUDGETS = ["2.5GiB", "3GiB", "4GiB", "6GiB", "8GiB"]
TINY = ["-D", "N=2", "-D", "D=64", "-D", "A=2", "-D", "T=64", "-D", "V=1000"]


def refused(options):
    """(smallest budget, proven bound) in bytes."""
    done = subprocess.run([programs.CINCH, "plan", str(MODEL), *options, "--memory-budget", "1MiB"], capture_output=True, text=True)
    least = re.search(r"smallest budget that compiles: (\d+) bytes", done.stderr)
    bound = re.search(r"proven lower bound: *(\d+) bytes", done.stderr)
    if not least or not bound:
        raise programs.Failed(f"cinch plan {' '.join(options)}: no smallest budget\n{done.stderr[:2000]}")
    return int(least.group(1)), int(bound.group(1))


def has_row_blocks():
    done = subprocess.run([programs.CINCH, "plan", "--help"], capture_output=True, text=True)
    return "--row-blocks" in done.stdout


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tiny shape")
    arguments = parser.parse_args()
    shape = ["-D", "B=8", "--max-threads", "4", *(TINY if arguments.quick else [])]
    budgets = ["12MiB", "20MiB"] if arguments.quick else BUDGETS
    kinds = {"with row blocks": [], "without": ["--row-blocks", "none"]} if has_row_blocks() else {"without": []}
    print(f"GPT-2 124M's shape, batch 8 x 1024, AdamW, tied{' (tiny)' if arguments.quick else ''}; {programs.machine_line()}")
    columns, results = {}, {}
    for kind, options in kinds.items():
        least, bound = refused([*shape, *options])
        columns[kind] = [f"{least / 2**20:10.1f} MiB  bound {bound / 2**20:9.1f}"]
        results[f"gpt2.{kind.replace(' ', '_')}.smallest_mib"] = least / 2**20
        for budget in budgets:
            found = programs.plan(MODEL, *shape, *options, "--memory-budget", budget)
            if found is None:
                columns[kind].append("refused")
                continue
            columns[kind].append(f"{found['seconds']:10.3f} s  {found['count']} x {found['microbatch']}, "
                                 f"+{100 * (found['seconds'] / found['seconds_bound'] - 1):.1f} %")
            results[f"gpt2.{kind.replace(' ', '_')}.{budget.lower()}"] = found["seconds"]
    print(f"{'':10}" + "".join(f"{kind:<36}" for kind in columns))
    for row, label in enumerate(["smallest", *budgets]):
        print(f"{label:10}" + "".join(f"{column[row]:<36}" for column in columns.values()))
    for name, value in results.items():
        programs.result(name, value)


programs.main(body)
