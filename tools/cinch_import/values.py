"""Values of a layer that is being written: an expression with its type."""
from .graph import Refused

INDEX = "ijklmnpqrs"  # of axes that are not the batch
TYPES = {"float32": "f32", "float64": "f32", "float16": "f32", "bfloat16": "f32", "int64": "i32", "int32": "i32", "bool": "bool", "uint8": "i32"}
ATOM, PRODUCT, SUM, COMPARISON, LOGIC = 9, 6, 5, 4, 3  # how tightly an expression holds together


def is_batch(size):
    return isinstance(size, dict)


def size_text(size):
    if not is_batch(size):
        return str(size)
    if size["B"] != 1:
        raise Refused("an axis merges the examples with another one")
    return "B"


def type_text(shape, dtype, below=None):
    text = "%s[%s]" % (dtype, ", ".join(size_text(size) for size in shape))
    return text + (" below %d" % below if below else "")


def number_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if value != value:
        raise Refused("a constant is not a number")
    if value in (float("inf"), float("-inf")):
        return "1e30" if value > 0 else "(-1e30)"
    value = float(value)
    text = str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    return "(%s)" % text if value < 0 else text


class Value:
    """`merged`: how many leading axes count as one to who reads it (a view [B, T, D] -> [B * T, D] computes nothing)."""

    def __init__(self, text, shape, dtype, hold=ATOM, below=None, merged=1):
        self.text, self.shape, self.dtype, self.hold, self.below, self.merged = text, list(shape), dtype, hold, below, merged

    @property
    def rank(self):
        return len(self.shape)

    def inside(self, hold):
        return self.text if self.hold >= hold else "(%s)" % self.text

    def simple(self):
        return self.text.replace("_", "a").isalnum() and not self.text[0].isdigit()


class Joined(Value):
    """A view [.., B, A, ..] -> [.., B * A, ..]: an axis that joins the examples with another one. Nobody but a view that takes it apart again may
    read it; until then axes are only moved. `real`: the value itself, whose axes `at` and `at` + 1 are the one here."""

    def __init__(self, real, at):
        self.real, self.at = real, at
        shape = real.shape[:at] + [{"B": real.shape[at + 1]}] + real.shape[at + 2 :]
        super().__init__(None, shape, real.dtype, below=real.below)

    @property
    def text(self):
        raise Refused("an axis merges the examples with another one")

    @text.setter
    def text(self, _):
        pass

    def simple(self):  # it gets no name
        return True

    def moved(self, layer, order):
        real = [axis for i in order for axis in ([self.at, self.at + 1] if i == self.at else [i + (i > self.at)])]
        return Joined(layer.permute(self.real, real), list(order).index(self.at))


def letters(shape):
    """One index name an axis."""
    names, rest = [], iter(INDEX)
    for size in shape:
        names.append("b" if is_batch(size) else next(rest))
    return names


def elements(shape):
    count = 1
    for size in shape:
        count *= size["B"] if is_batch(size) else size
    return count
