#!/usr/bin/env python3
"""bf16: what precision bf16 does to losses, times and bytes, beside f32.   bench/bf16.py [--quick] [--models NAME ..] [--seeds N] [--steps N]
[--pairs N]

The byte GPT, the LSTM and the ResNet (examples/gpt, lstm and resnet, narrower and shorter) and the MLP (examples/mlp) train in both
precisions from the same seeds. Of each: the
curve of the loss, its mean over the last tenth of the steps, the loss on data that was not trained on, and the difference between the
precisions beside the spread of the seeds. Then the time of a step, both taking turns, as the median of the pairs, also of a GPT of
10.8 M parameters; the peak of the process, and the arena. Last, every example compiles.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

ROOT = programs.BENCH.parent
PRECISIONS = ("f32", "bf16")
TENTHS = 10


class Model:
    """A program in both precisions."""

    def __init__(self, folder, name, path, defines, threads, steps):
        self.folder, self.name, self.path, self.threads, self.steps = folder, name, ROOT / path, threads, steps
        self.options = [text for key, value in defines.items() for text in ("-D", f"{key}={value}")] + ["--max-threads", str(threads)]
        self.exe = {precision: folder / f"{name}.{precision}" for precision in PRECISIONS}
        self.arena = {}
        for precision, exe in self.exe.items():
            options = [*self.options, "--set", f"train.precision={precision}"]
            programs.compile(self.path, exe, *options)
            self.arena[precision] = programs.plan(self.path, *options)["arena"]

    def run(self, precision, steps, *more):
        """Seconds of a step, of each stretch between two lines of the log, and the peak."""
        return programs.train(self.exe[precision], self.folder, self.folder / "out", steps, self.threads, *more)

    def losses(self, precision, seed):
        """The mean loss of each tenth of a run, and the loss on the other data behind it."""
        self.run(precision, self.steps, "--set", f"seed={seed}", "--set", f"steps={self.steps}")
        rows = [line.split(",") for line in (self.folder / "out" / "log.csv").read_text().splitlines()]
        step, mean = rows[0].index("step"), rows[0].index("mean_loss")
        sums, counts, last = [0.0] * TENTHS, [0] * TENTHS, 0
        for row in rows[1:]:
            if not row[mean]:  # of an evaluation
                continue
            now = int(row[step])
            part = min(TENTHS - 1, (now - 1) * TENTHS // self.steps)
            sums[part] += (now - last) * float(row[mean])
            counts[part] += now - last
            last = now
        command = [str(self.exe[precision]), "eval", "--on", "valid", "--batches", "20", "--data", str(self.folder), "--out",
                   str(self.folder / "out"), "--threads", str(self.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise programs.Failed(" ".join(command) + "\n" + (done.stdout + done.stderr)[-1000:])
        return [total / count if count else None for total, count in zip(sums, counts)], json.loads(done.stdout.splitlines()[-1])["loss"]


def make_data(folder, quick):
    digits = ["--train", "256" if quick else "2048", "--test", "128" if quick else "1280"]
    pictures = ["--train", "320" if quick else "1600", "--test", "64" if quick else "320"]
    scripts = (("gpt/data.py", ["--licences"] if quick else []), ("mlp/digits.py", digits), ("resnet/images.py", pictures))
    for script, options in scripts:
        subprocess.run([sys.executable, str(ROOT / "examples" / script), str(folder), *options], check=True, stdout=subprocess.DEVNULL)


def mean(values):
    return sum(values) / len(values)


def compare_losses(model, seeds):
    """Prints the curves and the last losses; returns the result lines."""
    found = {precision: [] for precision in PRECISIONS}
    for seed in range(1, seeds + 1):
        for precision in PRECISIONS:
            found[precision].append(model.losses(precision, seed))
    print(f"\n{model.name}: {model.steps} steps, mean loss of each tenth, means of {seeds} seeds")
    print(f"  {'':<12}{'f32':>9}{'bf16':>9}{'difference':>12}")
    for tenth in range(TENTHS):
        row = [[curve[tenth] for curve, _ in found[precision]] for precision in PRECISIONS]
        if None not in row[0] + row[1]:
            f32, bf16 = map(mean, row)
            print(f"  to {(tenth + 1) * model.steps // TENTHS:<9}{f32:9.4f}{bf16:9.4f}{bf16 - f32:12.4f}")
    results = []
    for what, part in (("last", lambda run: run[0][-1]), ("valid", lambda run: run[1])):
        f32, bf16 = ([part(run) for run in found[precision]] for precision in PRECISIONS)
        print(f"  {what} loss" + ("" if what == "valid" else f", mean of the last {model.steps // TENTHS} steps"))
        print(f"    {'seed':<10}{'f32':>9}{'bf16':>9}{'difference':>12}")
        for seed, (one, other) in enumerate(zip(f32, bf16), 1):
            print(f"    {seed:<10}{one:9.4f}{other:9.4f}{other - one:12.4f}")
        spread = statistics.stdev(f32)
        print(f"    {'mean':<10}{mean(f32):9.4f}{mean(bf16):9.4f}{mean(bf16) - mean(f32):12.4f}")
        print(f"    {'spread':<10}{spread:9.4f}{statistics.stdev(bf16):9.4f}   (deviation between the seeds)", flush=True)
        results += [(f"bf16.{model.name}.{what}_f32", mean(f32)), (f"bf16.{model.name}.{what}_difference", mean(bf16) - mean(f32)),
                    (f"bf16.{model.name}.{what}_spread", spread)]
    return results


def compare_times(models, pairs):
    """Runs take turns; a step is the median of a run's, without the stretch that meets its memory for the first time."""
    print(f"\n{'':14}{'step ms, f32':>13}{'bf16':>9}{'ratio':>8}{'peak MiB, f32':>15}{'bf16':>8}{'arena MiB, f32':>16}{'bf16':>8}")
    results = []
    for model, steps in models:
        seconds, peak = {precision: [] for precision in PRECISIONS}, dict.fromkeys(PRECISIONS, 0)
        for pair in range(pairs):
            for precision in PRECISIONS if pair % 2 == 0 else reversed(PRECISIONS):
                stretches, most = model.run(precision, steps)
                seconds[precision].append(programs.median(stretches[1:] or stretches))
                peak[precision] = max(peak[precision], most)
        f32, bf16 = (1e3 * programs.median(seconds[precision]) for precision in PRECISIONS)
        ratio = programs.median([other / one for one, other in zip(seconds["f32"], seconds["bf16"])])
        memory = [number / 2**20 for number in (peak["f32"], peak["bf16"], model.arena["f32"], model.arena["bf16"])]
        print(f"{model.name:14}{f32:13.2f}{bf16:9.2f}{ratio:8.2f}{memory[0]:15.1f}{memory[1]:8.1f}{memory[2]:16.1f}{memory[3]:8.1f}", flush=True)
        key = f"bf16.{model.name}"
        results += [(key + ".step_ratio", ratio), (key + ".peak_ratio", memory[1] / memory[0]), (key + ".arena_ratio", memory[3] / memory[2])]
    return results


def arenas_of_examples():
    """Bytes of every example in both precisions."""
    print(f"\n{'example':12}{'arena MiB, f32':>16}{'bf16':>9}{'ratio':>8}")
    results = []
    for path in sorted((ROOT / "examples").glob("*/*.cinch")):
        f32, bf16 = (programs.plan(path, "--set", f"train.precision={precision}")["arena"] / 2**20 for precision in PRECISIONS)
        print(f"{path.stem:12}{f32:16.1f}{bf16:9.1f}{bf16 / f32:8.2f}", flush=True)
        results.append((f"bf16.examples.{path.stem}.arena_ratio", bf16 / f32))
    return results


def machine():
    with open("/proc/cpuinfo") as file:
        text = file.read()
    flags = set(re.search(r"^flags\s*:(.*)", text, re.M).group(1).split())
    units = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    return f"{re.search(r'^model name.*: (.*)', text, re.M).group(1)} ({', '.join(units)}); {programs.machine_line()}"


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two seeds, few steps, one pair")
    parser.add_argument("--models", nargs="+", default=["gpt", "mlp", "lstm", "resnet"])
    parser.add_argument("--seeds", type=int, default=3, help="two or more")
    parser.add_argument("--steps", type=int, default=1500, help="of the GPT; the others take a half, a third and a tenth of them")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    quick = arguments.quick
    seeds, steps, pairs = (2, 40, 1) if quick else (max(2, arguments.seeds), arguments.steps, arguments.pairs)
    programs.use_processors(arguments.threads)
    print(f"{machine()}; {arguments.threads} threads", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_data(folder, quick)
        # name -> (its program, sizes, steps for the losses, steps for the times)
        known = {"gpt": ("examples/gpt/gpt.cinch", {"B": 16, "T": 64, "D": 64, "N": 2, "A": 2}, steps, 40),
                 "mlp": ("examples/mlp/mlp.cinch", {}, steps // 2, 60),
                 "lstm": ("examples/lstm/lstm.cinch", {"B": 16, "T": 32, "H": 64}, steps // 3, 60),
                 "resnet": ("examples/resnet/resnet.cinch", {"B": 32, "F": 8}, max(TENTHS, steps // 10), 4)}
        timed = []
        for which in arguments.models:
            path, sizes, long, short = known[which]
            timed.append((Model(folder, which, path, sizes, arguments.threads, long), short))
        results = [result for model, _ in timed for result in compare_losses(model, seeds)]
        if not quick and "gpt" in arguments.models:
            timed.append((Model(folder, "gpt_10m", "bench/models/gpt.cinch", {"B": 4}, arguments.threads, 0), 3))
        results += compare_times(timed, pairs)
    if not quick:
        results += arenas_of_examples()
    print(f"\n{programs.machine_line().replace('when this started', 'now')}")
    for result in results:
        programs.result(*result)


programs.main(body)
