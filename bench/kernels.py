#!/usr/bin/env python3
"""kernels: how long each kernel of the networks of `rivals` takes, from two compilers, without the plans' other effects.

    bench/kernels.py [--quick] [--old CINCH] [--models NAME,..] [--runs N] [--steps N] [--threads N] [--under COMMAND] [--shown N]

`--old` is another build of the compiler; without it the compiler is compared with itself, which shows the noise. Both programs take turns.
Of a kernel the median over the steps of a run counts, and the least of these over the runs, so that load of the machine is left out as far
as it comes and goes. `--under "chrt -f 1 taskset -c 1"` gives the programs a processor of their own where that is allowed.
"""
import argparse
import collections
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rivals
from harness import programs

PRODUCTS = ("contract", "conv", "attend", "attend_grad")


def compile(compiler, folder, name, model, sizes, threads):
    _, file, rate, _ = rivals.MODELS[model]
    exe = folder / name
    command = [compiler, programs.BENCH / "models" / file, "-o", exe, "--max-threads", str(threads), "--memory-budget", "1000GiB",
               "--set", "train.steps=100000", "--no-kernel-cache", "--no-plan-cache"]
    command += [text for key, value in sizes.items() for text in ("-D", f"{key}={value}")]
    command += ["-D", f"rate={rate}"] if rate is not None else []
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise programs.Failed(f"{compiler} {file}: exit {done.returncode}\n{done.stderr[:2000]}")
    return exe


def times(exe, folder, arguments, steps):
    """Seconds a step of each launch, by its number."""
    file = folder / "times"
    command = [*shlex.split(arguments.under), str(exe), "--data", str(folder), "--out", str(folder / "out"), "--steps", str(steps),
               "--threads", str(arguments.threads), "--log", "none", "--quiet", "--kernel-times", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise programs.Failed(f"{exe}: exit {done.returncode}\n{done.stderr[-2000:]}")
    lines = [line.rstrip("\n").split("\t") for line in open(file)]
    return {int(number): (int(calls) / steps * float(median), name) for number, calls, _, _, median, _, _, name in lines if int(calls)}


def by_name(runs):
    least = {}
    for run in runs:
        for number, (seconds, name) in run.items():
            least[number] = (min(seconds, least.get(number, (seconds,))[0]), name)
    sums = collections.Counter()
    for seconds, name in least.values():
        sums[name] += seconds
    return sums


def is_product(name):
    return name.rsplit(": ", 1)[-1].split(" ")[0] in PRODUCTS


def measure(folder, model, sizes, arguments):
    rivals.write_batch(folder, rivals.MODELS[model][0], sizes)
    compilers = {"old": arguments.old or programs.CINCH, "new": programs.CINCH}
    exes = {name: compile(compiler, folder, name, model, sizes, arguments.threads) for name, compiler in compilers.items()}
    runs = {name: [] for name in exes}
    for _ in range(arguments.runs):
        for name, exe in exes.items():
            runs[name].append(times(exe, folder, arguments, arguments.steps))
    old, new = by_name(runs["old"]), by_name(runs["new"])

    def row(what, wanted):
        before, after = (sum(seconds for name, seconds in sums.items() if wanted(name)) for sums in (old, new))
        print(f"  {1e3 * before:9.3f} -> {1e3 * after:9.3f} ms  {after / before:6.3f}  {what}")
        return after / before

    whole = row("all kernels", lambda name: True)
    if any(map(is_product, old)):
        row("products, convolutions and attention", is_product)
    row("all others", lambda name: not is_product(name))
    for name in sorted(old.keys() | new.keys(), key=lambda name: -abs(old[name] - new[name]))[:arguments.shown]:
        print(f"  {1e3 * old[name]:9.3f} -> {1e3 * new[name]:9.3f} ms          {name}")
    return whole


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a small U-Net, one run")
    parser.add_argument("--old")
    parser.add_argument("--models", default="mlp,gpt,resnet18,unet,lstm", help=f"some of {','.join(rivals.MODELS)}; absent: %(default)s")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--under", default="")
    parser.add_argument("--shown", type=int, default=15, help="kernels of each network, those that differ most")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.models, arguments.runs, arguments.steps = "unet", 1, 3
    print(f"{programs.processor()}; {arguments.threads} threads; {programs.machine_line()}")
    ratios = {}
    for model in arguments.models.split(","):
        sizes = (rivals.QUICK if arguments.quick else rivals.SIZES)[rivals.MODELS[model][0]]
        print(f"\n{model}", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            ratios[model] = measure(pathlib.Path(temporary), model, sizes, arguments)
    for model, ratio in ratios.items():
        programs.result(f"kernels.{model}.ratio", ratio)


if __name__ == "__main__":
    programs.main(body)
