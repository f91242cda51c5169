#!/usr/bin/python3
"""Data as people have it: words as classes, columns brought to mean 0 and deviation 1, rows held out, yes and no, classes that
weigh more; compressed npz; windows of rows. What the program reads is what `predict` writes, compared with NumPy."""
import csv
import json
import struct
import subprocess


import numpy as np
import processes
import programs
import tensorfile

HEAD = """
dim B = 8 batch, I = 3, C = 3
%s
model net(x: f32[B, I]) -> f32[B, C] { use l = linear[C]; return l(x) }
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] cross_entropy(logits, y)
  predict x = x
  predict y = y
%s
  optimizer sgd(lr = 0.1)
  steps 5
}
"""
CSV = """data train = csv("t.csv", hold_out = 0.3, hold_seed = 7) -> (
  x: f32[B, I] from ("a", "b", "c") normalize, y: i32[B] names ("red", "green", "NA"), bought: bool[B])
data valid = csv("t.csv", hold_out = 0.3, hold_seed = 7, held = true) -> (
  x: f32[B, I] from ("a", "b", "c") normalize, y: i32[B] names ("red", "green", "NA"), bought: bool[B])
"""
TURNED = """data turned = csv("t.csv") -> (
  x: f32[B, I] from ("b", "a", "c") normalize, y: i32[B] names ("red", "green", "NA"), bought: bool[B])
"""
WORDS = ["red", "green", "NA"]
verdicts = programs.Verdicts()


def write(path, x, y, bought):
    with open(path, "w") as file:
        file.write("a, b ,bought,y,c\n")
        for row, label, flag in zip(x, y, bought):
            file.write("%r, %r,%s , %s,%r\n" % (row[0], row[1], flag, WORDS[label], row[2]))


def mix64(x):
    mask = (1 << 64) - 1
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def held_rows(count, share, seed):
    """FORMULAS.md, `hold_out`."""
    mask = (1 << 64) - 1
    h = 0xCBF29CE484222325
    for byte in b"hold_out":
        h = ((h ^ byte) * 0x100000001B3) & mask
    key = mix64(mix64((seed + 0x9E3779B97F4A7C15) & mask) ^ h)
    return np.array([(mix64((key + i * 0x9E3779B97F4A7C15) & mask) >> 11) * 2.0**-53 < share for i in range(count)])


def table(data):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 3)) * [1e-3, 1, 1e6] + [5, -1, 3e6]
    x[:, 2] = np.round(x[:, 2])
    y, bought = rng.integers(0, 3, 60), rng.integers(0, 2, 60)
    spelled = [["false", "0", "False"][i % 3] if not b else ["true", "1", "TRUE"][i % 3] for i, b in enumerate(bought)]
    write(data / "t.csv", [[float(v) for v in row] for row in x], y, spelled)
    held = held_rows(60, 0.3, 7)
    verdicts.expect(8 < held.sum() < 30, "%d rows are held out" % held.sum())
    for precision in ("f32", "f64"):
        out = programs.FOLDER / ("out-" + precision)
        exe = programs.compiled(programs.source("table", HEAD % (CSV + TURNED, "  predict bought = i32(bought)\n  every 2 eval(valid)")),
                                "table-" + precision, "--set", "precision=" + precision)
        call = lambda *words, allowed=(0,): programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed)
        call("train")
        mean = x[~held].mean(axis=0)
        deviation = np.sqrt(((x[~held] - mean) ** 2).mean(axis=0))
        saved = tensorfile.read(out / "final.safetensors")
        for name, value in (("mean", mean), ("std", deviation)):
            got = saved["data.train.x." + name]
            verdicts.expect(got.dtype == np.float64 and np.allclose(got, value, rtol=1e-12), "%s: %s" % (name, got))
        normal = ((x - saved["data.train.x.mean"]) / saved["data.train.x.std"]).astype(np.float32 if precision == "f32" else np.float64)
        for name, rows in (("train", ~held), ("valid", held)):
            call("predict", "--on", name)
            got = {k: np.load(out / "predict" / name / (k + ".npy")) for k in ("x", "y", "bought")}
            verdicts.expect(np.array_equal(got["x"], normal[rows]), "%s: x in %s" % (precision, name))
            verdicts.expect(np.array_equal(got["y"], y[rows]), "%s: y in %s" % (precision, name))
            verdicts.expect(np.array_equal(got["bought"], bought[rows]), "%s: bought in %s" % (precision, name))
        said = call("predict", "--on", "turned", allowed=(3,)).stdout
        verdicts.expect('columns "b", "a", "c", normalize, but predict needs' in said, "columns in another order: " + said)
        nowhere = programs.FOLDER / "nowhere"
        for command in ("eval", "predict"):
            said = programs.call([exe, command, "--data", data, "--out", nowhere], allowed=(3,)).stdout
            verdicts.expect("no parameters: there is no folder" in said and not nowhere.exists(), command + " of a run that is not there: " + said)
        # What only prints does so where it may keep no table; what writes does not.
        final, blocked = ["--init", out / "final.safetensors"], data / "t.csv" / "out"
        printed = programs.call([exe, "eval", "--on", "valid", "--data", data, "--out", out, *final]).stdout
        verdicts.expect(programs.call([exe, "eval", "--on", "valid", "--data", data, "--out", blocked, *final]).stdout == printed, "eval where nothing can be written")
        said = programs.call([exe, "predict", "--on", "valid", "--data", data, "--out", blocked, *final], allowed=(5,)).stdout
        verdicts.expect("cannot make the folder" in said, said)
        # A file in its place: all of its rows, and the mean of the training data.
        write(data / "new.csv", [[float(v) for v in row] for row in x[:5] + 1], y[:5], spelled[:5])
        call("predict", "--on", "valid", "--data-file", data / "new.csv")
        got = np.load(out / "predict" / "new" / "x.npy")
        want = ((x[:5] + 1) - saved["data.train.x.mean"]) / saved["data.train.x.std"]
        verdicts.expect(np.array_equal(got, want.astype(got.dtype)), "%s: a file of new rows" % precision)
        # No data has a deviation of 0 or less, or a mean that is not finite.
        for name, wrong in (("std", 0), ("std", -5), ("std", np.inf), ("mean", np.nan)):
            spoiled = {key: value.copy() for key, value in saved.items()}
            spoiled["data.train.x." + name][1] = wrong
            tensorfile.write(programs.FOLDER / "spoiled.safetensors", spoiled)
            for command in ("train", "eval"):
                said = programs.call([exe, command, "--data", data, "--out", programs.FOLDER / "out-spoiled", "--init", programs.FOLDER / "spoiled.safetensors"],
                                     allowed=(3,)).stdout
                verdicts.expect("`data.train.x.%s` has %s in column 1; expected a finite number" % (name, wrong) in said, said)
        # A run that is resumed, and one that starts from the file, keep them.
        whole = (out / "final.safetensors").read_bytes()
        call("train", "--steps", "3")
        call("train", "--resume")
        verdicts.expect((out / "final.safetensors").read_bytes() == whole, precision + ": resumed")
    (data / "t.csv").write_text((data / "t.csv").read_text().replace("green", "blue", 1))
    said = call("train", allowed=(3,)).stdout
    verdicts.expect("`blue` is none of the names of field `y`: `red`, `green`, `NA`" in said, said)


def from_other_data(data):
    """Fine-tuning on other rows goes on with the mean that the parameters were trained with."""
    exe = programs.FOLDER / "table-f32"
    rng = np.random.default_rng(9)
    other = programs.FOLDER / "other"
    other.mkdir()
    write(other / "t.csv", [[float(v) for v in row] for row in rng.normal(size=(30, 3))], rng.integers(0, 3, 30), ["0"] * 30)
    out = programs.FOLDER / "tuned"
    first = programs.FOLDER / "out-f32" / "final.safetensors"
    programs.call([exe, "--data", other, "--out", out, "--init", first])
    before, after = tensorfile.read(first), tensorfile.read(out / "final.safetensors")
    verdicts.expect(np.array_equal(before["data.train.x.mean"], after["data.train.x.mean"]), "the mean of --init")
    verdicts.expect(not np.array_equal(before["l.weight"], after["l.weight"]), "it was trained")


def compressed(data):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(0, 3, 20)
    np.savez_compressed(data / "c.npz", x=x, y=y, flag=y > 1)
    text = 'data train = npz("c.npz") -> (x: f32[B, I], y: i32[B] below C, flag: bool[B])\n'
    out = programs.FOLDER / "out-npz"
    exe = programs.compiled(programs.source("npz", HEAD % (text, "  predict flag = f32(flag)")), "npz")
    for command in (["train"], ["predict"]):
        programs.call([exe, *command, "--data", data, "--out", out])
    for name, value in (("x", x), ("y", y), ("flag", y > 1)):
        verdicts.expect(np.array_equal(np.load(out / "predict" / "train" / (name + ".npy")), value), "compressed: " + name)
    for kind in ("i1", "u1", ">i2", "i8", "u8"): # a flag may be written down as 0 and 1
        np.savez(data / "c.npz", x=x, y=y, flag=(y > 1).astype(kind))
        programs.call([exe, "predict", "--data", data, "--out", out, "--on", "train"])
        verdicts.expect(np.array_equal(np.load(out / "predict" / "train" / "flag.npy"), y > 1), "flags as " + kind)
    for kind, value, said in (("i4", 2, "is bool, but has 2"), ("f4", 1, 'astype("bool")')):
        np.savez(data / "c.npz", x=x, y=y, flag=np.full(20, value, kind))
        ended = subprocess.run([exe, "predict", "--data", data, "--out", out], capture_output=True, text=True)
        verdicts.expect(ended.returncode == 3 and said in ended.stderr, "flags as %s: %s" % (kind, ended.stderr))


def idx(values):
    """A file of MNIST's format."""
    return bytes([0, 0, 8, values.ndim]) + b"".join(struct.pack(">I", size) for size in values.shape) + values.tobytes()


def normalized_arrays(data):
    """Arrays of every kind, brought to mean 0 and deviation 1 value by value: in the data that is trained on, in others, and in new files."""
    rng = np.random.default_rng(12)
    x = np.round(rng.normal(size=(30, 3)) * [2, 9, 1] + [20, 60, 0])
    x[:, 2] = 7  # all of one value: divided by 1
    other, y = np.abs(np.round(rng.normal(size=(11, 3)) * 9)), rng.integers(0, 3, 30).astype("i4")
    names = "data train = %s -> (x: f32[B, I] %s, y: i32[B] below C)\ndata valid = %s -> (x: f32[B, I] %s, y: i32[B] below C)\n"
    save = lambda name, kind, to: (np.save(data / ("n-%s.npy" % name), to.astype(kind)), np.save(data / ("n-%s-y.npy" % name), y[:len(to)]))
    cases = [("npy " + kind, kind, "npy", names % ('npy("n-train.npy", "n-train-y.npy")', "normalize", 'npy("n-valid.npy", "n-valid-y.npy")', "normalize"))
             for kind in ("f4", ">f8", "f2", "u1", ">i2", "i8")]
    cases += [(source, "f4", source, names % (source + '("n-train.%s")' % ending, "normalize", source + '("n-valid.%s")' % ending, 'normalize from "z"'))
              for source, ending in (("npz", "npz"), ("safetensors", "safetensors"))]
    cases += [("compressed", "f8", "compressed", names % ('npz("n-train.npz")', "normalize", 'npz("n-valid.npz")', 'from "z" normalize')),
              ("idx", "u1", "idx", names % ('idx("n-train.idx", "n-train-y.idx")', "normalize", 'idx("n-valid.idx", "n-valid-y.idx")', "normalize"))]
    for number, (case, kind, source, text) in enumerate(cases):
        for name, values, array in (("train", x, "x"), ("valid", other, "z")):
            arrays = {array: values.astype(kind), "y": y[:len(values)]}
            if source == "npy":
                save(name, kind, values)
            elif source in ("npz", "compressed"):
                (np.savez if source == "npz" else np.savez_compressed)(data / ("n-%s.npz" % name), **arrays)
            elif source == "safetensors":
                tensorfile.write(data / ("n-%s.safetensors" % name), arrays)
            else:
                (data / ("n-%s.idx" % name)).write_bytes(idx(values.astype("u1")))
                (data / ("n-%s-y.idx" % name)).write_bytes(idx(y[:len(values)].astype("u1")))
        out = programs.FOLDER / ("out-normal%d" % number)
        exe = programs.compiled(programs.source("normal%d" % number, HEAD % (text, "  every 2 eval(valid)")), "normal%d" % number)
        call = lambda *words: programs.call([exe, *words, "--data", data, "--out", out])
        call()
        saved = tensorfile.read(out / "final.safetensors")
        mean, deviation = saved["data.train.x.mean"], saved["data.train.x.std"]
        expected = x.astype(kind).astype("f8")
        verdicts.expect(np.allclose(mean, expected.mean(axis=0), rtol=1e-12), "%s: mean %s" % (case, mean))
        verdicts.expect(np.allclose(deviation[:2], expected.std(axis=0)[:2], rtol=1e-12) and deviation[2] == 1, "%s: deviation %s" % (case, deviation))
        for name, values in (("train", x), ("valid", other)):
            call("predict", "--on", name)
            wanted = ((values.astype(kind).astype("f8") - mean) / deviation).astype("f4")
            verdicts.expect(np.array_equal(np.load(out / "predict" / name / "x.npy"), wanted), "%s: %s" % (case, name))
        whole = (out / "final.safetensors").read_bytes()
        call("train", "--steps", "3")
        call("train", "--resume")
        verdicts.expect((out / "final.safetensors").read_bytes() == whole, case + ": resumed")
    np.save(data / "n-train.npy", np.where(np.arange(90).reshape(30, 3) == 40, np.nan, x))
    ended = subprocess.run([programs.FOLDER / "normal0", "--data", data, "--out", programs.FOLDER / "out-nan"], capture_output=True, text=True)
    verdicts.expect(ended.returncode == 3 and "example 13, value 1" in ended.stderr, "a value that is no number: " + ended.stderr)


def beyond(data):
    """Values of f64 whose squares, or whose sum, are beyond it have no deviation: that is said before a step is made."""
    text = """dim B = 2 batch, C = 2
data train = npy("beyond.npy") -> (x: f32[B, C] normalize)
model net(x: f32[B, C]) -> f32[B] { use l = linear[1]; return l(x)[.., 0] }
train net on train seed 1 {
  loss = mean[B] net(x) ^ 2
  optimizer sgd(lr = 0.1)
  precision f64
  steps 2
}
"""
    exe, out = programs.compiled(programs.source("beyond", text), "beyond"), programs.FOLDER / "out-beyond"
    for large in (1e200, 1.7e308):
        np.save(data / "beyond.npy", np.stack([np.arange(6.0), np.where(np.arange(6) % 2, large, large / 3)], 1))
        said = programs.call([exe, "--data", data, "--out", out], allowed=(3,)).stdout
        verdicts.expect("field `x`, column 1, are too large to be normalized" in said and not (out / "final.safetensors").exists(), said)


def weighted(data):
    """Classes that weigh more, as nn.CrossEntropyLoss(weight = ..) has it: a weighted mean."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(8, 3)), rng.integers(0, 3, 8).astype(np.int32)
    np.save(data / "wx.npy", x)
    np.save(data / "wy.npy", y)
    text = (HEAD % ('data train = npy("wx.npy", "wy.npy") -> (x: f32[B, I], y: i32[B] below C)', "  every 1 log(csv)")).replace(
        "loss = mean[B] cross_entropy(logits, y)",
        "w = vector(1, 2, 5)\n  loss = (sum[B] w[y] * cross_entropy(logits, y)) / sum[B] w[y]").replace("steps 5", "steps 1")
    exe = programs.compiled(programs.source("weighted", text), "weighted", "--set", "precision=f64")
    out = programs.FOLDER / "out-weighted"
    programs.call([exe, "--data", data, "--out", out, "--steps", "0"])
    start = tensorfile.read(out / "final.safetensors")
    programs.call([exe, "--data", data, "--out", out])
    logits = x @ start["l.weight"].T + start["l.bias"]
    each = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), y]
    w = np.array([1, 2, 5])[y]
    with open(out / "log.csv") as file:
        loss = float(next(csv.DictReader(file))["loss"])
    verdicts.expect(abs(loss - (w * each).sum() / w.sum()) < 1e-12, "weighted: %r" % loss)


OTHERS = """
dim B = 4 batch, C = 3
data train = csv("w.csv") -> (x: f32[B], kind: i32[B] names ("red", "NA", %(other)s), flag: bool[B] names (%(flag)s), late: bool[B] names ("Yes", "no"))
data valid = csv("w.csv", hold_out = 0.4, held = true) -> (x: f32[B], kind: i32[B] names ("red", "NA", other), flag: bool[B] names ("off", "on"), late: bool[B] names ("Yes", "no"))
data closed = csv("w.csv") -> (x: f32[B], kind: i32[B] names ("red", "NA", "blue"), flag: bool[B] names ("off", "on"), late: bool[B] names ("Yes", "no"))
model net(x: f32[B], kind: i32[B] below C) -> f32[B, C] { use t = embedding[C, C]; return t(kind) * expand[B, C](reshape[B, 1](x)) }
train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x, kind), kind) + 0 * mean[B] f32(flag) + 0 * mean[B] f32(late)
  predict kind = kind
  predict flag = flag
  predict late = late
  optimizer sgd(lr = 0.1)
  steps 5
}
"""


def others(data):
    """Words that no name is, empty cells and those that are too long, as the class behind the names; flags with words of their own."""
    long = "n" * 300
    cells = ["red", "NA", "", "blue", ' "red" ', "na", '"a, b"', long, "?", "red" * 200, "NA", "RED"]
    wanted = np.array([0, 1, 2, 2, 0, 2, 2, 2, 2, 2, 1, 2])
    flags, late = ["on", "off"] * 6, ["no", "no", "Yes"] * 4
    with open(data / "w.csv", "w") as file:
        file.write("kind,x,flag,late\n")
        for i, cell in enumerate(cells):
            file.write("%s,%d,%s,%s\n" % (cell, i, flags[i], late[i]))
    text = lambda other, flag='"off", "on"': OTHERS % {"other": other, "flag": flag}
    exe = programs.compiled(programs.source("others", text("other")), "others")
    out = programs.FOLDER / "out-others"
    call = lambda *words, allowed=(0,), exe=exe: programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed).stdout
    load = lambda name, of="train": np.load(out / "predict" / of / (name + ".npy"))
    call("train")
    call("predict")
    verdicts.expect(np.array_equal(load("kind"), wanted), "other words: %s" % load("kind"))
    verdicts.expect(np.array_equal(load("flag"), np.array(flags) == "on") and np.array_equal(load("late"), np.array(late) == "no"), "words of flags")
    call("predict", "--on", "valid")
    held = held_rows(12, 0.4, 0)
    verdicts.expect(np.array_equal(load("kind", "valid"), wanted[held]), "other words of rows held out")
    said = call("predict", "--on", "closed", allowed=(3,))
    verdicts.expect("I32[] below 3 with 3 names, but predict needs I32[] below 3 with 2 names and other" in said, "a set without `other`: " + said)
    (data / "w-new.csv").write_text("kind\ngreen\nNA\n\nred\n")
    call("predict", "--data-file", data / "w-new.csv", "--only", "kind")
    verdicts.expect(np.array_equal(load("kind", "w-new"), [2, 1, 2, 0]), "other words of a new file")
    # The table that is kept is not that of other names, and a run is not resumed with them.
    for name, other in (("others-third", text('"blue"')), ("others-turned", text("other", '"on", "off"'))):
        second = programs.compiled(programs.source(name, other), name)
        said = call("train", "--resume", allowed=(3,), exe=second)
        verdicts.expect(("the cell is empty, but field `kind` has names" if name == "others-third" else "is of another program") in said, "%s resumes: %s" % (name, said))
        said = call("predict", "--init", out / "final.safetensors", "--on", "train", "--only", "kind,flag", exe=second, allowed=(0, 3))
        verdicts.expect("the cell is empty, but field `kind` has names" in said if name == "others-third" else np.array_equal(load("flag"), np.array(flags) == "off"),
                        "other names: " + said)
    (data / "w.csv").write_text((data / "w.csv").read_text().replace("off", "of", 1))
    said = call("train", allowed=(3,))
    verdicts.expect("`of` is none of the names of field `flag`: `off`, `on`\n" in said, said)


GAPS = """
dim B = 4 batch, I = 4, C = 3
data train = csv("g.csv", missing = %(missing)s, hold_out = 0.3%(rows)s) -> (x: f32[B, %(axes)s] from ("a", "b", "c", "d") normalize, z: f32[B, %(one)s], y: i32[B, %(one)s] below C)
data valid = csv("g.csv", missing = %(missing)s, hold_out = 0.3, held = true%(rows)s) -> (x: f32[B, %(axes)s] from ("a", "b", "c", "d") normalize, z: f32[B, %(one)s], y: i32[B, %(one)s] below C)
model net(x: f32[B, %(axes)s], z: f32[B, %(one)s]) -> f32[B, C] { use l = linear[C], k = linear[C]; return l(reshape[B, %(flat)s](x)) + k(reshape[B, 1](z)) }
train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x, z), reshape[B](y))
  predict x = x
  predict guess = net(x, z)
  metric total = sum[B] %(first)s
  optimizer sgd(lr = 0.1)
  steps 5
  every 5 eval(valid)
}
"""


def gaps(data):
    """Cells without a number that count as the mean of their column, which they are no part of."""
    rng = np.random.default_rng(21)
    rows = 50
    x = rng.normal(size=(rows, 4)) * [3, 1e5, 0, 1] + [7, -2e6, 4, 0]  # the third has one value, whatever is missing
    x[rng.random((rows, 4)) < 0.3] = np.nan
    x[:, 3] = np.where(np.arange(rows) % 7 == 3, x[:, 3], np.nan)
    x[0, 0] = x[0, 2] = np.nan
    z, y = rng.normal(size=rows), rng.integers(0, 3, rows)
    words = ["", "NA", "nan", " ? ", "NaN"]
    spelled = [["%r" % float(v) if v == v else words[(i + k) % 5] for k, v in enumerate(row)] for i, row in enumerate(x)]

    def write(path, cells, beside=z):
        path.write_text("a,b,y,c,d,z\n" + "".join("%s,%s,%d,%s,%s,%s\n" % (row[0], row[1], y[i], row[2], row[3], beside[i]) for i, row in enumerate(cells)))

    def source(name, missing='"mean"', window=0):
        return programs.source(name, GAPS % {"missing": missing, "rows": ", window = 3" if window else "", "axes": "3, I" if window else "I", "one": "1",
                                             "flat": "12" if window else "4", "first": "x[.., 0, 0]" if window else "x[.., 0]"})

    def normal(saved, values):
        scaled = (values - saved["data.train.x.mean"]) / saved["data.train.x.std"]
        return np.where(values != values, 0, scaled)

    write(data / "g.csv", spelled)
    finals = {}
    for name, precision, window, workers in (("rows", "f32", 0, ()), ("exact", "f64", 0, ()), ("series", "f32", 3, ()), ("two", "f32", 0, ("--replicas", "2")), ("staged", "f32", 0, ("--stages", "2"))):
        exe = programs.compiled(source("gaps-" + name, window=window), "gaps-" + name, "--set", "precision=" + precision, *workers)
        out = programs.FOLDER / ("out-gaps-" + name)
        def call(*words):
            if workers:
                ended = processes.over_tcp(exe, 2, [*words, "--data", data, "--out", out, "--transport", "tcp"])
                verdicts.expect(ended.codes == [0, 0], "%s, two processes: %s" % (name, ended.text))
            else:
                programs.call([exe, *words, "--data", data, "--out", out])
        held = np.arange(rows) >= rows - 15 if window else held_rows(rows, 0.3, 0)
        call("train")
        saved = tensorfile.read(out / "final.safetensors")
        mean, deviation = np.nanmean(x[~held], axis=0), np.nanstd(x[~held], axis=0)
        verdicts.expect(np.allclose(saved["data.train.x.mean"], mean, rtol=1e-12), "%s: mean %s, expected %s" % (name, saved["data.train.x.mean"], mean))
        verdicts.expect(np.allclose(saved["data.train.x.std"][[0, 1, 3]], deviation[[0, 1, 3]], rtol=1e-12) and saved["data.train.x.std"][2] == 1,
                        "%s: deviation %s, expected %s" % (name, saved["data.train.x.std"], deviation))
        kind = np.float64 if precision == "f64" else np.float32
        shaped = lambda values: cut(values, 3, 1, 0, 3) if window else values
        for part, chosen in (("train", ~held), ("valid", held)):
            call("predict", "--on", part)
            got = np.load(out / "predict" / part / "x.npy")
            verdicts.expect(np.array_equal(got, shaped(normal(saved, x[chosen]).astype(kind))), "%s: x in %s" % (name, part))
        # A row of nothing but empty cells, and one without: the mean is that of the training.
        write(data / "g-new.csv", [[""] * 4, ["1", "2", "NA", "4"], [""] * 4])
        call("predict", "--data-file", data / "g-new.csv")
        new = np.array([[np.nan] * 4, [1, 2, np.nan, 4], [np.nan] * 4])
        verdicts.expect(np.array_equal(np.load(out / "predict" / "g-new" / "x.npy"), shaped(normal(saved, new).astype(kind))), name + ": new rows")
        finals[name] = (out / "final.safetensors").read_bytes()
        call("train", "--steps", "3")
        call("train", "--resume")
        verdicts.expect((out / "final.safetensors").read_bytes() == finals[name], name + ": resumed")
    verdicts.expect(finals["rows"] == finals["two"] == finals["staged"], "the same rows, by several processes")
    exe, out = programs.FOLDER / "gaps-rows", programs.FOLDER / "out-gaps-rows"
    numbers = json.loads(programs.call([exe, "eval", "--on", "valid", "--quiet", "--data", data, "--out", out]).stdout.splitlines()[-1])
    saved, held = tensorfile.read(out / "final.safetensors"), held_rows(rows, 0.3, 0)
    verdicts.expect(abs(numbers["total"] - normal(saved, x[held])[:, 0].sum()) < 1e-3, "eval: %s" % numbers)
    # Without gaps the word changes no bit; another meaning of gaps is another training, and reads the table anew.
    full = programs.FOLDER / "full"
    full.mkdir()
    write(full / "g.csv", [["%r" % float(v) for v in row] for row in np.where(x == x, x, 5)])
    other = programs.compiled(source("gaps-five", missing="5"), "gaps-five")
    for program, folder in ((exe, "mean"), (other, "five")):
        programs.call([program, "--data", full, "--out", programs.FOLDER / ("out-full-" + folder)])
    same = [tensorfile.read(programs.FOLDER / ("out-full-" + folder) / "final.safetensors")["l.weight"] for folder in ("mean", "five")]
    verdicts.expect(np.array_equal(*same), "a table without gaps")
    said = programs.call([other, "--resume", "--data", data, "--out", out], allowed=(3,)).stdout
    verdicts.expect("missing cells as the mean" in said, "resumed with another meaning of gaps: " + said)
    programs.call([other, "predict", "--on", "train", "--data", data, "--out", out])
    verdicts.expect(np.array_equal(np.load(out / "predict" / "train" / "x.npy"),
                    ((np.where(x == x, x, 5)[~held] - saved["data.train.x.mean"]) / saved["data.train.x.std"]).astype(np.float32)), "gaps as 5, from the same folder")

    def refused(what, cells, said, beside=z):
        write(data / "g.csv", cells, beside)
        ended = subprocess.run([exe, "--data", data, "--out", programs.FOLDER / "out-gaps-wrong"], capture_output=True, text=True)
        verdicts.expect(ended.returncode == 3 and said in ended.stderr, what + ": " + ended.stderr)
    changed = lambda row, column, text: [[text if (i, k) == (row, column) else cell for k, cell in enumerate(line)] for i, line in enumerate(spelled)]
    train = int(np.flatnonzero(~held)[2])
    for text in ("inf", "-nan", "nan(1)", "1e999"):
        refused(text, changed(train, 1, text), "in line %d, column 2; every value must be finite" % (train + 2))
    refused("no word for missing", changed(train, 1, "none?"), "line %d, column 2: `none?` is no number" % (train + 2))
    refused("a column without numbers", [[line[0], line[1], "NA", line[3]] for line in spelled], 'no row of data `train` has a number in the column `c` of field `x`')
    beside = list(z)
    beside[train] = ""
    refused("a field that is not normalized", spelled, "line %d, column 6: the cell is empty, where a number is expected of field `z`; `missing = \"mean\"` of csv(..) stands for fields with "
            "`normalize` only" % (train + 2), beside)


SERIES = """
dim B = 4 batch, T = 5, F = 2, N = 3
data train = %(source)s -> (%(fields)s)
data later = %(held)s -> (%(fields)s)
data every = %(wide)s -> (%(fields)s)
model net(past: f32[B, T, F]) -> f32[B, N] { use l = linear[N]; return l(reshape[B, T * F](past)) }
train net on train seed 1 {
  guess = net(past)
  loss = mean[B, N] (guess - coming) ^ 2 + 0 * mean[B] f32(kind[.., 0])
  predict past = past
  metric seen = sum[B] (0 * coming[.., 0] + 1)
  metric total = sum[B, N] coming
  metric kinds = sum[B] f32(kind[.., 0])
  optimizer sgd(lr = 0.01)
  epochs 1
  every epoch eval(later)
}
"""


def cut(rows, length, step, at, count):
    """Windows of `length` rows, one every `step`; of each `count` rows from `at` on."""
    starts = range(0, len(rows) - length + 1, step)
    return np.stack([rows[s + at:s + at + count] for s in starts])


def windows(data):
    rng = np.random.default_rng(8)
    rows = 41
    past = (rng.normal(size=(rows, 2)) * [2, 300] + [5, -1000]).astype(np.float32).astype(np.float64)
    coming, kind = past[:, 1], rng.integers(0, 4, rows)
    with open(data / "s.csv", "w") as file:
        file.write("time,heat,kind,load\n")
        for i, row in enumerate(past):
            file.write("2020-01-%d,%r,%d,%r\n" % (i, float(row[0]), kind[i], float(row[1])))
    np.save(data / "past.npy", past)
    np.save(data / "coming.npy", coming[:, None])
    np.save(data / "kind.npy", kind)
    np.savez(data / "s.npz", past=past, coming=coming, kind=kind)
    np.savez_compressed(data / "packed.npz", past=past.astype(">f8"), coming=coming, kind=kind)
    tensorfile.write(data / "s.safetensors", {"past": past, "coming": coming, "kind": kind.astype(np.int32)})
    tail = " normalize, coming: f32[B, N]%s at T, kind: i32[B, 1] below 4%s at T + 2"
    named = "past: f32[B, T, F]" + tail % ("", "")
    columns = 'past: f32[B, T, F] from ("heat", "load")' + tail % (' from "load"', "")
    early, late = past[:33], past[33:]  # 0.2 of 41 are 8.2 rows
    mean, deviation = early.mean(axis=0), early.std(axis=0)
    parts = {"train": (slice(0, 33), 1), "later": (slice(33, 41), 1), "every": (slice(0, 41), 4)}
    sources = {"csv": ('csv("s.csv"%s)', columns), "npz": ('npz("s.npz"%s)', named), "packed": ('npz("packed.npz"%s)', named),
               "safetensors": ('safetensors("s.safetensors"%s)', named), "npy": ('npy("past.npy", "coming.npy", "kind.npy"%s)', named)}
    finals = set()
    for case, (source, fields) in sources.items():
        text = SERIES % {"fields": fields, "source": source % ", window = T + N, hold_out = 0.2", "wide": source % ", stride = 4, window = 8",
                         "held": source % ", window = 8, hold_out = 0.2, held = true"}
        exe = programs.compiled(programs.source("series-" + case, text), "series-" + case)
        out = programs.FOLDER / ("out-series-" + case)
        call = lambda *words, allowed=(0,): programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed)
        call("train")
        saved = tensorfile.read(out / "final.safetensors")
        for name, value in (("mean", mean), ("std", deviation)):
            got = saved["data.train.past." + name]
            verdicts.expect(got.shape == (2,) and np.allclose(got, value, rtol=1e-12), "%s: %s of rows: %s" % (case, name, got))
        finals.add((out / "final.safetensors").read_bytes())
        normal = ((past - saved["data.train.past.mean"]) / saved["data.train.past.std"]).astype(np.float32)
        for name, (part, step) in parts.items():
            call("predict", "--on", name)
            got, want = np.load(out / "predict" / name / "past.npy"), cut(normal[part], 5, step, 0, 5)  # what follows need not be there
            verdicts.expect(np.array_equal(got, want), "%s: windows of %s: %s, expected %s" % (case, name, got.shape, want.shape))
            numbers = json.loads(call("eval", "--on", name, "--quiet").stdout.splitlines()[-1])
            whole = cut(coming[part], 8, step, 5, 3)
            verdicts.expect(numbers["seen"] == len(whole) and numbers["kinds"] == cut(kind[part], 8, step, 7, 1).sum()
                            and abs(numbers["total"] - whole.sum()) < 1e-2, "%s: eval on %s: %s" % (case, name, numbers))
        if case != "npy":
            new = programs.FOLDER / ("new-" + (data / source.split('"')[1]).name)
            new.write_bytes((data / source.split('"')[1]).read_bytes())
            call("predict", "--on", "later", "--data-file", new)
            got = np.load(out / "predict" / new.stem / "past.npy")
            verdicts.expect(np.array_equal(got, cut(normal, 5, 1, 0, 5)), case + ": a file in its place has all rows")
    verdicts.expect(len(finals) == 1, "the same rows train to %d results" % len(finals))
    # Resumed; and with workers that read a part of the fields each.
    call("train", "--steps", "3")
    call("train", "--resume")
    verdicts.expect((out / "final.safetensors").read_bytes() in finals, "windows: resumed")
    two = programs.compiled(programs.FOLDER / "series-npz.cinch", "series-two", "--replicas", "2")
    together = lambda *words: processes.over_tcp(two, 2, [*words, "--data", data, "--out", out, "--transport", "tcp"])
    ended = together("train")
    verdicts.expect(ended.codes == [0, 0] and (out / "final.safetensors").read_bytes() in finals, "windows: two processes")
    ended = together("predict", "--on", "later")
    verdicts.expect(ended.codes == [0, 0] and np.array_equal(np.load(out / "predict" / "later" / "past.npy"), cut(normal[33:], 5, 1, 0, 5)), "windows: predicted by two processes")
    # A result that is left out needs no rows.
    both = programs.source("series-both", (programs.FOLDER / "series-csv.cinch").read_text().replace("predict past = past", "predict past = past; predict coming = coming"))
    two = programs.compiled(both, "series-both", "--replicas", "2")
    for only, length in (((), 8), (("--only", "past"), 5), (("--only", "past,coming"), 8)):
        ended = together("predict", "--on", "later", *only)
        verdicts.expect(ended.codes == [0, 0] and np.array_equal(np.load(out / "predict" / "later" / "past.npy"), cut(normal[33:], length, 1, 0, 5)), "windows: predict %s: %s" % (only, ended.text))
    # What is wrong.
    def refused(what, *said):
        ended = subprocess.run([exe, "--data", data, "--out", programs.FOLDER / "out-wrong"], capture_output=True, text=True)
        verdicts.expect(ended.returncode == 3 and all(each in ended.stderr for each in said), what + ": " + ended.stderr)
    for name, array, said in (("kind", kind[:40], "has 32 rows, but field `past`"), ("kind", np.where(np.arange(rows) == 30, 7, kind), "has 7 in row 30, value 0"),
                              ("past", past[:4], "3 rows that are not held out are fewer than one window of 8"), ("past", past[:, :1], "needs 2 values a row"),
                              ("past", np.ascontiguousarray(past.T), "values a row"), ("coming", np.where(np.arange(rows) == 35, np.nan, coming), "in row 35, value 0")):
        kept = (data / (name + ".npy")).read_bytes()
        np.save(data / (name + ".npy"), array)
        refused(name, said)
        (data / (name + ".npy")).write_bytes(kept)


def drawn(data):
    """`hold_out` of arrays and records: the rows that csv draws, for any source; found again by every process, after a resume, too."""
    rng = np.random.default_rng(21)
    rows = 3001  # more than there are blocks of rows that the runtime counts
    x, y = rng.integers(0, 200, (rows, 3)).astype("u1"), rng.integers(0, 3, rows).astype("u1")
    held = held_rows(rows, 0.2, 9)
    verdicts.expect(500 < held.sum() < 700, "%d rows are held out" % held.sum())
    np.save(data / "d-x.npy", x)
    np.save(data / "d-y.npy", y.astype("i8"))
    np.savez(data / "d.npz", x=x.astype("f4"), y=y)
    np.savez_compressed(data / "dc.npz", x=x.astype(">i2"), y=y)
    tensorfile.write(data / "d.safetensors", {"x": x.astype("f4"), "y": y.astype("i4")})
    (data / "d-x.idx").write_bytes(idx(x))
    (data / "d-y.idx").write_bytes(idx(y))
    records = [bytes([label]) + row.tobytes() for row, label in zip(x, y)]
    (data / "d-0.bin").write_bytes(b"".join(records[:1200]))
    (data / "d-1.bin").write_bytes(b"".join(records[1200:]))
    np.savetxt(data / "d.csv", np.concatenate([x, y[:, None]], 1), fmt="%d", delimiter=",", header="a,b,c,y", comments="")
    fields, mean = "x: f32[B, I]%s, y: i32[B] below C", x[~held].astype("f8").mean(axis=0)
    sources = {"csv": ('csv("d.csv"%s)', fields % ' from ("a", "b", "c") normalize'), "npy": ('npy("d-x.npy", "d-y.npy"%s)', fields % " normalize"),
               "npz": ('npz("d.npz"%s)', fields % " normalize"), "packed": ('npz("dc.npz"%s)', fields % " normalize"),
               "safetensors": ('safetensors("d.safetensors"%s)', fields % " normalize"), "idx": ('idx("d-x.idx", "d-y.idx"%s)', fields % " normalize"),
               "records": ('records("d-0.bin", "d-1.bin"%s)', "y: i32[B] below C, x: f32[B, I] scale 1/4")}
    finals = {}
    for case, (source, fields) in sources.items():
        text = "".join("data %s = %s -> (%s)\n" % (name, source % options, fields)
                       for name, options in (("train", ", hold_out = 0.2, hold_seed = 9"), ("valid", ", hold_out = 0.2, hold_seed = 9, held = true"), ("every", "")))
        path = programs.source("drawn-" + case, HEAD % (text, "  metric count = sum[B] f32(y >= 0)\n  every 2 eval(valid)"))
        exe, out = programs.compiled(path, "drawn-" + case), programs.FOLDER / ("out-drawn-" + case)
        call = lambda *words, allowed=(0,): programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed)
        call("train")
        whole = (out / "final.safetensors").read_bytes()
        finals.setdefault(case == "records", set()).add(whole)
        saved = tensorfile.read(out / "final.safetensors")
        if case == "records":
            values = x.astype("f4") / 4
        else:
            verdicts.expect(np.allclose(saved["data.train.x.mean"], mean, rtol=1e-12), case + ": the mean of the rows that are trained on")
            values = ((x - saved["data.train.x.mean"]) / saved["data.train.x.std"]).astype("f4")
        for name, rows_of in (("train", ~held), ("valid", held), ("every", held | ~held)):
            call("predict", "--on", name)
            got = [np.load(out / "predict" / name / (result + ".npy")) for result in "xy"]
            verdicts.expect(np.array_equal(got[0], values[rows_of]) and np.array_equal(got[1], y[rows_of]), "%s: the rows of %s" % (case, name))
            numbers = json.loads(call("eval", "--on", name, "--quiet").stdout.splitlines()[-1])
            verdicts.expect(numbers["count"] == rows_of.sum(), "%s: eval on %s counts %s" % (case, name, numbers))
        call("train", "--steps", "3")
        call("train", "--resume")
        verdicts.expect((out / "final.safetensors").read_bytes() == whole, case + ": resumed")
        if case in ("npy", "records"):
            two = programs.compiled(path, "drawn-two", "--stages", "2") if case == "npy" else programs.compiled(path, "drawn-two", "--replicas", "2")
            ended = processes.over_tcp(two, 2, ["train", "--data", data, "--out", out, "--transport", "tcp"])
            verdicts.expect(ended.codes == [0, 0] and (out / "final.safetensors").read_bytes() == whole, case + ": two processes")
            ended = processes.over_tcp(two, 2, ["predict", "--on", "valid", "--data", data, "--out", out, "--transport", "tcp"])
            verdicts.expect(ended.codes == [0, 0] and np.array_equal(np.load(out / "predict" / "valid" / "x.npy"), values[held]), case + ": predicted by two processes")
    verdicts.expect(len(finals[False]) == 1, "the same rows train to %d results" % len(finals[False]))
    # Too few rows for the share.
    np.save(data / "d-x.npy", x[:2])
    np.save(data / "d-y.npy", y[:2])
    wanted = held_rows(2, 0.2, 9)
    verdicts.expect(not wanted.any(), "no row of two is held out")
    said = programs.call([programs.FOLDER / "drawn-npy", "eval", "--on", "valid", "--data", data, "--out", programs.FOLDER / "out-drawn-npy"], allowed=(3,)).stdout
    verdicts.expect("of the 2 examples in d-x.npy none is held out; choose another hold_out or hold_seed" in said, said)


TEXT = """dim B = 4 batch, T = 6
%s
model net(t: i32[B, T] below 256) -> f32[B] { use e = embedding[256, 1]; return mean[T] e(t)[.., 0] }
train net on train seed 1 {
  loss = mean[B] net(t) ^ 2
  predict t = t
  optimizer sgd(lr = 0.1)
  steps 4
  every 2 eval(later)
}
"""


def ends(data):
    """`hold_out` of text and tokens: the end of each file."""
    rng = np.random.default_rng(3)
    parts = [rng.integers(0, 256, length) for length in (101, 57)]
    for kind, options, header in (("u1", "", b""), ("<u2", "u16, header = 3, ", b"abc"), ("<u4", "u32, ", b"")):
        for i, part in enumerate(parts):
            (data / ("e%d.bin" % i)).write_bytes(header + part.astype(kind).tobytes())
        source = "%s(\"e0.bin\", \"e1.bin\", %swindow = T%%s)" % ("text" if kind == "u1" else "tokens", options)
        text = "".join("data %s = %s -> (t: i32[B, T] below 256)\n" % (name, source % more) for name, more in
                       (("train", ", stride = 1, hold_out = 0.3"), ("later", ", hold_out = 0.3, held = true"), ("whole", "")))
        exe = programs.compiled(programs.source("ends", TEXT % text), "ends")
        for name, begin, end, step in (("train", 0, 0.7, 1), ("later", 0.7, 1, 5), ("whole", 0, 1, 5)):
            programs.call([exe, "--data", data, "--out", programs.FOLDER / "out-ends"])
            programs.call([exe, "predict", "--on", name, "--data", data, "--out", programs.FOLDER / "out-ends"])
            wanted = []
            for part in parts:
                border = len(part) - int(0.3 * len(part) + 0.5)
                own = part[0 if begin == 0 else border:border if end < 1 else len(part)]
                wanted.append(np.stack([own[i:i + 6] for i in range(0, len(own) - 5, step)]))
            got = np.load(programs.FOLDER / "out-ends" / "predict" / name / "t.npy")
            verdicts.expect(np.array_equal(got, np.concatenate(wanted)), "%s: windows of %s: %s, expected %d" % (kind, name, got.shape, sum(map(len, wanted))))
    (data / "e1.bin").write_bytes(parts[1][:9].astype("<u4").tobytes())
    said = programs.call([exe, "eval", "--on", "later", "--data", data, "--out", programs.FOLDER / "out-ends"], allowed=(3,)).stdout
    verdicts.expect("3 tokens that are held out are fewer than one window of 6" in said, said)


def main():
    data = programs.FOLDER / "data"
    data.mkdir()
    table(data)
    from_other_data(data)
    compressed(data)
    normalized_arrays(data)
    beyond(data)
    weighted(data)
    others(data)
    windows(data)
    drawn(data)
    ends(data)
    gaps(data)


verdicts.run(main)
