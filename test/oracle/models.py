"""The models of the reference runs, on the tape: p maps parameter paths to nodes, `drop(site, x)` is dropout at a call site."""
import math

import numpy as np

import tape


def linear(p, path, x):
    return x @ p[path + ".weight"].t + p[path + ".bias"]


def norm(p, path, x):
    return tape.layer_norm(x, p[path + ".weight"], p[path + ".bias"])


def mlp(p, x, drop):
    h = drop("h", tape.relu(linear(p, "fc1", tape.lift(x))))
    return linear(p, "fc2", h)


def attention(p, path, x, heads, drop):
    batch, time, width = x.shape
    qkv = linear(p, path + ".qkv", x).reshape(batch, time, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = q @ k.t * (1 / math.sqrt(width // heads))
    masked = np.where(np.tril(np.ones((time, time), bool)), 0.0, -np.inf)
    shares = drop(path, tape.softmax(scores + masked))
    return linear(p, path + ".out", (shares @ v).transpose(0, 2, 1, 3).reshape(batch, time, width))


def block(p, path, x, heads, drop):
    h = x + drop(path + ".first", attention(p, path + ".attn", norm(p, path + ".ln1", x), heads, drop))
    f = linear(p, path + ".ff.down", tape.gelu(linear(p, path + ".ff.up", norm(p, path + ".ln2", h))))
    return h + drop(path + ".second", f)


def gpt(p, text, blocks, heads, drop):
    x = drop("embedding", p["wte"][text] + p["wpe"])
    for i in range(blocks):
        x = block(p, "blocks.%d" % i, x, heads, drop)
    return norm(p, "lnf", x) @ p["wte"].t
