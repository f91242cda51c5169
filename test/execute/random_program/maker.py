"""Steps that call layers, of the prelude and of the file, and that build attention."""
import numpy as np

from . import calls, elementwise, rows, windows
from .arithmetic import Arithmetic
from .graph import BATCH, Instance, Invalid, Node, Source, Type
from .moves import Moves


class Maker(Arithmetic, Moves):
    def joined(self, x=None, y=None):
        """x * tanh(y), where y is brought to the axes of x by means."""
        x = x or self.pick(lambda n: n.batch >= 0)
        y = y or self.pick(lambda n: n is not x and (n.batch < 0 or x.batch >= 0))
        index = {}
        for i, axis in enumerate(x.type.axes):
            index["k%d" % i] = axis
        slots, bound = [], []
        for axis in y.type.axes:
            same = [name for name, a in index.items() if a == axis and name not in slots and name not in bound]
            if same:
                slots.append(same[0])
            else:
                if axis == BATCH:
                    raise Invalid("batch")
                bound.append("m%d" % len(bound))
                slots.append(bound[-1])
        if bound:
            out = [s for s in slots if s not in bound]
            op = elementwise.IndexNotation("{0}", lambda c, v: v, [slots], out, bound, "mean")
            y = self.add(op, [y])
            slots = out
        names = ["k%d" % i for i in range(len(x.type.axes))]
        text, function = self.rng.choice([("{0} * tanh({1})", lambda c, a, b: a * np.tanh(b)),
                                          ("{0} + 0.5 * {1}", lambda c, a, b: a + 0.5 * b)])
        return self.add(elementwise.IndexNotation(text, function, [names, slots], names), [x, y])

    def attention(self):
        """Heads out of a value with two axes beside the batch, by products with small parameters."""
        r = self.rng
        wide = [n for n in self.pool if n.type.dtype == "f32" and n.batch >= 0 and len(n.type.axes) >= 3]
        x = self.pick(lambda n: n in wide) if wide else self.widened()
        names = {axis: i for i, axis in enumerate(x.type.axes)}
        inner = [a for a in x.type.axes if a != BATCH]
        if len(names) < len(x.type.axes):
            raise Invalid("an axis twice")
        t, k = r.sample(inner, 2)
        lead = [BATCH] + [a for a in inner if a not in (t, k)]
        r.shuffle(lead)
        index = {axis: "k%d" % i for axis, i in names.items()}
        groups = self.some_dim()
        heads = r.choice([groups, self.dims.derive("2 * " + groups)])
        made = []
        for h in (heads, groups, groups):
            p = self.param([h, k])
            op = elementwise.IndexNotation("{0} * {1}", lambda c, a, b: a * b, [[index[a] for a in x.type.axes], ["h", index[k]]],
                                           [index[a] for a in lead] + ["h", index[t], index[k]])
            made.append(self.add(op, [x, p]))
        if r.random() < 0.3 and self.dims.value(k) % 2 == 0:
            made[:2] = [self.add(rows.Rope(), [n]) for n in made[:2]]
        keys = bias = False
        causal = r.random() < 0.5
        if r.random() < 0.3:
            place = [index[axis] for axis in lead] + [index[t]]
            slots = [[index[axis] for axis in x.type.axes]]
            mean = elementwise.IndexNotation("{0}", lambda c, v: v, slots, place, [index[k]], "mean")
            far = elementwise.Elementwise("{0} > -0.4", lambda c, v: c.greater(v, -0.4), "bool")
            made.append(self.add(far, [self.add(mean, [x])]))
            keys = True
        if r.random() < 0.3:
            made.append(self.param([heads, t, t]))
            bias = True
        return self.add(rows.Attend(causal, r.choice([None, None, 0.3]), r.choice([0, 0, 0.25]), keys, bias), made)

    def widened(self):
        """A value times a small parameter that has one axis more."""
        x = self.pick(lambda n: n.batch >= 0 and len(n.type.axes) >= 2)
        more = self.some_dim()
        if more in x.type.axes or len(set(x.type.axes)) < len(x.type.axes):
            raise Invalid("an axis twice")
        last = max(i for i, axis in enumerate(x.type.axes) if axis != BATCH)
        slots = ["k%d" % i for i in range(len(x.type.axes))]
        op = elementwise.IndexNotation("{0} * {1}", lambda c, a, b: a * b, [slots, ["t", slots[last]]], slots + ["t"])
        return self.add(op, [x, self.param([more, x.type.axes[last]])])

    def prelude(self):
        r = self.rng
        kind = r.choice(["linear"] * 9 + ["embedding", "layer_norm"] * 2 + ["rms_norm", "feed_forward", "heads", "block"])
        if kind == "embedding":
            x = self.pick(lambda n: n.type.below, "i32")
            rows_ = x.type.below
        else:
            x = self.pick(lambda n: len(n.type.axes) > (1 if kind in ("heads", "block") else 0) and n.type.axes[-1] != BATCH)
            rows_ = None
        known = [n.op.instance for n in self.pool if isinstance(n.op, calls.Call) and n.op.instance.kind == kind]
        if known and r.random() < 0.35:  # called twice: the weights are shared
            use = r.choice(known)
            call = next(n.op for n in self.pool if isinstance(n.op, calls.Call) and n.op.instance is use)
            return self.add(calls.Call(use, call.options), [x])
        if kind in ("heads", "block") and x.type.axes[-2] == BATCH:
            raise Invalid("the batch among the positions")
        if x.type.axes and x.type.axes[-1].isdigit() and kind != "embedding":
            raise Invalid("a numeral")
        use, call = calls.prelude_call(self.dims, kind, x.type.axes, r, self.some_dim(), rows_)
        if kind in ("feed_forward", "heads", "block", "layer_norm", "rms_norm") and r.random() < 0.25:
            use.repeat = r.randint(2, 3)
        self.name_instance(use)
        if sum(np.prod([float(self.dims.value(a)) for a in t.axes]) for _, t, _ in use.parameters) > 3 * self.dims.elements:
            raise Invalid("too many parameters")
        return self.add(call, [x])

    def image(self, least):
        """A value whose last axes may be channels, rows and columns, or fewer of them."""
        channels = least == 3
        return self.pick(lambda n: len(n.type.axes) >= least and BATCH not in n.type.axes[-least:] and not (
            channels and n.type.axes[-least].isdigit()))

    def window(self):
        """A convolution or a pool of any kind."""
        r = self.rng
        kind = r.choice(["conv"] * 3 + ["transposed", "pool", "pool", "larger", "average"] + ["layer"] * 2)
        if kind == "layer":
            x = self.image(3)
            known = [n.op for n in self.pool if isinstance(n.op, windows.Layer)]
            if known and r.random() < 0.3:  # called twice
                call = r.choice(known)
                return self.add(windows.Layer(call.instance, call.options), [x])
            use, call = windows.layer_call(self.dims, r, x.type.axes, self.some_dim())
            if use.kind == "group_norm" and r.random() < 0.3:
                use.repeat = 2
            self.name_instance(use)
            return self.add(call, [x])
        if kind == "larger":
            return self.add(windows.Larger(r.choice([2, 2, 3]), r.random() < 0.6), [self.image(2)])
        if kind == "average":
            return self.add(windows.AveragePool(), [self.image(3)])
        count = r.choice([1, 2])
        if kind == "pool":
            window = r.choice([1, 2, 3, 5])
            pad = r.choice([0, 0, r.randrange(window)])
            return self.add(windows.Pool(count, r.random() < 0.5, window, r.choice([1, 2, 3, window]), pad), [self.image(count)])
        x = self.image(count + 1)
        if x.type.axes[-1 - count].isdigit():
            raise Invalid("a numeral")
        channels, size = x.type.axes[-1 - count], self.dims.value(x.type.axes[-1 - count])
        stride, pad = r.choice([1, 1, 2, 3]), r.choice([0, 0, 1, 2])
        options = {name: n for name, n in (("stride", stride), ("pad", pad)) if n != (name == "stride")}
        window = [str(r.choice([1, 2, 3, 3, 5])) for _ in range(count)]
        out = self.some_dim()
        if kind == "transposed":
            return self.add(windows.Convolution(count, True, **options), [x, self.param([channels, out, *window])])
        if r.random() < 0.3:
            options["dilate"] = 2
        inner = channels
        if r.random() < 0.5:
            groups = r.choice([g for g in range(1, size + 1) if size % g == 0])
            if groups > 1:
                options["groups"] = groups
                inner = self.dims.derive("%s / %d" % (channels, groups))
                out = r.choice([channels, self.dims.derive("2 * " + channels), out])
        return self.add(windows.Convolution(count, False, **options), [x, self.param([out, inner, *window])])

    def many_channels(self, r):
        """Convolutions of 3 x 3 taps, each of what the one before it gives, of an image of many channels."""
        x = self.pool[0]
        for _ in range(r.choice([1, 2, 2, 3])):
            transposes, pad = r.random() < 0.2, r.choice([0, 1, 1, 1, 2])
            channels = [r.choice(["C", "O"]), x.type.axes[-3]]
            weight = self.param([*(reversed(channels) if transposes else channels), "3", "3"], 0.1)
            x = self.add(windows.Convolution(2, transposes, **({"pad": pad} if pad else {})), [x, weight])

    def batch_normed(self):
        """A batch norm, behind a convolution or not."""
        if self.depth and not self.reversible:
            raise Invalid("a state may be updated once a step")
        x = self.pick(lambda n: len(n.type.axes) >= 2 and n.type.axes[0] == BATCH)
        use, call = windows.batch_norm_call(self.dims, self.rng, x.type.axes, self.some_dim())
        self.name_instance(use)
        return self.add(call, [x])

    def name_instance(self, use):
        """A name for now, and values for its parameters."""
        use.name = self.unique("r")
        for inner in use.paths(""):
            found = use.body.all_parameters(inner) if use.body else [(inner + n, t, s) for n, t, s in use.parameters]
            for path, type_, scale in found:
                value = np.random.RandomState(self.rng.randrange(2**31)).normal(size=type_.shape(self.dims))
                self.context.parameters[path] = 1 + 0.3 * value if scale == "one" else scale * value

    def layer(self):
        """A layer of the file, called once, twice, or in a chain."""
        r = self.rng
        if self.depth >= 2:
            raise Invalid("deep enough")
        known = [n.op for n in self.pool if isinstance(n.op, calls.Call) and n.op.instance.body and not n.op.instance.body.all_states()]
        if known and r.random() < 0.5:
            use = r.choice(known).instance
            operands = [self.pick(lambda n: n.type == a.type, a.type.dtype) for a in use.body.arguments]
            return self.coupling(use, operands) if use.body.reversible else self.add(calls.Call(use), operands)
        operands = [self.pick(lambda n: n.batch >= 0)]
        if r.random() < 0.4:
            operands.append(self.pick(dtype=r.choice(["f32", "i32"])))
        inner = Maker(r, self.dims, "layer", self.context, self.depth + 1)
        for operand in operands:
            inner.argument(operand.type, operand.example)
        inner.steps(r.randint(1, 3))
        result = inner.joined(inner.pool[0])
        if r.random() < 0.3:
            result = inner.pick(lambda n: n.operands)
        inner.body.results = [result]
        use = Instance("layer", body=inner.body)
        if result.type == operands[0].type and r.random() < 0.5:
            use.repeat = r.randint(2, 3)
            use.shared = r.random() < 0.5
        self.name_instance(use)
        return self.add(calls.Call(use), operands)

    def looped(self):
        """scan of a layer of the file: one value is cut along an axis, another may go to every step."""
        r = self.rng
        if self.depth >= 2:
            raise Invalid("deep enough")
        x = self.pick(lambda n: n.batch >= 0)
        axis = x.type.axes[self.axis(x, lambda a: not a.isdigit() and x.type.axes.count(a) == 1)]
        part = Type("f32", [a for a in x.type.axes if a != axis])
        start = None
        if r.random() < 0.3:
            start = self.pick(lambda n: n.type == part)
        operands = ([start] if start else []) + [x]
        if r.random() < 0.4:
            operands.append(self.pick(lambda n: axis not in n.type.axes, r.choice(["f32", "i32"])))
        inner = Maker(r, self.dims, "layer", self.context, self.depth + 1)
        state = inner.argument(part, np.zeros(part.shape(self.dims)) if start is None else start.example)
        inner.argument(part, np.take(x.example, 0, x.type.axes.index(axis)))
        for operand in operands[1 + bool(start):]:
            inner.argument(operand.type, operand.example)
        inner.steps(r.randint(1, 3))
        if r.random() < 0.5:
            inner.attempt(r.choice(["draw", "attention", "attention"]))
        result = inner.joined(state, inner.pick(lambda n: n is not state and n.batch >= 0))
        inner.body.results = [inner.add(elementwise.Elementwise("tanh({0})", elementwise.UNARY["tanh({0})"]), [result])]
        use = Instance("layer", body=inner.body)
        self.name_instance(use)
        return self.add(calls.Scan(use, {"axis": axis, "start": None if start else r.choice(["0", "0.5"])}), operands)

    def coupled(self):
        """A reversible layer, or a chain of them: each stream gets a sum with something made of the other."""
        r = self.rng
        if self.depth:
            raise Invalid("a reversible layer is the model's")
        x = self.pick(lambda n: n.batch >= 0)
        y = self.pick(lambda n: n.type == x.type)
        inner = Maker(r, self.dims, "layer", self.context, 2)  # so deep that it makes no layers and loops
        inner.reversible, inner.of_images = True, self.of_images
        streams = [inner.argument(x.type, x.example), inner.argument(y.type, y.example)]
        for i in range(2):
            inner.pool = [streams[1 - i]]
            inner.steps(r.randint(1, 3))
            plus = r.choice(["{0} + {1}", "{1} + {0}"])
            streams[i] = inner.add(elementwise.Elementwise(plus, lambda c, a, b: a + b), [streams[i], inner.joined(streams[1 - i])])
            streams[i].hint = ""  # the sum itself is what makes the layer reversible
        inner.body.results, inner.body.reversible = streams, True
        use = Instance("layer", body=inner.body, repeat=r.choice([0, 2, 3]))
        self.name_instance(use)
        return self.coupling(use, [x, y])

    def coupling(self, use, operands):
        node = self.add(calls.Coupling(use), operands)
        node.hint = ""  # its statement names two values
        return node

    def remembered(self):
        """A state of the model that follows the mean of a value, and what reads it."""
        r = self.rng
        if self.depth:
            raise Invalid("a state may be updated once a step")
        x = self.pick(lambda n: n.batch >= 0 and n.operands and len(set(n.type.axes)) == len(n.type.axes) and not any(
            axis.isdigit() for axis in n.type.axes))
        source = Source("state", r.choice([0.5, 1.0]))
        source.updated, source.keep = x, r.choice([0.9, 0.5])
        source.update = r.choice(["mean[%s] %s"] * 4 + ["max[%s] %s", "min[%s] %s", "prod[%s] (1 + 0.5 * tanh(%s))"])
        node = Node(source, [], Type("f32", [axis for axis in x.type.axes if axis != BATCH]))
        node.name = self.unique("s")
        node.example = np.full(node.type.shape(self.dims), source.init)
        self.context.parameters[node.name] = node.example
        self.body.nodes.append(node)
        return self.joined(self.pick(lambda n: n.batch >= 0), node)

    STEPS = [("unary", 5), ("binary", 6), ("index", 10), ("permuted", 3), ("gathered", 2), ("gather", 3), ("matmul", 5),
             ("softmax", 2), ("reduction", 3), ("masked", 2), ("moved", 6), ("draw", 3), ("labels", 4), ("attention", 2),
             ("prelude", 4), ("joined", 4), ("layer", 2), ("looped", 5), ("remembered", 2),
             ("window", 4), ("batch_normed", 2), ("coupled", 2)]
    of_images = False  # then windows are what is made most
    reversible = False  # the body of a reversible layer

    def attempt(self, step):
        """Whether it made a value."""
        before = len(self.body.nodes), len(self.pool)
        try:
            getattr(self, step)()
            return True
        except Invalid:
            del self.body.nodes[before[0]:]
            del self.pool[before[1]:]
            return False

    def steps(self, count):
        names, weights = zip(*self.STEPS, *[("window", 30), ("batch_normed", 6)] * self.of_images)
        made = tries = 0
        while made < count and tries < 60:
            tries += 1
            made += self.attempt(self.rng.choices(names, weights)[0])
        if made < count:
            raise Invalid("no further step")
