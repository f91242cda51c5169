#!/usr/bin/python3
"""What a run writes beside its parameters, with rules that few people write: more metrics than fit into a line, two evaluations of one data set,
a `best` that evaluates by itself, a run that is stopped inside an evaluation, the bar of a terminal, folders in the folder of checkpoints, two processes that read the
same table for the first time, standard descriptors that are closed; and the memory that many files and wide tables take.

usage: logs.py [NAME...]     NAME chooses by a part of the function's name
"""
import csv
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import programs
import tensorfile

verdicts = programs.Verdicts()
expect = verdicts.expect

HEAD = """dim B = 8 batch, I = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: f32[B])
data valid = npy("vx.npy", "vy.npy") -> (x: f32[B, I], y: f32[B])
model net(x: f32[B, I]) -> f32[B] {
  use fc = linear[1]
  return fc(x)[.., 0]
}
train net on train seed 1 {
  p = net(x)
  loss = mean[B] (p - y) ^ 2
"""


def data(name, valid=40):
    """Of the rows to evaluate, those behind the first batch are far off."""
    folder = programs.FOLDER / (name + "-data")
    folder.mkdir()
    rng = np.random.default_rng(1)
    for prefix, count in (("", 64), ("v", valid)):
        x = rng.standard_normal((count, 4)).astype("f4")
        y = x.sum(axis=1) + (100 * (np.arange(count) >= 8) if prefix else 0)
        np.save(folder / (prefix + "x.npy"), x)
        np.save(folder / (prefix + "y.npy"), y.astype("f4"))
    return folder


def program(name, rest):
    return programs.compiled(programs.source(name, HEAD + rest + "}\n"), name)


def rows(out, name="log.csv"):
    with open(out / name) as file:
        return list(csv.DictReader(file))


def notes(path):
    """What a file of parameters says of itself."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length))["__metadata__"]


LONG = "a" * 140


def tensorboard(events):
    """Tags and values of an event file, in their order, read as protobuf is."""
    def number(data, at):
        value, shift = 0, 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value, at

    def fields(data):
        at = 0
        while at < len(data):
            key, at = number(data, at)
            if key & 7 == 0:
                value, at = number(data, at)
            else:
                size, at = {1: (8, at), 5: (4, at)}[key & 7] if key & 7 != 2 else number(data, at)
                value, at = data[at : at + size], at + size
            yield key >> 3, value

    found, at = [], 0
    while at < len(events):
        size = int.from_bytes(events[at : at + 8], "little")
        for field, summary in fields(events[at + 12 : at + 12 + size]):
            if field == 5:
                for _, value in fields(summary):
                    inside = dict(fields(value))
                    found.append((inside[1].decode(), np.frombuffer(inside[2], "<f4")[0]))
        at += 16 + size
    return found


def many_metrics():
    """All of them stand in every log, whose rows then have more than 4,000 characters."""
    count = 300
    text = "  metric %s = mean[B] p\n" % LONG
    text += "".join("  metric a_metric_with_a_long_name_%d = %d * mean[B] abs(p - y)\n" % (i, i) for i in range(count))
    exe = program("many", text + "  optimizer sgd(lr = 0.01)\n  steps 4\n  every 1 log(csv, jsonl, tensorboard, html)\n  every 2 eval(valid)\n")
    folder, out = data("many"), programs.FOLDER / "many-out"
    for again in ((), ("--resume", "--steps", "4")):
        programs.call([exe, "--data", folder, "--out", out, "--quiet", *again] if again else [exe, "--data", folder, "--out", out, "--quiet", "--steps", "3"])
    table = rows(out)
    name = "valid.a_metric_with_a_long_name_%d"
    expect([row["step"] for row in table] == ["1", "2", "3", "4"], "a row a step, resumed between them: %s" % [row["step"] for row in table])
    one = float(table[1][name % 1])
    expect(all(abs(float(table[1][name % i]) - i * one) < 1e-3 * i * one for i in range(1, count)), "each metric stands in its column")
    expect(not table[0][name % 1] and table[3][name % (count - 1)], "in the rows of its steps alone")
    lines = [json.loads(line) for line in open(out / "log.jsonl")]
    expect(len(lines) == 4 and all(name % i in lines[3] for i in range(count)), "log.jsonl has them")
    tags = [tag for tag, _ in tensorboard((out / "tensorboard" / "events.out.tfevents.0.cinch").read_bytes())]
    expect(all(tags.count(name % i) == 2 for i in range(count)), "and so has TensorBoard's file, twice each")
    expect(tags.count("valid." + LONG) == 2, "with names of more than 128 letters")
    expect((name % (count - 1)) in (out / "log.html").read_text(), "and the page")


def two_evaluations():
    """Each rule is done with its own number of batches; the row of a step has the numbers of more of them."""
    rules = """  metric err = mean[B] abs(p - y)
  optimizer sgd(lr = 0)
  steps 8
  every 2 eval(valid, batches = 1)
  every 4 eval(valid)
  every 4 checkpoint("run", keep = 2, best = min(err))
  every 2 log(csv)
"""
    folder, out = data("two"), programs.FOLDER / "two-out"
    exe = program("two", rules)
    said = programs.call([exe, "--data", folder, "--out", out]).stdout
    whole = float(re.search(r"err +(\S+)", programs.call([exe, "eval", "--on", "valid", "--data", folder, "--out", out]).stdout).group(1))
    few = re.findall(r"step (\d+)/8  valid, 1 batch:.*err (\S+)", said)
    all_of_it = re.findall(r"step (\d+)/8  valid:.*err (\S+)", said)
    expect([step for step, _ in few] == ["2", "4", "6", "8"] and [step for step, _ in all_of_it] == ["4", "8"], said)
    expect(all(float(err) == whole for _, err in all_of_it) and all(float(err) < whole / 4 for _, err in few), "%s %s, of all %g" % (few, all_of_it, whole))
    logged = [float(row["valid.err"]) for row in rows(out)]
    expect(logged == [float(few[0][1]), whole, float(few[2][1]), whole], "rows: %s" % logged)
    best = notes(out / "run" / "best.safetensors")["best"]
    expect(np.float32(best.split(":")[2]) == np.float32(few[0][1]), "`best` goes by the first rule: %s" % best)


def rows_of_best():
    """What `best` evaluates by itself stands in the row of its own step."""
    rules = """  metric err = mean[B] abs(p - y)
  optimizer sgd(lr = 0.05)
  steps 20
  every 50 eval(valid)
  every 7 checkpoint("run", keep = 2, best = min(err))
  every 10 log(csv)
"""
    folder, out = data("best"), programs.FOLDER / "best-out"
    said = programs.call([program("best", rules), "--data", folder, "--out", out]).stdout
    printed = dict(re.findall(r"step (\d+)/20  valid:.*err (\S+)", said))
    logged = {row["step"]: row["valid.err"] for row in rows(out) if row["valid.err"]}
    expect(printed == logged and set(printed) == {"7", "14"}, "printed %s, logged %s" % (printed, logged))


def stopped_in_evaluation():
    """The mean of the losses since the last row is that of a run that was never stopped."""
    rules = "  optimizer sgd(lr = 0.01)\n  steps 20\n  every 10 log(csv)\n  every 10 eval(valid)\n"
    folder = data("stopped", valid=500000)
    exe = program("stopped", rules)
    whole, cut = programs.FOLDER / "stopped-whole", programs.FOLDER / "stopped-cut"
    programs.call([exe, "--threads", "1", "--data", folder, "--out", whole, "--quiet"])
    pending = 0
    for attempt in range(8):
        out = programs.FOLDER / ("stopped-%d" % attempt)
        process = subprocess.Popen([exe, "--threads", "1", "--data", folder, "--out", out], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("step 10/20  loss"):
                process.send_signal(signal.SIGTERM)
                break
        process.stdout.read()
        code = process.wait()
        log = (out / "log.csv").read_text().count("\n") if (out / "log.csv").exists() else 0
        pending += code == 75 and log == 1  # the row of step 10 was not written yet
        programs.call([exe, "--threads", "1", "--data", folder, "--out", out, "--resume", "--quiet"])
        same = [[row["step"], row["loss"], row["mean_loss"]] for row in rows(out)] == [[row["step"], row["loss"], row["mean_loss"]] for row in rows(whole)]
        expect(same, "attempt %d, code %d, %d lines when it was stopped: %s" % (attempt, code, log, rows(out)))
        if pending:
            break
    expect(pending > 0, "no run was stopped inside its evaluation")


def small_losses_on_a_terminal():
    """The bar of a terminal shows a loss with its exponent."""
    rules = "  optimizer sgd(lr = 0)\n  steps 10\n"
    exe = programs.compiled(programs.source("tiny", (HEAD + rules + "}\n").replace("(p - y) ^ 2", "(1e-6 * p) ^ 2")), "tiny")
    control, terminal = pty.openpty()
    process = subprocess.Popen([exe, "--data", data("tiny"), "--out", programs.FOLDER / "tiny-out"], stdout=terminal, stderr=terminal)
    os.close(terminal)
    drawn = b""
    while piece := read_terminal(control):
        drawn += piece
    expect(process.wait() == 0, "it ends with %s" % process.returncode)
    shown = [float(loss) for loss in re.findall(rb"\d/10  loss (\S+)  \d+ examples/s", drawn)]
    expect(shown and all(0 < loss < 1e-9 for loss in shown), "losses in the bar: %s" % drawn[-300:])


def read_terminal(control):
    try:
        return os.read(control, 4096)
    except OSError:  # the other end is closed
        return b""


def full_for_a_while():
    """Rows that find no room are left out as a whole, in each log, and a run goes on behind them."""
    folder, out = data("full"), programs.FOLDER / "full-out"
    exe = program("full", "  optimizer sgd(lr = 0.01)\n  steps 400000000\n  every 1 log(csv, jsonl, tensorboard)\n")
    out.mkdir()
    most = 40000

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    run = subprocess.Popen([exe, "--data", folder, "--out", out, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limited)
    logs = [out / "log.csv", out / "log.jsonl", out / "tensorboard/events.out.tfevents.0.cinch"]

    def sizes():
        return [log.stat().st_size if log.exists() else 0 for log in logs]

    def waits(condition):
        for _ in range(600):
            if condition():
                return True
            time.sleep(0.05)
        return False

    expect(waits(lambda: min(sizes()) > most - 400), "all logs are full: %s" % sizes())
    time.sleep(0.3)
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    expect(waits(lambda: min(sizes()) > most + 2000), "all logs grow again: %s" % sizes())
    run.send_signal(signal.SIGTERM)
    said = run.communicate()[0].decode()
    expect(run.returncode == 75, "stopped with %s: %s" % (run.returncode, said))
    for name in ("log.csv", "log.jsonl", "TensorBoard log"):
        expect(said.count(name) == 1, "a warning for %s: %s" % (name, said))
    lines = (out / "log.csv").read_text().splitlines()
    expect({line.count(",") for line in lines} == {lines[0].count(",")}, "rows of one length")
    steps = {"csv": [int(line.split(",")[0]) for line in lines[1:]],
             "jsonl": [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]}
    tags = [tag for tag, _ in tensorboard(logs[2].read_bytes())]
    expect(tags and tags == tags[:len(set(tags))] * (len(tags) // len(set(tags))), "the records of all steps are whole: %d" % len(tags))
    for name, seen in steps.items():
        gaps = sum(b != a + 1 for a, b in zip(seen, seen[1:]))
        # At the limit a shorter row may fit where the one before it did not.
        expect(seen == sorted(seen) and 1 <= gaps <= 3, "%s: a row a step, but for the gap at the limit; %d gaps" % (name, gaps))


def best_that_is_none():
    """A metric that is not a number is said once, and only where something is found by it."""
    folder = data("nan")
    rules = "  optimizer sgd(lr = 0.01)\n  steps 6\n  metric q = mean[B] log(p - p - 1)\n  every 1 eval(valid)\n  every 2 checkpoint(\"run\", keep = 2%s)\n"
    for best, count in (("", 0), (", best = min(q)", 1)):
        said = programs.call([program("nan%d" % count, rules % best), "--data", folder, "--out", programs.FOLDER / ("nan%d-out" % count)]).stdout
        expect(said.count("is not a number: it counts as no better") == count, "%d warnings: %s" % (count, said))


def folders():
    """What a user keeps beside checkpoints stays there, a folder or a file, and no run fails on it; who only reads deletes nothing."""
    rules = "  optimizer sgd(lr = 0.01)\n  steps 10\n  every 5 checkpoint(\"./run//\", keep = 2)\n"
    folder, out = data("folders"), programs.FOLDER / "folders-out"
    exe = program("folders", rules)
    programs.call([exe, "--data", folder, "--out", out])
    (out / "run" / "mine").mkdir()
    (out / "run" / "mine" / "note").write_text("kept")
    (out / "run" / "notes.txt").write_text("kept")
    (out / "run" / "step-00000005.safetensors.good").write_text("kept")
    mine = ["mine", "notes.txt", "step-00000005.safetensors.good"]
    steps = ["step-00000005.safetensors", "step-00000010.safetensors"]
    for _ in range(3):
        programs.call([exe, "--data", folder, "--out", out])
        there = sorted(os.listdir(out / "run"))
        expect(there == sorted(mine + steps), "what is the user's stays beside the new checkpoints: %s" % there)
        expect(sorted(os.listdir(out / "run.previous")) == steps, "the old ones are moved: %s" % sorted(os.listdir(out / "run.previous")))
    expect((out / "run" / "mine" / "note").read_text() == "kept", "a folder of the user's is as it was")
    stuck = out / "run" / steps[0]
    stuck.unlink()
    stuck.mkdir()
    said = programs.call([exe, "--data", folder, "--out", out, "--resume", "--set", "steps=30"]).stdout
    there = sorted(name for name in os.listdir(out / "run") if name.endswith(".safetensors"))
    expect(there == [steps[0], "step-00000025.safetensors", "step-00000030.safetensors"], "one that cannot be deleted keeps no others: %s" % there)
    expect("step-00000005.safetensors is too old, but cannot be deleted" in said, said)
    stuck.rmdir()
    (out / "run.previous" / "notes.txt").write_text("kept")
    for _ in range(2):
        programs.call([exe, "--data", folder, "--out", out])
    expect((out / "run.previous" / "notes.txt").read_text() == "kept", "a user's file among older ones is there: %s" % sorted(os.listdir(out)))
    expect((out / "run.previous-2").is_dir() and not (out / "run.previous-3").exists(), "the runs behind it take turns: %s" % sorted(os.listdir(out)))
    (out / "final.safetensors").unlink()
    unfinished = out / "run" / "step-00000099.safetensors.tmp"
    unfinished.write_text("")
    other = out / "run" / "notes.tmp"
    other.write_text("")
    programs.call([exe, "predict", "--on", "valid", "--data", folder, "--out", out])
    expect(unfinished.exists(), "predict removes what a run may be writing")
    programs.call([exe, "--data", folder, "--out", out, "--resume"])
    expect(other.exists() and not unfinished.exists(), "a run that is resumed removes what a killed one left, and nothing else")


def same_table_at_once():
    """Several processes that turn the same table into values: one does, the others wait; all read all of it."""
    folder, out = programs.FOLDER / "table-data", programs.FOLDER / "table-out"
    folder.mkdir()
    values = np.round(np.random.default_rng(0).standard_normal(700000) + 5, 6)
    with open(folder / "big.csv", "w") as file:
        file.write("x,y\n" + "".join("%.6f,1\n" % v for v in values))
    with open(folder / "t.csv", "w") as file:
        file.write("x,y\n" + "".join("%.6f,1\n" % v for v in values[:100]))
    exe = programs.compiled(programs.source("table", """dim B = 10 batch
data train = csv("t.csv") -> (x: f32[B], y: f32[B])
data big = csv("big.csv") -> (x: f32[B], y: f32[B])
model m(x: f32[B]) -> f32[B] {
  param w: f32[] ~ ones
  return x * w
}
train m on train seed 1 {
  p = m(x)
  loss = mean[B] (p - y) ^ 2
  predict in = x
  predict out = p
  optimizer sgd(lr = 0.001)
  steps 2
}
"""), "table")
    programs.call([exe, "--data", folder, "--out", out])
    command = [str(word) for word in (exe, "predict", "--on", "big", "--threads", 1, "--data", folder, "--out", out)]
    for wait in (0, 0.02, 0.1):
        for name in os.listdir(out):
            if name.startswith("big.") or name == "data-checked.txt":
                (out / name).unlink()
        processes = []
        for _ in range(3):
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            time.sleep(wait)
        ends = [(process.communicate()[0], process.returncode) for process in processes]
        got = np.load(out / "predict" / "big" / "in.npy")
        expect(all(code == 0 for _, code in ends), "with %g s between them: %s" % (wait, ends))
        expect(np.array_equal(got, values.astype("f4")), "with %g s between them: %d values differ" % (wait, (got != values.astype("f4")).sum()))


def smallest(source):
    said = programs.call([programs.CINCH, source, "-o", programs.FOLDER / "none", "--memory-budget", "1KiB"], allowed=(1,)).stdout
    return re.search(r"smallest budget that compiles: (\d+)", said).group(1)


def kept_within(name, text, folder):
    source = programs.source(name, text)
    exe, budget = programs.FOLDER / name, smallest(source)
    programs.call([programs.CINCH, source, "-o", exe, "--memory-budget", budget])
    said = programs.call([exe, "--data", folder, "--out", programs.FOLDER / (name + "-out"), "--threads", "1"]).stdout
    peak = int(re.search(r"peak memory (\d+)", said).group(1))
    expect(peak <= int(budget) and "above the budget" not in said, "%s: %d bytes of %s" % (name, peak, budget))


def many_files():
    """Hundreds of files take what their names take."""
    folder = programs.FOLDER / "files-data"
    folder.mkdir()
    count = 700
    for i in range(count):
        (np.arange(64) % 16).astype("u2").tofile(folder / ("shard-%d.bin" % i))
    names = ", ".join('"shard-%d.bin"' % i for i in range(count))
    kept_within("files", """dim B = 8 batch, T = 8, V = 16, D = 8
data train = tokens(%s, u16, window = T + 1) -> (t: i32[B, T + 1] below V)
model m(t: i32[B, T] below V) -> f32[B, T, V] {
  param e: f32[V, D] ~ normal(0.02)
  use out = linear[V]
  return out(e[t])
}
train m on train seed 1 {
  loss = mean[B, T] cross_entropy(m(t[.., :T]), t[.., 1:])
  optimizer sgd(lr = 0.1)
  steps 5
}
""" % names, folder)


def wide_table():
    """Columns that nobody reads take nothing, and may hold long texts."""
    folder = programs.FOLDER / "wide-data"
    folder.mkdir()
    count = 200000
    with open(folder / "w.csv", "w") as file:
        file.write(",".join("c%d" % i for i in range(count)) + "\n")
        for row in range(16):
            file.write(",".join(["%d" % row, "1", "1"] + ["x" * 400] + ["1"] * (count - 4)) + "\n")
    text = """dim B = 8 batch, I = 2
data train = csv("w.csv") -> (x: f32[B, I] from ("c0", "c1"), y: f32[B] from "%s")
model m(x: f32[B, I]) -> f32[B] {
  use fc = linear[1]
  return fc(x)[.., 0]
}
train m on train seed 1 {
  loss = mean[B] (m(x) - y) ^ 2
  predict x = x
  optimizer sgd(lr = 0.001)
  steps 5
}
"""
    kept_within("wide", text % "c2", folder)
    programs.call([programs.FOLDER / "wide", "predict", "--on", "train", "--data", folder, "--out", programs.FOLDER / "wide-out"])
    got = np.load(programs.FOLDER / "wide-out" / "predict" / "train" / "x.npy")
    expect(np.array_equal(got, np.stack([np.arange(16), np.ones(16)], axis=1).astype("f4")), "the values of a wide table")
    exe = programs.compiled(programs.source("long", text % "c3"), "long")
    said = programs.call([exe, "--data", folder, "--out", programs.FOLDER / "long-out"], allowed=(3,)).stdout
    expect("column 4: a cell of field `y` has more than 255 bytes" in said, said)


def constant_column():
    """A column that is the same in all rows that are trained on is not divided by the rounding error of its mean."""
    folder = programs.FOLDER / "constant-data"
    folder.mkdir()
    rng = np.random.default_rng(3)
    with open(folder / "t.csv", "w") as file:
        file.write("a,k,y\n" + "".join("%g,0.1,%g\n" % (a, 2 * a) for a in rng.standard_normal(1000)))
    (folder / "new.csv").write_text("a,k,y\n0.5,0.1,1\n0.5,0.2,1\n")
    exe = programs.compiled(programs.source("constant", """dim B = 10 batch, I = 2
data train = csv("t.csv") -> (x: f32[B, I] from ("a", "k") normalize, y: f32[B])
model m(x: f32[B, I]) -> f32[B] {
  use fc = linear[1]
  return fc(x)[.., 0]
}
train m on train seed 1 {
  p = m(x)
  loss = mean[B] (p - y) ^ 2
  predict guess = p
  optimizer sgd(lr = 0.05)
  steps 100
}
"""), "constant")
    out = programs.FOLDER / "constant-out"
    programs.call([exe, "--data", folder, "--out", out])
    programs.call([exe, "predict", "--on", "train", "--data-file", folder / "new.csv", "--data", folder, "--out", out])
    guess = np.load(out / "predict" / "new" / "guess.npy")
    deviation = tensorfile.read(out / "final.safetensors")["data.train.x.std"]
    expect(deviation[1] == 1 and 0.5 < deviation[0] < 2, "deviations %s" % deviation)
    expect(np.all(np.abs(guess - 1) < 1), "guesses %s" % guess)


def closed_descriptors():
    """No file of a run gets the number of a standard descriptor that is closed, and with it what the run says."""
    folder = programs.FOLDER / "closed-data"
    folder.mkdir()
    (folder / "t.csv").write_text("a,b,y\n" + "".join("%d,%d,%d\n" % (i % 5, i % 7, i % 3) for i in range(24)))
    exe = programs.compiled(programs.source("closed", """dim B = 8 batch, I = 2
data train = csv("t.csv") -> (x: f32[B, I] from ("a", "b"), y: f32[B] from "y")
model net(x: f32[B, I]) -> f32[B] {
  use fc = linear[1]
  return fc(x)[.., 0]
}
train net on train seed 1 {
  loss = mean[B] (net(x) - y) ^ 2
  optimizer sgd(lr = 0.001)
  steps 6
  every 1 log(csv, jsonl, html)
}
"""), "closed")
    for closed in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
        out = programs.FOLDER / ("closed-out%s" % "".join(map(str, closed)))
        code = subprocess.run([exe, "--data", folder, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
                              preexec_fn=lambda: [os.close(number) for number in closed]).returncode
        said = [name for name in ("log.csv", "log.jsonl", "log.html") if "steps 0 to" in (out / name).read_text()]
        expect(code == 0 and not said and len(rows(out)) == 6, "descriptors %s are closed: exit %d, %s" % (closed, code, said))


def main():
    tests = (many_metrics, two_evaluations, rows_of_best, stopped_in_evaluation, best_that_is_none, small_losses_on_a_terminal, full_for_a_while, folders, same_table_at_once,
             many_files, wide_table, constant_column, closed_descriptors)
    for test in tests:
        if len(sys.argv) == 1 or any(name in test.__name__ for name in sys.argv[1:]):
            test()


verdicts.run(main)
