"""Makes a random program that is well typed: step by step a body gets one more value, made from those it has."""
import random

import numpy as np

from . import groups
from .calls import Call
from .graph import BATCH, Context, Dims, Invalid, Source, Type
from .maker import Maker
from .program import TRANSFORMS, Program, Term
from .settings import settings

MANY_CHANNELS = 0.3  # of programs about images: enough of them, and of places, for Winograd's minimal filtering
GROUPED = [0, 0, 0, 0, 1, 1, 2]  # terms of the loss with groups
SIZES, SMALL = [1, 2, 3, 5, 13, 17, 33], [1, 2, 3, 4, 5, 6, 7, 9]


def trained(node, known=None):
    """Whether a value has a derivative by some parameter: one that no whole number, mask or stop_gradient is between."""
    known = {} if known is None else known
    if id(node) not in known:
        op = node.op
        own = isinstance(op, Source) and op.kind == "param" or isinstance(op, Call) and bool(
            op.instance.parameters or op.instance.body and op.instance.body.all_parameters())
        known[id(node)] = node.type.dtype == "f32" and (own or any(trained(operand, known) for operand in node.operands))
    return known[id(node)]


def ends_of(maker):
    """Values that nothing uses and that train a parameter; those with most behind them last."""
    used, known = {id(operand) for node in maker.body.nodes for operand in node.operands}, {}
    ends = [n for n in maker.pool if n.type.dtype == "f32" and id(n) not in used and n.operands and trained(n, known)]
    return sorted(ends, key=lambda n: (n.batch >= 0, len(ancestors(n))))


def ancestors(node):
    found, stack = set(), [node]
    while stack:
        at = stack.pop()
        if id(at) not in found:
            found.add(id(at))
            stack += at.operands
    return found


def loss_terms(rng, program, results):
    terms = []
    for i, node in enumerate(results):
        fits = ["{0}", "{0} ^ 2", "tanh({0})", "softplus({0})"]
        fields = [(text, j) for j, field in enumerate(program.fields) for text in TRANSFORMS if "{1}" in text and (
            field == node.type if "cross" not in text else
            field.dtype == "i32" and node.type.axes == field.axes + (field.below,))]
        text, field = rng.choice(fields) if fields and rng.random() < 0.7 else (rng.choice(fits), None)
        kind = rng.choice(["mean", "mean", "mean", "sum"])
        weight = rng.choice([1, 1, 0.5]) if kind == "mean" else 0.01
        by_index = rng.random() < 0.3 and "cross" not in text
        inner = "max" if rng.random() < 0.1 and "cross" not in text else None
        where = rng.choice([-0.3, 0, 0.2, 50]) if rng.random() < 0.2 else None  # 50: of nothing
        terms.append(Term(i, text, kind, weight, field, by_index, inner, where))
    return terms


def attempt(rng, seed):
    names = rng.sample(["I", "J", "K", "D", "T", "V", "H"], rng.randint(2, 4))
    batch = rng.choice([1, 2, 3, 4, 5, 6, 6, 8, 12, 13])
    images = rng.random() < 0.25  # a program about images
    dims = Dims({BATCH: batch, **{name: rng.choice(SMALL if images else SIZES) for name in names}})
    of_wide = random.Random("wide %d" % seed)  # draws of its own
    wide = images and of_wide.random() < MANY_CHANNELS
    if wide:
        names = ["C", "O", "H", "W"]
        channels = of_wide.choice([16, 17, 33]), of_wide.choice([16, 20, 32, 40])
        dims = Dims({BATCH: of_wide.choice([1, 2, 3, 4]), **dict(zip(names, (*channels, of_wide.choice([8, 9, 12]), of_wide.choice([8, 10, 15, 34]))))})
        dims.elements, batch = 60000, dims.value(BATCH)
    program = Program(dims, seed % 1000)
    program.examples = rng.choice([batch, 2 * batch, 2 * batch + 1, 3 * batch])
    program.shuffle = rng.random() < 0.6
    context = Context(dims, {}, program.seed)
    maker = Maker(rng, dims, "net", context)
    maker.of_images = images
    for i in range(rng.choice([1, 1, 2, 2, 3])):
        axes = [BATCH] + rng.choices(names, k=3 if images and i == 0 else rng.choice([0, 1, 1, 2, 2, 3]))
        if wide and i == 0:
            axes = [BATCH, "C", "H", "W"]
        if np.prod([float(dims.value(a)) for a in axes]) > dims.elements:
            axes = axes[:2]
        whole = rng.random() < (0.0 if i == 0 else 0.5)
        program.fields.append(Type("i32", axes[:3], rng.choice(names)) if whole else Type("f32", axes))
    program.model = maker.body
    for type_, values in zip(program.fields, program.first_batch()):
        maker.argument(type_, values)
    if wide:
        maker.many_channels(of_wide)
    maker.steps(rng.randint(4, 14))
    ends = ends_of(maker)
    if len(ends) > 2 and rng.random() < 0.6:  # two of the largest become one
        try:
            maker.joined(ends[-1], ends[-2])
            ends = ends_of(maker)
        except Invalid:
            pass
    ends = ends[-rng.randint(1, 3):]
    if not ends or (all(n.batch < 0 for n in ends) and rng.random() < 0.9):
        raise Invalid("no result")
    maker.body.results = ends
    program.terms = loss_terms(rng, program, ends)
    of_groups = random.Random("groups %d" % seed)  # draws of its own: the rest of a seed's program stays
    if fitting := [i for i, end in enumerate(ends) if groups.fits(end.type)]:
        for _ in range(of_groups.choice(GROUPED)):
            i = of_groups.choice(fitting)
            program.terms.append(groups.GroupTerm.random(of_groups, i, ends[i].type, program.batch))
    program.lines, program.grain, program.metrics = settings(rng, program)
    if program.metrics and rng.random() < 0.7:
        program.metrics.append(Term(0, rng.choice(["{0}", "abs({0})"]), "mean", 1).text("o0", ends[0].type, program.fields))
    program.text()  # names and calls
    if len(program.model.all_parameters()) == 0:
        raise Invalid("no parameter")
    slopes = program.slopes()
    if all(slope == 0 for slope in slopes.values()):
        raise Invalid("no gradient")
    frozen = program.lines.get("freeze", "")
    if all(slope == 0 or '"%s"' % path in frozen for path, slope in slopes.items()):
        del program.lines["freeze"]
    return program


def generate(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    for _ in range(200):
        try:
            return attempt(rng, seed)
        except Invalid:
            pass
    raise Invalid("seed %d makes no program" % seed)
