"""A tape of NumPy arrays: each operation notes how a gradient of its result becomes gradients of its operands.

Written for reading, not for speed; everything is float64. Nothing here is taken from the compiler.
"""

import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


class Node:
    def __init__(self, value, parents=()):
        self.value = np.asarray(value, np.float64)
        self.parents = parents  # pairs (node, gradient of this -> gradient of that)
        self.grad = None

    @property
    def shape(self):
        return self.value.shape

    def __add__(self, other):
        other = lift(other)
        return Node(
            self.value + other.value, [(self, lambda g: fit(g, self.shape)), (other, lambda g: fit(g, other.shape))]
        )

    def __mul__(self, other):
        other = lift(other)
        return Node(
            self.value * other.value,
            [(self, lambda g: fit(g * other.value, self.shape)), (other, lambda g: fit(g * self.value, other.shape))],
        )

    def __sub__(self, other):
        return self + lift(other) * -1.0

    def __truediv__(self, other):
        other = lift(other)
        return Node(
            self.value / other.value,
            [
                (self, lambda g: fit(g / other.value, self.shape)),
                (other, lambda g: fit(-g * self.value / other.value**2, other.shape)),
            ],
        )

    def __matmul__(self, other):
        def left(g):
            return fit(g @ np.swapaxes(other.value, -1, -2), self.shape)

        def right(g):
            return fit(np.swapaxes(self.value, -1, -2) @ g, other.shape)

        return Node(self.value @ other.value, [(self, left), (other, right)])

    @property
    def t(self):
        return Node(np.swapaxes(self.value, -1, -2), [(self, lambda g: np.swapaxes(g, -1, -2))])

    def reshape(self, *shape):
        return Node(self.value.reshape(shape), [(self, lambda g: g.reshape(self.shape))])

    def transpose(self, *axes):
        return Node(self.value.transpose(axes), [(self, lambda g: g.transpose(np.argsort(axes)))])

    def __getitem__(self, index):
        def scatter(g):
            result = np.zeros(self.shape)
            np.add.at(result, index, g)
            return result

        return Node(self.value[index], [(self, scatter)])

    def sum(self, axis=None, keepdims=False):
        def spread(g):
            if axis is not None and not keepdims:
                g = np.expand_dims(g, axis)
            return np.broadcast_to(g, self.shape).copy()

        return Node(self.value.sum(axis=axis, keepdims=keepdims), [(self, spread)])

    def mean(self, axis=None, keepdims=False):
        result = self.sum(axis, keepdims)
        return result * (result.value.size / self.value.size)

    def apply(self, value, slope):
        """An element-wise function that is `value` here, with derivative `slope`."""
        return Node(value, [(self, lambda g: g * slope)])


def lift(value):
    return value if isinstance(value, Node) else Node(value)


def fit(gradient, shape):
    """Sums over the axes that broadcasting added or stretched."""
    extra = gradient.ndim - len(shape)
    gradient = gradient.sum(axis=tuple(range(extra))) if extra else gradient
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=stretched, keepdims=True) if stretched else gradient


def relu(x):
    return x.apply(np.maximum(x.value, 0), (x.value > 0) * 1.0)


def sqrt(x):
    root = np.sqrt(x.value)
    return x.apply(root, 0.5 / root)


def gelu(x):
    cdf = 0.5 * (1 + erf(x.value / math.sqrt(2)))
    density = np.exp(-0.5 * x.value**2) / math.sqrt(2 * math.pi)
    return x.apply(x.value * cdf, cdf + x.value * density)


def softmax(x):
    e = np.exp(x.value - x.value.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return Node(p, [(x, lambda g: p * (g - (g * p).sum(axis=-1, keepdims=True)))])


def cross_entropy(logits, labels):
    shifted = logits.value - logits.value.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    picked = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]

    def slope(g):
        p = np.exp(log_p)
        np.put_along_axis(p, labels[..., None], np.take_along_axis(p, labels[..., None], axis=-1) - 1, axis=-1)
        return p * g[..., None]

    return Node(-picked, [(logits, slope)])


def layer_norm(x, weight, bias, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / sqrt(variance + eps) * weight + bias


def backward(loss):
    order, seen = [], set()

    def visit(node):
        stack = [(node, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((parent, False) for parent, _ in node.parents)

    visit(loss)
    loss.grad = np.ones(loss.shape)
    for node in reversed(order):
        if node.grad is None:
            continue
        for parent, rule in node.parents:
            g = rule(node.grad)
            parent.grad = g if parent.grad is None else parent.grad + g
