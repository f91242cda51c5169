#!/usr/bin/python3
"""`predict name = e` in `train`: what the trained binary writes of every example, against NumPy; the same files without such
clauses as before; `--data-file`; a clause changes no bit of the training; a text model that generates beside its clauses."""
import json
import re
import shutil

import numpy as np
import programs
import tensorfile

PROGRAM = """
dim B = 16 batch, I = 6, C = 4
data train  = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
data table  = csv("t.csv") -> (x: f32[B, I] from ("a", "b", "c", "d", "e", "f"), y: i32[B] below C)
model net(x: f32[B, I]) -> f32[B, C] { use l = linear[C]; return l(dropout(x, 0.2)) }
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] cross_entropy(logits, y)
%s  optimizer adam(lr = 0.1)
  steps 5
}
"""
CLAUSES = """  predict class = argmax(logits)
  predict logits = logits
  predict right = argmax(logits) == y
  predict best = max[C] softmax(logits)
  predict each = softmax(net(x))'
  predict label = y
  predict again = argmax(net(x))
  v = vector(2.5, 2.5, 2.5, -1)
  predict picked = v[y]
  s[b, k] = logits[b, k] * 0 + vector(0.0, -0.0, 3, 3)[k]
  predict spread = s
  predict fixed = logits[.., 0] * 0 + v[3]
"""

verdicts = programs.Verdicts()


def main():
    data, out = programs.FOLDER / "data", programs.FOLDER / "out"
    data.mkdir()
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 4, 40).astype(np.int32)
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", y)
    rows = [",".join(repr(float(v)) for v in row) for row in x[:25]]
    (data / "new customers.csv").write_text("\n".join(["a,b,c,d,e,f"] + rows) + "\n")
    np.save(data / "fresh.npy", x[:7])

    with_clauses = programs.compiled(programs.source("clauses", PROGRAM % CLAUSES), "clauses")
    without = programs.compiled(programs.source("without", PROGRAM % ""), "without")
    call = lambda exe, *words, allowed=(0,): programs.call([exe, *words, "--out", out], allowed=allowed, cwd=data)
    for exe in (without, with_clauses):
        call(exe, "train", "--data", data)
        final = (out / "final.safetensors").read_bytes()
        verdicts.expect(exe == without or final == before, "a `predict` clause changes the training")
        before = final
    said = programs.call([with_clauses, "info"]).stdout
    verdicts.expect("predict      class: I32[]\n" in said and "predict      each: F32[4]\n" in said, "info: " + said)

    call(without, "predict", "--data", data)
    logits = np.load(out / "predict/train/logits.npy")
    call(with_clauses, "predict", "--data", data)
    load = lambda name, name_of_set="train": np.load(out / "predict" / name_of_set / (name + ".npy"))
    shares = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for name, wanted in (("logits", logits), ("class", logits.argmax(1)), ("again", logits.argmax(1)), ("label", y),
                         ("right", logits.argmax(1) == y)):
        verdicts.expect(np.array_equal(load(name), wanted), "%s: %s" % (name, load(name)))
    for name, wanted in (("best", shares.max(1)), ("each", shares)):
        verdicts.expect(load(name).shape == wanted.shape and np.allclose(load(name), wanted, atol=1e-6), name)
    # Numbers in the program, equal neighbours among them: by an index, along an axis, one alone.
    for name, wanted in (("picked", np.float32([2.5, 2.5, 2.5, -1])[y]), ("spread", np.tile(np.float32([0, 0, 3, 3]), (40, 1))), ("fixed", np.full(40, -1))):
        verdicts.expect(np.array_equal(load(name), wanted), "%s: %s" % (name, load(name)))
    verdicts.expect([load(name).dtype for name in ("class", "right", "best")] == ["int32", "bool", "float32"], "types")

    # Another file in the place of the set's own: the labels are not there, and what needs them is refused.
    said = call(without, "predict", "--on", "table", "--data-file", "new customers.csv").stdout
    verdicts.expect(np.array_equal(load("logits", "new customers"), logits[:25]), "--data-file of a table\n" + said)
    said = call(with_clauses, "predict", "--on", "table", "--data-file", "new customers.csv", allowed=(3,)).stdout
    verdicts.expect("takes the column `y`" in said, "labels that are not there: " + said)
    for odd in ("...csv", "..csv", ".."):
        shutil.copy(data / "new customers.csv", data / odd) if odd != ".." else None
        said = call(without, "predict", "--on", "table", "--data-file", data / odd, allowed=(2,)).stdout
        verdicts.expect("no folder can be called `." in said, "results of %s: %s" % (odd, said))
    call(without, "predict", "--data-file", data / "fresh.npy")
    verdicts.expect(np.array_equal(load("logits", "fresh"), logits[:7]), "--data-file of a set with several files, one read")
    said = call(with_clauses, "predict", "--data-file", "fresh.npy", allowed=(2,)).stdout
    verdicts.expect("predict reads more than one file of data `train` (x.npy, y.npy)" in said, said)
    # Of results, those that are asked for: what the others need is not read.
    whole = {name: load(name) for name in ("class", "logits", "right", "each", "label", "picked")}
    verdicts.expect("--only class,logits,best,each,again,spread,fixed leaves out" in
                    call(with_clauses, "predict", "--on", "table", "--data-file", "new customers.csv", allowed=(3,)).stdout, "a column that one result needs")
    verdicts.expect("or name a result that needs one of them with --only: class, logits, best, each, label," in said, "files that one result needs: " + said)
    workers = [with_clauses] + [programs.compiled(programs.FOLDER / "clauses.cinch", "clauses-" + flag, "--" + flag, "2") for flag in ("stages", "replicas")]
    for exe in workers:
        shutil.rmtree(out / "predict")
        call(exe, "predict", "--on", "table", "--data-file", "new customers.csv", "--only", "each,class", "--only=logits")
        written = {path.name for path in (out / "predict/new customers").iterdir()}
        verdicts.expect(written == {"each.npy", "class.npy", "logits.npy"}, "--only of three: %s" % written)
        for name in ("each", "class", "logits"):
            verdicts.expect(np.array_equal(load(name, "new customers"), whole[name][:25]), "--only: " + name)
        call(exe, "predict", "--data-file", data / "fresh.npy", "--only", "logits")
        verdicts.expect(np.array_equal(load("logits", "fresh"), logits[:7]), "--only of a set with several files")
        call(exe, "predict", "--data", data, "--only", "right")
        verdicts.expect(np.array_equal(load("right"), whole["right"]) and not (out / "predict/train/label.npy").exists(), "--only of what needs all")
    (data / "labels").mkdir()
    shutil.copy(data / "y.npy", data / "labels")
    call(with_clauses, "predict", "--data", data / "labels", "--only", "label,picked")
    verdicts.expect(np.array_equal(load("label"), y) and np.array_equal(load("picked"), whole["picked"]), "--only of labels alone")
    for wrong in ("loss", "", "class,"):
        said = call(with_clauses, "predict", "--data", data, "--only", wrong, allowed=(2,)).stdout
        verdicts.expect("there is no result `%s`; the program has class, logits, right, best" % wrong.removeprefix("class,") in said, "--only %s: %s" % (wrong, said))
    said = call(without, "eval", "--only", "logits", allowed=(2,)).stdout
    verdicts.expect("--only has no meaning for `eval`" in said, said)
    call(with_clauses, "predict", "--data", data)
    # A file that is called as a data set is: neither's results take the place of the other's.
    (data / "other").mkdir()
    for name in ("table.csv", "table"):
        (data / "other" / name).write_text("\n".join(["a,b,c,d,e,f"] + rows[:9]) + "\n")
    (data / "t.csv").write_text((data / "new customers.csv").read_text())
    call(without, "predict", "--data", data, "--on", "table")
    call(without, "predict", "--on", "table", "--data-file", "other/table.csv")
    call(without, "predict", "--on", "table", "--data-file", "other/table")
    for name, examples in (("table", 25), ("table.csv", 9), ("table.file", 9)):
        verdicts.expect(np.array_equal(load("logits", name), logits[:examples]), "results of " + name)
    odd_name = 'a "b\\c'
    (data / (odd_name + ".csv")).write_text("\n".join(["a,b,c,d,e,f,y"] + [row + ",1" for row in rows[:9]]) + "\n")
    said = call(without, "eval", "--on", "table", "--data-file", odd_name + ".csv").stdout.splitlines()
    verdicts.expect(json.loads(said[-1])["data"] == odd_name, "eval's line is JSON, whatever the file is called: %s" % said)
    said = call(without, "predict", "--on", "table", "--data-file", "nowhere.csv", allowed=(3,)).stdout
    verdicts.expect("data `nowhere`: cannot open nowhere.csv: No such file" in said and "--data names" not in said, said)
    verdicts.expect("looked for from the current folder, %s)" % data in said, said)
    said = call(without, "train", "--data-file", "fresh.npy", allowed=(2,)).stdout
    verdicts.expect("--data-file has no meaning for `train`" in said, said)

    # Numbers that are not finite are written as they are, and told.
    odd = "  predict odd = log(relu(logits))\n  metric low = mean[B] log(0 * logits[.., 0])\n  metric none = mean[B] log(-1 - logits[.., 0] ^ 2)\n"
    exe = programs.compiled(programs.source("odd", PROGRAM % odd), "odd")
    call(exe, "train", "--data", data)
    said = call(exe, "predict", "--data", data).stdout
    bad = ~np.isfinite(load("odd"))
    verdicts.expect("warning: predict odd: %d of 160 numbers are not finite; the first is -inf, of example %d " % (bad.sum(), bad.any(1).argmax()) in said, said)
    said = call(exe, "eval", "--data", data).stdout
    verdicts.expect(re.search("low +-inf\n", said) and re.search("none +nan\n", said), said)
    verdicts.expect(json.loads(said.splitlines()[-1])["none"] is None, said)

    # Results whose batch axis is not the first one are written example by example.
    turned = PROGRAM.replace("f32[B, C] {", "f32[C, B] {").replace("return l(dropout(x, 0.2))", "return l(x)'")
    turned = turned.replace("logits = net(x)", "back = net(x)\n  logits = back'")
    exe = programs.compiled(programs.source("turned", turned % "  predict other = back\n"), "turned")
    exe2 = programs.compiled(programs.source("turned2", turned % "  metric m = mean[B] logits[.., 0]\n"), "turned2")
    call(exe, "train", "--data", data)
    call(exe, "predict", "--data", data)
    call(exe2, "predict", "--data", data)
    verdicts.expect(load("other").shape == (40, 4) and np.array_equal(load("other"), load("back")), "batch axis behind")

    # A text model: `generate` reads the logits, wherever they stand among the clauses, and says so if they do not.
    text = """
dim B = 4 batch, T = 8, V = 128
data train = text("t.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model lm(x: i32[B, T] below V) -> f32[B, T, V] { use e = embedding[V, V]; return e(x) }
train lm on train seed 3 {
  logits = lm(text[:, :T])
  loss = mean[B, T] cross_entropy(logits, text[:, 1:])
%s  optimizer sgd(lr = 1)
  steps 5
}
"""
    (data / "t.txt").write_bytes(b"hello world, hello moon. " * 20)
    said = []
    for number, clauses in enumerate(("", "  predict next = argmax(logits)\n  predict logits = logits\n",
                                      "  predict p = softmax(logits)\n")):
        exe = programs.compiled(programs.source("text%d" % number, text % clauses), "text%d" % number)
        call(exe, "train", "--data", data)
        said.append(call(exe, "generate", "--length", 20, "--temperature", 0, allowed=(0, 2)).stdout)
    verdicts.expect(said[0] == said[1] and len(said[0]) > 10, "generate beside clauses: %r" % said[:2])
    verdicts.expect("if it has `predict` clauses, one for these logits" in said[2], said[2])
    # Logits that say nothing about the next token: exit 4, and not an endless line of bytes of value 0.
    for value in (np.nan, np.inf, -np.inf):
        tensorfile.write(data / "bad.safetensors", {"e.weight": np.full((128, 128), value, np.float32)})
        for more in (("--temperature", 0), ()):
            said = call(programs.FOLDER / "text0", "generate", "--init", "bad.safetensors", "--prompt", "hello", *more, allowed=(4,)).stdout
            verdicts.expect("token 1 cannot be drawn" in said and str(value) in said, "logits of %s: %r" % (value, said))


verdicts.run(main)
