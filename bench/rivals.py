#!/usr/bin/env python3
"""rivals: a training step of seven networks beside PyTorch and JAX: time and peak memory.

    bench/rivals.py [--quick] [--models NAME,..] [--pairs N] [--threads N] [--precision bf16]

The same network, batch, precision (f32, or bf16), threads and update (bench/peers; ours in bench/models). Every program starts from the same
parameters, and the losses of the first three steps are compared where nothing is drawn: that covers network, gradients and update.
PyTorch runs eagerly, for pictures with channels_last too, with the C library's memory as it is and kept in huge pages, and by torch.compile with what of these was
quickest; JAX in one jitted step, with both kinds of memory unless it is far behind. What is quickest of all these in a few steps meets ours in pairs that take turns: the ratio of a model is the
median of the pairs'. Beside it ours with budgets: parameters, gradients and state plus half of what it took beyond them, and the smallest.
With bf16 PyTorch runs under torch.autocast, JAX casts parameters and inputs to bf16 for the network, and our own step in f32 takes turns, too.
Loading data and the first steps are left out: of ours the first of a run, of the peers the first three behind each pause. Peaks are VmHWM of each process; of the peers, the least of any setting counts. `beyond` is
what exceeds parameters, gradients and state; of the peers also without what importing the framework takes. `floor` is the least time that any
program with the same products needs at the peak of FMAs measured beside the steps, so best peer / floor is the most that can be reached.
"""
import argparse
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, floor, programs
from harness.peers import Peer, installed

SIZES = {
    "mlp": {"B": 128, "I": 784, "H": 1024, "C": 10},
    "gpt": {"B": 16, "T": 256, "V": 256, "N": 6, "D": 384, "A": 6},
    "gpt2": {"B": 1, "T": 512, "V": 50257, "N": 12, "D": 768, "A": 12},
    "resnet18": {"B": 32, "S": 32, "C": 10, "F": 64},
    "unet": {"B": 32, "S": 64, "C": 4, "F": 16},
    "lstm": {"B": 64, "T": 128, "V": 256, "H": 256},
}
QUICK = {
    "mlp": {"B": 16, "I": 784, "H": 64, "C": 10},
    "gpt": {"B": 4, "T": 64, "V": 256, "N": 2, "D": 64, "A": 2},
    "gpt2": {"B": 1, "T": 64, "V": 1000, "N": 2, "D": 64, "A": 2},
    "resnet18": {"B": 4, "S": 32, "C": 10, "F": 8},
    "unet": {"B": 2, "S": 32, "C": 4, "F": 8},
    "lstm": {"B": 8, "T": 16, "V": 256, "H": 32},
}
# name -> (network, file, rate of dropout or None where there is none, copies of the parameters that the update keeps)
MODELS = {
    "mlp": ("mlp", "mlp.cinch", None, 1),
    "gpt": ("gpt", "gpt.cinch", 0.2, 2),
    "gpt_plain": ("gpt", "gpt.cinch", 0.0, 2),
    "gpt2": ("gpt2", "gpt2_124m.cinch", 0.1, 2),
    "gpt2_plain": ("gpt2", "gpt2_124m.cinch", 0.0, 2),
    "resnet18": ("resnet18", "resnet18.cinch", None, 1),
    "unet": ("unet", "unet.cinch", None, 2),
    "lstm": ("lstm", "lstm.cinch", None, 2),
}
USUAL = [name for name in MODELS if name != "gpt2_plain"]
CLOSE = 1.05   # a setting this near the quickest takes part in the pairs, the two quickest at most
FAR = 1.3      # one this far from it is not tried with memory kept, too


def write_batch(folder, network, sizes):
    """One batch, and nothing else."""
    draw = random.Random(1)
    if "T" in sizes:
        count = sizes["B"] * sizes["T"] + 1
        tokens = [draw.randrange(min(sizes["V"], 256)) for _ in range(count)]
        for name in ("train", "valid", "text"):
            (folder / f"{name}.txt").write_bytes(bytes(tokens))
            (folder / f"{name}.bin").write_bytes(struct.pack(f"<{count}H", *tokens))
        return
    shape = (sizes["B"], sizes["I"]) if network == "mlp" else (sizes["B"], 3, sizes["S"], sizes["S"])
    places = (sizes["B"], sizes["S"], sizes["S"]) if network == "unet" else (sizes["B"],)
    data.write_array(folder / "x.npy", "f", shape, [draw.random() for _ in range(math.prod(shape))])
    data.write_array(folder / "y.npy", "i", places, [draw.randrange(sizes["C"]) for _ in range(math.prod(places))])


class Ours:
    """Our program, with a budget or without."""

    def __init__(self, folder, model, sizes, threads, precision, budget=None):
        network, file, rate, _ = MODELS[model]
        self.folder, self.threads, self.peak, self.losses = folder, threads, 0, []
        self.exe = folder / f"ours.{precision}{budget or ''}"
        self.source = programs.BENCH / "models" / file
        self.options = [text for key, value in sizes.items() for text in ("-D", f"{key}={value}")] + ["--max-threads", str(threads)]
        self.options += ["-D", f"rate={rate}"] if rate is not None else []
        self.options += ["--set", f"train.precision={precision}"] if precision != "f32" else []
        self.values = ["--set", "warmup=0"] if network in ("gpt", "gpt2") else []   # the rate from the first step on
        programs.compile(self.source, self.exe, *self.options, "--memory-budget", str(budget or "1000GiB"))

    def run(self, steps, *more):
        self.seconds, peak = programs.train(self.exe, self.folder, self.folder / "out", steps, self.threads, *self.values, *more)
        self.peak = max(self.peak, peak)

    def initial(self):
        """Where a run starts: a step that moves nothing, saved."""
        self.run(1, "--set", "lr=0")
        return self.folder / "out" / "final.safetensors"

    def first_losses(self, count):
        self.run(count)
        return programs.losses(self.folder / "out")

    def steps(self, count=1):
        """Seconds a step; the first one meets its memory for the first time and is dropped."""
        self.run(count + 1)
        return sum(self.seconds) / len(self.seconds)

    def smallest(self):
        return programs.smallest_budget(self.source, *self.options)

    def end(self):
        return self.peak


def settings(network, tried):
    """Yields (name, framework, variant, memory kept). torch.compile takes what was quickest eagerly: `tried` grows meanwhile."""
    eager = {}
    for layout in ("", "channels_last") if network in ("resnet18", "unet") else ("",):
        for kept in (False, True):
            rest = "".join(", " + part for part in (layout.replace("_", " "), "memory kept" if kept else "") if part)
            eager["PyTorch eager" + rest] = (layout, kept, "torch.compile" + rest)
            yield "PyTorch eager" + rest, "torch", layout, kept
    if eager.keys() & tried.keys():
        layout, kept, name = eager[min(eager.keys() & tried.keys(), key=tried.get)]
        yield name, "torch", f"compile {layout}", kept
    yield "JAX jit", "jax", "", False
    if "JAX jit" in tried and tried["JAX jit"] < FAR * min(tried.values()):
        yield "JAX jit, memory kept", "jax", "", True


NEAR = {"f32": (1e-4, 1e-2), "bf16": (1e-2, 1e-1)}   # how far the first and the third loss may be off, relatively


def same_network(name, peer, expected, drawn, precision):
    """Compares the losses of the first three steps; returns the largest difference of the first and of the third."""
    differences = [abs(a - b) / abs(b) for a, b in zip(peer.losses, expected)]
    first, later = NEAR[precision]
    if not drawn and (differences[0] > first or max(differences) > later):
        raise SystemExit(f"{name}: another network: losses {peer.losses[:3]}, ours {expected}")
    return max(differences)


class Field:
    """The peers of one model: tried one after the other, the quickest kept for the pairs."""

    def __init__(self, network, sizes, rate, weights, folder, threads, precision, expected, tries):
        self.kept, self.peaks, self.tried = {}, {}, {}
        drawn = bool(rate)
        self.difference = 0.0
        modules = {module: installed(module) for module in ("torch", "jax")}
        log = folder / "peers.log"
        for name, framework, variant, kept in settings(network, self.tried):
            if not modules[framework]:
                print(f"  {name}: not installed (bench/peers/setup)")
                continue
            with open(log, "w") as errors:
                try:
                    words = variant if precision == "f32" else f"{variant} {precision}"
                    peer = Peer(framework, network, sizes, rate or 0, words, kept, weights, folder, threads, errors)
                    for _ in range(3):
                        peer.steps(order="step")
                    if not drawn:
                        self.difference = max(self.difference, same_network(name, peer, expected, drawn, precision))
                    seconds = min(peer.steps() for _ in range(tries))
                except programs.Failed as failure:
                    print(f"  {name}: left out, {failure}: {log.read_text()[-300:]}")
                    continue
            self.tried[name] = seconds
            print(f"  tried {name}: {1e3 * seconds:.1f} ms", flush=True)
            self.kept[name] = (seconds, peer)
            self.drop_slow()
        self.peers = {name: peer for name, (_, peer) in self.kept.items()}

    def drop_slow(self):
        order = sorted(self.kept, key=lambda name: self.kept[name][0])
        least = self.kept[order[0]][0]
        for place, name in enumerate(order):
            if place >= 2 or self.kept[name][0] > CLOSE * least:
                self.close(name, self.kept.pop(name)[1])

    def close(self, name, peer):
        self.peaks[name] = (peer.end(), peer.imported)

    def end(self):
        for name, peer in self.peers.items():
            self.close(name, peer)


def measure(folder, model, sizes, arguments):
    """Prints the table of one model and returns what its RESULT lines say."""
    network, _, rate, copies = MODELS[model]
    write_batch(folder, network, sizes)
    precision = arguments.precision
    free = Ours(folder, model, sizes, arguments.threads, precision)
    weights = free.initial().rename(folder / "start.safetensors")
    expected = free.first_losses(3)
    field = Field(network, sizes, rate, weights, folder, arguments.threads, precision, expected, 1 if arguments.quick else 2)
    held = programs.bytes_of(weights, lambda name: ".running_" not in name) * (2 + copies)
    smallest = free.smallest()
    half = max(smallest, held + (free.end() - held) // 2)
    ours = {"Cinch": free, "Cinch, half": Ours(folder, model, sizes, arguments.threads, precision, half),
            "Cinch, smallest": Ours(folder, model, sizes, arguments.threads, precision, smallest)}
    if precision != "f32":
        ours["Cinch, f32"] = Ours(folder, model, sizes, arguments.threads, "f32")
    one = ours["Cinch"].steps()
    count = 1 if arguments.quick else max(1, min(100, round(0.3 / one)))     # steps a turn: at least a third of a second
    runners = {**ours, **field.peers}
    budgets = [ours["Cinch, half"], ours["Cinch, smallest"]]   # a third of the turns is enough
    times = {name: [] for name in runners}
    peaks = [floor.peak(arguments.threads, precision)]
    for pair in range(arguments.pairs):
        for name, runner in runners.items():
            if runner in budgets and pair % 3:
                continue
            time.sleep(0.2) # the threads of the one before may still be spinning
            times[name].append(runner.steps(count))
        peaks.append(floor.peak(arguments.threads, precision))
    field.end()
    found = report(model, times, ours, field, held, smallest, half)
    add_floor(found, free, field, times, peaks)
    return found


def add_floor(found, ours, field, times, peaks):
    if None in peaks:
        return
    work = floor.operations(ours.source, *ours.options)
    found["floor_ms"] = 1e3 * work / max(peaks)
    found["over_floor"] = found["step_ms"] / found["floor_ms"]
    if field.peers:
        found["reachable"] = 1e3 * programs.median(times[found["best_peer"]]) / found["floor_ms"]
    print(f"  products, convolutions and attention: {work * 1e-9:.1f} G operations, {found['floor_ms']:.1f} ms at the peak of {max(peaks) * 1e-9:.0f} GFLOP/s "
          f"(least seen {min(peaks) * 1e-9:.0f})", flush=True)


def report(model, times, ours, field, held, smallest, half):
    mebi = 2**20
    medians = {name: programs.median(values) for name, values in times.items()}
    print(f"  {'':<42}{'step ms':>9}{'least':>9}{'most':>9}{'peak MiB':>10}{'beyond':>9}{'imports':>9}")
    for name, values in times.items():
        peak, imported = (ours[name].end(), 0) if name in ours else field.peaks[name]
        print(f"  {name:<42}{1e3 * medians[name]:9.1f}{1e3 * min(values):9.1f}{1e3 * max(values):9.1f}{peak / mebi:10.0f}"
              f"{(peak - held) / mebi:9.0f}{imported / mebi:9.0f}")
    for name, seconds in field.tried.items():
        if name not in times:
            peak, imported = field.peaks[name]
            print(f"  {name:<42}{1e3 * seconds:9.1f}{'a few steps':>18}{peak / mebi:10.0f}{(peak - held) / mebi:9.0f}{imported / mebi:9.0f}")
    print(f"  parameters, gradients and state {held / mebi:.0f} MiB; budgets {half / mebi:.1f} and {smallest / mebi:.1f} MiB; "
          f"largest difference of a loss {field.difference:.1e}", flush=True)
    free = times["Cinch"]
    found = {"step_ms": 1e3 * medians["Cinch"], "peak_mib": ours["Cinch"].end() / mebi,
             "half_ratio": programs.median([b / a for a, b in zip(free[::3], times["Cinch, half"])]),
             "smallest_ratio": programs.median([b / a for a, b in zip(free[::3], times["Cinch, smallest"])])}
    if "Cinch, f32" in times:
        found["f32_ratio"] = programs.median([b / a for a, b in zip(free, times["Cinch, f32"])])
    if field.peers:
        best = min(field.peers, key=lambda name: medians[name])
        found["best_peer"] = best
        found["speedup"] = programs.median([b / a for a, b in zip(free, times[best])])
        beyond = ours["Cinch"].end() - held
        found["peak_ratio"] = ours["Cinch"].end() / min(peak for peak, _ in field.peaks.values())
        found["beyond_ratio"] = beyond / (min(peak for peak, _ in field.peaks.values()) - held)
        found["beyond_without_imports_ratio"] = beyond / (min(peak - imported for peak, imported in field.peaks.values()) - held)
    return found


def summary(found):
    print(f"\n{'':<12}{'ours ms':>9}{'times as fast as the best peer':>32}{'half':>7}{'smallest':>9}{'peak MiB':>10}{'of peer':>9}{'beyond':>8}{'no imports':>11}"
          f"{'floor ms':>10}{'ours/floor':>11}{'peer/floor':>11}")
    for name, one in found.items():
        row = f"{name:<12}{one['step_ms']:9.1f}"
        row += f"{one['speedup']:6.2f} {one['best_peer']:<25}" if "speedup" in one else " " * 32
        row += f"{one['half_ratio']:7.2f}{one['smallest_ratio']:9.2f}{one['peak_mib']:10.0f}"
        if "speedup" in one:
            row += f"{one['peak_ratio']:9.2f}{one['beyond_ratio']:8.2f}{one['beyond_without_imports_ratio']:11.2f}"
        if "reachable" in one:
            row += f"{one['floor_ms']:10.1f}{one['over_floor']:11.2f}{one['reachable']:11.2f}"
        print(row)
    for name, one in found.items():
        if "f32_ratio" in one:
            print(f"{name:<12}our step in f32 takes {one['f32_ratio']:.2f} times as long")
    for name, one in found.items():
        for key, value in one.items():
            if key != "best_peer":
                programs.result(f"rivals.{name}.{key}", value)
    ratios = [one["speedup"] for one in found.values() if "speedup" in one]
    if ratios:
        programs.result("rivals.speedup_geomean", math.exp(sum(map(math.log, ratios)) / len(ratios)))
        programs.result("rivals.speedup_least", min(ratios))
        reachable = [one["reachable"] for one in found.values() if "reachable" in one]
        if reachable:
            programs.result("rivals.reachable_geomean", math.exp(sum(map(math.log, reachable)) / len(reachable)))
        programs.result("rivals.beyond_worst", max(one["beyond_ratio"] for one in found.values() if "speedup" in one))
    programs.result("rivals.half_worst", max(one["half_ratio"] for one in found.values()))


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small networks, one pair")
    parser.add_argument("--models", default=",".join(USUAL), help=f"some of {','.join(MODELS)}; absent: %(default)s")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs = 1
    programs.use_processors(arguments.threads)
    print(f"{programs.processor()}; {arguments.threads} threads, {arguments.precision}; {programs.machine_line()}")
    found = {}
    for model in arguments.models.split(","):
        sizes = (QUICK if arguments.quick else SIZES)[MODELS[model][0]]
        print(f"\n{model}: " + ", ".join(f"{key} {value}" for key, value in sizes.items()), flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            found[model] = measure(pathlib.Path(temporary), model, sizes, arguments)
    print(f"\n{programs.machine_line().replace('when this started', 'now')}")
    summary(found)


if __name__ == "__main__":
    programs.main(body)
