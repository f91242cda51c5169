"""Values of a layer that is being written: an expression with its type."""
import copy
import re

from .node import Refused

INDEX = "ijklmnpqrs"  # of axes that are not the batch
TYPES = {"float32": "f32", "float64": "f32", "float16": "f32", "bfloat16": "f32", "int64": "i32", "int32": "i32", "bool": "bool", "uint8": "i32"}
ATOM, POWER, PRODUCT, SUM, COMPARISON, LOGIC = 9, 7, 6, 5, 4, 3  # how tightly an expression holds together
RESERVED = set("""dim const data model layer builtin train plan names use repeat as shared scan return param state update if then else training and or not true
 false loss metric predict optimizer schedule steps epochs clip precision every ema grain freeze init seed on batch below except reversible sum mean max min prod any
 all where pi zeros ones constant normal uniform orthogonal fan_in fan_out range vector expand reshape concat reverse pad count weight softmax attend linear conv
 embedding layer_norm rms_norm batch_norm group_norm group_norm_seq lstm gru rnn rope dropout drop_path relu gelu silu kl block""".split())
# What the text calls with one tensor: a name of a body hides a layer of the library, and the call would mean another one without a word.
FUNCTIONS = set("tanh exp log sqrt sin cos erf abs sigmoid expm1 log1p floor argmax".split())  # of operations that are called the same
RESERVED |= FUNCTIONS | set("f32 i32 bool relu6 mish hard_swish hard_sigmoid stop_gradient gelu_tanh log_softmax".split())
# What it calls otherwise: no layer of the file is called so.
CALLED = set("""leaky_relu elu cross_entropy conv1d conv2d conv_transpose conv_transpose1d conv_transpose2d max_pool1d max_pool2d avg_pool1d avg_pool2d upsample
 resize_bilinear""".split())


def is_free(name):
    """Whether a value, a part or a parameter may have this name: it is no word of the language, no index, no name that the text gives by itself."""
    return name not in RESERVED and name not in INDEX + "bB" and not re.fullmatch(r"h\d+", name)


def free_name(name, taken):
    """The name, or one like it that may stand here."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    name = name if name[:1].isalpha() else "p" + name
    while not is_free(name) or name in taken:
        name += "_"
    return name


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
    if is_batch(value):
        raise Refused("the number of examples is read as a number: the model works example by example")
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

    def with_merged(self, merged):
        """The same with another `merged`; others may hold this one."""
        other = copy.copy(self)
        other.merged = merged
        return other


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
