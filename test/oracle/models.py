"""The models of the reference runs, on the tape: p maps parameter paths to nodes, `drop(chain, x)` is dropout
drawn at that chain of calls. In `train` the model is call 1, inside of cross_entropy; in the prelude's dropout
random_bool is call 1, inside of where.
"""

import math

import numpy as np

import tape


def linear(p, path, x):
    return x @ p[path + ".weight"].t + p[path + ".bias"]


def norm(p, path, x):
    return tape.layer_norm(x, p[path + ".weight"], p[path + ".bias"])


def mlp(p, x, drop):
    h = drop((1, 0, 1), tape.relu(linear(p, "fc1", tape.lift(x))))
    return linear(p, "fc2", h)


def attention(p, path, chain, x, heads, drop):
    batch, time, width = x.shape
    qkv = linear(p, path + ".qkv", x).reshape(batch, time, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = q @ k.t * (1 / math.sqrt(width // heads))
    masked = np.where(np.tril(np.ones((time, time), bool)), 0.0, -np.inf)
    shares = drop(chain + (2,), tape.softmax(scores + masked))
    return linear(p, path + ".out", (shares @ v).transpose(0, 2, 1, 3).reshape(batch, time, width))


def block(p, path, chain, x, heads, drop):
    h = x + drop(chain + (0, 1), attention(p, path + ".attn", chain + (1,), norm(p, path + ".ln1", x), heads, drop))
    f = linear(p, path + ".ff.down", tape.gelu(linear(p, path + ".ff.up", norm(p, path + ".ln2", h))))
    return h + drop(chain + (3, 1), f)


def gpt(p, text, blocks, heads, drop):
    x = drop((1, 0, 1), p["wte"][text] + p["wpe"])
    for i in range(blocks):
        x = block(p, "blocks.%d" % i, (1, 1, i), x, heads, drop)
    return norm(p, "lnf", x) @ p["wte"].t
