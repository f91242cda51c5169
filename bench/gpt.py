#!/usr/bin/env python3
"""gpt: step time and peak memory of a byte-level GPT beside PyTorch and JAX.   bench/gpt.py [--quick] [--rounds N]

Forward, backward, clipping and AdamW in f32, with and without dropout; loading data is left out (the peers get one batch in memory; ours
reads its own, from a mapped file). All programs take turns, one step a round for the peers and two for ours, of which the first,
which meets its memory for the first time, is dropped. Medians of the rounds. The peers come from bench/peers/setup; those that are
not installed are left out. Peaks are VmHWM of each process. Ours is compiled without a budget (the fastest plan), and again with one.
"""
import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs
from harness.peers import Peer, installed

MODEL = programs.BENCH / "models" / "gpt.cinch"
FULL = {"layers": 6, "width": 384, "heads": 6, "length": 256, "vocabulary": 256, "batch": 16}
QUICK = {"layers": 2, "width": 64, "heads": 2, "length": 64, "vocabulary": 256, "batch": 4}
NAMES = {"layers": "N", "width": "D", "heads": "A", "length": "T", "vocabulary": "V", "batch": "B"} # in the .cinch file
WORKERS = {"PyTorch eager": ("torch_gpt.py",), "torch.compile": ("torch_gpt.py", "--compile"), "JAX jit": ("jax_gpt.py",)}


class Ours:
    def __init__(self, folder, name, sizes, rate, threads, budget=None):
        self.folder, self.threads = folder, threads
        self.exe = folder / "".join(c for c in f"{name} {rate}" if c.isalnum())
        defines = [text for key, value in sizes.items() for text in ("-D", f"{NAMES[key]}={value}")]
        limit = ["--memory-budget", budget] if budget else []
        programs.compile(MODEL, self.exe, *defines, "-D", f"rate={rate}", "--max-threads", str(threads), *limit)
        self.peak = 0

    def warm(self):
        self.step()

    def step(self):
        seconds, peak = programs.train(self.exe, self.folder, self.folder / "out", 2, self.threads)
        self.peak = max(self.peak, peak)
        return seconds[-1]

    def end(self):
        return self.peak


def contestants(folder, sizes, rate, threads, budget, peers, log):
    """Everything that works here, warmed up; what does not is named with the place of its own words."""
    ready = {"Cinch": Ours(folder, "Cinch", sizes, rate, threads)}
    if budget:
        ready[f"Cinch {budget}"] = Ours(folder, f"Cinch {budget}", sizes, rate, threads, budget)
    for name, script in WORKERS.items():
        if name not in peers:
            continue
        if not installed("jax" if "jax" in script[0] else "torch"):
            print(f"  {name}: not installed (bench/peers/setup)")
            continue
        try:
            with open(log, "a") as errors:
                ready[name] = Peer(script, sizes, rate, threads, errors)
            ready[name].warm()
        except (programs.Failed, BrokenPipeError) as failure:
            ready.pop(name, None)
            with open(log) as said:
                print(f"  {name}: left out, {failure}: {said.read().strip()[-300:]}")
    for name in ready:
        if name.startswith("Cinch"):
            ready[name].warm()
    return ready


def compare(folder, sizes, rate, threads, budget, peers, rounds):
    """Prints the table of one setting; returns {name: (seconds, bytes)}."""
    print(f"\ndropout {rate}", flush=True)
    ready = contestants(folder, sizes, rate, threads, budget, peers, folder / "peers.log")
    seconds = {name: [] for name in ready}
    for _ in range(rounds):
        for name, one in ready.items():
            time.sleep(0.3) # the threads of the one before may still be spinning
            seconds[name].append(one.step())
    found = {name: (programs.median(seconds[name]), one.end()) for name, one in ready.items()}
    print(f"  {'':<18}{'step ms':>9}{'least':>9}{'most':>9}{'peak MiB':>10}")
    for name, (middle, peak) in found.items():
        print(f"  {name:<18}{1e3 * middle:9.1f}{1e3 * min(seconds[name]):9.1f}{1e3 * max(seconds[name]):9.1f}{peak / 2**20:10.0f}",
              flush=True)
    return found


def report(prefix, found):
    peers = [value for name, value in found.items() if name in WORKERS]
    programs.result(f"{prefix}step_ms", 1e3 * found["Cinch"][0])
    programs.result(f"{prefix}peak_mib", found["Cinch"][1] / 2**20)
    if not peers:
        return
    best = min(peer[0] for peer in peers), min(peer[1] for peer in peers)
    for name, (middle, peak) in found.items():
        if name.startswith("Cinch"):
            key = prefix + ("" if name == "Cinch" else "budget_")
            programs.result(f"{key}step_ratio", middle / best[0])
            programs.result(f"{key}peak_ratio", peak / best[1])


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a small model, one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", default="512MiB", help="of the second program of ours; empty: none")
    parser.add_argument("--peers", default=",".join(WORKERS), help="some of: %(default)s")
    parser.add_argument("--rates", default="0.2,0", help="of dropout: 0, 0.2 or both")
    arguments = parser.parse_args()
    sizes, rounds = (QUICK, 1) if arguments.quick else (FULL, arguments.rounds)
    budget = "" if arguments.quick else arguments.budget
    programs.use_processors(arguments.threads)
    print("byte-level GPT: " + ", ".join(f"{key} {value}" for key, value in sizes.items()) +
          f"; {arguments.threads} threads; {programs.machine_line()}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "train.txt").write_bytes(random.Random(1).randbytes(1 << 20))
        found = {rate: compare(folder, sizes, rate, arguments.threads, budget if rate else "", arguments.peers.split(","),
                               rounds)
                 for rate in map(float, arguments.rates.split(","))}
    print(f"\n{programs.machine_line().replace('when this started', 'now')}")
    for rate, one in found.items():
        report("gpt." if rate else "gpt.plain.", one)


programs.main(body)
