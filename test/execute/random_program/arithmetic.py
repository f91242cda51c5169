"""Steps that calculate: element-wise, index notation, products, reductions, masks."""
import numpy as np

from . import elementwise, rows, shapes
from .graph import BATCH, Invalid
from .values import Values


class Arithmetic(Values):
    def unary(self):
        text = self.rng.choice(list(elementwise.UNARY))
        return self.add(elementwise.Elementwise(text, elementwise.UNARY[text]), [self.pick()])

    def binary(self):
        x = self.pick()
        axes = x.type.axes
        other = [n for n in self.pool if n.type.dtype == "f32" and (
            axes[len(axes) - len(n.type.axes):] == n.type.axes or n.type.axes[len(n.type.axes) - len(axes):] == axes)]
        tail = axes[self.rng.randint(axes.index(BATCH) + 1 if BATCH in axes else 0, len(axes)):]
        y = self.rng.choice(other) if self.rng.random() < 0.6 else self.param(tail)
        if x.type == y.type and x is not y and self.rng.random() < 0.3:
            text = self.rng.choice(list(elementwise.ALIKE))
            return self.add(elementwise.Elementwise(text, elementwise.ALIKE[text], alike=True), [x, y])
        texts = [t for t in elementwise.BINARY if x is not y or not t.startswith(("max", "min", "where"))]  # no ties
        text = self.rng.choice(texts)
        return self.add(elementwise.Elementwise(text, elementwise.BINARY[text]), self.rng.sample([x, y], 2))

    def index_operands(self, count):
        """Operands and their slots; equal sizes share an index or not, the batch has one."""
        r, known, operands, slots = self.rng, {}, [], []
        for _ in range(count):
            shared = [a for n in operands for a in n.type.axes if a != BATCH]
            axes = [self.some_dim()] if r.random() < 0.4 else r.choices(shared + [self.some_dim()], k=r.randint(1, 2))
            node = self.pick() if r.random() < 0.7 or not operands else self.param(axes)
            mine = []
            for axis in node.type.axes:
                free = [i for i, a in known.items() if a == axis and i not in mine]
                if free and (axis == BATCH or r.random() < 0.85):
                    mine.append(r.choice(free))
                else:
                    name = "k%d" % len(known)
                    known[name] = axis
                    mine.append(name)
            operands.append(node)
            slots.append(mine)
        return known, operands, slots

    def index(self):
        r = self.rng
        known, operands, slots = self.index_operands(r.choice([1, 1, 2, 2, 2, 3]))
        texts = {1: ["{0}", "tanh({0})", "{0} * {0}"],
                 2: ["{0} * {1}", "{0} + {1}", "{0} * tanh({1})", "{0} - {1}", "max({0}, {1})"],
                 3: ["{0} * {1} + {2}", "{0} * {1} * {2}"]}
        for place, slot in enumerate(slots):
            for i, axis in enumerate(operands[place].type.axes):  # a constant instead of an index, now and then
                if axis != BATCH and r.random() < 0.05 and sum(s.count(slot[i]) for s in slots) == 1:
                    known.pop(slot[i])
                    slot[i] = r.randrange(self.dims.value(axis))
        indices = list(known)
        r.shuffle(indices)
        reducible = [i for i in indices if known[i] != BATCH]
        text = r.choice(texts[len(operands)])
        functions = {"{0}": lambda c, x: x, "tanh({0})": lambda c, x: np.tanh(x), "{0} * {0}": lambda c, x: x * x,
                     "{0} * {1}": lambda c, x, y: x * y, "{0} + {1}": lambda c, x, y: x + y,
                     "{0} * tanh({1})": lambda c, x, y: x * np.tanh(y), "{0} - {1}": lambda c, x, y: x - y,
                     "max({0}, {1})": lambda c, x, y: elementwise.above(c, x, y, x, y),
                     "{0} * {1} + {2}": lambda c, x, y, z: x * y + z, "{0} * {1} * {2}": lambda c, x, y, z: x * y * z}
        function = functions[text]
        if reducible and (r.random() < 0.6 or len(indices) > 4):
            bound = r.sample(reducible, min(len(reducible), max(len(indices) - 4, r.randint(1, 2))))
            kind = r.choice(["sum"] * 3 + ["mean"] * 3 + ["max", "min", "prod"])
            out = [i for i in indices if i not in bound]
            text = text if "+" not in text and "-" not in text else "(%s)" % text
            scale = r.choice(["", "", "0.5774", "0.1"])
            return self.add(elementwise.IndexNotation(text, function, slots, out, bound, kind, scale), operands)
        return self.add(elementwise.IndexNotation(text, function, slots, indices), operands)

    def permuted(self):
        """The axes in another order, the batch among them."""
        x = self.pick(lambda n: len(n.type.axes) > 1)
        names = ["k%d" % i for i in range(len(x.type.axes))]
        return self.add(elementwise.IndexNotation("{0}", lambda c, v: v, [names], self.rng.sample(names, len(names))), [x])

    def matmul(self):
        r = self.rng
        x = self.pick(lambda n: len(n.type.axes) > 1)
        turned = r.random() < 0.3
        inner = x.type.axes[-2] if turned else x.type.axes[-1]
        if r.random() < 0.25:  # with itself
            return self.add(elementwise.MatMul(turned, not turned), [x, x])
        known = [n for n in self.pool if n.type.dtype == "f32" and inner in n.type.axes[-2:] and len(n.type.axes) > 1]
        y = r.choice(known) if known and r.random() < 0.4 else self.param(r.sample([inner, self.some_dim()], 2))
        return self.add(elementwise.MatMul(turned, y.type.axes[-1] == inner and y.type.axes[-2] != inner), [x, y])

    def softmax(self):
        x = self.pick()
        return self.add(rows.Softmax(self.axis(x) if self.rng.random() < 0.5 else -1, self.rng.random() < 0.4), [x])

    def reduction(self):
        r, x = self.rng, self.pick(lambda n: len(n.type.axes) > 0)
        axes = [a for a in x.type.axes if a != BATCH]
        chosen = r.sample(axes, r.randint(1, len(axes))) if axes else []
        if not chosen:
            raise Invalid("no axis")
        if r.random() < 0.3:
            mask = self.mask(x)
            return self.add(elementwise.SizeReduction(r.choice(["sum", "mean"]), chosen), [x, mask])
        return self.add(elementwise.SizeReduction(r.choice(["sum", "mean", "mean", "max", "min", "prod"]), chosen), [x])

    def mask(self, x):
        """A bool value of the shape of x."""
        known = [n for n in self.pool if n.type.dtype == "bool" and n.type.axes == x.type.axes]
        same = [n for n in self.pool if n.type.axes == x.type.axes and n.type.dtype == "i32"]
        if known and self.rng.random() < 0.7:
            return self.rng.choice(known)
        if same:
            return self.add(shapes.Compare(self.rng.choice([">", "!=", "<"]), self.rng.randint(0, 1)), [self.rng.choice(same)])
        text = self.rng.choice(list(elementwise.TO_BOOL))
        y = self.rng.choice([n for n in self.pool if n.type == x.type and n is not x] + [self.param([])])
        return self.add(elementwise.Elementwise(text, elementwise.TO_BOOL[text], "bool"), [x, y])

    def masked(self):
        x = self.pick(lambda n: len(n.type.axes) > 0)
        y = self.rng.choice([n for n in self.pool if n.type == x.type and n is not x] or [x])
        mask = self.mask(x)
        if self.rng.random() < 0.3:
            axes = [mask.type.axes[self.axis(mask)]]
            mask = self.add(elementwise.SizeReduction(self.rng.choice(["any", "all"]), axes), [mask])
        if mask.type.axes == x.type.axes and self.rng.random() < 0.8:
            return self.add(shapes.Where(), [mask, x, y])
        return self.add(shapes.ToFloat(), [mask])
