#!/usr/bin/python3
"""Random well-typed programs (random_program/), with loops, states, masked losses and groups of examples among them: each is compiled under a random plan
and under the smallest budget that its refusal names, and both must leave the same bits and losses within the budget, in f32, f64 or bf16; in f64 the loss
and the gradients of the first step are compared with NumPy, the gradients as central differences. Programs that once failed lie in programs/random, with their flags.

usage: random_programs.py [--count N] [--seed S] [--one SEED] [--with WORD,..]      a failing program is made smaller and printed with its flags
"""
import argparse
import math
import os
import random
import re
import shutil
import subprocess
import time

import numpy as np

import programs  # first: it finds the folder of the oracles
import tensorfile
from random_program import regressions, shrink
from random_program.generate import generate
from random_program.graph import Invalid

STRATEGIES = ["none", "all", "sqrt", "every:1", "every:2", "marked", "cheap", "auto"]
ROWS = ["auto"] * 4 + ["none", "1", "2", "5"]
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zbv"]
STAGED = 0.25  # of the plans have several workers
REPLICATED = 0.2  # of the plans have replicas
F64 = ["--set", "train.precision=f64"]
BF16_FLAGS = ["--set", "train.precision=bf16"]
BF16 = 0.3  # of the programs; bits only, between plans
CPUS = ["haswell"] + ["skylake-avx512"] * programs.has_avx512() + ["cooperlake"] * programs.has_dots() + ["sapphirerapids"] * programs.has_amx()
# Most of the time goes into code for kernels, which plans for one CPU share: several CPUs for so many of the programs, else one.
SEVERAL_CPUS = 0.3
# Costs of machines that nobody has: what is cheap decides which plans are seen.
PROFILES = sorted((programs.HERE / "profiles").glob("*.json"))
F64_WITH_GRADIENT = 0.4  # of the programs whose gradients are compared, in f64 as well: their kernels are shared
SHRINKING = 60  # seconds a failing program
verdicts = programs.Verdicts()


class Wrong(Exception):
    """What went wrong: a kind (equal for equal faults), and the whole of it."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


class Plan:
    """Flags of the compiler and threads of the run. `least`: under the smallest budget that the compiler names for them."""

    def __init__(self, rng, program, cpus, least):
        grain = program.unit
        self.least, self.threads = least, rng.choice([1, 2, 3])
        self.flags = ["--max-threads", "3", "--cpu", rng.choice(cpus)]
        often = 0.3 if least else 0.8
        if rng.random() < often:
            sizes = [m for m in range(1, program.batch + 1) if program.batch % m == 0 and m % grain == 0]
            self.flags += ["--microbatch", str(sizes[0] if rng.random() < 0.6 else rng.choice(sizes))]
        if rng.random() < often:
            self.flags += ["--remat", rng.choice(STRATEGIES)]
        rows = rng.choice(ROWS)
        if rows != "auto":
            self.flags += ["--row-blocks", rows]
        if rng.random() < 0.5:
            self.flags += ["--profile", str(rng.choice(PROFILES))]
        if rng.random() < 0.4:
            self.flags += ["--order-seed", str(rng.randrange(1, 1000))]
        if rng.random() < STAGED:
            self.flags += ["--stages", str(rng.choice([2, 2, 3, 4])), "--schedule", rng.choice(SCHEDULES)]
        if rng.random() < REPLICATED:
            whole = int(self.flags[self.flags.index("--microbatch") + 1]) if "--microbatch" in self.flags else grain
            counts = [d for d in range(2, 7) if program.batch // whole % d == 0]
            self.flags += ["--replicas", str(rng.choice(counts))] if counts else []


def kind_of(text):
    """The message without what differs from program to program."""
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()[-1:] or ["nothing was said"]
    line = re.sub(r"/\S+", "", re.sub(r".*\berror", "error", lines[0]))
    line = re.sub(r"\bf32\b.*", "f32 ..", re.sub(r"`[^`]*`|'[^']*'", "..", line))
    return re.sub(r"[1-9]\d*", "N", re.sub(r"(bytes) \[.*", r"\1", line)).strip()[:150]


def pairs(flags):
    """Each flag with its value."""
    return list(zip(flags[::2], flags[1::2]))


def compiled(source, exe, flags):
    """(finished process, flags): rows that no work of this program can be cut into are left out, and stages of too small a model."""
    command = [programs.CINCH, source, "-o", exe]
    done = programs.call([*command, *flags], allowed=range(-64, 256))
    refusals = (programs.NO_ROWS, "expected blocks of rows", "expected a micro-batch that divides the batch",
                "of a replica are no multiple; expected smaller blocks")
    if done.returncode == 1 and "--row-blocks" in flags and any(words in done.stdout for words in refusals):
        at = flags.index("--row-blocks")
        flags = flags[:at] + flags[at + 2:]
        done = programs.call([*command, *flags], allowed=range(-64, 256))
    if done.returncode == 1 and "too few for" in done.stdout:
        at = flags.index("--stages")
        flags = flags[:at] + flags[at + 4:]
        return compiled(source, exe, flags)
    if done.returncode == 1 and "expected one worker" in done.stdout: # a loss of parameters alone
        alone = [pair for pair in pairs(flags) if pair[0] not in ("--stages", "--schedule", "--replicas")]
        return compiled(source, exe, [word for pair in alone for word in pair])
    if done.returncode == 1 and "cannot be divided among" in done.stdout: # groups of examples
        at = flags.index("--replicas")
        return compiled(source, exe, flags[:at] + flags[at + 2:])
    return done, flags


def workers_of(flags):
    return math.prod(int(flags[flags.index(flag) + 1]) for flag in ("--stages", "--replicas") if flag in flags)


def under(plan, source, exe, more=()):
    """(flags, budget or None) with which it compiles."""
    flags, budget = [*plan.flags, *more], None
    if plan.least:
        done, flags = compiled(source, exe, [*flags, "--memory-budget", "1KiB"])
        named = re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout)
        if not named:
            raise Wrong("no smallest budget: " + kind_of(done.stdout), "%s\n%s" % (" ".join(flags), done.stdout[-3000:]))
        budget = int(named.group(1))
        flags[flags.index("--memory-budget") + 1] = str(budget)
    done, flags = compiled(source, exe, flags)
    if done.returncode != 0:
        where = "at the smallest budget: " if plan.least else ""
        raise Wrong(where + kind_of(done.stdout), "%s\n%s" % (" ".join(flags), done.stdout[-3000:]))
    return flags, budget


class Trial:
    """A program in a folder of its own."""

    def __init__(self, program, name):
        self.program, self.folder = program, programs.FOLDER / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.text = program.text()
        for i, values in enumerate(program.data()):
            np.save(self.folder / ("x%d.npy" % i), values)
        self.parameters = {**program.parameters(), **program.states()}

    def write_parameters(self, dtype):
        path = self.folder / ("init-%s.safetensors" % dtype.__name__)
        if not path.exists():
            tensorfile.write(path, {name: value.astype(dtype) for name, value in self.parameters.items()})
        return path

    def source(self, name, text):
        path = self.folder / (name + ".cinch")
        path.write_text(text)
        return path

    def run(self, exe, plan, steps, dtype, *words):
        """The result; or the words of a run that ended because the loss is not finite, which is the program's own matter."""
        try:
            init = self.write_parameters(dtype)
            return programs.run(exe, self.folder, steps, "--threads", str(plan.threads), *words, init=init, timeout=60)
        except programs.Failure as failure:
            if ": exit 4\n" in str(failure):
                return re.search(r"step \d+: .*", failure.output).group()
            raise Wrong("run: " + kind_of(str(failure)), str(failure))

    def bits(self, plans, precision):
        """All plans, the same bits."""
        first = None
        source = self.source("net", self.text)
        for i, plan in enumerate(plans):
            exe = self.folder / ("net%d" % i)
            flags, budget = under(plan, source, exe, ["--set", "train.precision=" + precision])
            # What a run collects for its flags is within the budget, too.
            collects = ["--profile", "--kernel-times", str(self.folder / "times")] if budget else []
            result = self.run(exe, plan, 3, np.float64 if precision == "f64" else np.float32, *collects)
            said = "%s, %d threads" % (" ".join(flags), plan.threads)
            if isinstance(result, str) or isinstance(first, str):
                if first is not None and first != result:
                    raise Wrong("not finite under one plan only", "%s with %s" % (result, said))
                first = result
                continue
            if budget and result.peak > budget * workers_of(flags):
                raise Wrong("a peak above the budget", "%s: a peak of %d bytes" % (said, result.peak))
            rows = [{key: value for key, value in row.items() if "second" not in key} for row in result.rows]
            if first is None:
                first = result, said, rows
            elif result.bytes != first[0].bytes:
                wrong = [p for p in result.parameters if result.parameters[p].tobytes() != first[0].parameters[p].tobytes()]
                raise Wrong("other bits", "%s of %s\n  with %s\n  and  %s" % (wrong, len(result.parameters), said, first[1]))
            elif rows != first[2]:
                raise Wrong("other losses", "with %s: %s\n  and  %s: %s" % (said, rows, first[1], first[2]))

    def gradient(self, plan):
        """Loss and gradients of the first step; returns how many derivatives were compared."""
        source = self.source("gradient", self.program.gradient_text())
        flags, _ = under(plan, source, self.folder / "gradient", F64)
        result = self.run(self.folder / "gradient", plan, 1, np.float64)
        if isinstance(result, str):
            raise Wrong("not finite at the first step", result)
        batch = self.program.first_batch()
        loss, context = self.program.loss(self.parameters, batch)
        if context.margin < 1e-9:
            return 0  # on a kink: rounding decides
        if not np.isclose(result.losses[0], loss, rtol=1e-9, atol=1e-9):
            raise Wrong("another loss than NumPy's", "%s: %.15g, by NumPy %.15g" % (" ".join(flags), result.losses[0], loss))
        draw, compared = np.random.RandomState(self.program.seed), 0
        for path, value in sorted(self.program.parameters().items()):
            got = value - result.parameters[path]
            single = np.zeros(value.shape)
            single.flat[draw.randint(single.size)] = 1
            for direction in (draw.normal(size=value.shape), single):
                slope = float((got * direction).sum())
                agrees = lambda other: abs(slope - other) <= 1e-6 + 1e-5 * abs(other)
                found = self.program.gradient(self.parameters, batch, path, direction, agrees)
                if found is None:
                    continue
                compared += 1
                if not agrees(found[-1]):
                    raise Wrong("another gradient than NumPy's", "%s: %s: %.10g, by differences %s" % (
                        " ".join(flags), path, slope, found))
        return compared


def attempt(program, plans, name):
    """Runs what `plans` says; raises Wrong. Returns how many derivatives were compared."""
    trial = Trial(program, name)
    compared = 0
    try:
        if plans.get("bits"):
            trial.bits(plans["bits"], plans["precision"])
        if plans.get("gradient"):
            compared = trial.gradient(plans["gradient"])
    finally:
        if not os.environ.get("CINCH_KEEP"):
            shutil.rmtree(trial.folder, ignore_errors=True)
    return compared


def plans_of(program, seed):
    rng = random.Random("plans %d" % seed)
    cpus = CPUS if rng.random() < SEVERAL_CPUS else [rng.choice(CPUS)]
    bits = [Plan(rng, program, cpus, False), Plan(rng, program, cpus, True)]
    gradient = Plan(rng, program, cpus, False) if rng.random() < 0.6 else None
    narrow = random.Random("bf16 %d" % seed).random() < BF16
    wide = not narrow and rng.random() < (F64_WITH_GRADIENT if gradient else 0.1)
    if wide and gradient:
        gradient = bits[0]
    return {"bits": bits, "precision": "bf16" if narrow else "f64" if wide else "f32", "gradient": gradient}


class Session:
    """Counts; one program of each kind of failure is made smaller."""

    def __init__(self, shrinks):
        self.kinds, self.compared, self.asked, self.without, self.shrinks = {}, 0, 0, 0, shrinks
        self.narrow = 0  # programs in bf16

    def one(self, seed):
        try:
            program = generate(seed)
        except Invalid as wrong:
            verdicts.expect(False, str(wrong))
            return
        plans = plans_of(program, seed)
        try:
            compared = attempt(program, plans, "random%d" % seed)
            with verdicts.lock:
                self.narrow += plans["precision"] == "bf16"
                self.compared += compared
                self.asked += plans["gradient"] is not None
                self.without += plans["gradient"] is not None and compared == 0
            verdicts.expect(True, "")
        except (Wrong, programs.Failure, subprocess.TimeoutExpired) as wrong:
            self.failed(seed, program, plans, wrong)
        except Invalid as wrong:
            verdicts.expect(False, "seed %d: the generator's own fault: %s" % (seed, wrong))

    def failed(self, seed, program, plans, wrong):
        kind = getattr(wrong, "kind", "timeout")
        with verdicts.lock:
            seen = kind in self.kinds
            self.kinds.setdefault(kind, []).append(seed)
        text = program.text()
        if self.shrinks and not seen:
            def fails(candidate, fewer):
                try:
                    attempt(candidate, fewer, "shrink%d" % seed)
                except Wrong as other:
                    return other if other.kind == kind else None
                except subprocess.TimeoutExpired:
                    pass
                return None

            program, plans, wrong = shrink.smaller(program, plans, wrong, fails, SHRINKING)
            text = program.text()
        verdicts.expect(False, "seed %d: %s\n%s%s" % (seed, kind, wrong, "" if seen else "\n" + text))


def seeds_of(first, count, words):
    """So many seeds whose programs have one of the words in their text; of any program without words."""
    found = []
    while len(found) < count:
        try:
            if not words or any(word in generate(first).text() for word in words):
                found.append(first)
        except Invalid:
            found.append(first)  # said where it is tried
        first += 1
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, help="this seed only; the program is printed")
    parser.add_argument("--with", dest="words", default="", help="only programs with one of these words in their text: conv,pool,..")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--bf16", type=float, default=BF16, help="share of the programs that are in bf16")
    parser.add_argument("--staged", type=float, default=STAGED, help="share of the plans that have several workers")
    options = parser.parse_args()
    globals().update(STAGED=options.staged, BF16=options.bf16)
    session = Session(not options.no_shrink)
    begin = time.monotonic()
    if options.one is not None:
        print(generate(options.one).text())
        session.one(options.one)
        verdicts.finish()
    regressions.check(verdicts)
    programs.in_parallel(session.one, seeds_of(options.seed * 100000, options.count, [word for word in options.words.split(",") if word]))
    print("%d derivatives of %d programs compared, of %d none was away from a kink; %.2f s a program" % (
        session.compared, session.asked, session.without, (time.monotonic() - begin) / max(options.count, 1)))
    print("%d programs in bf16" % session.narrow)
    verdicts.expect(session.without <= max(session.asked // 5, 5), "too few programs are compared with NumPy")
    for kind, seeds in sorted(session.kinds.items(), key=lambda item: -len(item[1])):
        print("%4d x %s (seeds %s)" % (len(seeds), kind, ", ".join(map(str, sorted(seeds)[:6]))))
    verdicts.finish()


if __name__ == "__main__":
    main()
