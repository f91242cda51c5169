"""Element-wise ops, index notation, matrix products, reductions."""
import numpy as np

from .graph import BATCH, Invalid, Type

erf = np.vectorize(__import__("math").erf, otypes=[np.float64])


class Op:
    """An op of a statement `v = expression`; what differs is overridden."""

    takes_expressions = True  # its operands may be written in place
    is_expression = True
    draws = False

    def expression(self, arguments, mark, node):
        raise NotImplementedError

    def result(self, dims, types):
        raise NotImplementedError

    def value(self, context, node, values):
        raise NotImplementedError


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def above(c, x, limit, then, otherwise):
    return np.where(c.greater(x, limit), then, otherwise)


def floor(c, x):
    c.note(np.floor(x), np.abs(x - np.round(x)))
    return np.floor(x)


# text -> value; {0} {1} are operands. Those of one operand are f32 -> f32.
UNARY = {
    "tanh({0})": lambda c, x: np.tanh(x),
    "exp(0.5 * {0})": lambda c, x: np.exp(0.5 * x),
    "expm1(0.3 * {0})": lambda c, x: np.expm1(0.3 * x),
    "log({0} ^ 2 + 0.5)": lambda c, x: np.log(x**2 + 0.5),
    "log1p({0} ^ 2)": lambda c, x: np.log1p(x**2),
    "sqrt({0} ^ 2 + 0.3)": lambda c, x: np.sqrt(x**2 + 0.3),
    "sin({0})": lambda c, x: np.sin(x),
    "cos({0})": lambda c, x: np.cos(x),
    "erf({0})": lambda c, x: erf(x),
    "sigmoid({0})": lambda c, x: sigmoid(x),
    "softplus({0})": lambda c, x: softplus(x),
    "abs({0})": lambda c, x: above(c, x, 0.0, x, -x),
    "floor({0}) * {0}": lambda c, x: floor(c, x) * x,
    "stop_gradient({0}) + {0}": lambda c, x: c.stopped(x) + x,
    "relu({0})": lambda c, x: above(c, x, 0.0, x, 0.0),
    "relu6(3 * {0})": lambda c, x: above(c, above(c, 3 * x, 0.0, 3 * x, 0.0), 6.0, 6.0, above(c, 3 * x, 0.0, 3 * x, 0.0)),
    "leaky_relu({0})": lambda c, x: above(c, x, 0.0, x, 0.01 * x),
    "elu({0})": lambda c, x: above(c, x, 0.0, x, np.expm1(np.minimum(x, 0))),
    "gelu({0})": lambda c, x: gelu(x),
    "gelu_tanh({0})": lambda c, x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu({0})": lambda c, x: x * sigmoid(x),
    "mish({0})": lambda c, x: x * np.tanh(softplus(x)),
    "hard_sigmoid({0})": lambda c, x: above(c, np.abs(x), 3.0, np.where(x > 0, 1.0, 0.0), x / 6 + 0.5),
    "{0} ^ 2": lambda c, x: x**2,
    "{0} ^ 3": lambda c, x: x**3,
    "2 ^ {0}": lambda c, x: 2.0**x,
    "({0} ^ 2 + 0.3) ^ 0.7": lambda c, x: (x**2 + 0.3) ** 0.7,
    "1 / (1 + {0} ^ 2)": lambda c, x: 1 / (1 + x**2),
    "0.5 * {0}": lambda c, x: 0.5 * x,
    "{0} / 3": lambda c, x: x / 3,
    "{0} + 0.25": lambda c, x: x + 0.25,
    "1 - {0}": lambda c, x: 1 - x,
    "-{0}": lambda c, x: -x,
    "max({0}, 0.1)": lambda c, x: above(c, x, 0.1, x, 0.1),
    "min({0}, 0.3)": lambda c, x: above(c, x, 0.3, 0.3, x),
    "where({0} > 0.1, {0} * {0}, 3 * {0})": lambda c, x: above(c, x, 0.1, x * x, 3 * x),
    "where(not ({0} > 0.1) and {0} > -2, {0}, -{0})": lambda c, x: np.where(~c.greater(x, 0.1) & c.greater(x, -2.0), x, -x),
    "f32({0} > 0.2) * {0}": lambda c, x: c.greater(x, 0.2) * x,
}
BINARY = {
    "{0} + {1}": lambda c, x, y: x + y,
    "{0} - {1}": lambda c, x, y: x - y,
    "{0} * {1}": lambda c, x, y: x * y,
    "{0} / (1.5 + tanh({1}))": lambda c, x, y: x / (1.5 + np.tanh(y)),
    "{0} * sigmoid({1})": lambda c, x, y: x * sigmoid(y),
    "{0} * tanh({1}) + {0}": lambda c, x, y: x * np.tanh(y) + x,
    "max({0}, {1})": lambda c, x, y: above(c, x, y, x, y),
    "min({0}, {1})": lambda c, x, y: above(c, x, y, y, x),
    "where({0} > {1}, {0}, {1} * 0.5)": lambda c, x, y: above(c, x, y, x, y * 0.5),
    "sqrt({0} ^ 2 + {1} ^ 2 + 0.1)": lambda c, x, y: np.sqrt(x**2 + y**2 + 0.1),
    "({0} ^ 2 + 0.2) ^ tanh({1})": lambda c, x, y: (x**2 + 0.2) ** np.tanh(y),
}
# Layers of the prelude: both of one shape.
ALIKE = {
    "squared_error({0}, {1})": lambda c, x, y: (x - y) ** 2,
    "absolute_error({0}, {1})": lambda c, x, y: above(c, x, y, x - y, y - x),
    "huber({0}, {1})": lambda c, x, y: above(c, np.abs(x - y), 1.0, np.abs(x - y) - 0.5, 0.5 * (x - y) ** 2)
    + 0 * above(c, x, y, x, y),
    "bce_with_logits({0}, {1})": lambda c, x, y: softplus(x) - x * y,
    "kl_normal({0}, {1})": lambda c, x, y: 0.5 * (x**2 + np.exp(y) - 1 - y),
}
TO_BOOL = {
    "{0} > {1}": lambda c, x, y: c.greater(x, y),
    "{0} <= {1}": lambda c, x, y: ~c.greater(x, y),
}
FORMULAS = {**UNARY, **BINARY, **ALIKE}


class Elementwise(Op):
    """The axes of the shorter operand are the last ones of the longer."""

    def __init__(self, text, function, kind="f32", alike=False):
        self.text, self.function, self.kind, self.alike = text, function, kind, alike

    def expression(self, arguments, mark, node):
        return self.text.format(*arguments)

    def result(self, dims, types):
        longest = max(types, key=lambda t: len(t.axes))
        for t in types:
            if longest.axes[len(longest.axes) - len(t.axes):] != t.axes or (self.alike and t.axes != longest.axes):
                raise Invalid("axes")
        return Type(self.kind, longest.axes)

    def value(self, context, node, values):
        return self.function(context, *values) + np.zeros(node.type.shape(context.dims), bool)


class IndexNotation(Op):
    """v[out] = reduction[bound] f(a[slots], ..): a slot is an index, a constant, or i32 data indexed itself (a gather)."""

    takes_expressions = is_expression = False

    def __init__(self, text, function, slots, out, bound=(), reduction=None, scale=""):
        self.text, self.function, self.slots = text, function, slots  # one list an operand, None for a gather's index
        self.out, self.bound, self.reduction, self.scale = list(out), list(bound), reduction, scale

    def indices(self, types):
        """{index: size name}."""
        found = {}

        def meet(index, axis):
            if found.setdefault(index, axis) != axis:
                raise Invalid("two sizes of an index")

        for slots, t in zip(self.slots, types):
            if slots is None:
                continue
            if len(slots) != len(t.axes):
                raise Invalid("slots")
            for slot, axis in zip(slots, t.axes):
                if isinstance(slot, str):
                    meet(slot, axis)
                elif isinstance(slot, tuple):
                    ids = types[slot[0]]
                    if ids.below != axis or len(slot[1]) != len(ids.axes):
                        raise Invalid("gather")
                    for index, inner in zip(slot[1], ids.axes):
                        meet(index, inner)
                elif axis == BATCH:
                    raise Invalid("a constant index of the batch")
        return found

    def result(self, dims, types):
        found = self.indices(types)
        if set(found) != set(self.out) | set(self.bound) or list(found.values()).count(BATCH) > 1:
            raise Invalid("indices")
        if any(found[index] == BATCH for index in self.bound):
            raise Invalid("a sum over the batch")
        if np.prod([float(dims.value(axis)) for axis in found.values()]) > 60000:
            raise Invalid("too large")
        for slots, t in zip(self.slots, types):
            for slot, axis in zip(slots or [], t.axes):
                if isinstance(slot, int) and slot >= dims.value(axis):
                    raise Invalid("a constant index beyond")
        return Type("f32", [found[index] for index in self.out])

    def line(self, name, arguments, mark, node):
        def operand(i):
            def slot(s):
                return "%s[%s]" % (arguments[s[0]], ", ".join(s[1])) if isinstance(s, tuple) else str(s)

            return "%s[%s]" % (arguments[i], ", ".join(map(slot, self.slots[i]))) if self.slots[i] else arguments[i]

        body = self.text.format(*[operand(i) if s is not None else "" for i, s in enumerate(self.slots)])
        if self.reduction:
            body = "%s[%s] %s" % (self.reduction, ", ".join(self.bound), body)
        if self.scale:
            body = "%s * (%s)" % (self.scale, body)
        return "%s[%s] = %s" % (name, ", ".join(self.out), body) if self.out else "%s = %s" % (name, body)

    def value(self, context, node, values):
        types = [operand.type for operand in node.operands]
        found = self.indices(types)
        order = self.out + self.bound
        sizes = [context.size(found[index]) for index in order]
        grid = dict(zip(order, np.ogrid[tuple(slice(0, s) for s in sizes)] if order else []))
        parts = []
        for slots, value in zip(self.slots, values):
            if slots is None:
                continue
            places = [values[s[0]][tuple(grid[i] for i in s[1])] if isinstance(s, tuple) else grid[s] if isinstance(s, str) else s
                      for s in slots]
            parts.append(value[tuple(places)])
        whole = np.broadcast_to(self.function(context, *parts), sizes)
        if self.reduction:
            whole = reduce(context, self.reduction, whole, tuple(range(len(self.out), len(order))))
        return whole * (float(self.scale) if self.scale else 1.0)


def reduce(context, kind, x, axes):
    if not axes:
        return x
    if kind in ("max", "min"):
        moved = np.moveaxis(x, axes, range(len(axes)))
        flat = np.sort((moved if kind == "max" else -moved).reshape((-1,) + moved.shape[len(axes):]), axis=0)
        raw = (moved if kind == "max" else -moved).reshape((-1,) + moved.shape[len(axes):])
        context.note(np.argmax(raw, axis=0), flat[-1] - flat[-2] if len(flat) > 1 else None)
    return getattr(np, kind)(x, axes)


class SizeReduction(Op):
    """sum[I, J] x, with a mask: mean[I where m] x."""

    def __init__(self, kind, axes):
        self.kind, self.axes = kind, axes

    def expression(self, arguments, mark, node):
        where = " where " + arguments[1] if len(arguments) > 1 else ""
        return "%s[%s%s] %s" % (self.kind, ", ".join(self.axes), where, arguments[0])

    def result(self, dims, types):
        axes = types[0].axes
        if any(axes.count(a) != 1 or a == BATCH or a.isdigit() for a in self.axes):
            raise Invalid("axes of a reduction")
        if len(types) > 1 and (types[1].dtype, types[1].axes) != ("bool", axes):
            raise Invalid("mask")
        if types[0].dtype == "bool" and self.kind in ("any", "all"):
            return Type("bool", [a for a in axes if a not in self.axes])
        if types[0].dtype != "f32" or self.kind in ("any", "all"):
            raise Invalid("dtype")
        return Type("f32", [a for a in axes if a not in self.axes])

    def value(self, context, node, values):
        axes = tuple(node.operands[0].type.axes.index(a) for a in self.axes)
        if len(values) == 1:
            return reduce(context, self.kind, values[0], axes)
        total = np.where(values[1], values[0], 0).sum(axes)
        return total / np.maximum(values[1].sum(axes), 1) if self.kind == "mean" else total


class MatMul(Op):
    """a @ b, the second or the first transposed; leading axes of the shorter are the last of the longer's."""

    def __init__(self, left, right):
        self.left, self.right = left, right  # transposed?

    def expression(self, arguments, mark, node):
        return "%s%s @ %s%s" % (arguments[0], "'" * self.left, arguments[1], "'" * self.right)

    def result(self, dims, types):
        turned = []
        for t, turn in zip(types, (self.left, self.right)):
            if len(t.axes) < 2:
                raise Invalid("rank")
            turned.append(t.axes[:-2] + (t.axes[:-3:-1] if turn else t.axes[-2:]))
        a, b = turned
        if a[-1] != b[-2] or a[-1] == BATCH or (a[-2] == BATCH and b[-1] == BATCH):
            raise Invalid("inner")
        lead = max(a[:-2], b[:-2], key=len)
        for axes in (a[:-2], b[:-2]):
            if lead[len(lead) - len(axes):] != axes:
                raise Invalid("leading")
        made = lead + (a[-2], b[-1])
        if made.count(BATCH) > 1 or (BATCH in lead and BATCH in (a[-2], b[-1])):
            raise Invalid("batch twice")
        return Type("f32", made)

    def value(self, context, node, values):
        a, b = (np.swapaxes(v, -1, -2) if turn else v for v, turn in zip(values, (self.left, self.right)))
        return a @ b
