"""tests_run.py: training, evaluation, prediction, generation, logs, the command line, the gate."""

import json
import math
import os
import pty
import re
import resource
import struct
import subprocess
import time

import programs
import reference
from cases import content


def test_train(t):
    data = t.digits()
    program = t.linear()
    code, out, err = t.call(program, "--data", data, "--out", "a", "--threads", 1)
    t.check(code == 0, "training ends with 0", out + err)
    losses = re.findall(r"step (\d+)/60  loss (\S+)  lr (\S+)  norm (\S+)  mean \S+  \d+ examples/s", out)
    t.check(len(losses) == 12 and float(losses[-1][1]) < 0.6 * float(losses[0][1]), "the loss falls", out)
    peak = re.search(r"peak memory (\d+) bytes \(.*\), arena (\d+), allowance (\d+)", out)
    t.check(peak and int(peak[1]) < int(peak[2]) + int(peak[3]), "the peak stays below arena and allowance", out)
    info, tensors = programs.read_safetensors(t.path("a", "final.safetensors"))
    t.check(set(tensors) == {"fc.weight", "fc.bias"}, "the final file holds the parameters only", str(list(tensors)))
    final = content(t.path("a", "final.safetensors"))
    for threads in (2, 3, 4):
        t.call(program, "--data", data, "--out", "b%d" % threads, "--threads", threads)
        t.check(content(t.path("b%d" % threads, "final.safetensors")) == final, "same bits with %d threads" % threads)
    for microbatch in (1, 4, 16, 32):
        other = t.linear(microbatch=microbatch)
        t.call(other, "--data", data, "--out", "m%d" % microbatch)
        t.check(
            content(t.path("m%d" % microbatch, "final.safetensors")) == final,
            "same bits with micro-batch %d" % microbatch,
        )
    rows = [json.loads(line) for line in open(t.path("a", "log.jsonl"))]
    t.check(
        [float(row["loss"]) for row in rows] == [float(loss[1]) for loss in losses],
        "printed and logged losses are equal",
    )
    t.check(
        struct.pack("f", rows[-1]["loss"])
        == struct.pack("f", struct.unpack("f", struct.pack("f", rows[-1]["loss"]))[0]),
        "losses read back",
    )
    t.check(all("valid.acc" in row for row in rows), "`best` evaluates before the row is written")
    every = [
        dict(steps=20, kind="eval", dataset=1, batches=0),
        dict(steps=5, kind="log", csv=False, jsonl=True, tensorboard=False),
    ]
    t.call(t.linear(every=every), "--data", data, "--out", "e")
    rows = [json.loads(line) for line in open(t.path("e", "log.jsonl"))]
    t.check(
        [row["step"] for row in rows if "valid.acc" in row] == [20, 40, 60] and len(rows) == 12,
        "metrics stand in their rows",
    )


def test_page(t):
    """--log html: one file, with the rows of log.csv in it and nothing from elsewhere; a resumed run has all rows."""
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "a", "--log", "html", "--steps", 31)
    t.call(program, "--data", data, "--out", "a", "--log", "html,jsonl", "--resume")
    page, rows = content(t.path("a", "log.html")).decode(), content(t.path("a", "log.csv")).decode()
    t.check(rows in page and len(rows.splitlines()) >= 13, "the rows are in the page")
    t.check("http" not in page.replace("http://www.w3.org/2000/svg", "") and "src=" not in page, "nothing from elsewhere")
    t.check('data-program="linear, linear.cinch"' in page and page.rstrip().endswith("</html>"), "the whole page")
    code, out, err = t.call(program, "--data", data, "--out", "b", "--log", "htm")
    t.check(code == 2 and "did you mean `html`" in err, "html is known", err)


def test_logs(t):
    data = t.digits()
    t.call(t.linear(), "--data", data, "--out", "a")
    rows = open(t.path("a", "log.csv")).read().splitlines()
    t.check(
        rows[0] == "step,loss,mean_loss,lr,norm,examples_per_second,seconds,valid.acc" and len(rows) == 13, "log.csv", rows[0]
    )
    crc_table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        crc_table.append(i)

    def masked(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ crc_table[(crc ^ byte) & 255]
        crc ^= 0xFFFFFFFF
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    events, at, good = content(t.path("a", "tensorboard", "events.out.tfevents.0.cinch")), 0, True
    steps = []
    while at < len(events):
        (length,) = struct.unpack_from("<Q", events, at)
        good = good and struct.unpack_from("<I", events, at + 8)[0] == masked(events[at : at + 8])
        body = events[at + 12 : at + 12 + length]
        good = good and struct.unpack_from("<I", events, at + 12 + length)[0] == masked(body)
        if body[9] == 0x10:
            steps.append(body[10])
            good = good and b"\x0a\x04loss\x15" in body
        else:
            good = good and body[9:] == b"\x1a\x0dbrain.Event:2"
        at += 16 + length
    t.check(good and steps == list(range(5, 61, 5)), "TensorBoard records", str(steps))
    t.call(t.linear(), "--data", data, "--out", "b", "--log", "none")
    t.check(not os.path.exists(t.path("b", "log.csv")), "--log none")
    t.call(t.linear(every=[]), "--data", data, "--out", "c", "--log", "csv")
    t.check(len(open(t.path("c", "log.csv")).read().splitlines()) > 10, "--log csv without a rule in the file")
    t.check(not os.path.exists(t.path("c", "log.jsonl")), "only what was asked for")


def test_eval_and_predict(t):
    data = t.digits()
    program = t.linear()
    t.refused(3, ["no parameters"], program, "eval", "--data", data, "--out", "a")
    t.call(program, "--data", data, "--out", "a")
    code, out, err = t.call(program, "eval", "--data", data, "--out", "a")
    result = json.loads(out.splitlines()[-1])
    t.check(code == 0 and result["examples"] == 50 and result["data"] == "valid", "eval", out + err)
    images, labels = programs.digits(t.path(), "valid", 50, 2)
    _, tensors = programs.read_safetensors(t.path("a", "final.safetensors"))
    weight, bias = tensors["fc.weight"][1], tensors["fc.bias"][1]
    right = 0
    expected = []
    for e in range(50):
        x = [images[e * 12 + i] / 255 for i in range(12)]
        z = [bias[c] + sum(weight[c * 12 + i] * x[i] for i in range(12)) for c in range(10)]
        expected += z
        right += z.index(max(z)) == labels[e]
    t.check(
        result["acc"] == struct.unpack("f", struct.pack("f", right / 50))[0] or abs(result["acc"] - right / 50) < 1e-6,
        "every example counts once",
        "%s %s" % (result["acc"], right / 50),
    )
    t.check(sum(map(sum, result["table"])) == 50 and len(result["table"]) == 10, "a metric with axes is nested lists")
    code, out, err = t.call(program, "predict", "--data", data, "--out", "a")
    shape, values = programs.read_npy(t.path("a", "predict", "valid", "logits.npy"))
    first = content(t.path("a", "predict", "valid", "logits.npy"))
    t.check(code == 0 and shape == (50, 10), "predict writes one row an example", str(shape) + err)
    t.check(max(abs(v - e) for v, e in zip(values, expected)) < 1e-4, "predictions are the model's")
    code, out, err = t.call(program, "predict", "--data", data, "--out", "a", "--on", "train", "--batches", 2)
    shape, values = programs.read_npy(t.path("a", "predict", "train", "logits.npy"))
    t.check(shape == (64, 10) and "a/predict/train/logits.npy" in out, "--on and --batches", out + err)
    t.check(content(t.path("a", "predict", "valid", "logits.npy")) == first, "each data set has its own results")
    t.refused(2, ["--on nothing", "train, valid"], program, "eval", "--data", data, "--out", "a", "--on", "nothing")
    os.rename(t.path("a", "final.safetensors"), t.path("final"))
    code, out, err = t.call(program, "eval", "--data", data, "--out", "a")
    t.check(
        code == 0 and json.loads(out.splitlines()[-1]) == result and "step-00000060" in out,
        "without final parameters the newest checkpoint serves",
        out + err,
    )
    code, out, err = t.call(program, "eval", "--data", data, "--init", t.path("final"))
    t.check(code == 0 and json.loads(out.splitlines()[-1]) == result, "--init", out + err)


def test_what_a_command_reads(t):
    """`predict` and `eval` serve any data set that has what they read, and open nothing else."""
    data = t.digits()
    x, y = dict(name="x", dtype="F32", shape=[12], scale=1 / 255), dict(name="y", dtype="I32", shape=[], below=10)
    others = [
        ("bare", ["valid-images"], [x]),
        ("turned", ["valid-labels", "valid-images"], [y, x]),
        ("narrow", ["valid-images", "valid-labels"], [dict(x, shape=[5]), y]),
        ("whole", ["valid-images", "valid-labels"], [dict(x, dtype="I32"), y]),
        ("wild", ["valid-images", "valid-labels"], [x, dict(y, below=20)]),
        ("nothing", ["valid-labels"], [y]),
    ]
    program = t.linear(others=others)
    t.call(program, "--data", data, "--out", "a")
    command = lambda word, on: (program, word, "--data", data, "--out", "a", "--on", on)
    results = lambda on: content(t.path("a", "predict", on, "logits.npy"))
    metrics = lambda on: json.loads(t.call(*command("eval", on))[1].splitlines()[-1])["table"]
    for on in ("valid", "bare", "turned", "wild"):
        code, out, err = t.call(*command("predict", on))
        t.check(code == 0 and results(on) == results("valid"), "predict --on %s" % on, out + err)
    t.check(metrics("turned") == metrics("valid"), "fields in another order")
    t.refused(
        3,
        ["data `bare` has no field `y`, which eval needs for acc, table", "with --on: train, valid, turned\n"],
        *command("eval", "bare")
    )
    t.refused(3, ["data `nothing` has no field `x`, which predict needs for logits"], *command("predict", "nothing"))
    for on, found in (("narrow", "F32[5]"), ("whole", "I32[12]")):
        t.refused(
            3,
            ["field `x` of data `%s` is %s" % (on, found), "predict needs F32[12] for logits"],
            *command("predict", on)
        )
        t.check(not os.path.exists(t.path("a", "predict", on)), "nothing is made for what is refused")
    t.refused(3, ["`y` of data `wild` is I32[] below 20", "eval needs I32[] below 10"], *command("eval", "wild"))
    os.rename(t.path("valid-labels"), t.path("away"))
    before = results("valid")
    t.check(t.call(*command("predict", "valid"))[0] == 0 and results("valid") == before, "labels are not opened")
    t.refused(3, ["valid-labels"], *command("eval", "valid"))


def test_few_examples(t):
    """Fewer examples than the batch: said, and trained."""
    programs.digits(t.folder, "train", 20, 1)
    programs.digits(t.folder, "valid", 50, 2)
    code, out, err = t.call(t.linear(), "--data", t.folder, "--out", "a")
    t.check(
        code == 0 and "warning: data `train` has 20 examples, fewer than the batch of 32" in err, "a small data set", out + err
    )


def test_large_metric(t):
    programs.write(t.path("text"), bytes(range(256)) * 4)
    field = dict(name="text", dtype="I32", shape=[9], below=256)
    program = t.recorder(
        dict(name="train", source="text", files=["text"], window=9, stride=8, fields=[field]), 9, 8, steps=1, table=48
    )
    t.call(program, "--data", ".", "--out", "a", "--steps", 0)
    code, out, err = t.call(program, "eval", "--data", ".", "--out", "a")
    t.check(
        code == 0 and json.loads(out.splitlines()[-1])["table"] == [[0] * 48] * 48,
        "a table of 2304 numbers",
        out[-200:] + err,
    )


def into_a_full_disk(t, *command):
    """The exit code where standard output takes nothing, and what is said of it."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([*map(str, command)], cwd=t.folder, stdout=full, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


def test_output_that_is_lost(t):
    """A command whose result is what it prints says so if that is lost; one that writes files goes on."""
    data, program = t.digits(), t.linear()
    code, err = into_a_full_disk(t, program, "--data", data, "--out", "a")
    t.check(code == 0 and os.path.exists(t.path("a", "final.safetensors")), "training goes on", err)
    code, err = into_a_full_disk(t, program, "predict", "--data", data, "--out", "a")
    t.check(code == 0 and os.path.exists(t.path("a", "predict", "valid", "logits.npy")), "predict writes files", err)
    for words in (["eval", "--data", data, "--out", "a"], ["eval", "--data", data, "--out", "a", "--quiet"], ["info"], ["--help"]):
        code, err = into_a_full_disk(t, program, *words)
        t.check(code == 5 and "cannot write to standard output: No space left" in err, " ".join(words), "%d %s" % (code, err))


def test_generate(t):
    programs.write(t.path("text"), bytes(range(256)) * 4)
    field = dict(name="text", dtype="I32", shape=[9], below=256)
    program = t.recorder(
        dict(name="train", source="text", files=["text"], window=9, stride=8, fields=[field]), 9, 8, steps=1
    )
    t.check(t.call(program, "--data", ".", "--out", "a")[0] == 0, "trains")
    code, out, err = t.call(program, "generate", "--out", "a", "--prompt", "abc", "--length", 20, "--temperature", 0)
    t.check(
        (code, out) == (0, "abcdefghijklmnopqrstuvw\n"),
        "the likeliest byte each time, beyond the window",
        repr(out) + err,
    )
    one = t.call(program, "generate", "--out", "a", "--prompt", "abc", "--length", 40, "--seed", 1)[1]
    two = t.call(program, "generate", "--out", "a", "--prompt", "abc", "--length", 40, "--seed", 1, "--threads", 3)[1]
    other = t.call(program, "generate", "--out", "a", "--prompt", "abc", "--length", 40, "--seed", 2)[1]
    t.check(one == two and one != other, "the same seed draws the same text")
    top = t.call(program, "generate", "--out", "a", "--prompt", "A", "--length", 5, "--top-k", 1)[1]
    t.check(top == "ABCDEF\n", "--top-k 1", top)

    # Draws follow the formula: P(next) = exp(4) / (exp(4) + 255), the rest equal, in the order of the tokens.
    weight = math.exp(4)
    expected, last = b"A", 65
    for position in range(6):
        left, total = reference.draw(3, position) * (weight + 255), 0
        for token in range(256):
            total += weight if token == (last + 1) % 256 else 1
            if left < total:
                break
        expected += bytes([token])
        last = token
    done = subprocess.run(
        [program, "generate", "--out", "a", "--prompt", "A", "--length", "6", "--seed", "3"],
        cwd=t.folder,
        stdout=subprocess.PIPE,
    )
    t.check(done.stdout == expected + b"\n", "draws follow the formula", "%r %r" % (done.stdout, expected))

    programs.write(t.path("tokens"), struct.pack("<100H", *range(100)))
    field = dict(name="text", dtype="I32", shape=[5], below=300)
    program = t.recorder(
        dict(name="train", source="tokens", token_bits=16, files=["tokens"], window=5, stride=4, fields=[field]),
        5,
        8,
        steps=1,
        vocabulary=300,
    )
    t.call(program, "--data", ".", "--out", "b")
    code, out, err = t.call(
        program, "generate", "--out", "b", "--prompt", "296, 297", "--length", 4, "--temperature", 0
    )
    t.check((code, out.split()) == (0, ["298", "299", "0", "1"]), "tokens come out as numbers", repr(out) + err)
    t.refused(2, ["the token 300 is outside"], program, "generate", "--out", "b", "--prompt", "300")
    t.refused(2, ["expected numbers"], program, "generate", "--out", "b", "--prompt", "x")
    t.refused(2, ["does not generate"], t.linear(), "generate", "--out", "b")
    code, err = into_a_full_disk(t, program, "generate", "--out", "b", "--prompt", "1", "--length", 1)
    t.check(code == 5 and "cannot write to standard output" in err, "a text that is lost", "%d %s" % (code, err))


def test_command_line(t):
    program = t.linear()
    code, out, err = t.call(program, "--help")
    t.check(
        code == 0 and all(word in out for word in ("--resume", "predict", "--threads", "OUT/final.safetensors")),
        "--help",
        out,
    )
    t.refused(2, ["unknown flag `--stepps`", "did you mean `--steps`?"], program, "--stepps", 3)
    t.refused(2, ["unknown command `evl`", "did you mean `eval`?"], program, "evl")
    for number in ("many", "", " 3", "+3", "3 ", "0x3", "\t3"):
        t.refused(2, ["--steps needs a whole number"], program, "--steps", number)
        t.refused(2, ["--worker-timeout needs a number"], program, "--worker-timeout", number)
    # Standard input, output and error, and one file: the first other one cannot be opened.
    code, out, err = t.call(program, "--data", t.digits(), "--out", "few", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
    t.check(code == 5 and "Too many open files" in err, "too many open files", "%d %s" % (code, err))
    t.refused(2, ["--steps needs a value"], program, "--steps")
    t.refused(2, ["--threads needs a whole number from 1"], program, "--threads", 0)
    t.refused(2, ["from 0 to 9223372036854775807"], program, "--steps", 1 << 63)
    t.refused(2, ["--worker-timeout needs a number from 0 and below 1e9"], program, "--worker-timeout", "1e38")
    t.refused(2, ["--threads needs a whole number from 1"], program, "--threads", -1)
    t.refused(2, ["at most 4"], program, "--threads", 5)
    t.refused(2, ["--seed has no meaning for `train`", "--set seed=N"], program, "--seed", 5)
    t.refused(2, ["--data-file is given twice"], program, "predict", "--data-file", "a", "--data-file=b")
    t.refused(2, ["--steps has no meaning for `eval`"], program, "eval", "--steps", 4)
    t.refused(2, ["a command stands before its flags", "predict --data-file"], program, "--data-file", "x", "predict")
    t.refused(2, ["a command stands before its flags", "eval --quiet"], program, "--quiet", "eval")
    t.refused(2, ["unknown log `cvs`", "did you mean `csv`?"], program, "--log", "cvs")
    t.refused(2, ["--resume takes no value"], program, "--resume=yes")
    t.refused(2, ["unknown argument `now`"], program, "train", "now")


def test_info_and_start(t):
    plan = ["micro-batch %d of %d: remat auto" % (i, 12000) for i in range(20)]
    program = t.linear(plan=tuple(plan))
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        code, out, err = t.call(program, "info")
        best = min(best, time.perf_counter() - begin)
    t.check(code == 0 and plan[0] in out and "130 in 2 tensors" in out, "info tells the plan and the parameters", out)
    t.check(best < 0.1, "info answers in under 100 ms", "%.3f s" % best)


def on_a_terminal(t, program):
    """The exit code, and what is drawn."""
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        [program, "--data", t.digits(), "--out", "a"], stdout=terminal, stderr=terminal, cwd=t.folder
    )
    os.close(terminal)
    seen = b""
    while True:
        try:
            part = os.read(control, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    return process.wait(), seen


def test_bar_on_a_terminal(t):
    code, seen = on_a_terminal(t, t.linear())
    t.check(
        code == 0 and b"\r\x1b[K[" in seen and b"60/60" in seen and b"examples/s" in seen,
        "a bar is drawn",
        repr(seen[:300]),
    )
    t.check(b"slowest" not in seen, "one worker is not the slowest", repr(seen[:300]))
    code, seen = on_a_terminal(t, t.stages(3))
    t.check(code == 0 and b" slowest" in seen, "the bar names the slowest worker", repr(seen[:300]))


def test_gate(t):
    data = t.digits()
    program = t.linear(defines=dict(PLANT_STEP=23, PLANT_EXAMPLE=16))
    code, out, err = t.call(program, "--data", data, "--out", "a", "--threads", 2)
    t.check(code == 4, "a planted overflow ends with 4", out + err)
    t.check(
        "linear.cinch:7: fc: product" in err
        and "value 3 of output 0 is inf" in err
        and "micro-batch from example 16" in err
        and "step 23" in err,
        "kernel, line and value are named",
        err,
    )
    clean = t.linear()
    t.call(clean, "--data", data, "--out", "b", "--steps", 23)
    saved = programs.read_safetensors(t.path("a", "run", "step-00000023.safetensors"))[1]
    final = programs.read_safetensors(t.path("b", "final.safetensors"))[1]
    t.check(all(saved[name][1] == final[name][1] for name in final), "the parameters are those before the bad step")
    code, out, err = t.call(t.linear(defines=dict(PLANT_STEP=0, PLANT_EXAMPLE=0)), "--data", data, "--out", "c")
    t.check(code == 4 and "fc: product" in err, "at the very first step", err)


def test_gate_in_the_prelude(t):
    data = t.digits()
    program = t.linear(defines=dict(PLANT_LOSS=1))
    code, out, err = t.call(program, "--data", data, "--out", "a")
    t.check(code == 4 and "prelude.cinch:9: loss: cross_entropy" in err and "is nan" in err, "a launch has a file", err)


def test_budget_warning(t):
    data = t.digits()
    code, out, err = t.call(t.linear(budget=4096), "--data", data, "--out", "a", "--steps", 2)
    t.check("above the budget" in err, "a peak above the budget is said", err)
    code, out, err = t.call(t.linear(budget=64 << 20), "--data", data, "--out", "a", "--steps", 2)
    t.check("above the budget" not in err and "budget 67108864" in out, "the budget is printed", out)
    program = t.linear(padding=(9 << 20) + 100)
    code, out, err = t.call(program, "--data", data, "--out", "big", "--steps", 2)
    peak = re.search(r"peak memory (\d+) bytes \(.*\), arena (\d+)", out)
    t.check(int(peak[2]) <= int(peak[1]) <= int(peak[2]) + (3 << 20), "huge pages round nothing up", out)
    huge = t.linear(padding=1 << 45)
    t.refused(5, ["arena"], huge, "--data", data, "--out", "huge", "--steps", 2)


def test_arguments_within_the_budget(t):
    """Arguments and environment lie in the process: more of them than a budget has room for are refused, before the peak is above it for long."""
    data = t.digits()
    words = lambda out: ["--data", data, "--out", out, "--steps", 2]
    large = dict(os.environ, **{"V%d" % i: "a" * 120000 for i in range(10)})
    medium = dict(os.environ, V="a" * 120000)
    code, out, err = t.call(t.linear(), *words("none"), env=large)
    t.check(code == 0 and "warning" not in err, "without a budget nothing is refused", err)
    arena, allowance = map(int, re.search(r"arena (\d+), allowance (\d+)", out).groups())
    tight, wide = t.linear(budget=arena + allowance), t.linear(budget=arena + allowance + (1 << 20))
    for command in ((), ("eval",), ("info",)):
        arguments = [] if command == ("info",) else words("tight")[: 4 if command else 6]
        code, out, err = t.call(tight, *command, *arguments, env=large)
        t.check(code == 5 and out == "", "%s: refused" % (command,), out + err)
        found = re.search(r"take (\d+) bytes, but the memory budget has room for (\d+) of them; .*env -i PATH=.* leaves (\d+) bytes more free", err)
        t.check(found and 1200000 < int(found[1]) < 1300000 and int(found[1]) == int(found[2]) + int(found[3]), "it says how many", err)
    t.check(not os.path.exists(t.path("tight")), "nothing was written")
    arguments = ["--set=seed=1"] * 20000
    t.refused(5, ["the arguments and the environment", "room for 262144"], tight, *words("tight"), *arguments)
    code, out, err = t.call(tight, *words("tight"), env=medium)
    t.check(code == 0, "what the allowance grants", err)
    for name, environment, more in (("environment", large, []), ("arguments", None, arguments)):
        code, out, err = t.call(wide, *words(name), *more, env=environment)
        t.check(code == 0, name + ": what a budget leaves free counts", err)
    peaks = [int(re.search(r"peak memory (\d+)", t.call(wide, *words("few"), *more)[1])[1]) for more in ([], arguments)]
    t.check(peaks[1] - peaks[0] < 750 << 10, "arguments are not copied", str(peaks))


def test_mean_loss(t):
    data = t.digits()
    for steps, out in ((1, "each"), (7, "some")):
        every = [dict(steps=steps, kind="log", csv=False, jsonl=True, tensorboard=False)]
        t.call(t.linear(steps=35, every=every), "--data", data, "--out", out)
    each = [json.loads(line) for line in open(t.path("each", "log.jsonl"))]
    some = [json.loads(line) for line in open(t.path("some", "log.jsonl"))]
    t.check(all(row["mean_loss"] == row["loss"] for row in each), "a line a step: the mean is the loss")
    for i, row in enumerate(some):
        mean = sum(other["loss"] for other in each[7 * i : 7 * i + 7]) / 7
        t.check(abs(row["mean_loss"] - mean) < 1e-6 * mean, "the mean since the last line", str(row))


def test_means_of_two_rules(t):
    """Each rule for logs has a mean of its own, also across a resumed run; in a row that two of them ask for stands the one over fewer steps."""
    data = t.digits()
    rule = lambda steps, **sinks: dict(dict(steps=steps, kind="log", csv=False, jsonl=False, tensorboard=False), **sinks)
    rows = lambda out: [json.loads(line) for line in open(t.path(out, "log.jsonl"))]
    t.call(t.linear(steps=30, every=[rule(1, jsonl=True)]), "--data", data, "--out", "every-step")
    losses = [row["loss"] for row in rows("every-step")]
    mean = lambda begin, end: sum(losses[begin:end]) / (end - begin)
    near = lambda found, begin, end: abs(found - mean(begin, end)) < 1e-6 * mean(begin, end)
    program = t.linear(steps=30, every=[rule(5, csv=True), rule(15, jsonl=True)])
    for stop in (7, 22, 30):  # in the middle of both means
        t.call(program, "--data", data, "--out", "two", "--resume", "--steps", stop)
    table = [line.split(",") for line in open(t.path("two", "log.csv"))][1:]
    found = {int(row[0]): float(row[2]) for row in table}
    t.check(all(near(found[step], step - 5, step) for step in range(5, 31, 5)), "the mean of the shorter period", str(found))
    found = {row["step"]: row["mean_loss"] for row in rows("two")}
    t.check(near(found[15], 0, 15) and near(found[30], 15, 30), "the mean of the longer period", str(found))
    t.call(t.linear(steps=30, every=[rule(10, jsonl=True), rule(15, jsonl=True)]), "--data", data, "--out", "one")
    found = {row["step"]: row["mean_loss"] for row in rows("one")}
    wanted = {10: (0, 10), 15: (0, 15), 20: (10, 20), 30: (20, 30)}
    t.check(set(found) == set(wanted) and all(near(found[step], *wanted[step]) for step in wanted), "two rules, one log", str(found))
