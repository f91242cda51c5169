"""Convolutions and pools on the tape, by their definitions: one strided slice of the padded image a tap."""

import numpy as np

from tape import Node


def padded(x, pads):
    """`pads`: pairs of the last axes."""
    width = [(0, 0)] * (len(x.shape) - len(pads)) + list(pads)
    inside = tuple(slice(a, a + n) for (a, _), n in zip(width, x.shape))
    return Node(np.pad(x.value, width), [(x, lambda g: g[inside])])


def einsum(text, a, b):
    """A sum of products; every index of an operand is in the other or in the result."""
    ins, out = text.split("->")
    left, right = ins.split(",")
    return Node(
        np.einsum(text, a.value, b.value),
        [
            (a, lambda g: np.einsum("%s,%s->%s" % (out, right, left), g, b.value)),
            (b, lambda g: np.einsum("%s,%s->%s" % (out, left, right), g, a.value)),
        ],
    )


def places(size, window, stride, pad, dilate=1):
    return (size + 2 * pad - dilate * (window - 1) - 1) // stride + 1


def conv2d(x, w, stride=(1, 1), pad=(0, 0), dilate=(1, 1), groups=1):
    """x [n, C, H, W], w [O, C / groups, k, l]."""
    out, into, k, l = w.shape
    p, q = (places(x.shape[2 + i], w.shape[2 + i], stride[i], pad[i], dilate[i]) for i in (0, 1))
    z = padded(x, [(pad[0], pad[0] + stride[0]), (pad[1], pad[1] + stride[1])])
    z = z.reshape(x.shape[0], groups, into, *z.shape[2:])
    v = w.reshape(groups, out // groups, into, k, l)
    total = None
    for r in range(k):
        for s in range(l):
            a, b = r * dilate[0], s * dilate[1]
            part = z[:, :, :, a : a + p * stride[0] : stride[0], b : b + q * stride[1] : stride[1]]
            part = einsum("ngchw,goc->ngohw", part, v[:, :, :, r, s])
            total = part if total is None else total + part
    return total.reshape(x.shape[0], out, p, q)


def conv_transpose2d(x, w, stride=(1, 1), pad=(0, 0)):
    """x [n, C, H, W], w [C, O, k, l]: every element of x adds a weighted kernel to the result."""
    n, _, height, width = x.shape
    _, out, k, l = w.shape
    rows, columns = (height - 1) * stride[0] + k, (width - 1) * stride[1] + l
    total = Node(np.zeros((n, out, rows, columns)))
    for r in range(k):
        for s in range(l):
            part = einsum("nchw,co->nohw", x, w[:, :, r, s])
            at = (slice(None), slice(None), slice(r, r + height * stride[0], stride[0]), slice(s, s + width * stride[1], stride[1]))
            total = total + spread(part, total.shape, at)
    return total[:, :, pad[0] : rows - pad[0], pad[1] : columns - pad[1]]


def spread(x, shape, at):
    value = np.zeros(shape)
    value[at] = x.value
    return Node(value, [(x, lambda g: g[at])])


def pool2d(x, window, stride, pad, largest):
    """Windows of x [.., H, W]; the first of the largest, or the mean with what is padded."""
    p, q = (places(x.shape[-2 + i], window[i], stride[i], pad[i]) for i in (0, 1))
    fill = -np.inf if largest else 0.0
    width = [(0, 0)] * (len(x.shape) - 2) + [(pad[0], pad[0]), (pad[1], pad[1])]
    full = np.pad(x.value, width, constant_values=fill)
    taps = [(r, s) for r in range(window[0]) for s in range(window[1])]
    at = [(..., slice(r, r + (p - 1) * stride[0] + 1, stride[0]), slice(s, s + (q - 1) * stride[1] + 1, stride[1])) for r, s in taps]
    parts = np.stack([full[place] for place in at])
    chosen = parts.argmax(0) if largest else None
    y = parts.max(0) if largest else parts.sum(0) / len(taps)

    def slope(g):
        total = np.zeros(full.shape)
        for number, place in enumerate(at):
            total[place] += g * (chosen == number) if largest else g / len(taps)
        return total[..., pad[0] : pad[0] + x.shape[-2], pad[1] : pad[1] + x.shape[-1]]

    return Node(y, [(x, slope)])
