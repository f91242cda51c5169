"""The exported graph as plain data, which is also what a test stores: nodes with their arguments, shapes and modules.

A shape is a list of whole numbers; {"B": c} stands for c times the batch. An argument is a plain value, a list, {"node": name} for the
result of another node, or {"B": c}.
"""
import json
import struct
import sys
import zipfile

from .memory import Memory
from .node import Node, Refused

HOW_TO_EXPORT = ("program = torch.export.export(model.train(), (x,), dynamic_shapes=({0: torch.export.Dim(\"batch\", min=2)},)) exports one, "
                 "with a {0: ..} for each input")
SHAPES = ("view", "reshape", "expand", "unsqueeze", "squeeze", "contiguous", "clone", "_unsafe_view", "to")  # the same numbers in another shape


class Graph:
    def __init__(self, data, weights):
        self.data, self.weights = data, weights  # path -> numpy array
        self.inputs = data["inputs"]  # {"name", "shape", "dtype"}
        self.stored = {each["name"]: each for each in data["stored"]}  # parameters, buffers, constants: {"name", "path", "kind", "shape", "dtype"}
        self.parameters = {each["path"] for each in data["stored"] if each["kind"] == "parameter"}
        self.frozen = {each["path"] for each in data["stored"] if each.get("frozen")}
        self.outputs = data["outputs"]
        self.nodes = [Node(each) for each in data["nodes"]]
        for each in self.inputs:
            is_read = any(each["name"] in node.reads() for node in self.nodes)
            if is_read and any(isinstance(size, dict) for size in each["shape"][1:]):
                raise Refused("an axis of input `%s` besides axis 0 is dynamic; only the batch may be: %s" % (each["name"], HOW_TO_EXPORT))
            if is_read and (not each["shape"] or each["shape"][0] != {"B": 1}):
                raise Refused("axis 0 of input `%s`, of shape %s, is not dynamic, and the batch has to be: %s"
                              % (each["name"], [size if not isinstance(size, dict) else "batch" for size in each["shape"]], HOW_TO_EXPORT))
        self._settle()

    def _settle(self):
        """Who reads a value that was changed in place reads the new one; what no output needs goes."""
        now, memory = {}, Memory(self)
        for node in self.nodes:
            node.args = _followed(node.args, now)
            node.kwargs = {key: _followed(value, now) for key, value in node.kwargs.items()}
            changed = node.changes()
            memory.add(node, changed)
            if changed is not None:
                now = {key: node.name if value == changed else value for key, value in now.items()}
                now[changed] = node.name
        self.outputs = [now.get(name, name) for name in self.outputs]
        memory.check(self._needed(), self.outputs)
        self._padding()
        now = {}
        self._unite(now)
        self.outputs = [now.get(name, name) for name in self.outputs]
        needed = self._needed()
        self.nodes = [node for node in self.nodes if node.name in needed]

    def _needed(self):
        """The names of what the outputs are computed from."""
        needed = set(self.outputs)
        for node in reversed(self.nodes):
            if node.name in needed:
                needed.update(node.reads())
        return needed

    def _padding(self):
        """Padding masks: PyTorch makes numbers of them, 0 and -inf, which are added to the scores. The condition itself goes to attention, as
        which keys count; what else was added stays."""
        by_name = {node.name: node for node in self.nodes}
        kept = {}

        def base(node):
            return node.op.split(".")[1].rstrip("_") if node and node.op.startswith("aten.") else ""

        def named(value):
            return by_name.get(value["node"]) if isinstance(value, dict) and "node" in value else None

        def condition(node, last):
            """The node whose true elements are the keys that are hidden; `last`: how many keys there are."""
            while base(node) in SHAPES and node.out["shape"][-1:] == [last]:
                node = named(node.args[0])
            if base(node) != "masked_fill" or node.args[2:] != [float("-inf")] or base(named(node.args[0])) not in ("zeros", "zeros_like"):
                return None
            hidden = named(node.args[1])
            if not hidden:  # it is an input of the model
                type_ = next((each for each in self.inputs if each["name"] == node.args[1].get("node")), None)
                hidden = type_ and Node({"name": type_["name"], "op": "", "args": [], "out": {"dtype": type_["dtype"], "shape": type_["shape"]},
                                         "stack": [list(entry) for entry in node.stack]})
            return hidden if hidden and hidden.out["dtype"] == "bool" and hidden.out["shape"] == [{"B": 1}, last] else None

        for node in list(self.nodes):
            if base(node) != "scaled_dot_product_attention":
                continue
            mask = named(node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask"))
            if mask is None or not mask.out["shape"]:
                continue
            last = mask.out["shape"][-1]
            found, rest = condition(mask, last), None
            whole = mask
            while not found and base(whole) in SHAPES and whole.out["shape"][-1:] == [last]:
                whole = named(whole.args[0])
            if not found and base(whole) == "add" and not whole.kwargs:
                for one, other in (whole.args[:2], whole.args[1::-1]):
                    # The other is added to the scores of every example alike.
                    type_ = named(other).out if named(other) else self._given(other)
                    if named(one) and type_ and not any(isinstance(size, dict) for size in type_["shape"]):
                        found, rest = condition(named(one), last), other
                        if found:
                            break
            if not found:
                continue
            if found.name not in kept:
                kept[found.name] = Node({"name": found.name + "_kept", "op": "aten.logical_not.default", "args": [{"node": found.name}],
                                         "out": found.out, "stack": [list(entry) for entry in found.stack]})
                self.nodes.insert(self.nodes.index(found) + 1 if found in self.nodes else 0, kept[found.name])
            node.kwargs = {**node.kwargs, "keys": {"node": kept[found.name].name}}
            if len(node.args) > 3:
                node.args = node.args[:3] + [rest] + node.args[4:]
            else:
                node.kwargs["attn_mask"] = rest

    def _given(self, value):
        name = value.get("node") if isinstance(value, dict) else None
        return self.stored.get(name)

    def _unite(self, now):
        """Equal nodes of one call are one: what each block of a row casts anew would stand between them."""
        known = {}
        for node in self.nodes:
            node.args = _followed(node.args, now)
            node.kwargs = {key: _followed(value, now) for key, value in node.kwargs.items()}
            if any(word in node.op for word in ("dropout", "attention", "rand", "lstm", "gru", "zeros", "_.")):
                continue
            key = (node.op, json.dumps([node.args, node.kwargs], sort_keys=True), node.stack[-1][0] if node.stack else "")
            if key in known:
                now[node.name] = known[key]
            else:
                known[key] = node.name


def _followed(value, now):
    """An argument with nodes replaced by those that took their place."""
    if isinstance(value, dict):
        return {"node": now.get(value["node"], value["node"])} if "node" in value else value
    return [_followed(each, now) for each in value] if isinstance(value, list) else value


# ---- From PyTorch -----------------------------------------------------------------------------------------------------------
def _plain_size(size):
    import torch

    if not isinstance(size, torch.SymInt):
        return int(size)
    expr = size.node.expr
    if expr.is_number:
        return int(expr)
    symbols = list(expr.free_symbols)
    if len(symbols) == 1 and (expr / symbols[0]).is_number:
        return {"B": int(expr / symbols[0])}
    raise Refused("a size is %s; only the batch may be dynamic" % expr)


def _plain_type(value):
    import torch

    if isinstance(value, torch.Tensor):
        return {"shape": [_plain_size(size) for size in value.shape], "dtype": str(value.dtype).split(".")[1]}
    if isinstance(value, (tuple, list)):
        return [_plain_type(each) for each in value]
    return None


def _plain(value):
    import torch

    if isinstance(value, torch.fx.Node):
        inside = value.meta.get("val")
        return _plain_size(inside) if isinstance(inside, (torch.SymInt, int)) else {"node": value.name}
    if isinstance(value, torch.SymInt):
        return _plain_size(value)
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, slice):
        raise Refused("a slice as an argument")
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)


def from_exported(program):
    import torch

    stored, weights, inputs = [], {}, []
    signature = program.graph_signature
    specs = {spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")}
    data = {"nodes": []}
    frozen = {name for name, parameter in program.named_parameters() if not parameter.requires_grad}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            kind = _plain_type(node.meta["val"])
            spec = specs[node.name]
            name = spec.kind.name.lower()
            if name == "user_input":
                if kind is None or isinstance(kind, list):
                    raise Refused("input `%s` is no tensor" % node.name)
                inputs.append({"name": node.name, **kind})
                continue
            tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
            stored.append({"name": node.name, "path": spec.target, "kind": name.split("_")[0], **kind, **({"frozen": True} if spec.target in frozen else {})})
            if tensor is not None:
                weights[spec.target] = tensor.detach().cpu().to(torch.float32 if tensor.is_floating_point() else tensor.dtype).numpy()
        elif node.op == "call_function":
            value = node.meta.get("val")
            if isinstance(value, (torch.SymInt, int)):
                continue  # a size: those who read it hold the number
            target = str(node.target) if not callable(node.target) or "aten" in str(node.target) else node.target.__name__
            stack = [[key, path, cls if isinstance(cls, str) else cls.__module__ + "." + cls.__qualname__]
                     for key, (path, cls) in node.meta.get("nn_module_stack", {}).items() if not key.startswith("_empty")]
            written = [each.name for each in getattr(getattr(node.target, "_schema", None), "arguments", []) if each.alias_info and each.alias_info.is_write]
            data["nodes"].append({"name": node.name, "op": target, "args": _plain(list(node.args)),
                                  "kwargs": {key: _plain(each) for key, each in node.kwargs.items()}, "out": _plain_type(value), "stack": stack})
            if written and Node(data["nodes"][-1]).changes() is None:
                raise Refused("`%s` changes its argument `%s` in place%s" % (target, written[0], Node(data["nodes"][-1]).place()))
        elif node.op == "output":
            found = []

            def outputs(value):
                if isinstance(value, torch.fx.Node):
                    found.append(value.name)
                elif isinstance(value, (tuple, list)):
                    for each in value:
                        outputs(each)
                elif isinstance(value, dict):
                    for each in value.values():
                        outputs(each)

            outputs(node.args)
            wanted = {spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT" and hasattr(spec.arg, "name")}
            data["outputs"] = [name for name in found if name in wanted]
        else:
            raise Refused("the graph has a node of kind %s" % node.op)
    data["inputs"], data["stored"] = inputs, stored
    return Graph(data, weights)


def load(path):
    """FILE.pt2, or a graph stored as FILE.json with FILE.npz beside it."""
    try:
        import numpy
    except ImportError:
        raise Refused("reading it needs NumPy, and %s has none: pip install numpy" % sys.executable)
    if str(path).endswith(".json"):
        with open(path) as file:
            data = json.load(file)
        with numpy.load(str(path)[:-5] + ".npz") as arrays:
            return Graph(data, {name: arrays[name] for name in arrays.files})
    _check_archive(path)
    try:
        import torch
    except ImportError:
        raise Refused("reading it needs PyTorch, and %s has none: run this by the Python that exported it, or pip install torch" % sys.executable)
    try:
        exported = torch.export.load(path)
    except Exception as error:  # whatever PyTorch finds wrong with it
        raise Refused("PyTorch cannot load it as an exported program: %s" % str(error).strip().split("\n")[0])
    return from_exported(exported)


def _check_archive(path):
    """torch.export.save writes a zip file with a program; torch.save one with a pickle of tensors, or, long ago, a bare pickle."""
    how = "; %s, and torch.export.save(program, \"FILE.pt2\")" % HOW_TO_EXPORT
    if not zipfile.is_zipfile(path):
        raise Refused("it is no exported program" + how)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, struct.error) as error:  # what it says of a directory that is damaged
        raise Refused("it is a damaged zip file: %s" % error)
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        raise Refused("it holds tensors (torch.save of a state_dict or a model), not an exported program" + how)


def store(graph, path):
    import numpy

    with open(path, "w") as file:
        json.dump(graph.data, file, separators=(",", ":"))
    numpy.savez(str(path)[:-5] + ".npz", **graph.weights)
