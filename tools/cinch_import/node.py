"""One operation of the exported graph."""
import re


class Refused(Exception):
    """The program holds something that has no counterpart; the message is for people."""


class Node:
    def __init__(self, data):
        self.name, self.op = data["name"], data["op"]
        self.args, self.kwargs = data.get("args", []), data.get("kwargs", {})
        self.out = data["out"]  # {"shape", "dtype"}, a list of them, or None
        self.stack = [tuple(entry) for entry in data.get("stack", [])]  # (key of the call, path, class)

    @property
    def base(self):
        """The name of the operation without its overload: `add_` of `aten.add_.Tensor`."""
        return self.op.removeprefix("aten.").split(".")[0]

    def changes(self):
        """The value that the operation changes in place, or None."""
        if not self.op.startswith("aten."):
            return None
        is_assignment = self.base.endswith("_") and not self.base.startswith("__") or re.fullmatch("__i[a-z]+__", self.base)
        if "out" in self.kwargs and self.kwargs["out"] is not None:
            raise Refused("`%s` that writes into a tensor it is given%s" % (self.op, self.place()))
        if not is_assignment:
            return None
        if not self.args or not isinstance(self.args[0], dict) or "node" not in self.args[0]:
            raise Refused("`%s` of several tensors in place%s" % (self.op, self.place()))
        return self.args[0]["node"]

    def place(self):
        """Where the model says it, for a message."""
        path, kind = self.stack[-1][1:] if self.stack else ("", "Model")
        return "\n  in module `%s` (%s), node %s" % (path, kind.rsplit(".", 1)[-1], self.name)

    def reads(self):
        found = []

        def walk(value):
            if isinstance(value, dict):
                if "node" in value:
                    found.append(value["node"])
            elif isinstance(value, list):
                for each in value:
                    walk(each)

        walk(self.args)
        walk(list(self.kwargs.values()))
        return found
