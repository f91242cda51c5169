"""Changes in place: which values lie in one memory, and what is refused of that."""
from . import elementwise, library, pictures, shapes, sums  # noqa: F401  (their operations)
from .node import Refused
from .ops import OPS

# Of the operations that are known here: whose result may lie in the memory of the first argument, so that who changes one in place changes the other.
VIEWS = set("""view reshape flatten unflatten squeeze unsqueeze _unsafe_view expand expand_as broadcast_to permute transpose t numpy_T mT adjoint select slice narrow
 split split_with_sizes chunk tensor_split unbind getitem detach alias identity contiguous to type_as float dropout feature_dropout einsum""".split())
# Changes of how a tensor is seen: its numbers stay what they are.
SEEN_ANEW = set("squeeze_ unsqueeze_ transpose_ t_ detach_ requires_grad_".split())


class Memory:
    """Which values lie in the same memory. A change in place is followed to those who read the value under the name by which it was changed; who reads
    the memory under another name would get the numbers from before, and is refused.

    A place is a path: the value that was made first, then for each part of a split or a `select` which one it is. Two paths that part ways at two
    parts of one thing lie apart."""

    def __init__(self, graph):
        self.graph = graph
        self.places = {name: (name,) for name in [*graph.stored, *(each["name"] for each in graph.inputs)]}
        self.types = {each["name"]: each["dtype"] for each in [*graph.inputs, *graph.stored.values()]}
        self.old = {}  # value -> the node that changed its memory under another name
        self.whole = set(self.places)  # values in new memory, of which all that lies in the same memory is known
        self.changes, self.wrong = [], []  # nodes; (node that reads, value, node that changed it)

    def add(self, node, changed):
        """`changed`: the value that the node changes in place, or None."""
        self.wrong += [(node, name, self.old[name]) for name in node.reads() if name in self.old]
        self.types[node.name] = node.out.get("dtype") if isinstance(node.out, dict) else None
        if changed is None:
            self.places[node.name] = self._place(node)
            if node.base in OPS and self.places[node.name] == (node.name,):
                self.whole.add(node.name)
            return
        place = self.places[changed]
        self.places[node.name] = place
        if node.base in SEEN_ANEW:
            return
        self.changes.append(node)
        for name, other in self.places.items():
            if name not in (changed, node.name) and not self._apart(place, other):
                self.old.setdefault(name, node)
        if place[0] in self.graph.stored:
            self.old[node.name] = node

    def _place(self, node):
        source = next(iter(node.reads()), None)
        if source is None or node.base not in VIEWS or not self._may_share(node, source):
            return (node.name,)
        place = self.places[source]
        if node.base == "getitem":
            return place + ((source, node.args[1]),)
        if node.base == "select" and len(node.args) == 3 and isinstance(node.args[2], int) and node.args[2] >= 0:
            return place + ((("select", source, node.args[1]), node.args[2]),)
        return place

    def _may_share(self, node, source):
        if node.base in ("to", "type_as", "float"):
            return self.types[node.name] == self.types.get(source)
        if node.base in ("dropout", "feature_dropout"):
            return not all(node.args[1:3])  # a dropout that does nothing gives its argument
        return node.base != "einsum" or len(node.args[1]) == 1

    @staticmethod
    def _apart(one, other):
        """Whether two places have no number in common."""
        if one[0] != other[0]:
            return True
        for a, b in zip(one[1:], other[1:]):
            if a != b:
                return a[0] == b[0]  # two parts of one thing; parts of different things may overlap
        return False

    def check(self, needed, outputs):
        """needed: names of what the outputs are computed from."""
        for node, name, change in self.wrong:
            if node.name in needed:
                self._refuse(change, node)
        for name in outputs:
            if name in self.old:
                self._refuse(self.old[name], None)
        for node in self.changes:
            root = self.places[node.name][0]
            stored = self.graph.stored.get(root)
            if stored and stored["kind"] != "buffer":
                raise Refused("`%s` changes `%s` in place: the model may change buffers, which nobody reads%s" % (node.op, stored["path"], node.place()))
            # What no result is computed from is left out, unless the memory was made by an operation that is not known here: it may be that of a
            # value which a result is computed from.
            if not stored and node.name not in needed and root not in self.whole:
                raise Refused("`%s` changes `%s` in place, and no result is computed from what it makes; this would be left out, but `%s` may be a view: "
                              "make a new tensor%s" % (node.op, root, root, node.place()))

    def _refuse(self, change, reader):
        root = self.places[change.name][0]
        who = "`%s`%s" % (reader.op, reader.place()) if reader else "the result of the model"
        if root in self.graph.stored:
            raise Refused("`%s` changes `%s` in place, so it differs from call to call, and it is read by %s" % (change.op, self.graph.stored[root]["path"], who))
        raise Refused("`%s` (node %s) changes numbers of `%s` in place, and they are read under another name (a view, or what a view was taken of), which has "
                      "no counterpart: make a new tensor; the reader is %s" % (change.op, change.name, root, who))
