"""Programs under measurement: the compiler as a command, the executables it writes, and what a process takes.

Peaks are VmHWM of the process itself, read while it runs: the ru_maxrss that the kernel hands out afterwards starts from the size of
whoever started the process.
"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

BENCH = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("BUILD", BENCH.parent / "build"))
# No plan from an earlier run, no profile but one that is named: below a file there is no folder, and none can be made.
os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = "/dev/null/none"
CINCH = os.environ.get("CINCH", str(BUILD / "bin" / "cinch"))

# The programs whose plans are looked at: name -> (path in the tree, options).
MODELS = {
    "examples/mlp": ("examples/mlp/mlp.cinch", []),
    "examples/gpt": ("examples/gpt/gpt.cinch", []),
    "small mlp": ("test/execute/mlp.cinch", []),
    "small gpt": ("test/execute/gpt.cinch", []),
    "chain": ("bench/models/chain.cinch", ["-D", "N=32"]),
    "deep": ("bench/models/deep.cinch", ["-D", "N=8"]),
    "gpt": ("bench/models/gpt.cinch", []),
    "gpt2": ("bench/models/gpt2_124m.cinch", ["-D", "B=8"]),
}


class Failed(Exception):
    """A command that was to be measured did not work."""


def result(name, value):
    print(f"RESULT {name} {value:.4g}" if isinstance(value, float) else f"RESULT {name} {value}", flush=True)


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def machine_line():
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{os.cpu_count()} processors, load {load} when this started"


def processor():
    """What this machine says it is."""
    with open("/proc/cpuinfo") as info:
        found = re.search(r"^model name\s*: (.*)$", info.read(), re.M)
    return found.group(1) if found else "a processor without a name"


def use_processors(count):
    """This process and all it starts run on `count` processors."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:count])


def plan(source, *options):
    """The plan that `cinch plan --json` prints, or None where the budget is refused."""
    done = subprocess.run([CINCH, "plan", str(source), "--json", *options], capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    if "does not fit into a memory budget" in done.stderr:
        return None
    raise Failed(f"cinch plan {source} {' '.join(options)}: exit {done.returncode}\n{done.stderr[:2000]}")


def smallest_budget(source, *options):
    """Bytes of the smallest budget that compiles, as the refusal of a smaller one says."""
    done = subprocess.run([CINCH, "plan", str(source), *options, "--memory-budget", "1KiB"], capture_output=True, text=True)
    found = re.search(r"smallest budget that compiles: (\d+) bytes", done.stderr)
    if not found:
        raise Failed(f"cinch plan {source}: no smallest budget\n{done.stderr[:2000]}")
    return int(found.group(1))


def compile(source, exe, *options):
    """Compiles; returns seconds of the wall clock and of the processor."""
    before = os.times()
    start = time.perf_counter()
    done = subprocess.run([CINCH, str(source), "-o", str(exe), *options], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    after = os.times()
    if done.returncode:
        raise Failed(f"cinch {source} {' '.join(options)}: exit {done.returncode}\n{done.stderr[:2000]}")
    work = after.children_user - before.children_user + after.children_system - before.children_system
    return seconds, work


class PeakWatch(threading.Thread):
    """Reads VmHWM of a running process until it is gone."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.bytes = f"/proc/{pid}/status", 0
        self.start()

    def run(self):
        while (now := peak_of(self.path)) is not None:
            self.bytes = max(self.bytes, now)
            time.sleep(0.02)


def peak_of(path):
    try:
        with open(path) as status:
            found = re.search(r"^VmHWM:\s*(\d+) kB", status.read(), re.M)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def train(exe, data, out, steps, threads, *more, started=None):
    """Runs a program that logs to CSV; returns the seconds a step between its lines, and the process's peak. `started` is told the process."""
    command = [str(exe), "--data", str(data), "--out", str(out), "--steps", str(steps), "--threads", str(threads), "--log", "csv", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        watch = PeakWatch(process.pid)
        if started:
            started(process)
        text = process.stdout.read()
        watch.join()
    if process.returncode:
        raise Failed(f"{' '.join(command)}: exit {process.returncode}\n{text[-2000:]}")
    said = re.search(r"peak memory (\d+) bytes", text)
    with open(pathlib.Path(out) / "log.csv") as log:
        ends = [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(log) if row["seconds"]]  # an evaluation has none
    return [(b - a) / (later - step) for (step, a), (later, b) in zip(ends, ends[1:]) if later > step], max(watch.bytes, int(said.group(1)) if said else 0)


def losses(out):
    """The losses that a program logged to CSV."""
    with open(pathlib.Path(out) / "log.csv") as log:
        return [float(row["loss"]) for row in csv.DictReader(log) if row["loss"]]


def bytes_of(file, wanted):
    """Bytes of the tensors of a safetensors file whose names are wanted."""
    with open(file, "rb") as tensors:
        entries = json.loads(tensors.read(int.from_bytes(tensors.read(8), "little")))
    return sum(entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in entries.items() if name != "__metadata__" and wanted(name))


def main(body):
    """Runs a benchmark; a failed command ends it with its own words instead of a trace."""
    try:
        body()
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
