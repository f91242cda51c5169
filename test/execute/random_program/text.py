"""From bodies to the text of a program; on the way every op that draws learns the number of its call.

Calls are numbered in each body in the order of the text, from 0, an outer call before the calls in its arguments.
"""
import re

from .graph import BATCH, Source

MARK = re.compile(r"§(\d+)§")
# `f(..)`, `f[..](..)`, and `random_uniform[..]`, which may go without parentheses.
NAME = re.compile(r"(?:§(\d+)§)?\b([a-z_][A-Za-z_0-9]*)(?=[(\[])")
REDUCTIONS = {"sum", "mean", "max", "min", "prod", "any", "all"}
BARE = {"random_uniform", "random_normal", "range"}


def closing(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([") - (text[i] in ")]")
        if depth == 0:
            return i + 1
    raise ValueError(text)


def number_calls(statements):
    """{mark: number of its call}."""
    found, count = {}, 0
    for statement in statements:
        body = statement.split(" = ", 1)[1] if " = " in statement else statement
        for match in NAME.finditer(body):
            end, name = match.end(), match.group(2)
            if body[end] == "(":
                called = True
            else:
                behind = closing(body, end)
                called = name in BARE or (body[behind:behind + 1] == "(" and name not in REDUCTIONS)
            if called:
                if match.group(1):
                    found[int(match.group(1))] = count
                count += 1
    return found


def name_all(body):
    """Names of everything that is live; numbers of draws are set."""
    live = body.live()
    for stem, nodes in (("x", body.arguments), ("p", body.parameters()), ("s", body.states())):
        for i, node in enumerate(nodes):
            node.name = "%s%d" % (stem, i)
    for i, use in enumerate(body.instances()):
        use.name = "r%d" % i
    count = 0
    for node in live:
        if not isinstance(node.op, Source):
            node.name = "v%d" % count
            count += 1


def definitions(body):
    """[(hint, statement)] of the live nodes, with marks; an inlined one stands inside of its user."""
    live = body.live()
    users = {}
    for node in live:
        for operand in node.operands:
            users.setdefault(id(operand), []).append(node)
    text, statements, marks, drawing = {}, [], {}, set()

    def written_once(node, user):
        """Does the user's text mention it once? Each mention of what draws would have numbers of its own."""
        places = ["<%d>" % i for i in range(len(user.operands))]
        written = user.op.expression(places, "", user)
        return sum(written.count(place) for place, operand in zip(places, user.operands) if operand is node) == 1

    for node in live:
        if isinstance(node.op, Source):
            text[id(node)] = node.name
            continue
        arguments = [text[id(operand)] for operand in node.operands]
        mark = ""
        if node.op.draws:
            marks[len(marks)] = node
            mark = "§%d§" % (len(marks) - 1)
        mine = users.get(id(node), [])
        inlined = (node.inline and not node.hint and len(mine) == 1 and mine[0].op.takes_expressions and node not in body.results
                   and not any(state.op.updated is node for state in body.states())
                   and node.op.is_expression)
        draws = node.op.draws or any(id(operand) in drawing for operand in node.operands)
        if inlined and not (draws and not written_once(node, mine[0])):
            drawing |= {id(node)} if draws else set()
            text[id(node)] = "(%s)" % node.op.expression(arguments, mark, node)
            continue
        text[id(node)] = node.name
        statement = (node.name + " = " + node.op.expression(arguments, mark, node) if node.op.is_expression
                     else node.op.line(node.name, arguments, mark, node))
        statements.append((node.hint, statement))
    numbers = number_calls([statement for _, statement in statements])
    for mark, node in marks.items():
        node.number = numbers[mark]
    return [(hint, MARK.sub("", statement)) for hint, statement in statements]


def body_text(body, signature, indent="  "):
    lines = [signature + " {"]
    for node in body.parameters():
        lines.append("%sparam %s: %s ~ %s" % (indent, node.name, node.type, node.op.text))
    for node in body.states():
        lines.append("%sstate %s: %s ~ constant(%g)" % (indent, node.name, node.type, node.op.init))
    for use in body.instances():
        lines.append(indent + "use " + use.declaration())
    for hint, statement in definitions(body):
        if hint:
            lines.append(indent + hint)
        lines.append(indent + statement)
    for node in body.states():
        keep = node.op.keep
        batch = node.op.update % (BATCH, node.op.updated.name)
        lines.append("%supdate %s = %g * %s + %g * (%s)" % (indent, node.name, keep, node.name, 1 - keep, batch))
    lines.append(indent + "return " + ", ".join(result.name for result in body.results))
    return "\n".join(lines + ["}"])


def layers_of(body, found=None):
    """Bodies of layers, each before the one that uses it."""
    found = [] if found is None else found
    for use in body.instances():
        if use.body and use.body not in found:
            layers_of(use.body, found)
            found.append(use.body)
    return found


def signature(kind, body):
    arguments = ", ".join("%s: %s" % (node.name, node.type) for node in body.arguments)
    results = [str(result.type) for result in body.results]
    return "%s%s %s(%s) -> %s" % ("reversible " * body.reversible, kind, body.name, arguments, results[0] if len(results) == 1 else "(%s)" % ", ".join(results))
