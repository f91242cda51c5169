#!/usr/bin/python3
"""Values of the run: `./EXE --set lr=..` gives the bits of the program with that number in it, compiled; what makes other
kernels is refused; a resumed run goes on with the checkpoint's values, and names what was changed."""
import re

import numpy as np
import programs
import tensorfile

PROGRAM = """
dim B = 16 batch, I = 6, H = 8, C = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
model net(x: f32[B, I]) -> f32[B, C] {
  use fc = linear[H], head = linear[C]
  return head(dropout(relu(fc(x)), 0.1))
}
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] cross_entropy(logits, y)
%s
}
"""
# Clauses with a number in braces for each key, and other numbers for them.
CASES = {
    "sgd": ("optimizer sgd(lr = {lr=0.1}, momentum = {momentum=0.9}, decay = {decay=0.01}); clip norm({clip=0.5}); "
            "steps {steps=9}", dict(lr="3e-2", momentum="0.5", decay="0.1", clip="0.05", steps="7")),
    "nesterov": ("optimizer sgd(lr = {lr=0.1}, momentum = {momentum=0.9}, nesterov = true); clip value({clip_value=0.05}); "
                 "ema {ema=0.9}; steps {steps=9}", dict(lr="0.2", momentum="0.1", clip_value="0.01", ema="0.99")),
    "adamw": ("optimizer adamw(lr = {lr=1e-2}, decay = {decay=0.1}, betas = ({beta1=0.9}, {beta2=0.999}), eps = {eps=1e-8}); "
              "schedule cosine(warmup = {warmup=3}, end = {end=0.1}); steps {steps=9}",
              dict(lr="0.0123456789", decay="0.3", beta1="0.7", beta2="0.95", eps="1e-3", warmup="5", end="0.01", steps="12")),
    "adam": ("optimizer adam(lr = {lr=1e-2}, decay = {decay=0.1}); schedule polynomial(power = {power=2}, end = {end=0}, "
             "warmup = {warmup=0}); steps {steps=9}", dict(lr="0", power="0.5", end="0.2", warmup="4")),
    "lion": ("optimizer lion(lr = {lr=1e-2}, decay = {decay=0.1}); schedule step(factor = {factor=0.5}, "
             "every = {schedule.every=3}); epochs {epochs=3}",
             {"lr": "2e-3", "decay": "1", "factor": "0.1", "schedule.every": "2", "epochs": "4"}),
    "wsd": ("optimizer sgd(lr = {lr=0.1}); schedule wsd(decay = {schedule.decay=4}, end = {end=0}); steps {steps=9}",
            {"lr": "0.3", "schedule.decay": "6", "end": "0.5"}),
    "cycles": ("optimizer sgd(lr = {lr=0.1}); schedule cosine(end = {end=0}, every = {schedule.every=4}, warmup = {warmup=1}); steps {steps=9}",
               {"lr": "0.3", "schedule.every": "3", "end": "0.5", "warmup": "2"}),
    "inverse": ("optimizer sgd(lr = {lr=0.1}); schedule inverse_sqrt(warmup = {warmup=3}); steps {steps=9}", dict(warmup="1")),
    "exponential": ("optimizer sgd(lr = {lr=0.1}); schedule exponential(every = {schedule.every=3}, factor = {factor=0.5}); "
                    "steps {steps=9}", {"schedule.every": "1", "factor": "0.9"}),
    "rmsprop": ("optimizer rmsprop(lr = {lr=1e-3}, alpha = {alpha=0.99}, momentum = {momentum=0.5}, eps = {eps=1e-8}); "
                "steps {steps=9}", dict(lr="2e-3", alpha="0.9", momentum="0.1", eps="1e-4")),
    "adagrad": ("optimizer adagrad(lr = {lr=1e-2}, decay = {decay=0.1}); steps {steps=9}", dict(lr="2e-3", decay="0.2")),
    "muon": ("optimizer muon(lr = {lr=1e-2}, momentum = {momentum=0.9}, decay = {decay=0.1}) on (\"*.weight\"); "
             "optimizer sgd(lr = {lr.2=0.1}, momentum = {momentum=0.9}, decay = {decay=0.1}); steps {steps=9}",
             {"lr": "3e-2", "momentum": "0.5", "decay": "0.2", "lr.2": "0.2"}),
    "two": ("optimizer sgd(lr = {lr=0.1}) on (\"fc.*\"); optimizer adam(lr = {lr.2=0.01}); steps {steps=9}",
            {"lr": "0.7", "lr.2": "0.03"}),
}
verdicts = programs.Verdicts()


def text(case, values, seed="1"):
    clauses = re.sub(r"\{([\w.]+)=([^}]*)\}", lambda found: values.get(found[1], found[2]), CASES[case][0])
    return (PROGRAM % ("  " + clauses)).replace("seed 1", "seed " + seed)


def final(exe, data, *flags):
    out = programs.FOLDER / "out"
    programs.call([exe, "--data", data, "--out", out, "--quiet", *flags])
    return (out / "final.safetensors").read_bytes()


def same_bits(case, data, precision):
    flags = ["--set", "precision=" + precision]
    exe = programs.compiled(programs.source(case, text(case, {})), case, *flags)
    values = CASES[case][1]
    for seed in ("1", "7"):
        edited = programs.compiled(programs.source(case + "-edited", text(case, values, seed)), case + "-edited", *flags)
        sets = [word for key, value in {"seed": seed, **values}.items() for word in ("--set", key + "=" + value)]
        wanted = final(edited, data)
        verdicts.expect(final(exe, data, *sets) == wanted, "%s, %s: --set of all values at the run" % (case, precision))
        verdicts.expect(final(exe, data) != wanted, "%s: the values change something" % case)
        # `lr` sets all of them, so it stands before `lr.2`.
        at_compile = programs.compiled(programs.source(case, text(case, {})), case + "-set", *flags, *sets)
        verdicts.expect(final(at_compile, data) == wanted, "%s: --set when compiling" % case)


def each_alone(data):
    for case in ("sgd", "adamw"):
        exe = programs.compiled(programs.source(case, text(case, {})), case)
        for key, value in CASES[case][1].items():
            edited = programs.compiled(programs.source(case + "-edited", text(case, {key: value})), case + "-edited")
            verdicts.expect(final(exe, data, "--set", "train.%s=%s" % (key, value)) == final(edited, data), case + ": " + key)


def refusals(data):
    source = programs.source("plain", PROGRAM % "  optimizer sgd(lr = 0.1); steps 9")
    plain = programs.compiled(source, "plain")

    def refused(words, *sets):
        flags = [word for each in sets for word in ("--set", each)]
        said = programs.call([plain, "--data", data, "--out", programs.FOLDER / "none", *flags], allowed=(2,)).stdout
        verdicts.expect(all(word in said for word in words), "%s: %s" % (sets, said))

    refused(["compiled with momentum 0", "compile again, with --set momentum=0.9"], "momentum=0.9")
    refused(["compiled with clip 0"], "clip=1")
    programs.call([plain, "--data", data, "--out", programs.FOLDER / "none", "--steps", "0", "--quiet", "--set", "clip=0"])
    refused(["`grain` is decided when compiling"], "grain=4")
    refused(["`precision` is decided when compiling"], "precision=f64")
    refused(["`beta1` is no value of this program"], "beta1=0.5")
    refused(["unknown key `leraning`"], "leraning=1")
    refused(["unknown key `learning_rate`; did you mean `lr`?"], "learning_rate=0.1")
    for flag, key in (("--lr", "lr"), ("--learning-rate", "lr"), ("--epochs", "epochs")):
        said = programs.call([plain, "--data", data, "--out", programs.FOLDER / "none", flag, "1"], allowed=(2,)).stdout
        verdicts.expect("unknown flag `%s`; did you mean `--set %s=..`?" % (flag, key) in said, "%s: %s" % (flag, said))
    refused(["unknown key `H`", "cinch FILE -D NAME=VALUE"], "H=3")
    refused(["unknown key `step`; did you mean `steps`?"], "step=1")
    refused(["--set expects KEY=VALUE, got `lr`"], "lr")
    for value in ("", ".1", "1.", "0x1", "nan", "inf", "1e999", "1e300", "1e-400", "1e-320", "-1", "1 ", "1/2"):
        refused(["`lr` must be a number of at least 0"], "lr=" + value)
        # The compiler says the same of it.
        said = programs.call([programs.CINCH, "check", source, "--set", "lr=" + value], allowed=(1,)).stdout
        verdicts.expect("`train.lr` must be a number of at least 0" in said, said)
    for value in ("1e-300", "0e-400", "3e-39", "1e299"):
        programs.call([programs.CINCH, "check", source, "--set", "lr=" + value])
        programs.call([plain, "--data", data, "--out", programs.FOLDER / "none", "--steps", "0", "--quiet", "--set", "lr=" + value])
    for steps in ("1.5", "9007199254740993", "9007199254740994"):
        refused(["`steps` must be a whole number from 1 to 2^53"], "steps=" + steps)
    refused(["`warmup` must be a whole number from 0 to 2^53"], "warmup=1.5")
    for seed in ("18446744073709551616", "-1", "0.5", "one"):
        refused(["the seed must be a whole number below 2^64"], "seed=" + seed)
        said = programs.call([programs.CINCH, "check", source, "--set", "seed=" + seed], allowed=(1,)).stdout
        verdicts.expect("the seed must be a whole number below 2^64" in said, said)
    said = programs.call([plain, "info"]).stdout
    verdicts.expect("values       lr 0.1, momentum 0, decay 0, warmup 0, clip 0, clip_value 0, seed 1, steps 9" in said, said)
    # Clipping is turned off when compiling.
    sgd = programs.compiled(programs.source("sgd", text("sgd", {})), "sgd")
    said = programs.call([sgd, "--data", data, "--out", programs.FOLDER / "none", "--set", "clip=0"], allowed=(2,)).stdout
    verdicts.expect("compiled with clip 0.5" in said and "compile again, with --set clip=0" in said, said)
    off = programs.compiled(programs.source("sgd", text("sgd", {})), "off", "--set", "clip=0")
    none = programs.compiled(programs.source("unclipped", text("sgd", {}).replace("clip norm(0.5); ", "")), "unclipped")
    verdicts.expect(final(off, data) == final(none, data), "--set clip=0 when compiling")
    # `lr` is that of both optimizers.
    two = programs.compiled(programs.source("two", text("two", {})), "two")
    said = programs.call([two, "info"]).stdout
    verdicts.expect("lr.1 0.1, " in said and "lr.2 0.01, " in said and "of every optimizer that has one: lr" in said, said)
    said = programs.call([two, "--data", data, "--out", programs.FOLDER / "out", "--set", "lr=0.7"]).stdout
    verdicts.expect("--set lr=0.7 sets lr.1, lr.2" in said, said)
    both = programs.compiled(programs.source("two", text("two", {"lr": "0.7", "lr.2": "0.7"})), "both")
    verdicts.expect(final(two, data, "--set", "lr=0.7") == final(both, data), "lr of both")
    first = programs.compiled(programs.source("two", text("two", {"lr": "0.7"})), "first")
    verdicts.expect(final(two, data, "--set", "lr.1=0.7") == final(first, data), "lr.1 of the first alone")
    # A trial of a few steps may be shorter than the warmup of the whole run.
    adamw = programs.compiled(programs.source("adamw", text("adamw", {})), "adamw")
    for steps, warned in (("2", True), ("3", False)):
        said = programs.call([adamw, "--data", data, "--out", programs.FOLDER / "out", "--set", "steps=" + steps]).stdout
        verdicts.expect(("the schedule warms up for 3 steps, but the run has 2: lr never gets to its value" in said) == warned, said)
    said = programs.call([plain, "eval", "--set", "lr=1"], allowed=(2,)).stdout
    verdicts.expect("--set has no meaning for `eval`" in said, said)


def parameters(data):
    """`info --parameters` lists what stands in the file."""
    exe = programs.compiled(programs.source("nesterov", text("nesterov", {})), "nesterov")
    final(exe, data)
    listed = dict(line.split(" ", 1) for line in programs.call([exe, "info", "--parameters"]).stdout.splitlines())
    saved = {name: "F32" + str(list(value.shape)) + (" average" if name.endswith(".ema") else "")
             for name, value in tensorfile.read(programs.FOLDER / "out" / "final.safetensors").items() if not name.startswith("optimizer")}
    verdicts.expect(listed == saved and len(saved) >= 4, "info --parameters: %s, expected %s" % (listed, saved))
    said = programs.call([exe, "train", "--parameters"], allowed=(2,)).stdout
    verdicts.expect("--parameters has no meaning for `train`" in said, said)


def resuming(data):
    """What a resumed run does with values that were given, edited, or both."""
    program = lambda lr, more="": PROGRAM % ("  optimizer sgd(lr = %s, momentum = 0.9); steps 12; %s" % (lr, more))
    exe = {lr: programs.compiled(programs.source("lr" + lr, program(lr)), "lr" + lr) for lr in ("0.1", "0.2")}
    out = programs.FOLDER / "resumed"

    def run(which, *flags, code=0):
        done = programs.call([exe.get(which, which), "--data", data, "--out", out, *flags], allowed=(code,))
        return done.stdout, (out / "final.safetensors").read_bytes() if code == 0 else None

    whole = run("0.1", "--set", "lr=0.05")[1]
    run("0.1", "--set", "lr=0.05", "--steps", 5)
    said, bits = run("0.1", "--resume")
    verdicts.expect(bits == whole and "lr: 0.05, as in the checkpoint (0.1 in the program)" in said, "as it was given: " + said)
    run("0.1", "--set", "lr=0.05", "--steps", 5)
    said, _ = run("0.2", "--resume", code=3)
    verdicts.expect("lr: 0.05 in the checkpoint, 0.2 here\n" in said and "--set lr=0.2" in said and "the old ones: --set lr=0.05" in said, "edited: " + said)
    said, bits = run("0.2", "--resume", "--set", "lr=0.05")
    verdicts.expect(bits == whole and "0.05 in" not in said, "edited, and --set says what it was: " + said)
    run("0.1", "--steps", 5)
    said, bits = run("0.1", "--resume", "--set", "lr=0.2")
    verdicts.expect("lr: 0.1 in the checkpoint, 0.2 here (--set)" in said, "--set on resume: " + said)
    run("0.1", "--steps", 5)
    verdicts.expect(run("0.2", "--resume", "--set", "lr=0.2")[1] == bits, "--set of what the program says now")
    run("0.1", "--set", "lr=0.2", "--steps", 5)
    verdicts.expect(run("0.2", "--resume")[1] == run("0.2")[1], "the program now says what the run was given")

    # Another seed; another length.
    run("0.1", "--steps", 5)
    said, _ = run("0.1", "--resume", "--set", "seed=2", code=3)
    verdicts.expect("seed: 1 in the checkpoint, 2 here" in said, said)
    said, _ = run("0.1", "--resume", "--set", "steps=8")
    verdicts.expect("steps: 12 in the checkpoint, 8 here (--set)" in said and "steps 5 to 8" in said, said)
    run("0.1", "--set", "seed=5", "--set", "steps=20", "--steps", 5)
    said, bits = run("0.1", "--resume")
    verdicts.expect("steps 5 to 20" in said and bits == run("0.1", "--set", "seed=5", "--set", "steps=20")[1], said)

    # The program counts epochs (of three steps), and the run was given another length.
    exe["epochs"] = programs.compiled(programs.source("epochs", program("0.1").replace("steps 12", "epochs 2")), "epochs")
    for given, last in (("epochs=4", 12), ("steps=10", 10)):
        whole = run("epochs", "--set", given)[1]
        run("epochs", "--set", given, "--steps", 5)
        said, bits = run("epochs", "--resume")
        verdicts.expect("steps: %d, as in the checkpoint (6 in the program)" % last in said and bits == whole, "%s, resumed: %s" % (given, said))

    # Things that do not matter: metrics, logs, names of locals, predictions, hints.
    run("0.1", "--steps", 5)
    other = program("0.1", "every 2 log(csv)").replace("logits", "guess").replace(
        "  loss =", "  metric acc = mean[B] (argmax(guess) == y); predict class = argmax(guess); every 3 eval(train)\n  loss =")
    exe["other"] = programs.compiled(programs.source("other", other), "other")
    said, bits = run("other", "--resume")
    verdicts.expect("metrics: loss in the checkpoint, loss, acc here; the numbers of the training do not depend on it" in said
                    and "every: none in the checkpoint, eval every 3" in said, said)
    verdicts.expect(bits == run("0.1")[1], "another metric changes the training")

    # Things that do.
    run("0.1", "--steps", 5)
    for name, change, words in (
            ("wider", ("H = 8", "H = 9"), ["`fc.weight` has shape [8, 6] in it, expected [9, 6]"]),
            ("batch", ("B = 16", "B = 8"), ["batch: 16 in the checkpoint, 8 here"]),
            ("rule", ("sgd(lr = 0.1, momentum = 0.9)", "adam(lr = 0.1)"), ["optimizer: sgd with momentum in the checkpoint, adam here"]),
            ("clipped", ("steps 12", "clip norm(1); steps 12"), ["clip: none in the checkpoint, norm here"]),
            ("loss", ("cross_entropy(logits, y)", "cross_entropy(logits, y) * 2"), ["loss: `loss = mean [ B ] cross_entropy ( logits , y )` in the checkpoint, `loss = mean [ B ] cross_entropy ( logits , y ) * 2` here"]),
            ("rate", ("relu(fc(x)), 0.1", "relu(fc(x)), 0.2"), ["layer net: "]),):
        exe[name] = programs.compiled(programs.source(name, program("0.1").replace(*change)), name)
        said, _ = run(name, "--resume", code=3)
        verdicts.expect(all(word in said for word in words) and "--init " in said, "%s: %s" % (name, said))

    spare = lambda words: programs.compiled(programs.source("spare", program("0.1").replace("momentum = 0.9", "decay = 0.1" + words)), "spare")
    run(spare(""), "--steps", 5)
    said, _ = run(spare(' except "fc.bias"'), "--resume", code=3)
    verdicts.expect("decay.except: none in the checkpoint, fc.bias here" in said, said)

    # A csv log with other columns is not gone on with.
    logged = programs.compiled(programs.source("logged", program("0.1", "every 2 log(csv)")), "logged")
    run(logged, "--steps", 5)
    exe["other"] = programs.compiled(programs.source("other", other), "other")
    said, _ = run("other", "--resume")
    rows = (out / "log.csv").read_text().splitlines()
    verdicts.expect("log.csv" in said and len({row.count(",") for row in rows}) == 1 and "train.acc" in rows[0], "%s\n%s" % (said, rows))
    verdicts.expect(len((out / "log.csv.previous").read_text().splitlines()) > 1, "the old log is kept")


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    rng = np.random.default_rng(1)
    np.save(data / "x.npy", rng.normal(size=(48, 6)).astype(np.float32))
    np.save(data / "y.npy", rng.integers(0, 4, 48).astype(np.int32))
    refusals(data)
    parameters(data)
    resuming(data)
    for case in CASES:
        same_bits(case, data, "f64" if case in ("wsd", "lion") else "f32")
    each_alone(data)


verdicts.run(main)
