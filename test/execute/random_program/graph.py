"""A program as a graph: nodes with types, bodies of layers and of the model, and what NumPy needs to evaluate them.

A node knows its operands and an op; the op writes the statement and computes the value. Sizes are names: base dims with a value,
abbreviations such as `I + J`, or numerals. Nothing here is taken from the compiler.
"""
import re

import numpy as np

import draws

BATCH = "B"
KINK = 1e-6  # values nearer to a kink than this may fall on either side


class Invalid(Exception):
    """No such program: sizes that do not fit, values out of hand."""


class Dims:
    """Names of sizes, in the order of the text; a value is a number or an expression over names before it."""

    elements = 4000  # of a value at most, while the program is made

    def __init__(self, base):
        self.text = dict(base)  # name -> int or str

    def value(self, name):
        if name.isdigit():
            return int(name)
        text = self.text[name]
        if isinstance(text, int):
            return text
        size = self.evaluated(text)
        if size < 1 or size != int(size):
            raise Invalid("%s = %s is %s" % (name, text, size))
        return int(size)

    def evaluated(self, text):
        text = re.sub(r"[A-Z]\w*", lambda match: str(self.value(match.group())), text)
        return eval(text, {"__builtins__": {}})

    def form(self, text):
        """Equal for equal polynomials: its value where every base dim is a large prime of its own."""
        primes = {name: 10007 + 7919 * i for i, name in enumerate(self.text)}
        text = re.sub(r"[A-Z]\w*", lambda m: "(%s)" % (primes[m.group()] if isinstance(self.text[m.group()], int)
                                                       else self.form(self.text[m.group()])), text)
        return eval(text, {"__builtins__": {}})

    def derive(self, text):
        """The name of a size that is an expression: an abbreviation, the same for equal forms."""
        if text.isdigit() or text in self.text:
            return text
        for name in self.text:
            if self.form(name) == self.form(text):
                return name
        name = "Q%d" % (1 + sum(known.startswith("Q") for known in self.text))
        self.text[name] = text
        if self.value(name) < 1:
            raise Invalid(text)
        return name

    def uses(self, name):
        """The names that the text of this one needs, itself included."""
        if name.isdigit():
            return set()
        text = self.text[name]
        found = {name}
        for other in re.findall(r"[A-Z]\w*", str(text)):
            found |= self.uses(other)
        return found


class Type:
    def __init__(self, dtype, axes, below=None):
        self.dtype, self.axes, self.below = dtype, tuple(axes), below

    @property
    def batch(self):
        return self.axes.index(BATCH) if BATCH in self.axes else -1

    def shape(self, dims):
        return tuple(dims.value(axis) for axis in self.axes)

    def __eq__(self, other):
        return (self.dtype, self.axes, self.below) == (other.dtype, other.axes, other.below)

    def __str__(self):
        return "%s[%s]%s" % (self.dtype, ", ".join(self.axes), " below " + self.below if self.below else "")


class Node:
    def __init__(self, op, operands, type_, hint=""):
        self.op, self.operands, self.type, self.hint = op, list(operands), type_, hint
        self.inline = False  # may stand inside of the expression that uses it
        self.name = None
        self.example = None  # its value while the program was made

    @property
    def batch(self):
        return self.type.batch


class Source:
    """A node without operands: a field or a layer's argument, by position; a parameter; or a state, which is `updated` to
    `keep` times itself and the mean over the batch of a value."""

    def __init__(self, kind, init=0.5, distribution="normal"):
        self.kind, self.init, self.distribution = kind, init, distribution
        self.updated, self.keep, self.update = None, 0.9, "mean[%s] %s"


class Instance:
    """`use`: a layer of the prelude (a kind with parameters) or a body of the file, one, N of them in a chain, or one run N times."""

    def __init__(self, kind, text=None, parameters=(), body=None, repeat=0):
        self.kind, self.text, self.parameters, self.body, self.repeat = kind, text, list(parameters), body, repeat
        self.name, self.shared = None, False
        self.group = 1  # of a batch norm: examples that a statistic is made of
        self.states = []  # (name, type, value at the start) of a layer of the prelude

    def declaration(self):
        what = self.body.name if self.body else self.text
        repeat = "repeat %d %s" % (self.repeat, "shared " * self.shared) if self.repeat else ""
        return "%s = %s%s" % (self.name, repeat, what)

    def blocks(self):
        """Numbers of the blocks that have parameters of their own; None: it is one."""
        return range(self.repeat) if self.repeat and not self.shared else [None]

    def paths(self, prefix):
        """What the names of each block's parameters begin with."""
        return [prefix + self.name + ("." if block is None else ".%d." % block) for block in self.blocks()]


class Body:
    """A layer or the model: arguments, nodes in order, results."""

    def __init__(self, name):
        self.name, self.arguments, self.nodes, self.results = name, [], [], []
        self.reversible = False

    def live(self):
        """Nodes that the results reach, in order."""
        reached, stack = set(), list(self.results)
        while stack:
            node = stack.pop()
            if id(node) not in reached:
                reached.add(id(node))
                stack += node.operands
                if isinstance(node.op, Source) and node.op.updated:
                    stack.append(node.op.updated)
        return [node for node in self.nodes if id(node) in reached]

    def parameters(self):
        return [node for node in self.live() if isinstance(node.op, Source) and node.op.kind == "param"]

    def states(self):
        return [node for node in self.live() if isinstance(node.op, Source) and node.op.kind == "state"]

    def instances(self):
        found = []
        for node in self.live():
            use = getattr(node.op, "instance", None)
            if use and use not in found:
                found.append(use)
        return found

    def bodies(self, prefix=""):
        """[(path, body)]: this one, and those of the file's layers in it, each block of a chain apart."""
        found = [(prefix, self)]
        for use in self.instances():
            for inner in use.paths(prefix) if use.body else []:
                found += use.body.bodies(inner)
        return found

    def of_prelude(self, prefix=""):
        """[(path, instance)] of the prelude's layers in all these bodies."""
        return [(inner, use) for path, body in self.bodies(prefix) for use in body.instances() if not use.body for inner in use.paths(path)]

    def all_parameters(self, prefix=""):
        """[(path, type, scale)] of the body and the layers in it."""
        own = [(path + node.name, node.type, node.op.init) for path, body in self.bodies(prefix) for node in body.parameters()]
        return own + [(path + name, type_, scale) for path, use in self.of_prelude(prefix) for name, type_, scale in use.parameters]

    def all_states(self):
        """[(path, type, value at the start)] of the model and the layers in it."""
        own = [(node.name, node.type, node.op.init) for node in self.states()]
        return own + [(path + name, type_, value) for path, use in self.of_prelude() for name, type_, value in use.states]


class Context:
    """One evaluation. Comparisons are noted: two evaluations with other decisions are on two sides of a kink."""

    def __init__(self, dims, parameters, seed, frozen=None):
        self.dims, self.parameters, self.seed = dims, parameters, seed
        self.decisions, self.margin = [], 1.0
        self.frozen, self.replay, self.at = [], frozen, 0
        self.prefix, self.chain = "", (0,)
        self.loops = []  # (trip, trips) of the loops around, the outer one first

    def greater(self, a, b):
        result = np.greater(a, b)
        self.note(result, np.abs(np.subtract(a, b)))
        return result

    def note(self, decision, gap=None):
        self.decisions.append(np.asarray(decision).tobytes())
        if gap is not None and np.size(gap):
            self.margin = min(self.margin, float(np.min(gap)))

    def stopped(self, value):
        """stop_gradient: in a perturbed evaluation the value of the first."""
        self.frozen.append(value)
        if self.replay is None:
            return value
        self.at += 1
        return self.replay[self.at - 1]

    def size(self, name):
        return self.dims.value(name)

    def draw(self, kind, type_, number, *argument):
        """Random numbers of a call; the batch axis may stand anywhere. In loops, the numbers of all trips are drawn at once."""
        shape, batch = type_.shape(self.dims), type_.batch
        example_shape = shape[:batch] + shape[batch + 1:] if batch >= 0 else shape
        count = int(np.prod(example_shape))
        examples = np.arange(shape[batch] if batch >= 0 else 1)
        key = draws.key_of(self.chain + tuple(number))
        trip, trips = 0, 1
        for at, number_of in self.loops:
            trip, trips = trip * number_of + at, trips * number_of
        found = getattr(draws, kind)(self.seed, 0, key, examples, trips * count, *argument)
        found = found[:, trip * count:(trip + 1) * count]
        if batch < 0:
            return found.reshape(shape)
        return np.moveaxis(found.reshape((len(examples),) + example_shape), 0, batch)

    def inside(self, prefix, chain):
        """Goes into a layer; returns what to give to `leave`."""
        before = self.prefix, self.chain
        self.prefix, self.chain = self.prefix + prefix, self.chain + tuple(chain)
        return before

    def leave(self, before):
        self.prefix, self.chain = before


def evaluate(body, arguments, context):
    """Values of the results."""
    values = {id(node): value for node, value in zip(body.arguments, arguments)}
    for node in body.live():
        if id(node) in values:
            continue
        if isinstance(node.op, Source):
            values[id(node)] = context.parameters[context.prefix + node.name]
        else:
            values[id(node)] = node.op.value(context, node, [values[id(operand)] for operand in node.operands])
    return [values[id(result)] for result in body.results]
