"""Ops that move values: transposed, reshaped, cut, joined, gathered, drawn."""
import numpy as np

from .elementwise import Op
from .graph import BATCH, Invalid, Type


class Transpose(Op):
    def expression(self, arguments, mark, node):
        return arguments[0] + "'"

    def result(self, dims, types):
        axes = types[0].axes
        if len(axes) < 2:
            raise Invalid("rank")
        return Type("f32", axes[:-2] + (axes[-1], axes[-2]))

    def value(self, context, node, values):
        return np.swapaxes(values[0], -1, -2)


class Reshape(Op):
    """Merges the axes first .. last to one, or puts an axis of one element at a place."""

    def __init__(self, first, last=None):
        self.first, self.last = first, last

    def expression(self, arguments, mark, node):
        return "reshape[%s](%s)" % (", ".join(node.type.axes), arguments[0])

    def result(self, dims, types):
        axes = types[0].axes
        if self.first > len(axes) or (self.last is not None and self.last >= len(axes)):
            raise Invalid("rank")
        if self.last is None:
            return Type("f32", axes[:self.first] + ("1",) + axes[self.first:])
        part = axes[self.first:self.last + 1]
        if BATCH in part or len(part) < 2:
            raise Invalid("a merge with the batch")
        if all(a.isdigit() for a in part):
            raise Invalid("numerals")
        return Type("f32", axes[:self.first] + (dims.derive(" * ".join(part)),) + axes[self.last + 1:])

    def value(self, context, node, values):
        return values[0].reshape(node.type.shape(context.dims))


class Split(Op):
    """An axis of `outer * inner` elements becomes two."""

    def __init__(self, axis, outer, inner):
        self.axis, self.outer, self.inner = axis, outer, inner

    def expression(self, arguments, mark, node):
        return "reshape[%s](%s)" % (", ".join(node.type.axes), arguments[0])

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or axes[self.axis] == BATCH or (
                dims.value(axes[self.axis]) != dims.value(self.outer) * dims.value(self.inner)):
            raise Invalid("split")
        return Type("f32", axes[:self.axis] + (self.outer, self.inner) + axes[self.axis + 1:])

    def value(self, context, node, values):
        return values[0].reshape(node.type.shape(context.dims))


class Slice(Op):
    """begin and end are counted from the two ends: x[.., 1:I - 2]; without an end a constant index, the axis goes."""

    def __init__(self, axis, begin, end=None):
        self.axis, self.begin, self.end = axis, begin, end

    def expression(self, arguments, mark, node):
        axes = node.operands[0].type.axes
        slots = [":"] * len(axes)
        name = axes[self.axis]
        if self.end is None:
            slots[self.axis] = str(self.begin)
        else:
            slots[self.axis] = "%s:%s" % (self.begin or "", name + (" - %d" % self.end if self.end else ""))
        if self.axis == len(axes) - 1 and len(axes) > 2:
            slots = ["..", slots[-1]]
        return "%s[%s]" % (arguments[0], ", ".join(slots))

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or axes[self.axis] == BATCH or axes[self.axis].isdigit():
            raise Invalid("slice")
        size = dims.value(axes[self.axis])
        if self.end is None:
            if self.begin >= size:
                raise Invalid("index")
            return Type("f32", axes[:self.axis] + axes[self.axis + 1:])
        if size - self.begin - self.end < 1:
            raise Invalid("empty")
        cut = self.begin + self.end
        left = dims.derive("%s - %d" % (axes[self.axis], cut)) if cut else axes[self.axis]
        return Type("f32", axes[:self.axis] + (left,) + axes[self.axis + 1:])

    def value(self, context, node, values):
        slots = [slice(None)] * values[0].ndim
        slots[self.axis] = self.begin if self.end is None else slice(self.begin, values[0].shape[self.axis] - self.end)
        return values[0][tuple(slots)]


class Pad(Op):
    def __init__(self, axis, before, after, with_value):
        self.axis, self.before, self.after, self.with_value = axis, before, after, with_value

    def expression(self, arguments, mark, node):
        return "pad(%s, %d, %d, axis = %d%s)" % (
            arguments[0], self.before, self.after, self.axis, ", value = %g" % self.with_value if self.with_value else "")

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or axes[self.axis] == BATCH or axes[self.axis].isdigit():
            raise Invalid("pad")
        more = dims.derive("%s + %d" % (axes[self.axis], self.before + self.after))
        return Type("f32", axes[:self.axis] + (more,) + axes[self.axis + 1:])

    def value(self, context, node, values):
        widths = [(0, 0)] * values[0].ndim
        widths[self.axis] = (self.before, self.after)
        return np.pad(values[0], widths, constant_values=self.with_value)


class Concat(Op):
    def __init__(self, axis):
        self.axis = axis

    def expression(self, arguments, mark, node):
        return "concat(%s, axis = %d)" % (", ".join(arguments), self.axis)

    def result(self, dims, types):
        sizes = [t.axes[self.axis] for t in types if len(t.axes) > self.axis]
        rest = {t.axes[:self.axis] + t.axes[self.axis + 1:] for t in types}
        if len(sizes) != len(types) or len(rest) != 1 or BATCH in sizes or all(s.isdigit() for s in sizes):
            raise Invalid("concat")
        whole = dims.derive(" + ".join(sizes))
        return Type("f32", types[0].axes[:self.axis] + (whole,) + types[0].axes[self.axis + 1:])

    def value(self, context, node, values):
        return np.concatenate(values, self.axis)


class Reverse(Op):
    def __init__(self, axis):
        self.axis = axis

    def expression(self, arguments, mark, node):
        return "reverse(%s, axis = %d)" % (arguments[0], self.axis)

    def result(self, dims, types):
        if self.axis >= len(types[0].axes) or types[0].axes[self.axis] == BATCH:
            raise Invalid("reverse")
        return Type("f32", types[0].axes)

    def value(self, context, node, values):
        return np.flip(values[0], self.axis)


class Expand(Op):
    """Leading axes are added, an axis of one element is stretched."""

    def __init__(self, lead, stretched=None):
        self.lead, self.stretched = tuple(lead), stretched

    def expression(self, arguments, mark, node):
        return "expand[%s](%s)" % (", ".join(node.type.axes), arguments[0])

    def result(self, dims, types):
        axes = types[0].axes
        if self.stretched:
            axes = tuple(self.stretched if axis == "1" else axis for axis in axes)
        made = self.lead + axes
        if made.count(BATCH) > 1 or (self.stretched == BATCH):
            raise Invalid("expand")
        return Type("f32", made)

    def value(self, context, node, values):
        return np.broadcast_to(values[0], node.type.shape(context.dims))


class Gather(Op):
    """x[:, ids]: the axes of ids stand where the axis was."""

    def __init__(self, axis):
        self.axis = axis

    def expression(self, arguments, mark, node):
        return "%s[%s]" % (arguments[0], ", ".join([":"] * self.axis + [arguments[1]]))

    def result(self, dims, types):
        axes = types[0].axes
        if self.axis >= len(axes) or axes[self.axis] == BATCH or types[1].below != axes[self.axis]:
            raise Invalid("gather")
        made = axes[:self.axis] + types[1].axes + axes[self.axis + 1:]
        if made.count(BATCH) > 1:
            raise Invalid("batch twice")
        return Type("f32", made)

    def value(self, context, node, values):
        return np.take(values[0], values[1], axis=self.axis)


class Range(Op):
    """f32(range[I]) of a size, scaled to stay small."""

    def __init__(self, name):
        self.name = name

    def expression(self, arguments, mark, node):
        return "f32(range[%s]) / %s" % (self.name, self.name)

    def result(self, dims, types):
        if self.name == BATCH:
            raise Invalid("range of the batch")
        return Type("f32", [self.name])

    def value(self, context, node, values):
        return np.arange(context.size(self.name)) / context.size(self.name)


class RangeIndex(Op):
    """range[I]: i32 below I."""

    def __init__(self, name):
        self.name = name

    def expression(self, arguments, mark, node):
        return "range[%s]" % self.name

    def result(self, dims, types):
        return Type("i32", [self.name], self.name)

    def value(self, context, node, values):
        return np.arange(context.size(self.name))


class Compare(Op):
    """i32 data beside a number: bool."""

    def __init__(self, sign, number):
        self.sign, self.number = sign, number

    def expression(self, arguments, mark, node):
        return "%s %s %d" % (arguments[0], self.sign, self.number)

    def result(self, dims, types):
        if types[0].dtype != "i32":
            raise Invalid("dtype")
        return Type("bool", types[0].axes)

    def value(self, context, node, values):
        return {"==": np.equal, "!=": np.not_equal, ">": np.greater, "<": np.less}[self.sign](values[0], self.number)


class Where(Op):
    """where(mask, x, y), all of one shape."""

    def expression(self, arguments, mark, node):
        return "where(%s)" % ", ".join(arguments)

    def result(self, dims, types):
        if types[0].dtype != "bool" or any(t.axes != types[0].axes for t in types):
            raise Invalid("where")
        return Type("f32", types[0].axes)

    def value(self, context, node, values):
        return np.where(*values)


class ToFloat(Op):
    def expression(self, arguments, mark, node):
        return "f32(%s)" % arguments[0]

    def result(self, dims, types):
        if types[0].dtype == "f32":
            raise Invalid("dtype")
        return Type("f32", types[0].axes)

    def value(self, context, node, values):
        return np.asarray(values[0], np.float64)
