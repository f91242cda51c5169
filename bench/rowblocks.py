#!/usr/bin/env python3
"""rowblocks: what running position-wise work in blocks of rows is worth.   bench/rowblocks.py [--quick] [--rounds N]

First GPT-2's shape (B = 8, T = 1024, AdamW, tied weights): the smallest budget that compiles with and without row blocks, and the
predicted time at several budgets. Then a smaller model with a wide vocabulary, run: the bytes that row blocks save at one micro-batch,
what they cost in time, and a run under a budget that no plan without them meets. Last, images through blocks that are wide inside,
run in bands of image rows: smallest budgets with and without, and what a step takes there.
"""
import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

GPT2 = programs.BENCH / "models" / "gpt2_124m.cinch"
SMALL = programs.BENCH / "models" / "gpt.cinch"
IMAGES = programs.BENCH / "models" / "wide_blocks.cinch"
MIB = 1 << 20
THREADS = 2


def smallest(model, *options):
    """The smallest budget that compiles, and the proven bound below it."""
    done = subprocess.run([programs.CINCH, "plan", str(model), "--memory-budget", "1MiB", *options], capture_output=True, text=True)
    found = re.search(r"smallest budget that compiles: (\d+) bytes", done.stderr)
    bound = re.search(r"proven lower bound: *(\d+) bytes", done.stderr)
    if not found or not bound:
        raise programs.Failed(f"cinch plan {model}: no smallest budget is named\n{done.stderr[:1000]}")
    return int(found.group(1)), int(bound.group(1))


def planned(quick):
    shape = ["-D", "B=8"] + (["-D", "N=1", "-D", "D=64", "-D", "A=2", "-D", "T=256", "-D", "V=4000"] if quick else [])
    least = {}
    print(f"GPT-2's shape, {' '.join(shape[1::2])}")
    for blocks in ("none", "auto"):
        least[blocks], bound = smallest(GPT2, "--row-blocks", blocks, *shape)
        print(f"  row blocks {blocks:<5} smallest budget {least[blocks] / MIB:9.1f} MiB, proven bound {bound / MIB:9.1f} MiB")
    print(f"{'budget GiB':>12}{'none: s':>12}{'auto: s':>12}  plan")
    budgets = [2.5, 3, 4, 6, 8] if not quick else [least["none"] / 2**30 * factor for factor in (0.95, 1.0, 2.0)]
    for budget in budgets:
        row = {b: programs.plan(GPT2, "--memory-budget", f"{budget * 2**20:.0f}KiB", "--row-blocks", b, *shape) for b in ("none", "auto")}
        cells = [f"{row[b]['seconds']:12.4f}" if row[b] else f"{'-':>12}" for b in ("none", "auto")]
        how = f"{row['auto']['count']} x {row['auto']['microbatch']}  {row['auto']['remat']}" if row["auto"] else ""
        print(f"{budget:12.3f}{cells[0]}{cells[1]}  {how}", flush=True)
        if not quick and row["auto"]:
            programs.result(f"rowblocks.gpt2_124m.seconds_{budget:g}gib", float(row["auto"]["seconds"]))
            if row["none"]:
                programs.result(f"rowblocks.gpt2_124m.plain_seconds_{budget:g}gib", float(row["none"]["seconds"]))
    name = "tiny" if quick else "gpt2_124m"
    for blocks in ("none", "auto"):
        programs.result(f"rowblocks.{name}.smallest_{blocks}", least[blocks])


def measured(quick, rounds, folder):
    sizes = dict(B=4, T=256, N=1, D=32, A=2, V=4000) if quick else dict(B=8, T=256, N=2, D=128, A=2, V=16384)
    shape = [part for name, value in sizes.items() for part in ("-D", f"{name}={value}")] + ["--max-threads", str(THREADS)]
    data.text(folder, 64 * (sizes["T"] + 1))
    steps = 3 if quick else 6
    choices = ["none", "64", "256", "1024"] if not quick else ["none", "16", "64"]
    whole = ["--microbatch", str(sizes["B"]), "--remat", "none"]
    print(f"\n{', '.join(f'{k} = {v}' for k, v in sizes.items())}, micro-batch {sizes['B']}, {THREADS} threads; {programs.machine_line()}")
    seconds, peak, predicted, finals = {c: [] for c in choices}, {}, {}, {}
    for choice in choices:
        programs.compile(SMALL, folder / choice, *shape, *whole, "--row-blocks", choice)
        predicted[choice] = programs.plan(SMALL, *shape, *whole, "--row-blocks", choice)["seconds"]
    for _ in range(rounds):
        for choice in choices:
            taken, peak[choice] = programs.train(folder / choice, folder, folder / f"out-{choice}", steps, THREADS)
            seconds[choice].append(programs.median(taken))
            finals[choice] = (folder / f"out-{choice}" / "final.safetensors").read_bytes()
    print(f"{'rows':>8}{'peak MiB':>10}{'step ms':>10}{'plan ms':>10}{'same bits':>11}")
    for choice in choices:
        print(f"{choice:>8}{peak[choice] / MIB:10.1f}{1e3 * programs.median(seconds[choice]):10.1f}{1e3 * predicted[choice]:10.1f}"
              f"{'yes' if finals[choice] == finals['none'] else 'NO':>11}")
    if any(final != finals["none"] for final in finals.values()):
        raise programs.Failed("row blocks changed the parameters")

    alone, _ = smallest(SMALL, *shape, "--row-blocks", "none")
    least, _ = smallest(SMALL, *shape)
    budget = (alone + least) // 2
    options = [*shape, "--memory-budget", f"{budget // 1024}KiB"]
    if programs.plan(SMALL, *options, "--row-blocks", "none"):
        raise programs.Failed("the budget is met without row blocks")
    programs.compile(SMALL, folder / "budget", *options)
    _, used = programs.train(folder / "budget", folder, folder / "out-budget", steps, THREADS)
    same = (folder / "out-budget" / "final.safetensors").read_bytes() == finals["none"]
    print(f"smallest budget without row blocks {alone / MIB:.1f} MiB, with them {least / MIB:.1f} MiB; under {budget / MIB:.1f} MiB: "
          f"peak {used / MIB:.1f} MiB, {'same bits' if same else 'OTHER BITS'}")
    if used > budget or not same:
        raise programs.Failed("the run under a budget exceeds it or ends with other parameters")
    middle = choices[-2]
    programs.result("rowblocks.time_ratio", programs.median(seconds[middle]) / programs.median(seconds["none"]))
    programs.result("rowblocks.peak_ratio", peak[middle] / peak["none"])
    programs.result("rowblocks.smallest_ratio", least / alone)


def bands(quick, rounds, folder):
    side = 16 if quick else 64
    shape = ["-D", f"S={side}", "--max-threads", str(THREADS)]
    draw = random.Random(1)
    data.write_array(folder / "x.npy", "f", (8, 3, side, side), [draw.uniform(-1, 1) for _ in range(8 * 3 * side * side)])
    data.write_npy(folder / "y.npy", "i", [draw.randrange(10) for _ in range(8)])
    least = {blocks: smallest(IMAGES, *shape, "--row-blocks", blocks)[0] for blocks in ("none", "auto")}
    plans = {"all kept": [], "no bands": ["--row-blocks", "none", "--memory-budget", str(least["none"])],
             "bands": ["--memory-budget", str(least["auto"])]}
    seconds, peak, finals = {name: [] for name in plans}, {}, {}
    for name, options in plans.items():
        programs.compile(IMAGES, folder / name, *shape, *options)
    for _ in range(rounds):
        for name in plans:
            taken, peak[name] = programs.train(folder / name, folder, folder / f"out-{name}", 6, THREADS)
            seconds[name].append(programs.median(taken))
            finals[name] = (folder / f"out-{name}" / "final.safetensors").read_bytes()
    print(f"\nimages of {side} x {side}, three blocks that are six times as wide inside, {THREADS} threads; {programs.machine_line()}")
    print(f"{'':>10}{'budget MiB':>12}{'peak MiB':>10}{'step ms':>10}{'same bits':>11}")
    for name in plans:
        budget = {"no bands": least["none"], "bands": least["auto"]}.get(name)
        print(f"{name:>10}{f'{budget / MIB:.2f}' if budget else '-':>12}{peak[name] / MIB:10.2f}{1e3 * programs.median(seconds[name]):10.2f}"
              f"{'yes' if finals[name] == finals['all kept'] else 'NO':>11}")
    if any(final != finals["all kept"] for final in finals.values()):
        raise programs.Failed("bands of image rows changed the parameters")
    programs.result("rowblocks.images.smallest_ratio", least["auto"] / least["none"])
    programs.result("rowblocks.images.time_ratio", programs.median(seconds["bands"]) / programs.median(seconds["no bands"]))


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small shapes, one round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    planned(arguments.quick)
    with tempfile.TemporaryDirectory() as temporary:
        rounds = 1 if arguments.quick else arguments.rounds
        measured(arguments.quick, rounds, pathlib.Path(temporary))
        bands(arguments.quick, rounds, pathlib.Path(temporary))


programs.main(body)
