#!/usr/bin/python3
"""Killed with SIGKILL at random moments and resumed, each time under another plan: the same final bits as a run
that was never killed. A GPT, and images with every op of windows.cinch, in f32 and bf16. Prints where each kill struck.
"""

import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import programs

OFTEN = 'every 7    checkpoint("run", keep = 2)\n  every 1    log(jsonl)'
verdicts = programs.Verdicts()


def command(exe, data, out, *flags):
    return [str(word) for word in (exe, "--data", data, "--out", out, "--log", "jsonl", "--quiet", *flags)]


def killed(name, text, data, steps, plans, kills):
    program = programs.source(name, text)
    plans = [programs.compiled(program, "%s-plan%d" % (name, i), *flags) for i, flags in enumerate(plans)]
    begin = time.monotonic()
    whole = programs.run(plans[0], data, steps)
    seconds = time.monotonic() - begin

    out = pathlib.Path(tempfile.mkdtemp(dir=programs.FOLDER, prefix="killed-"))
    struck = []
    for kill in range(kills):
        process = subprocess.Popen(
            command(plans[kill % len(plans)], data, out, "--resume"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds * random.uniform(0.02, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        rows = (out / "log.jsonl").read_text().splitlines() if (out / "log.jsonl").exists() else []
        struck.append(len(rows))
    print("%s: killed after steps %s" % (name, " ".join(str(step) for step in struck)))
    done = programs.call(command(plans[1], data, out, "--resume"))
    result = programs.Result(out, done.stdout)
    verdicts.expect(result.bytes == whole.bytes, name + ": the final parameters differ from those of a run never killed")
    verdicts.expect(result.losses == whole.losses, name + ": the logged losses differ from those of a run never killed")
    again = programs.call(command(plans[2], data, out, "--resume"))
    verdicts.expect(
        (out / "final.safetensors").read_bytes() == whole.bytes, name + ": resuming what is over changes it: " + again.stdout
    )


def main():
    random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    data = programs.FOLDER / "data"
    data.mkdir()
    (data / "train.txt").write_bytes(programs.byte_text(32 * 61 + 1))
    draw = np.random.default_rng(2)
    np.save(data / "x.npy", draw.normal(size=(30, 3, 8, 8)).astype(np.float32))
    np.save(data / "y.npy", draw.integers(0, 5, 30).astype(np.int32))
    gpt = (programs.HERE / "gpt.cinch").read_text().replace("steps      50", "steps      400\n  " + OFTEN)
    killed("gpt", gpt, data, 400, [["--remat", "none"], ["--remat", "all", "--microbatch", "2"],
                                   ["--remat", "sqrt", "--microbatch", "1"], ["--microbatch", "4"]], 10)
    images = (programs.HERE / "windows.cinch").read_text().replace("steps     10\n  every 1   log(jsonl)", "steps     2000\n  " + OFTEN)
    for precision in ("f32", "bf16"):
        plans = [["--remat", "none"], ["--remat", "all", "--microbatch", "3"], ["--remat", "sqrt"], ["--cpu", "haswell", "--microbatch", "3"]]
        killed("images-" + precision, images, data, 2000, [[*plan, "--set", "train.precision=" + precision] for plan in plans], 4)


verdicts.run(main)
