#!/usr/bin/python3
"""What `eval --on` and `predict --on` of a trained binary take, and which data the compiler calls unused: data sets with all
fields, with fewer, in another order, of another type; from sources that may lack a field."""
import json
import re

import numpy as np
import programs

PROGRAM = """
dim B = 16 batch, I = 6, C = 4
data train  = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
data test   = npy("x.npy") -> (x: f32[B, I])
data turned = npy("y.npy", "x.npy") -> (y: i32[B] below C, x: f32[B, I])
data table  = csv("t.csv") -> (y: i32[B] below C, x: f32[B, I] from ("a", "b", "c", "d", "e", "f"))
data store  = npz("t.npz") -> (x: f32[B, I], y: i32[B] below C)
data narrow = npy("x.npy") -> (x: f32[B, 3])
data labels = npy("y.npy") -> (y: i32[B] below C)
data wild   = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B])
model net(x: f32[B, I]) -> f32[B, C] { use l = linear[C]; return l(x) }
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] cross_entropy(logits, y)
  metric acc = mean[B] (argmax(logits) == y)
  metric size = mean[B, I] abs(x)
  optimizer sgd(lr = 0.1)
  steps 5
}
"""

verdicts = programs.Verdicts()


def main():
    data, out = programs.FOLDER / "data", programs.FOLDER / "out"
    data.mkdir()
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 4, 40).astype(np.int32)
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", y)
    np.savez(data / "t.npz", x=x)  # no labels, though `store` declares them
    rows = [",".join(repr(float(v)) for v in row) for row in x]
    (data / "t.csv").write_text("\n".join(["a,b,c,d,e,f"] + rows) + "\n")

    program = programs.source("datasets", PROGRAM)
    said = programs.call([programs.CINCH, "check", program]).stdout
    unused = re.findall(r"`(\w+)` is never used.*it has no field `(\w+)` of the type that `predict --on \1` needs", said)
    verdicts.expect(unused == [("narrow", "x"), ("labels", "x")], "unused: %s\n%s" % (unused, said))

    exe = programs.compiled(program, "datasets")
    call = lambda *words, allowed=(0,): programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed)
    call("train")
    result = lambda name: np.load(out / "predict" / name / "logits.npy")
    call("predict")
    verdicts.expect(result("train").shape == (40, 4), "predict without --on takes the data that is trained on")
    for name in ("test", "turned", "table", "store", "wild"):
        call("predict", "--on", name)
        verdicts.expect(np.array_equal(result(name), result("train")), "predict --on %s: other results" % name)
    metrics = lambda name: json.loads(call("eval", "--on", name, "--quiet").stdout.splitlines()[-1])
    verdicts.expect(dict(metrics("turned"), data="train") == metrics("train"), "eval with the fields in another order")

    def refused(word, name, *parts):
        done = call(word, "--on", name, allowed=(3,))
        verdicts.expect(all(part in done.stdout for part in parts), "%s --on %s says %s" % (word, name, done.stdout))

    refused("eval", "test", "data `test` has no field `y`, which eval needs for loss, acc;", "--on: train, turned, table, store")
    refused("eval", "labels", "data `labels` has no field `x`, which eval needs for loss, acc, size;")
    refused("predict", "labels", "data `labels` has no field `x`, which predict needs for logits;",
            "--on: train, test, turned, table, store, wild")
    refused("predict", "narrow", "field `x` of data `narrow` is F32[3], but predict needs F32[6] for logits")
    refused("eval", "wild", "field `y` of data `wild` is I32[], but eval needs I32[] below 4 for loss, acc")
    refused("eval", "store", "t.npz", "no array `y`")
    refused("eval", "table", "t.csv", "the column `y`")

    # A table with holes: what they count as.
    holes = [",".join("NA" if v < -1 else repr(float(v)) for v in row) for row in x]
    (data / "t.csv").write_text("\n".join(["a, b ,c,d,e,f"] + holes) + "\n")
    refused("predict", "table", "t.csv", "`NA` is no value of field `x`", "`missing = ..` of csv(..)")
    (data / "t.csv").write_text("\n".join(["a, b ,c,d,e,f"] + holes).replace("NA", "0x10") + "\n")
    refused("predict", "table", "t.csv", "`0x10` is no number")
    (data / "t.csv").write_text("\n".join(["a, b ,c,d,e,f"] + holes) + "\n")
    filled = PROGRAM.replace('csv("t.csv")', 'csv("t.csv", missing = 1/4)')
    exe = programs.compiled(programs.source("filled", filled), "filled")
    call("predict", "--on", "table")
    np.save(data / "x.npy", np.where(x < -1, np.float32(0.25), x))
    call("predict", "--on", "test")
    verdicts.expect((x < -1).any() and np.array_equal(result("table"), result("test")), "missing = 1/4")
    np.save(data / "x.npy", x)

    # Fields that nothing reads: not of the step, and not of any entry.
    loose = programs.source("loose", PROGRAM.replace("cross_entropy(logits, y)", "sum[C] logits ^ 2")
                            .replace("  metric acc = mean[B] (argmax(logits) == y)\n", ""))
    exe = programs.compiled(loose, "loose")
    out = programs.FOLDER / "loose-out"
    call("train")
    verdicts.expect("acc" not in metrics("test") and metrics("test")["size"] > 0, "eval that reads no labels needs none")

    # A model that reads nothing is evaluated, and predicts, once an example.
    blind = PROGRAM.replace("{ use l = linear[C]; return l(x) }", "{\n  param w: f32[C] ~ ones\n  return expand[B, C](w)\n}")
    blind = re.sub("cross_entropy.*|  metric.*", lambda found: "sum[C] logits ^ 2" if "cross" in found[0] else "", blind)
    exe = programs.compiled(programs.source("blind", blind), "blind")
    out = programs.FOLDER / "blind-out"
    call("train")
    call("predict", "--on", "labels")
    verdicts.expect(metrics("labels")["examples"] == 40 and result("labels").shape == (40, 4), "a model that reads nothing")


verdicts.run(main)
