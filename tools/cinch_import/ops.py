"""What each operation of PyTorch is called here: the table, which elementwise.py, shapes.py, sums.py, pictures.py and library.py fill.
A function gets the layer that is written, the node, and its arguments by position."""
import re

from .node import Refused
from .values import COMPARISON, SUM, TYPES, Value, elements, is_batch, number_text

OPS = {}


def op(*names, merged=False):
    """`merged`: the function knows of values whose leading axes a view made one. Others never see such a value."""
    def add(function):
        function.knows_merged = merged
        for name in names:
            OPS[name] = function
        return function

    return add


def axis_of(value, axis):
    """The axis of the value that PyTorch calls `axis`."""
    axis = axis + value.rank - value.merged + 1 if axis < 0 else axis
    if value.merged > 1 and axis == 0:
        raise Refused("the axis in which a view joined the examples with another one is no axis to work along")
    return axis + value.merged - 1


def kept(x, shape):
    """The sizes of a result that PyTorch says to have this shape, and that keeps the axes of x that a view made one."""
    if x.merged == 1:
        return list(shape)
    if shape[0] != {"B": elements(x.shape[:x.merged])}:
        raise Refused("the axis in which a view joined the examples with another one changes its size")
    return x.shape[:x.merged] + list(shape[1:])


def no_examples(n, x, axis):
    if is_batch(x.shape[axis]):
        raise Refused("`%s` along the examples: the model works example by example" % n.op)
    return axis


def convert(layer, node):
    name = node.op.removeprefix("aten.").split(".")[0]
    function = OPS.get(name) or OPS.get(name.rstrip("_"))
    if function is None:
        raise Refused("operation `%s` is not known here: say it by others, or leave this part out of the model and write it into the program by hand" % node.op)
    # Operations of the library own their parameters; what is stored is not read as a value before they say so, but what they are applied to.
    lazy = function.__module__.endswith(".library")
    args = [unless_stored(layer, each) if lazy and (at or name == "embedding") else read(layer, each) for at, each in enumerate(node.args)]
    options = {key: read(layer, value) for key, value in node.kwargs.items()}
    if not function.knows_merged and any(value.merged > 1 for value in tensors([args, list(options.values())])):
        raise Refused("`%s` of what a view made flat" % node.op)
    try:
        return function(layer, node, *args, **options)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, ArithmeticError) as error:
        # The functions here are written for the arguments that models usually have. Others end here, so no one may be half used.
        raise Refused("`%s` with arguments that are not known here (%s: %s)" % (node.op, type(error).__name__, error)) from error


def tensors(value):
    """All values in an argument."""
    if isinstance(value, list):
        return [each for part in value for each in tensors(part)]
    return [value] if isinstance(value, Value) else []


def read(layer, arg):
    """What an argument stands for. The result of a node is a tensor, also where it is one number that is known."""
    if isinstance(arg, list):
        return [read(layer, each) for each in arg]
    value = layer.get(arg)
    if isinstance(arg, dict) and "node" in arg and isinstance(value, (bool, int, float)):
        return Value(number_text(value), [], "bool" if isinstance(value, bool) else "f32")
    return value


def unless_stored(layer, arg):
    if isinstance(arg, list):
        return [unless_stored(layer, each) for each in arg]
    return None if isinstance(arg, dict) and arg.get("node") in layer.graph.stored and arg["node"] not in layer.env else read(layer, arg)


# ---- Types ------------------------------------------------------------------------------------------------------------------
def is_number(v):
    """A number takes the type of what it meets."""
    return not isinstance(v, Value) or re.fullmatch(r"\(?-?[0-9.]+(e[+-]?[0-9]+)?\)?", v.text) is not None


def cast(n, v, dtype):
    """An operand as this type: PyTorch converts by itself, the language does not."""
    if not isinstance(v, Value) or v.dtype == dtype:
        return v
    if dtype == "bool":
        return Value("%s != 0" % v.inside(SUM), v.shape, "bool", COMPARISON, merged=v.merged)
    if dtype == "i32" and v.dtype == "f32":
        if is_number(v):
            return v
        raise Refused("`%s` that casts from f32 to whole numbers" % n.op)
    return Value("%s(%s)" % (dtype, v.text), v.shape, dtype, below=2 if dtype == "i32" else None, merged=v.merged)


def result_type(n):
    return TYPES[n.out["dtype"]]


def type_of(n, *operands):
    """The type of a result. Counts are f32 here and whole numbers in PyTorch, and so is what is computed of them."""
    counted = any(isinstance(v, Value) and v.dtype == "f32" and not is_number(v) for v in operands)
    return "f32" if counted and result_type(n) == "i32" else result_type(n)


def of_numbers(n, *operands):
    """.. of what is computed with numbers."""
    if result_type(n) == "bool":
        raise Refused("`%s` of truth values" % n.op)
    return type_of(n, *operands)
