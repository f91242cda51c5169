#!/usr/bin/python3
"""Replicas that sum their own examples from zero. `combine reduce(D)`: gradients are those of NumPy, exactly where all sums are of whole numbers;
two runs, threads and TCP, stages and micro-batches leave the same bits, another number of replicas goes on with a note. And programs whose
grain is what a replica has: the bits of one worker, with micro-batches smaller than the grain, too.
"""

import re
import subprocess

import numpy as np

import processes
import programs
import replicas
import tree_programs

verdicts = programs.Verdicts()
B, I, H = 12, 5, 3
PROGRAM = """dim B = 12 batch, I = 5, H = 3
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, I], y: f32[B, H])
model net(x: f32[B, I]) -> f32[B, H] {
  param w: f32[I, H] ~ normal(1)
  param v: f32[H, H] ~ normal(1)
  return (x @ w) @ v
}
train net on train seed 4 {
  loss = sum[B, H] (net(x) - y) ^ 2
  optimizer sgd(lr = 1)
  %s
  steps 4
}
"""


def grids():
    """Flags, and how many workers there are."""
    return [([], 1), (["--microbatch", "1"], 1), (["--stages", "2"], 2), (["--stages", "2", "--schedule", "zb-h1", "--microbatch", "2"], 2)]


def gradients(p, x, y):
    h = x @ p["w"]
    d = 2 * (h @ p["v"] - y)
    return {"w": x.T @ (d @ p["v"].T), "v": h.T @ d}


def against_numpy():
    rng = np.random.default_rng(5)
    for kind, draw in (("whole", lambda *shape: rng.integers(-4, 5, shape).astype(np.float64)), ("real", lambda *shape: rng.normal(size=shape))):
        x, y = draw(B, I).astype(np.float32), draw(B, H).astype(np.float32)
        folder = programs.arrays(kind, x=x, y=y)
        start = {"w": draw(I, H).astype(np.float32), "v": draw(H, H).astype(np.float32)}
        programs.tensorfile.write(folder / "start.safetensors", start)
        expected = gradients({k: v.astype(np.float64) for k, v in start.items()}, x.astype(np.float64), y.astype(np.float64))
        for count in (2, 3, 12):
            path = programs.source("%s%d" % (kind, count), PROGRAM % ("combine reduce(%d)" % count))
            for i, (flags, _) in enumerate(grids()):
                if "--microbatch" in flags and B // count % int(flags[-1]):
                    continue
                exe = programs.compiled(path, "%s%d-%d" % (kind, count, i), *flags)
                result = programs.run(exe, folder, 1, init=folder / "start.safetensors")
                for name, gradient in expected.items():
                    found = start[name].astype(np.float64) - result.parameters[name]
                    error = np.abs(found - gradient).max() / np.abs(gradient).max()
                    verdicts.expect(error == 0 if kind == "whole" else error < 1e-6, "%s, reduce(%d) %s: %s is off by %.3g" % (
                        kind, count, " ".join(flags), name, error))


def same_bits():
    rng = np.random.default_rng(6)
    folder = programs.arrays("bits", x=rng.normal(size=(31, I)), y=rng.normal(size=(31, H)))
    path = programs.source("reduced", PROGRAM.replace("sgd(lr = 1)", "adam(lr = 0.1)\n  clip norm(0.5)") % "combine reduce(3)")
    first = None
    for i, (flags, workers) in enumerate(grids()):
        exe = programs.compiled(path, "reduced%d" % i, *flags)
        found = [programs.run(exe, folder, 4).bytes for _ in range(2)]
        first = first or found[0]
        verdicts.expect(found == [first, first], "reduce(3) %s: other bits" % flags)
        if i in (0, 2):
            out = programs.FOLDER / ("tcp%d" % i)
            ended = processes.start(exe, 3 * workers, "tcp", ["--data", folder, "--out", out, "--steps", 4, "--threads", 1])
            verdicts.expect(ended.all(0) and (out / "final.safetensors").read_bytes() == first, "reduce(3) %s over TCP: %s" % (flags, ended.text[-500:]))
    plain = programs.compiled(programs.source("exact", PROGRAM.replace("sgd(lr = 1)", "adam(lr = 0.1)\n  clip norm(0.5)") % "combine exact"), "exact")
    verdicts.expect(programs.run(plain, folder, 4).bytes != first, "reduce(3) and one worker have the same bits: nothing was tested")
    half = programs.run(programs.FOLDER / "reduced0", folder, 2)
    other = programs.compiled(path, "reduced-other", "--replicas", "2")
    again = programs.call([other, "--data", folder, "--out", half.out, "--resume"])
    verdicts.expect("replicas: 3 in the checkpoint, 2 here; sums are added in another order" in again.stdout, "no note: " + again.stdout[-500:])
    refused = programs.call([plain, "--data", folder, "--out", half.out, "--resume"], allowed=(3,))
    verdicts.expect("combine: reduce in the checkpoint" in refused.stdout, "resumed as another program: " + refused.stdout[-500:])


def masked_shares():
    """Divisors that the data decides, of all replicas together; some have no chosen element."""
    draw = np.random.RandomState(2)
    folder = programs.FOLDER / "masked"
    folder.mkdir()
    replicas.masked_data(folder, draw)
    for loss in ("chosen", "gated", "three sums", "penalty"):
        text = replicas.masked_program(loss).text
        one = programs.run(programs.compiled(programs.source("m1", text), "m1", "--set", "train.precision=f64"), folder, 4)
        for count in (2, 6, 12):
            path = programs.source("m%d" % count, text.replace("steps 4", "combine reduce(%d)\n  steps 4" % count))
            found = programs.run(programs.compiled(path, "m%d" % count, "--set", "train.precision=f64"), folder, 4)
            error = max(np.abs(found.parameters[name] - value).max() for name, value in one.parameters.items())
            verdicts.expect(error < 1e-9, "%s, reduce(%d): off by %.3g" % (loss, count, error))


def one_grain():
    """A replica's examples are one grain."""
    draw = np.random.RandomState(3)
    folder = programs.FOLDER / "grain"
    folder.mkdir()
    replicas.masked_data(folder, draw)
    for number, loss in enumerate(("chosen", "three sums")):
        path = programs.source("grained%d" % number, replicas.masked_program(loss).text)
        for count in (2, 3, 12):
            grain = ["--set", "train.grain=%d" % (B // count)]
            one = programs.run(programs.compiled(path, "grained-one", *grain), folder, 4)
            for flags in (["--microbatch", "1"], ["--stages", "2", "--microbatch", "1"], []):
                exe = programs.compiled(path, "grained", *grain, "--replicas", str(count), *flags)
                result = programs.run(exe, folder, 4)
                verdicts.expect(result.bytes == one.bytes and result.losses == one.losses, "%s, grain %d, %d replicas %s: other bits" % (
                    loss, B // count, count, " ".join(flags)))


def bad_numbers():
    """A number that overflows on another replica than the first: the same op is named as by one worker, and nothing is updated."""
    rng = np.random.default_rng(9)
    y = rng.normal(size=(31, H))
    y[19, 1] = 1e30
    folder = programs.arrays("overflow", x=rng.normal(size=(31, I)), y=y)
    path = programs.source("overflow", PROGRAM % "combine exact")
    flags = ["--set", "train.grain=6"]
    one = processes.start(programs.compiled(path, "overflow-one", *flags), 1, "threads", ["--data", folder, "--out", programs.FOLDER / "over1", "--quiet"])
    exe = programs.compiled(path, "overflow-two", *flags, "--replicas", "2", "--microbatch", "2")
    for transport in ("threads", "tcp"):
        many = processes.start(exe, 2, transport, ["--data", folder, "--out", programs.FOLDER / ("over-" + transport), "--quiet"])
        verdicts.expect(many.all(4) and processes.complaints(many.text)[0] == processes.complaints(one.text)[0] and "the parameters are intact" in many.text,
                        "an overflow over %s: %s %s, one worker: %s" % (transport, many.codes, many.text[-400:], one.text[-400:]))


def every_kind():
    """Programs of every kind (tied weights, layers used twice, dropout, states, loops along an axis, single examples): `reduce` leaves the same bits
    under every plan, and in f64 the numbers of one worker but for roundings."""

    def check(entry):
        number, program = entry
        path, folder = tree_programs.prepared(program, "kind%d" % number)
        count = replicas.counts(program)[-1 if number % 2 else 0]
        text = re.sub(r"(?m)^(train \w+ on \w+[^{]*\{)", r"\1\n  combine reduce(%d)" % count, path.read_text())
        reduced = programs.source("kind%d" % number, text)
        share = replicas.sizes(program, count)
        flags = [[], ["--stages", "2", "--microbatch", str(share[0])], ["--microbatch", str(share[-1]), "--stages", "2", "--schedule", "zb-h1"]]
        found = []
        for more in flags:
            exe = programs.compiled(reduced, "kind%d" % number + "-%d" % len(more), *program.flags, *more, allowed=(0, 1))
            if not hasattr(exe, "stdout"): # else too few kernels for two stages
                found.append(programs.run(exe, folder, 3).bytes)
        verdicts.expect(len(set(found)) == 1, "%s, reduce(%d): other bits under another plan" % (program.name, count))
        precise = [*program.flags, "--set", "train.precision=f64"]
        one, many = (programs.run(programs.compiled(source, "kind%d-%s" % (number, source.stem), *precise), folder, 3).parameters for source in (path, reduced))
        error = max(np.abs(many[name] - value).max() / max(1e-3, np.abs(value).max()) for name, value in one.items())
        verdicts.expect(error < 1e-6, "%s, reduce(%d) in f64: off by %.3g" % (program.name, count, error))

    programs.in_parallel(check, enumerate(replicas.all_programs()))


def by_the_library():
    """`--all-reduce mpi`: sums of whole numbers are NumPy's whatever their order; of others two runs on one layout are compared. What cannot be is
    refused; a bad number stops all before the update."""
    rng = np.random.default_rng(11)
    x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((B, I), (B, H)))
    whole = programs.arrays("library-whole", x=x, y=y)
    start = {"w": rng.integers(-4, 5, (I, H)).astype(np.float32), "v": rng.integers(-4, 5, (H, H)).astype(np.float32)}
    programs.tensorfile.write(whole / "start.safetensors", start)
    expected = gradients({k: v.astype(np.float64) for k, v in start.items()}, x.astype(np.float64), y.astype(np.float64))
    real = programs.arrays("library-real", x=rng.normal(size=(31, I)), y=rng.normal(size=(31, H)))
    path = programs.source("library", PROGRAM % "combine reduce(2)")
    adam = programs.source("library-adam", PROGRAM.replace("sgd(lr = 1)", "adam(lr = 0.1)\n  clip norm(0.5)") % "combine reduce(2)")
    wanted = ["--all-reduce", "mpi", "--threads", 1]
    for name in (name for name in processes.MPIRUN if processes.shutil.which(processes.MPIRUN[name][0])):
        for number, (flags, count) in enumerate([([], 2), (["--replicas", "3", "--microbatch", "2"], 3), (["--stages", "2", "--microbatch", "3"], 4),
                                                 (["--set", "train.precision=f64"], 2)]):
            label = "%s, %s, by the library" % (name, " ".join(flags))
            out = programs.FOLDER / ("library-%s-%d" % (name, number))
            exe = programs.compiled(path, "library%d" % number, *flags, "--memory-budget", "16MiB")
            ended = processes.start(exe, count, name, ["--data", whole, "--out", out, "--steps", 1, "--init", whole / "start.safetensors", *wanted])
            if not verdicts.expect(ended.all(0) and "added by the MPI library" in ended.text, "%s: %s %s" % (label, ended.codes, ended.text[-500:])):
                continue
            processes.check_budget(ended, label)
            result = programs.Result(out, ended.text)
            for parameter, gradient in expected.items():
                verdicts.expect((start[parameter] - result.parameters[parameter] == gradient).all(), "%s: the gradient of %s" % (label, parameter))
            exe, found = programs.compiled(adam, "library-adam%d" % number, *flags), []
            for again in range(2):
                out = programs.FOLDER / ("library-adam-%s-%d-%d" % (name, number, again))
                ended = processes.start(exe, count, name, ["--data", real, "--out", out, "--steps", 4, *wanted])
                verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-500:]))
                found.append(programs.Result(out, ended.text))
            ring = programs.run(exe, real, 4)
            verdicts.expect(found[0].bytes == found[1].bytes, label + ": two runs differ")
            error = max(np.abs(found[0].parameters[key] - value).max() for key, value in ring.parameters.items())
            verdicts.expect(error < 1e-4, "%s: off by %.3g of the ring's" % (label, error))
        y = rng.normal(size=(31, H))
        y[19, 1] = 1e30
        folder = programs.arrays("library-overflow-" + name, x=rng.normal(size=(31, I)), y=y)
        exe = programs.compiled(adam, "library-adam")
        ended = processes.start(exe, 2, name, ["--data", folder, "--out", programs.FOLDER / ("library-over-" + name), "--quiet", *wanted])
        verdicts.expect(ended.all(4) and "the parameters are intact" in ended.text, "an overflow over %s: %s %s" % (name, ended.codes, ended.text[-400:]))
    exact = programs.compiled(programs.source("library-exact", PROGRAM % "combine exact"), "library-exact", "--replicas", "2")
    for exe, transport, words, what in [(programs.compiled(path, "library-two"), "threads", ["mpi"], "do not meet by MPI"),
                                        (programs.compiled(path, "library-two"), "tcp", ["mpi"], "do not meet by MPI"),
                                        (exact, "threads", ["mpi"], "`combine reduce` in `train` asks for that"),
                                        (exact, "threads", ["rign"], "did you mean `ring`")]:
        ended = processes.start(exe, 2, transport, ["--data", real, "--out", programs.FOLDER / "library-refused", "--all-reduce", *words])
        verdicts.expect(ended.all(2) and what in ended.text, "--all-reduce %s over %s: %s %s" % (words, transport, ended.codes, ended.text[-300:]))


def under_way():
    """With a library that begins each sum late, the backward pass goes on meanwhile: several are under way. None is read before it is there."""
    rng = np.random.default_rng(12)
    x, y = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((B, I), (B, H)))
    folder = programs.arrays("late", x=x, y=y)
    layers = 6
    text = PROGRAM.replace("  param v: f32[H, H] ~ normal(1)\n", "".join("  param v%d: f32[H, H] ~ normal(1)\n" % i for i in range(layers)))
    text = text.replace("(x @ w) @ v", "x @ w" + "".join(" @ v%d" % i for i in range(layers))).replace("sgd(lr = 1)", "sgd(lr = 1)\n  clip norm(1e30)")
    start = {"w": rng.integers(-1, 2, (I, H)).astype(np.float32)}
    start.update({"v%d" % i: np.eye(H, dtype=np.float32)[rng.permutation(H)] for i in range(layers)})
    programs.tensorfile.write(folder / "start.safetensors", start)
    path = programs.source("late", text % "combine reduce(2)")
    listed = subprocess.run(["/sbin/ldconfig", "-p"], text=True, stdout=subprocess.PIPE, check=True).stdout
    for name, library in (("openmpi", "libmpi.so.40"), ("mpich", "libmpich.so.12")):
        if not processes.shutil.which(processes.MPIRUN[name][0]):
            continue
        before = programs.FOLDER / ("late-" + name)
        before.mkdir()
        (before / "libmpi_behind.so").symlink_to(re.search(r"%s .*=> (\S+)" % re.escape(library), listed).group(1))
        empty = ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-Wl,-soname,libmpi_behind.so", "-o", before / "stub.so"]
        own = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,--no-as-needed", programs.HERE / "late_sums.c", before / "stub.so", "-o", before / library]
        for command in (empty, own):
            programs.call(command)
        for number, (flags, count) in enumerate([([], 2), (["--replicas", "3", "--microbatch", "2"], 3), (["--stages", "2", "--microbatch", "3"], 4),
                                                 (["--stages", "2", "--schedule", "zb-h1", "--microbatch", "2"], 4)]):
            label = "late sums, %s, %s" % (name, " ".join(flags))
            exe = programs.compiled(path, "late%d" % number, *flags)
            ring = programs.run(exe, folder, 1, init=folder / "start.safetensors")
            out = programs.FOLDER / ("late-%s-%d" % (name, number))
            ended = processes.start("env", count, name, [
                "LD_LIBRARY_PATH=%s" % before, "LATE_SUMS=%s/%d-" % (before, number), exe, "--data", folder, "--out", out, "--steps", 1, "--threads", 1,
                "--init", folder / "start.safetensors", "--all-reduce", "mpi"])
            if not verdicts.expect(ended.all(0), "%s: %s %s" % (label, ended.codes, ended.text[-500:])):
                continue
            found = programs.Result(out, ended.text)
            for key, value in ring.parameters.items():
                verdicts.expect((found.parameters[key] == value).all(), "%s: other sums of %s than the ring's" % (label, key))
            most = [max(map(int, file.read_text().split()[4:])) for file in before.glob("%d-*" % number)] # the first four are the trial at the start
            verdicts.expect(len(most) == count and max(most) > 1 and max(most) <= 4, "%s: %s sums are under way at most" % (label, most))


def refusals():
    for words, what in [("reduce(5)", "5 does not divide 12"), ("reduce", "takes the number of replicas"), ("recude(2)", "did you mean `reduce`"),
                        ("reduce(0)", "from 1 to 2^53")]:
        done = programs.compiled(programs.source("wrong", PROGRAM % ("combine " + words)), "wrong", allowed=(0, 1, 2, 70))
        verdicts.expect(hasattr(done, "stdout") and done.returncode == 1 and what in done.stdout, "combine %s: %s" % (
            words, getattr(done, "stdout", "compiled")[-300:]))


def main():
    against_numpy()
    same_bits()
    masked_shares()
    one_grain()
    bad_numbers()
    every_kind()
    by_the_library()
    under_way()
    refusals()


verdicts.run(main)
