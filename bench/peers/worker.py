"""What every peer shares: its network, options and starting point come as options, its orders as lines on standard input, its answers
as lines on standard output.

`step N` runs N steps and answers with the seconds of one and the last loss; `warm N` does the same behind some steps that are not timed;
`peak` answers with the most bytes this process ever held.
The parameters are those of a safetensors file, under our names; the batch is the one that lies in the folder of data.
"""
import argparse
import json
import pathlib
import re
import sys
import time
import typing

import numpy


class Task(typing.NamedTuple):
    network: str
    sizes: dict        # the network's, see bench/rivals.py
    rate: float        # of dropout
    threads: int
    variant: str       # of the settings that a framework offers
    weights: str
    data: pathlib.Path


def task():
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("--sizes", type=json.loads, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    return Task(**vars(parser.parse_args()))


def parameters(path):
    """{name: array} of a safetensors file of f32."""
    with open(path, "rb") as file:
        entries = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: numpy.frombuffer(data[slice(*entry["data_offsets"])], numpy.float32).reshape(entry["shape"]).copy()
            for name, entry in entries.items() if name != "__metadata__"}


def batch(the):
    """The inputs and the labels of the one batch; of text, rows of one more than T tokens."""
    if "T" not in the.sizes:
        return numpy.load(the.data / "x.npy"), numpy.load(the.data / "y.npy")
    rows, length = the.sizes["B"], the.sizes["T"]
    kind, name = (numpy.uint16, "train.bin") if the.sizes["V"] > 256 else (numpy.uint8, "train.txt")
    tokens = numpy.fromfile(the.data / name, kind).astype(numpy.int32)
    windows = numpy.stack([tokens[row * length:row * length + length + 1] for row in range(rows)])
    return windows[:, :-1], windows[:, 1:]


def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status.read()).group(1))


WARM = 3 # steps: measured with JAX, whose first three steps behind a pause of two seconds took twice as long as those that followed


def serve(step, imported):
    """`imported`: the peak before the network was made, with the framework's libraries in memory."""
    print("ready", imported, flush=True)
    for order in sys.stdin:
        word, *rest = order.split()
        if word in ("step", "warm"):
            count = int(rest[0])
            for _ in range(WARM if word == "warm" else 0):
                step()
            start = time.perf_counter()
            for _ in range(count):
                loss = step()
            print((time.perf_counter() - start) / count, loss, flush=True)
        elif word == "peak":
            print(peak(), flush=True)
