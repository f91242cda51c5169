#!/usr/bin/python3
"""Every operation of the language, in the programs of gradcheck.py, gives the same bits under other plans, thread
counts and CPUs: three AdamW steps in f32, the final parameters compared byte for byte; every other case sums its
examples one by one (`grain 1`). Without arguments a sample of the cases; `--all` takes every case, words choose cases
by name.
"""

import sys

import numpy as np

import gradcheck
import programs

verdicts = programs.Verdicts()


def plans(group):
    """Flags of the compiler, and threads; the first is what the others are compared with."""
    result = [
        (["--remat", "none", "--microbatch", "4", "--cpu", "haswell"], 1),
        (["--remat", "all", "--microbatch", str(group), "--cpu", "haswell"], 3),
        (["--remat", "sqrt", "--microbatch", str(max(2, group))], 2),
    ]
    if programs.has_avx512():
        result.append((["--remat", "all", "--microbatch", str(max(2, group)), "--cpu", "skylake-avx512"], 2))
    return result


def check(case, number, grained):
    data = programs.FOLDER / ("data%d" % number)
    gradcheck.data_of(case, data, np.random.default_rng(number + 1))
    text = (
        gradcheck.text_of(case)
        .replace("sgd(lr = 1)", "adamw(lr = 0.01, decay = 0.1)")
        .replace("steps      1\n", "steps 3\n")
    )
    program = programs.source("case%d" % number, text)
    first = None
    for i, (flags, threads) in enumerate(plans(case.group)):
        try:
            flags += ["--set", "train.grain=1"] if grained else []
            exe = programs.compiled(program, "case%d-%d" % (number, i), *flags)
            result = programs.run(exe, data, 3, "--threads", str(threads))
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (case.name, failure))
            continue
        if first is None:
            first = result
            continue
        verdicts.expect(
            result.bytes == first.bytes, "%s: other bits with %s, %d threads" % (case.name, " ".join(flags), threads)
        )
        verdicts.expect(
            result.losses == first.losses,
            "%s: other losses with %s, %d threads" % (case.name, " ".join(flags), threads),
        )


def main():
    words = [word for word in sys.argv[1:] if word != "--all"]
    chosen = [
        (case, number, number // (1 if "--all" in sys.argv else 4) % 2 == 1)
        for number, case in enumerate(gradcheck.all_cases())
        if any(word in case.name for word in words) or not words and ("--all" in sys.argv or number % 4 == 0)
    ]
    programs.in_parallel(lambda entry: check(*entry), chosen)
    verdicts.finish()


main()
