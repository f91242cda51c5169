"""Pooling and other operations on pictures; those with weights stand in library.py."""
from .node import Refused
from .ops import kept, op
from .shapes import filled
from .sums import reduced
from .values import PRODUCT, Value, number_text


def one(e, n, values, what):
    """Two equal numbers as one."""
    values = values if isinstance(values, list) else [values]
    if len(set(values)) != 1:
        raise Refused("`%s` with %s %s: both axes take the same here" % (n.op, what, values))
    return values[0]


LOWEST = -3e38  # around what a maximum is taken of: below all that a model computes


def _pool(name):
    @op(name, merged=True)
    def pool(e, n, x, window, stride=None, padding=0, *rest):
        isMax = "max" in name
        options = dict(zip(("dilation", "ceil") if isMax else ("ceil", "count_pad", "divisor"), rest))
        k, p = one(e, n, window, "windows"), one(e, n, padding, "paddings")
        s = one(e, n, stride, "strides") if stride else k
        if one(e, n, options.get("dilation", 1), "dilations") != 1:
            raise Refused("`%s` with %s" % (n.op, options))
        shape, axes = kept(x, n.out["shape"]), range(x.rank - (2 if "2d" in name else 1), x.rank)
        beyond = [max(0, (shape[axis] - 1) * s + k - x.shape[axis] - 2 * p) for axis in axes]  # `ceil_mode`: the last window reaches behind the padding
        divisor, counts = options.get("divisor"), isMax or options.get("count_pad") is not False  # counts: what is padded is averaged, too
        sizes, uneven = [x.shape[axis] for axis in axes], any(beyond) or not (counts or divisor or not p)

        def pooled(x, p):
            words = [x.text, str(k)] + (["stride = %d" % s] if s != k else []) + (["pad = %d" % p] if p else [])
            return "%s(%s)" % (name, ", ".join(words))

        if not uneven:
            text = pooled(x, p)
        else:
            for axis, more in zip(axes, beyond):
                x = filled(x, axis, p, p + more, LOWEST if isMax else 0)
            text = pooled(x, 0)
        if isMax or not (uneven or divisor):
            return Value(text, shape, "f32", merged=x.merged)
        if divisor:
            return Value("%s * %s" % (text, number_text(k ** len(axes) / divisor)), shape, "f32", PRODUCT, merged=x.merged)
        inside = [size + 2 * p if counts else size for size in sizes]
        ones = Value("expand[%s](1)" % ", ".join("%d" % size for size in inside), inside, "f32")
        for axis, more in enumerate(beyond):
            ones = filled(ones, axis, 0 if counts else p, more if counts else p + more)
        return Value("%s / %s" % (text, pooled(e.named(ones), 0)), shape, "f32", PRODUCT, merged=x.merged)


for _name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"):
    _pool(_name)


@op("adaptive_avg_pool2d", "adaptive_avg_pool1d", merged=True)
def adaptive(e, n, x, size):
    places = x.rank - (2 if "2d" in n.op else 1)
    shape = kept(x, n.out["shape"])
    if all(s == 1 for s in shape[places:]):
        return reduced(e, "mean", x, list(range(places, x.rank)), shape)
    windows = [a // b if a % b == 0 else 0 for a, b in zip(x.shape[places:], shape[places:])]
    if 0 in windows or len(set(windows)) != 1:
        raise Refused("`%s` from %s to %s: the windows differ" % (n.op, x.shape[places:], shape[places:]))
    return x if windows[0] == 1 else Value("avg_pool%s(%s, %d)" % (n.op.split("pool")[1][:2], x.text, windows[0]), shape, "f32", merged=x.merged)


@op("upsample_nearest2d", "upsample_bilinear2d", merged=True)
def upsample(e, n, x, *rest, **more):
    factors = {b / a for a, b in zip(x.shape[-2:], n.out["shape"][-2:])}
    if len(factors) != 1 or next(iter(factors)) != int(next(iter(factors))):
        raise Refused("`%s` by %s" % (n.op, sorted(factors)))
    if "bilinear" in n.op and (more.get("align_corners") or rest[1:2] == (True,)):
        raise Refused("`%s` with align_corners" % n.op)
    word = "upsample" if "nearest" in n.op else "resize_bilinear"
    return Value("%s[%d](%s)" % (word, int(factors.pop()), x.text), kept(x, n.out["shape"]), "f32", merged=x.merged)
