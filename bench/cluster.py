#!/usr/bin/env python3
"""cluster: what `cinch solve cluster` predicts for published runs of GPT models of 1.7B to 1T parameters.   bench/cluster.py [--quick]

The rows of bench/models/narayanan2021/table1.csv, at their grids, batches, schedules and recomputation, on the machines of a100.json
(published rates of the A100-80GB, NVLink and InfiniBand). Two constants are fitted, on the odd rows only: the share of the peak that
products reach and the share of the memory's bandwidth; the file holds what was found. Then the freely chosen layout of each row.
--quick takes the constants of the file.
"""
import argparse
import csv
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

INPUTS = programs.BENCH / "models" / "narayanan2021"


def rows():
    lines = [line for line in (INPUTS / "table1.csv").read_text().splitlines() if not line.startswith("#")]
    return [{key: float(value) if "." in value else int(value) for key, value in row.items()} for row in csv.DictReader(lines)]


def solve(folder, row, constants, *flags):
    """The answer for the row's model on the row's devices; `constants`: efficiency, traffic_efficiency, None for those of the file."""
    cluster = json.loads((INPUTS / "a100.json").read_text())
    cluster["groups"][0]["nodes"] = row["devices"] // cluster["groups"][0]["devices"]
    if constants:
        cluster["groups"][0]["efficiency"], cluster["groups"][0]["traffic_efficiency"] = constants
    model = {"layers": row["layers"], "hidden": row["hidden"], "heads": row["heads"], "sequence": 2048, "vocabulary": 51200,
             "batch": row["batch"]}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / "model.json").write_text(json.dumps(model))
    done = subprocess.run([programs.CINCH, "solve", "cluster", folder / "model.json", "--cluster", folder / "cluster.json", *flags],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise programs.Failed(f"cinch solve cluster {' '.join(flags)}: {done.stderr[:2000]}")
    return json.loads(done.stdout)


def published(folder, row, constants):
    replicas = row["devices"] // (row["stages"] * row["shards"])
    return solve(folder, row, constants, "--grid", f"{row['stages']}x{row['shards']}x{replicas}", "--microbatch", str(row["microbatch"]),
                 "--schedule", "interleaved" if row["chunks"] > 1 else "1f1b", "--chunks", str(row["chunks"]), "--recompute", "full")


def error(folder, row, constants):
    return published(folder, row, constants)["best"]["teraflops"] / row["teraflops"] - 1


def fit(folder, table):
    """The constants with the smallest worst error on the given rows: a grid, then a finer one around its best."""
    worst = lambda constants: max(abs(error(folder, row, constants)) for row in table)
    hundredths = lambda *numbers: [n / 100 for n in numbers]
    best = min(itertools.product(hundredths(*range(50, 95, 5)), hundredths(*range(50, 101, 10))), key=worst)
    e, t = (round(100 * x) for x in best)
    near = itertools.product(hundredths(*range(e - 4, e + 5)), hundredths(*range(max(t - 8, 40), min(t + 8, 100) + 1, 4)))
    return min(near, key=worst)


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="constants of the file, the first four rows' free choice")
    arguments = parser.parse_args()
    table = rows()
    group = json.loads((INPUTS / "a100.json").read_text())["groups"][0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        constants = (group["efficiency"], group["traffic_efficiency"])
        if not arguments.quick:
            constants = fit(folder, table[0::2])
        print(f"constants: products {constants[0]:.2f} of the peak, traffic {constants[1]:.2f} of the bandwidth; "
              f"{'of the file' if arguments.quick else 'fitted on rows 1, 3, 5, 7, 9'}")
        print(f"{'parameters':>10} {'P x T x D':>12} {'published':>10} {'predicted':>10} {'error':>8} {'GB':>6}   "
              "freely chosen: P x T x D, micro-batch, schedule, recompute, tokens/s beside the published grid's, GB, search")
        fitted, unseen, ratios, slowest = [], [], [], 0
        for number, row in enumerate(table, 1):
            answer = published(folder, row, constants)
            best = answer["best"]
            off = best["teraflops"] / row["teraflops"] - 1
            (fitted if number % 2 else unseen).append(abs(off))
            line = (f"{row['parameters_1e9']:9.1f}B {best['stages']:>3} x {best['shards']} x {best['replicas']:>3} {row['teraflops']:10d} "
                    f"{best['teraflops']:10.1f} {100 * off:+7.1f} % {best['bytes'] / 1e9:5.1f}   ")
            if not arguments.quick or number <= 4:
                free = solve(folder, row, constants)
                chosen = free["best"]
                ratios.append(best["seconds"] / chosen["seconds"])
                slowest = max(slowest, free["search_seconds"])
                line += (f"{chosen['stages']} x {chosen['shards']} x {chosen['replicas']}, {chosen['microbatch']}, {chosen['schedule']}/"
                         f"{chosen['chunks']}, {chosen['recompute']}, {ratios[-1]:.2f}, {chosen['bytes'] / 1e9:.1f}, "
                         f"{free['search_seconds']:.1f} s of {free['candidates']} layouts ({free['status']})")
            print(line)
    programs.result("cluster.worst_error_fitted", max(fitted))
    programs.result("cluster.worst_error_unseen", max(unseen))
    programs.result("cluster.free_over_published_least", min(ratios))
    programs.result("cluster.search_seconds", slowest)


programs.main(body)
