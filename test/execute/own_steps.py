#!/usr/bin/python3
"""Replicas that make steps of their own. `combine ring_average(D)` and `combine async(D, delay = k)`: the numbers of loops in NumPy in f64, the
same bits under every number of stages, micro-batch and transport, resumed with them too; another number of replicas goes on with a note.
`combine hogwild(D)`: it trains a convex problem as far as one worker does, on threads alone, and says that two runs may differ.
"""
import numpy as np

import processes
import programs  # first: it finds the folder of the oracles
import small_net
import tensorfile
import training
from small_net import I, OPTIMIZERS, gradients

verdicts = programs.Verdicts()
B, STEPS = 12, 5
PROGRAM = small_net.program(B, STEPS)


class Loop:
    """What the replicas have in common: data, and the clipped gradient of a replica's part of a batch."""

    def __init__(self, start, x, y, optimizer, limit, count):
        self.still, self.x, self.y, self.limit, self.count = start["still"], x.astype(np.float64), y.astype(np.float64), limit, count
        self.start = {name: value.astype(np.float64) for name, value in start.items() if name != "still"}
        self.optimizers = [optimizer() for _ in range(count)]

    def gradient(self, parameters, step, d):
        share = B // self.count
        rows = [(step * B + d * share + i) % len(self.x) for i in range(share)]
        loss, gradient = gradients({**parameters, "still": self.still}, self.x[rows], self.y[rows])
        return loss, training.clip(gradient, self.limit)[0] if self.limit else gradient

    def copy(self, parameters=None):
        return {name: value.copy() for name, value in (parameters or self.start).items()}


def ring(loop):
    """Each replica's own step, then the mean of itself and its neighbours; the mean of all in the end."""
    own, losses = [loop.copy() for _ in range(loop.count)], []
    for step in range(STEPS):
        found = [loop.gradient(own[d], step, d) for d in range(loop.count)]
        losses.append(np.mean([loss for loss, _ in found]))
        for d, (_, gradient) in enumerate(found):
            loop.optimizers[d].update(own[d], gradient, step)
        near = lambda d: sorted({(d - 1) % loop.count, d, (d + 1) % loop.count})
        before = [sum(p["down"] for p in own) / loop.count]
        own = [{name: np.mean([own[other][name] for other in near(d)], axis=0) for name in own[d]} for d in range(loop.count)]
        assert np.allclose(before, sum(p["down"] for p in own) / loop.count, rtol=1e-13)
    return {name: np.mean([p[name] for p in own], axis=0) for name in own[0]}, losses, own


def late(delay):
    def loop_of(loop):
        """One set of parameters, which the replicas update in turn; a replica's gradients are at what it left behind."""
        now, losses = loop.copy(), []
        versions = [[loop.copy() for _ in range(delay + 1)] for _ in range(loop.count)]
        for step in range(STEPS):
            found = [loop.gradient(versions[d][0], step, d) for d in range(loop.count)]
            losses.append(np.mean([loss for loss, _ in found]))
            for d, (_, gradient) in enumerate(found):
                loop.optimizers[0].update(now, gradient, step)
                versions[d] = versions[d][1:] + [loop.copy(now)]
        return now, losses, [v[0] for v in versions]

    return loop_of


WAYS = [("ring_average(2)", 2, ring), ("ring_average(3)", 3, ring), ("ring_average(6)", 6, ring), ("async(2)", 2, late(0)), ("async(3, delay = 0)", 3, late(0)),
        ("async(4, delay = 1)", 4, late(1)), ("async(2, delay = 2)", 2, late(2)), ("async(1, delay = 1)", 1, late(1))]


def against_numpy(data, x, y):
    for name, (text, optimizer, limit) in OPTIMIZERS.items():
        for number, (way, count, reference) in enumerate(WAYS):
            label = "%s, %s" % (name, way)
            program = programs.source("own-%s-%d" % (name, number), PROGRAM % (text + "\n  combine " + way))
            exe = programs.compiled(program, program.stem, "--set", "train.precision=f64")
            start = programs.run(exe, data, 0).parameters
            result = programs.run(exe, data, STEPS)
            expected, losses, own = reference(Loop(start, x, y, optimizer, limit, count))
            verdicts.expect(np.allclose(result.losses, losses, rtol=1e-12), "%s: losses %s, NumPy says %s" % (label, result.losses, losses))
            saved = tensorfile.read(sorted((result.out / "run").glob("*.safetensors"))[-1])
            for path, value in expected.items():
                error = np.abs(result.parameters[path] - value).max()
                verdicts.expect(error <= 1e-11 * max(np.abs(value - start[path]).max(), 1e-3), "%s: %s is off by %.3g" % (label, path, error))
                for d in range(count):
                    ringed = way.startswith("ring")
                    key = ("replica/%d/%s" % (d, path)) if ringed else "optimizer/%s.prev" % path if d == 0 else "replica/%d/optimizer/%s.prev" % (d, path)
                    held = saved.get(key)
                    verdicts.expect(held is not None and np.abs(held - own[d][path]).max() <= 1e-11, "%s: the checkpoint's %s" % (label, key))
            verdicts.expect(set(result.parameters) == {*expected, "still"}, "%s: the final file has %s" % (label, sorted(result.parameters)))


def same_bits(data):
    for number, way in enumerate(("ring_average(3)", "async(3)", "async(2, delay = 3)", "ring_average(2)")):
        count = int(way[way.index("(") + 1])
        program = programs.source("bits%d" % number, PROGRAM % (OPTIMIZERS["adamw"][0] + "\n  ema 0.9\n  combine " + way))
        grids = [([], 1), (["--microbatch", "1"], 1), (["--stages", "2", "--microbatch", "2"], 2),
                 (["--stages", "2", "--schedule", "zb-h1", "--microbatch", "1"], 2)]
        exes = [programs.compiled(program, "bits%d-%d" % (number, i), *flags) for i, (flags, _) in enumerate(grids)]
        wanted = programs.run(exes[0], data, STEPS)
        verdicts.expect(programs.run(exes[0], data, STEPS).bytes == wanted.bytes, way + ": two runs differ")
        for i, (flags, workers) in enumerate(grids):
            label = "%s %s" % (way, " ".join(flags))
            found = programs.run(exes[i], data, STEPS, "--threads", "2")
            verdicts.expect(found.bytes == wanted.bytes and found.losses == wanted.losses, label + ": other bits")
            out = programs.FOLDER / ("tcp%d-%d" % (number, i))
            if i in (0, 2):
                arguments = ["--data", data, "--out", out, "--threads", 1]
                first = processes.start(exes[i], count * workers, "tcp", [*arguments, "--steps", 3])
                again = processes.start(exes[i], count * workers, "tcp", [*arguments, "--resume"])
                verdicts.expect(first.all(0) and again.all(0) and (out / "final.safetensors").read_bytes() == wanted.bytes,
                                "%s over TCP: %s" % (label, (first.text + again.text)[-500:]))
            half = programs.run(exes[i - 1], data, 3)
            programs.call([exes[i], "--data", data, "--out", half.out, "--resume"])
            verdicts.expect((half.out / "final.safetensors").read_bytes() == wanted.bytes, label + ": other bits when resumed")
        other = programs.compiled(program, "other%d" % number, "--replicas", "6")
        half = programs.run(exes[0], data, 3)
        again = programs.call([other, "--data", data, "--out", half.out, "--resume"])
        verdicts.expect("replicas: %d in the checkpoint, 6 here; replicas that the checkpoint lacks" % count in again.stdout, "no note: " + again.stdout[-400:])
        evaluated = programs.call([exes[0], "info"])
        verdicts.expect(evaluated.returncode == 0, "info: " + evaluated.stdout[-300:])


def one_grain(data):
    """Replicas whose examples are one grain: micro-batches may cut it, and leave the bits of those that do not."""
    for number, way in enumerate(("ring_average(3)", "async(2)")):
        share = B // int(way[way.index("(") + 1])
        program = programs.source("grain%d" % number, PROGRAM % (OPTIMIZERS["adamw"][0] + "\n  grain %d\n  combine %s" % (share, way)))
        wanted = programs.run(programs.compiled(program, program.stem, "--microbatch", str(share)), data, STEPS)
        for flags in ([], ["--microbatch", "1"], ["--microbatch", "2"], ["--stages", "2", "--microbatch", "2"]):
            found = programs.run(programs.compiled(program, program.stem, *flags), data, STEPS)
            verdicts.expect(found.bytes == wanted.bytes and found.losses == wanted.losses, "%s of one grain, %s: other bits" % (way, " ".join(flags)))


def same_data():
    """Replicas whose examples are the same do what one worker does with them."""
    rng = np.random.default_rng(7)
    for count in (2, 3):
        data = programs.FOLDER / ("same%d" % count)
        data.mkdir()
        x, y = (rng.normal(size=(3, 1, B // count, I)).astype(np.float32) for _ in range(2))
        for name, values in (("x", x), ("y", y)):
            np.save(data / (name + ".npy"), np.tile(values, (1, count, 1, 1)).reshape(-1, I))
            (data / "one").mkdir(exist_ok=True)
            np.save(data / "one" / (name + ".npy"), values.reshape(-1, I))
        text = PROGRAM % (OPTIMIZERS["adamw"][0] + "\n  combine ring_average(%d)" % count)
        ringed = programs.run(programs.compiled(programs.source("same%d" % count, text), "same%d-ring" % count), data, STEPS)
        alone = programs.compiled(programs.source("alone%d" % count, PROGRAM % OPTIMIZERS["adamw"][0]), "same%d-one" % count, "-D", "B=%d" % (B // count))
        one = programs.run(alone, data / "one", STEPS)
        error = max(np.abs(ringed.parameters[name] - value).max() for name, value in one.parameters.items())
        verdicts.expect(ringed.bytes == one.bytes if count == 2 else error < 1e-6, "%d replicas of the same data: off by %.3g" % (count, error))


def hogwild():
    rng = np.random.default_rng(8)
    data = programs.FOLDER / "convex"
    data.mkdir()
    x = rng.normal(size=(96, 6)).astype(np.float32)
    np.save(data / "x.npy", x)
    y = (x @ rng.normal(size=(6, 3))).astype(np.float32)
    np.save(data / "y.npy", y)
    text = """dim B = 12 batch, I = 6, H = 3
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: f32[B, H])
model net(x: f32[B, I]) -> f32[B, H] { use l = linear[H]; return l(x) }
train net on train seed 4 {
  loss = mean[B, H] squared_error(net(x), y)
  optimizer sgd(lr = 0.05, momentum = 0.5)
  %s
  steps 60
  every 20 checkpoint("run", keep = 2)
}
"""
    path = programs.source("hogwild", text % "combine hogwild(3)")
    exe = programs.FOLDER / "hogwild"
    said = programs.call([programs.CINCH, path, "-o", exe])
    verdicts.expect("two runs may differ" in said.stdout, "cinch does not say it: " + said.stdout[-300:])
    one = programs.run(programs.compiled(programs.source("convex", text % ""), "convex-one", "-D", "B=4"), data, 60)
    for flags in ([], ["--stages", "1", "--microbatch", "2"]):
        exe = programs.compiled(path, "hogwild", *flags)
        for threads in ("1", "2"):
            found = programs.run(exe, data, 60, "--threads", threads)
            verdicts.expect("two runs may differ" in found.text, "the run does not say it: " + found.text[:300])
            # A step is one update at least, three at most.
            first, last = found.losses[0], np.mean(found.losses[-4:])
            verdicts.expect(last < 0.05 * first and last < 3 * np.mean(one.losses[-4:]) + 0.01, "hogwild: losses %s .. %s, one worker: %s" % (
                first, last, one.losses[-4:]))
    half = programs.run(exe, data, 30)
    again = programs.call([exe, "--data", data, "--out", half.out, "--resume"])
    verdicts.expect("resumed at step 30" in again.stdout, "hogwild resumed: " + again.stdout[-300:])
    alone = programs.compiled(path, "hogwild-one", "--replicas", "1")
    final = programs.run(alone, data, 10, init=half.out / "final.safetensors")
    verdicts.expect(final.losses[0] < 0.3 * found.losses[0], "hogwild: a run from its file begins with %s" % final.losses[0])
    ended = processes.start(exe, 3, "tcp", ["--data", data, "--out", programs.FOLDER / "wild-tcp"])
    verdicts.expect(set(ended.codes) == {2} and "share the memory of one process" in ended.text, "hogwild over TCP: %s %s" % (ended.codes, ended.text[-300:]))
    y[40, 2] = 1e30
    np.save(data / "y.npy", y)
    bad = programs.call([exe, "--data", data, "--out", programs.FOLDER / "wild-bad"], allowed=(4,))
    verdicts.expect("the parameters are intact" in bad.stdout, "hogwild, bad numbers: " + bad.stdout[-400:])


def bad_numbers(data):
    bad = programs.FOLDER / "bad"
    bad.mkdir()
    x, y = np.load(data / "x.npy"), np.load(data / "y.npy")
    y[17, 2] = 1e30
    np.save(bad / "x.npy", x)
    np.save(bad / "y.npy", y)
    for number, way in enumerate(("ring_average(2)", "async(2)")):
        exe = programs.compiled(programs.source("bad%d" % number, PROGRAM % ("optimizer sgd(lr = 0.1)\n  combine " + way)), "bad%d" % number)
        for transport in ("threads", "tcp"):
            ended = processes.start(exe, 2, transport, ["--data", bad, "--out", programs.FOLDER / ("bad-%d-%s" % (number, transport)), "--quiet"])
            verdicts.expect(ended.all(4) and "the parameters are intact" in ended.text, "%s over %s: %s %s" % (way, transport, ended.codes, ended.text[-500:]))


def refusals():
    state = (programs.HERE / "state.cinch").read_text().replace("seed 42 {", "seed 42 {\n  combine async(2)")
    for words, what in [("combine ring_average", "takes the number of replicas"), ("combine async(2, late = 1)", "may take a delay"),
                        ("combine async(2, delay = 9)", "from 0 to 8"), ("combine hogwild(5)", "5 does not divide 12"),
                        ("delay 1\n  combine async(2)", "has a delay of its own"), ("combine hogwild(2)\n  delay 1", "has a delay of its own"),
                        ("combine ring_avrage(2)", "did you mean `ring_average`")]:
        done = programs.compiled(programs.source("wrong", PROGRAM % ("optimizer sgd(lr = 1)\n  " + words)), "wrong", allowed=(0, 1, 2, 70))
        verdicts.expect(hasattr(done, "stdout") and done.returncode == 1 and what in done.stdout, "%s: %s" % (words, getattr(done, "stdout", "compiled")[-300:]))
    done = programs.compiled(programs.source("state", state), "state", "-D", "B=24", allowed=(0, 1, 2, 70))
    verdicts.expect(hasattr(done, "stdout") and "the model has a state" in done.stdout, "a state: " + getattr(done, "stdout", "compiled")[-300:])


def main():
    rng = np.random.default_rng(3)
    data = programs.FOLDER / "data"
    data.mkdir()
    x, y = (rng.normal(size=(31, I)).astype(np.float32) for _ in range(2))
    np.save(data / "x.npy", x)
    np.save(data / "y.npy", y)
    against_numpy(data, x, y)
    same_bits(data)
    one_grain(data)
    same_data()
    bad_numbers(data)
    refusals()
    hogwild()


verdicts.run(main)
