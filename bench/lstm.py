#!/usr/bin/env python3
"""lstm: what the number of time steps costs the compiler, two LSTM layers of 256 over bytes.   bench/lstm.py [--quick]

Compile time and binary at many and at few time steps, and how the smallest arena at a fixed micro-batch grows with the number of steps, beside the
bytes that the products behind the loops need of every step. What a training step takes beside PyTorch and JAX: bench/rivals.
"""
import argparse
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

MODEL = programs.BENCH / "models" / "lstm.cinch"
LAYERS = 2
FULL = {"H": 256, "B": 64}
QUICK = {"H": 32, "B": 8}


def growth(folder, sizes, lengths):
    """Compile time, binary, and the smallest arena with all examples at once."""
    print(f"\n{'steps':>6} {'compile s':>9} {'binary':>9} {'smallest MiB':>12} {'needed of every step':>21} {'beyond it':>10}")
    rows = []
    for length in lengths:
        options = [text for name, value in {**sizes, "T": length}.items() for text in ("-D", f"{name}={value}")]
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            programs.compile(MODEL, folder / "grown", *options)
            seconds.append(time.perf_counter() - start)
        least = programs.smallest_budget(MODEL, *options, "--microbatch", str(sizes["B"]))
        # Of every step: the states of each layer and the embeddings, which are their inputs, and of one layer the gradients of the
        # gates. The output layer works in blocks of rows.
        words = sizes["B"] * length * sizes["H"] * (LAYERS + 1 + 4)
        rows.append((length, programs.median(seconds), (folder / "grown").stat().st_size, least, 4 * words))
        print(f"{length:6} {rows[-1][1]:9.2f} {rows[-1][2]:9} {least / 2**20:12.1f} {4 * words / 2**20:21.1f} {(least - 4 * words) / 2**20:10.1f}")
    first, last = rows[0], rows[-1]
    return [("lstm.compile_ratio", last[1] / first[1]), ("lstm.binary_ratio", last[2] / first[2]),
            ("lstm.beyond_growth", (last[3] - last[4]) / max(1, first[3] - first[4]))]


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    print(programs.machine_line())
    with tempfile.TemporaryDirectory() as name:
        results = growth(pathlib.Path(name), QUICK if arguments.quick else FULL, (8, 16) if arguments.quick else (64, 256, 1024))
    for result in results:
        programs.result(*result)


programs.main(body)
