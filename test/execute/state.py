#!/usr/bin/python3
"""State: running statistics, averages of parameters, and what a layer counts by itself (state.cinch).

Ten steps in f64 against NumPy, and `eval` with what they leave; the same bits under every plan, with every strategy that
recomputes the layer, killed and resumed; what --init makes of a file with and without averages.
"""

import json
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

import numpy as np

import programs  # first: it finds the folder of the oracles
import models
import shuffle
import tape
import tensorfile
import training

STEPS, HORIZON, BATCH, GROUP, DECAY = 10, 50, 24, 6, 0.9
PROGRAM = programs.HERE / "state.cinch"
# Flags of the compiler, and threads; the first is what the others are compared with.
PLANS = [
    ("--remat none --microbatch 24 --row-blocks none", 1),
    ("--remat none --microbatch 6", 3),
    ("--remat all --microbatch 6", 2),
    ("--remat all --microbatch 24 --row-blocks none", 2),
    ("--remat sqrt --microbatch 12", 1),
    ("--remat every:2 --microbatch 6 --row-blocks none", 2),
    ("--remat marked --microbatch 12", 3),
    ("--remat cheap --microbatch 24", 2),
    ("--remat optimal --microbatch 12", 2),
    ("--row-blocks 6 --microbatch 12", 2),
    ("--row-blocks 12 --remat all --microbatch 24", 3),
    ("--order-seed 5 --microbatch 6", 2),
    ("--order-seed 9 --remat all --microbatch 12", 1),
    ("--memory-budget SMALLEST", 2),
    ("--memory-budget SMALLEST --microbatch 24 --remat all", 1),
]

GRAINED = [("--set train.grain=4 --remat none --microbatch 24", 1), ("--set train.grain=4 --remat all --microbatch 12", 2)]

verdicts = programs.Verdicts()


# ---- NumPy -----------------------------------------------------------------------------------------------------------
def group_mean(x):
    def mean(value):
        groups = value.reshape(-1, GROUP, *value.shape[1:]).mean(axis=1)
        return np.repeat(groups, GROUP, axis=0)

    return tape.Node(mean(x.value), [(x, mean)])


def batch_norm(p, states, new, path, x, momentum=0.1, eps=1e-5):
    """In training, as PyTorch's over each group; `new` takes the running statistics, whose variance is unbiased."""
    if new is None:
        m, v = states[path + ".running_mean"], states[path + ".running_var"]
        d = x - m
    else:
        m = group_mean(x)
        d = x - m
        v = group_mean(d * d)
        for name, value in (("mean", m.value.mean(axis=0)), ("var", v.value.mean(axis=0) * GROUP / (GROUP - 1))):
            old = states[path + ".running_" + name]
            new[path + ".running_" + name] = old + momentum * (value - old)
    return d / tape.sqrt(tape.lift(v) + eps) * p[path + ".weight"] + p[path + ".bias"]


def net(p, states, new, x):
    if new is not None:
        new["s.before"] = states["s.examples"]
        new["s.odd"], new["s.even"] = states["s.even"], states["s.odd"]
        new["s.examples"] = states["s.examples"] + BATCH
        new["s.largest"] = np.maximum(states["s.largest"], np.abs(x.mean(axis=0)))
    h = tape.lift(x) / (1 + states["s.largest"])
    h = tape.relu(batch_norm(p, states, new, "bn1", h @ p["fc1.weight"].t, momentum=0.3))
    for i in range(3):
        path = "blocks.%d." % i
        h = h + tape.relu(batch_norm(p, states, new, path + "bn", h @ p[path + "fc.weight"].t))
        f = models.linear(p, path + "ff.down", tape.gelu(models.linear(p, path + "ff.up", h)))
        h = h + f * 0.1
    return models.linear(p, "fc2", h)


def is_state(name):
    return name.startswith("s.") or name.rsplit(".", 1)[-1].startswith("running_") or name.endswith(".ema")


def train(start, x, y):
    """All that training has after STEPS steps, and the losses before each."""
    parameters = {name: value for name, value in start.items() if not is_state(name)}
    states = {name: value for name, value in start.items() if is_state(name)}
    optimizer = training.SGD(training.rate("cosine", 0.1, HORIZON, warmup=3, end=0.01), momentum=0.9, decay=5e-4)
    losses = []
    for step in range(STEPS):
        examples = shuffle.batch(42, step, BATCH, len(x))
        nodes = {name: tape.Node(value) for name, value in parameters.items()}
        new = {}
        loss = tape.cross_entropy(net(nodes, states, new, x[examples]), y[examples]).mean()
        tape.backward(loss)
        trained = {name: value for name, value in parameters.items() if name != "fc2.bias"}
        gradients, _ = training.clip({name: nodes[name].grad for name in trained}, 1.0)
        optimizer.update(trained, gradients, step)
        parameters.update(trained)
        states.update(new)
        for name, value in trained.items():
            states[name + ".ema"] = DECAY * states[name + ".ema"] + (1 - DECAY) * value
        losses.append(float(loss.value))
    return {**parameters, **states}, losses


def check_numbers(data, x, y, valid, valid_labels):
    exe = programs.compiled(PROGRAM, "numbers", "-D", "rate=0", "--set", "train.precision=f64", "--microbatch", "6")
    start = programs.run(exe, data, 0).parameters
    result = programs.run(exe, data, STEPS)
    for name in sorted(start):
        if name + ".ema" in start:
            verdicts.expect(np.array_equal(start[name], start[name + ".ema"]), name + ": its average starts elsewhere")
    expected, losses = train(start, x, y)
    verdicts.expect(
        set(result.parameters) == set(expected),
        "names, got %s, expected %s" % (sorted(result.parameters), sorted(expected)),
    )
    verdicts.expect("fc2.bias.ema" not in expected, "what is frozen has no average")
    for name, value in sorted(expected.items()):
        moved = np.sqrt(np.mean((value - start[name]) ** 2))
        error = np.sqrt(np.mean((result.parameters[name] - value) ** 2))
        verdicts.expect(error <= 1e-9 * moved, "%s is off by %.3g, it moved %.3g" % (name, error, moved))
        still = name in ("fc2.bias", "s.odd", "s.even")  # two that take turns are back after ten steps
        verdicts.expect((moved > 0) != still, name + (" moved" if still else " did not move"))
    for step, (got, loss) in enumerate(zip(result.losses, losses)):
        verdicts.expect(abs(got - loss) <= 1e-9 * loss, "loss of step %d is %.12g, expected %.12g" % (step, got, loss))

    # What evaluation reads: averages, and the running statistics.
    read = {name: expected.get(name + ".ema", value) for name, value in expected.items()}
    logits = net({name: tape.Node(value) for name, value in read.items()}, read, None, valid)
    wanted = {
        "loss": tape.cross_entropy(logits, valid_labels).value.mean(),
        "hits": (logits.value.argmax(axis=-1) == valid_labels).mean(),
    }
    command = [exe, "eval", "--on", "valid", "--data", data, "--out", result.out, "--quiet"]
    printed = programs.call(command).stdout
    metrics = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    for name, value in wanted.items():
        verdicts.expect(
            abs(metrics[name] - value) <= 1e-9, "eval: %s is %.12g, expected %.12g" % (name, metrics[name], value)
        )
    programs.call([exe, "predict", "--on", "valid", "--data", data, "--out", result.out, "--quiet"])
    predicted = np.load(result.out / "predict" / "valid" / "p.npy")
    verdicts.expect(np.allclose(predicted, logits.value, rtol=1e-9, atol=1e-9), "predict reads something else")


# ---- Bits ------------------------------------------------------------------------------------------------------------
def smallest_budget(flags):
    refused = programs.compiled(PROGRAM, "refused", "--memory-budget", "1KiB", *flags, allowed=(1,)).stdout
    return int(re.search(r"smallest budget that compiles: (\d+) bytes", refused).group(1))


def check_bits(data, plans):
    first = None
    for text, threads in plans:
        try:
            words = text.split()
            if "SMALLEST" in words:
                rest = [word for word in words if word not in ("--memory-budget", "SMALLEST")]
                words = rest + ["--memory-budget", "%.10fKiB" % (smallest_budget(rest) / 1024)]
            exe = programs.compiled(PROGRAM, "plan", *words)
            result = programs.run(exe, data, HORIZON, "--threads", str(threads))
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (text, failure))
            continue
        first = first or result
        different = [name for name in first.parameters if result.parameters[name].tobytes() != first.parameters[name].tobytes()]
        verdicts.expect(not different, "%s, %d threads: other bits of %s" % (text, threads, ", ".join(different)))
        verdicts.expect(result.losses == first.losses, text + ": other losses")
    return first


def check_resume(data):
    random.seed(3)
    text = PROGRAM.read_text().replace(
        "steps      50", 'steps      2000\n  every 7 checkpoint("run", keep = 2)\n  every 1 log(jsonl)'
    )
    program = programs.source("resumed", text)
    plans = [
        programs.compiled(program, "resumed%d" % i, *flags.split())
        for i, flags in enumerate(["--remat none", "--remat all --microbatch 6", "--remat sqrt --microbatch 12"])
    ]
    begin = time.monotonic()
    whole = programs.run(plans[0], data, 2000)
    seconds = time.monotonic() - begin
    out = pathlib.Path(tempfile.mkdtemp(dir=programs.FOLDER, prefix="killed-"))
    command = ["--data", str(data), "--out", str(out), "--log", "jsonl", "--quiet", "--resume"]
    for kill in range(4):
        process = subprocess.Popen(
            [str(plans[kill % 3]), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(seconds * random.uniform(0.05, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = programs.call([plans[1], *command])
    verdicts.expect(programs.Result(out, done.stdout).bytes == whole.bytes, "killed and resumed, the bits are others")


def check_init(data, trained):
    exe = programs.compiled(PROGRAM, "init")
    again = programs.run(exe, data, 0, init=trained.out / "final.safetensors")
    verdicts.expect(again.bytes == trained.bytes, "--init does not read all that was written")
    plain = programs.FOLDER / "plain.safetensors"
    tensorfile.write(plain, {name: value for name, value in trained.parameters.items() if not name.endswith(".ema")})
    again = programs.run(exe, data, 0, init=plain)
    for name, value in again.parameters.items():
        source = trained.parameters[name[: -len(".ema")] if name.endswith(".ema") else name]
        verdicts.expect(np.array_equal(value, source), "--init without averages: %s starts elsewhere" % name)


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    rng = np.random.default_rng(3)
    sets = []
    for prefix, count in (("", 150), ("valid-", 77)):
        images = rng.integers(0, 256, (count, 8, 8)).astype(np.uint8)
        labels = rng.integers(0, 10, count).astype(np.uint8)
        programs.write_idx(data / (prefix + "images"), images)
        programs.write_idx(data / (prefix + "labels"), labels)
        sets += [images.reshape(count, -1) * (1 / 255), labels.astype(np.int64)]
    check_numbers(data, *sets)
    trained = check_bits(data, PLANS)
    check_bits(data, GRAINED)
    check_init(data, trained)
    check_resume(data)


verdicts.run(main)
