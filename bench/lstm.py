#!/usr/bin/env python3
"""lstm: two LSTM layers over bytes beside PyTorch's nn.LSTM and JAX's lax.scan.   bench/lstm.py [--quick] [--rounds N]

Step time and peak memory as bench/gpt measures them (programs take turns; medians; VmHWM of each process; peers that are not installed are
left out). Then what only this compiler has to answer for: compile time and binary at many and at few time steps, and how the smallest
arena at a fixed micro-batch grows with the number of steps, beside the bytes that the products behind the loops need of every step.
If PyTorch is there, nn.LSTM computes logits from our parameters, too: `lstm.torch_difference` is the largest difference, as a share of
the largest logit.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs
from harness.peers import PEERS, PYTHON, Peer, installed

MODEL = programs.BENCH / "models" / "lstm.cinch"
FULL = {"layers": 2, "width": 256, "heads": 1, "length": 128, "vocabulary": 256, "batch": 64}
QUICK = {"layers": 2, "width": 32, "heads": 1, "length": 16, "vocabulary": 256, "batch": 8}
WORKERS = {"PyTorch nn.LSTM": ("torch_lstm.py",), "JAX lax.scan": ("jax_lstm.py",)}


def defines(sizes):
    return [text for key, name in (("width", "H"), ("length", "T"), ("batch", "B")) for text in ("-D", f"{name}={sizes[key]}")]


class Ours:
    def __init__(self, folder, sizes, threads, *flags):
        self.folder, self.threads, self.peak = folder, threads, 0
        self.exe = folder / ("ours" + "".join(c for c in "".join(flags) if c.isalnum()))
        programs.compile(MODEL, self.exe, *defines(sizes), "--max-threads", str(threads), *flags)

    def warm(self):
        self.step()

    def step(self):
        seconds, peak = programs.train(self.exe, self.folder, self.folder / "out", 2, self.threads)
        self.peak = max(self.peak, peak)
        return seconds[-1]

    def end(self):
        return self.peak


def compare(folder, sizes, threads, rounds):
    runners = {"Cinch": Ours(folder, sizes, threads), "Cinch, half the arena": None}
    half = runners["Cinch"]
    half.warm()
    budget = max(half.end() // 2, programs.smallest_budget(MODEL, *defines(sizes), "--max-threads", str(threads)))
    runners["Cinch, half the arena"] = Ours(folder, sizes, threads, "--memory-budget", str(budget))
    with open(folder / "errors", "w") as errors:
        for name, script in WORKERS.items():
            if not installed("jax" if "jax" in script[0] else "torch"):
                print(f"  {name}: not installed (bench/peers/setup)")
                continue
            try:
                runners[name] = Peer(script, sizes, 0, threads, errors)
            except (programs.Failed, OSError) as failure:
                print(f"  {name}: left out, {failure}")
        for runner in runners.values():
            runner.warm()
        times = {name: [] for name in runners}
        for _ in range(rounds):
            for name, runner in runners.items():
                times[name].append(runner.step())
        print(f"{'':24} {'step s':>8} {'peak MiB':>9}")
        medians, peaks = {}, {}
        for name, runner in runners.items():
            medians[name], peaks[name] = programs.median(times[name]), runner.end()
            print(f"{name:24} {medians[name]:8.3f} {peaks[name] / 2**20:9.1f}")
    peers = [name for name in WORKERS if name in medians]
    results = [("lstm.step_s", medians["Cinch"]), ("lstm.peak_mib", peaks["Cinch"] / 2**20)]
    if peers:
        results.append(("lstm.step_ratio", medians["Cinch"] / min(medians[name] for name in peers)))
        results.append(("lstm.peak_ratio", peaks["Cinch"] / min(peaks[name] for name in peers)))
    return results


def growth(folder, sizes, lengths):
    """Compile time, binary, and the smallest arena with all examples at once."""
    print(f"\n{'steps':>6} {'compile s':>9} {'binary':>9} {'smallest MiB':>12} {'needed of every step':>21} {'beyond it':>10}")
    rows = []
    for length in lengths:
        here = {**sizes, "length": length}
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            programs.compile(MODEL, folder / "grown", *defines(here))
            seconds.append(time.perf_counter() - start)
        least = programs.smallest_budget(MODEL, *defines(here), "--microbatch", str(here["batch"]))
        # Of every step: the states of each layer and the embeddings, which are their inputs, and of one layer the gradients of the
        # gates. The output layer works in blocks of rows.
        words = here["batch"] * length * here["width"] * (sizes["layers"] + 1 + 4)
        rows.append((length, programs.median(seconds), (folder / "grown").stat().st_size, least, 4 * words))
        print(f"{length:6} {rows[-1][1]:9.2f} {rows[-1][2]:9} {least / 2**20:12.1f} {4 * words / 2**20:21.1f} {(least - 4 * words) / 2**20:10.1f}")
    first, last = rows[0], rows[-1]
    return [("lstm.compile_ratio", last[1] / first[1]), ("lstm.binary_ratio", last[2] / first[2]),
            ("lstm.beyond_growth", (last[3] - last[4]) / max(1, first[3] - first[4]))]


def beside_torch(folder, sizes):
    """nn.LSTM from our parameters: how far its logits are from ours."""
    here = folder / "weights"
    here.mkdir()
    (here / "text.txt").write_bytes((folder / "text.txt").read_bytes()[: sizes["batch"] * sizes["length"] + 1])
    programs.compile(MODEL, here / "exe", *defines(sizes))
    programs.train(here / "exe", here, here / "out", 2, 2)
    done = subprocess.run([str(here / "exe"), "predict", "--data", str(here), "--out", str(here / "out")], capture_output=True, text=True)
    found = sorted((here / "out" / "predict").glob("**/*.npy"))
    if done.returncode or len(found) != 1:
        raise programs.Failed("predict: " + (done.stdout + done.stderr)[-1000:])
    found[0].rename(here / "logits.npy")
    done = subprocess.run([str(PYTHON), str(PEERS / "torch_lstm.py"), "--compare", str(here), str(sizes["length"])], capture_output=True, text=True)
    if done.returncode:
        raise programs.Failed("nn.LSTM: " + done.stderr[-1000:])
    return [("lstm.torch_difference", float(done.stdout))]


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    print(programs.machine_line())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draw = random.Random(3)
        (folder / "text.txt").write_bytes(bytes(draw.randrange(256) for _ in range(400000)))
        results = compare(folder, sizes, 2, 2 if arguments.quick else arguments.rounds)
        if installed("torch"):
            results += beside_torch(folder, QUICK)
        results += growth(folder, sizes, (8, 16) if arguments.quick else (64, 256, 1024))
    for result in results:
        programs.result(*result)


programs.main(body)
