"""Tensors made of nothing, seen otherwise, cut and put together."""
from .elementwise import chosen
from .node import Refused
from .ops import axis_of, cast, kept, no_examples, op, result_type, type_of
from .values import ATOM, LOGIC, SUM, Joined, Value, elements, is_batch, number_text, size_text


# ---- Made of nothing ----------------------------------------------------------------------------------------------------------
@op("arange")
def arange(e, n, *rest, **more):
    start, end, step = (0, rest[0], 1) if len(rest) == 1 else ([*rest, 1])[:3]
    if start != 0 or step != 1 or is_batch(end):
        raise Refused("`arange` from %s in steps of %s" % (start, step))
    size = n.out["shape"][0]
    if result_type(n) == "f32":
        return Value("f32(range[%d])" % size, [size], "f32")
    return Value("range[%d]" % size, [size], "i32", below=size)


@op("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "scalar_tensor", merged=True)
def filled(e, n, *rest, **more):
    number = 1 if "ones" in n.op else 0 if "zeros" in n.op else rest[0] if "scalar" in n.op else rest[1]
    if isinstance(number, Value):
        raise Refused("`%s` with what is computed" % n.op)
    like = rest[0] if rest and isinstance(rest[0], Value) else Value("", [], "f32")
    shape, dtype = kept(like, n.out["shape"]), result_type(n)
    number = bool(number) if dtype == "bool" else number
    if not shape:
        return number
    if dtype != "i32":
        return Value("expand[%s](%s)" % (", ".join(size_text(s) for s in shape), number_text(number)), shape, dtype, merged=like.merged)
    # A number that fills a shape is f32, or bool; whole numbers come from a count.
    zeros = Value("expand[%s](range[1])" % ", ".join(size_text(s) for s in shape), shape, "i32", below=1, merged=like.merged)
    return zeros if number == 0 else Value("%s + %s" % (zeros.text, number_text(number)), shape, "i32", SUM, merged=like.merged)


@op("tril")
def tril(e, n, x, diagonal=0):
    rows, columns = n.out["shape"][-2:]
    if is_batch(rows) or is_batch(columns):
        raise Refused("`%s` along the examples" % n.op)
    r, c = (e.define("range[%d]" % size, [size], "i32", size) for size in (rows, columns))
    mask = e.by_index([rows, columns], "bool", ["i", "j"], "%s[j] <= %s[i] + %d" % (c.text, r.text, diagonal) if diagonal else "%s[j] <= %s[i]" % (c.text, r.text))
    if x.dtype == "bool":
        return mask if x.rank == 2 and x.text == "expand[%d, %d](true)" % (rows, columns) else e.elementwise(n, "{0} and {1}", [x, mask], LOGIC, "bool")
    return chosen(e, n, mask, x, 0)


# ---- Shape --------------------------------------------------------------------------------------------------------------------
@op("view", "reshape", "flatten", "unsqueeze", "squeeze", "_unsafe_view", "unflatten", merged=True)
def reshape(e, n, x, *rest):
    shape = n.out["shape"]
    if "view.dtype" in n.op:
        raise Refused("`%s`: the same bits as another type" % n.op)
    if isinstance(x, Joined):
        return x if x.shape == shape else e.reshape(x.real, shape)
    if x.merged == 1 and x.shape == shape:
        return x
    flat = x.with_merged(1)  # what PyTorch calls one axis lies as these axes do
    if shape and is_batch(shape[0]) and shape[0]["B"] != 1:  # [B, T, D] seen as [B * T, D]
        lead = joined_axes(x, shape[0]["B"])
        if lead:
            return e.reshape(flat, lead + shape[1:]).with_merged(len(lead))
    for at, size in enumerate(shape):
        if is_batch(size) and size["B"] != 1:  # heads beside the examples, [T, B, A * K] seen as [T, B * A, K]
            return Joined(e.reshape(flat, shape[:at] + [{"B": 1}, size["B"]] + shape[at + 1 :]), at)
    return e.reshape(flat, shape)


def joined_axes(x, count):
    """The axes of x which a view makes one axis of `count` times the examples, or how the axis of the examples and a part of the next do."""
    for end in range(1, x.rank + 1):
        if elements(x.shape[:end]) == count and any(map(is_batch, x.shape[:end])):
            return x.shape[:end]
    return [{"B": 1}, count] if x.rank and is_batch(x.shape[0]) else None


def in_order(e, x, order):
    """Axes of x as PyTorch counts them, in another order."""
    if isinstance(x, Joined):
        return x.moved(e, [axis_of(x, axis) for axis in order])
    if x.merged == 1:
        return e.permute(x, [axis_of(x, axis) for axis in order])
    if order[0] not in (0, -len(order)):
        raise Refused("the axis in which a view joined the examples with another one is moved")
    return e.permute(x.with_merged(1), list(range(x.merged)) + [axis_of(x, axis) for axis in order[1:]]).with_merged(x.merged)


@op("permute", merged=True)
def permute(e, n, x, order):
    return in_order(e, x, order)


@op("transpose", merged=True)
def transpose(e, n, x, a, b):
    order = list(range(x.rank - x.merged + 1))
    order[a], order[b] = order[b], order[a]
    return in_order(e, x, order)


@op("t", "numpy_T", merged=True)
def t(e, n, x):
    return in_order(e, x, list(range(x.rank - x.merged + 1))[::-1])


@op("mT", "adjoint", merged=True)
def last_two(e, n, x):
    return transpose(e, n, x, -1, -2)


def cut(x, axis, slot, shape):
    """x[.., slot, ..]; `shape`: as PyTorch gives it."""
    return sliced(x, axis, slot, kept(x, shape))


def sliced(x, axis, slot, shape):
    text = "%s[%s]" % (x.inside(ATOM), ", ".join([":"] * axis + [slot]))
    if axis == x.rank - 1 and axis > 0:
        text = "%s[.., %s]" % (x.inside(ATOM), slot)
    return Value(text, shape, x.dtype, below=x.below, merged=x.merged)


@op("slice", merged=True)
def slice_(e, n, x, axis=0, start=None, end=None, step=1):
    if kept(x, n.out["shape"]) == x.shape and step == 1:
        return x
    axis = axis_of(x, axis)
    size = x.shape[axis]
    if step != 1 or is_batch(size):
        raise Refused("a slice of the examples" if is_batch(size) else "a slice in steps of %s" % step)
    start = 0 if start is None else max(0, start + size) if start < 0 else start
    shape = kept(x, n.out["shape"])
    if shape[axis] == 0:
        raise Refused("a slice that is empty")
    return cut(x, axis, "%d:%d" % (start, start + shape[axis]), n.out["shape"])


@op("narrow", merged=True)
def narrow(e, n, x, axis, start, length):
    return slice_(e, n, x, axis, start, None)


@op("select", merged=True)
def select(e, n, x, axis, index):
    axis = axis_of(x, axis)
    if is_batch(x.shape[axis]):
        raise Refused("one example is taken out of a batch")
    return cut(x, axis, "%d" % (index if index >= 0 else index + x.shape[axis]), n.out["shape"])


@op("split", "split_with_sizes", "chunk", "unbind", "tensor_split", merged=True)
def split(e, n, x, parts=None, axis=0):
    if "unbind" in n.op:
        parts, axis = None, parts or 0
    axis, x = no_examples(n, x, axis_of(x, axis)), e.named(x)
    values, start = [], 0
    for number, kind in enumerate(n.out):
        if "unbind" in n.op:
            values.append(cut(x, axis, str(number), kind["shape"]))
        else:
            size = kept(x, kind["shape"])[axis]
            values.append(cut(x, axis, "%d:%d" % (start, start + size), kind["shape"]))
            start += size
    return values


@op("getitem", merged=True)
def getitem(e, n, values, index):
    if values[index] is None:
        raise Refused("part %d of this result is not known here" % index)
    return values[index]


def alike(n, values):
    """Tensors that lie side by side: of one type, with the same axes that a view made one."""
    values = [cast(n, value, type_of(n, *values)) for value in values]
    if any(value.merged != values[0].merged or value.shape[:value.merged] != values[0].shape[:value.merged] for value in values if value.merged > 1 or values[0].merged > 1):
        raise Refused("`%s` of what a view made flat and other tensors" % n.op)
    return values


def joined(n, values, axis, shape):
    no_examples(n, values[0], axis)
    return Value("concat(%s, axis = %d)" % (", ".join(v.text for v in values), axis), shape, values[0].dtype, merged=values[0].merged)


@op("cat", "concat", merged=True)
def cat(e, n, values, axis=0):
    values = alike(n, values)
    if len(values) == 1:
        return values[0]
    return joined(n, values, axis_of(values[0], axis), kept(values[0], n.out["shape"]))


@op("stack", merged=True)
def stack(e, n, values, axis=0):
    values = alike(n, values)
    shape = kept(values[0], n.out["shape"])
    axis = axis + len(n.out["shape"]) if axis < 0 else axis
    if axis == 0 and values[0].merged > 1:
        raise Refused("`%s` before the axis in which a view joined the examples with another one" % n.op)
    axis += values[0].merged - 1
    one = [e.reshape(v.with_merged(1), shape[:axis] + [1] + shape[axis + 1:]).with_merged(v.merged) for v in values]
    return one[0] if len(one) == 1 else joined(n, one, axis, shape)


@op("expand", "broadcast_to", "expand_as", "repeat", merged=True)
def expand(e, n, x, *rest, **more):
    shape = n.out["shape"]
    if x.merged > 1 and len(shape) != x.rank - x.merged + 1:
        raise Refused("`%s` of what a view made flat" % n.op)
    shape = kept(x, shape)
    if shape == x.shape:
        return x
    if "repeat" in n.op:
        counts = rest[0][-(x.rank - x.merged + 1):] if x.rank else []
        if any(count != 1 and size != 1 for count, size in zip(counts[::-1], x.shape[::-1])):
            raise Refused("`repeat` of an axis that has more than one element")
    return Value("expand[%s](%s)" % (", ".join(size_text(s) for s in shape), x.text), shape, x.dtype, below=x.below, merged=x.merged)


def resized(x, axis, size):
    return x.shape[:axis] + [size] + x.shape[axis + 1:]


def piece(x, axis, first, end):
    """x[.., first : end, ..]; all of it is x itself."""
    return x if (first, end) == (0, x.shape[axis]) else sliced(x, axis, "%d:%d" % (first, end), resized(x, axis, end - first))


def filled(x, axis, before, after, value=0):
    more = ", value = %s" % number_text(value) if value else ""
    return Value("pad(%s, %d, %d, axis = %d%s)" % (x.text, before, after, axis, more), resized(x, axis, x.shape[axis] + before + after), x.dtype, merged=x.merged)


def bordered(e, n, x, axis, before, after, mode):
    """What stands before and after x is taken from x itself."""
    x, size = e.named(x), x.shape[axis]

    def side(count, isBefore):
        if mode == "reflect":
            part = piece(x, axis, 1, count + 1) if isBefore else piece(x, axis, size - count - 1, size - 1)
            return Value("reverse(%s, axis = %d)" % (part.text, axis), part.shape, x.dtype, merged=x.merged)
        if mode == "circular":
            return piece(x, axis, size - count, size) if isBefore else piece(x, axis, 0, count)
        part = piece(x, axis, 0, 1) if isBefore else piece(x, axis, size - 1, size)
        shape = resized(x, axis, count)
        return part if count == 1 else Value("expand[%s](%s)" % (", ".join(size_text(s) for s in shape), part.text), shape, x.dtype, merged=x.merged)

    parts = ([side(before, True)] if before else []) + [x] + ([side(after, False)] if after else [])
    whole = parts[0]
    for part in parts[1:]:
        whole = joined(n, [whole, part], axis, resized(x, axis, whole.shape[axis] + part.shape[axis]))
    return whole


@op("constant_pad_nd", "pad", merged=True)
def pad(e, n, x, amounts, *rest, mode="constant", value=None):
    if rest and isinstance(rest[0], str):
        mode, rest = rest[0], rest[1:]
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise Refused("padding of kind %s" % mode)
    value = rest[0] if rest else value
    for k in range(0, len(amounts), 2):
        before, after = amounts[k : k + 2]
        if not before and not after:
            continue
        axis = no_examples(n, x, axis_of(x, -1 - k // 2))
        if before < 0 or after < 0:
            x = piece(e.named(x), axis, max(0, -before), x.shape[axis] - max(0, -after))
        before, after = max(0, before), max(0, after)
        if before or after:
            x = filled(x, axis, before, after, value) if mode == "constant" else bordered(e, n, x, axis, before, after, mode)
    return x


@op("flip", merged=True)
def flip(e, n, x, axes):
    for axis in axes:
        x = Value("reverse(%s, axis = %d)" % (x.text, no_examples(n, x, axis_of(x, axis))), x.shape, x.dtype, below=x.below, merged=x.merged)
    return x


@op("gather", "index", "index_select")
def gather(e, n, x, *rest):
    if "index.Tensor" in n.op:
        places = rest[0]
        if len(places) == 1 and isinstance(places[0], Value) and places[0].dtype == "i32" and not any(is_batch(s) for s in x.shape):
            return Value("%s[%s]" % (x.inside(ATOM), places[0].text), n.out["shape"], x.dtype)
    raise Refused("`%s` with these indices" % n.op)
