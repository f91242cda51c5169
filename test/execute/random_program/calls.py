"""Calls of instances: layers of the prelude that own parameters, and layers of the file."""
import numpy as np

from .elementwise import Op, gelu
from .graph import BATCH, Instance, Invalid, Type, evaluate
from .rows import attended


def linear(context, path, x, bias=True):
    y = x @ context.parameters[path + ".weight"].T
    return y + context.parameters[path + ".bias"] if bias else y


def norm(context, path, x, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    c = c / np.sqrt((c**2).mean(-1, keepdims=True) + eps)
    return c * context.parameters[path + ".weight"] + context.parameters[path + ".bias"]


def heads(context, path, chain, x, count, causal, rate, axes, keys=None):
    """multi_head_attention; `chain`: the calls to its body."""
    width = x.shape[-1]
    h = linear(context, path + ".qkv", x).reshape(x.shape[:-1] + (3, count, width // count))
    q, k, v = (np.swapaxes(h[..., j, :, :], -2, -3) for j in range(3))
    before = context.inside("", chain)
    out = attended(context, Type("f32", axes[:-2] + ("A",) + axes[-2:]), [2], q, k, v, keys, 0.0, causal, None, rate)
    context.leave(before)
    return linear(context, path + ".out", np.swapaxes(out, -2, -3).reshape(x.shape))


def dropped(context, chain, x, rate, axes):
    if not rate:
        return x
    return np.where(context.draw("kept", Type("bool", axes), chain, 1 - rate), x / (1 - rate), 0)


def feed_forward(context, path, x):
    return linear(context, path + ".down", gelu(linear(context, path + ".up", x)))


class Call(Op):
    """A call of an instance. Layers of the prelude are evaluated here by kind."""

    draws = True

    def __init__(self, instance, axes=None):
        self.instance, self.options = instance, axes or {}

    def expression(self, arguments, mark, node):
        return "%s%s(%s)" % (mark, self.instance.name, ", ".join(arguments))

    def result(self, dims, types):
        use = self.instance
        if use.body:
            if [t for t in types] != [a.type for a in use.body.arguments]:
                raise Invalid("arguments")
            made = use.body.results[0].type
            if use.repeat and made != types[0]:
                raise Invalid("repeat")
            return made
        axes = types[0].axes
        last = self.options["last"]  # the size that the parameters were made for
        if use.kind == "embedding":
            if types[0].below != self.options["rows"]:
                raise Invalid("embedding")
            return Type("f32", axes + (last,))
        if not axes or axes[-1] != last or axes[-1] == BATCH or (use.kind in ("linear", "feed_forward") and len(axes) < 2):
            raise Invalid("last axis")
        if use.kind in ("heads", "block"):
            # With one position `reshape[.., T, 3, A, D / A]` takes that axis for one of `..`.
            if len(axes) < 2 or axes[-2] == BATCH or dims.value(last) % self.options["heads"] or dims.value(axes[-2]) == 1:
                raise Invalid("heads")
        return Type("f32", axes[:-1] + (self.options.get("out", last),))

    def value(self, context, node, values):
        use, x, number = self.instance, values[0], getattr(node, "number", 0)
        for block in range(use.repeat) if use.repeat else [None]:
            own = block is not None and not use.shared
            if use.shared:
                context.loops.append((block, use.repeat))
            path = "%s.%d" % (use.name, block) if own else use.name
            chain = (number, block) if own else (number,)
            if use.body:
                before = context.inside(path + ".", chain)
                x = evaluate(use.body, [x, *values[1:]], context)[0]
                context.leave(before)
            else:
                x = self.prelude(context, context.prefix + path, chain, x, node.operands[0].type.axes)
            if use.shared:
                context.loops.pop()
        return x

    def prelude(self, context, path, chain, x, axes):
        kind, o = self.instance.kind, self.options
        if kind == "linear":
            return linear(context, path, x, o["bias"])
        if kind == "embedding":
            return context.parameters[path + ".weight"][x]
        if kind == "layer_norm":
            return norm(context, path, x)
        if kind == "rms_norm":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * context.parameters[path + ".weight"]
        if kind == "feed_forward":
            return feed_forward(context, path, x)
        if kind == "heads":
            return heads(context, path, chain, x, o["heads"], o["causal"], o["rate"], axes)
        rate = o["rate"]
        h = heads(context, path + ".attn", chain + (1,), norm(context, path + ".ln1", x), o["heads"], o["causal"], rate, axes)
        m = x + dropped(context, chain + (0, 1), h, rate, axes)
        f = feed_forward(context, path + ".ff", norm(context, path + ".ln2", m))
        return m + dropped(context, chain + (3, 1), f, rate, axes)


class Coupling(Call):
    """A call of a reversible layer, or of a chain of them, whose two results become one."""

    MOST_GROWTH = 1000
    takes_expressions = is_expression = False

    def line(self, name, arguments, mark, node):
        call = super().expression(arguments, mark, node)
        return "%sa, %sb = %s\n  %s = %sa + 0.5 * %sb" % (name, name, call, name, name, name)

    def value(self, context, node, values):
        use, number = self.instance, getattr(node, "number", 0)
        least = min(np.abs(value).max(initial=0) for value in values)
        for block, path in zip(use.blocks(), use.paths("")):
            before = context.inside(path, (number,) if block is None else (number, block))
            values = evaluate(use.body, values, context)
            context.leave(before)
            if not max(np.abs(value).max(initial=0) for value in values) <= self.MOST_GROWTH * least:
                raise Invalid("a stream that grows so much is rebuilt with few digits")
        return values[0] + 0.5 * values[1]


class Scan(Call):
    """scan[T] of an instance of a layer: its first argument is the state."""

    def expression(self, arguments, mark, node):
        start = self.options["start"]
        return "scan[%s] %s%s(%s)" % (self.options["axis"], mark, self.instance.name, ", ".join([start] * (start is not None) + arguments))

    def split(self, values):
        """(state or None, what is cut, what goes to every step)"""
        first = self.options["start"] is None
        return (values[0] if first else None), values[first], values[first + 1:]

    def result(self, dims, types):
        axis, arguments = self.options["axis"], [a.type for a in self.instance.body.arguments]
        state, cut, whole = self.split(types)
        if cut.axes.count(axis) != 1 or axis.isdigit() or any(axis in t.axes for t in whole):
            raise Invalid("what is cut")
        part = Type(cut.dtype, [a for a in cut.axes if a != axis], cut.below)
        made = self.instance.body.results[0].type
        if [arguments[0] if state is None else state, part, *whole] != arguments or made != arguments[0] or made.batch < 0:
            raise Invalid("arguments")
        at = cut.axes.index(axis)
        if at > len(made.axes):
            raise Invalid("no place for the steps")
        return Type("f32", made.axes[:at] + (axis,) + made.axes[at:])

    def value(self, context, node, values):
        use, body = self.instance, self.instance.body
        state, cut, whole = self.split(values)
        at = self.split([o.type for o in node.operands])[1].axes.index(self.options["axis"])
        if state is None:
            state = np.full(body.arguments[0].type.shape(context.dims), float(self.options["start"]))
        found = []
        before = context.inside(use.name + ".", (getattr(node, "number", 0),))
        parts = np.moveaxis(cut, at, 0)
        for trip, part in enumerate(parts):
            context.loops.append((trip, len(parts)))
            state = evaluate(body, [state, part, *whole], context)[0]
            context.loops.pop()
            found.append(state)
        context.leave(before)
        return np.stack(found, at)


def linear_parameters(path, out, inner, bias=True):
    return [(path + "weight", Type("f32", [out, inner]), 0.5)] + ([(path + "bias", Type("f32", [out]), 0.3)] if bias else [])


def norm_parameters(path, size, bias=True):
    return [(path + "weight", Type("f32", [size]), "one")] + ([(path + "bias", Type("f32", [size]), 0.3)] if bias else [])


def prelude_call(dims, kind, axes, rng, width, rows=None):
    """An instance of a layer of the prelude for an operand, and the op that calls it; `width` is a size to go through."""
    last = axes[-1] if axes else None
    options = {"last": last}
    if kind == "linear":
        bias = rng.random() < 0.7
        options.update(out=width, bias=bias)
        words = "" if bias else "(with_bias = false)"
        use = Instance(kind, "linear[%s]%s" % (width, words), linear_parameters("", width, last, bias))
    elif kind == "embedding":
        options.update(last=width, rows=rows)
        use = Instance(kind, "embedding[%s, %s]" % (rows, width), [("weight", Type("f32", [rows, width]), 0.7)])
    elif kind in ("layer_norm", "rms_norm"):
        use = Instance(kind, kind, norm_parameters("", last, kind == "layer_norm"))
    elif kind == "feed_forward":
        inner = linear_parameters("up.", width, last) + linear_parameters("down.", last, width)
        use = Instance(kind, "feed_forward[%s]" % width, inner)
    else:
        count = rng.choice([h for h in (1, 2, 3) if dims.value(last) % h == 0])
        options.update(heads=count, causal=rng.random() < 0.5, rate=rng.choice([0, 0, 0.2]))
        words = ["causal = true"] * options["causal"] + (["rate = %g" % options["rate"]] if options["rate"] else [])
        words = "(%s)" % ", ".join(words) if words else ""
        three = dims.derive("3 * " + last)
        inner = linear_parameters("qkv.", three, last) + linear_parameters("out.", last, last)
        if kind == "heads":
            use = Instance(kind, "multi_head_attention[%d]%s" % (count, words), inner)
        else:
            use = Instance(kind, "transformer_block[%d, %s]%s" % (count, width, words), [
                *norm_parameters("ln1.", last), *norm_parameters("ln2.", last),
                *[("attn." + name, t, s) for name, t, s in inner],
                *linear_parameters("ff.up.", width, last), *linear_parameters("ff.down.", last, width)])
    return use, Call(use, options)
