"""Convolutions, transposed ones, pools, and the prelude's layers made of them; their values one tap after the other."""
import numpy as np

from .calls import Call
from .elementwise import Op
from .graph import BATCH, Instance, Invalid, Type


def places(dims, axis, window, stride, pad, dilate=1):
    """The axis along which a window walks: the size of an axis by a polynomial, or a numeral where it is rounded down."""
    reach = dilate * (window - 1) + 1
    left = dims.value(axis) + 2 * pad - reach
    if left < 0:
        raise Invalid("no window fits")
    if axis.isdigit() or left % stride:
        return str(left // stride + 1)
    more = 2 * pad - reach + stride  # (axis + more) / stride
    text = "(%s + %d)" % (axis, more) if more else axis
    return dims.derive("%s / %d" % (text, stride) if stride > 1 else text.strip("()"))


def stretched(dims, axis, stride, window, pad):
    """The axis that a transposed convolution makes."""
    more = window - stride - 2 * pad
    if dims.value(axis) * stride + more < 1:
        raise Invalid("nothing is left")
    if axis.isdigit():
        return str(int(axis) * stride + more)
    text = axis if stride == 1 else "%s*%d" % (axis, stride)
    return dims.derive("%s + %d" % (text, more) if more else text)


def taps(x, window, stride, pad, dilate, fill):
    """[(tap, the elements that it meets)] of the last axes of x."""
    n = len(window)
    full = np.pad(x, [(0, 0)] * (x.ndim - n) + [(p, p) for p in pad], constant_values=fill)
    counts = [(full.shape[i - n] - dilate * (window[i] - 1) - 1) // stride + 1 for i in range(n)]
    found = []
    for tap in np.ndindex(*window):
        at = tuple(slice(dilate * t, dilate * t + (c - 1) * stride + 1, stride) for t, c in zip(tap, counts))
        found.append((tap, full[(Ellipsis, *at)]))
    return found


def convolved(x, w, stride=1, pad=0, dilate=1, groups=1):
    n = w.ndim - 2
    letters, parts = "hw"[:n], []
    for image, filters in zip(np.split(x, groups, -1 - n), np.split(w, groups, 0)):
        parts.append(sum(np.einsum("...c%s,oc->...o%s" % (letters, letters), part, filters[(slice(None), slice(None), *tap)])
                         for tap, part in taps(image, w.shape[2:], stride, [pad] * n, dilate, 0.0)))
    return np.concatenate(parts, -1 - n)


def spread(x, w, stride=1, pad=0):
    """Every element of x [.., C, ..] adds a weighted kernel w [C, O, ..] to the result."""
    n = w.ndim - 2
    letters = "hw"[:n]
    sizes = [(x.shape[i - n] - 1) * stride + w.shape[i + 2] for i in range(n)]
    total = np.zeros(x.shape[:-1 - n] + (w.shape[1], *sizes))
    for tap in np.ndindex(*w.shape[2:]):
        at = tuple(slice(t, t + (x.shape[i - n] - 1) * stride + 1, stride) for i, t in enumerate(tap))
        total[(Ellipsis, *at)] += np.einsum("...c%s,co->...o%s" % (letters, letters), x, w[(slice(None), slice(None), *tap)])
    return total[(Ellipsis, *(slice(pad, size - pad) for size in sizes))]


class Convolution(Op):
    """conv1d, conv2d (x, w), or transposed. Options: what is not the default."""

    def __init__(self, count, transposes, **options):
        self.count, self.transposes, self.options = count, transposes, options

    def expression(self, arguments, mark, node):
        name = "conv%s%dd" % ("_transpose" * self.transposes, self.count)
        return "%s(%s)" % (name, ", ".join([*arguments, *("%s = %d" % item for item in self.options.items())]))

    def result(self, dims, types):
        x, w, n = types[0].axes, types[1].axes, self.count
        if len(x) < n + 1 or len(w) != n + 2 or BATCH in x[-1 - n:]:
            raise Invalid("no image")
        stride, pad = self.options.get("stride", 1), self.options.get("pad", 0)
        groups = self.options.get("groups", 1)
        if self.transposes:
            if w[0] != x[-1 - n]:
                raise Invalid("channels")
            made = [stretched(dims, axis, stride, int(window), pad) for axis, window in zip(x[-n:], w[2:])]
            return Type("f32", x[:-1 - n] + (w[1], *made))
        if dims.value(w[1]) * groups != dims.value(x[-1 - n]) or dims.value(w[0]) % groups:
            raise Invalid("channels")
        made = [places(dims, axis, int(window), stride, pad, self.options.get("dilate", 1)) for axis, window in zip(x[-n:], w[2:])]
        return Type("f32", x[:-1 - n] + (w[0], *made))

    def value(self, context, node, values):
        return (spread if self.transposes else convolved)(*values, **self.options)


class Pool(Op):
    """max_pool1d, avg_pool2d ..: the first of the largest, or the mean with what is padded."""

    def __init__(self, count, largest, window, stride, pad):
        self.count, self.largest, self.window, self.stride, self.pad = count, largest, window, stride, pad

    def expression(self, arguments, mark, node):
        more = (", stride = %d" % self.stride if self.stride != self.window else "") + (", pad = %d" % self.pad if self.pad else "")
        return "%s_pool%dd(%s, %d%s)" % ("max" if self.largest else "avg", self.count, arguments[0], self.window, more)

    def result(self, dims, types):
        x, n = types[0].axes, self.count
        if len(x) < n or BATCH in x[-n:]:
            raise Invalid("no image")
        return Type("f32", x[:-n] + tuple(places(dims, axis, self.window, self.stride, self.pad) for axis in x[-n:]))

    def value(self, context, node, values):
        fill = -np.inf if self.largest else 0.0
        found = taps(values[0], [self.window] * self.count, self.stride, [self.pad] * self.count, 1, fill)
        parts = np.stack([part for _, part in found])
        if not self.largest:
            return parts.sum(0) / len(parts)
        ordered = np.sort(parts, 0)
        context.note(parts.argmax(0), ordered[-1] - ordered[-2] if len(parts) > 1 else None)
        return ordered[-1]


class Larger(Op):
    """upsample[s](x), resize_bilinear[s](x)."""

    def __init__(self, scale, bilinear):
        self.scale, self.bilinear = scale, bilinear

    def expression(self, arguments, mark, node):
        return "%s[%d](%s)" % ("resize_bilinear" if self.bilinear else "upsample", self.scale, arguments[0])

    def result(self, dims, types):
        x = types[0].axes
        if len(x) < 2 or BATCH in x[-2:]:
            raise Invalid("no image")
        return Type("f32", x[:-2] + tuple(
            str(self.scale * int(axis)) if axis.isdigit() else dims.derive("%d * %s" % (self.scale, axis)) for axis in x[-2:]))

    def weights(self, n):
        at = (np.arange(self.scale * n) + 0.5) / self.scale - 0.5
        if not self.bilinear:
            return np.eye(n)[np.arange(self.scale * n) // self.scale]
        return np.maximum(0, 1 - np.abs(np.clip(at, 0, n - 1)[:, None] - np.arange(n)))

    def value(self, context, node, values):
        x = values[0]
        return np.einsum("...hw,ih,jw->...ij", x, self.weights(x.shape[-2]), self.weights(x.shape[-1]))


class AveragePool(Op):
    def expression(self, arguments, mark, node):
        return "global_avg_pool(%s)" % arguments[0]

    def result(self, dims, types):
        x = types[0].axes
        if len(x) < 3 or BATCH in x[-3:]:
            raise Invalid("no image")
        return Type("f32", x[:-2])

    def value(self, context, node, values):
        return values[0].mean((-1, -2))


class Layer(Call):
    """A call of conv[..], conv_transpose[..] or group_norm[..]."""

    def result(self, dims, types):
        x, o = types[0].axes, self.options
        if len(x) < 3 or BATCH in x[-3:] or x[-3] != o["channels"]:
            raise Invalid("no image")
        if self.instance.kind == "group_norm":
            return types[0]
        weight = Type("f32", [o["out"], self.instance.parameters[0][1].axes[1], str(o["window"]), str(o["window"])])
        if self.instance.kind == "conv":
            return Convolution(2, False, stride=o["stride"], pad=o["pad"], groups=o["groups"]).result(dims, [types[0], weight])
        turned = Type("f32", [x[-3], o["out"], *weight.axes[2:]])
        return Convolution(2, True, stride=o["stride"]).result(dims, [types[0], turned])

    def prelude(self, context, path, chain, x, axes):
        kind, o, of = self.instance.kind, self.options, context.parameters
        if kind == "group_norm":
            split = x.reshape(x.shape[:-3] + (o["groups"], -1))
            c = split - split.mean(-1, keepdims=True)
            c = c / np.sqrt((c**2).mean(-1, keepdims=True) + 1e-5)
            return c.reshape(x.shape) * of[path + ".weight"][:, None, None] + of[path + ".bias"][:, None, None]
        if kind == "conv":
            y = convolved(x, of[path + ".weight"], o["stride"], o["pad"], 1, o["groups"])
            return y + of[path + ".bias"][:, None, None] if o["bias"] else y
        return spread(x, of[path + ".weight"], o["stride"]) + of[path + ".bias"][:, None, None]


class BatchNorm(Call):
    """A call of batch_norm, behind a convolution or not: examples, channels, and any places."""

    def convolved_type(self, dims, type_):
        if self.instance.kind == "batch_norm":
            return type_
        x, o = type_.axes, self.options
        if len(x) != 4 or any(dims.value(axis) % o["stride"] for axis in x[2:]):
            raise Invalid("no image")
        return Type("f32", x[:1] + (o["channels"],) + tuple(
            axis if o["stride"] == 1 else str(int(axis) // o["stride"]) if axis.isdigit() else dims.derive("%s / %d" % (axis, o["stride"]))
            for axis in x[2:]))

    def result(self, dims, types):
        if len(types[0].axes) < 2 or types[0].axes[0] != BATCH or types[0].axes[1] != self.options["inputs"]:
            raise Invalid("no channels")
        made = self.convolved_type(dims, types[0])
        batch, *sizes = made.shape(dims)
        if batch % self.instance.group or self.instance.group * np.prod(sizes[1:]) < 2:
            raise Invalid("no statistics")
        return made

    def prelude(self, context, path, chain, x, axes):
        o, of = self.options, context.parameters
        if self.instance.kind == "conv_bn":
            x = convolved(x, of[path + ".c.weight"], o["stride"], (o["window"] - 1) // 2, 1, o["groups"])
            path += ".bn"
        split = x.reshape((-1, self.instance.group) + x.shape[1:])
        over = (1, *range(3, split.ndim))
        c = split - split.mean(over, keepdims=True)
        c = c / np.sqrt((c**2).mean(over, keepdims=True) + 1e-5)
        wide = (-1, *[1] * (x.ndim - 2))
        return c.reshape(x.shape) * of[path + ".weight"].reshape(wide) + of[path + ".bias"].reshape(wide)


def batch_norm_call(dims, rng, axes, out):
    """An instance of one for a value with these axes, and the op that calls it; its states are updated once a step, so it is called once."""
    batch, inputs = dims.value(BATCH), axes[1]
    group = rng.choice([g for g in range(1, batch + 1) if batch % g == 0])
    convolves = len(axes) == 4 and not inputs.isdigit() and rng.random() < 0.5
    channels = out if convolves else inputs
    name = "bn." if convolves else ""
    parameters = [(name + "weight", Type("f32", [channels]), "one"), (name + "bias", Type("f32", [channels]), 0.3)]
    options = {"inputs": inputs, "channels": channels}
    if convolves:
        size = dims.value(inputs)
        groups = rng.choice([g for g in range(1, size + 1) if size % g == 0 and dims.value(out) % g == 0])
        window, stride = rng.choice([1, 3]), rng.choice([1, 1, 2])
        options.update(window=window, stride=stride, groups=groups)
        inner = inputs if groups == 1 else dims.derive("%s / %d" % (inputs, groups))
        parameters.insert(0, ("c.weight", Type("f32", [out, inner, str(window), str(window)]), 0.3))
        text = "conv_bn[%s, %d, %d, g = %d](group = %d)" % (out, window, stride, groups, group)
    else:
        text = "batch_norm(group = %d)" % group
    use = Instance("conv_bn" if convolves else "batch_norm", text, parameters)
    use.group = group
    use.states = [(name + "running_mean", Type("f32", [channels]), 0.0), (name + "running_var", Type("f32", [channels]), 1.0)]
    return use, BatchNorm(use, options)


def layer_call(dims, rng, axes, out):
    """An instance of such a layer for an image, and the op that calls it."""
    kind = rng.choice(["conv", "conv", "conv_transpose", "group_norm"])
    channels = axes[-3]
    count = dims.value(channels)
    if kind == "group_norm":
        groups = rng.choice([g for g in range(1, count + 1) if count % g == 0])
        use = Instance(kind, "group_norm[%d]" % groups, [("weight", Type("f32", [channels]), "one"), ("bias", Type("f32", [channels]), 0.3)])
        return use, Layer(use, {"channels": channels, "groups": groups})
    window, stride = rng.choice([1, 2, 3]), rng.choice([1, 1, 2])
    options = {"channels": channels, "out": out, "window": window, "stride": stride, "bias": True, "groups": 1, "pad": 0}
    w = [str(window), str(window)]
    if kind == "conv_transpose":
        weight = ("weight", Type("f32", [channels, out, *w]), 0.3)
        text = "conv_transpose[%s, %d%s]" % (out, window, ", %d" % stride if stride > 1 else "")
    else:
        groups = rng.choice([g for g in range(1, count + 1) if count % g == 0 and dims.value(out) % g == 0] + [1])
        options.update(groups=groups, pad=rng.choice([0, 1]) if window > 1 else 0, bias=rng.random() < 0.7)
        inner = channels if groups == 1 else dims.derive("%s / %d" % (channels, groups))
        weight = ("weight", Type("f32", [out, inner, *w]), 0.3)
        text = "conv[%s, %d, %d, p = %d, g = %d]%s" % (
            out, window, stride, options["pad"], groups, "" if options["bias"] else "(with_bias = false)")
    use = Instance(kind, text, [weight] + [("bias", Type("f32", [out]), 0.3)] * options["bias"])
    return use, Layer(use, options)
