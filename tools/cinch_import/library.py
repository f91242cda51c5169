"""Operations that own parameters: layers of the library where they are the same, else the parameters and a built-in."""
import re

from .node import Refused
from .ops import axis_of, kept, op
from .pictures import one
from .values import ATOM, PRODUCT, SUM, Value, is_batch, letters, number_text


def stored_name(arg):
    return arg["node"] if isinstance(arg, dict) and "node" in arg else None


def part(layer, node, text, members):
    """`use NAME = text`, once for each set of parameters; None if a parameter of it is read elsewhere, too.
    members: (path below the instance, argument)."""
    names = [(path, stored_name(arg)) for path, arg in members if arg is not None]
    if not all(layer.mine(name, node) for _, name in names):
        return None
    key = tuple(name for _, name in names)
    if key in layer.instances:
        return layer.instances[key]
    first = layer.graph.stored[names[0][1]]["path"]
    local = layer.part_name(first.rsplit(".", 1)[0] if "." in first else node.op.split(".")[1])
    layer.parts.append((local, text))
    for path, name in names:
        layer.paths.append((local + "." + path, layer.graph.stored[name]["path"]))
    layer.instances[key] = local
    return local


def called(local, x, shape):
    return Value("%s(%s)" % (local, x.text), shape, "f32", merged=x.merged)


def with_options(name, **options):
    words = ["%s = %s" % (key, value if isinstance(value, str) else number_text(value)) for key, value in options.items() if value is not None]
    return name + ("(%s)" % ", ".join(words) if words else "")


@op("linear", merged=True)
def linear(e, n, x, weight=None, bias=None):
    axis_of(x, -1)
    raw = n.args + [None] * (3 - len(n.args))
    weight, bias = (None, None) if stored_name(raw[1]) in e.graph.stored else (e.get(raw[1]), e.get(raw[2]))  # computed: a part of a parameter, as of attention's
    if weight is not None and (weight.merged != 1 or weight.rank != 2 or any(is_batch(size) for size in weight.shape)):
        raise Refused("a weight that is computed of examples")
    out = weight.shape[0] if weight is not None else e.stored_shape(raw[1])[0]
    local = weight is None and part(e, n, with_options("linear[%d]" % out, with_bias="false" if raw[2] is None else None), [("weight", raw[1]), ("bias", raw[2])])
    if local:
        return called(local, x, x.shape[:-1] + [out])
    weight, bias = e.get(raw[1]), e.get(raw[2])
    value = Value("%s @ %s'" % (x.inside(PRODUCT), weight.inside(ATOM)), x.shape[:-1] + [out], "f32", PRODUCT)
    if bias is not None:
        value = Value("%s + %s" % (value.text, bias.inside(SUM + 1)), value.shape, "f32", SUM)
    return value.with_merged(x.merged)


@op("embedding", merged=True)
def embedding(e, n, weight, ids, padding=-1, by_frequency=False, sparse=False):
    if by_frequency:
        raise Refused("`%s` with scale_grad_by_freq: here a row's gradient is the sum over all places that read it; make the embedding without it, and export it again" % n.op)
    rows, columns = e.stored_shape(n.args[0])
    local = part(e, n, "embedding[%d, %d]" % (rows, columns), [("weight", n.args[0])])
    ids = e.get(n.args[1])
    shape = ids.shape + [columns]
    read = called(local, ids, shape) if local else Value("%s[%s]" % (e.get(n.args[0]).text, ids.text), shape, "f32", merged=ids.merged)
    return read if padding < 0 else without_gradient(e, read, ids, padding)


def without_gradient(e, read, ids, row):
    """What is read of a table, of which one row gets no gradient: padding_idx."""
    read, ids = e.named(read), e.named(ids)
    still = e.define("stop_gradient(%s)" % read.text, read.shape, "f32")
    names = letters(read.shape)
    place = ", ".join(names)
    condition = "%s%s == %d" % (ids.text, "[%s]" % ", ".join(names[:-1]) if ids.shape else "", row)
    return e.by_index(read.shape, "f32", names, "where(%s, %s[%s], %s[%s])" % (condition, still.text, place, read.text, place)).with_merged(read.merged)


def normed(e, x, centred, weight, bias, eps, over=(-1,), of=None):
    """A norm over the axes `over` in index notation, for one that has not the parameters of the library's, or shares them. Its parameters have the
    axes `of`, without which these are the same ones."""
    x, names = e.named(x), letters(x.shape)
    axes = [axis % x.rank for axis in over]
    row, left = [i for k, i in enumerate(names) if k not in axes], [s for k, s in enumerate(x.shape) if k not in axes]
    place, along = ", ".join(names), ", ".join(names[axis] for axis in axes)
    own = ", ".join(names[axis] for axis in (axes if of is None else of))
    if centred:
        mean = e.by_index(left, "f32", row, "mean[%s] %s[%s]" % (along, x.text, place))
        x = e.by_index(x.shape, "f32", names, "%s[%s] - %s[%s]" % (x.text, place, mean.text, ", ".join(row))).with_merged(x.merged)
    square = e.by_index(left, "f32", row, "mean[%s] %s[%s] ^ 2" % (along, x.text, place))
    text = "%s[%s] / sqrt(%s[%s] + %s)" % (x.text, place, square.text, ", ".join(row), number_text(eps))
    if weight is not None:
        text += " * %s[%s]" % (e.named(e.get(weight)).text, own)
    if bias is not None:
        text += " + %s[%s]" % (e.named(e.get(bias)).text, own)
    return e.by_index(x.shape, "f32", names, text).with_merged(x.merged)


@op("layer_norm", merged=True)
def layer_norm(e, n, x, axes, weight=None, bias=None, eps=1e-5, *rest):
    axis_of(x, -1)
    raw = n.args + [None] * (4 - len(n.args))
    if len(axes) != 1:
        return normed(e, x, True, raw[2], raw[3], eps, [k - len(axes) for k in range(len(axes))])
    whole = raw[2] is not None and raw[3] is not None
    local = whole and part(e, n, with_options("layer_norm", eps=eps if eps != 1e-5 else None), [("weight", raw[2]), ("bias", raw[3])])
    return called(local, x, x.shape) if local else normed(e, x, True, raw[2], raw[3], eps)


@op("rms_norm", merged=True)
def rms_norm(e, n, x, axes, weight=None, eps=None):
    axis_of(x, -1)
    raw = n.args + [None] * (3 - len(n.args))
    eps = 1.1920928955078125e-07 if eps is None else eps
    if len(axes) != 1:
        return normed(e, x, False, raw[2], None, eps, [k - len(axes) for k in range(len(axes))])
    local = raw[2] is not None and part(e, n, with_options("rms_norm", eps=eps if eps != 1e-6 else None), [("weight", raw[2])])
    return called(local, x, x.shape) if local else normed(e, x, False, raw[2], None, eps)


@op("group_norm", merged=True)
def group_norm(e, n, x, groups, weight=None, bias=None, eps=1e-5, *rest):
    layer = {2: "group_norm_seq", 3: "group_norm"}.get(x.rank - x.merged)
    if not layer:
        raise Refused("a group norm of %d axes" % (x.rank - x.merged + 1))
    if len(n.args) < 4 or None in n.args[2:4]:
        raise Refused("a group norm without parameters")
    local = part(e, n, with_options("%s[%d]" % (layer, groups), eps=eps if eps != 1e-5 else None), [("weight", n.args[2]), ("bias", n.args[3])])
    if not local:
        raise Refused("a group norm whose parameters are read elsewhere")
    return called(local, x, x.shape)


@op("instance_norm", merged=True)
def instance_norm(e, n, x, weight, bias, mean, variance, of_input, momentum, eps, *rest):
    if not of_input:
        raise Refused("an instance norm that was exported with its running statistics (eval()): here it would train with those of each example; export model.train()")
    if any(arg is not None for arg in n.args[3:5]):
        raise Refused("an instance norm with running statistics")
    channel = x.merged
    if x.rank <= channel + 1:
        raise Refused("an instance norm of %d axes" % (x.rank - x.merged + 1))
    return normed(e, x, True, n.args[1], n.args[2], eps, range(channel + 1, x.rank), [channel])


@op("prelu", merged=True)
def prelu(e, n, x, weight=None):
    count, x, slope = e.stored_shape(n.args[1])[0], e.named(x), e.named(e.get(n.args[1]))
    names = letters(x.shape)
    place, channel = ", ".join(names), names[x.merged] if count > 1 else "0"
    return e.by_index(x.shape, "f32", names, "where({0}[{1}] > 0, {0}[{1}], {2}[{3}] * {0}[{1}])".format(x.text, place, slope.text, channel)).with_merged(x.merged)


@op("batch_norm")
def batch_norm(e, n, x, weight, bias, mean, variance, training, momentum, eps, *rest):
    options = with_options("batch_norm", group="B", momentum=momentum if momentum != 0.1 else None, eps=eps if eps != 1e-5 else None)
    if not training:
        raise Refused("a batch norm that was exported with its running statistics (eval()): here it would train with those of the batch; export model.train(), "
                      "and see docs/patterns.md for norms that stay as they are")
    members = list(zip(("weight", "bias", "running_mean", "running_var"), n.args[1:5]))
    if any(arg is None for _, arg in members):
        raise Refused("a batch norm without parameters or running statistics")
    if not is_batch(x.shape[0]):
        raise Refused("a batch norm whose first axis is not that of the examples")
    local = part(e, n, options, members)
    if not local:
        raise Refused("a batch norm whose parameters are read elsewhere")
    return called(local, x, x.shape)


def of_pictures(n, x):
    """Examples, channels, and one or two axes of places."""
    if x.rank - x.merged != (3 if "2d" in n.op else 2):
        raise Refused("`%s` of %d axes" % (n.op, x.rank - x.merged + 1))


@op("conv2d", "conv1d", merged=True)
def conv(e, n, x, weight=None, bias=None, stride=1, padding=0, dilation=1, groups=1):
    of_pictures(n, x)
    raw = n.args + [None] * (3 - len(n.args))
    shape, out = e.stored_shape(raw[1]), kept(x, n.out["shape"])
    if isinstance(padding, str):
        if padding != "valid" and (one(e, n, stride, "strides") != 1 or any(k % 2 == 0 for k in shape[2:])):
            raise Refused("`%s` with padding `%s`" % (n.op, padding))
        padding = 0 if padding == "valid" else [one(e, n, dilation, "dilations") * (k - 1) // 2 for k in shape[2:]]
    s, p, d = one(e, n, stride, "strides"), one(e, n, padding, "paddings"), one(e, n, dilation, "dilations")
    k = shape[2]
    if "conv2d" in n.op and shape[2] == shape[3] and d == 1:
        sizes = ["%d" % shape[0], "%d" % k]
        if s != 1 or 2 * p != k - 1:
            sizes.append("%d" % s)
        if 2 * p != k - 1:
            sizes.append("%d" % p)
        if groups != 1:
            sizes.append("g = %d" % groups)
        local = part(e, n, with_options("conv[%s]" % ", ".join(sizes), with_bias="false" if raw[2] is None else None), [("weight", raw[1]), ("bias", raw[2])])
        if local:
            return called(local, x, out)
    weight, bias = e.get(raw[1]), e.get(raw[2])
    words = [x.text, weight.text] + ["%s = %d" % (key, value) for key, value, usual in (("stride", s, 1), ("pad", p, 0), ("dilate", d, 1), ("groups", groups, 1)) if value != usual]
    return add_channels(e, n, Value("%s(%s)" % (n.op.split(".")[1], ", ".join(words)), out, "f32", merged=x.merged), bias)


def add_channels(e, n, value, bias):
    if bias is None:
        return value
    value, bias = e.named(value), e.named(bias)
    names = letters(value.shape)
    channel = names[-3] if "2d" in n.op else names[-2]
    return e.by_index(value.shape, "f32", names, "%s[%s] + %s[%s]" % (value.text, ", ".join(names), bias.text, channel)).with_merged(value.merged)


@op("conv_transpose2d", "conv_transpose1d", merged=True)
def conv_transpose(e, n, x, weight=None, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    of_pictures(n, x)
    raw = n.args + [None] * (3 - len(n.args))
    shape, out = e.stored_shape(raw[1]), kept(x, n.out["shape"])
    s, p = one(e, n, stride, "strides"), one(e, n, padding, "paddings")
    more = one(e, n, output_padding, "paddings of the output")
    if groups != 1 or one(e, n, dilation, "dilations") != 1:
        raise Refused("`%s` with groups or dilation" % n.op)
    if more > p:
        raise Refused("`%s` with a padding of its output that is larger than its padding" % n.op)
    if "2d" in n.op and shape[2] == shape[3] and p == 0 and raw[2] is not None:
        local = part(e, n, "conv_transpose[%d, %d%s]" % (shape[1], shape[2], ", %d" % s if s != 1 else ""), [("weight", raw[1]), ("bias", raw[2])])
        if local:
            return called(local, x, out)
    weight, bias = e.get(raw[1]), e.get(raw[2])
    words = [x.text, weight.text] + (["stride = %d" % s] if s != 1 else []) + (["pad = %d" % p] if p and not more else [])
    places = -2 if "2d" in n.op else -1
    # More is left of the end than of the beginning: all is computed, and the middle taken.
    whole = out if not more else out[:places] + [size + 2 * p - more for size in out[places:]]
    value = Value("%s(%s)" % (n.op.split(".")[1], ", ".join(words)), whole, "f32", merged=x.merged)
    if more:
        value = e.named(value)
        value = Value("%s[.., %s]" % (value.text, ", ".join("%d:%d" % (p, p + size) for size in out[places:])), out, "f32", merged=x.merged)
    return add_channels(e, n, value, bias)


# ---- Recurrent --------------------------------------------------------------------------------------------------------------
def starts_at_zero(states):
    return all(isinstance(s, Value) and re.fullmatch(r"(\w+\[[^\[\]]*\]\()*0\)*", s.text) for s in states)


def recurrent(e, n, kind, x, states, weights, biases, layers, rate, train, both, batch_first):
    if ".input" not in n.op or x.rank != 3:
        raise Refused("`%s` of a packed sequence, or of one example" % n.op)
    if not biases:
        raise Refused("`%s` without biases" % n.op)
    if len(n.args[2]) != 4 * layers * (2 if both else 1):
        raise Refused("`%s` with projections" % n.op)
    if not starts_at_zero(states):
        raise Refused("`%s` from other states than zeros" % n.op)
    if not batch_first:
        x = e.permute(x, [1, 0, 2])
    raw = iter(n.args[2])
    last = []
    for number in range(layers):
        sides = []
        for side in range(2 if both else 1):
            w_in, w_hidden, b_in, b_hidden = (next(raw) for _ in range(4))
            hidden = e.stored_shape(w_hidden)[1]
            members = [("inputs.weight", w_in), ("inputs.bias", b_in), ("cell.hidden.weight", w_hidden), ("cell.hidden.bias", b_hidden)]
            local = part(e, n, "%s[%d]" % (kind, hidden), members)
            if not local:
                raise Refused("`%s` whose parameters are read elsewhere" % n.op)
            x = e.named(x)
            shape = x.shape[:-1] + [hidden]
            if side:
                h = e.define("reverse(%s(reverse(%s, axis = 1)), axis = 1)" % (local, x.text), shape, "f32")
                last.append("%s[:, 0]" % h.text)
            else:
                h = e.define("%s(%s)" % (local, x.text), shape, "f32")
                last.append("%s[:, %d]" % (h.text, shape[1] - 1))
            sides.append(h)
        x = sides[0] if not both else e.define("concat(%s, %s, axis = -1)" % (sides[0].text, sides[1].text), x.shape[:-1] + [2 * hidden], "f32")
        if rate and train and number + 1 < layers:
            x = e.define("dropout(%s, %s)" % (x.text, number_text(rate)), x.shape, "f32")
    shape = x.shape[:1] + [hidden]
    one_layer = [Value("reshape[1, B, %d](%s)" % (hidden, text), [1] + shape, "f32") for text in last]
    final = one_layer[0] if len(last) == 1 else Value("concat(%s, axis = 0)" % ", ".join(v.text for v in one_layer), [len(last)] + shape, "f32")
    return [x if batch_first else e.permute(x, [1, 0, 2]), final, None][: 3 if kind == "lstm" else 2]


@op("lstm")
def lstm(e, n, x, states, weights, biases, layers, rate, train, both, batch_first):
    return recurrent(e, n, "lstm", x, states, weights, biases, layers, rate, train, both, batch_first)


@op("gru", "rnn_tanh")
def gru(e, n, x, state, weights, biases, layers, rate, train, both, batch_first):
    return recurrent(e, n, "gru" if "gru" in n.op else "rnn", x, [state], weights, biases, layers, rate, train, both, batch_first)
