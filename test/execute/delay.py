#!/usr/bin/python3
"""`delay 1`: W(t + 1) = W(t) - update(gradient at W(t - 1)), W(-1) = W(0). Against a loop in NumPy in f64; the same bits on one worker and on
several, stages and replicas, under every schedule and micro-batch, killed and resumed on another number of workers, and started from a file.
"""
import numpy as np

import programs  # first: it finds the folder of the oracles
import small_net
import tensorfile
import training
from small_net import I, OPTIMIZERS, gradients

verdicts = programs.Verdicts()
B, STEPS = 6, 7
PROGRAM = small_net.program(B, STEPS).replace("%s", "%s\n  delay 1")


def reference(start, x, y, optimizer, limit, steps):
    now = {name: value.astype(np.float64) for name, value in start.items() if name != "still"}
    before, losses = {name: value.copy() for name, value in now.items()}, []
    for step in range(steps):
        rows = [(step * B + i) % len(x) for i in range(B)]
        loss, gradient = gradients({**before, "still": start["still"]}, x[rows].astype(np.float64), y[rows].astype(np.float64))
        losses.append(loss)
        if limit:
            gradient, _ = training.clip(gradient, limit)
        before = {name: value.copy() for name, value in now.items()}
        optimizer.update(now, gradient, step)
    return now, before, losses


def against_numpy(data, x, y):
    for name, (text, optimizer, limit) in OPTIMIZERS.items():
        program = programs.source("f64-" + name, PROGRAM % text)
        exe = programs.compiled(program, program.stem, "--set", "train.precision=f64")
        start = programs.run(exe, data, 0).parameters
        result = programs.run(exe, data, STEPS)
        expected, before, losses = reference(start, x, y, optimizer(), limit, STEPS)
        verdicts.expect(np.allclose(result.losses, losses, rtol=1e-12), f"{name}: losses {result.losses}, NumPy says {losses}")
        for path, value in expected.items():
            moved = np.abs(value - start[path]).max()
            error = np.abs(result.parameters[path] - value).max()
            verdicts.expect(error <= 1e-11 * max(moved, 1e-3), f"{name}: {path} is off by {error:.3g} after a way of {moved:.3g}")
        saved = tensorfile.read(sorted((result.out / "run").glob("*.safetensors"))[-1])
        for path in ("up.weight", "up.bias", "down"):
            held = saved.get(f"optimizer/{path}.prev")
            verdicts.expect(held is not None and np.abs(held - before[path]).max() <= 1e-11, f"{name}: the checkpoint's {path}.prev")
        verdicts.expect(not any("prev" in path for path in result.parameters), f"{name}: the final file has {sorted(result.parameters)}")


def same_bits(data):
    program = programs.source("bits", PROGRAM % OPTIMIZERS["adamw"][0])
    plain = programs.compiled(program, "one", "--microbatch", "6")
    whole = programs.run(plain, data, STEPS)
    wanted = (whole.out / "final.safetensors").read_bytes()
    started = programs.run(plain, data, 4, init=whole.out / "final.safetensors")
    for number, flags in enumerate((["--microbatch", "1"], ["--microbatch", "2", "--stages", "2"], ["--stages", "2", "--schedule", "zb-h1"],
                                    ["--stages", "3", "--schedule", "gpipe", "--microbatch", "1"], ["--stages", "2", "--schedule", "interleaved"],
                                    ["--stages", "2", "--schedule", "zbv", "--microbatch", "3"], ["--stages", "2", "--schedule", "2bw", "--microbatch", "3"],
                                    ["--stages", "4", "--schedule", "2bw", "--microbatch", "1"], ["--replicas", "2"], ["--replicas", "6"],
                                    ["--replicas", "3", "--microbatch", "1"], ["--replicas", "3", "--stages", "2"])):
        exe = programs.compiled(program, f"bits{number}", *flags)
        name = " ".join(flags)
        verdicts.expect((programs.run(exe, data, STEPS).out / "final.safetensors").read_bytes() == wanted, name + ": other bits")
        again = programs.run(exe, data, 4, init=whole.out / "final.safetensors")
        verdicts.expect((again.out / "final.safetensors").read_bytes() == (started.out / "final.safetensors").read_bytes(),
                        name + ": other bits from a file")
        half = programs.run(plain if number % 2 else exe, data, 3)
        programs.call([exe if number % 2 else plain, "--data", data, "--out", half.out, "--resume"])
        verdicts.expect((half.out / "final.safetensors").read_bytes() == wanted, name + ": other bits when resumed")


def without():
    """The delay is part of the program: its checkpoints are not those of another."""
    text = PROGRAM % OPTIMIZERS["sgd"][0]
    late = programs.compiled(programs.source("late", text), "late")
    now = programs.compiled(programs.source("now", text.replace("  delay 1\n", "")), "now")
    done = programs.run(late, programs.FOLDER / "data", 3)
    refused = programs.call([now, "--data", programs.FOLDER / "data", "--out", done.out, "--resume"], allowed=(3,))
    verdicts.expect("up.weight.prev" in refused.stdout, "resumed without the delay: " + refused.stdout[-300:])


def main():
    rng = np.random.default_rng(3)
    data = programs.FOLDER / "data"
    data.mkdir()
    x, y = (rng.normal(size=(17, I)).astype(np.float32) for _ in range(2))
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", y)
    against_numpy(data, x, y)
    same_bits(data)
    without()


verdicts.run(main)
