"""A body in the making: its values, and how one more is taken up."""
import numpy as np

from .graph import BATCH, Body, Invalid, Node, Source, Type

LARGEST = 40.0  # of a value, while the program is made
HINTS = [""] * 7 + ["@checkpoint", "@recompute"]


class Values:
    """Arguments, parameters, results of ops. A step adds one to the pool or raises Invalid."""

    def __init__(self, rng, dims, name, context, depth=0):
        self.rng, self.dims, self.body, self.context, self.depth = rng, dims, Body(name), context, depth
        self.pool, self.counter = [], 0

    def unique(self, stem):
        self.context.counter = getattr(self.context, "counter", 0) + 1
        return "%s%d_" % (stem, self.context.counter)

    def argument(self, type_, example):
        node = Node(Source("argument"), [], type_)
        node.example = example
        self.body.arguments.append(node)
        self.body.nodes.append(node)
        self.pool.append(node)
        return node

    def param(self, axes, scale=None):
        r = self.rng
        if BATCH in axes or np.prod([float(self.dims.value(a)) for a in axes]) > self.dims.elements:
            raise Invalid("no such parameter")
        init = scale or r.choice([0.3, 0.5, 0.8])
        source = Source("param", init)
        source.text = r.choice(["normal(%g)", "uniform(%g)", "truncated_normal(%g)", "constant(%g)"]) % init
        if r.random() < 0.1:
            source.text = r.choice(["ones", "xavier_normal(fan_in)", "kaiming_uniform(fan_out)"] if len(axes) > 1 else ["ones"])
        node = Node(source, [], Type("f32", axes))
        node.name = self.unique("p")
        node.example = np.random.RandomState(r.randrange(2**31)).normal(size=node.type.shape(self.dims)) * init
        self.context.parameters[node.name] = node.example
        self.body.nodes.append(node)
        self.pool.append(node)
        return node

    def add(self, op, operands):
        type_ = op.result(self.dims, [operand.type for operand in operands])
        if type_.axes.count(BATCH) > 1 or np.prod([float(self.dims.value(a)) for a in type_.axes]) > self.dims.elements:
            raise Invalid("too large")
        node = Node(op, operands, type_, self.rng.choice(HINTS))
        node.inline = self.rng.random() < 0.4
        before = self.context.prefix, self.context.chain, list(self.context.loops)
        try:
            with np.errstate(all="ignore"):
                node.example = op.value(self.context, node, [operand.example for operand in operands])
        finally: # a value that is given up inside a layer or a loop
            self.context.prefix, self.context.chain, self.context.loops = before
        if type_.dtype == "f32" and not np.all(np.abs(node.example) < LARGEST):
            raise Invalid("out of hand")
        assert np.shape(node.example) == type_.shape(self.dims), (op, type_.axes, np.shape(node.example), type_.shape(self.dims))
        self.body.nodes.append(node)
        self.pool.append(node)
        return node

    def pick(self, wanted=lambda node: True, dtype="f32"):
        """One of the values, a late one rather than an early one."""
        found = [node for node in self.pool if node.type.dtype == dtype and wanted(node)]
        if not found:
            raise Invalid("nothing to take")
        return found[max(self.rng.randrange(len(found)) for _ in range(2))]

    def axis(self, node, wanted=lambda axis: True):
        """Place of an axis that is not the batch."""
        places = [i for i, axis in enumerate(node.type.axes) if axis != BATCH and wanted(axis)]
        if not places:
            raise Invalid("no axis")
        return self.rng.choice(places)

    def some_dim(self):
        return self.rng.choice([name for name, text in self.dims.text.items() if isinstance(text, int) and name != BATCH])
