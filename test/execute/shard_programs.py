#!/usr/bin/python3
"""Shards of programs of all kinds. A convolutional net (batch norm with its statistics, groups, depthwise, transposed, pools, a skip) has its
channels shared: gradients are those of one worker, what a worker holds goes down, files are whole, and other plans and ways of talking leave
the same bits. The programs of the tree and the cases of gradcheck.py, as shards, train in f64 to what one worker does, or are refused for
sizes that cannot be divided.

usage: shard_programs.py [--all]      --all: every program and every case with 2, 3, 4 and 5 shards
"""
import re
import subprocess
import sys

import numpy as np

import gradcheck
import processes
import programs
import tree_programs

ALL = "--all" in sys.argv
verdicts = programs.Verdicts()
NET = """dim B = 8 batch, C = 12, K = 5
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, 2, 8, 8], y: i32[B] below K)
model net(x: f32[B, 2, 8, 8]) -> f32[B, K] {
  use first = conv_bn[C, 3](group = 4), deep = conv[C, 3, g = C], pairs = conv[C, 3, g = 6], point = conv[2 * C, 1]
  use norm = group_norm[6], back = conv[C, 3], up = conv_transpose[C, 2, s = 2], last = conv[C, 3, s = 2], fc = linear[K]
  a = relu(first(x))
  %sp = point(pairs(deep(a)))
  b = a + back(relu(norm(p)))
  c = max_pool2d(b, 2)
  d = up(c) + b
  e = avg_pool2d(relu(last(d)), 2)
  return fc(reshape[B, C * 4](e))
}
train net on train seed 3 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.1, momentum = 0.9)
  clip norm(1)
  ema 0.9
  shards 2
  steps 4
  every 2 eval(train)
}
"""
# What a program is refused for, if it cannot be divided among so many.
CANNOT = ("cannot be divided among", "nothing of the model can be divided among")


def pictures():
    folder = programs.FOLDER / "pictures"
    folder.mkdir()
    draw = np.random.default_rng(3)
    np.save(folder / "x.npy", draw.normal(size=(24, 2, 8, 8)).astype(np.float32))
    np.save(folder / "y.npy", draw.integers(0, 5, 24).astype(np.int32))
    return folder


def smallest(path, name, *flags):
    done = programs.compiled(path, name, *flags, "--memory-budget", "1KiB", allowed=(1,))
    return int(re.search(r"smallest budget that compiles: (\d+)", done.stdout).group(1))


def lines(path, *flags):
    return programs.call([programs.CINCH, "plan", path, *flags]).stdout


def error(found, expected):
    """The largest difference of a parameter; infinite if they are not the same tensors."""
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in expected.items()}:
        return np.inf
    return max(np.abs(found[key] - value).max(initial=0) for key, value in expected.items())


def channels(folder):
    exact = ["--set", "train.precision=f64"]
    path = programs.source("net", NET % "")
    one = programs.run(programs.compiled(path, "net-one", "--shards", "1", *exact), folder, 4)
    for count in (2, 3, 6):
        many = programs.run(programs.compiled(path, "net-%d" % count, "--shards", str(count), *exact), folder, 4)
        worst = error(many.parameters, one.parameters)
        verdicts.expect(worst < 1e-10, "the net on %d shards: off by %.3g" % (count, worst))
        worst = max(abs(a - b) for a, b in zip(many.losses, one.losses))
        verdicts.expect(worst < 1e-10 and len(many.losses) == len(one.losses) > 0, "its losses on %d shards: off by %.3g" % (count, worst))
    for hint in ("column", "row", "none"):
        hinted = programs.source("net-" + hint, NET % ("@shard(%s) " % hint))
        many = programs.run(programs.compiled(hinted, "net-" + hint, *exact), folder, 4)
        worst = error(many.parameters, one.parameters)
        verdicts.expect(worst < 1e-10, "@shard(%s) before a convolution: off by %.3g" % (hint, worst))


def held(folder):
    """Parameters, state and slots of each worker, and the smallest budgets, beside one worker's."""
    path = programs.source("held", NET % "")
    sizes = ["-D", "C=48"]
    kib = lambda text: [float(n) for n in re.findall(r"([\d.]+) KiB parameters and state", text)]
    one, two, three = (kib(lines(path, *sizes, "--shards", count)) for count in ("1", "2", "3"))
    verdicts.expect(len(one) == 1 and len(two) == 2 and len(three) == 3, "plans of shards: %s" % [one, two, three])
    verdicts.expect(max(two) < 0.55 * one[0] and max(three) < 0.4 * one[0], "a worker holds %s KiB of %s" % ([two, three], one))
    whole = re.findall(r"every shard does the whole of: (.*)", lines(path, *sizes))
    verdicts.expect(not whole, "every shard does the whole of %s" % whole)
    budgets = [smallest(path, "budget", "-D", "C=192", "--shards", count) for count in ("1", "2")]
    verdicts.expect(budgets[1] < 0.7 * budgets[0], "smallest budgets of one worker and of two shards: %s" % budgets)


EXCEPT = """dim B = 4 batch, C = 16
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, C], y: i32[B] below C except %(label)d)
model net(x: f32[B, C]) -> f32[B, C] { use a = linear[C]; return a(x) }
train net on train seed 1 {
  loss = mean[B where y != %(label)d] cross_entropy(net(x), y, smooth = %(smooth)s)
  optimizer sgd(lr = 0.1)
  shards 2
  steps 3
}
"""


def excepted():
    """Losses over classes that are divided, of labels some of which mean none."""
    draw = np.random.default_rng(5)
    for label, smooth in ((-1, 0), (-3, 0.1), (255, 0)):
        folder = programs.FOLDER / ("except%d" % label)
        folder.mkdir()
        np.save(folder / "x.npy", draw.normal(size=(12, 16)).astype(np.float32))
        np.save(folder / "y.npy", np.where(draw.random(12) < 0.4, label, draw.integers(0, 16, 12)).astype(np.int32))
        path = programs.source("except%d" % label, EXCEPT % {"label": label, "smooth": smooth})
        one, two = (programs.run(programs.compiled(path, "except%d-%s" % (label, count), "--shards", count, "--set", "train.precision=f64"), folder, 3)
                    for count in ("1", "2"))
        worst = max(error(two.parameters, one.parameters), max(abs(a - b) for a, b in zip(two.losses, one.losses)))
        verdicts.expect(worst < 1e-12 and "1 losses over a split axis" in lines(path), "labels except %d: off by %.3g" % (label, worst))


NAMED = """dim B = 12 batch, T = 7, V = 13, H = 5
data train = npy("t.npy") -> (t: i32[B, T + 1] below V)
model net(t: i32[B, T] below V) -> f32[B, T, V] {
  %s
}
train net on train seed 5 {
  loss = mean[B, T] cross_entropy(net(t[:, :T]), t[:, 1:])
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(0.5)
  steps 6
  every 2 checkpoint("run", keep = 3)
  %s
}
"""
RECURRENT = """use e = embedding[V, H], one = lstm[H], two = gru[H], out = linear[V], z = layer_norm
  h = e(t)
  return out(dropout(z(two(one(h)) + h), 0.1))"""
TIED = """param w: f32[V, H] ~ normal(0.3)
  use a = linear[3 * H], b = linear[H], c = linear[H], n = layer_norm, m = layer_norm
  h = w[t]
  k = tanh(b(a(h)))
  q = dropout(relu(n(softmax(k @ w') @ w + h)), 0.3)
  return m(tanh(c(q)) + k) @ w'"""


def named_budgets():
    """Every worker has code and a description of its own: the budget that a refusal names compiles on grids of shards, replicas and stages."""
    for number, (model, lines, flags) in enumerate([
        (RECURRENT, "shards 3\n  precision bf16\n  ema 0.9", ["--stages", "3", "--microbatch", "2", "--remat", "none"]),
        (RECURRENT, "shards 2", ["--replicas", "6", "--microbatch", "2"]),
        (TIED, "shards 3", ["--replicas", "3", "--microbatch", "4"]),
        (TIED, "shards 3\n  precision bf16\n  ema 0.9", ["--replicas", "4", "--microbatch", "1", "--remat", "all"]),
        (TIED, "shards 4\n  precision bf16", ["--stages", "4", "--schedule", "zbv", "--microbatch", "1"]),
    ]):
        path = programs.source("named%d" % number, NAMED % (model.replace("3 * H", "12" if "shards 4" in lines else "3 * H"), lines))
        need = smallest(path, "named", *flags, "--max-threads", "2")
        done = programs.compiled(path, "named", *flags, "--max-threads", "2", "--memory-budget", str(need), allowed=(0, 1))
        verdicts.expect(not hasattr(done, "stdout"), "shards, %s: the budget that a refusal names is refused: %s" % (flags, getattr(done, "stdout", "")[:300]))


def same_bits(folder):
    path = programs.source("bits", NET % "")
    for count in (2, 3) if ALL else (2,):
        shards = ["--shards", str(count)]
        first = programs.run(programs.compiled(path, "bits-first", *shards), folder, 4)
        need = smallest(path, "bits-no", *shards)
        for flags in ([], ["--microbatch", "4"], ["--memory-budget", str(need)], ["--stages", "2", "--microbatch", "4"],
                      ["--stages", "3", "--microbatch", "4", "--schedule", "zb-h1"], ["--replicas", "2"]):
            exe = programs.compiled(path, "bits-other", *shards, *flags)
            found = programs.run(exe, folder, 4, "--threads", "1")
            verdicts.expect(found.bytes == first.bytes and found.losses == first.losses, "the net on %d shards, %s: other bits" % (count, " ".join(flags)))
        small = programs.compiled(path, "bits-small", *shards, "--memory-budget", str(need))
        ended = processes.start(small, count, "tcp", ["--data", folder, "--out", programs.FOLDER / "bits-tcp", "--steps", 4, "--threads", 1])
        verdicts.expect(ended.all(0) and (programs.FOLDER / "bits-tcp/final.safetensors").read_bytes() == first.bytes, "over TCP: " + ended.text[-500:])
        peaks = [int(found) for found in re.findall(r"peak memory (\d+) bytes", ended.text)]
        verdicts.expect(len(peaks) == count and max(peaks) <= need, "over TCP: peaks %s, budget %d" % (peaks, need))
        half = programs.run(programs.compiled(path, "bits-half", *shards), folder, 2)
        on = programs.call([programs.FOLDER / "bits-half", "--data", folder, "--out", half.out, "--resume"])
        verdicts.expect((half.out / "final.safetensors").read_bytes() == first.bytes, "resumed: " + on.stdout[-300:])


def shared(source, count):
    return re.sub(r"(?m)^(train\b[^{]*\{)", r"\1\n  shards %d\n" % count, source, count=1)


def against_one(name, label, text, folder, counts, flags=(), steps=3):
    """Which numbers of shards train it to what one worker does; where one does not fit, those that the refusal names."""
    exact = [*flags, "--set", "train.precision=f64"]
    one, done, counts, refused = None, [], list(counts), set()
    for count in counts:
        path = programs.source("%s-%d" % (name, count), shared(text, count))
        exe = programs.compiled(path, "%s-exe" % name, *exact, allowed=(0, 1))
        if hasattr(exe, "stdout"):
            named = re.search(r"expected shards (\d+)(?: or (\d+))?", exe.stdout)
            verdicts.expect(any(words in exe.stdout for words in CANNOT) and named and count not in refused,
                            "%s, %d shards: %s" % (label, count, exe.stdout[-600:]))
            fit = {int(number) for number in named.groups("1")} if named else set()
            refused |= fit # must not be refused in their turn
            counts += sorted(number for number in fit if 1 < number <= 8 and number not in counts)
            continue
        many = programs.run(exe, folder, steps, "--threads", "1")
        one = one or programs.run(programs.compiled(path, "%s-exe" % name, *exact, "--shards", "1"), folder, steps, "--threads", "1")
        worst = error(many.parameters, one.parameters)
        if verdicts.expect(worst < 1e-8, "%s, %d shards: off by %.3g" % (label, count, worst)):
            done.append(count)
    return done


def guarded(function):
    def one(entry):
        try:
            return function(entry)
        except (programs.Failure, subprocess.TimeoutExpired) as failure:
            verdicts.expect(False, "%s: %s" % (entry, failure))
            return []
    return one


def tree():
    trained = []

    @guarded
    def one(entry):
        number, program = entry
        source, folder = tree_programs.prepared(program, "tree%d" % number)
        counts = (2, 3, 4, 5) if ALL else (2 + number % 3,)
        trained.extend(against_one("tree%d" % number, program.name, source.read_text(), folder, counts, program.flags))

    listed = list(enumerate(tree_programs.all_programs()))
    programs.in_parallel(one, listed if ALL else listed[::2])
    verdicts.expect(len(trained) >= (40 if ALL else 8), "only %d programs of the tree were trained by shards" % len(trained))
    print("programs of the tree: %d trained by shards" % len(trained))


def records(side):
    def write(folder, draw):
        for name in ["data_batch_%d.bin" % n for n in range(1, 6)] + ["test_batch.bin"]:
            images = draw.randint(0, 256, (8, 1 + 3 * side * side)).astype(np.uint8)
            images[:, 0] %= 10
            (folder / name).write_bytes(images.tobytes())

    return write


def segments(folder, draw):
    for name in ("train.npz", "valid.npz"):
        np.savez(folder / name, x=draw.randint(0, 256, (8, 3, 16, 16)).astype(np.uint8), y=draw.randint(0, 4, (8, 16, 16)).astype(np.int32))


# Nets of the tree that tree_programs.py has not: channels with states, recurrent ones, a reversible one; and how many shards each is tried with.
NETS = [
    ("examples/resnet/resnet.cinch", records(16), "B=8 G=4 F=4 S=16", (2, 4)),
    ("examples/mobilenet/mobilenet.cinch", records(16), "B=8 G=4 S=16", (2,)),
    ("examples/revnet/revnet.cinch", records(16), "B=8 G=4 M=4 N=1 S=16", (2,)),
    ("examples/unet/unet.cinch", segments, "B=4 S=16 F=4", (2, 4)),
    ("examples/vit/vit.cinch", tree_programs.pictures(8, tree_programs.MNIST), "B=4 S=8 D=24 A=6 N=1", (2, 3)),
    ("examples/gru/gru.cinch", tree_programs.pictures(8, tree_programs.MNIST), "B=4 T=8 I=8 H=10", (2, 5)),
    ("examples/lstm/lstm.cinch", tree_programs.text, "B=4 T=6 V=64 H=12", (3,)),
    ("test/execute/state.cinch", tree_programs.pictures(8, [("images", "labels"), ("valid-images", "valid-labels")]), "", (2, 5)),
]


def nets():
    @guarded
    def one(entry):
        path, write, sizes, counts = entry
        name = path.split("/")[1] if path.startswith("examples") else "state"
        folder = programs.FOLDER / (name + "-data")
        folder.mkdir()
        write(folder, np.random.RandomState(1))
        flags = [word for size in sizes.split() for word in ("-D", size)]
        done = against_one(name, path, (tree_programs.ROOT / path).read_text(), folder, counts if ALL else counts[:1], flags)
        verdicts.expect(set(done) >= set(counts if ALL else counts[:1]), "%s was trained by %s shards" % (path, done))

    programs.in_parallel(one, NETS)


def cases():
    trained = []

    @guarded
    def one(entry):
        number, case = entry
        folder = programs.FOLDER / ("case%d" % number)
        gradcheck.data_of(case, folder, np.random.default_rng(number + 1))
        trained.extend(against_one("case%d" % number, case.name, gradcheck.text_of(case), folder, (2, 3) if ALL else (2 + number % 2,), steps=1))

    found = gradcheck.contractions() + gradcheck.norms_and_attention() + gradcheck.windows() # others have no products
    listed = list(enumerate(gradcheck.all_cases() if ALL else found[1::3]))
    programs.in_parallel(one, listed)
    verdicts.expect(len(trained) >= (50 if ALL else 6), "only %d of %d cases were trained by shards" % (len(trained), len(listed)))
    print("cases: %d of %d trained by shards" % (len(trained), len(listed)))


PICKED = """dim B = 4 batch, D = 12, N = 10
data train = npy("x.npy", "i.npy", "y.npy", shuffle = false) -> (x: f32[B, D], i: i32[B, D] below N, y: f32[B, D])
model net(x: f32[B, D], i: i32[B, D] below N) -> f32[B, D] {
  use up = linear[D], down = linear[D]
  param table: f32[N, D] ~ normal(0.5)
  p[b, d] = table[i[b, d], d]
  return down(tanh(up(x)) * p)
}
train net on train seed 1 {
  loss = mean[B, D] squared_error(net(x, i), y)
  optimizer sgd(lr = 0.1)
  steps 3
}
"""
GROUPS = """dim B = 4 batch, G = 3, T = 5, D = 12
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, G, T, D], y: f32[B, G, T, D])
model net(x: f32[B, G, T, D]) -> f32[B, G, T, D] {
  use a = multi_head_attention[6](rate = 0.3)
  return a(x)
}
train net on train seed 1 {
  loss = mean[B, G, T, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 3
}
"""


def places_and_draws():
    """A table whose columns are split, read at places that each column has; attention of several sequences an example, whose draws are one worker's."""
    draw = np.random.default_rng(9)
    picked = programs.arrays("picked", x=draw.normal(size=(8, 12)), y=draw.normal(size=(8, 12)))
    np.save(picked / "i.npy", draw.integers(0, 10, (8, 12)).astype(np.int32))
    groups = programs.arrays("groups", **{name: draw.normal(size=(8, 3, 5, 12)) for name in "xy"})
    for name, text, folder, counts in (("picked", PICKED, picked, (2, 3)), ("groups", GROUPS, groups, (2, 3))):
        done = against_one(name, name, text, folder, counts)
        verdicts.expect(set(done) >= set(counts), "%s was trained by %s shards" % (name, done))
    whole = re.findall(r"every shard does the whole of: (.*)", lines(programs.source("groups-plan", shared(GROUPS, 2))))
    verdicts.expect(not whole, "every shard does the whole of %s" % whole)


def main():
    folder = pictures()
    places_and_draws()
    channels(folder)
    held(folder)
    excepted()
    named_budgets()
    same_bits(folder)
    nets()
    tree()
    cases()


if __name__ == "__main__":
    verdicts.run(main)
