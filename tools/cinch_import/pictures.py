"""Pooling and other operations on pictures; those with weights stand in library.py."""
from .node import Refused
from .ops import kept, op
from .sums import reduced
from .values import Value


def one(e, n, values, what):
    """Two equal numbers as one."""
    values = values if isinstance(values, list) else [values]
    if len(set(values)) != 1:
        raise Refused("`%s` with %s %s: both axes take the same here" % (n.op, what, values))
    return values[0]


def _pool(name):
    @op(name, merged=True)
    def pool(e, n, x, window, stride=None, padding=0, *rest):
        options = dict(zip(("dilation", "ceil") if "max" in name else ("ceil", "count_pad", "divisor"), rest))
        k, p = one(e, n, window, "windows"), one(e, n, padding, "paddings")
        s = one(e, n, stride, "strides") if stride else k
        if options.get("ceil") or one(e, n, options.get("dilation", 1), "dilations") != 1 or (p and options.get("count_pad") is False) or options.get("divisor"):
            raise Refused("`%s` with %s" % (n.op, options))
        more = (", stride = %d" % s if s != k else "") + (", pad = %d" % p if p else "")
        return Value("%s(%s, %d%s)" % (name, x.text, k, more), kept(x, n.out["shape"]), "f32", merged=x.merged)


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
