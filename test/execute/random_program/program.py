"""A whole program: sizes, data, model, loss and settings; its text, its files, and its loss in NumPy."""
import math
import re
import zlib

import numpy as np

import shuffle
from .elementwise import above, softplus
from .graph import BATCH, KINK, Context, Invalid, evaluate
from .rows import log_softmax
from .text import MARK, body_text, layers_of, name_all, number_calls, signature

# What a term of the loss does to a result: {0} the result, {1} a field of its shape.
TRANSFORMS = {
    "{0}": lambda c, x: x,
    "{0} ^ 2": lambda c, x: x**2,
    "tanh({0})": lambda c, x: np.tanh(x),
    "softplus({0})": lambda c, x: softplus(x),
    "squared_error({0}, {1})": lambda c, x, y: (x - y) ** 2,
    "huber({0}, {1})": lambda c, x, y: above(c, np.abs(x - y), 1.0, np.abs(x - y) - 0.5, 0.5 * (x - y) ** 2),
    "bce_with_logits({0}, sigmoid({1}))": lambda c, x, y: softplus(x) - x / (1 + np.exp(-y)),
    "cross_entropy({0}, {1})": lambda c, x, y: -np.take_along_axis(log_softmax(x), y[..., None].astype(int), -1)[..., 0],
}


class Term:
    """weight * kind[axes] transform(result): with sizes as axes where each has a name of its own, else in index notation."""

    def __init__(self, result, transform, kind, weight, field=None, by_index=False, inner=None, where=None):
        self.result, self.transform, self.kind, self.weight, self.field = result, transform, kind, weight, field
        self.by_index, self.inner = by_index, inner  # inner: `max` over the last axis before the rest
        self.where = where  # only where the result is above this

    def definitions(self, i, names, type_):
        return []

    def text(self, names, type_, fields, i=0):
        axes = list(type_.axes)
        other = "" if self.field is None else "x%d" % self.field
        if self.transform.startswith("cross_entropy"):
            axes.pop()
        plain = len(set(axes)) == len(axes) and not any(axis.isdigit() for axis in axes)
        if not axes:
            found = self.transform.format(names, other)
        elif self.inner and plain and len(axes) > 1 and axes[-1] != BATCH:
            found = "%s[%s] (%s[%s] (%s))" % (self.kind, ", ".join(axes[:-1]), self.inner, axes[-1],
                                              self.transform.format(names, other))
        elif plain and not self.by_index:
            where = " where %s > %g" % (names, self.where) if self.is_masked(axes, plain) else ""
            found = "%s[%s%s] %s" % (self.kind, ", ".join(axes), where, "(%s)" % self.transform.format(names, other))
        elif self.transform.startswith("cross_entropy"):
            raise Invalid("labels in index notation")
        else:
            index = ["k%d" % i for i in range(len(axes))]
            slots = "[%s]" % ", ".join(index)
            found = "%s[%s] (%s)" % (self.kind, ", ".join(index), self.transform.format(names + slots, other + slots))
        return found if self.weight == 1 else "%g * %s" % (self.weight, found)

    def is_masked(self, axes, plain):
        return self.where is not None and bool(axes) and plain and not self.by_index and not self.inner and not self.transform.startswith("cross")

    def value(self, context, x, field, type_):
        result = x
        x = TRANSFORMS[self.transform](context, x, *([] if self.field is None else [field]))
        axes = list(type_.axes[:-1] if self.transform.startswith("cross_entropy") else type_.axes)
        plain = len(set(axes)) == len(axes) and not any(axis.isdigit() for axis in axes)
        if self.inner and axes and plain and len(axes) > 1 and axes[-1] != BATCH:
            ordered = np.sort(x, -1)
            context.note(np.argmax(x, -1), ordered[..., -1] - ordered[..., -2] if x.shape[-1] > 1 else None)
            x = ordered[..., -1]
        if self.is_masked(axes, plain):
            chosen = context.greater(result, self.where)
            total, count = x[chosen].sum(), chosen.sum()
            return self.weight * (total / max(count, 1) if self.kind == "mean" else total)
        return self.weight * (x.mean() if self.kind == "mean" else x.sum())


class Program:
    def __init__(self, dims, seed):
        self.dims, self.seed = dims, seed
        self.fields = []  # types
        self.model = None
        self.terms, self.metrics = [], []
        self.lines = {}  # kind of setting -> line of `train`
        self.examples, self.shuffle = 0, True
        self.grain = 0

    @property
    def batch(self):
        return self.dims.value(BATCH)

    @property
    def unit(self):
        """Examples that stay together: of a grain, which is a multiple of all groups, or of a group."""
        return math.lcm(max(self.grain, 1), *(getattr(term, "group", 1) for term in self.terms), *(use.group for _, use in self.model.of_prelude()))

    def text(self, lines=None):
        name_all(self.model)
        layers = layers_of(self.model)
        for i, layer in enumerate(layers):
            name_all(layer)
            layer.name = "layer%d" % i
        bodies = [body_text(layer, signature("layer", layer)) for layer in layers]
        bodies.append(body_text(self.model, signature("model", self.model)))
        train = self.train_text(self.lines if lines is None else lines)
        fields = ", ".join("x%d: %s" % (i, t) for i, t in enumerate(self.fields))
        files = ", ".join('"x%d.npy"' % i for i in range(len(self.fields)))
        rest = "\n".join(bodies + [train])
        data = "data train = npy(%s, shuffle = %s) -> (%s)\n" % (files, "true" if self.shuffle else "false", fields)
        used = {BATCH}
        for name in re.findall(r"\b[A-Z]\w*\b", data + rest):
            if name in self.dims.text:
                used |= self.dims.uses(name)
        dims = ", ".join("%s = %s%s" % (name, text, " batch" if name == BATCH else "")
                         for name, text in self.dims.text.items() if name in used)
        return "dim %s\n%s%s" % (dims, data, rest)

    def train_text(self, lines):
        results = self.model.results
        names = ["o%d" % i for i in range(len(results))]
        clauses = ["%s = §0§net(%s)" % (", ".join(names), ", ".join("x%d" % i for i in range(len(self.fields))))]
        of = [(i, term, names[term.result], results[term.result].type) for i, term in enumerate(self.terms)]
        terms = [term.text(name, type_, self.fields, i) for i, term, name, type_ in of]
        before = [line for i, term, name, type_ in of for line in term.definitions(i, name, type_)]
        clauses += before + ["loss = " + " + ".join(terms)]
        alone = len(results) == len(terms) == 1 and not self.metrics and not before
        if alone and len(re.findall(r"\bo0\b", terms[0])) == 1 and "[k0" not in terms[0]:  # the call stands in the loss
            clauses = ["loss = " + re.sub(r"\bo0\b", clauses[0].split(" = ")[1], terms[0])]
        self.call = number_calls(clauses)[0]
        clauses += ["metric m%d = %s" % (i, text) for i, text in enumerate(self.metrics)]
        body = [MARK.sub("", clause) for clause in clauses] + [line for line in lines.values() if line]
        return "train net on train seed %d {\n  %s\n}\n" % (self.seed, "\n  ".join(body))

    def gradient_text(self):
        return self.text({"optimizer": "optimizer sgd(lr = 1)", "steps": "steps 1"})

    def parameters(self):
        """{path: value}, the same for the same path and shape."""
        found = {}
        for path, type_, scale in self.model.all_parameters():
            draw = np.random.RandomState(zlib.crc32(path.encode()) % 2**31)
            value = draw.normal(size=type_.shape(self.dims))
            value = 1 + 0.3 * value if scale == "one" else scale * value
            found[path] = value.astype(np.float32).astype(np.float64)
        return found

    def states(self):
        """{path: value} before the first step."""
        return {path: np.full(type_.shape(self.dims), value) for path, type_, value in self.model.all_states()}

    def data(self):
        found = []
        for i, type_ in enumerate(self.fields):
            draw = np.random.RandomState(1000 * (self.seed % 1000) + i)
            shape = (self.examples,) + type_.shape(self.dims)[1:]
            if type_.dtype == "i32":
                found.append(draw.randint(0, self.dims.value(type_.below), shape).astype(np.int32))
            else:
                found.append((draw.uniform(0.3, 1.5, shape) * draw.choice([-1, 1], shape)).astype(np.float32))
        return found

    def first_batch(self):
        rows = shuffle.batch(self.seed, 0, self.batch, self.examples) if self.shuffle else range(self.batch)
        rows = [row % self.examples for row in rows]
        return [np.asarray(values[rows], np.float64 if values.dtype == np.float32 else np.int64) for values in self.data()]

    def loss(self, parameters, batch, frozen=None):
        """(loss, context) of the first step; `text` was called before, names and calls are known."""
        context = Context(self.dims, parameters, self.seed, frozen)
        context.chain = (self.call,)
        with np.errstate(all="ignore"):
            results = evaluate(self.model, batch, context)
            total = 0.0
            for term in self.terms:
                field = None if term.field is None else batch[term.field]
                total += term.value(context, results[term.result], field, self.model.results[term.result].type)
        if not np.isfinite(total):
            raise Invalid("the loss is not finite")
        return float(total), context

    def slopes(self):
        """{path: the change along all ones}: 0 where no derivative comes through. A comparison that turns over is none: then in smaller steps."""
        parameters, batch, found = {**self.parameters(), **self.states()}, self.first_batch(), {}
        loss, base = self.loss(parameters, batch)
        for path, value in self.parameters().items():
            for step in (1e-4, 1e-6, 1e-8):
                moved, context = self.loss({**parameters, path: value + step}, batch, base.frozen)
                found[path] = moved - loss
                if context.decisions == base.decisions:
                    break
        return found

    def gradient(self, parameters, batch, path, direction, agrees):
        """Derivatives along a direction by central differences, at several widths until one agrees; None where a kink is near. Norms of two
        elements curve so much that only the narrowest will do."""
        _, base = self.loss(parameters, batch)
        if base.margin < KINK:
            return None
        found = []
        for h in (1e-5, 1e-4, 1e-6, 1e-7):
            losses = []
            for sign in (1, -1):
                moved = dict(parameters)
                moved[path] = parameters[path] + sign * h * direction
                loss, context = self.loss(moved, batch, base.frozen)
                if context.decisions != base.decisions:
                    break
                losses.append(loss)
            if len(losses) == 2:
                found.append((losses[0] - losses[1]) / (2 * h))
                if agrees(found[-1]):
                    break
        return found or None
