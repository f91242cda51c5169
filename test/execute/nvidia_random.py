#!/usr/bin/python3
"""Random well-typed programs (random_program/) for a GPU, executed on the CPU (standin.py), each under the smallest budget that its refusal names, without and with
memory of the host, and freely. In f32 they leave the bits of the CPU's program; in bf16 and in tf32, for an A100 or an H200, one set of bits each. A program that ends for a reason of its own
(a number that is not finite) ends so everywhere.

usage: nvidia_random.py [--count N] [--seed S] [--one SEED]
"""
import argparse
import random
import re
import shutil

import numpy as np

import programs
import random_programs
import standin
from random_program.generate import generate

STEPS = ["--steps", "3", "--quiet"]
# What a program says by its exit code: it trained; a number is not finite.
ENDS = (0, 4)
verdicts = programs.Verdicts()


def smallest(source, flags):
    """The flag of the smallest budget; nothing if no budget is too small."""
    said = programs.call([programs.CINCH, source, *flags, "--ptxas", "none", "--memory-budget", "1", "-o", source.with_suffix(".least")], allowed=(0, 1)).stdout
    found = re.search(r"smallest budget that compiles: (\d+) bytes", said)
    return ["--memory-budget", found.group(1)] if found else []


def left(ended, out):
    """The exit code, and the parameters after it if they were trained."""
    return ended.returncode, (out / "final.safetensors").read_bytes() if ended.returncode == 0 else b""


def on_device(trial, source, run, target, more, tensor, seed):
    """What the plans leave."""
    results = []
    least, host = smallest(source, ["--target", target, *more]), ["--host-memory-budget", "1GiB"]
    for number, plan in enumerate((least, [*smallest(source, ["--target", target, *more, *host]), *host], ["--stages", "1"])):
        name = "%s-%s-%d" % (trial.folder.name, target.replace(":", "-"), number)
        out = trial.folder / (name + "-out")
        built = standin.Program(source, name, *more, *plan, target=target)
        results.append(left(built.run(*run, "--out", out, allowed=ENDS, seed=seed + number, tensor=tensor), out))
    return results


def in_two_stages(trial, source, run, seed):
    """What two workers with memory of the host leave, in as little of the device as they can; none: the model is no two stages."""
    plan = ["--stages", "2", "--host-memory-budget", "1GiB"]
    least = smallest(source, ["--target", "nvidia", *plan])
    if not least:
        return []
    built = standin.Program(source, trial.folder.name + "-two", *least, *plan, target="nvidia")
    out = trial.folder / "two-out"
    return [left(built.run(*run, "--out", out, allowed=ENDS, seed=seed, devices=2), out)]


def check(seed):
    trial = random_programs.Trial(generate(seed), "gpu%d" % seed)
    try:
        source, init = trial.source("net", trial.text), trial.write_parameters(np.float32)
        run = ["--data", trial.folder, "--init", init, *STEPS]
        exe, out = trial.folder / "cpu", trial.folder / "cpu-out"
        programs.call([programs.CINCH, source, "-o", exe, "--stages", "1"])
        wanted = left(programs.call([exe, *run, "--out", out], allowed=ENDS), out)
        all_found = on_device(trial, source, run, "nvidia", [], "a100", seed) + in_two_stages(trial, source, run, seed)
        whose = "the CPU"
        # A CPU has other bits than a GPU where it computes convolutions by Winograd's minimal filtering: then plans of the GPU are compared.
        if "nn.winograd" in programs.call([programs.CINCH, source, "--stop-after", "differentiated"]).stdout:
            verdicts.expect(all_found[0][0] == wanted[0], "%d: in f32 it ended with exit code %d, on the CPU with %d" % (seed, all_found[0][0], wanted[0]))
            wanted, whose = all_found[0], "the first plan"
        for found in all_found:
            verdicts.expect(found == wanted, "%d: in f32 it left other bits than %s, or ended otherwise: exit codes %d, %d" % (seed, whose, found[0], wanted[0]))
        target, tensor = random.Random(seed).choice([("nvidia:a100", "a100"), ("nvidia:h200", "h100")])
        for precision in ("bf16", "tf32"):
            first, *others = on_device(trial, source, run, target, ["--set", "train.precision=" + precision], tensor, seed)
            for other in others:
                verdicts.expect(first == other, "%d: in %s %s leaves other bits under another plan: exit codes %d, %d"
                                % (seed, precision, target, first[0], other[0]))
    except programs.Failure as failure:
        verdicts.expect(False, "%d: %s\n%s" % (seed, failure, trial.text))
    finally:
        shutil.rmtree(trial.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--one", type=int, help="this program only, which is printed")
    options = parser.parse_args()
    if options.one is not None:
        print(generate(options.one).text())
        check(options.one)
    else:
        first = options.seed * 100000
        programs.in_parallel(check, range(first, first + options.count))
    verdicts.finish()


if __name__ == "__main__":
    main()
