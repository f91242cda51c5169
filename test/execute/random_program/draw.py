"""Random numbers: the language's own draws, and the prelude's layers that draw."""
import numpy as np

from .elementwise import Op
from .graph import BATCH, Invalid, Type


class Draw(Op):
    """random_uniform[..], random_normal[..], f32(random_int[..](n)), f32(random_bool[..](p)); without the batch axis too."""

    draws = True

    def __init__(self, kind, axes, argument=None):
        self.kind, self.axes, self.argument = kind, tuple(axes), argument

    def expression(self, arguments, mark, node):
        call = "%srandom_%s[%s]" % (mark, self.kind, ", ".join(self.axes))
        return "f32(%s(%g))" % (call, self.argument) if self.argument is not None else call

    def result(self, dims, types):
        if not self.axes:
            raise Invalid("a draw without axes")
        return Type("f32", self.axes)

    def value(self, context, node, values):
        number = [getattr(node, "number", 0)]
        kind = {"uniform": "uniform", "normal": "normal", "int": "integers", "bool": "kept"}[self.kind]
        return 1.0 * context.draw(kind, node.type, number, *([] if self.argument is None else [self.argument]))


class Dropout(Op):
    """dropout(x, rate); drop_path(x, rate) drops whole examples and wants the batch axis first."""

    draws = True

    def __init__(self, rate, path=False):
        self.rate, self.path = rate, path

    def expression(self, arguments, mark, node):
        return "%s%s(%s, %g)" % (mark, "drop_path" if self.path else "dropout", arguments[0], self.rate)

    def result(self, dims, types):
        if self.path and types[0].axes[:1] != (BATCH,):
            raise Invalid("drop_path")
        return Type("f32", types[0].axes)

    def value(self, context, node, values):
        # In the prelude: where(random_bool[..](1 - rate), ..) is calls 0 and 1; drop_path draws first.
        number, type_ = getattr(node, "number", 0), Type("bool", node.type.axes[:1] if self.path else node.type.axes)
        kept = context.draw("kept", type_, [number, 0 if self.path else 1], 1 - self.rate)
        if self.path:
            kept = kept.reshape((-1,) + (1,) * (values[0].ndim - 1))
        return np.where(kept, values[0] / (1 - self.rate), 0)
