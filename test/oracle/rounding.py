"""Arithmetic of `precision bf16` in NumPy: products and convolutions bit for bit, and forward and backward pass of a GPT that rounds where
the rules say. Its exp, tanh, roots and sums are NumPy's: results agree but for the last bits of f32, which rounding hides from almost
all."""
import math

import numpy as np


def rounded(x):
    """To bf16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(np.float32)


def fma(a, b, c):
    """Products of bf16 are exact in f64, and their sums with an f32 close enough that rounding twice is rounding once."""
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)


def product(a, b, starts=()):
    """a [.., M, K] @ b [.., K, N] in blocks of 32, which start anew at each place of `starts` too."""
    a, b = rounded(a), rounded(b)
    total = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), np.float32)
    places = sorted({0, a.shape[-1], *starts})
    for begin, end in zip(places, places[1:]):
        for first in range(begin, end, 32):
            even, odd = np.zeros_like(total), np.zeros_like(total)
            for k in range(first, min(first + 32, end)):
                step = fma(a[..., :, k, None], b[..., None, k, :], odd if (k - first) % 2 else even)
                if (k - first) % 2:
                    odd = step
                else:
                    even = step
            total = total + (even + odd)
    return total


# ---- Convolutions: images [B, H, W, C], filters [R, S, C / groups, O] ------------------------------------------------------
def chain(a, b):
    """a [M, K] by b [K, N]: one chain of FMAs an element."""
    a, b = rounded(a), rounded(b)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = fma(a[:, k, None], b[None, k, :], total)
    return total


class Conv:
    """A convolution of bf16 and its two gradients; each sums (row of taps, tap, channel) or (example, place) as products do."""

    def __init__(self, stride=1, pad=0, dilate=1, groups=1):
        self.stride, self.pad, self.dilate, self.groups = stride, pad, dilate, groups

    def patches(self, x, R, S, P, Q):
        """[B, P, Q, R, S, C], zeros outside of the image."""
        B, H, W, C = x.shape
        padded = np.zeros((B, H + 2 * self.pad, W + 2 * self.pad, C), np.float32)
        padded[:, self.pad : self.pad + H, self.pad : self.pad + W] = x
        rows = np.arange(P)[:, None] * self.stride + np.arange(R) * self.dilate
        columns = np.arange(Q)[:, None] * self.stride + np.arange(S) * self.dilate
        return padded[:, rows[:, None, :, None], columns[None, :, None, :]]

    def sums(self, a, b, taps, row, apart):
        """a [M, taps x channels] by b; blocks begin anew at each tap if they lie apart, else at each row of them."""
        each = a.shape[1] // taps * (1 if apart else row)
        return product(a, b, range(0, a.shape[1], each))

    def by_groups(self, one, *axes_of, **arguments):
        parts = []
        for g in range(self.groups):
            parts.append(one(*(np.split(x, self.groups, axis=-1)[g] for x in axes_of), **arguments))
        return np.concatenate(parts, axis=-1)

    def output(self, x, w):
        R, S = w.shape[:2]
        P, Q = ((size + 2 * self.pad - self.dilate * (taps - 1) - 1) // self.stride + 1 for size, taps in zip(x.shape[1:3], (R, S)))
        depthwise, apart = self.groups > 1 and w.shape[2] == 1, self.groups > 1 or self.dilate > 1

        def one(x, w):
            a = self.patches(x, R, S, P, Q).reshape(-1, R * S * w.shape[2])
            b = w.reshape(-1, w.shape[3])
            y = chain(a, b) if depthwise else self.sums(a, b, R * S, S, apart)
            return y.reshape(x.shape[0], P, Q, -1)

        return self.by_groups(one, x, w)

    def filter(self, x, dy, taps):
        depthwise = self.groups > 1 and x.shape[3] == self.groups

        def one(x, dy):
            B, P, Q, _ = dy.shape
            a = self.patches(x, *taps, P, Q).reshape(B * P * Q, -1).T
            b = dy.reshape(B * P * Q, -1)
            w = chain(a, b) if depthwise else product(a, b, range(0, B * P * Q, P * Q))
            return w.reshape(*taps, x.shape[3], -1)

        return self.by_groups(one, x, dy)

    def image(self, dy, w, size):
        """A tap that an element does not meet adds +0.0, which changes nothing."""
        R, S = w.shape[:2]
        depthwise = self.groups > 1 and w.shape[2] == 1
        apart = self.groups > 1 or self.dilate > 1 or self.stride > 1

        def one(dy, w):
            B, P, Q, O = dy.shape
            met = np.zeros((B, *size, R, S, O), np.float32)
            for p, q, r, s in np.ndindex(P, Q, R, S):
                h, v = p * self.stride + r * self.dilate - self.pad, q * self.stride + s * self.dilate - self.pad
                if 0 <= h < size[0] and 0 <= v < size[1]:
                    met[:, h, v, r, s] = dy[:, p, q]
            a, b = met.reshape(-1, R * S * O), w.transpose(0, 1, 3, 2).reshape(R * S * O, -1)
            dx = chain(a, b) if depthwise else self.sums(a, b, R * S, S, apart)
            return dx.reshape(B, *size, -1)

        return self.by_groups(one, dy, w)


# ---- A GPT -----------------------------------------------------------------------------------------------------------------
def layer_norm(x, p, name):
    centred = x - x.mean(-1, keepdims=True, dtype=np.float32)
    variance = (centred * centred).mean(-1, keepdims=True, dtype=np.float32)
    return centred / np.sqrt(variance + np.float32(1e-5)) * p[name + ".weight"] + p[name + ".bias"]


def gelu(x):
    wide = x.astype(np.float64)
    return (0.5 * wide * (1 + np.vectorize(math.erf)(wide / np.sqrt(2)))).astype(np.float32)


def linear(x, p, name):
    return rounded(product(x, p[name + ".weight"].T)) + p[name + ".bias"]


def attention(x, p, name, heads):
    """Of [B, T, D], causal. Shares are rounded before they are divided by their sum, which sums them as they were."""
    B, T, D = x.shape
    q, k, v = rounded(linear(x, p, name + ".qkv")).reshape(B, T, 3, heads, D // heads).transpose(2, 0, 3, 1, 4)
    scores = product(q, k.swapaxes(-1, -2)) * np.float32(1 / np.sqrt(D // heads))
    scores = np.where(np.tril(np.ones((T, T), bool)), scores, np.float32(-np.inf))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    o = rounded(product(shares, v) / shares.sum(-1, keepdims=True, dtype=np.float32))
    return linear(o.transpose(0, 2, 1, 3).reshape(B, T, D), p, name + ".out")


def block(x, p, name, heads):
    middle = x + attention(layer_norm(x, p, name + ".ln1"), p, name + ".attn", heads)
    up = gelu(linear(layer_norm(middle, p, name + ".ln2"), p, name + ".ff.up"))
    return middle + linear(up, p, name + ".ff.down")


def gpt(t, p, blocks, heads):
    """`wte[t] + wpe`, blocks, a layer norm and the tied embedding; the text of the program calls each of them."""
    x = rounded(rounded(p["e"][t]) + p["q"])
    for name in blocks:
        x = rounded(block(x, p, name, heads))
    x = rounded(layer_norm(x, p, "n"))
    return rounded(product(x, p["e"].T))


# ---- And its gradients -----------------------------------------------------------------------------------------------------
def starts_of(x):
    """Blocks of a sum over (example, position) begin anew at each example."""
    return range(0, x.shape[0] * x.shape[1], x.shape[1])


def rows_of(x):
    return x.reshape(-1, x.shape[-1])


def layer_norm_gradient(dy, x, p, name, to):
    """What x contributes, in f32."""
    centred = x - x.mean(-1, keepdims=True, dtype=np.float32)
    root = np.sqrt((centred * centred).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-5))
    normal, scaled = centred / root, dy * p[name + ".weight"]
    to[name + ".weight"], to[name + ".bias"] = rows_of(dy * normal).sum(0), rows_of(dy).sum(0)
    inner = scaled - scaled.mean(-1, keepdims=True) - normal * (scaled * normal).mean(-1, keepdims=True)
    return inner / root


def gelu_gradient(x):
    wide = x.astype(np.float64)
    return (0.5 * (1 + np.vectorize(math.erf)(wide / np.sqrt(2))) + wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)).astype(np.float32)


def linear_gradient(dy, x, p, name, to):
    """The bias is added behind the rounding of the product: its gradient sums what is not rounded. What x contributes is rounded."""
    dz = rounded(dy)
    to[name + ".bias"] = rows_of(dy).sum(0)
    to[name + ".weight"] = product(rows_of(dz).T, rows_of(x), starts_of(x))
    return rounded(product(dz, p[name + ".weight"]))


def attention_gradient(dy, x, p, name, heads, to):
    B, T, D = x.shape
    apart = lambda z: z.reshape(B, T, heads, D // heads).swapaxes(1, 2)
    together = lambda z: z.swapaxes(1, 2).reshape(B, T, D)
    q, k, v = rounded(linear(x, p, name + ".qkv")).reshape(B, T, 3, heads, D // heads).transpose(2, 0, 3, 1, 4)
    scale = np.float32(1 / np.sqrt(D // heads))
    scores = np.where(np.tril(np.ones((T, T), bool)), product(q, k.swapaxes(-1, -2)) * scale, np.float32(-np.inf))
    top = scores.max(-1, keepdims=True)
    total = np.exp(scores - top).sum(-1, keepdims=True, dtype=np.float32)
    o = product(np.exp(scores - top), v) / total
    dout = apart(linear_gradient(dy, rounded(together(o)), p, name + ".out", to))
    shares = np.exp(scores - (top + np.log(total)))
    slopes = shares * (product(dout, v.swapaxes(-1, -2)) - (dout * o).sum(-1, keepdims=True, dtype=np.float32)) * scale
    dq, dk = product(slopes, k), product(slopes.swapaxes(-1, -2), q)
    dv = product(shares.swapaxes(-1, -2), dout)
    together_qkv = np.stack([together(rounded(part)) for part in (dq, dk, dv)], 2).reshape(B, T, 3 * D)
    return linear_gradient(together_qkv, x, p, name + ".qkv", to)


def block_gradient(dy, x, p, name, heads, to):
    normal1 = layer_norm(x, p, name + ".ln1")
    middle = x + attention(normal1, p, name + ".attn", heads)
    normal2 = layer_norm(middle, p, name + ".ln2")
    up = linear(normal2, p, name + ".ff.up")
    dup = linear_gradient(dy, gelu(up), p, name + ".ff.down", to) * gelu_gradient(up)
    dmiddle = dy + layer_norm_gradient(linear_gradient(dup, normal2, p, name + ".ff.up", to), middle, p, name + ".ln2", to)
    dnormal1 = attention_gradient(dmiddle, normal1, p, name + ".attn", heads, to)
    return rounded(dmiddle) + rounded(layer_norm_gradient(dnormal1, x, p, name + ".ln1", to))


def gpt_gradients(t, y, p, blocks, heads):
    """Of the mean cross-entropy between `gpt` and y. Rounded are the contributions to every value that is."""
    to, first = {}, rounded(rounded(p["e"][t]) + p["q"])
    inputs = [first]
    for name in blocks:
        inputs.append(rounded(block(inputs[-1], p, name, heads)))
    last = rounded(layer_norm(inputs[-1], p, "n"))
    logits = rounded(product(last, p["e"].T))
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True, dtype=np.float32)
    dz = rounded((shares - np.eye(len(p["e"]), dtype=np.float32)[y]) * np.float32(1 / y.size))
    to["e"] = product(rows_of(dz).T, rows_of(last), starts_of(dz))
    dx = rounded(layer_norm_gradient(rounded(product(dz, p["e"])), inputs[-1], p, "n", to))
    for name, x in zip(reversed(blocks), reversed(inputs[:-1])):
        dx = rounded(block_gradient(dx, x, p, name, heads, to))
    to["q"] = dx.sum(0, dtype=np.float32)
    gathered = np.zeros_like(p["e"])
    np.add.at(gathered, t.reshape(-1), rows_of(dx))
    to["e"] = gathered + to["e"]
    return to
