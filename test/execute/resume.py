#!/usr/bin/python3
"""Killed with SIGKILL at random moments and resumed, each time under another plan: the same final bits as a run
that was never killed. Prints where each kill struck.
"""

import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import programs

KILLS = 10
PLANS = [
    ["--remat", "none"],
    ["--remat", "all", "--microbatch", "2"],
    ["--remat", "sqrt", "--microbatch", "1"],
    ["--microbatch", "4"],
]

verdicts = programs.Verdicts()


def command(exe, data, out, *flags):
    return [str(word) for word in (exe, "--data", data, "--out", out, "--log", "jsonl", "--quiet", *flags)]


def main():
    random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    data = programs.FOLDER / "data"
    data.mkdir()
    (data / "train.txt").write_bytes(programs.byte_text(32 * 61 + 1))
    text = (programs.HERE / "gpt.cinch").read_text()
    program = programs.source(
        "resumed",
        text.replace(
            "steps      50", 'steps      400\n  every 7    checkpoint("run", keep = 2)\n' "  every 1    log(jsonl)"
        ),
    )
    plans = [programs.compiled(program, "plan%d" % i, *flags) for i, flags in enumerate(PLANS)]

    begin = time.monotonic()
    whole = programs.run(plans[0], data, 400)
    seconds = time.monotonic() - begin

    out = pathlib.Path(tempfile.mkdtemp(dir=programs.FOLDER, prefix="killed-"))
    struck = []
    for kill in range(KILLS):
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
    print("killed after steps " + " ".join(str(step) for step in struck))
    done = programs.call(command(plans[1], data, out, "--resume"))
    result = programs.Result(out, done.stdout)
    verdicts.expect(result.bytes == whole.bytes, "the final parameters differ from those of a run never killed")
    verdicts.expect(result.losses == whole.losses, "the logged losses differ from those of a run never killed")
    again = programs.call(command(plans[2], data, out, "--resume"))
    verdicts.expect(
        (out / "final.safetensors").read_bytes() == whole.bytes, "resuming what is over changes it: " + again.stdout
    )


verdicts.run(main)
