#!/usr/bin/python3
"""Ten steps of compiled programs against an independent NumPy implementation (test/oracle).

f64: parameters agree to 1e-9 of the RMS of their movement, losses to 1e-9. f32: the RMS error of each parameter is
at most 5e-4 of the RMS of its movement. The bias of the keys is left out: its gradient is 0 by mathematics, so
Adam moves it by rounding errors alone.
"""

import json
import re

import numpy as np

import programs  # first: it finds the folder of the oracles
import models
import reference as oracle
import tape
import training

STEPS = 10
verdicts = programs.Verdicts()


def mlp_optimizer():
    return training.SGD(training.rate("cosine", 0.1, 10, warmup=3, end=0.01), momentum=0.9, decay=5e-4)


def compare(label, result, start, expected, losses, f64, left_out=()):
    worst = 0.0
    verdicts.expect(
        set(result.parameters) == set(expected),
        label + ": names of the parameters, got %s, expected %s" % (sorted(result.parameters), sorted(expected)),
    )
    for name, value in sorted(expected.items()):
        if name not in result.parameters:
            continue
        keep = np.ones(value.shape, bool)
        for pattern, part in left_out:
            if re.fullmatch(pattern, name):
                keep[part] = False
        moved = np.sqrt(np.mean((value - start[name].astype(np.float64))[keep] ** 2))
        error = np.sqrt(np.mean((result.parameters[name].astype(np.float64) - value)[keep] ** 2))
        limit = (1e-9 if f64 else 5e-4) * moved
        worst = max(worst, error / moved)
        verdicts.expect(error <= limit, "%s: %s is off by %.3g of its movement" % (label, name, error / moved))
    got = result.losses
    verdicts.expect(len(got) == STEPS, "%s: %d losses, expected %d" % (label, len(got), STEPS))
    for step, (a, b) in enumerate(zip(got, losses)):
        verdicts.expect(
            abs(a - b) <= (1e-9 if f64 else 1e-4) * abs(b),
            "%s: loss of step %d is %.12g, expected %.12g" % (label, step, a, b),
        )
    print("%s: parameters within %.2g of their movement, loss %.6g to %.6g" % (label, worst, losses[0], losses[-1]))


def check(label, program, data, f64, flags, expected_run, left_out=()):
    try:
        flags = [*flags, *(["--set", "train.precision=f64"] if f64 else [])]
        exe = programs.compiled(program, re.sub(r"[^a-z0-9]+", "-", label), *flags)
        start = programs.run(exe, data, 0).parameters
        result = programs.run(exe, data, STEPS)
        expected, losses = expected_run(start)
        compare(label, result, start, expected, losses, f64, left_out)
    except programs.Failure as failure:
        verdicts.expect(False, "%s: %s" % (label, failure))


def check_evaluation(data, x, labels):
    """`eval` over a set whose last batch is not full: every example once, the mean of the loss and of the hits."""
    text = (programs.HERE / "mlp.cinch").read_text()
    text = text.replace(
        "\n\nmodel",
        '\ndata valid = idx("valid-images", "valid-labels") -> (x: f32[B, I] scale 1/255, '
        "y: i32[B] below C)\n\nmodel",
    )
    text = text.replace(
        "  optimizer",
        "  metric hits = mean[B] (argmax(mlp(x)) == y)\n"
        "  metric table = sum[B] confusion[C](argmax(mlp(x)), y)\n  every 5 eval(valid)\n  optimizer",
    )
    try:
        exe = programs.compiled(programs.source("evaluated", text), "evaluated", "--set", "train.precision=f64")
        result = programs.run(exe, data, STEPS)
        printed = programs.call([exe, "eval", "--data", data, "--out", result.out, "--quiet"]).stdout
        metrics = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
        nodes = {name: tape.Node(value) for name, value in result.parameters.items()}
        logits = models.mlp(nodes, x.reshape(len(x), -1) * (1 / 255), lambda chain, value: value)
        loss = tape.cross_entropy(logits, labels.astype(np.int64)).value.mean()
        guess = logits.value.argmax(axis=-1)
        table = np.zeros((10, 10))
        np.add.at(table, (labels, guess), 1)
        verdicts.expect(
            abs(metrics["loss"] - loss) < 1e-9 * loss, "eval: loss %.12g, expected %.12g" % (metrics["loss"], loss)
        )
        verdicts.expect(
            abs(metrics["hits"] - (guess == labels).mean()) < 1e-12,
            "eval: hits %.12g, expected %.12g" % (metrics["hits"], (guess == labels).mean()),
        )
        verdicts.expect(
            np.array_equal(np.array(metrics["table"]), table),
            "eval: the confusion table is %s, expected %s" % (metrics["table"], table.tolist()),
        )
    except (programs.Failure, KeyError, StopIteration) as failure:
        verdicts.expect(False, "eval: %r" % failure)


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    text = programs.byte_text(32 * 61 + 1)
    (data / "train.txt").write_bytes(text)
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (150, 8, 8)).astype(np.uint8)
    labels = rng.integers(0, 10, 150).astype(np.uint8)
    programs.write_idx(data / "images", images)
    programs.write_idx(data / "labels", labels)

    key_bias = [(r"blocks\.\d+\.attn\.qkv\.bias", slice(48, 96))]
    for f64 in (True, False):
        kind = "f64" if f64 else "f32"
        for rate in (0, 0.1):
            flags = ["-D", "rate=%g" % rate]
            check(
                "gpt rate %g %s" % (rate, kind),
                programs.HERE / "gpt.cinch",
                data,
                f64,
                flags,
                lambda start: oracle.train_gpt(start, text, STEPS, 50, rate),
                key_bias,
            )
            check(
                "mlp rate %g %s" % (rate, kind),
                programs.HERE / "mlp.cinch",
                data,
                f64,
                flags,
                lambda start: oracle.train_mlp(start, images, labels, STEPS, rate, mlp_optimizer()),
            )
        check(
            "gpt grain 2 " + kind,
            programs.HERE / "gpt.cinch",
            data,
            f64,
            ["--set", "train.grain=2", "--microbatch", "4"],
            lambda start: oracle.train_gpt(start, text, STEPS, 50, 0.1),
            key_bias,
        )
    unclipped = programs.source(
        "unclipped", (programs.HERE / "gpt.cinch").read_text().replace("  clip       norm(1.0)\n", "")
    )
    check(
        "gpt without clipping f64",
        unclipped,
        data,
        True,
        [],
        lambda start: oracle.train_gpt(start, text, STEPS, 50, 0.1, clip=None),
        key_bias,
    )
    for number, (lines, make, clip) in enumerate(training.CASES):
        mlp = (programs.HERE / "mlp.cinch").read_text()
        program = programs.source(
            "variant%d" % number,
            mlp[: mlp.index("  optimizer")] + "  " + lines.replace("; ", "\n  ") + "\n  steps 10\n}\n",
        )
        check(
            lines + " f64",
            program,
            data,
            True,
            ["-D", "rate=0"],
            lambda start: oracle.train_mlp(start, images, labels, STEPS, 0, make(), clip),
        )
    valid = rng.integers(0, 256, (77, 8, 8)).astype(np.uint8)
    valid_labels = rng.integers(0, 10, 77).astype(np.uint8)
    programs.write_idx(data / "valid-images", valid)
    programs.write_idx(data / "valid-labels", valid_labels)
    check_evaluation(data, valid, valid_labels)
    verdicts.finish()


main()
