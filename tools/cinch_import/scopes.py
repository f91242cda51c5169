"""Modules become layers: the nodes of a module's call are one layer, equal texts one definition, equal blocks in a row a `repeat`."""
import re

from . import elementwise, library, pictures, shapes, sums  # noqa: F401  (their operations)
from .layer import Layer
from .node import Refused
from .ops import convert, read
from .values import CALLED, TYPES, Value, is_free, type_text

LOCALS = ["x", "y", "z", "u", "v", "w"]


def is_scope(kind):
    """PyTorch's own small modules are part of the layer that calls them."""
    return not kind.startswith("torch.nn.modules.") or ".transformer." in kind


def is_whole(kind):
    """Whether a result is a tensor of whole numbers."""
    return isinstance(kind, dict) and TYPES.get(kind["dtype"]) == "i32"


class Scope:
    """One call of a module: its nodes and the calls in it, in order."""

    def __init__(self, key, path, kind, above):
        self.key, self.path, self.kind, self.above, self.items = key, path, kind, above, []

    def nodes(self):
        for item in self.items:
            if isinstance(item, Scope):
                yield from item.nodes()
            else:
                yield item


def scopes_of(graph):
    root = Scope("", "", "Model", None)
    for node in graph.nodes:
        scope = root
        for key, path, kind in node.stack:
            if not path or not is_scope(kind):
                continue
            last = scope.items[-1] if scope.items else None
            if not (isinstance(last, Scope) and last.key == key):
                last = Scope(key, path, kind, scope)
                scope.items.append(last)
            scope = last
        scope.items.append(node)
        if node.stack and not root.kind.count("."):
            root.kind = node.stack[0][2]
    return root


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.rsplit(".", 1)[-1]).lower()


class Writer:
    def __init__(self, graph, words):
        """words: what the program around the model calls its things, which no layer of the file may be called."""
        self.graph, self.root = graph, scopes_of(graph)
        self.layers = {}  # text without its name -> name
        self.order = []   # whole texts
        self.readers = {} # stored name -> [(scope, node)]
        self.inside = {}  # node name -> scope
        self.words = {word for each in graph.stored.values() for word in each["path"].split(".")} | set(words)
        self._note(self.root)
        self.below = self._bounds()
        self.known = {}  # node name -> number

    def _note(self, scope):
        for item in scope.items:
            if isinstance(item, Scope):
                self._note(item)
                continue
            self.inside[item.name] = scope
            for name in item.reads():
                if name in self.graph.stored:
                    self.readers.setdefault(name, []).append((scope, item))

    def owner(self, name):
        """The scope that holds a parameter: the innermost one in which all its readers lie."""
        chains = []
        for scope, _ in self.readers[name]:
            chain = []
            while scope:
                chain.append(scope)
                scope = scope.above
            chains.append(chain[::-1])
        common = None
        for level in zip(*chains):
            if any(scope is not level[0] for scope in level):
                break
            common = level[0]
        return common

    def _bounds(self):
        """What is looked up in a table is below the number of its rows."""
        makers = {node.name: node for node in self.graph.nodes}
        inputs = {each["name"] for each in self.graph.inputs if is_whole(each)}
        below = {}
        for node in self.graph.nodes:
            table = self.graph.stored.get(node.args[0].get("node")) if node.op.startswith("aten.embedding.") else None
            if table is None:
                continue
            rows, source = table["shape"][0], node.args[1]
            while isinstance(source, dict) and source.get("node") in makers and is_whole(makers[source["node"]].out):
                source = (makers[source["node"]].args or [None])[0]
            if isinstance(source, dict) and source.get("node") in inputs:
                below[source["node"]] = min(rows, below.get(source["node"], rows))
        return below

    # ---- One layer
    def write(self, scope, inputs):
        """inputs: outside name -> Value that the caller has. Returns (name, values of the outputs by node, paths, owns something)."""
        own_nodes = {node.name for node in scope.nodes()}
        uses = {}
        for item in scope.items:
            calls = item.nodes() if isinstance(item, Scope) else [item]
            for name in [name for node in calls for name in node.reads()]:
                uses[name] = uses.get(name, 0) + 1
        for name in own_nodes:
            uses[name] = uses.get(name, 0) + (name in self.graph.outputs if scope.above is None else self._read_outside(name, own_nodes))
        layer = Layer(self.graph, uses)
        layer.scope, layer.writer, layer.instances = scope, self, {}
        layer.calls = {item.base.strip("_").replace("rsqrt", "sqrt") for item in scope.items if not isinstance(item, Scope)}
        layer.mine, layer.stored_shape, layer.part_name = self._mine(scope), self._stored_shape, self._part_name(layer, scope)
        parameters = []
        for number, (name, value) in enumerate(inputs.items()):
            # The program's inputs come with the names of the fields.
            local = value.text if scope.above is None else LOCALS[number] if number < len(LOCALS) else "x%d" % number
            layer.parameters.add(local)
            layer.env[name] = Value(local, value.shape, value.dtype, below=value.below, merged=value.merged)
            parameters.append("%s: %s" % (local, type_text(value.shape, value.dtype, value.below)))
        # Parameters that several layers below read, or several operations here.
        for name in self.readers:
            if self.owner(name) is scope and not self._one_operation(name) and self.graph.stored[name]["kind"] == "parameter":
                self._own(layer, scope, name)
        position = 0
        while position < len(scope.items):
            item = scope.items[position]
            if isinstance(item, Scope):
                position += self._call(layer, scope, position)
                continue
            try:
                layer.settle(item, convert(layer, item))
            except Refused as refusal:
                raise Refused("%s\n  in %s" % (refusal, "module `%s` (%s), node %s" % (scope.path, scope.kind.rsplit(".", 1)[-1], item.name)))
            position += 1
        outside = [name for name in own_nodes if name in self.graph.outputs] if scope.above is None else \
            [node.name for node in scope.nodes() if self._read_outside(node.name, own_nodes)]
        if scope.above is None:
            outside = list(dict.fromkeys(self.graph.outputs))
        values = [read(layer, {"node": name}) for name in outside]
        return self._finish(layer, scope, parameters, outside, values)

    def _read_outside(self, name, own_nodes):
        return name in self.graph.outputs or any(name in node.reads() and node.name not in own_nodes for node in self.graph.nodes)

    def _finish(self, layer, scope, parameters, outside, values):
        if not values:
            raise Refused("module `%s` returns no tensor that depends on its input" % scope.path)
        for value in values:
            if not isinstance(value, Value):
                raise Refused("module `%s` gives what is no tensor" % scope.path)
        types = ", ".join(type_text(v.shape, v.dtype, v.below if v.dtype == "i32" else None) for v in values)
        lines = ["  %s %s: %s ~ %s" % owned for owned in layer.owned]
        line = ""
        for name, text in layer.parts:
            piece = "%s = %s" % (name, text)
            if line and len(line) + len(piece) > 120:
                lines.append("  use " + line)
                line = ""
            line += (", " if line else "") + piece
        lines += ["  use " + line] if line else []
        lines += ["  " + text for text in layer.lines]
        lines.append("  return " + ", ".join(v.text for v in values))
        body = "(%s) -> %s {\n%s\n}" % (", ".join(parameters), types if len(values) == 1 else "(%s)" % types, "\n".join(lines))
        if scope.above is None:
            name = self._free(scope.kind.rsplit(".", 1)[-1].lower())
            self.order.append("model %s%s\n" % (name, body))
        else:
            name = self.layers.get(body)
            if name is None:
                name = self._free(snake(scope.kind))
                self.layers[body] = name
                self.order.append("layer %s%s\n" % (name, body))
        results = [(node, Value("", v.shape, v.dtype, below=v.below, merged=v.merged)) for node, v in zip(outside, values)]
        return name, results, layer.paths, bool(layer.owned or layer.parts)

    def _free(self, name):
        """A layer's name is none of a module in a path: those are what the parts are called."""
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        name = name if name[:1].isalpha() else "a" + name
        base = name + "_layer" if name in self.words or name in CALLED or not is_free(name) or len(name) < 2 else name
        taken, number, name = set(self.layers.values()), 2, base
        while name in taken:
            name, number = "%s_v%d" % (base, number), number + 1
        return name

    # ---- Parameters
    def _one_operation(self, name):
        """All readers are one kind of operation, at one place of its arguments, in one scope."""
        readers = self.readers[name]
        return len({(id(scope), node.op) for scope, node in readers}) == 1 and len({tuple(str(a) for a in node.args[1:3]) for _, node in readers}) <= 1 or \
            len(readers) == 1 or (len({(id(scope), node.op) for scope, node in readers}) == 1 and self._same_place(name, readers))

    def _same_place(self, name, readers):
        places = {tuple(k for k, arg in enumerate(node.args) if arg == {"node": name}) for _, node in readers}
        others = {tuple(str(arg) for arg in node.args if isinstance(arg, dict) and arg.get("node") in self.graph.stored) for _, node in readers}
        return len(places) == 1 and len(others) == 1

    def _mine(self, scope):
        return lambda name, node: name in self.graph.stored and self.owner(name) is scope and self._one_operation(name)

    def _stored_shape(self, arg):
        stored = self.graph.stored.get(arg.get("node")) if isinstance(arg, dict) else None
        if stored is None:
            raise Refused("a weight that is computed")
        return stored["shape"]

    def _own(self, layer, scope, name):
        stored = self.graph.stored[name]
        layer.env[name] = layer.own("param", self._relative(scope, stored["path"]), stored["shape"], "f32", "normal(0.02)", stored["path"])

    def _relative(self, scope, path):
        if scope.path and path.startswith(scope.path + "."):
            path = path[len(scope.path) + 1:]
        return re.sub(r"\W", "_", path, flags=re.ASCII)

    def _part_name(self, layer, scope):
        def name(path):
            local = self._relative(scope, path) or "part"
            local = "l" + local if local[0].isdigit() else local
            local += "_" if len(local) == 1 or not layer.may_own(local) else ""
            taken = layer.names()
            base, number = local, 2
            while local in taken:
                local, number = "%s_%d" % (base, number), number + 1
            return local

        return name

    # ---- Calls of layers
    def _inputs(self, layer, child):
        """What a call reads from outside, in the order in which it does."""
        own, found = {node.name for node in child.nodes()}, {}
        for node in child.nodes():
            for name in node.reads():
                if name in own or name in found:
                    continue
                if name in self.graph.stored and self._lies_in(self.owner(name), child):
                    continue
                value = layer.get({"node": name})
                if isinstance(value, (bool, int, float)):
                    self.known[name] = value  # the call writes the number itself
                    continue
                if isinstance(value, Value):
                    found[name] = value
                elif isinstance(value, list):
                    raise Refused("module `%s` takes a part of a tuple from outside" % child.path)
        return found

    @staticmethod
    def _lies_in(scope, outer):
        while scope is not None and scope is not outer:
            scope = scope.above
        return scope is outer

    def _call(self, layer, scope, position):
        """Writes the call at `position`, with those of the equal blocks behind it; says how many items that was."""
        child = scope.items[position]
        inputs = self._inputs(layer, child)
        name, results, paths, owns = self.write(child, inputs)
        run = [(child, paths)]
        stem, _, number = child.path.rpartition(".")
        chained = owns and number.isdigit() and len(results) == 1 and inputs
        while chained and position + len(run) < len(scope.items):
            following = scope.items[position + len(run)]
            if not (isinstance(following, Scope) and following.path == "%s.%d" % (stem, int(number) + len(run))):
                break
            fed = results[0][0]
            others = [key for key in list(inputs)[1:]]
            layer.env[fed] = results[0][1]
            wanted = self._inputs(layer, following)
            if list(wanted) != [fed] + others or any(fed in n.reads() for n in self.graph.nodes if n.name not in {m.name for m in following.nodes()}):
                break
            before = len(self.order)
            also, after, more, _ = self.write(following, wanted)
            if also != name or len(after) != 1:
                if len(self.order) > before:  # another layer: written again when its turn comes
                    text = self.order.pop()
                    self.layers = {body: known for body, known in self.layers.items() if known != also}
                break
            run.append((following, more))
            results = after
        arguments = ", ".join(value.text for value in inputs.values())
        if not owns:
            text = "%s(%s)" % (name, arguments)
        else:
            key = ("call", child.path)
            local, made = layer.instances.get(key, (None, name))
            if made != name:
                raise Refused("module `%s` is called twice, and computes another thing the second time" % child.path)
            if local is None:
                local = layer.part_name(stem if len(run) > 1 else child.path)
                layer.instances[key] = local, name
                layer.parts.append((local, ("repeat %d " % len(run) if len(run) > 1 else "") + name))
                for block, (_, renamed) in enumerate(run):
                    for ours, theirs in renamed:
                        layer.paths.append(("%s.%d.%s" % (local, block, ours) if len(run) > 1 else "%s.%s" % (local, ours), theirs))
            text = "%s(%s)" % (local, arguments)
        if len(results) == 1:
            node, value = results[0]
            made = layer.define(text, value.shape, value.dtype, value.below)
            made.merged = value.merged
            layer.env[node] = made
        else:
            names = [layer.fresh() for _ in results]
            layer.lines.append("%s = %s" % (", ".join(names), text))
            for local, (node, value) in zip(names, results):
                layer.env[node] = Value(local, value.shape, value.dtype, below=value.below, merged=value.merged)
        return len(run)
