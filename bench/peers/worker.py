"""What every peer shares: its sizes come as options, its orders as lines on standard input, its answers as lines on standard output.

`step` runs one step and answers with its seconds and the loss; `peak` answers with the most bytes this process ever held.
"""
import argparse
import re
import sys
import time
import typing


class Sizes(typing.NamedTuple):
    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    batch: int
    rate: float
    threads: int
    compile: bool


def options():
    parser = argparse.ArgumentParser()
    for name in ("layers", "width", "heads", "length", "vocabulary", "batch", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--compile", action="store_true")
    return Sizes(**vars(parser.parse_args()))


def serve(step):
    print("ready", flush=True)
    for order in sys.stdin:
        if order.strip() == "step":
            start = time.perf_counter()
            loss = step()
            print(time.perf_counter() - start, loss, flush=True)
        elif order.strip() == "peak":
            with open("/proc/self/status") as status:
                print(1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status.read()).group(1)), flush=True)
