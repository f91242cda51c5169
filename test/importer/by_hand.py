"""Graphs as torch.export writes them, written by hand, with what PyTorch computes said in NumPy: small things that a model may say and an importer
may get wrong without a word. Nodes are named as PyTorch's. A node is computed twice, for 4 and for 5 examples: sizes that differ are the batch."""
import numpy as np

BATCH = 4


def sized(a, b):
    """The shape of a result, from those for 4 and 5 examples."""
    return [x if x == y else {"B": x // BATCH} for x, y in zip(a, b)]


def typed(values):
    if isinstance(values[0], (list, tuple)):
        return [typed(pair) for pair in zip(*values)]
    return {"shape": sized(values[0].shape, values[1].shape), "dtype": str(values[0].dtype)}


class Graph:
    """inputs: name -> array for 5 examples."""

    def __init__(self, **inputs):
        self.values, self.inputs, self.stored, self.nodes, self.outputs, self.weights = {}, [], [], [], [], {}
        for name, array in inputs.items():
            self.values[name] = (array[:BATCH], array)
            self.inputs.append({"name": name, **typed(self.values[name])})

    def own(self, name, path, array, kind="parameter"):
        """A parameter or a buffer."""
        self.values[name] = (array, array)
        self.stored.append({"name": name, "path": path, "kind": kind, "shape": list(array.shape), "dtype": str(array.dtype)})
        self.weights[path] = array
        return name

    def add(self, op, function, *args, module="", **kwargs):
        """A node; `function` of the arguments in NumPy. Names of values stand for them."""
        base = op.removeprefix("aten.").split(".")[0]
        name = base if base not in self.values else "%s_%d" % (base, len(self.nodes))

        def named(value):
            if isinstance(value, list):
                return [named(each) for each in value]
            return {"node": value} if isinstance(value, str) and value in self.values else value

        def of(value, at):
            if isinstance(value, list):
                return [of(each, at) for each in value]
            return self.values[value][at] if isinstance(value, str) and value in self.values else value

        results = []
        for at in (0, 1):
            result = function(*[of(arg, at) for arg in args])
            results.append(result if isinstance(result, (list, tuple)) else narrow(np.asarray(result)))
        self.values[name] = tuple(results)
        self.nodes.append({"name": name, "op": op, "args": named(list(args)), "kwargs": kwargs, "out": typed(self.values[name]),
                           "stack": [["", "", "Model"]] + ([["m", module, "Part"]] if module else [])})
        return name

    def give(self, *names):
        self.outputs += names

    def data(self):
        return {"inputs": self.inputs, "stored": self.stored, "nodes": self.nodes, "outputs": self.outputs}

    def expected(self):
        return [self.values[name][0] for name in self.outputs]

    def arrays(self):
        return {each["name"]: self.values[each["name"]][0] for each in self.inputs}


def narrow(array):
    return array.astype(np.float32) if array.dtype == np.float64 else array


RNG = np.random.default_rng(3)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis):
    return np.log(softmax(x, axis))


def linear(x, w, c):
    return x @ w.T + c


def start(*shape, **more):
    """A graph with an input x and a linear layer on it: all programs have parameters."""
    graph = Graph(x=numbers(5, *shape), **more)
    graph.own("w", "fc.weight", numbers(shape[-1], shape[-1]))
    graph.own("c", "fc.bias", numbers(shape[-1]))
    return graph, graph.add("aten.linear.default", linear, "x", "w", "c")


# ---- What becomes a program: name -> graph, the outputs of which are compared --------------------------------------------------
def flat_axes():
    """[B, T, V] seen as [B * T, V]: axes count from the left of what PyTorch sees."""
    g, h = start(5, 7)
    flat = g.add("aten.view.default", lambda x, _: x.reshape(-1, 7), h, [-1, 7])
    back = lambda name, *tail: g.add("aten.view.default", lambda x, _: x.reshape(-1, 5, *tail), name, [-1, 5, *tail])
    g.give(back(g.add("aten.log_softmax.int", log_softmax, flat, 1), 7))
    g.give(back(g.add("aten.softmax.int", softmax, flat, -1), 7))
    half = g.add("aten.slice.Tensor", lambda x, *_: x[:, 2:6], flat, 1, 2, 6)
    g.give(back(half, 4))
    g.give(back(g.add("aten.select.int", lambda x, *_: x[:, 3], flat, 1, 3)))
    parts = g.add("aten.split.Tensor", lambda x, *_: [x[:, :3], x[:, 3:6], x[:, 6:]], flat, 3, 1)
    first, last = (g.add("getitem", lambda parts, k: parts[k], parts, k) for k in (0, 2))
    g.give(back(g.add("aten.cat.default", lambda parts, _: np.concatenate(parts, 1), [first, half, last], 1), 8))
    g.give(back(g.add("aten.stack.default", lambda parts, _: np.stack(parts, 1), [flat, flat], 1), 2, 7))
    mean = g.add("aten.mean.dim", lambda x, *_: x.mean(1, keepdims=True), flat, [1], True)
    g.give(back(g.add("aten.sub.Tensor", lambda x, y: x - y, flat, mean), 7))
    g.give(back(g.add("aten.sum.dim_IntList", lambda x, *_: x.sum(-1), flat, [-1])))
    g.give(back(g.add("aten.amax.default", lambda x, *_: x.max(1), flat, [1])))
    g.give(back(g.add("aten.argmax.default", lambda x, *_: x.argmax(1), flat, 1)))
    g.give(back(g.add("aten.flip.default", lambda x, _: x[:, ::-1], flat, [1]), 7))
    g.give(back(g.add("aten.constant_pad_nd.default", lambda x, *_: np.pad(x, ((0, 0), (1, 2)), constant_values=3), flat, [1, 2], 3.0), 10))
    return g


def flat_shapes():
    """.. and is seen otherwise again, moved, stretched, multiplied."""
    g, h = start(6, 4)
    flat = g.add("aten.view.default", lambda x, _: x.reshape(-1, 3, 4), h, [-1, 3, 4])  # [B * 2, 3, 4], in rank as before
    turned = g.add("aten.transpose.int", lambda x, *_: x.transpose(0, 2, 1), flat, 1, 2)
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 24), turned, [-1, 24]))
    moved = g.add("aten.permute.default", lambda x, _: x.transpose(0, 2, 1), flat, [0, 2, 1])
    scores = g.add("aten.bmm.default", lambda a, b: a @ b, flat, moved)
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 18), scores, [-1, 18]))
    long = g.add("aten.view.default", lambda x, _: x.reshape(-1, 4), flat, [-1, 4])  # [B * 6, 4]
    one = g.add("aten.unsqueeze.default", lambda x, _: x[:, None], long, 1)
    wide = g.add("aten.expand.default", lambda x, _: np.broadcast_to(x, (len(x), 3, 4)), one, [-1, 3, 4])
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 72), wide, [-1, 72]))
    single = g.add("aten.view.default", lambda x, _: x.reshape(-1), g.add("aten.relu.default", lambda x: np.maximum(x, 0), long), [-1])
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 24), g.add("aten.clamp.default", lambda x, a, b: x.clip(a, b), single, 0.1, 0.6), [-1, 24]))
    truth = g.add("aten.gt.Scalar", lambda x, y: x > y, long, 0.2)
    counted = g.add("aten.to.dtype", lambda x, _: x.astype(np.float32), truth, "float32")
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 6), g.add("aten.sum.dim_IntList", lambda x, *_: x.sum(1), counted, [1]), [-1, 6]))
    return g


def precedence():
    """Operations inside of others, negative numbers, and factors of sums."""
    g, h = start(6)
    p = g.add("aten.pow.Tensor_Scalar", lambda x, e: x ** e, h, 2)
    g.give(g.add("aten.pow.Tensor_Scalar", lambda x, e: x ** e, p, 3))
    z = g.add("aten.sigmoid.default", lambda x: 1 / (1 + np.exp(-x)), "x")
    inverse = g.add("aten.pow.Tensor_Scalar", lambda x, e: x ** e, z, -1)
    g.give(g.add("aten.pow.Tensor_Scalar", lambda x, e: x ** e, g.add("aten.neg.default", lambda x: -x, inverse), 2))
    g.give(g.add("aten.add.Tensor", lambda x, y: x + 2 * y, h, "x", alpha=2), g.add("aten.sub.Tensor", lambda x, y: x + 3 * y, h, "x", alpha=-3))
    total = g.add("aten.add.Tensor", lambda x, y: x + y, h, "x")
    g.give(g.add("aten.rsub.Scalar", lambda x, y, a: y - a * x, total, 1, 2), g.add("aten.sub.Tensor", lambda x, y: x - y, "x", total))
    divide = lambda a, b: g.add("aten.div.Tensor", lambda x, y: x / y, a, b)
    g.give(g.add("aten.sub.Tensor", lambda x, y: x - y, h, -1), divide("x", divide(total, z)))
    g.give(g.add("aten.reciprocal.default", lambda x: 1 / x, g.add("aten.add.Tensor", lambda x, y: x + y, p, 1)))
    root = g.add("aten.rsqrt.default", lambda x: 1 / np.sqrt(x), g.add("aten.add.Tensor", lambda x, y: x + y, p, 1))
    g.give(g.add("aten.pow.Tensor_Scalar", lambda x, e: x ** e, root, 2), g.add("aten.neg.default", lambda x: -x, g.add("aten.neg.default", lambda x: -x, total)))
    more = g.add("aten.gt.Scalar", lambda x, y: x > y, total, 0)
    less = g.add("aten.lt.Tensor", lambda x, y: x < y, g.add("aten.sub.Tensor", lambda x, y: x - y, h, "x"), g.add("aten.neg.default", lambda x: -x, "x"))
    both = g.add("aten.logical_and.default", np.logical_and, g.add("aten.logical_not.default", np.logical_not, more), less)
    either = g.add("aten.bitwise_or.Tensor", np.logical_or, both, g.add("aten.eq.Scalar", lambda x, y: x == y, more, 0))
    other = g.add("aten.bitwise_not.default", np.logical_not, either)
    g.give(g.add("aten.where.self", np.where, other, g.add("aten.mul.Tensor", lambda x, y: x * y, total, total), g.add("aten.neg.default", lambda x: -x, total)))
    g.give(g.add("aten.mul.Tensor", lambda x, y: x * y, h, more), g.add("aten.clamp.default", lambda x, a, b: x.clip(None, b), total, None, -0.25))
    g.give(g.add("aten.masked_fill.Scalar", lambda x, m, v: np.where(m, v, x), total, both, -2.0))
    return g


def numbers_of_words():
    """Whole numbers and truth values where PyTorch converts by itself; counts; a mask's own axes."""
    g, h = start(5, 6, ids=RNG.integers(0, 9, (5, 5)))
    g.give(h, g.add("aten.div.Tensor", lambda x, y: (x / y), "ids", 4), g.add("aten.mul.Tensor", lambda x, y: x * y, "ids", 0.5))
    real = g.add("aten.gt.Scalar", lambda x, y: x > y, "ids", 3.5)
    whole = g.add("aten.to.dtype", lambda x, _: x.astype(np.int64), real, "int64")
    count = g.add("aten.sum.dim_IntList", lambda x, *_: x.sum(1, keepdims=True), whole, [1], True)
    column = g.add("aten.unsqueeze.default", lambda x, _: x[:, :, None], real, -1)
    total = g.add("aten.sum.dim_IntList", lambda x, *_: x.sum(1), g.add("aten.mul.Tensor", lambda x, y: x * y, h, column), [1])
    g.give(g.add("aten.div.Tensor", lambda x, y: x / y, total, g.add("aten.clamp.default", lambda x, a: x.clip(a, None), count, 1)))
    place = g.add("aten.argmax.default", lambda x, *_: x.argmax(2, keepdims=True), h, 2, True)
    g.give(g.add("aten.sub.Tensor", lambda x, y: (x - y).astype(np.float32), h, place))
    ones = g.add("aten.full.default", lambda *_: np.full((5,), 2, np.int64), [5], 2)
    g.give(g.add("aten.add.Tensor", lambda x, y: x + y, g.add("aten.mul.Tensor", lambda x, y: x * y, "ids", ones), 1))
    return g


def in_place():
    """Changes in place that are followed: of a value itself, of a view whose base nobody reads, of one part of a split."""
    g, h = start(4, 6)
    seen = g.add("aten.view.default", lambda x, _: x.reshape(-1, 24), h, [-1, 24])
    g.add("aten.relu_.default", lambda x: np.maximum(x, 0), seen)
    changed = g.add("aten.add_.Tensor", lambda x, y: x + y, "relu_", 1.5)
    parts = g.add("aten.chunk.default", lambda x, *_: [x[:, :12], x[:, 12:]], changed, 2, 1)
    one, two = (g.add("getitem", lambda parts, k: parts[k], parts, k) for k in (0, 1))
    g.add("aten.mul_.Tensor", lambda x, y: x * y, one, -2.0)
    g.give(g.add("aten.add.Tensor", lambda x, y: x + y, "mul_", two))
    z = g.add("aten.clone.default", lambda x: x, "x")
    mask = g.add("aten.gt.Scalar", lambda x, y: x > y, z, 0.0)
    filled = g.add("aten.masked_fill_.Scalar", lambda x, m, v: np.where(m, v, x), z, mask, 7.0)
    g.nodes.append({"name": "again", "op": "aten.tanh.default", "args": [{"node": z}], "kwargs": {}, "out": g.nodes[-1]["out"], "stack": [["", "", "Model"]]})
    g.values["again"] = tuple(np.tanh(value) for value in g.values[filled])  # it reads `clone`, which is now what masked_fill_ made of it
    g.give("again")
    g.own("seen", "norm.seen", np.zeros((), np.int64), "buffer")
    g.add("aten.add_.Tensor", lambda x, y: x + y, "seen", 1)  # nobody reads it
    return g


def change_without_reader():
    """y = x.clone(); y[:, 0].fill_(0); y.add_(1); y.detach().zero_(); z = fc(x); z.mul_(2) behind the last reader of z: no result is computed from any of them."""
    g, h = start(4, 6)
    copied = g.add("aten.clone.default", lambda x: x, "x")
    g.add("aten.fill_.Scalar", lambda x, v: x * 0 + v, g.add("aten.select.int", lambda x, *_: x[:, 0], copied, 1, 0), 0.0)
    g.add("aten.add_.Tensor", lambda x, y: x + y, copied, 1)
    g.add("aten.zero_.default", lambda x: x * 0, g.add("aten.detach.default", lambda x: x, copied))
    g.give(g.add("aten.tanh.default", np.tanh, h))
    g.add("aten.mul_.Tensor", lambda x, y: x * y, h, 2.0)
    return g


def names():
    """Inputs, parts, parameters and modules that are called as words of the language, or as what the program calls its own things."""
    g = Graph(state=numbers(5, 6), out=numbers(5, 6), h1=numbers(5, 6), y=numbers(5, 6), target=numbers(5, 6), fc=numbers(5, 6), label=numbers(5, 6))
    g.own("w", "fc.weight", numbers(6, 6))
    g.own("c", "fc.bias", numbers(6))
    g.own("s", "mean", numbers(6))
    g.own("q", "y", numbers(6))
    g.own("u", "tanh.weight", numbers(6, 6))
    g.own("v", "tanh.bias", numbers(6))
    h = g.add("aten.linear.default", linear, "state", "w", "c")
    for name in ("out", "h1", "y", "target", "fc", "label", "s", "q"):
        h = g.add("aten.add.Tensor", lambda x, y: x + y, g.add("aten.tanh.default", np.tanh, h), name)
    g.give(g.add("aten.linear.default", linear, h, "u", "v"))
    return g


def returned_twice():
    """Equal results count: what comes behind them keeps its number."""
    g, h = start(6)
    one, two = (g.add("aten.mul.Tensor", lambda x, y: x * y, h, 2.0) for _ in range(2))
    g.give(one, two, h, one)
    return g


def odd_letters():
    """einsum whose letters are names of tensors here; a lower triangle of zeros and of numbers; a slice from far left."""
    g, h = start(5, 6, t=numbers(5, 6))
    g.give(g.add("aten.einsum.default", lambda _, ab: np.einsum("xty,xy->xt", *ab), "xty,xy->xt", [h, "t"]))
    zeros = g.add("aten.zeros.default", lambda _: np.zeros((5, 5), bool), [5, 5], dtype="bool")
    none = g.add("aten.tril.default", lambda x: np.tril(x), zeros)
    first = g.add("aten.slice.Tensor", lambda x, *_: x[:, :1], none, 1, 0, 1)
    g.give(g.add("aten.masked_fill.Scalar", lambda x, m, v: np.where(m[None], v, x), h, first, 9.0))
    g.give(g.add("aten.slice.Tensor", lambda x, *_: x[:, -9:3], h, 1, -9, 3))
    steps = g.add("aten.arange.default", lambda n: np.arange(n, dtype=np.float32), 5.5)
    g.give(g.add("aten.cat.default", lambda ab, _: np.concatenate(ab, -1), [g.add("aten.mul.Tensor", lambda x, y: x * y, "t", steps)], -1))
    return g


def padded_words():
    """nn.Embedding(7, 4, padding_idx = 2), of [B, T] and of [B * T]: row 2 is read like any other, and gets no gradient."""
    g = Graph(ids=np.array([[2, 1, 0], [3, 2, 2], [5, 4, 2], [2, 6, 3], [0, 1, 2]]))
    g.own("w", "table.weight", numbers(7, 4))
    g.own("u", "fc.weight", numbers(4, 4))
    g.own("c", "fc.bias", numbers(4))
    g.give(g.add("aten.linear.default", linear, g.add("aten.embedding.default", lambda w, i, _: w[i], "w", "ids", 2), "u", "c"))
    flat = g.add("aten.view.default", lambda x, _: x.reshape(-1), "ids", [-1])
    read = g.add("aten.embedding.default", lambda w, i, _: w[i], "w", flat, 2)
    g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 3, 4), read, [-1, 3, 4]))
    return g


def windows(x, k, s):
    """Those along the last axis, as an axis of their own."""
    return np.stack([x[..., at : at + k] for at in range(0, x.shape[-1] - k + 1, s)], -2)


def borders():
    """Padding by what stands at the border, negative padding, and windows that reach beyond it."""
    g, h = start(3, 9)
    flat = g.add("aten.view.default", lambda x, _: x.reshape(-1, 9), h, [-1, 9])  # [B * 3, 9]
    for mode, other in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        wider = g.add("aten.pad.default", lambda x, *_, other=other: np.pad(x, ((0, 0), (3, 1)), other), flat, [3, 1], mode)
        g.give(g.add("aten.view.default", lambda x, _: x.reshape(-1, 3, 13), wider, [-1, 3, 13]))
        g.give(g.add("aten.pad.default", lambda x, *_, other=other: np.pad(x, ((0, 0), (0, 2), (2, 0)), other), h, [2, 0, 0, 2], mode))
    g.give(g.add("aten.constant_pad_nd.default", lambda x, *_: np.pad(x[:, 1:, :-2], ((0, 0), (0, 1), (1, 0))), h, [1, -2, -1, 1], 0.0))
    # 9 elements and a padding of 1: windows of 4 begin at 0, 3 and 6, and with ceil_mode at 9, where the last element and its padding are left.
    lowest = lambda x: np.pad(x, ((0, 0), (0, 0), (1, 3)), constant_values=-np.inf)
    g.give(g.add("aten.max_pool1d.default", lambda x, *_: windows(lowest(x), 4, 3).max(-1), h, [4], [3], [1], [1], True))
    zeros, inside, padded = np.pad(np.ones(9), (1, 3)), np.pad(np.ones(11), (0, 2)), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 3)))
    for counted, which in ((True, inside), (False, zeros[:13])):
        g.give(g.add("aten.avg_pool1d.default", lambda x, *_, which=which: windows(padded(x), 4, 3).sum(-1) / windows(which, 4, 3).sum(-1),
                     h, [4], [3], [1], True, counted))
    g.give(g.add("aten.avg_pool1d.default", lambda x, *_: windows(padded(x)[..., :11], 4, 3).sum(-1) / windows(zeros[:11], 4, 3).sum(-1),
                 h, [4], [3], [1], False, False))
    return g


ACCEPTED = [borders, flat_axes, flat_shapes, precedence, numbers_of_words, in_place, change_without_reader, names, returned_twice, odd_letters, padded_words]


# ---- What is refused: name -> (graph, words of the message) -----------------------------------------------------------------------
def through_a_view():
    """x = x.clone(); x[:, 0] = 0; fc(x)"""
    g, h = start(6)
    copied = g.add("aten.clone.default", lambda x: x, h)
    g.add("aten.fill_.Scalar", lambda x, v: x * 0 + v, g.add("aten.select.int", lambda x, *_: x[:, 0], copied, 1, 0), 0.0, module="encoder.first")
    g.give(g.add("aten.linear.default", linear, copied, "w", "c", module="encoder.second"))
    return g, ["aten.fill_.Scalar", "`clone`", "in place", "encoder.second"]


def view_from_before():
    """v = x[:, 0]; x.add_(1); v"""
    g, h = start(6)
    seen = g.add("aten.select.int", lambda x, *_: x[:, 0], h, 1, 0)
    g.add("aten.add_.Tensor", lambda x, y: x + y, h, 1)
    g.give(g.add("aten.mul.Tensor", lambda x, y: x * y, seen, 2.0))
    return g, ["aten.add_.Tensor", "`linear`", "in place"]


def overlapping_parts():
    """x[:, :4].mul_(2) and x[:, 2:] behind it, both from one tensor"""
    g, h = start(6)
    one, two = (g.add("aten.slice.Tensor", lambda x, *_: x[:, :4], h, 1, a, b) for a, b in ((0, 4), (2, 6)))
    g.add("aten.mul_.Tensor", lambda x, y: x * y, one, 2.0)
    g.give(g.add("aten.add.Tensor", lambda x, y: x + y, "mul_", two))
    return g, ["aten.mul_.Tensor", "in place"]


def through_a_dropout_that_is_none():
    g, h = start(6)
    same = g.add("aten.dropout.default", lambda x, *_: x, h, 0.0, True)
    g.add("aten.add_.Tensor", lambda x, y: x + y, same, 1)
    g.give(g.add("aten.mul.Tensor", lambda x, y: x * y, "add_", h))
    return g, ["aten.add_.Tensor", "in place"]


def change_of_what_may_be_a_view():
    """x.as_strided(..).zero_(); fc(x): what is changed may lie in the memory of x."""
    g, h = start(6)
    g.add("aten.zero_.default", lambda x: x * 0, g.add("aten.as_strided.default", lambda x, *_: x, h, [4, 6], [6, 1]))
    g.give(g.add("aten.linear.default", linear, h, "w", "c"))
    return g, ["aten.zero_.default", "`as_strided` may be a view"]


def truth_in_place():
    """mask |= other; x[mask]"""
    g, h = start(6)
    mask, other = (g.add("aten.gt.Scalar", lambda x, y: x > y, name, 0.0) for name in (h, "x"))
    seen = g.add("aten.unsqueeze.default", lambda x, _: x[:, None], mask, 1)
    g.add("aten.__ior__.Tensor", np.logical_or, mask, other)
    g.give(g.add("aten.where.self", lambda m, x, y: np.where(m[:, 0], x, y), seen, "x", h))
    return g, ["aten.__ior__.Tensor", "in place"]


def parameter_in_place():
    """nn.Embedding(max_norm = 1)"""
    g, _ = start(6, ids=RNG.integers(0, 6, (5, 3)))
    g.add("aten.embedding_renorm_.default", lambda w, *_: w, "w", "ids", 1.0, 2.0)
    g.give(g.add("aten.embedding.default", lambda w, i: w[i], "w", "ids"))
    return g, ["aten.embedding_renorm_.default", "in place"]


def counter_that_is_read():
    g, h = start(6)
    g.own("steps", "steps", np.zeros((), np.float32), "buffer")
    counted = g.add("aten.add_.Tensor", lambda x, y: x + y, "steps", 1)
    g.give(g.add("aten.mul.Tensor", lambda x, y: x * y, h, counted))
    return g, ["aten.add_.Tensor", "`steps`", "from call to call"]


def flattened(function, *words):
    g, h = start(5, 7)
    flat = g.add("aten.view.default", lambda x, _: x.reshape(-1, 7), h, [-1, 7])
    g.give(function(g, flat))
    return g, list(words)


def flat_softmax():
    return flattened(lambda g, x: g.add("aten.softmax.int", softmax, x, 0), "joined the examples")


def flat_mean():
    return flattened(lambda g, x: g.add("aten.mean.dim", lambda x, *_: x - x.mean(0) + x, x, [0]), "joined the examples")


def flat_turned():
    return flattened(lambda g, x: g.add("aten.t.default", lambda x: x.T, x), "joined the examples")


def flat_norm():
    """BatchNorm1d of [B * T, V]"""
    def norm(g, x):
        for name in ("scale", "shift", "running_mean", "running_var"):
            g.own(name, "norm." + name, numbers(7), "buffer" if "running" in name else "parameter")
        return g.add("aten.batch_norm.default", lambda x, *_: x, x, "scale", "shift", "running_mean", "running_var", True, 0.1, 1e-5, True)

    return flattened(norm, "aten.batch_norm.default", "made flat")


def norm_in_evaluation():
    """BatchNorm1d in eval(), exported so: it would train with the statistics of the batch."""
    g, h = start(6)
    for name in ("scale", "shift", "running_mean", "running_var"):
        g.own(name, "norm." + name, numbers(6), "buffer" if "running" in name else "parameter")
    g.give(g.add("aten.batch_norm.default", lambda x, *_: x, h, "scale", "shift", "running_mean", "running_var", False, 0.1, 1e-5, True))
    return g, ["running statistics", "model.train()"]


def along_examples():
    g, h = start(6)
    g.give(g.add("aten.cat.default", lambda ab, _: np.concatenate(ab), [h, h], 0))
    return g, ["along the examples"]


def unknown_arguments():
    g, h = start(6)
    g.give(g.add("aten.relu.default", lambda x, *_: x, h, "a word", 3))
    return g, ["aten.relu.default"]


def unknown_options():
    g, h = start(6)
    g.give(g.add("aten.tanh.default", lambda x: x, h, strange="yes", out=None))
    return g, ["aten.tanh.default"]


def compared_with_all():
    """x @ x.T, a number for each pair of examples"""
    g, h = start(6)
    g.give(g.add("aten.mm.default", lambda x, y: x[:, :1] @ y[:1] * 0 + x @ y, h, g.add("aten.t.default", lambda x: x.T, "x")))
    return g, ["all examples with all"]


def no_tensor_returned():
    g, _ = start(6)
    return g, ["returns no tensor"]


def mask_of_queries():
    """Attention with a mask [B, 1, T, 1]: it hides queries, though there are as many as keys."""
    g = Graph(x=numbers(5, 2, 3, 4), m=RNG.integers(0, 2, (5, 1, 3, 1)).astype(bool))
    g.own("w", "fc.weight", numbers(4, 4))
    g.own("c", "fc.bias", numbers(4))
    h = g.add("aten.linear.default", linear, "x", "w", "c")
    g.give(g.add("aten.scaled_dot_product_attention.default", lambda q, *_: q, h, h, h, "m"))
    return g, ["attention with a mask"]


def rows_by_frequency():
    """nn.Embedding(.., scale_grad_by_freq = True)"""
    g = Graph(ids=RNG.integers(0, 6, (5, 3)))
    g.own("w", "table.weight", numbers(6, 4))
    g.give(g.add("aten.embedding.default", lambda w, i, *_: w[i], "w", "ids", -1, True, module="words"))
    return g, ["aten.embedding.default", "scale_grad_by_freq", "export it again", "module `words`"]


REFUSED = [through_a_view, view_from_before, overlapping_parts, through_a_dropout_that_is_none, change_of_what_may_be_a_view, truth_in_place, parameter_in_place,
           counter_that_is_read, compared_with_all, flat_softmax, flat_mean, flat_turned, flat_norm, norm_in_evaluation, along_examples, unknown_arguments, unknown_options,
           no_tensor_returned, mask_of_queries, rows_by_frequency]
