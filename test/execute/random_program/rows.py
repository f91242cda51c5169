"""Ops over rows, attention, layers of the prelude and of the file."""
import pathlib

import numpy as np

from .elementwise import Op
from .graph import BATCH, Invalid, Type
from .text import number_calls


def log_softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


class Softmax(Op):
    def __init__(self, axis, log=False):
        self.axis, self.log = axis, log

    def expression(self, arguments, mark, node):
        return "%ssoftmax(%s%s)" % ("log_" * self.log, arguments[0], ", axis = %d" % self.axis if self.axis >= 0 else "")

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or not axes or axes[self.axis] == BATCH:
            raise Invalid("softmax")
        return Type("f32", axes)

    def value(self, context, node, values):
        found = log_softmax(values[0], self.axis)
        return found if self.log else np.exp(found)


class ArgMax(Op):
    """i32 below the axis."""

    def __init__(self, axis, least=False):
        self.axis, self.least = axis, least

    def expression(self, arguments, mark, node):
        return "arg%s(%s, axis = %d)" % ("min" if self.least else "max", arguments[0], self.axis)

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or axes[self.axis] == BATCH or axes[self.axis].isdigit():
            raise Invalid("argmax")
        return Type("i32", axes[:self.axis] + axes[self.axis + 1:], axes[self.axis])

    def value(self, context, node, values):
        x = -values[0] if self.least else values[0]
        ordered = np.sort(x, self.axis)
        last = np.take(ordered, -1, self.axis)
        found = np.argmax(x, self.axis)
        context.note(found, last - np.take(ordered, -2, self.axis) if x.shape[self.axis] > 1 else None)
        return found


class CrossEntropy(Op):
    def __init__(self, axis, smooth=0.0):
        self.axis, self.smooth = axis, smooth

    def expression(self, arguments, mark, node):
        more = ", axis = %d" % self.axis if self.axis >= 0 else ""
        return "cross_entropy(%s, %s%s%s)" % (*arguments, more, ", smooth = %g" % self.smooth if self.smooth else "")

    def result(self, dims, types):
        axes, at = types[0].axes, self.axis % max(len(types[0].axes), 1)
        if self.axis >= len(axes) or not axes or axes[at] == BATCH or types[1].below != axes[at] or (
                types[1].axes != axes[:at] + axes[at + 1:]):
            raise Invalid("cross_entropy")
        return Type("f32", types[1].axes)

    def value(self, context, node, values):
        x = np.moveaxis(log_softmax(values[0], self.axis), self.axis, -1)
        picked = np.take_along_axis(x, values[1][..., None].astype(int), -1)[..., 0]
        return -((1 - self.smooth) * picked + self.smooth * x.mean(-1))


class OneHot(Op):
    def expression(self, arguments, mark, node):
        return "one_hot[%s](%s)" % (node.type.axes[-1], arguments[0])

    def result(self, dims, types):
        if types[0].dtype != "i32" or not types[0].below:
            raise Invalid("one_hot")
        return Type("f32", types[0].axes + (types[0].below,))

    def value(self, context, node, values):
        return (values[0][..., None] == np.arange(context.size(node.type.axes[-1]))) * 1.0


class Kl(Op):
    def expression(self, arguments, mark, node):
        return "kl(log_softmax(%s), log_softmax(%s))" % tuple(arguments)

    def result(self, dims, types):
        if types[0] != types[1] or not types[0].axes or types[0].axes[-1] == BATCH:
            raise Invalid("kl")
        return Type("f32", types[0].axes[:-1])

    def value(self, context, node, values):
        p, q = (log_softmax(v) for v in values)
        return (np.exp(p) * (p - q)).sum(-1)


class Rope(Op):
    def expression(self, arguments, mark, node):
        return "rope(%s)" % arguments[0]

    def result(self, dims, types):
        axes = types[0].axes
        if len(axes) < 2 or BATCH in axes[-2:] or dims.value(axes[-1]) % 2:
            raise Invalid("rope")
        return Type("f32", axes)

    def value(self, context, node, values):
        x = values[0]
        half = x.shape[-1] // 2
        angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-2 * np.arange(half) / x.shape[-1])
        c, s, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)


class SwiGLU(Op):
    """The gate is the first half of the last axis, whose name says that it is twice another."""

    def __init__(self, half):
        self.half = half

    def expression(self, arguments, mark, node):
        return "swiglu(%s)" % arguments[0]

    def result(self, dims, types):
        axes = types[0].axes
        if not axes or BATCH == axes[-1] or dims.form(axes[-1]) != 2 * dims.form(self.half):
            raise Invalid("swiglu")
        return Type("f32", axes[:-1] + (self.half,))

    def value(self, context, node, values):
        a, b = np.split(values[0], 2, -1)
        return a / (1 + np.exp(-a)) * b


class Attend(Op):
    """q [.., A, T, K], k [.., G, S, K], v [.., G, S, E]; keys bool[.., S] and bias [A, T, S] if they are there."""

    def __init__(self, causal=False, scale=None, rate=0.0, keys=False, bias=False):
        self.causal, self.scale, self.rate, self.keys, self.bias = causal, scale, rate, keys, bias
        self.draws = rate > 0

    def expression(self, arguments, mark, node):
        rest = list(arguments[3:])
        words = list(arguments[:3])
        if self.keys:
            words.append("keys = " + rest.pop(0))
        if self.bias:
            words.append("bias = " + rest.pop(0))
        words += ["causal = true"] * self.causal
        words += ["scale = %g" % self.scale] if self.scale else []
        words += ["dropout = %g" % self.rate] if self.rate else []
        return "%sattend(%s)" % (mark, ", ".join(words))

    def result(self, dims, types):
        q, k, v = (t.axes for t in types[:3])
        if min(len(q), len(k), len(v)) < 3 or BATCH in q[-3:] + k[-3:] + v[-3:]:
            raise Invalid("attend")
        if q[:-3] != k[:-3] or k[:-1] != v[:-1] or q[-1] != k[-1] or dims.value(q[-3]) % dims.value(k[-3]):
            raise Invalid("attend")
        if self.causal and q[-2] != k[-2]:
            raise Invalid("causal")
        rest = list(types[3:])
        if self.keys and (rest[0].dtype, rest.pop(0).axes) != ("bool", q[:-3] + (k[-2],)):
            raise Invalid("keys")
        if self.bias and rest.pop(0).axes != (q[-3], q[-2], k[-2]):
            raise Invalid("bias")
        return Type("f32", q[:-1] + (v[-1],))

    def value(self, context, node, values):
        q, k, v = values[:3]
        rest = list(values[3:])
        keys = rest.pop(0) if self.keys else None
        if keys is not None and not keys.any(-1).all():
            raise Invalid("a row that attends to nothing")
        bias = rest.pop(0) if self.bias else 0.0
        return attended(context, node.type, [getattr(node, "number", 0)], q, k, v, keys, bias, self.causal, self.scale, self.rate)


def written_out():
    """The calls from `attend_written` of the prelude to the numbers that its dropout draws."""
    prelude = pathlib.Path(__file__).resolve().parents[3] / "compiler/frontend/prelude.cinch"
    body = prelude.read_text().split("layer attend_written", 1)[1].split("\n}", 1)[0].split("{\n", 1)[1]
    return [number_calls([line.strip() for line in body.replace("dropout(", "§0§dropout(").split("\n")])[0], 1]


LARGEST_SCORE = 1e5  # beyond it rounding of the scores, in f64, shows in loss and gradients: like a kink, no case to compare


def attended(context, type_, number, q, k, v, keys, bias, causal, scale, rate):
    group = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / np.sqrt(q.shape[-1])) + bias
    if np.abs(scores).max() > LARGEST_SCORE:
        context.margin = 0.0
    allowed = np.ones(scores.shape[-2:], bool)
    if causal:
        allowed = np.tril(allowed)
    allowed = np.broadcast_to(allowed, scores.shape)
    if keys is not None:
        allowed = allowed & keys[..., None, None, :]
    if not allowed.any(-1).all():
        raise Invalid("a row that attends to nothing")
    shares = np.exp(log_softmax(np.where(allowed, scores, -1e300)))
    if rate:
        lead = shares.shape
        names = list(type_.axes[:-1]) + ["S"]
        batch = names.index(BATCH) if BATCH in names else -1
        kept = context.draw("kept", Drawn(lead, batch), [*number, *(written_out() if context.loops else [])], 1 - rate)
        shares = np.where(kept, shares / (1 - rate), 0)
    return shares @ v


class Drawn:
    """A shape to draw for, without names."""

    def __init__(self, shape, batch):
        self._shape, self.batch = shape, batch

    def shape(self, dims):
        return self._shape
