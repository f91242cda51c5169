#!/usr/bin/python3
"""The examples do what their pages say: their data commands make data, they compile, learn, evaluate and write. With --long also bits.py
(every pair of settings) and budget.py on both."""
import json
import os
import re
import socket
import subprocess
import sys

import programs

ROOT = programs.HERE.parent.parent
PYTHON = "/usr/bin/python3"
SMALL = ["-D", "D=64", "-D", "N=2", "-D", "T=64", "-D", "B=16"]

verdicts = programs.Verdicts()


def digits():
    data = programs.FOLDER / "digits"
    programs.call([PYTHON, ROOT / "examples/mlp/digits.py", data, "--train", 4000, "--test", 500])
    sizes = [(data / name).stat().st_size for name in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte")]
    verdicts.expect(sizes == [16 + 4000 * 784, 8 + 500], "mlp: sizes of the data files, got %s" % sizes)
    exe = programs.compiled(ROOT / "examples/mlp/mlp.cinch", "mlp", "--set", "train.steps=300")
    out = programs.FOLDER / "out-digits"
    programs.call([exe, "--data", data, "--out", out, "--quiet"])
    text = programs.call([exe, "eval", "--data", data, "--out", out, "--quiet"]).stdout
    result = json.loads([line for line in text.splitlines() if line.startswith("{")][-1])
    verdicts.expect(result["acc"] > 0.9, "mlp: accuracy %s after 300 steps" % result["acc"])
    right = sum(result["table"][i][i] for i in range(10))
    verdicts.expect(sum(map(sum, result["table"])) == 500 and abs(right / 500 - result["acc"]) < 1e-6,
                    "mlp: the confusion matrix does not fit the accuracy: " + text)
    return data


def text():
    data = programs.FOLDER / "text"
    programs.call([PYTHON, ROOT / "examples/gpt/data.py", data, "--licences"])
    flags = [*SMALL, "--set", "train.steps=120", "--set", "train.lr=3e-3", "--set", "train.warmup=20"]
    exe = programs.compiled(ROOT / "examples/gpt/gpt.cinch", "gpt", *flags, "--memory-budget", "16MiB")
    result = programs.run(exe, data, 120)
    verdicts.expect(result.peak <= 16 << 20, "gpt: a peak of %d bytes under 16 MiB" % result.peak)
    verdicts.expect(result.losses[0] > 3.5 and result.losses[-1] < 2.9, "gpt: the loss goes from %s to %s"
                    % (result.losses[0], result.losses[-1]))
    command = [exe, "generate", "--out", result.out, "--length", 100, "--prompt", "The ", "--seed", 5]
    written = [programs.call(command).stdout for _ in range(2)]
    verdicts.expect(written[0] == written[1] and "The " in written[0] and len(written[0]) > 100,
                    "gpt: writes %r, then %r" % tuple(written))
    return data


def recurrent():
    """The LSTM on the same text, under a budget at which its loops compute steps again."""
    flags = ["-D", "H=48", "-D", "T=32", "-D", "B=16", "--set", "train.steps=150", "--set", "train.warmup=10"]
    program = ROOT / "examples/lstm/lstm.cinch"
    exe = programs.compiled(program, "lstm", *flags)
    result = programs.run(exe, programs.FOLDER / "text", 150)
    verdicts.expect(result.losses[0] > 5 and result.losses[-1] < 3.4, "lstm: the loss goes from %s to %s" % (result.losses[0], result.losses[-1]))
    written = programs.call([exe, "generate", "--out", result.out, "--length", 60, "--prompt", "The ", "--seed", 5]).stdout
    verdicts.expect("The " in written and len(written) > 60, "lstm: writes %r" % written)


def several_workers():
    """The program of four workers: one worker is refused its budget; threads, processes of that size each, and another grid leave the same bits."""
    folder, data = ROOT / "examples/workers", programs.FOLDER / "text"
    flags = ["--set", "train.steps=24", "--max-threads", "2"]
    refused = programs.compiled(folder / "workers.cinch", "workers-one", *flags, "--stages", "1", allowed=(1,))
    least = int(re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout).group(1))
    verdicts.expect(least > 16 << 20, "workers: one worker needs %d bytes only" % least)
    exe = programs.compiled(folder / "workers.cinch", "workers", *flags)
    threads = programs.run(exe, data, 24, "--threads", "1")
    verdicts.expect(threads.losses[-1] < threads.losses[0] - 0.5, "workers: losses %s" % threads.losses)
    one = programs.run(programs.compiled(folder / "workers.cinch", "workers-one", *flags, "--stages", "1", "--memory-budget", str(least)), data, 24)
    verdicts.expect(one.bytes == threads.bytes, "workers: four threads leave other bits than one worker")
    out = programs.FOLDER / "workers-tcp"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment = dict(os.environ, MASTER_PORT=str(probe.getsockname()[1]))
    command = [folder / "processes.sh", "4", exe, "--data", data, "--out", out, "--threads", "1"]
    done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    peaks = [int(peak) for peak in re.findall(r"peak memory (\d+) bytes", done.stdout)]
    verdicts.expect(done.returncode == 0 and (out / "final.safetensors").read_bytes() == threads.bytes, "workers over TCP: " + done.stdout[-500:])
    verdicts.expect(len(peaks) == 4 and max(peaks) <= 16 << 20, "workers over TCP: peaks %s" % peaks)
    print("workers: one worker at its smallest budget %d bytes; four processes %s, together %d" % (one.peak, peaks, sum(peaks)))
    half = programs.run(exe, data, 12, "--threads", "1")
    grid = programs.compiled(folder / "workers.cinch", "workers-grid", *flags, "--stages", "2", "--replicas", "2", "--memory-budget", "32MiB")
    programs.call([grid, "--data", data, "--out", half.out, "--resume"])
    verdicts.expect((half.out / "final.safetensors").read_bytes() == threads.bytes, "workers: another grid goes on to other bits")


def images():
    """The ResNet at a sixteenth of its width, under a budget at which it computes again; records of label and image."""
    data = programs.FOLDER / "pictures"
    programs.call([PYTHON, ROOT / "examples/resnet/images.py", data, "--train", 1000, "--test", 100])
    sizes = [(data / name).stat().st_size for name in ("data_batch_5.bin", "test_batch.bin")]
    verdicts.expect(sizes == [200 * 3073, 100 * 3073], "resnet: sizes of the data files, got %s" % sizes)
    flags = ["-D", "F=4", "-D", "B=32", "-D", "G=16", "--set", "epochs=5", "--set", "warmup=10", "--memory-budget", "10MiB"]
    exe = programs.compiled(ROOT / "examples/resnet/resnet.cinch", "resnet", *flags)
    result = programs.run(exe, data, 155)
    verdicts.expect(result.peak <= 10 << 20, "resnet: a peak of %d bytes under 10 MiB" % result.peak)
    learns("resnet", result, 0.1)
    flags = ["-D", "M=4", "-D", "N=1", "-D", "B=32", "-D", "G=16", "--set", "epochs=5", "--set", "warmup=10"]
    learns("revnet", programs.run(programs.compiled(ROOT / "examples/revnet/revnet.cinch", "revnet", *flags), data, 155), 0.05)


def learns(name, result, fall):
    """The mean loss of the last ten steps lies below that of the first ten."""
    losses = [row["loss"] for row in result.rows if "loss" in row]
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    verdicts.expect(last < first - fall, "%s: the loss goes from %s to %s" % (name, first, last))


# Networks that see few pictures often: the size of a batch, further flags, and by how much the loss falls at least.
LEARNERS = {
    "mobilenet": (20, ["-D", "G=20"], 0.15),
    "unet": (8, ["-D", "S=32", "-D", "F=8"], 0.4),
}


def few_images():
    pictures, shapes = programs.FOLDER / "few-pictures", programs.FOLDER / "shapes"
    programs.call([PYTHON, ROOT / "examples/resnet/images.py", pictures, "--train", 100, "--test", 20])
    programs.call([PYTHON, ROOT / "examples/unet/shapes.py", shapes, "--train", 80, "--valid", 16, "--side", 32])
    for name, (batch, flags, fall) in LEARNERS.items():
        data, epochs = (shapes, 10) if name == "unet" else (pictures, 20)
        flags = [*flags, "-D", "B=%d" % batch, "--set", "epochs=%d" % epochs, "--set", "warmup=5"]
        exe = programs.compiled(ROOT / "examples" / name / (name + ".cinch"), name, *flags)
        result = programs.run(exe, data, 100)
        learns(name, result, fall)
    said = programs.call([exe, "eval", "--data", shapes, "--out", result.out, "--quiet"]).stdout
    told = json.loads(said.splitlines()[-1])
    verdicts.expect(told["examples"] == 16 and 0 < told["iou"] < told["right"] < 1, "unet: eval says " + said)


# The small ones, shortened: flags, commands that make data, what the last line of the log says, words of a metric.
SMALLER = {
    "houses": (["--set", "steps=900"], "data-houses", "valid.error", 10),
    "vae": (["--set", "steps=150"], "digits", "valid.loss", 215),
    "convvae": (["--set", "steps=150"], "digits", "valid.loss", 230),
    "masked": (["-D", "D=32", "--set", "steps=60"], "text", "valid.loss", 4.5),
    "mixer": (["-D", "D=16", "--set", "steps=60"], "digits", "valid.acc", -0.5),
    "vit": (["-D", "D=32", "-D", "N=2", "--set", "epochs=3", "--set", "lr=3e-3"], "digits", "valid.loss", 2.1),
    "gru": (["-D", "H=32", "--set", "steps=100"], "digits", "valid.acc", -0.6),
    "siamese": (["--set", "steps=300"], "digits", "valid.acc", -0.75),
    "towers": (["--set", "steps=200"], "digits", "valid.found", -0.35),
    "word2vec": (["--set", "steps=500"], "data-words", "loss", 2),
}


def small():
    call = lambda script, *arguments: programs.call([PYTHON, ROOT / "examples" / script, *arguments])
    call("houses/houses.py", programs.FOLDER / "data-houses")
    call("siamese/pairs.py", programs.FOLDER / "digits")
    call("word2vec/words.py", programs.FOLDER / "data-words")
    for name, (flags, data, metric, limit) in SMALLER.items():
        exe = programs.compiled(ROOT / "examples" / name / (name + ".cinch"), name, *flags)
        out = programs.FOLDER / ("out-" + name)
        programs.call([exe, "--data", programs.FOLDER / data, "--out", out, "--quiet", "--log", "jsonl"])
        rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        last = [row[metric] for row in rows if metric in row]
        if not last and metric.startswith("valid."):
            said = programs.call([exe, "eval", "--on", "valid", "--data", programs.FOLDER / data, "--out", out, "--quiet"]).stdout
            last = [json.loads(said.splitlines()[-1])[metric[6:]]]
        verdicts.expect(last[-1] < limit if limit > 0 else last[-1] > -limit, "%s: %s is %s" % (name, metric, last[-1]))
    new = programs.FOLDER / "data-houses" / "new.csv"
    said = programs.call([programs.FOLDER / "houses", "predict", "--on", "valid", "--data-file", new, "--out", programs.FOLDER / "out-houses"]).stdout
    verdicts.expect("predict/new/price.npy: 5 examples" in said, said)
    said = call("word2vec/nearest.py", programs.FOLDER / "out-word2vec/final.safetensors", programs.FOLDER / "data-words/words.txt", "software").stdout
    verdicts.expect(said.startswith("software: ") and len(said.split()) == 6, said)


def further(script, program, data, *arguments):
    """A test of this folder on an example; its tally is added to ours."""
    done = subprocess.run([PYTHON, programs.HERE / script, "--program", ROOT / program, "--data", data, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="")
    tally = re.findall(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
    verdicts.expect(bool(tally) and done.returncode == 0, "%s %s: exit %d" % (script, program, done.returncode))
    if tally:
        verdicts.passed += int(tally[-1][0])
        verdicts.failed += int(tally[-1][1])


def main():
    pictures, letters = digits(), text()
    recurrent()
    several_workers()
    small()
    images()
    few_images()
    if "--long" in sys.argv:
        for program, data, flags in (("examples/mlp/mlp.cinch", pictures, []), ("examples/gpt/gpt.cinch", letters, SMALL)):
            further("bits.py", program, data, "--pairs", "--flags", " ".join(flags))
            further("budget.py", program, data, "--flags", " ".join(flags))


verdicts.run(main)
