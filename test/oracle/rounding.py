"""Arithmetic of `precision bf16` in NumPy: products bit for bit, and the forward pass of a GPT that rounds where the rules say. Its exp, tanh,
roots and sums are NumPy's: results agree but for the last bits of f32, which rounding hides from almost all."""
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
