#!/usr/bin/python3
"""Gradients that meet: random programs in which one value has many uses, as a whole, by slices, padded, reversed, repeated, looked up, in loops, loops in
loops and behind them, and in which a factor is the gradient of the other one as it is. All axes are short, loops of one trip among them. The gradient is
compared with central differences of the program itself, in f64; some programs must leave the same bits under another plan.

usage: meeting.py [--count N] [--seed S] [--one SEED]      a program that fails is printed
"""
import argparse
import random
import re

import numpy as np

import programs
import tensorfile

AXES = "BTSHV"  # batch, two axes of loops, features, rows of a table; a type is a tuple of them
FIELDS = {"x": ("B", "H"), "y": ("B", "T", "H"), "m": ("B", "S", "H")}
F64 = ["--set", "train.precision=f64"]
STEPS, RTOL = (1e-5, 1e-6, 1e-7), 1e-5
verdicts = programs.Verdicts()


def names(axes):
    return ", ".join(axes).lower()


class Nothing(Exception):
    """There is no value that a statement could take."""


class Body:
    """A layer or the model: the values it has, as (name, axes), and its statements."""

    def __init__(self, program, values, ids, depth, has_batch):
        self.program, self.r, self.depth, self.has_batch = program, program.r, depth, has_batch
        self.values, self.ids, self.made, self.of_loops, self.lines, self.matrices = list(values), ids, [], [], [], []
        self.calls = []  # (what is called, axes of its arguments, labels, axes of its results)

    def add(self, axes, text, index=None):
        value = (self.program.name("v"), axes)
        self.lines.append("%s%s = %s" % (value[0], "[%s]" % index if index else "", text))
        self.values.append(value)
        self.made.append(value)
        return value

    def param(self, axes, text=None):
        name = self.program.name("p")
        self.lines.append("param %s: f32[%s] ~ normal(0.7)" % (name, text or ", ".join(axes)))
        return name, axes

    def pick(self, wanted=lambda axes: True):
        """A late value rather than an early one."""
        found = [value for value in self.values if wanted(value[1])]
        if not found:
            raise Nothing
        return found[max(self.r.randrange(len(found)) for _ in range(self.r.choice([1, 2])))]

    def features(self):
        return self.pick(lambda axes: axes[-1:] == ("H",))

    def place(self, value, of):
        places = [i for i, axis in enumerate(value[1]) if axis in of]
        if not places:
            raise Nothing
        return self.r.choice(places)

    # ---- Statements
    def steps(self, count, kinds):
        for _ in range(count):
            try:
                getattr(self, self.r.choice(kinds))()
            except Nothing:
                pass

    def one(self):
        name, axes = self.pick()
        texts = ["tanh(%s)", "sin(%s)", "%s * 2", "-%s", "%s * 1", "%s / 1", "0.5 * %s ^ 2", "%s + 0.5"] + ["softmax(%s)"] * (axes[-1:] not in ((), ("B",)))
        self.add(axes, self.r.choice(texts) % name)

    def two(self):
        a, axes = self.pick()
        b, _ = self.pick(lambda other: axes[len(axes) - len(other):] == other)
        pair = (a, b) if self.r.random() < 0.7 else (b, a)
        self.add(axes, self.r.choice(["%s + %s", "%s * %s", "%s - %s"]) % pair)

    def joined(self):
        (a, first), (b, second) = self.pick(), self.pick()
        axes = [axis for axis in AXES if axis in first + second]
        if len(axes) > 4:
            raise Nothing
        if self.r.random() < 0.25:
            self.r.shuffle(axes)
        self.add(tuple(axes), "%s[%s] %s %s[%s]" % (a, names(first), self.r.choice("+**"), b, names(second)), names(axes))

    def product(self):
        name, axes = self.pick(lambda axes: "H" in axes)
        if not self.matrices or self.r.random() < 0.4:
            self.matrices.append(self.param(None, "H, H")[0])
        matrix, (i, j) = self.r.choice(self.matrices), self.r.choice(["hj", "jh"])
        text = "sum[h] %s[%s] * %s[%s, %s]" % (name, names(axes), matrix, i, j)
        self.add(axes, text, names(axes).replace("h", "j"))

    def halves(self):
        a, axes = self.features()
        b = self.pick(lambda other: other == axes)[0] if self.r.random() < 0.5 else a
        first, second = self.r.choice([("0:2", "2:4"), ("2:4", "0:2"), ("1:3", "0:2"), ("0:1", "1:4"), ("0:2", "0:2")])
        self.add(axes, "concat(%s[.., %s], %s[.., %s], axis = %d)" % (a, first, b, second, len(axes) - 1))

    def padded(self):
        name, axes = self.features()
        part, before, after = self.r.choice([("0:2", 0, 2), ("2:4", 2, 0), ("0:2", 2, 0), ("1:3", 1, 1), ("0:1", 0, 3), ("1:4", 1, 0)])
        where = "axis = %d, value = %d" % (len(axes) - 1, self.r.choice([0, 5, 1, -2]))
        self.add(axes, "pad(%s[.., %s], %d, %d, %s)" % (name, part, before, after, where))

    def two_pads(self):
        """End to end, each a factor of the same value."""
        name, axes = self.features()
        factors = []
        for part, before, after, number in ("0:2", 0, 2, 3), ("2:4", 2, 0, 7):
            other, value = self.pick(lambda other: other == axes)[0], self.r.choice([0, 0, number])
            factors.append(self.add(axes, "pad(%s[.., %s], %d, %d, axis = %d, value = %d)" % (other, part, before, after, len(axes) - 1, value))[0])
        self.add(axes, "%s * %s + %s * %s" % (name, factors[0], name, factors[1]))

    def reversed(self):
        value = self.pick()
        self.add(value[1], "reverse(%s, axis = %d)" % (value[0], self.place(value, "TSHV")))

    def rotated(self):
        value = self.pick()
        at = self.place(value, [axis for axis in "TS" if self.program.sizes[axis] > 1])
        slices = ":, " * at
        self.add(value[1], "concat(%s[%s1:], %s[%s0:1], axis = %d)" % (value[0], slices, value[0], slices, at))

    def row(self):
        value = self.pick()
        at = self.place(value, "TSV")
        number = self.r.randrange(self.program.sizes[value[1][at]])
        self.add(value[1][:at] + value[1][at + 1:], "%s[%s%d]" % (value[0], ":, " * at, number))

    def parameter(self):
        self.values.append(self.param(self.r.choice([("H",), ("H",), ("S", "H"), ("V", "H")] + [("T", "H")] * 2 * (self.depth == 0))))

    def looked_up(self):
        if not self.ids:
            raise Nothing
        ids, places = self.r.choice(self.ids)
        if self.r.random() < 0.5:
            self.values.append(self.param(("V", "H")))
        table, axes = self.pick(lambda axes: axes[:1] == ("V",) and not set(axes) & set(places))
        self.add(places + axes[1:], "%s[%s]" % (table, ids))

    def repeated(self):
        name, axes = self.pick(lambda axes: "B" not in axes and len(axes) < 3)
        more = [axis for axis in "BTS" if axis not in axes and (axis != "B" or self.has_batch) and (axis != "T" or self.depth == 0)]
        if not more:
            raise Nothing
        axes = (self.r.choice(more),) + axes
        self.add(axes, "expand[%s](%s)" % (", ".join(axes), name))

    # ---- Loops
    def loop(self):
        r = self.r
        axis = r.choice("TTTS") if self.depth == 0 else "S"
        batch = self.has_batch and r.random() < 0.7
        fits = lambda axes: batch or "B" not in axes
        first = self.pick(lambda axes: axis in axes and fits(axes))
        at = first[1].index(axis)
        states = [self.pick(lambda axes: ("B" in axes) == batch and axis not in axes and len(axes) >= max(at, 1)) for _ in range(r.choice([1, 1, 2]))]
        others = [first] + [self.pick(fits) for _ in range(r.choice([0, 1, 2, 3]))]
        ids = [r.choice(self.ids)] if batch and self.ids and r.random() < 0.4 else []
        call = self.called([s[1] for s in states], [tuple(a for a in axes if a != axis) for _, axes in others],
                           [tuple(a for a in axes if a != axis) for _, axes in ids], batch)
        self.call("scan[%s] %s" % (axis, call), states + others, ids, [s[1][:at] + (axis,) + s[1][at:] for s in states])

    def run(self):
        """A layer several times."""
        state = self.pick(lambda axes: axes)
        batch = "B" in state[1]
        others = [self.pick(lambda axes: batch or "B" not in axes) for _ in range(self.r.choice([0, 1, 2]))]
        call = self.called([state[1]], [axes for _, axes in others], [], batch, "repeat %d shared " % self.r.choice([1, 2, 3]))
        if call.startswith("layer"):  # it has no parameters
            raise Nothing
        self.call(call, [state] + others, [], [state[1]])

    def again(self):
        """One of these once more, with other values: its parameters have two uses."""
        if not self.calls:
            raise Nothing
        text, arguments, ids, results = self.r.choice(self.calls)
        self.call(text, [self.pick(lambda axes, same=same: axes == same) for same in arguments], ids, results)

    def call(self, text, arguments, ids, results):
        made = [(self.program.name("v"), axes) for axes in results]
        self.lines.append("%s = %s(%s)" % (", ".join(name for name, _ in made), text, ", ".join(name for name, _ in arguments + ids)))
        self.calls.append((text, [axes for _, axes in arguments], ids, results))
        self.values += made
        self.made += made
        self.of_loops += made

    def called(self, states, others, ids, batch, how=""):
        """The name of an instance of a new layer, or of one that has no parameters."""
        layer, owns = self.program.layer(states, others, ids, self.depth + 1, batch)
        if not owns:
            return layer
        name = self.program.name("u")
        self.lines.append("use %s = %s%s" % (name, how, layer))
        return name

    def pruned(self, results):
        """The statements that the results need."""
        needed, kept = set(re.findall(r"\w+", results)), []
        for line in reversed(self.lines):
            left, right = re.split(r" = |: ", line, maxsplit=1)
            if needed & set(re.findall(r"\w+", re.sub(r"\[.*?\]|^(param|use) ", "", left))):
                kept.append("  %s\n" % line)
                needed |= set() if left.startswith("param") else set(re.findall(r"\w+", right))
        return kept[::-1]


class Program:
    ANY = ["one", "two", "two", "joined", "joined", "product", "halves", "padded", "two_pads", "reversed", "rotated", "row", "parameter", "looked_up",
           "repeated"]

    def __init__(self, seed):
        self.r, self.count, self.layers = random.Random(seed), 0, []
        self.sizes = {"B": 4, "T": self.r.choice([1, 2, 3, 3]), "S": self.r.choice([1, 2, 2]), "H": 4, "V": 3}
        self.text = self.whole()

    def name(self, stem):
        self.count += 1
        return "%s%d" % (stem, self.count)

    def layer(self, states, others, ids, depth, batch):
        """(name, whether it has parameters)"""
        arguments = [(self.name("a"), axes) for axes in states + others]
        labels = [(self.name("k"), axes) for axes in ids]
        body = Body(self, arguments, labels, depth, batch)
        body.steps(self.r.randint(1, 7), self.ANY + ["loop", "loop", "again"] * (depth < 2))
        results = ", ".join(self.result(body, *state) for state in arguments[:len(states)])
        lines = body.pruned(results)
        signature = ["%s: f32[%s]" % (name, ", ".join(axes)) for name, axes in arguments]
        signature += ["%s: i32[%s] below V" % (name, ", ".join(axes)) for name, axes in labels]
        name = self.name("layer")
        types = ", ".join("f32[%s]" % ", ".join(axes) for axes in states)
        types = "(%s)" % types if len(states) > 1 else types
        self.layers.append("layer %s(%s) -> %s {\n%s  return %s\n}\n" % (name, ", ".join(signature), types, "".join(lines), results))
        return name, any(line.startswith(("  param", "  use")) for line in lines)

    def result(self, body, state, axes):
        """A new state: something made, brought to its axes, with or without the old one; or what was given, as it is."""
        r = self.r
        fits = [value for value in body.values if value[1] == axes]
        late = [value for value in fits if value in body.made]
        if not late and body.made and r.random() < 0.8:
            (base, _), (name, has) = r.choice(fits), r.choice(body.made)
            gone = [axis for axis in has if axis not in axes]
            if "B" not in gone:
                made = ("sum[%s] %s[%s]" if gone else "0.5 * %s%s[%s]") % (names(gone), name, names(has))
                late = [body.add(axes, "%s[%s] %s %s" % (base, names(axes), "*" if gone else "+", made), names(axes))]
        if r.random() < 0.1:
            return r.choice(fits)[0]
        with_state = ["tanh(%s + {0})", "0.5 * {0} + tanh(%s)", "sin({0} * %s)", "{0} + 0.5 * %s"]
        return (r.choice(["tanh(%s)", "%s", "%s * 0.5", "sin(%s)"] + with_state) % r.choice(late or fits)[0]).format(state)

    def whole(self):
        r = self.r
        body = Body(self, FIELDS.items(), [("k", ("B", "T"))], 0, True)
        body.steps(3, ["parameter"])
        body.steps(2, ["joined"])
        body.steps(r.randint(5, 14), self.ANY + ["loop"] * 6 + ["run", "again", "again"])
        sums, latest = {True: [], False: []}, body.made[-6:] + body.of_loops
        for name, axes in r.sample(latest, min(len(latest), r.randint(1, 4))):
            other = r.choice([value for value in body.values if value[1] == axes])[0]
            kind = r.choice(["product", "product", "contraction", "itself"])
            term = body.add(axes, "%s * %s" % (name, other))[0] if kind == "product" else name
            text = "%s[%s]" % (term, names(axes)) + " * %s[%s]" % (other, names(axes)) * (kind == "contraction")
            summed, of_examples = [axis for axis in axes if axis != "B"], "B" in axes
            total = self.name("z")
            body.lines.append("%s%s = %s%s" % (total, "[b]" * of_examples, "sum[%s] " % names(summed) if summed else "", text))
            sums[of_examples].append(total)
        if not sums[True]:
            body.lines.append("z[b] = sum[h] x[b, h]")
            sums[True] = ["z"]
        total = " + ".join(sums[True] + sums[False])
        lines = "".join(body.pruned(total))
        layers = []
        for layer in reversed(self.layers):
            if re.search(r"\b%s\b" % re.match(r"layer (\w+)", layer).group(1), lines + "".join(layers)):
                layers.append(layer)
        arguments = ", ".join("%s: f32[%s]" % (name, ", ".join(axes)) for name, axes in FIELDS.items()) + ", k: i32[B, T] below V"
        return """dim B = 4 batch, T = %(T)d, S = %(S)d, H = 4, V = 3
data train = npz("d.npz", shuffle = false) -> (%(arguments)s)
%(layers)smodel net(%(arguments)s) -> f32[B] {
%(lines)s  return %(total)s
}
train net on train seed 1 {
  loss = %(over)s[B] net(x, y, m, k)
  optimizer sgd(lr = 1)
  steps 2
}
""" % {**self.sizes, "arguments": arguments, "layers": "".join(layers[::-1]), "lines": lines, "total": total, "over": r.choice(["sum", "sum", "mean"])}

    def data(self):
        rng = np.random.default_rng(3)
        made = {name: rng.normal(size=[self.sizes[axis] for axis in axes]).astype(np.float32) for name, axes in FIELDS.items()}
        return {**made, "k": rng.integers(0, 3, (4, self.sizes["T"])).astype(np.int32)}


class Wrong(Exception):
    """What is wrong with what the compiler made of a program."""


def compare(program, name):
    folder = programs.FOLDER / name
    folder.mkdir()
    np.savez(folder / "d.npz", **program.data())
    source = programs.source(name, program.text)
    exe = programs.compiled(source, name + "-exe", *F64, "--remat", "none", allowed=(0, 1))
    if "E0605" in getattr(exe, "stdout", ""):  # no parameter is left in the loss
        return
    if not isinstance(exe, type(folder)):
        raise Wrong(exe.stdout[exe.stdout.find("error"):])
    start, after = programs.run(exe, folder, 0).parameters, programs.run(exe, folder, 1)
    if not np.isfinite(after.losses[0]):
        return
    rng = np.random.default_rng(1)

    def slopes(paths):
        """(by the gradient, by differences) along one direction of these parameters; steps that are too long for a steep loss become shorter."""
        way = {path: rng.normal(size=value.shape) * (path in paths) for path, value in start.items()}
        got = sum(((start[path] - after.parameters[path]) * way[path]).sum() for path in start)
        for step in STEPS:
            losses = []
            for move in (step, -step):
                tensorfile.write(folder / "point.safetensors", {path: start[path] + move * way[path] for path in start})
                losses.append(programs.run(exe, folder, 1, init=folder / "point.safetensors").losses[0])
            expected = (losses[0] - losses[1]) / (2 * step)
            if abs(got - expected) <= RTOL * max(abs(got), abs(expected), 0.01 * abs(after.losses[0]), 0.01):
                return None
        return got, expected

    for _ in range(2):
        if slopes(start):
            each = ["%s: %.9g, by differences %.9g" % (path, *found) for path in start if (found := slopes([path]))]
            raise Wrong("the gradient is another one than by differences:\n  " + "\n  ".join(each))
    if program.r.random() < 0.3:
        plain = programs.run(exe, folder, 2)
        other = programs.run(programs.compiled(source, name + "-other", *F64, "--remat", "all", "--microbatch", "1"), folder, 2)
        if plain.bytes != other.bytes or plain.losses != other.losses:
            raise Wrong("other bits with --remat all --microbatch 1")


def one(seed):
    program, name = Program(seed), "meeting%d" % seed
    try:
        compare(program, name)
        verdicts.expect(True, "")
    except (Wrong, programs.Failure) as wrong:
        if ": exit 4\n" in str(wrong):  # not finite at the second step
            return
        verdicts.expect(False, "seed %d: %s\n%s" % (seed, wrong, program.text))
    finally:
        for exe in programs.FOLDER.glob(name + "-*"):
            exe.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, help="this seed only; the program is printed")
    options = parser.parse_args()
    if options.one is not None:
        print(Program(options.one).text)
        one(options.one)
    else:
        programs.in_parallel(one, range(options.seed, options.seed + options.count))


if __name__ == "__main__":
    verdicts.run(main)
