"""Reductions, softmax, products, attention."""
from .node import Refused
from .ops import axis_of, cast, kept, no_examples, op
from .values import ATOM, POWER, PRODUCT, SUM, Value, is_batch, letters, number_text


# ---- Sums -----------------------------------------------------------------------------------------------------------------------
def reduce(e, n, word, x, axes, keep):
    axes = [axes] if isinstance(axes, int) else list(axes) if axes else list(range(x.rank - x.merged + 1))
    axes = sorted(axis_of(x, axis) for axis in axes)
    if any(is_batch(x.shape[axis]) for axis in axes):
        raise Refused("`%s` over the examples: the model works example by example" % n.op)
    return reduced(e, word, x, axes, kept(x, n.out["shape"]) if keep else None)


def reduced(e, word, x, axes, shape=None):
    """axes: of x as it is; `shape`: of the result, if it keeps these axes."""
    x = e.named(x)
    names = letters(x.shape)
    rest = [i for k, i in enumerate(names) if k not in axes]
    left = [s for k, s in enumerate(x.shape) if k not in axes]
    if left:
        y = e.by_index(left, x.dtype, rest, "%s[%s] %s[%s]" % (word, ", ".join(names[a] for a in axes), x.text, ", ".join(names)))
    else:
        y = e.define("%s[..] %s" % (word, x.text), [], x.dtype)
    return (e.reshape(y, shape) if shape is not None else y).with_merged(x.merged)


@op("mean", merged=True)
def mean(e, n, x, axes=None, keep=False, **more):
    return reduce(e, n, "mean", cast(n, x, "f32"), axes, keep)


@op("sum", merged=True)
def sum_(e, n, x, axes=None, keep=False, **more):
    # Sums of whole numbers are not there yet; as f32 they are exact below 2^24.
    return reduce(e, n, "sum", cast(n, x, "f32"), axes, keep)


@op("linalg_vector_norm", "norm", merged=True)
def vector_norm(e, n, x, order=2, axes=None, keep=False, **more):
    if order not in (1, 2):
        raise Refused("`%s` of order %s: write it as a sum" % (n.op, number_text(order)))
    x = cast(n, x, "f32")
    each = Value("%s ^ 2" % x.inside(ATOM), x.shape, "f32", POWER, merged=x.merged) if order == 2 else Value("abs(%s)" % x.text, x.shape, "f32", merged=x.merged)
    total = reduce(e, n, "sum", each, axes, keep)
    return Value("sqrt(%s)" % total.text, total.shape, "f32", merged=total.merged) if order == 2 else total


@op("amax", merged=True)
def amax(e, n, x, axes=(), keep=False):
    if x.dtype == "bool":
        raise Refused("`%s` of truth values" % n.op)
    return reduce(e, n, "max", x, axes, keep)


@op("amin", merged=True)
def amin(e, n, x, axes=(), keep=False):
    if x.dtype == "bool":
        raise Refused("`%s` of truth values" % n.op)
    return reduce(e, n, "min", x, axes, keep)


@op("var")
def var(e, n, x, axes=None, *rest, **more):
    raise Refused("`%s`: write it as a mean of squares" % n.op)


@op("softmax", "log_softmax", "_softmax", "_log_softmax", merged=True)
def softmax(e, n, x, axis, *rest, **more):
    x = cast(n, x, "f32")
    word = "log_softmax" if "log" in n.op else "softmax"
    axis = no_examples(n, x, axis_of(x, axis))
    return Value("%s(%s)" % (word, x.text) if axis == x.rank - 1 else "%s(%s, axis = %d)" % (word, x.text, axis), x.shape, "f32", merged=x.merged)


@op("argmax", merged=True)
def argmax(e, n, x, axis=None, keep=False):
    if axis is None:
        raise Refused("`%s` over all axes" % n.op)
    x = cast(n, x, "f32")
    axis = no_examples(n, x, axis_of(x, axis))
    y = Value("argmax(%s, axis = %d)" % (x.text, axis), x.shape[:axis] + x.shape[axis + 1:], "i32", below=x.shape[axis])
    return (e.reshape(y, kept(x, n.out["shape"])) if keep else y).with_merged(x.merged)


# ---- Products -------------------------------------------------------------------------------------------------------------------
@op("matmul", "mm", "bmm", merged=True)
def matmul(e, n, a, b):
    if a.rank - a.merged < 1 or b.rank - b.merged < 1:
        raise Refused("a product of a vector")
    if b.rank > 2 and (a.merged != b.merged or (a.rank > 2 and a.shape[:-2] != b.shape[:-2])):
        raise Refused("a product whose leading axes are stretched")
    if is_batch(a.shape[-1]):
        raise Refused("a product that sums over the examples: the model works example by example")
    value = Value("%s @ %s" % (cast(n, a, "f32").inside(PRODUCT), cast(n, b, "f32").inside(PRODUCT + 1)), a.shape[:-1] + b.shape[-1:], "f32", PRODUCT)
    if b.rank > a.rank:
        value.shape = b.shape[:-2] + a.shape[-2:-1] + b.shape[-1:]
    if sum(map(is_batch, value.shape)) > 1:
        raise Refused("a product that compares all examples with all: the model works example by example")
    return value.with_merged(a.merged)


@op("addmm", merged=True)
def addmm(e, n, bias, a, b, beta=1, alpha=1):
    if beta != 1 or alpha != 1:
        raise Refused("`addmm` with factors")
    return e.elementwise(n, "{0} + {1}", [matmul(e, n, a, b), bias], SUM)


@op("baddbmm")
def baddbmm(e, n, bias, a, b, **more):
    raise Refused("`baddbmm`")


@op("einsum")
def einsum(e, n, equation, values, **more):
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if not arrow or not right or "." in equation or any(len(set(names)) != len(names) for names in [*operands, right]):
        raise Refused("`einsum` of `%s`" % equation)
    if any(len(names) != value.rank for names, value in zip(operands, values)):
        raise Refused("`einsum` of `%s`" % equation)
    sizes = {}
    for letter, size in [pair for names, value in zip(operands, values) for pair in zip(names, value.shape)]:
        if sizes.setdefault(letter, size) != size:
            raise Refused("`einsum` that stretches an axis")
    if sum(map(is_batch, sizes.values())) > 1 or any(is_batch(size) and letter not in right for letter, size in sizes.items()):
        raise Refused("`einsum` over the examples: the model works example by example")
    # The model's letters stay where they are no names of tensors here.
    ours = {letter: letter for letter in sizes}
    if any(letter not in "abcdefgijklmnopqrst" or letter in e.parameters for letter in sizes):
        ours = dict(zip(sizes, letters(list(sizes.values()))))
    texts = []
    for names, value in zip(operands, values):
        value = e.named(cast(n, value, "f32"))
        texts.append("%s[%s]" % (value.text, ", ".join(ours[letter] for letter in names)) if names else value.text)
    summed = sorted(ours[letter] for letter in sizes if letter not in right)
    product = " * ".join(texts)
    return e.by_index([sizes[i] for i in right], "f32", [ours[i] for i in right], "sum[%s] %s" % (", ".join(summed), product) if summed else product)


@op("scaled_dot_product_attention")
def attention(e, n, q, k, v, mask=None, rate=0.0, causal=False, scale=None, enable_gqa=False, attn_mask=None, dropout_p=None, is_causal=None, keys=None):
    mask = attn_mask if mask is None else mask
    rate, causal = rate if dropout_p is None else dropout_p, causal if is_causal is None else is_causal
    if q.rank < 4 or not q.rank == k.rank == v.rank or not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
        raise Refused("attention without an axis of heads, or whose leading axes differ")
    if not enable_gqa and not q.shape[-3] == k.shape[-3] == v.shape[-3]:
        raise Refused("attention whose heads are stretched")
    words = [q.text, k.text, v.text] + ([keys.text] if keys else [])
    heads, queries, places = q.shape[-3], q.shape[-2], k.shape[-2]
    if isinstance(mask, Value):
        # [1, .., a, t, s], each of the last three whole or 1
        shape = ([1, 1, 1] + mask.shape)[-max(mask.rank, 3):]
        fits = shape[-1] == places and shape[-2] in (1, queries) and shape[-3] in (1, heads) and all(size == 1 for size in shape[1:-3])
        if fits and mask.dtype == "bool" and is_batch(shape[0]) and len(shape) == q.rank and shape[1:-1] == [1] * (q.rank - 2) and not keys:
            words.append(e.reshape(mask, [shape[0], places]).text)
        elif fits and mask.dtype in ("f32", "bool") and not any(map(is_batch, shape)) and all(size == 1 for size in shape[:-3]):
            if mask.dtype == "bool":
                mask = e.define("where(%s, 0, -1e30)" % mask.text, mask.shape, "f32")
            words.append("bias = %s" % whole_bias(e, mask, [heads, queries, places]))
        else:
            raise Refused("attention with a mask of %s%s" % (mask.dtype, mask.shape))
    if causal:
        words.append("causal = true")
    if scale is not None and abs(scale * q.shape[-1] ** 0.5 - 1) > 1e-9:
        words.append("scale = %s" % number_text(scale))
    if rate:
        words.append("dropout = %s" % number_text(rate))
    return Value("attend(%s)" % ", ".join(words), n.out["shape"], "f32")


def whole_bias(e, mask, full):
    """What is added to the scores of each head; leading axes may be missing in `expand`, but an axis of 1 before others may not."""
    core = mask.shape[-3:]
    while core and core[0] == 1:
        core = core[1:]
    mask = e.reshape(mask, core or [1])
    return mask.text if mask.shape == full else "expand[%s](%s)" % (", ".join(map(str, full)), mask.text)
