"""The text of one layer while it is written: statements, what it owns, and element-wise work with PyTorch's broadcasting."""
import re

from .node import Refused
from .values import ATOM, FUNCTIONS, TYPES, Value, elements, is_batch, is_free, letters, number_text, size_text, type_text

LONGEST = 72  # an expression that is read once stands where it is read, up to this length


class Layer:
    def __init__(self, graph, uses_of):
        self.graph, self.uses_of = graph, uses_of  # uses_of[node]: how often this layer reads it
        self.lines, self.owned, self.parts = [], [], []  # texts; (kind, name, type, start); (name, text)
        self.paths = []  # (path in here, path in the file of PyTorch)
        self.env, self.counter = {}, 0
        self.parameters = set()  # what the text calls the tensors that it is given
        self.calls = set()       # names of operations of its own

    def fresh(self):
        self.counter += 1
        return "h%d" % self.counter

    # ---- Statements
    def define(self, text, shape, dtype, below=None):
        name = self.fresh()
        self.lines.append("%s = %s" % (name, text))
        return Value(name, shape, dtype, below=below)

    def named(self, value):
        return value if value.simple() else self.define(value.text, value.shape, value.dtype, value.below).with_merged(value.merged)

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
                self.env[name] = self.writer.known[name] if name in self.writer.known else self.constant(name)
            return self.env[name]
        return [self.get(each) for each in arg] if isinstance(arg, list) else arg

    def own(self, kind, local, shape, dtype, start, path):
        local = re.sub(r"\W", "_", local, flags=re.ASCII)
        # In `train` alone `weight` is a word of the language.
        if local != "weight" and (len(local) == 1 or not local[0].isalpha() or not self.may_own(local)):
            local = "p_" + local
        while local in self.names():
            local += "_"
        self.owned.append((kind, local, type_text(shape, dtype), start))
        self.paths.append((local, path))
        return Value(local, shape, dtype)

    def may_own(self, name):
        """Whether a part or a parameter may have this name. It keeps that of a function that is not called here, since names are those of the file."""
        return is_free(name) or (name in FUNCTIONS and name not in self.calls)

    def names(self):
        """What cannot be the name of another thing that the layer owns."""
        return {name for _, name, _, _ in self.owned} | {name for name, _ in self.parts} | self.parameters

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
            operands = [self._without_row(v, len(shape)) for v in operands]
            tensors = [v for v in operands if isinstance(v, Value)]
            shape = self._with_examples_apart(node, tensors, merged)
        if sum(map(is_batch, shape)) > 1:
            raise Refused("`%s` that compares all examples with all: the model works example by example" % node.op)
        plain = all(v.rank <= len(shape) and v.shape == shape[len(shape) - v.rank:] for v in tensors)
        if plain and any(v.rank == len(shape) for v in tensors):
            needed = 0 if hold == ATOM else hold + 1  # between commas anything may stand
            texts = [v.inside(needed) if isinstance(v, Value) else number_text(v) for v in operands]
            return Value(template.format(*texts), shape, dtype, hold, below, merged)
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
        return self.by_index(shape, dtype, names, template.format(*texts), below).with_merged(merged)

    def _without_row(self, v, rank):
        """An operand without its axis of one element that stands beside the joined axis."""
        if isinstance(v, Value) and v.merged == 1 and v.rank == rank and v.shape[0] == 1:
            return self.reshape(v, v.shape[1:])
        return v

    @staticmethod
    def _with_examples_apart(node, tensors, merged):
        """The shape of the result, the axes apart that a view made one. Operands have all of these axes, or none of them."""
        whole = next(v for v in tensors if v.merged == merged)
        lead, rest = whole.shape[:merged], node.out["shape"][1:]
        for v in tensors:
            beside = v.merged == merged and v.shape[:merged] == lead and v.rank == merged + len(rest)
            if not beside and (v.merged > 1 or v.rank > len(rest)):
                raise Refused("`%s` of what was made flat by a view" % node.op)
        if node.out["shape"][:1] != [{"B": elements(lead)}]:
            raise Refused("`%s` of what was made flat by a view" % node.op)
        return lead + rest

    def reshape(self, value, shape, below=None):
        if value.shape == shape:
            return value
        if _before_examples(shape) != _before_examples(value.shape):
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


def _before_examples(shape):
    """How many elements lie between those of an example that are neighbours in memory: the examples' place, whatever the other axes are."""
    if not any(map(is_batch, shape)):
        return None
    return elements(shape[:next(at for at, size in enumerate(shape) if is_batch(size))])


def known_array(layer, array):
    """0, 1, .., n - 1; a lower triangle of ones; a few numbers."""
    import numpy

    if array.ndim == 0:
        return array.item()
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
        return layer.reshape(Value("vector(%s)" % number_text(float(array.reshape(()))), [1], "f32"), list(array.shape))
    if array.ndim == 1 and array.size <= 16 and kind == "f32" and numpy.isfinite(array).all():
        return Value("vector(%s)" % ", ".join(number_text(float(each)) for each in array), array.shape, "f32")
    return None
