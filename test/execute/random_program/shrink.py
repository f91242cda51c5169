"""Makes a failing program smaller while it fails in the same way: fewer flags, settings, results, statements, smaller sizes."""
import copy
import time

from .graph import BATCH, Invalid, Node, Source
from .program import Term
from .text import layers_of, name_all


def bare(program):
    """A copy without what the making left behind."""
    for body in [program.model, *layers_of(program.model)]:
        for node in body.nodes:
            node.example = None
    found = copy.deepcopy(program)
    for body in [found.model, *layers_of(found.model)]:
        body.nodes = [node for node in body.nodes if node in body.arguments or node in body.live()]
    return found


def check(program):
    """Raises Invalid where a statement does not fit its operands or a size is none."""
    for body in [*layers_of(program.model), program.model]:
        name_all(body)
        for node in body.live():
            node.type.shape(program.dims)
            if not isinstance(node.op, Source) and node.op.result(program.dims, [o.type for o in node.operands]) != node.type:
                raise Invalid("types")
    if not program.model.all_parameters():
        raise Invalid("no parameter")


def replaced(body, old, new):
    for node in body.nodes:
        node.operands = [new if operand is old else operand for operand in node.operands]
    body.results = [new if result is old else result for result in body.results]


# Each yields functions that change a copy of (program, plans) in place, or raise Invalid.


def fewer_plans(program, plans):
    for name in ("bits", "gradient"):
        if plans.get(name):
            yield lambda p, q, name=name: q.update({name: None})
    for i in range(len(plans["bits"] or [])):
        yield lambda p, q, i=i: q["bits"].pop(i) if len(q["bits"]) > 1 else q.update(bits=None)
    if plans["precision"] != "f32":
        yield lambda p, q: q.update(precision="f32")
    everyone = list(plans["bits"] or []) + [plans["gradient"]] * bool(plans["gradient"])
    for k, plan in enumerate(everyone):
        for flag in ("--row-blocks", "--order-seed", "--profile", "--remat", "--microbatch", "--cpu", "--max-threads"):
            if flag in plan.flags:
                def drop(p, q, k=k, flag=flag):
                    flags = (list(q["bits"] or []) + [q["gradient"]])[k].flags
                    at = flags.index(flag)
                    del flags[at:at + 2]

                yield drop


def fewer_settings(program, plans):
    for name in program.lines:
        if name not in ("optimizer", "steps"):
            def drop(p, q, name=name):
                del p.lines[name]
                p.grain = 0 if name == "grain" else p.grain
                p.metrics = [] if name == "every" else p.metrics

            yield drop
    plain = "optimizer sgd(lr = 0.1)"
    if program.lines.get("optimizer", plain) != plain:
        yield lambda p, q: p.lines.update(optimizer=plain)
    if program.metrics:
        yield lambda p, q: p.metrics.clear()
    if program.shuffle:
        yield lambda p, q: setattr(p, "shuffle", False)
    if any(node.hint for body in [program.model, *layers_of(program.model)] for node in body.nodes):
        def plain_nodes(p, q):
            for body in [p.model, *layers_of(p.model)]:
                for node in body.nodes:
                    node.hint = ""

        yield plain_nodes


def only_result(p, i):
    p.model.results = [p.model.results[i]]
    p.terms = [term for term in p.terms if term.result == i]
    for term in p.terms:
        term.result = 0


def fewer_results(program, plans):
    if len(program.model.results) > 1:
        for i in range(len(program.model.results)):
            yield lambda p, q, i=i: only_result(p, i)
    for i, term in enumerate(program.terms):
        if (term.transform, term.kind, term.by_index, term.inner) != ("{0}", "mean", False, None):
            yield lambda p, q, i=i: p.terms.__setitem__(i, Term(p.terms[i].result, "{0}", "mean", 1))


def fewer_statements(program, plans):
    for b, body in enumerate([program.model, *layers_of(program.model)]):
        live = body.live()
        for at in range(len(live) - 1, -1, -1):
            node = live[at]
            if node.op is None or (isinstance(node.op, Source) and not node.operands and node.op.kind == "argument"):
                continue
            for k, other in enumerate(live[:at]):
                if other.type == node.type or (node in body.results and other.type.dtype == "f32" and b == 0):
                    def instead(p, q, b=b, at=at, k=k, same=other.type == node.type):
                        there = [p.model, *layers_of(p.model)][b]
                        nodes = there.live()
                        replaced(there, nodes[at], nodes[k])
                        if not same:
                            p.terms = [Term(t.result, "{0}", "mean", 1) for t in p.terms]

                    yield instead
            if isinstance(node.op, Source):
                continue

            def by_source(p, q, b=b, at=at):
                there = [p.model, *layers_of(p.model)][b]
                old = there.live()[at]
                if old.type.dtype == "f32" and old.batch < 0:
                    source = Source("param", 0.5)
                    source.text = "normal(0.5)"
                elif b == 0 and old.batch == 0 and old.type.dtype == "f32":
                    source = Source("argument")
                    p.fields.append(old.type)
                else:
                    raise Invalid("no source")
                new = Node(source, [], old.type)
                there.nodes.insert(there.nodes.index(old), new)
                if source.kind == "argument":
                    there.arguments.append(new)
                replaced(there, old, new)

            yield by_source
    for k in range(len(program.fields) - 1, -1, -1):
        if program.model.arguments[k] not in program.model.live() and all(t.field is None for t in program.terms):
            def without(p, q, k=k):
                if len(p.fields) == 1:
                    raise Invalid("the only field")
                del p.fields[k]
                p.model.nodes.remove(p.model.arguments.pop(k))

            yield without
    for b, body in enumerate([program.model, *layers_of(program.model)]):
        for i, use in enumerate(body.instances()):
            if use.repeat:
                yield lambda p, q, b=b, i=i: setattr([p.model, *layers_of(p.model)][b].instances()[i], "repeat", 0)


def smaller_sizes(program, plans):
    for name, size in program.dims.text.items():
        if isinstance(size, int):
            for less in [n for n in (1, 2, 3, 4, 5, 8, 16) if n < size]:
                def set_size(p, q, name=name, less=less):
                    p.dims.text[name] = less
                    if name != BATCH:
                        return
                    if less % p.unit:
                        raise Invalid("grain or group")
                    p.examples = less
                    for plan in list(q["bits"] or []) + [q["gradient"]] * bool(q["gradient"]):
                        if "--microbatch" in plan.flags:
                            at = plan.flags.index("--microbatch") + 1
                            plan.flags[at] = str(less) if int(plan.flags[at]) == size else plan.flags[at]
                            if less % int(plan.flags[at]):
                                raise Invalid("micro-batch")

                yield set_size


def smaller(program, plans, wrong, fails, seconds):
    """(program, plans, what it fails with) after changes that `fails(program, plans)` still fails with."""
    end = time.monotonic() + seconds
    program = bare(program)
    again = True
    while again:
        again = False
        for changes in (fewer_plans, fewer_results, fewer_settings, fewer_statements, smaller_sizes):
            found = True
            while found:
                found = False
                for change in list(changes(program, plans)):
                    if time.monotonic() > end:
                        return program, plans, wrong
                    candidate, fewer = copy.deepcopy(program), copy.deepcopy(plans)
                    try:
                        change(candidate, fewer)
                        candidate = bare(candidate)
                        check(candidate)
                        candidate.text()
                        failed = fails(candidate, fewer)
                    except Invalid:
                        continue
                    if failed:
                        program, plans, wrong, found, again = candidate, fewer, failed, True, True
                        break
    return program, plans, wrong
