"""The text of one layer while it is written: statements, what it owns, and element-wise work with PyTorch's broadcasting."""
from .graph import Refused
from .values import ATOM, TYPES, Value, is_batch, letters, number_text, size_text, type_text

LONGEST = 72  # an expression that is read once stands where it is read, up to this length


class Layer:
    def __init__(self, graph, uses_of):
        self.graph, self.uses_of = graph, uses_of  # uses_of[node]: how often this layer reads it
        self.lines, self.owned, self.parts = [], [], []  # texts; (kind, name, type, start); (name, text)
        self.paths = []  # (path in here, path in the file of PyTorch)
        self.env, self.counter = {}, 0

    def fresh(self):
        self.counter += 1
        return "h%d" % self.counter

    # ---- Statements
    def define(self, text, shape, dtype, below=None):
        name = self.fresh()
        self.lines.append("%s = %s" % (name, text))
        return Value(name, shape, dtype, below=below)

    def named(self, value):
        return value if value.simple() else self._moved(value, self.define(value.text, value.shape, value.dtype, value.below))

    @staticmethod
    def _moved(old, new):
        new.merged = old.merged
        return new

    def by_index(self, shape, dtype, names, text, below=None):
        """y[names] = text, where text is written with the same index names."""
        name = self.fresh()
        self.lines.append("%s[%s] = %s" % (name, ", ".join(names), text))
        return Value(name, shape, dtype, below=below)

    def settle(self, node, value):
        """What is read once and short stays an expression; all else gets a name."""
        if isinstance(value, Value) and not value.simple() and (self.uses_of.get(node.name, 0) != 1 or len(value.text) > LONGEST):
            value = self.named(value)
        self.env[node.name] = value

    # ---- What a node reads
    def get(self, arg):
        if isinstance(arg, dict) and "node" in arg:
            name = arg["node"]
            if name not in self.env:
                self.env[name] = self.constant(name)
            return self.env[name]
        return [self.get(each) for each in arg] if isinstance(arg, list) else arg

    def own(self, kind, local, shape, dtype, start, path):
        taken = {name for _, name, _, _ in self.owned} | {name for name, _ in self.parts}
        local = local if local.isidentifier() and len(local) > 1 and local not in ("weight",) or local == "weight" else "p_" + local
        while local in taken:
            local += "_"
        self.owned.append((kind, local, type_text(shape, dtype), start))
        self.paths.append((local, path))
        return Value(local, shape, dtype)

    def constant(self, name):
        """A buffer or a constant: said by a formula where it is a known one, else kept as a state that is read from the file."""
        stored = self.graph.stored.get(name)
        if stored is None:
            raise Refused("`%s` is read where it is not known" % name)
        if stored["kind"] == "parameter":
            return self.own("param", self.writer._relative(self.scope, stored["path"]), stored["shape"], "f32", "normal(0.02)", stored["path"])
        array = self.graph.weights.get(stored["path"])
        if array is None:
            raise Refused("the file does not hold `%s`" % stored["path"])
        formula = known_array(self, array)
        if formula is not None:
            return formula
        if not stored["dtype"].startswith("float"):
            raise Refused("`%s` is a constant of %s%s that no formula here gives" % (stored["path"], stored["dtype"], stored["shape"]))
        return self.own("state", stored["path"].split(".")[-1], stored["shape"], "f32", "zeros", stored["path"])

    # ---- Element-wise
    def elementwise(self, node, template, operands, hold, dtype=None, below=None):
        """template: "{0} + {1}"; in place of a tensor of fewer axes, or with axes of one element, index notation stands."""
        out = node.out
        shape, dtype = out["shape"], dtype or TYPES.get(out["dtype"])
        tensors = [v for v in operands if isinstance(v, Value)]
        merged = max([v.merged for v in tensors] + [1])
        if merged > 1:
            whole = next(v for v in tensors if v.merged == merged)
            if any(v.rank and v is not whole and v.shape != whole.shape and v.shape != whole.shape[-v.rank:] for v in tensors):
                raise Refused("`%s` of what was made flat by a view" % node.op)
            shape = whole.shape
        plain = all(v.rank <= len(shape) and v.shape == shape[len(shape) - v.rank:] for v in tensors)
        if plain and any(v.rank == len(shape) for v in tensors):
            value = Value(template.format(*[v.inside(hold + 1) if isinstance(v, Value) else number_text(v) for v in operands]), shape, dtype, hold, below)
            value.merged = merged
            return value
        names = letters(shape)
        texts = []
        for operand in operands:
            if not isinstance(operand, Value):
                texts.append(number_text(operand))
                continue
            operand = self.named(operand)
            own = names[len(names) - operand.rank:] if operand.rank else []
            slots = [i if size == shape[len(shape) - operand.rank + k] else "0" for k, (i, size) in enumerate(zip(own, operand.shape))]
            texts.append("%s[%s]" % (operand.text, ", ".join(slots)) if slots else operand.text)
        missing = [i for i in names if not any(i in text.replace("[", " ").replace("]", " ").replace(",", " ").split() for text in texts)]
        if missing:
            raise Refused("`%s` makes an axis that no operand has" % node.op)
        return self.by_index(shape, dtype, names, template.format(*texts), below)

    def reshape(self, value, shape, below=None):
        if value.shape == shape:
            return value
        if sum(is_batch(size) for size in shape) != sum(is_batch(size) for size in value.shape):
            raise Refused("a view moves the examples")
        before = getattr(value, "before", value)  # a reshape of a reshape is one
        if before.shape == shape:
            return before
        reshaped = Value("reshape[%s](%s)" % (", ".join(size_text(size) for size in shape), before.text), shape, value.dtype, below=below or value.below)
        reshaped.before = before
        return reshaped

    def permute(self, value, order):
        shape = [value.shape[i] for i in order]
        if list(order) == list(range(value.rank)):
            return value
        if list(order) == list(range(value.rank - 2)) + [value.rank - 1, value.rank - 2]:
            return Value(value.inside(ATOM) + "'", shape, value.dtype, below=value.below)
        value = self.named(value)
        names = letters(value.shape)
        return self.by_index(shape, value.dtype, [names[i] for i in order], "%s[%s]" % (value.text, ", ".join(names)), value.below)


def known_array(layer, array):
    """0, 1, .., n - 1; a lower triangle of ones; a few numbers."""
    import numpy

    kind = "i32" if array.dtype.kind in "iu" else "bool" if array.dtype.kind == "b" else "f32"
    core = array.reshape([size for size in array.shape if size != 1] or [1])
    if core.ndim == 1 and core.size > 1 and kind != "bool" and numpy.array_equal(core, numpy.arange(core.size)):
        counts = "range[%d]" % core.size
        return layer.reshape(Value(counts if kind == "i32" else "f32(%s)" % counts, core.shape, kind, below=core.size), list(array.shape))
    if core.ndim == 2 and core.shape[0] > 1 and numpy.array_equal(core != 0, numpy.tri(*core.shape, dtype=bool)) and set(numpy.unique(core)) <= {0, 1}:
        rows, columns = (layer.define("range[%d]" % size, [size], "i32", size) for size in core.shape)
        mask = layer.by_index(list(core.shape), "bool", ["i", "j"], "%s[j] <= %s[i]" % (columns.text, rows.text))
        if kind != "bool":
            mask = Value("f32(%s)" % mask.text, mask.shape, "f32")
        return layer.reshape(mask, list(array.shape))
    if array.size == 1 and kind == "f32":
        return float(array.reshape(())) if array.ndim == 0 else Value("vector(%s)" % number_text(float(array.reshape(()))), array.shape, "f32")
    if array.ndim == 1 and array.size <= 16 and kind == "f32":
        return Value("vector(%s)" % ", ".join(number_text(float(each)) for each in array), array.shape, "f32")
    return None
