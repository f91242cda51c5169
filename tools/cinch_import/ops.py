"""What each operation of PyTorch is called here. A function gets the layer that is written, the node, and its arguments by position."""
from .graph import Refused
from .values import ATOM, COMPARISON, LOGIC, PRODUCT, SUM, TYPES, Joined, Value, elements, is_batch, letters, number_text, size_text

OPS = {}


def op(*names):
    def add(function):
        for name in names:
            OPS[name] = function
        return function

    return add


def axis_of(value, axis):
    return axis + value.rank if axis < 0 else axis


def convert(layer, node):
    name = node.op.removeprefix("aten.").split(".")[0]
    function = OPS.get(name) or OPS.get(name.rstrip("_"))
    if function is None:
        raise Refused("operation `%s` is not known here" % node.op)
    # Operations of the library own their parameters; what is stored is not read as a value before they say so.
    lazy = function.__module__.endswith(".library")
    args = [unless_stored(layer, each) if lazy else layer.get(each) for each in node.args]
    return function(layer, node, *args, **{key: layer.get(value) for key, value in node.kwargs.items()})


def unless_stored(layer, arg):
    if isinstance(arg, list):
        return [unless_stored(layer, each) for each in arg]
    return None if isinstance(arg, dict) and arg.get("node") in layer.graph.stored and arg["node"] not in layer.env else layer.get(arg)


# ---- Element-wise -----------------------------------------------------------------------------------------------------------
def _function(name, called=None):
    @op(name)
    def run(e, n, x, *rest, **more):
        if rest and any(r not in (None, 1, 1.0, False) for r in rest):
            raise Refused("`%s` with %s" % (n.op, list(rest)))
        value = Value("%s(%s)" % (called or name, x.text), x.shape, "f32")
        value.merged = x.merged
        return value


for _name in "relu sigmoid tanh exp log sqrt sin cos erf abs silu relu6 mish expm1 log1p floor hard_swish".split():
    _function(_name)
_function("hardswish", "hard_swish")
_function("hardsigmoid", "hard_sigmoid")
_function("detach", "stop_gradient")


def _wrapped(e, n, template, x):
    value = Value(template % x.text, x.shape, "f32")
    value.merged = x.merged
    return value


@op("gelu")
def gelu(e, n, x, approximate="none"):
    return _wrapped(e, n, "gelu_tanh(%s)" if approximate == "tanh" else "gelu(%s)", x)


@op("leaky_relu")
def leaky_relu(e, n, x, slope=0.01):
    return _wrapped(e, n, "leaky_relu(%%s, %s)" % number_text(slope), x)


@op("elu")
def elu(e, n, x, alpha=1, scale=1, input_scale=1):
    if scale != 1 or input_scale != 1:
        raise Refused("`elu` with a scale")
    return _wrapped(e, n, "elu(%%s, %s)" % number_text(alpha), x)


@op("dropout", "feature_dropout")
def dropout(e, n, x, rate, train):
    if "feature" in n.op and rate and train:
        raise Refused("dropout of whole channels")
    return _wrapped(e, n, "dropout(%%s, %s)" % number_text(rate), x) if rate and train else x


@op("hardtanh", "clamp")
def clamp(e, n, x, low=-1, high=1, **more):
    low, high = more.get("min", low), more.get("max", high)
    text = x.text
    if "clamp" in n.op and n.args[1:2] == [] and "min" not in more:
        low = None
    if "clamp" in n.op and len(n.args) < 3 and "max" not in more:
        high = None
    text = text if low is None else "max(%s, %s)" % (text, number_text(low))
    text = text if high is None else "min(%s, %s)" % (text, number_text(high))
    return _wrapped(e, n, "%s", Value(text, x.shape, "f32"))


def _binary(name, template, hold, dtype=None):
    @op(name)
    def run(e, n, a, b, alpha=1, rounding_mode=None):
        if rounding_mode:
            raise Refused("`%s` that rounds" % n.op)
        if not isinstance(a, Value) and not isinstance(b, Value):
            return eval(template.format(a, b))  # two numbers
        if alpha != 1:
            b = e.elementwise_number(b, alpha)
        if hold in (SUM, PRODUCT) and not dtype:
            kinds = {v.dtype for v in (a, b) if isinstance(v, Value)}
            if kinds == {"f32", "i32"} or kinds == {"f32", "bool"}:
                a, b = (_to_f32(v) if isinstance(v, Value) and v.dtype != "f32" else v for v in (a, b))
        below = None
        return e.elementwise(n, template, [a, b], hold, dtype, below)


def _to_f32(v):
    return Value("f32(%s)" % v.text, v.shape, "f32")


for _name, _template, _hold in (("add", "{0} + {1}", SUM), ("sub", "{0} - {1}", SUM), ("mul", "{0} * {1}", PRODUCT), ("div", "{0} / {1}", PRODUCT)):
    _binary(_name, _template, _hold)
for _name, _sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _binary(_name, "{0} %s {1}" % _sign, COMPARISON, "bool")
_binary("maximum", "max({0}, {1})", ATOM)
_binary("minimum", "min({0}, {1})", ATOM)
_binary("bitwise_and", "{0} and {1}", LOGIC, "bool")
_binary("logical_and", "{0} and {1}", LOGIC, "bool")
_binary("bitwise_or", "{0} or {1}", LOGIC, "bool")
_binary("logical_or", "{0} or {1}", LOGIC, "bool")


@op("logical_not", "bitwise_not")
def negation(e, n, x):
    return Value("not %s" % x.inside(ATOM), x.shape, "bool", LOGIC)


@op("rsub")
def rsub(e, n, a, b, alpha=1):
    return e.elementwise(n, "{1} - {0}", [a, b], SUM)


@op("neg")
def neg(e, n, x):
    return e.elementwise(n, "-1 * {0}", [x], PRODUCT)


@op("pow")
def power(e, n, x, exponent):
    if not isinstance(x, Value) or isinstance(exponent, Value):
        raise Refused("a power whose exponent is a tensor")
    return _wrapped(e, n, "%s", Value("%s ^ %s" % (x.inside(ATOM), number_text(exponent)), x.shape, "f32", 7))


@op("square")
def square(e, n, x):
    return power(e, n, x, 2)


@op("reciprocal")
def reciprocal(e, n, x):
    return Value("1 / %s" % x.inside(ATOM), x.shape, "f32", PRODUCT)


@op("rsqrt")
def rsqrt(e, n, x):
    return Value("1 / sqrt(%s)" % x.text, x.shape, "f32", PRODUCT)


@op("where")
def where(e, n, condition, a, b):
    return e.elementwise(n, "where({0}, {1}, {2})", [condition, a, b], ATOM)


@op("masked_fill")
def masked_fill(e, n, x, mask, value):
    if mask.dtype != "bool":
        mask = Value("%s != 0" % mask.inside(SUM), mask.shape, "bool", COMPARISON)
    return e.elementwise(n, "where({0}, {1}, {2})", [mask, value, x], ATOM)


@op("to", "_to_copy", "type_as", "contiguous", "clone", "alias", "lift_fresh_copy", "_assert_tensor_metadata", "float", "identity")
def same(e, n, x, *rest, **more):
    dtype = TYPES.get(n.out["dtype"]) if isinstance(n.out, dict) else None
    if dtype is None:
        raise Refused("a tensor of %s" % n.out["dtype"])
    if dtype == x.dtype or not isinstance(x, Value):
        return x
    if dtype == "bool":
        return Value("%s != 0" % x.inside(SUM), x.shape, "bool", COMPARISON)
    if dtype == "i32" and x.dtype == "f32":
        raise Refused("a cast from f32 to whole numbers")
    return Value("%s(%s)" % (dtype, x.text), x.shape, dtype, below=2 if dtype == "i32" else None)


# ---- Made of nothing ----------------------------------------------------------------------------------------------------------
@op("arange")
def arange(e, n, *rest, **more):
    values = list(rest)
    start, end, step = (0, values[0], 1) if len(values) == 1 else (values + [1])[:3]
    if start != 0 or step != 1 or is_batch(end):
        raise Refused("`arange` from %s in steps of %s" % (start, step))
    if TYPES[n.out["dtype"]] == "f32":
        return Value("f32(range[%d])" % end, [end], "f32")
    return Value("range[%d]" % end, [end], "i32", below=end)


@op("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "scalar_tensor")
def filled(e, n, *rest, **more):
    number = 1 if "ones" in n.op else 0 if "zeros" in n.op else rest[0] if "scalar" in n.op else rest[1]
    shape, dtype = n.out["shape"], TYPES[n.out["dtype"]]
    if not shape:
        return number
    if dtype == "bool":
        number = bool(number)
    return Value("expand[%s](%s)" % (", ".join(size_text(s) for s in shape), number_text(number)), shape, dtype)


@op("tril")
def tril(e, n, x, diagonal=0):
    rows, columns = n.out["shape"][-2:]
    r, c = (e.define("range[%d]" % size, [size], "i32", size) for size in (rows, columns))
    mask = e.by_index([rows, columns], "bool", ["i", "j"], "%s[j] <= %s[i] + %d" % (c.text, r.text, diagonal) if diagonal else "%s[j] <= %s[i]" % (c.text, r.text))
    if x.dtype == "bool":
        return mask if "expand" in x.text else e.elementwise(n, "{0} and {1}", [x, mask], LOGIC, "bool")
    return e.elementwise(n, "where({0}, {1}, 0)", [mask, x], ATOM)


# ---- Shape --------------------------------------------------------------------------------------------------------------------
@op("view", "reshape", "flatten", "unsqueeze", "squeeze", "_unsafe_view", "unflatten")
def reshape(e, n, x, *rest):
    shape = n.out["shape"]
    if isinstance(x, Joined):
        return x if x.shape == shape else e.reshape(x.real, shape)
    if x.merged > 1:
        if shape[-1:] == x.shape[-1:] and len(shape) == 2:
            return x
        return e.reshape(Value(x.text, x.shape, x.dtype, x.hold, x.below), shape)
    if shape and is_batch(shape[0]) and shape[0]["B"] != 1 and x.rank > len(shape):  # [B, T, D] seen as [B * T, D]
        merged = 1
        while merged < x.rank and (elements(x.shape[:merged]) < shape[0]["B"] or not any(map(is_batch, x.shape[:merged]))):
            merged += 1
        if elements(x.shape[:merged]) == shape[0]["B"]:
            x = e.reshape(x, x.shape[:merged] + shape[1:])
            value = Value(x.text, x.shape, x.dtype, x.hold, x.below)
            value.merged = merged
            return value
    for at, size in enumerate(shape):
        if is_batch(size) and size["B"] != 1:  # heads beside the examples, [T, B, A * K] seen as [T, B * A, K]
            return Joined(e.reshape(x, shape[:at] + [{"B": 1}, size["B"]] + shape[at + 1 :]), at)
    return e.reshape(x, shape)


@op("permute")
def permute(e, n, x, order):
    if isinstance(x, Joined):
        return x.moved(e, [axis_of(x, axis) for axis in order])
    return e.permute(x, [axis_of(x, axis) for axis in order])


@op("transpose")
def transpose(e, n, x, a, b):
    order = list(range(x.rank))
    a, b = axis_of(x, a), axis_of(x, b)
    order[a], order[b] = order[b], order[a]
    return x.moved(e, order) if isinstance(x, Joined) else e.permute(x, order)


@op("t")
def t(e, n, x):
    return e.permute(x, list(range(x.rank))[::-1])


@op("mT", "adjoint")
def last_two(e, n, x):
    return transpose(e, n, x, -1, -2)


def cut(x, axis, slot, shape):
    if all(size == 1 for size in ()) and slot == ":":
        return x
    slots = [":"] * axis + [slot]
    text = "%s[%s]" % (x.inside(ATOM), ", ".join(slots)) if axis < 2 else "%s[%s]" % (x.inside(ATOM), ", ".join(slots))
    if axis == x.rank - 1 and axis > 0:
        text = "%s[.., %s]" % (x.inside(ATOM), slot)
    return Value(text, shape, x.dtype, below=x.below)


@op("slice")
def slice_(e, n, x, axis=0, start=None, end=None, step=1):
    axis = axis_of(x, axis)
    size = x.shape[axis]
    if n.out["shape"] == x.shape:
        return x
    if step != 1 or is_batch(size):
        raise Refused("a slice of the examples" if is_batch(size) else "a slice in steps of %s" % step)
    start = 0 if start is None else start + size if start < 0 else start
    return cut(x, axis, "%d:%d" % (start, start + n.out["shape"][axis]), n.out["shape"])


@op("narrow")
def narrow(e, n, x, axis, start, length):
    return slice_(e, n, x, axis, start, start + length)


@op("select")
def select(e, n, x, axis, index):
    axis = axis_of(x, axis)
    if is_batch(x.shape[axis]):
        raise Refused("one example is taken out of a batch")
    return cut(x, axis, str(index if index >= 0 else index + x.shape[axis]), n.out["shape"])


@op("split", "split_with_sizes", "chunk", "unbind", "tensor_split")
def split(e, n, x, parts=None, axis=0):
    if "unbind" in n.op:
        parts, axis = None, parts or 0
    axis, x = axis_of(x, axis), e.named(x)
    values, start = [], 0
    for number, kind in enumerate(n.out):
        shape = kind["shape"]
        if "unbind" in n.op:
            values.append(cut(x, axis, str(number), shape))
        else:
            values.append(cut(x, axis, "%d:%d" % (start, start + shape[axis]), shape))
            start += shape[axis]
    return values


@op("getitem")
def getitem(e, n, values, index):
    return values[index]


@op("cat", "concat")
def cat(e, n, values, axis=0):
    if len(values) == 1:
        return values[0]
    axis = axis_of(values[0], axis)
    return Value("concat(%s, axis = %d)" % (", ".join(v.text for v in values), axis), n.out["shape"], values[0].dtype)


@op("stack")
def stack(e, n, values, axis=0):
    shape = list(n.out["shape"])
    axis = axis + len(shape) if axis < 0 else axis
    one = shape[:axis] + [1] + shape[axis + 1:]
    return cat(e, n, [e.reshape(v, one) for v in values], axis)


@op("expand", "broadcast_to", "expand_as", "repeat")
def expand(e, n, x, *rest, **more):
    shape = n.out["shape"]
    if shape == x.shape:
        return x
    if "repeat" in n.op and any(count != 1 and x.shape[k - len(shape)] != 1 for k, count in enumerate(rest[0]) if k - len(shape) >= -x.rank):
        raise Refused("`repeat` of an axis that has more than one element")
    names = letters(shape)
    return Value("expand[%s](%s)" % (", ".join(size_text(s) for s in shape), x.text), shape, x.dtype, below=x.below)


@op("constant_pad_nd", "pad")
def pad(e, n, x, amounts, *rest, **more):
    value = rest[-1] if rest and isinstance(rest[-1], (int, float)) else 0
    if rest and rest[0] not in ("constant", None) and isinstance(rest[0], str):
        raise Refused("padding of kind %s" % rest[0])
    shape = list(x.shape)
    for k in range(0, len(amounts), 2):
        axis = x.rank - 1 - k // 2
        before, after = amounts[k : k + 2]
        if before or after:
            shape[axis] += before + after
            x = Value("pad(%s, %d, %d, axis = %d%s)" % (x.text, before, after, axis, ", value = %s" % number_text(value) if value else ""), shape, x.dtype)
    return x


@op("flip")
def flip(e, n, x, axes):
    for axis in axes:
        x = Value("reverse(%s, axis = %d)" % (x.text, axis_of(x, axis)), x.shape, x.dtype)
    return x


@op("gather", "index", "index_select")
def gather(e, n, x, *rest):
    if "index.Tensor" in n.op:
        places = rest[0]
        if len(places) == 1 and isinstance(places[0], Value) and not any(is_batch(s) for s in x.shape):
            return Value("%s[%s]" % (x.inside(ATOM), places[0].text), n.out["shape"], x.dtype)
    raise Refused("`%s` with these indices" % n.op)


# ---- Sums -----------------------------------------------------------------------------------------------------------------------
def reduce(e, n, word, x, axes, keep):
    axes = [axes] if isinstance(axes, int) else list(axes) if axes else list(range(x.rank))
    axes = sorted(axis_of(x, axis) for axis in axes)
    if any(is_batch(x.shape[axis]) for axis in axes):
        raise Refused("`%s` over the examples: the model works example by example" % n.op)
    x = e.named(x)
    names = letters(x.shape)
    rest = [i for k, i in enumerate(names) if k not in axes]
    shape = [s for k, s in enumerate(x.shape) if k not in axes]
    y = e.by_index(shape, "f32", rest, "%s[%s] %s[%s]" % (word, ", ".join(names[a] for a in axes), x.text, ", ".join(names)))
    return e.reshape(y, n.out["shape"]) if keep else y


@op("mean")
def mean(e, n, x, axes=None, keep=False, **more):
    return reduce(e, n, "mean", x, axes, keep)


@op("sum")
def sum_(e, n, x, axes=None, keep=False, **more):
    return reduce(e, n, "sum", x, axes, keep)


@op("amax")
def amax(e, n, x, axes=(), keep=False):
    return reduce(e, n, "max", x, axes, keep)


@op("var")
def var(e, n, x, axes=None, *rest, **more):
    raise Refused("`%s`: write it as a mean of squares" % n.op)


@op("softmax", "log_softmax", "_softmax", "_log_softmax")
def softmax(e, n, x, axis, *rest, **more):
    word = "log_softmax" if "log" in n.op else "softmax"
    axis = axis_of(x, axis)
    return Value("%s(%s)" % (word, x.text) if axis == x.rank - 1 else "%s(%s, axis = %d)" % (word, x.text, axis), x.shape, "f32")


@op("argmax")
def argmax(e, n, x, axis=-1, keep=False):
    return Value("argmax(%s, axis = %d)" % (x.text, axis_of(x, axis)), n.out["shape"], "i32", below=x.shape[axis])


# ---- Products -------------------------------------------------------------------------------------------------------------------
@op("matmul", "mm", "bmm")
def matmul(e, n, a, b):
    merged = a.merged
    if a.rank < 2 or b.rank < 2:
        raise Refused("a product of a vector")
    if a.rank > 2 and b.rank > 2 and a.shape[:-2] != b.shape[:-2]:
        raise Refused("a product whose leading axes are stretched")
    value = Value("%s @ %s" % (a.inside(PRODUCT), b.inside(PRODUCT + 1)), a.shape[:-1] + b.shape[-1:], "f32", PRODUCT)
    if b.rank > a.rank:
        value.shape = b.shape[:-2] + a.shape[-2:-1] + b.shape[-1:]
    value.merged = merged
    return value


@op("addmm")
def addmm(e, n, bias, a, b, beta=1, alpha=1):
    if beta != 1 or alpha != 1:
        raise Refused("`addmm` with factors")
    product = matmul(e, n, a, b)
    value = Value("%s + %s" % (product.inside(SUM), bias.inside(SUM + 1)), product.shape, "f32", SUM)
    value.merged = product.merged
    return value


@op("baddbmm")
def baddbmm(e, n, bias, a, b, **more):
    raise Refused("`baddbmm`")


@op("einsum")
def einsum(e, n, equation, values, **more):
    left, right = equation.replace(" ", "").split("->")
    texts, sizes = [], {}
    for names, value in zip(left.split(","), values):
        value = e.named(value)
        sizes.update(zip(names, value.shape))
        texts.append("%s[%s]" % (value.text, ", ".join(names)))
    summed = sorted(set(left) - set(right) - {","})
    product = " * ".join(texts)
    return e.by_index([sizes[i] for i in right], "f32", list(right), "sum[%s] %s" % (", ".join(summed), product) if summed else product)


@op("scaled_dot_product_attention")
def attention(e, n, q, k, v, mask=None, rate=0.0, causal=False, scale=None, enable_gqa=False, attn_mask=None, keys=None):
    if q.rank < 4:
        raise Refused("attention without an axis of heads")
    words = [q.text, k.text, v.text] + ([keys.text] if keys else [])
    mask = attn_mask if mask is None else mask
    if isinstance(mask, Value):
        core = [s for s in mask.shape if s != 1]
        if mask.dtype == "bool" and len(core) == 2 and is_batch(core[0]) and not keys and core[1] == k.shape[-2]:
            words.append(e.reshape(mask, core).text)
        elif mask.dtype == "f32" and not any(is_batch(s) for s in mask.shape):
            full = [q.shape[-3], q.shape[-2], k.shape[-2]]
            flat = e.reshape(mask, [s for s in mask.shape if s != 1] or [1])
            words.append("bias = expand[%s](%s)" % (", ".join(map(str, full)), flat.text))
        elif mask.dtype == "bool" and len(core) == 2 and not is_batch(core[0]) and core == [q.shape[-2], k.shape[-2]]:
            full = [q.shape[-3]] + core
            bias = e.define("where(%s, 0, -1e30)" % e.reshape(mask, core).text, core, "f32")
            words.append("bias = expand[%s](%s)" % (", ".join(map(str, full)), bias.text))
        else:
            raise Refused("attention with a mask of %s%s" % (mask.dtype, mask.shape))
    if causal:
        words.append("causal = true")
    if scale is not None and abs(scale * q.shape[-1] ** 0.5 - 1) > 1e-9:
        words.append("scale = %s" % number_text(scale))
    if rate:
        words.append("dropout = %s" % number_text(rate))
    return Value("attend(%s)" % ", ".join(words), n.out["shape"], "f32")


# ---- Pictures -------------------------------------------------------------------------------------------------------------------
def one(e, n, values, what):
    """Two equal numbers as one."""
    values = values if isinstance(values, list) else [values]
    if len(set(values)) != 1:
        raise Refused("`%s` with %s %s: both axes take the same here" % (n.op, what, values))
    return values[0]


def _pool(name):
    @op(name)
    def pool(e, n, x, window, stride=None, padding=0, *rest):
        options = dict(zip(("dilation", "ceil") if "max" in name else ("ceil", "count_pad", "divisor"), rest))
        k, p = one(e, n, window, "windows"), one(e, n, padding, "paddings")
        s = one(e, n, stride, "strides") if stride else k
        if options.get("ceil") or one(e, n, options.get("dilation", 1), "dilations") != 1 or (p and options.get("count_pad") is False) or options.get("divisor"):
            raise Refused("`%s` with %s" % (n.op, options))
        more = (", stride = %d" % s if s != k else "") + (", pad = %d" % p if p else "")
        return Value("%s(%s, %d%s)" % (name, x.text, k, more), n.out["shape"], "f32")


for _name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"):
    _pool(_name)


@op("adaptive_avg_pool2d", "adaptive_avg_pool1d")
def adaptive(e, n, x, size):
    places = x.rank - (2 if "2d" in n.op else 1)
    if all(s == 1 for s in n.out["shape"][places:]):
        return reduce(e, n, "mean", x, list(range(places, x.rank)), True)
    windows = [a // b if a % b == 0 else 0 for a, b in zip(x.shape[places:], n.out["shape"][places:])]
    if 0 in windows or len(set(windows)) != 1:
        raise Refused("`%s` from %s to %s: the windows differ" % (n.op, x.shape[places:], n.out["shape"][places:]))
    return x if windows[0] == 1 else Value("avg_pool%s(%s, %d)" % (n.op.split("pool")[1][:2], x.text, windows[0]), n.out["shape"], "f32")


@op("upsample_nearest2d", "upsample_bilinear2d")
def upsample(e, n, x, *rest, **more):
    factors = {b / a for a, b in zip(x.shape[-2:], n.out["shape"][-2:])}
    if len(factors) != 1 or next(iter(factors)) != int(next(iter(factors))):
        raise Refused("`%s` by %s" % (n.op, sorted(factors)))
    if "bilinear" in n.op and rest[1] is True:
        raise Refused("`%s` with align_corners" % n.op)
    return Value("%s[%d](%s)" % ("upsample" if "nearest" in n.op else "resize_bilinear", int(factors.pop()), x.text), n.out["shape"], "f32")
