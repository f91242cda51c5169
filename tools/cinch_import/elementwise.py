"""Operations on each element: functions, arithmetic with PyTorch's conversions, comparisons, choices."""
from .node import Refused
from .ops import cast, is_number, of_numbers, op, result_type, type_of
from .values import ATOM, COMPARISON, LOGIC, POWER, PRODUCT, SUM, TYPES, Value, number_text


def function_of(n, x, template, hold=ATOM):
    """A function of one tensor, in f32. template: "exp(%s)"."""
    if result_type(n) != "f32":
        raise Refused("`%s` of whole numbers" % n.op)
    x = cast(n, x, "f32")
    return Value(template % (x.text if hold == ATOM else x.inside(ATOM)), x.shape, "f32", hold, merged=x.merged)


def _function(name, called=None):
    @op(name, merged=True)
    def run(e, n, x, *rest, **more):
        if any(r not in (None, 1, 1.0, False) for r in [*rest, *more.values()]):
            raise Refused("`%s` with %s" % (n.op, [*rest, *more.values()]))
        return function_of(n, x, (called or name) + "(%s)")


for _name in "relu sigmoid tanh exp log sqrt sin cos erf abs silu relu6 mish expm1 log1p floor hard_swish".split():
    _function(_name)
_function("hardswish", "hard_swish")
_function("hardsigmoid", "hard_sigmoid")


@op("softplus", merged=True)
def softplus(e, n, x, beta=1, threshold=20):  # above the threshold PyTorch takes x itself, which softplus(x) is there, rounded
    if threshold < 15:
        raise Refused("softplus with a threshold of %s; from 15 on it is the function itself" % threshold)
    if beta == 1:
        return function_of(n, x, "softplus(%s)")
    x = cast(n, x, "f32")
    return Value("softplus(%s * %s) / %s" % (number_text(beta), x.inside(PRODUCT + 1), number_text(beta)), x.shape, "f32", PRODUCT, merged=x.merged)


@op("detach", merged=True)
def detach(e, n, x):
    if is_number(x):
        return x
    return function_of(n, x, "stop_gradient(%s)") if x.dtype == "f32" else x


@op("gelu", merged=True)
def gelu(e, n, x, approximate="none"):
    return function_of(n, x, "gelu_tanh(%s)" if approximate == "tanh" else "gelu(%s)")


@op("leaky_relu", merged=True)
def leaky_relu(e, n, x, slope=0.01):
    return function_of(n, x, "leaky_relu(%%s, %s)" % number_text(slope))


@op("elu", merged=True)
def elu(e, n, x, alpha=1, scale=1, input_scale=1):
    if input_scale != 1:
        raise Refused("`elu` with a scale of its input")
    y = function_of(n, x, "elu(%%s, %s)" % number_text(alpha))
    return y if scale == 1 else Value("%s * %s" % (number_text(scale), y.text), y.shape, "f32", PRODUCT, merged=y.merged)


@op("selu", merged=True)
def selu(e, n, x):
    return elu(e, n, x, 1.6732632423543772, 1.0507009873554805)


@op("celu", merged=True)
def celu(e, n, x, alpha=1):
    x = e.named(cast(n, x, "f32"))
    a = number_text(alpha)  # of large x no exponential is computed, which would be infinite
    return Value("where(%s > 0, %s, %s * expm1(min(%s, 0) / %s))" % (x.text, x.text, a, x.text, a), x.shape, "f32", merged=x.merged)


@op("dropout", "feature_dropout", merged=True)
def dropout(e, n, x, rate, train):
    if "feature" in n.op and rate and train:
        raise Refused("dropout of whole channels")
    return function_of(n, x, "dropout(%%s, %s)" % number_text(rate)) if rate and train else x


def bounded(e, n, x, low, high, flat):
    """`flat`: at a bound the derivative is 0, else it is 1: at a tie `max` and `min` go on with their second operand."""
    kind = of_numbers(n, x, low, high)
    x = cast(n, x, kind)
    for word, bound in (("max", low), ("min", high)):
        if bound is not None:
            pair = [x, cast(n, bound, kind)]
            x = e.elementwise(n, word + "({0}, {1})", pair if flat else pair[::-1], ATOM, kind)
    return x


@op("hardtanh", merged=True)
def hardtanh(e, n, x, low=-1, high=1):
    return bounded(e, n, x, low, high, flat=True)


@op("clamp", "clip", merged=True)
def clamp(e, n, x, min=None, max=None):
    return bounded(e, n, x, min, max, flat=False)


@op("clamp_min", merged=True)
def clamp_min(e, n, x, min):
    return bounded(e, n, x, min, None, flat=False)


@op("clamp_max", merged=True)
def clamp_max(e, n, x, max):
    return bounded(e, n, x, None, max, flat=False)


def times(v, factor):
    """A tensor or a number, multiplied by a number."""
    if factor == 1:
        return v
    if not isinstance(v, Value):
        return v * factor
    return Value("%s * %s" % (number_text(factor).strip("()"), v.inside(PRODUCT + 1)), v.shape, v.dtype, PRODUCT, merged=v.merged)


def arithmetic(e, n, template, hold, a, b, alpha=1, rounding_mode=None):
    if rounding_mode:
        raise Refused("`%s` that rounds" % n.op)
    if n.base.startswith("mul") and result_type(n) == "bool":
        return e.elementwise(n, "{0} and {1}", [of_truth(n, a), of_truth(n, b)], LOGIC, "bool")
    kind = of_numbers(n, a, b)
    return e.elementwise(n, template, [cast(n, a, kind), times(cast(n, b, kind), alpha)], hold, kind)


def _arithmetic(name, template, hold):
    @op(name, merged=True)
    def run(e, n, a, b, alpha=1, rounding_mode=None):
        return arithmetic(e, n, template, hold, a, b, alpha, rounding_mode)


for _name, _template, _hold in (("add", "{0} + {1}", SUM), ("sub", "{0} - {1}", SUM), ("mul", "{0} * {1}", PRODUCT), ("div", "{0} / {1}", PRODUCT),
                                ("maximum", "max({0}, {1})", ATOM), ("minimum", "min({0}, {1})", ATOM)):
    _arithmetic(_name, _template, _hold)


@op("rsub", merged=True)
def rsub(e, n, a, b, alpha=1):
    return arithmetic(e, n, "{0} - {1}", SUM, b, a, alpha)


@op("neg", merged=True)
def neg(e, n, x):
    return times(cast(n, x, of_numbers(n, x)), -1)


def _comparison(name, sign):
    @op(name, merged=True)
    def run(e, n, a, b):
        kinds = {v.dtype for v in (a, b) if not is_number(v)}
        fraction = any(isinstance(v, float) and v % 1 != 0 for v in (a, b))
        truth = [v for v in (a, b) if isinstance(v, bool)]
        if kinds == {"bool"} and sign in ("==", "!=") and (truth or all(isinstance(v, Value) and v.dtype == "bool" for v in (a, b))):
            kind = "bool"
        else:
            kind = "f32" if "f32" in kinds or fraction else "i32"
        return e.elementwise(n, "{0} %s {1}" % sign, [v if is_number(v) else cast(n, v, kind) for v in (a, b)], COMPARISON, "bool")


for _name, _sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _comparison(_name, _sign)


def of_truth(n, v):
    """An operand as a truth value; of whole numbers, `bitwise` means another thing."""
    if isinstance(v, Value) and v.dtype == "bool":
        return v
    if "logical" not in n.op or not isinstance(v, Value):
        raise Refused("`%s` of numbers" % n.op)
    return cast(n, v, "bool")


def _logic(word, hold, *names):
    @op(*names, merged=True)
    def run(e, n, a, b):
        return e.elementwise(n, "{0} %s {1}" % word, [of_truth(n, a), of_truth(n, b)], hold, "bool")


_logic("and", LOGIC, "logical_and", "bitwise_and", "__and__", "__iand__")
_logic("or", LOGIC, "logical_or", "bitwise_or", "__or__", "__ior__")
_logic("!=", COMPARISON, "logical_xor", "bitwise_xor", "__xor__", "__ixor__")


@op("logical_not", "bitwise_not", merged=True)
def negation(e, n, x):
    return Value("not %s" % of_truth(n, x).inside(ATOM), x.shape, "bool", LOGIC, merged=x.merged)


@op("pow", merged=True)
def power(e, n, x, exponent):
    if not isinstance(x, Value) or isinstance(exponent, Value):
        raise Refused("a power whose exponent is a tensor")
    return function_of(n, x, "%%s ^ %s" % number_text(exponent), POWER)


@op("square", merged=True)
def square(e, n, x):
    return power(e, n, x, 2)


@op("reciprocal", merged=True)
def reciprocal(e, n, x):
    return function_of(n, x, "1 / %s", PRODUCT)


@op("rsqrt", merged=True)
def rsqrt(e, n, x):
    root = function_of(n, x, "sqrt(%s)")
    return Value("1 / " + root.text, root.shape, "f32", PRODUCT, merged=root.merged)


def chosen(e, n, condition, a, b):
    if condition.dtype != "bool":
        condition = cast(n, condition, "bool")
    kind = type_of(n, a, b)
    if kind == "bool" and any(is_number(v) and not isinstance(v, bool) for v in (a, b)):
        raise Refused("`%s` of truth values and numbers" % n.op)
    return e.elementwise(n, "where({0}, {1}, {2})", [condition, cast(n, a, kind), cast(n, b, kind)], ATOM, kind)


@op("where", merged=True)
def where(e, n, condition, a, b):
    return chosen(e, n, condition, a, b)


@op("masked_fill", merged=True)
def masked_fill(e, n, x, mask, value):
    return chosen(e, n, mask, value, x)


@op("to", "_to_copy", "type_as", "contiguous", "clone", "alias", "lift_fresh_copy", "_assert_tensor_metadata", "float", "identity", merged=True)
def same(e, n, x, *rest, **more):
    if not isinstance(n.out, dict) or n.out["dtype"] not in TYPES:
        raise Refused("`%s` to a type that is not known here" % n.op)
    return cast(n, x, result_type(n))
