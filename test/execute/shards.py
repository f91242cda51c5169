#!/usr/bin/python3
"""Shards: T workers share every layer. Gradients are those of NumPy, exactly where all sums are of whole numbers, and those of one worker but for
roundings; two runs, other micro-batches, budgets, threads, stages and transports leave the same bits; a block exchanges once forward and once
backward; files hold whole tensors, with the initial values of one worker; another number of shards goes on with a note.

usage: shards.py [--all]      --all: over both MPI libraries, too, and more grids
"""
import re
import sys

import numpy as np

import processes
import programs

ALL = "--all" in sys.argv
verdicts = programs.Verdicts()
B, I, H = 12, 6, 12
MLP = """dim B = 12 batch, I = 6, H = 12
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, I], y: f32[B, I])
model net(x: f32[B, I]) -> f32[B, I] {
  use up = linear[H], down = linear[I]
  %sh = up(x)
  return down(h * h)
}
train net on train seed 4 {
  loss = sum[B, I] (net(x) - y) ^ 2
  optimizer sgd(lr = 1)
  shards %d
  steps 4
}
"""
GPT = """dim B = 8 batch, T = 16, V = 128, D = 24, A = 6, F = 36, N = 2
data train = text("t.txt", window = T + 1, shuffle = false) -> (text: i32[B, T + 1] below V)
model gpt(x: i32[B, T] below V) -> f32[B, T, V] {
  param wte: f32[V, D] ~ normal(0.3)
  param wpe: f32[T, D] ~ normal(0.1)
  use blocks = repeat N transformer_block[A, F](causal = true, rate = %s, init = normal(0.1)), norm = layer_norm
  h = blocks(wte[x] + wpe)
  return norm(h) @ wte'
}
train gpt on train seed 1 {
  loss = mean[B, T] cross_entropy(gpt(text[:, :T]), text[:, 1:])
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(0.5)
  shards 2
  steps 6
  every 3 eval(train, batches = 1)
}
"""


def text_data():
    folder = programs.FOLDER / "text"
    folder.mkdir()
    (folder / "t.txt").write_bytes(programs.byte_text(6000))
    return folder


def gradients(p, x, y):
    a = x @ p["up.weight"].T + p["up.bias"]
    d = 2 * ((a * a) @ p["down.weight"].T + p["down.bias"] - y)
    da = 2 * a * (d @ p["down.weight"])
    return {"up.weight": da.T @ x, "up.bias": da.sum(0), "down.weight": d.T @ (a * a), "down.bias": d.sum(0)}


def against_numpy():
    rng = np.random.default_rng(5)
    for kind, draw in (("whole", lambda *shape: rng.integers(-2, 3, shape).astype(np.float64)), ("real", lambda *shape: rng.normal(size=shape))):
        x, y = draw(B, I).astype(np.float32), draw(B, I).astype(np.float32)
        folder = programs.arrays(kind, x=x, y=y)
        shapes = {"up.weight": (H, I), "up.bias": (H,), "down.weight": (I, H), "down.bias": (I,)}
        start = {name: draw(*shape).astype(np.float32) for name, shape in shapes.items()}
        programs.tensorfile.write(folder / "start.safetensors", start)
        expected = gradients({k: v.astype(np.float64) for k, v in start.items()}, x.astype(np.float64), y.astype(np.float64))
        for count in (1, 2, 3, 6):
            for hint in ("", "@shard(row) ", "@shard(none) ") if count == 2 else ("",):
                path = programs.source("%s%d" % (kind, count), MLP % (hint, count))
                result = programs.run(programs.compiled(path, "%s%d" % (kind, count)), folder, 1, init=folder / "start.safetensors")
                for name, gradient in expected.items():
                    found = start[name].astype(np.float64) - result.parameters[name]
                    error = np.abs(found - gradient).max() / np.abs(gradient).max()
                    verdicts.expect(result.parameters[name].shape == shapes[name] and (error == 0 if kind == "whole" else error < 1e-5),
                                    "%s, %s%d shards: %s is off by %.3g" % (kind, hint, count, name, error))


def same_bits(folder):
    path = programs.source("gpt", GPT % "0.1")
    plain = programs.compiled(path, "plain", "--shards", "1")
    exact = ["--set", "train.precision=f64"]
    one = programs.run(programs.compiled(path, "plain64", "--shards", "1", *exact), folder, 4)
    for count in (2, 3) if ALL else (2,):
        name = "gpt%d" % count
        shards = ["--shards", str(count)]
        many = programs.run(programs.compiled(path, name + "-64", *shards, *exact), folder, 4)
        error = max(np.abs(many.parameters[key] - value).max() for key, value in one.parameters.items())
        verdicts.expect(many.parameters.keys() == one.parameters.keys() and error < 1e-9, "%d shards in f64: off by %.3g" % (count, error))
        exe = programs.compiled(path, name, *shards)
        first = programs.run(exe, folder, 4)
        verdicts.expect(first.bytes != programs.run(plain, folder, 4).bytes, "%d shards and one worker have the same bits: nothing was tested" % count)
        need = int(re.search(r"smallest budget that compiles: (\d+)", programs.compiled(path, "no", *shards, "--memory-budget", "1KiB", allowed=(1,)).stdout).group(1))
        grids = [[], ["--microbatch", "1"], ["--microbatch", "4"], ["--memory-budget", str(need)], ["--stages", "2", "--microbatch", "2"],
                 ["--stages", "2", "--microbatch", "2", "--schedule", "interleaved"], ["--replicas", "2"]]
        if ALL:
            grids += [["--stages", "2", "--microbatch", "2", "--schedule", each] for each in ("gpipe", "zb-h1", "zbv")]
            grids += [["--stages", "2", "--replicas", "2"], ["--replicas", "4"]]
        for flags in grids:
            done = programs.compiled(path, name + "-other", *shards, *flags)
            found = programs.run(done, folder, 4, *(["--threads", "2"] if not flags else []))
            verdicts.expect(found.bytes == first.bytes and found.losses == first.losses, "%d shards, %s: other bits" % (count, " ".join(flags) or "again"))
        for transport in ("tcp", "openmpi", "mpich") if ALL else ("tcp",):
            out = programs.FOLDER / (name + "-" + transport)
            small = programs.compiled(path, name + "-small", *shards, "--memory-budget", str(need))
            ended = processes.start(small, count, transport, ["--data", folder, "--out", out, "--steps", 4, "--threads", 1])
            same = ended.all(0) and (out / "final.safetensors").read_bytes() == first.bytes
            verdicts.expect(same, "%d shards over %s: %s" % (count, transport, ended.text[-500:]))
            if transport == "tcp":
                peaks = [int(found) for found in re.findall(r"peak memory (\d+) bytes", ended.text)]
                verdicts.expect(peaks and max(peaks) <= need, "%d shards over TCP: peaks %s, budget %d" % (count, peaks, need))


def same_start(folder):
    """Initial values, evaluations and predictions are those of one worker; dropout draws what it draws there."""
    path = programs.source("start", (GPT % "0.1").replace("lr = 0.01", "lr = 0"))
    one, two = (programs.run(programs.compiled(path, "start" + count, "--shards", count), folder, 1) for count in ("1", "2"))
    verdicts.expect(one.bytes == two.bytes, "initial values are not those of one worker")
    numbers = [[value for row in result.rows for key, value in row.items() if key not in ("seconds", "examples_per_second") and isinstance(value, float)]
               for result in (one, two)]
    worst = max(abs(a - b) for a, b in zip(*numbers))
    verdicts.expect(len(numbers[0]) == len(numbers[1]) > 0 and worst < 1e-4, "losses with dropout are off by %.3g" % worst)
    said = []
    for exe, result in (("start1", one), ("start2", two)):
        programs.call([programs.FOLDER / exe, "predict", "--on", "train", "--data", folder, "--out", result.out, "--quiet"])
        said.append(np.load(next((result.out / "predict").rglob("*.npy"))))
    verdicts.expect(said[0].shape == said[1].shape and np.abs(said[0] - said[1]).max() < 1e-4, "predictions of two shards are others")


def other_programs(folder):
    """What stays whole: matrices of muon, of orthogonal initial values; halves of a layer's outputs, averages, bf16, labels that are left out."""
    text = GPT % "0"
    gated = text.replace("norm = layer_norm", "norm = layer_norm, gate = linear[2 * F], back = linear[D]").replace(
        "return norm(h) @ wte'", "return (norm(h + back(swiglu(gate(h))))) @ wte'")
    for name, changed, flags in [("muon", text.replace("adamw(lr = 0.01, decay = 0.1)", 'muon(lr = 0.01) on ("blocks.*.ff.*.weight")\n  optimizer sgd(lr = 0.1)'), []),
                                 ("gated", gated, []), ("averages", text.replace("shards 2", "shards 2\n  ema 0.9"), []),
                                 ("orthogonal", text.replace("~ normal(0.3)", "~ orthogonal(1)"), []),
                                 ("bf16", text.replace("shards 2", "shards 2\n  precision bf16"), []),
                                 ("smooth", text.replace("text[:, 1:])", "text[:, 1:], smooth = 0.1)"), [])]:
        path = programs.source(name, changed)
        exact = [] if name == "bf16" else ["--set", "train.precision=f64"]
        found = [programs.compiled(path, name + count, "--shards", count, *exact, *flags, allowed=(0, 1)) for count in ("1", "2")]
        if any(hasattr(each, "stdout") for each in found):
            verdicts.expect(False, "%s: %s" % (name, [getattr(each, "stdout", "")[-400:] for each in found]))
            continue
        one, two = (programs.run(each, folder, 3) for each in found)
        error = max(np.abs(two.parameters[key] - value).max() for key, value in one.parameters.items())
        if name == "bf16": # where a gradient is nearly 0, Adam goes the other way
            error = max(abs(a - b) for a, b in zip(one.losses, two.losses))
        verdicts.expect(one.parameters.keys() == two.parameters.keys() and error < (0.02 if name == "bf16" else 1e-9), "%s: off by %.3g" % (name, error))


def exchanges():
    """A block of attention and one of feed-forward layers, each once forward and once backward."""
    found = {}
    for blocks in (1, 2, 3):
        done = programs.call([programs.CINCH, "plan", programs.source("plan", GPT % "0"), "-D", "N=%d" % blocks])
        found[blocks] = [int(n) for n in re.search(r"(\d+) all-reduces a micro-batch, forward (\d+) and backward (\d+)", done.stdout).groups()]
    verdicts.expect([found[2][i] - found[1][i] for i in range(3)] == [4, 2, 2] == [found[3][i] - found[2][i] for i in range(3)],
                    "all-reduces of 1, 2 and 3 blocks: %s" % found)
    # The embedding, and the rows of the loss: the largest, the sum, the label's score. Backward: what the logits are computed from.
    verdicts.expect(found[1] == [9, 6, 3], "all-reduces of one block: %s" % found[1])


BLOCKS = """dim B = 8 batch, T = 32, D = 96, H = 24
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, D], y: f32[B, T, D])
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use first = linear[D], a = linear[H], b = linear[D], c = linear[H], d = linear[D]
  @shard(none) u = first(x)
  @shard(column) p = tanh(a(u))
  @shard(row) v = b(p)
  @shard(column) q = tanh(c(v))
  @shard(row) w = d(q)
  return w
}
train net on train seed 1 {
  loss = mean[B, T, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  shards 2
  steps 3
}
"""
WIDE = ["-D", "T=32", "-D", "D=96", "-D", "A=12", "-D", "F=192", "-D", "N=1"] # 12 KiB an example of what the shards add


def large_sums(folder):
    """Three shards and more add large values in pieces: each sends what it would around a ring, and the sums are those of one worker."""
    path = programs.source("blocks", BLOCKS)
    for count, sent in (("2", "96.0"), ("4", "144.0")): # KiB: 2 (T - 1) / T of 12 KiB an example, four times
        text = programs.call([programs.CINCH, "plan", path, "--shards", count, "--microbatch", "2"]).stdout
        wanted = "4 all-reduces a micro-batch, forward 2 and backward 2; a shard sends %s KiB at most" % sent
        verdicts.expect(wanted in text, "%s shards: expected `%s`: %s" % (count, wanted, text[:900]))
    path = programs.source("wide", GPT % "0")
    exact = ["--set", "train.precision=f64"]
    one = programs.run(programs.compiled(path, "wide-one", *WIDE, "--shards", "1", *exact), folder, 2)
    for count in (3, 4):
        shards = [*WIDE, "--shards", str(count)]
        many = programs.run(programs.compiled(path, "wide-many", *shards, *exact), folder, 2)
        error = max(np.abs(many.parameters[key] - value).max() for key, value in one.parameters.items())
        verdicts.expect(error < 1e-9, "%d shards add in pieces: off by %.3g" % (count, error))
    first = programs.run(programs.compiled(path, "wide-first", *shards), folder, 2)
    for flags in (["--microbatch", "1"], ["--stages", "2", "--microbatch", "2"]):
        other = programs.run(programs.compiled(path, "wide-other", *shards, *flags), folder, 2, "--threads", "1")
        verdicts.expect(other.bytes == first.bytes, "4 shards add in pieces, %s: other bits" % " ".join(flags))
    ended = processes.start(programs.FOLDER / "wide-first", 4, "tcp", ["--data", folder, "--out", programs.FOLDER / "wide-tcp", "--steps", 2, "--threads", 1])
    same = ended.all(0) and (programs.FOLDER / "wide-tcp/final.safetensors").read_bytes() == first.bytes
    verdicts.expect(same, "4 shards add in pieces over TCP: " + ended.text[-400:])
    bf16 = [programs.run(programs.compiled(path, "wide-bf16", *WIDE, "--shards", count, "--set", "train.precision=bf16"), folder, 2).losses for count in ("1", "4")]
    verdicts.expect(max(abs(a - b) for a, b in zip(*bf16)) < 0.02, "4 shards add in pieces in bf16: losses %s" % bf16)


MIXED = """dim B = 8 batch, D = 96
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  use a1 = linear[8 * D], b1 = linear[D], a2 = linear[8 * D], b2 = linear[D], a3 = linear[8 * D], b3 = linear[D]
  use c1 = linear[D], c2 = linear[D], c3 = linear[D], c4 = linear[D], c5 = linear[D], c6 = linear[D]
  %s@shard(none) h1 = tanh(c1(x))
  %s@shard(none) h2 = tanh(c2(h1))
  %s@shard(none) h3 = tanh(c3(h2))
  %s@shard(none) h4 = tanh(c4(h3))
  %s@shard(none) h5 = tanh(c5(h4))
  %s@shard(none) h6 = tanh(c6(h5))
  %su1 = b1(tanh(a1(h6)))
  %su2 = b2(tanh(a2(u1)))
  %su3 = b3(tanh(a3(u2)))
  return u3
}
train net on train seed 1 {
  loss = mean[B, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  shards %d
  steps 3
}
"""


def cuts():
    """Stages are cut where one shard's seconds say: no cut that a program asks for is faster. The shards of a stage hold as much as one another."""
    def step(places, *flags):
        path = programs.source("mixed", MIXED % (*("@stage(0) " if i in places else "" for i in range(9)), 4))
        text = programs.call([programs.CINCH, "plan", path, "--stages", "2", "--microbatch", "2", *flags]).stdout
        number, unit = re.search(r"step +([\d.]+) (us|ms|s) predicted", text).groups()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]
    chosen, asked = step(()), [step((i,)) for i in range(1, 9)]
    verdicts.expect(chosen <= 1.02 * min(asked) and max(asked) > 1.1 * min(asked), "a step of %g s; cut by the program: %s" % (chosen, asked))
    path = programs.source("even", GPT % "0")
    for flags in (["--stages", "2"], ["--stages", "3"], ["--stages", "2", "--schedule", "interleaved"]):
        text = programs.call([programs.CINCH, "plan", path, "--microbatch", "2", *flags]).stdout
        held = [float(n) for n in re.findall(r"([\d.]+) KiB parameters and state", text)]
        verdicts.expect(len(held) == 2 * int(flags[1]) and held[::2] == held[1::2], "%s: the shards hold %s KiB" % (" ".join(flags), held))


def resumed(folder):
    path = programs.source("resumed", GPT % "0")
    half = programs.run(programs.compiled(path, "half"), folder, 3)
    for count in ("1", "3"):
        out = programs.FOLDER / ("resumed" + count)
        __import__("shutil").copytree(half.out, out)
        again = programs.call([programs.compiled(path, "other" + count, "--shards", count), "--data", folder, "--out", out, "--resume"])
        verdicts.expect("shards: 2 in the checkpoint, %s here; sums are added in another order" % count in again.stdout, "no note: " + again.stdout[-500:])
    whole = programs.run(programs.compiled(path, "entire"), folder, 6)
    go_on = programs.call([programs.FOLDER / "half", "--data", folder, "--out", half.out, "--resume"])
    verdicts.expect((half.out / "final.safetensors").read_bytes() == whole.bytes, "resumed with as many shards: " + go_on.stdout[-300:])


def refusals():
    heads = (GPT % "0").replace("A = 6", "A = 3")
    for text, flags, what in [
        (heads, [], "attention of 3 heads cannot be divided among 2 shards; expected shards 1 or 3"),
        (MLP % ("", 5), [], "nothing of the model can be divided among 5 shards: they divide no size of a product with a parameter; expected shards 4 or 6"),
        (MLP % ("", 0), [], "from 1 to 2^53"),
        (MLP % ("", 100), [], "at most 64 shards"),
        (MLP % ("@shard(sideways) ", 2), [], "`@shard` takes `column`, `row` or `none`"),
        (MLP % ("@shard(row) ", 4), [], "`@shard(row)` cannot be: 4 does not divide the size of the product up"),
        (MLP % ("", 1), ["--shards", "2"], "--shards is for programs that ask for shards"),
        (MLP % ("", 2), ["--emit", "lib"], "makes a library of one worker"),
    ]:
        done = programs.compiled(programs.source("wrong", text), "wrong", *flags, allowed=(0, 1, 2, 70))
        verdicts.expect(hasattr(done, "stdout") and done.returncode in (1, 2) and what in done.stdout, "expected `%s`: %s" % (
            what, getattr(done, "stdout", "compiled")[-300:]))


def main():
    folder = text_data()
    against_numpy()
    exchanges()
    same_start(folder)
    other_programs(folder)
    same_bits(folder)
    large_sums(folder)
    cuts()
    resumed(folder)
    refusals()


if __name__ == "__main__":
    verdicts.run(main)
