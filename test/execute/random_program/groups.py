"""Terms of the loss in which the examples of a group see one another."""
import numpy as np

from .graph import BATCH
from .rows import log_softmax


def fits(type_):
    return type_.dtype == "f32" and type_.batch >= 0


class GroupTerm:
    """weight * mean of something of a result and `group_all` of it. Kinds: `each` reads the rows alone, `pair` every pair of examples,
    `scores` their inner products against their own places."""

    field, by_index, inner, where = None, False, None, None

    def __init__(self, result, kind, group, weight, transform):
        self.result, self.kind, self.group, self.weight, self.transform = result, kind, group, weight, transform

    KINDS = ["each", "pair", "scores"]
    TRANSFORMS = {
        "each": {"tanh({1})": lambda x, r: np.tanh(r), "{1} ^ 2": lambda x, r: r**2},
        "pair": {"{0} * {1}": lambda x, r: x * r, "tanh({0} - {1})": lambda x, r: np.tanh(x - r), "({0} + {1}) ^ 2": lambda x, r: (x + r) ** 2},
        "scores": {"{0} * {1}": lambda x, r: x * r},
    }

    @classmethod
    def random(cls, rng, result, type_, batch):
        kind = rng.choice(cls.KINDS if type_.axes[0] == BATCH and len(type_.axes) == 2 else cls.KINDS[:2])
        group = rng.choice([g for g in range(1, batch + 1) if batch % g == 0])
        return cls(result, kind, group, rng.choice([1, 0.5]), rng.choice(list(cls.TRANSFORMS[kind])))

    def definitions(self, i, names, type_):
        lines = ["r%d = group_all(%s, group = %d)" % (i, names, self.group)]
        if self.kind == "scores":
            lines.append("s%d[kb, kj] = sum[k] %s[kb, k] * r%d[kb, kj, k]" % (i, names, i))
        return lines

    def text(self, names, type_, fields, i=0):
        if self.kind == "scores":
            found = "mean[%s] cross_entropy(s%d, group_place(group = %d))" % (BATCH, i, self.group)
        else:
            own = ["k%d" % axis for axis in range(len(type_.axes))]
            rows = own[:type_.batch + 1] + ["kj"] + own[type_.batch + 1:]
            inner = self.transform.format("%s[%s]" % (names, ", ".join(own)), "r%d[%s]" % (i, ", ".join(rows)))
            found = "mean[%s] (%s)" % (", ".join(rows), inner)
        return found if self.weight == 1 else "%g * %s" % (self.weight, found)

    def value(self, context, x, field, type_):
        at, g = type_.batch, self.group
        first = np.moveaxis(x, at, 0)
        groups = first.reshape((len(first) // g, 1, g) + first.shape[1:])
        rows = np.repeat(groups, g, 1).reshape((len(first), g) + first.shape[1:])  # [B, g, ..]
        made = self.TRANSFORMS[self.kind][self.transform](first[:, None], rows)
        if self.kind != "scores":
            return self.weight * made.mean()
        scores = made.sum(-1)
        return self.weight * -log_softmax(scores)[np.arange(len(first)), np.arange(len(first)) % g].mean()
