#!/usr/bin/python3
"""`./train --profile`: every kernel of a step is in the table with its place, its calls and what was predicted, the trace is one that viewers
read, and no bit of the result changes."""
import json
import re
import signal
import subprocess
import time

import numpy as np

import programs
import standin

PROGRAM = """dim B = 12 batch, W = 24, C = 3

data train = npz("train.npz") -> (x: f32[B, W], y: i32[B] below C)

layer block(x: f32[.., W]) -> f32[.., W] {
  use fc = linear[W]
  return x + tanh(fc(x))
}

model net(x: f32[B, W]) -> f32[B, C] {
  use blocks = repeat 3 block, head = linear[C]
  return head(blocks(x))
}

train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer adam(lr = 0.01)
  steps 40
}
"""
verdicts = programs.Verdicts()


def table(out):
    lines = (out / "profile.tsv").read_text().splitlines()
    names = lines[0].split("\t")
    return [dict(zip(names, line.split("\t"))) for line in lines[1:]]


def checked(name, flags, workers):
    data, source = programs.FOLDER / "data", programs.source("net", PROGRAM)
    exe = programs.compiled(source, name, *flags)
    plain = programs.run(exe, data, 40)
    out = programs.FOLDER / ("out-" + name)
    said = programs.call([exe, "--data", data, "--out", out, "--profile"]).stdout
    verdicts.expect((out / "final.safetensors").read_bytes() == plain.bytes, name + ": the same parameters")
    verdicts.expect("profile: 40 steps, " in said and "predicted" in said and "blocks.*.fc: contract" in said, name + ": it says " + said)
    rows = table(out)
    products = [row for row in rows if row["kernel"] == "blocks.*.fc: contract"]
    verdicts.expect(len(products) == 1 and products[0]["place"].endswith("net.cinch:6"), name + ": equal layers are one row, at their place")
    microbatches = int(flags[1]) if flags[0] == "--microbatch" else 12
    calls = 3 * 12 / microbatches
    if workers == 1:
        verdicts.expect(products and float(products[0]["calls_a_step"]) == calls, "%s: %s calls a step" % (name, products and products[0]["calls_a_step"]))
        operations = float(products[0]["operations_a_second"]) * float(products[0]["seconds_a_step"])
        verdicts.expect(abs(operations / (2 * 3 * 12 * 24 * 24) - 1) < 1e-2, "%s: %g operations in the products of a step" % (name, operations))
    verdicts.expect(all(float(row["seconds_a_step"]) > 0 and float(row["predicted_seconds"]) > 0 for row in rows), name + ": every row has times")
    events = [event for event in json.loads((out / "profile.json").read_text())["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"] == "step"]
    kernels = [event for event in events if event["name"] != "step"]
    verdicts.expect(len(steps) == 40 and len({event["tid"] for event in kernels}) == workers, name + ": 40 steps, a row a worker")
    own = [event for event in kernels if event["tid"] == 1]  # the table is about worker 0, however many there are
    calls = sum(float(row["calls_a_step"]) for row in rows)
    verdicts.expect(abs(calls * 40 - len(own)) < 0.5, "%s: %g calls a step, of which the trace has %d of worker 0" % (name, calls, len(own)))
    verdicts.expect((" in kernels of worker 0;" in said) == (workers > 1), name + ": it says whose kernels they are: " + said)
    inside = all(any(step["ts"] - 1e-2 <= event["ts"] and event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 1e-2 for step in steps)
                 for event in kernels)
    verdicts.expect(inside and all(event["args"]["place"] for event in kernels), name + ": every kernel lies within a step and has a place")


SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


def evaluated(data):
    """What evaluations launch between the steps is no part of a step."""
    source = programs.source("evaluated", PROGRAM.replace("steps 40", "steps 40\n  every 8 eval(train)"))
    exe, out = programs.compiled(source, "evaluated", "--microbatch", "12"), programs.FOLDER / "out-evaluated"
    programs.call([exe, "--data", data, "--out", out, "--profile"])
    calls = {row["kernel"]: float(row["calls_a_step"]) for row in table(out)}
    verdicts.expect(all(call == int(call) for call in calls.values()), "with evaluations between: %s" % calls)
    traced = json.loads((out / "profile.json").read_text())["traceEvents"]
    verdicts.expect(sum(event.get("name", "").startswith("blocks.0.fc: contract") for event in traced) > 40, "the trace has them, too")


def without_copies():
    """Where the budget has no room for copies of weights, kernels are priced as the planner prices them: those of a step add up to what is predicted of it."""
    source = programs.source("bf16", PROGRAM.replace("adam(lr = 0.01)", "adam(lr = 0.01); precision bf16(master = f32, accumulate = f32)").replace("repeat 3", "repeat 9"))
    text = programs.call([programs.CINCH, "plan", source, "--target", "nvidia", "--microbatch", "12", "--memory-budget", "100"], allowed=(1,)).stdout
    least = re.search(r"smallest budget that compiles: (\d+) bytes", text).group(1)
    for flags in ([], ["--memory-budget", least]):
        name = "bf16-least" if flags else "bf16-free"
        out = programs.FOLDER / (name + "-out")
        program = standin.Program(source, name, "--microbatch", "12", *flags)
        said = program.run("--data", programs.FOLDER / "data", "--out", out, "--steps", "3", "--profile").stdout
        number, unit = re.search(r"predicted ([\d.]+) (ns|us|ms|s) ", said).groups()
        step, kernels = float(number) * SECONDS[unit], sum(float(row["predicted_seconds"]) for row in table(out))
        verdicts.expect(abs(kernels / step - 1) < 0.02, "%s: %g s of kernels in a step of %g s" % (name, kernels, step))


def stopped(exe, data):
    """A run that is stopped, by a signal in the middle of a step or by a loss that is not finite, says what its steps took."""
    out = programs.FOLDER / "out-stopped"
    run = subprocess.Popen([exe, "--data", data, "--out", out, "--set", "steps=100000000", "--profile"], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[0]
    verdicts.expect(run.returncode == 75 and "saved in" in said and "profile: " in said, "stopped: %s %s" % (run.returncode, said))
    verdicts.expect({float(row["calls_a_step"]) % 1 for row in table(out)} == {0}, "of the step in which it was stopped, nothing counts")
    json.loads((out / "profile.json").read_text())
    out = programs.FOLDER / "out-failed"
    said = programs.call([exe, "--data", data, "--out", out, "--set", "lr=1e30", "--profile"], allowed=(4,)).stdout
    verdicts.expect("profile: " in said and table(out), "a loss that is not finite: " + said)


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    rng = np.random.default_rng(3)
    np.savez(data / "train.npz", x=rng.standard_normal((48, 24)).astype(np.float32), y=rng.integers(0, 3, 48).astype(np.int32))
    checked("whole", ["--microbatch", "12"], 1)
    checked("parts", ["--microbatch", "4"], 1)
    checked("stages", ["--stages", "2"], 2)
    checked("replicas", ["--replicas", "2"], 2)
    evaluated(data)
    without_copies()
    exe = programs.FOLDER / "whole"
    stopped(exe, data)
    out = programs.FOLDER / "out-none"
    said = programs.call([exe, "--data", data, "--out", out, "--steps", "0", "--profile"]).stdout
    verdicts.expect("profile: no step was done" in said, "without a step it says so: " + said)


verdicts.run(main)
