"""Steps that move values, look them up, draw them."""
import numpy as np

from . import draw, elementwise, rows, shapes
from .graph import BATCH, Invalid
from .values import Values


class Moves(Values):
    def moved(self):
        r, x = self.rng, self.pick(lambda n: len(n.type.axes) > 0)
        kind = r.choice(["transpose", "merge", "one", "slice", "slice", "index", "pad", "concat", "concat", "reverse", "expand",
                         "split", "swiglu"])
        if kind == "transpose":
            return self.add(shapes.Transpose(), [x])
        if kind == "merge":
            first = self.axis(x)
            return self.add(shapes.Reshape(first, first + r.randint(1, 2)), [x])
        if kind == "one":
            return self.add(shapes.Reshape(r.randint(0, len(x.type.axes))), [x])
        if kind == "slice":
            return self.add(shapes.Slice(self.axis(x), r.randint(0, 2), r.randint(0, 2)), [x])
        if kind == "index":
            at = self.axis(x)
            return self.add(shapes.Slice(at, r.randrange(self.dims.value(x.type.axes[at]))), [x])
        if kind == "pad":
            return self.add(shapes.Pad(self.axis(x), r.randint(0, 2), r.randint(1, 2), r.choice([0, 0, 0.5])), [x])
        if kind == "concat":
            at = self.axis(x)
            rest = lambda n: n.type.axes[:at] + n.type.axes[at + 1:]
            fit = [n for n in self.pool if n.type.dtype == "f32" and len(n.type.axes) == len(x.type.axes) and rest(n) == rest(x)]
            return self.add(shapes.Concat(at), [x] + r.choices(fit, k=r.randint(1, 2)))
        if kind == "swiglu":
            if x.type.axes[-1] == BATCH or x.type.axes[-1].isdigit():
                raise Invalid("swiglu")
            both = self.add(shapes.Concat(len(x.type.axes) - 1), [x, r.choice([n for n in self.pool if n.type == x.type])])
            if r.random() < 0.4:
                return self.add(rows.Rope(), [both])
            return self.add(rows.SwiGLU(x.type.axes[-1]), [both])
        if kind == "reverse":
            return self.add(shapes.Reverse(self.axis(x)), [x])
        if kind == "split":
            at = self.axis(x, lambda axis: " * " in str(self.dims.text.get(axis, "")))
            outer, inner = self.dims.text[x.type.axes[at]].split(" * ")[:2]
            return self.add(shapes.Split(at, outer, inner), [x])
        lead = r.sample([self.some_dim()] + ([BATCH] if x.batch < 0 else []), 1)
        return self.add(shapes.Expand(lead, self.some_dim() if "1" in x.type.axes else None), [x])

    def gathered(self):
        """p[ids[b, t], d] inside of index notation, beside another operand or not; what is gathered may have the batch."""
        r = self.rng
        ids = self.pick(lambda n: n.type.below, "i32")
        table = self.pick(lambda n: ids.type.below in n.type.axes) if r.random() < 0.5 else self.param(
            [ids.type.below] + r.sample([self.some_dim()], r.randint(0, 1)))
        at = r.choice([i for i, a in enumerate(table.type.axes) if a == ids.type.below])
        known, inner = {}, []
        for axis in ids.type.axes:
            known["k%d" % len(known)] = axis
            inner.append("k%d" % (len(known) - 1))
        slots = []
        for i, axis in enumerate(table.type.axes):
            shared = [name for name, a in known.items() if a == axis and name not in slots]
            if i == at:
                slots.append((1, inner))
            elif shared and (axis == BATCH or r.random() < 0.7):
                slots.append(r.choice(shared))
            else:
                known["k%d" % len(known)] = axis
                slots.append("k%d" % (len(known) - 1))
        out = list(known)
        r.shuffle(out)
        return self.add(elementwise.IndexNotation("tanh({0})", lambda c, x: np.tanh(x), [slots, None], out), [table, ids])

    def gather(self):
        ids = self.pick(lambda n: n.type.below, "i32")
        known = [n for n in self.pool if n.type.dtype == "f32" and ids.type.below in n.type.axes]
        table = self.rng.choice(known) if known and self.rng.random() < 0.5 else self.param(
            self.rng.sample([ids.type.below, self.some_dim()], 2))
        return self.add(shapes.Gather(table.type.axes.index(ids.type.below)), [table, ids])

    def draw(self):
        r = self.rng
        if r.random() < 0.6:
            return self.add(draw.Dropout(r.choice([0.1, 0.25, 0.5]), r.random() < 0.2), [self.pick()])
        like = self.pick()
        kind, argument = r.choice([("uniform", None), ("normal", None), ("int", 4), ("bool", 0.5)])
        drawn = self.add(draw.Draw(kind, like.type.axes, argument), [])
        text = r.choice(["{0} * {1}", "{0} + {1}"])
        return self.add(elementwise.Elementwise(text, elementwise.BINARY[text]), [like, drawn])

    def labels(self):
        """Rows against classes: cross_entropy, one_hot, kl, argmax, range."""
        r = self.rng
        kind = r.choice(["cross_entropy", "one_hot", "kl", "argmax", "range", "range index", "float"])
        if kind == "cross_entropy":
            y = self.pick(lambda n: n.type.below, "i32")
            x = self.pick(lambda n: len(n.type.axes) == len(y.type.axes) + 1 and y.type.below in n.type.axes)
            places = [i for i, a in enumerate(x.type.axes) if a == y.type.below]
            at = r.choice(places)
            return self.add(rows.CrossEntropy(-1 if at == len(x.type.axes) - 1 else at, r.choice([0, 0, 0.1])), [x, y])
        if kind == "one_hot":
            return self.add(rows.OneHot(), [self.pick(dtype="i32")])
        if kind == "kl":
            x = self.pick(lambda n: len(n.type.axes) > 0)
            return self.add(rows.Kl(), [x, r.choice([n for n in self.pool if n.type == x.type])])
        if kind == "argmax":
            x = self.pick(lambda n: len(n.type.axes) > 0)
            return self.add(rows.ArgMax(self.axis(x), r.random() < 0.4), [x])
        if kind == "float":
            x = self.add(shapes.ToFloat(), [self.pick(dtype="i32")])
            return self.add(elementwise.Elementwise("0.1 * {0}", lambda c, v: 0.1 * v), [x])
        return self.add(shapes.Range(self.some_dim()) if kind == "range" else shapes.RangeIndex(self.some_dim()), [])
