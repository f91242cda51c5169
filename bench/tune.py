#!/usr/bin/env python3
"""tune: steps with the tilings that `cinch calibrate --tune` finds, beside steps of the same plan by the built-in rules.

    bench/tune.py [--quick] [--rounds N] [--seconds N] [NAME ..]

Each program is tuned for `--seconds`. Both binaries are compiled with the profile that comes out, one of them without its tilings, so that
they have the same plan; their runs take turns. `tune.NAME.ratio` is the median over the rounds of tuned / built-in seconds a step,
`tune.NAME.kept` how many products have another tiling. Both binaries must have written the same parameters.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

ROOT = programs.BENCH.parent
# name -> program, flags, steps of a run, flags and steps of --quick
MODELS = {
    "gpt": (programs.BENCH / "models/gpt.cinch", [], 4, ["-D", "N=2", "-D", "D=64", "-D", "A=2", "-D", "T=64", "-D", "B=8"], 20),
    "example_gpt": (ROOT / "examples/gpt/gpt.cinch", [], 40, [], 20),
    "mlp": (ROOT / "examples/mlp/mlp.cinch", [], 400, [], 40),
}


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a small GPT alone, few seconds, one round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(MODELS))
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    names = arguments.names or (["gpt"] if arguments.quick else list(MODELS))
    print(f"seconds a step, {threads} threads; {programs.machine_line()}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data.text(folder)
        for part in ("train", "t10k"):
            data.pictures(folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte", 1000, 28)
        tuned, plain = folder / "tuned.json", folder / "plain.json"
        for name in names:
            source, flags, steps, small, few = MODELS[name]
            if arguments.quick:
                flags, steps = flags + small, few
            seconds = 5 if arguments.quick else arguments.seconds
            done = subprocess.run([programs.CINCH, "calibrate", "--tune", str(source), "--time-limit", str(seconds), "-o", str(tuned), *flags,
                                   "--max-threads", str(threads)], capture_output=True, text=True)
            if done.returncode:
                raise programs.Failed(f"cinch calibrate --tune {source}: exit {done.returncode}\n{done.stderr[-2000:]}")
            print(f"\n{name}\n{done.stdout.rstrip()}", flush=True)
            profile = json.loads(tuned.read_text())
            kept = len(profile.pop("tiles", []))
            plain.write_text(json.dumps(profile))
            exes = {}
            for kind, path in (("built-in", plain), ("tuned", tuned)):
                exes[kind] = folder / f"{name}-{kind}"
                programs.compile(source, exes[kind], *flags, "--profile", str(path), "--max-threads", str(threads))
            ratios, written = [], {}
            for _ in range(1 if arguments.quick else arguments.rounds):
                times = {}
                for kind, exe in exes.items():
                    out = folder / "out" / kind
                    times[kind] = programs.median(programs.train(exe, folder, out, steps, threads)[0])
                    written[kind] = (out / "final.safetensors").read_bytes()
                ratios.append(times["tuned"] / times["built-in"])
                print(f"  built-in {times['built-in']:.4f}   tuned {times['tuned']:.4f}   ratio {ratios[-1]:.3f}", flush=True)
            if written["tuned"] != written["built-in"]:
                raise programs.Failed(f"{name}: the tilings changed the parameters")
            programs.result(f"tune.{name}.kept", kept)
            programs.result(f"tune.{name}.ratio", programs.median(ratios))
            tuned.write_text(json.dumps(profile))  # the next program begins without tilings


programs.main(body)
