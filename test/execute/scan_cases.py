"""Loops along an axis as programs, and what most of them compute in NumPy: rnn, lstm, gru, cells of every kind, loops in loops, one layer run several
times."""

import numpy as np

PROGRAM = """dim B = 6 batch, T = 8, I = 3, H = 4, S = 2, V = 7, ONE = 1
data train = npy("x.npy", "k.npy", "m.npy", "w.npy", shuffle = false)
  -> (x: f32[B, T, I], k: i32[B, T] below V, m: f32[B, S, H], w: f32[B, T, H])
%(layers)s
model net(x: f32[B, T, I], k: i32[B, T] below V, m: f32[B, S, H]) -> %(result)s {
%(model)s
}
train net on train seed 3 {
  h = net(x, k, m)
  loss = %(over)s[B] %(loss)s
  metric again = %(over)s[B] %(loss)s
  optimizer sgd(lr = 1)
  steps 2
}
"""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def rnn(p, name, x):
    u, h, out = linear(p, name + ".inputs", x), 0, []
    for t in range(x.shape[1]):
        h = np.tanh(u[:, t] + linear(p, name + ".cell.hidden", h + np.zeros((x.shape[0], 4))))
        out.append(h)
    return np.stack(out, 1)


def lstm(p, name, x):
    u, n = linear(p, name + ".inputs", x), 4
    h = c = np.zeros((x.shape[0], n))
    out = []
    for t in range(x.shape[1]):
        g = u[:, t] + linear(p, name + ".cell.hidden", h)
        i, f, a, o = sigmoid(g[:, :n]), sigmoid(g[:, n : 2 * n]), np.tanh(g[:, 2 * n : 3 * n]), sigmoid(g[:, 3 * n :])
        c = f * c + i * a
        h = o * np.tanh(c)
        out.append(h)
    return np.stack(out, 1)


def gru(p, name, x):
    u, n = linear(p, name + ".inputs", x), 4
    h, out = np.zeros((x.shape[0], n)), []
    for t in range(x.shape[1]):
        v = linear(p, name + ".cell.hidden", h)
        r, z = sigmoid(u[:, t, :n] + v[:, :n]), sigmoid(u[:, t, n : 2 * n] + v[:, n : 2 * n])
        a = np.tanh(u[:, t, 2 * n :] + r * v[:, 2 * n :])
        h = (1 - z) * a + z * h
        out.append(h)
    return np.stack(out, 1)


def own_weights(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        h = np.tanh((x[:, t] @ p["c.a"] + h @ p["c.b"]) * p["c.g"])
        out.append(h)
    return np.stack(out, 1)


def two_slices(p, x, k, m):
    h, s, out = m[:, 0], m[:, 1], []
    for t in range(8):
        h = np.tanh(h * p["c.g"] + p["e"][k[:, t]] + p["q"][t])
        s = s + h * (x[:, t] ** 2).sum(-1, keepdims=True)
        out.append(s)
    return np.stack(out, 1)


def lookup(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        h = np.tanh(h @ p["c.b"] + p["c.e"][k[:, t]])
        out.append(h)
    return np.stack(out, 1)


def memory(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    mem = m @ p["v"]
    for t in range(8):
        score = np.einsum("bh,bsh->bs", h, mem)
        e = np.exp(score - score.max(-1, keepdims=True))
        a = e / e.sum(-1, keepdims=True)
        h = np.tanh(np.einsum("bs,bsh->bh", a, mem) + x[:, t] @ p["c.a"] + h * 0.5)
        out.append(h)
    return np.stack(out, 1)


def attention(p, x, k, m):
    """Two query heads of two numbers on one key head, with a bias and a mask, then three positions that see the ones before them."""
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        q = (linear(p, "c.n", h) + x[:, t] @ p["c.a"]).reshape(-1, 2, 1, 2)
        o = attended(q, m[:, None, :, :2], m[:, None, :, 2:], p["c.c"], (k[:, t] < 3)[:, None, None, None] | (np.arange(2) == 1))
        z = np.stack([h[:, :2], x[:, t, :2], h[:, 2:]], 1)[:, None]
        r = attended(z, z, z, p["d"][t], np.tril(np.ones((3, 3), bool)))
        h = np.tanh(o.reshape(-1, 4) + r[:, 0, 1:].reshape(-1, 4) + h * 0.5)
        out.append(h)
    return np.stack(out, 1)


def attended(q, k, v, bias, seen):
    score = np.where(seen, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + bias, -np.inf)
    e = np.exp(score - score.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def nested(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        s = h
        for j in range(2):
            s = np.tanh(s * p["c.d.g"] + m[:, j] + (x[:, t] @ p["c.a"]))
        h = s + 0.25 * h
        out.append(h)
    return np.stack(out, 1)


def shared(p, x, k, m):
    h = x[:, 0] @ p["a"]
    for _ in range(4):
        h = h + np.tanh(linear(p, "b.l", h)) * m[:, 1]
    return h


def of_parameters(p, x, k, m):
    s, out = p["s"], []
    for t in range(8):
        s = np.tanh(s * p["c.g"] + p["q"][t])
        out.append(s)
    return (x @ p["a"]) * np.stack(out, 0)


def normed(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        z = x[:, t] @ p["c.a"] + h
        c = z - z.mean(-1, keepdims=True)
        h = np.tanh(c / np.sqrt((c**2).mean(-1, keepdims=True) + 1e-5) * p["c.n.weight"] + p["c.n.bias"])
        out.append(h)
    return np.stack(out, 1)


def backwards(p, x, k, m):
    return lstm(p, "r", x) + lstm(p, "s", x[:, ::-1])[:, ::-1]


def largest(p, x, k, m):
    n, h, out = np.zeros(len(x), int), np.zeros((len(x), 4)), []
    for t in range(8):
        h = np.tanh(h * 0.5 + p["c.e"][n])
        n = np.maximum(k[:, t], n)
        out.append(h)
    return np.stack(out, 1)


def by_step(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        q = p["q"][t]
        h = np.tanh(h @ p["w"][t] + x[:, t] @ p["a"] + 2 * np.tanh(q) + np.concatenate([q[:2], q[2:] ** 2]) + p["e"][t][k[:, t]])
        out.append(h)
    return np.stack(out, 1)


def last_axis(p, x, k, m):
    h, out = m[:, 0].T * 0.5, []
    for t in range(8):
        h = np.tanh(p["c.b"] @ h + (x[:, t] @ p["a"]).T)
        out.append(h.T)
    return np.stack(out, 1)


def windows(p, x, k, m):
    """A cell with a convolution of its own, one by a filter of the step, a grouped one and a pool."""
    s, out = m, []
    for t in range(8):
        z = correlated(s, p["c.w"], 1) + correlated(s, p["f"][t], 1) * (x[:, t].sum(-1))[:, None, None] + correlated(s, p["c.v"], 2, 2)
        pooled = np.maximum.reduce([np.pad(z, ((0, 0), (0, 0), (1, 1)), constant_values=-np.inf)[:, :, i : i + 4] for i in range(3)])
        s = np.tanh(s * 0.5 + pooled)
        out.append(s.sum(1))
    return np.stack(out, 1)


def correlated(x, w, pad, groups=1):
    """conv1d of x [n, C, L]."""
    full, length = np.pad(x, ((0, 0), (0, 0), (pad, pad))), x.shape[2] + 2 * pad - w.shape[2] + 1
    each, made = x.shape[1] // groups, w.shape[0] // groups
    return np.concatenate(
        [
            sum(
                np.einsum("ncl,oc->nol", full[:, g * each : (g + 1) * each, i : i + length], w[g * made : (g + 1) * made, :, i])
                for i in range(w.shape[2])
            )
            for g in range(groups)
        ],
        1,
    )


def both(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        h = np.tanh(h + x[:, t] @ p["c.a"] + ((p["q"][t] + p["c.g"]) @ p["c.b"]).sum(0))
        out.append(h)
    return np.stack(out, 1)


def made_of_parameters(p, x, k, m):
    return (x @ p["a"]) * np.tanh(p["q"] + p["c.g"])


def three_ways(p, x, k, m):
    h, out = np.zeros((len(x), 4)), []
    for t in range(8):
        u, v = x[:, t] @ p["a"], x[:, t] @ p["e"]
        h = np.tanh(0.5 * h + (u + v + m[:, 0] * p["g"]) @ p["c.b"] + v**2)
        out.append(h)
    return np.stack(out, 1)


def filters(p, x, k, m):
    s, out = m, []
    for t in range(8):
        z = s + x[:, t].sum(-1)[:, None, None]
        for j in range(3):
            z = np.tanh(correlated(z, p["f"][j], 1))
        s = np.tanh(0.5 * s + z)
        out.append(s.sum(1))
    return np.stack(out, 1)


def factors(p, x, k, m):
    s, r, out = m[:, 0], m[:, 1], []
    for t in range(8):
        q = x[:, t] @ p["a"]
        s, r = np.tanh(s @ p["c.v"] + q * np.sin(r @ p["c.w"])), np.tanh(r @ p["c.w"])
        out.append(s * r + q * s)
    return np.stack(out, 0)


CELL = "layer cell(h: f32[B, H], x: f32[B, I]) -> f32[B, H] {\n  param a: f32[I, H] ~ normal(0.5)\n"
# name -> (layers, model, the same in NumPy, result type, loss)
CASES = {
    "rnn": ("", "  use r = rnn[H]\n  return r(x)", lambda p, x, k, m: rnn(p, "r", x)),
    "lstm": ("", "  use r = lstm[H]\n  return r(x)", lambda p, x, k, m: lstm(p, "r", x)),
    "gru": ("", "  use r = gru[H]\n  return r(x)", lambda p, x, k, m: gru(p, "r", x)),
    "two layers": (
        "",
        "  param e: f32[V, I] ~ normal(0.5)\n  use r = lstm[H], s = gru[H]\n  return s(r(x + e[k]))",
        lambda p, x, k, m: gru(p, "s", lstm(p, "r", x + p["e"][k])),
    ),
    "both ways": (
        "",
        "  use r = lstm[H], s = lstm[H]\n  return r(x) + reverse(s(reverse(x, axis = 1)), axis = 1)",
        backwards,
    ),
    "product in the cell": (
        CELL + "  param b: f32[H, H] ~ normal(0.5)\n  param g: f32[H] ~ uniform(2)\n  return tanh((x @ a + h @ b) * g)\n}",
        "  use c = cell\n  return scan[T] c(0, x)",
        own_weights,
    ),
    "two states, three slices": (
        "layer cell(h: f32[B, H], s: f32[B, H], e: f32[B, H], q: f32[H], x: f32[B, I]) -> (f32[B, H], f32[B, H]) {\n"
        "  param g: f32[H] ~ normal(1)\n  n = tanh(h * g + e + q)\n  z[b] = sum[i] x[b, i] ^ 2\n"
        "  y[b, j] = s[b, j] + n[b, j] * z[b]\n  return n, y\n}",
        "  param e: f32[V, H] ~ normal(0.5)\n  param q: f32[T, H] ~ normal(0.5)\n  use c = cell\n"
        "  _, s = scan[T] c(m[:, 0], m[:, 1], e[k], q, x)\n  return s",
        two_slices,
    ),
    "look-up in the cell": (
        "layer cell(h: f32[B, H], k: i32[B] below V) -> f32[B, H] {\n  param b: f32[H, H] ~ normal(0.5)\n"
        "  param e: f32[V, H] ~ normal(0.5)\n  return tanh(h @ b + e[k])\n}",
        "  use c = cell\n  return scan[T] c(0, k)",
        lookup,
    ),
    "attention to a memory": (
        "layer cell(h: f32[B, H], x: f32[B, I], mem: f32[B, S, H]) -> f32[B, H] {\n  param a: f32[I, H] ~ normal(0.5)\n"
        "  score[b, s] = sum[h1] h[b, h1] * mem[b, s, h1]\n  p = softmax(score)\n"
        "  r[b, h1] = sum[s] p[b, s] * mem[b, s, h1]\n  return tanh(r + x @ a + h * 0.5)\n}",
        "  param v: f32[H, H] ~ normal(0.7)\n  use c = cell\n  return scan[T] c(0, x, m @ v)",
        memory,
    ),
    "`attend` with a bias in the cell": (
        "layer cell(h: f32[B, H], x: f32[B, I], k: i32[B] below V, d: f32[1, 3, 3], mem: f32[B, S, H]) -> f32[B, H] {\n"
        "  param a: f32[I, H] ~ normal(0.5)\n  param c: f32[2, 1, S] ~ normal(0.5)\n  use n = linear[H]\n"
        "  q = reshape[B, 2, 1, 2](n(h) + x @ a)\n  r = range[S]\n  keys[b, s] = k[b] < 3 or r[s] == 1\n"
        "  o = attend(q, reshape[B, 1, S, 2](mem[:, :, 0:2]), reshape[B, 1, S, 2](mem[:, :, 2:4]), keys, bias = c)\n"
        "  z = reshape[B, 1, 3, 2](concat(h[:, 0:2], x[:, 0:2], h[:, 2:4], axis = 1))\n"
        "  p = attend(z, z, z, bias = d, causal = true)\n"
        "  return tanh(reshape[B, H](o) + reshape[B, H](p[:, :, 1:3]) + h * 0.5)\n}",
        "  param d: f32[T, 1, 3, 3] ~ normal(0.5)\n  use c = cell\n  return scan[T] c(0, x, k, d, m)",
        attention,
    ),
    "a loop in a loop": (
        "layer inner(s: f32[B, H], m: f32[B, H], z: f32[B, H]) -> f32[B, H] {\n  param g: f32[H] ~ normal(1)\n"
        "  return tanh(s * g + m + z)\n}\n"
        "layer cell(h: f32[B, H], x: f32[B, I], m: f32[B, S, H]) -> f32[B, H] {\n  param a: f32[I, H] ~ normal(0.5)\n"
        "  use d = inner\n  s = scan[S] d(h, m, x @ a)\n  return s[:, S - 1] + 0.25 * h\n}",
        "  use c = cell\n  return scan[T] c(0, x, m)",
        nested,
    ),
    "one layer four times": (
        "layer step(h: f32[B, H], m: f32[B, H]) -> f32[B, H] {\n  use l = linear[H]\n  return h + tanh(l(h)) * m\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  use b = repeat 4 shared step\n  return b(x[:, 0] @ a, m[:, 1])",
        shared,
    ),
    "a function of parameters alone": (
        "layer cell(s: f32[H], q: f32[H]) -> f32[H] {\n  param g: f32[H] ~ normal(1)\n  return tanh(s * g + q)\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  param s: f32[H] ~ normal(1)\n  param q: f32[T, H] ~ normal(0.5)\n  use c = cell\n"
        "  return (x @ a) * scan[T] c(s, q)",
        of_parameters,
    ),
    "a norm in the cell": (
        CELL + "  use n = layer_norm\n  return tanh(n(x @ a + h))\n}",
        "  use c = cell\n  return scan[T] c(0, x)",
        normed,
    ),
    "work on slices of parameters": (
        "layer cell(h: f32[B, H], x: f32[B, H], q: f32[H], w: f32[H, H], e: f32[V, H], k: i32[B] below V) -> f32[B, H] {\n"
        "  return tanh(h @ w + x + 2 * tanh(q) + concat(q[0:2], q[2:4] ^ 2, axis = 0) + e[k])\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  param q: f32[T, H] ~ normal(0.5)\n  param w: f32[T, H, H] ~ normal(0.5)\n"
        "  param e: f32[T, V, H] ~ normal(0.5)\n  use c = cell\n  return scan[T] c(0, x @ a, q, w, e, k)",
        by_step,
    ),
    "an integer is carried": (
        "layer cell(n: i32[B] below V, h: f32[B, H], k: i32[B] below V) -> (i32[B] below V, f32[B, H]) {\n"
        "  param e: f32[V, H] ~ normal(0.5)\n  return where(k > n, k, n), tanh(h * 0.5 + e[n])\n}",
        "  use c = cell\n  _, h = scan[T] c(0, 0, k)\n  return h",
        largest,
    ),
    "convolutions and a pool in the cell": (
        "layer cell(s: f32[B, S, H], x: f32[B, I], f: f32[S, S, 3]) -> f32[B, S, H] {\n  param w: f32[S, S, 3] ~ normal(0.5)\n"
        "  param v: f32[S, 1, 5] ~ normal(0.3)\n  n = sum[I] x\n  q = conv1d(s, f, pad = 1)\n  p[b, c, l] = q[b, c, l] * n[b]\n"
        "  z = conv1d(s, w, pad = 1) + p + conv1d(s, v, pad = 2, groups = 2)\n"
        "  return tanh(0.5 * s + max_pool1d(z, 3, stride = 1, pad = 1))\n}",
        "  param f: f32[T, S, S, 3] ~ normal(0.2)\n  use c = cell\n  y = scan[T] c(m, x, f)\n  return sum[S] y",
        windows,
    ),
    "examples last": (
        "layer cell(h: f32[H, B], x: f32[H, B]) -> f32[H, B] {\n  param b: f32[H, H] ~ normal(0.5)\n  return tanh(b @ h + x)\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  use c = cell\n  y[h, t, b] = sum[i] x[b, t, i] * a[i, h]\n"
        "  s[h, b] = m[b, 0, h] * 0.5\n  z = scan[T] c(s, y)\n  r[b, t, h] = z[h, t, b]\n  return r",
        last_axis,
    ),
    "a product of a slice and of what is the same in every step": (
        "layer cell(h: f32[B, H], x: f32[B, I], q: f32[S, H]) -> f32[B, H] {\n  param a: f32[I, H] ~ normal(0.5)\n"
        "  param b: f32[H, H] ~ normal(0.5)\n  param g: f32[S, H] ~ normal(0.5)\n  y = (q + g) @ b\n"
        "  return tanh(h + x @ a + sum[S] y)\n}",
        "  param q: f32[T, S, H] ~ normal(0.5)\n  use c = cell\n  return scan[T] c(0, x, q)",
        both,
    ),
    "the same of examples": (
        "layer cell(h: f32[B, H], u: f32[B, H], v: f32[B, H], n: f32[B, H]) -> f32[B, H] {\n  param b: f32[H, H] ~ normal(0.5)\n"
        "  return tanh(0.5 * h + (u + v + n) @ b + v ^ 2)\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  param e: f32[I, H] ~ normal(0.5)\n  param g: f32[H] ~ normal(0.5)\n  use c = cell\n"
        "  return scan[T] c(0, x @ a, x @ e, m[:, 0] * g)",
        three_ways,
    ),
    "filters for the steps of a loop in a loop": (
        "layer inner(s: f32[B, S, H], f: f32[S, S, 3]) -> f32[B, S, H] {\n  return tanh(conv1d(s, f, pad = 1))\n}\n"
        "layer cell(s: f32[B, S, H], x: f32[B, I], f: f32[I, S, S, 3]) -> f32[B, S, H] {\n  n = sum[I] x\n"
        "  z[b, c, l] = s[b, c, l] + n[b]\n  r = scan[I] inner(z, f)\n  return tanh(0.5 * s + r[2])\n}",
        "  param f: f32[I, S, S, 3] ~ normal(0.4)\n  y = scan[T] cell(m, x, f)\n  return sum[S] y",
        filters,
    ),
    "examples are made in the trip": (
        "layer cell(h: f32[B, H], q: f32[H]) -> f32[B, H] {\n  param g: f32[H] ~ normal(1)\n  return tanh(expand[B, H](q + g))\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  param q: f32[T, H] ~ normal(0.5)\n  use c = cell\n  s = scan[T] c(0, q)\n"
        "  r[b, t, h] = s[t, b, h]\n  return (x @ a) * r",
        made_of_parameters,
    ),
    "results that are gradients": (
        "layer cell(s: f32[B, H], r: f32[B, H], q: f32[B, H]) -> (f32[B, H], f32[B, H]) {\n  param v: f32[H, H] ~ normal(0.5)\n"
        "  param w: f32[H, H] ~ normal(0.5)\n  return tanh(s @ v + q * sin(r @ w)), tanh(r @ w)\n}",
        "  param a: f32[I, H] ~ normal(0.5)\n  use c = cell\n  q[t, b, h] = sum[i] x[b, t, i] * a[i, h]\n"
        "  s, r = scan[T] c(m[:, 0], m[:, 1], q)\n  return s * r + q * s",
        factors,
    ),
}
SUMMED = ("results that are gradients",)  # the loss is the sum of all: the gradient of a factor is the other one as it is


# Only bits are compared: what is drawn is none of NumPy's business here.
DRAWS = {
    "dropout in the cell": (
        CELL + "  return dropout(tanh(x @ a + h), 0.4)\n}",
        "  use c = cell\n  return dropout(scan[T] c(0, x), 0.2)",
        None,
    ),
    "masks, blocks, one trip, draws without examples": (
        "layer masked(h: f32[B, H], seen: bool[B], x: f32[B, H], on: bool[B]) -> (f32[B, H], bool[B]) {\n"
        "  use g = gru_cell[H], q = linear[3 * H]\n  n = g(h, q(x))\n  y[b, j] = where(on[b], n[b, j], h[b, j])\n"
        "  return y, on or seen\n}\n"
        "layer one(h: f32[B, H], x: f32[B, H]) -> f32[B, H] {\n  use l = linear[H]\n  return h + tanh(l(x))\n}\n"
        "layer block(x: f32[B, T, H]) -> f32[B, T, H] {\n  use r = gru[H], n = layer_norm\n  return n(x + r(x))\n}\n"
        "layer wave(s: f32[H], z: f32[H]) -> f32[H] {\n  param a: f32[H] ~ normal(1)\n  return s * a + dropout(z, 0.5)\n}",
        "  use c = masked, o = one, bs = repeat 3 block, w = wave, sh = repeat 5 shared one\n"
        "  param a: f32[I, H] ~ normal(1)\n  param z: f32[T, H] ~ normal(1)\n  v = x @ a\n  on[b, t] = k[b, t] > 1\n"
        "  h, seen = scan[T] c(0, false, v, on)\n  first = scan[ONE] o(0, h[:, 0:ONE])\n  u = scan[T] w(1, z)\n"
        "  q = sh(h[:, 0], h[:, 1])\n"
        "  g[b, t, j] = h[b, t, j] * u[t, j] + first[b, 0, j] * f32(seen[b, t]) + q[b, j]\n"
        "  return bs(g) + dropout(h, 0.1)",
        None,
    ),
    "`attend` with dropout in the cell, a transformer block three times": (
        CELL.replace("x: f32[B, I])", "x: f32[B, I], m: f32[B, S, H])")
        + "  q = reshape[B, 2, 1, 2](h + x @ a)\n  r = reshape[B, 2, S, 2](m)\n"
        "  return tanh(reshape[B, H](attend(q, r, r, dropout = 0.4)) + h)\n}\n"
        "layer block(x: f32[B, T, H]) -> f32[B, T, H] {\n  use b = transformer_block[2, 5](causal = true, rate = 0.3)\n  return b(x)\n}",
        "  use c = cell, b = repeat 3 shared block\n  return b(scan[T] c(0, x, m))",
        None,
    ),
    "draws in a loop in a loop": (
        "layer inner(s: f32[B, H], m: f32[B, H]) -> f32[B, H] {\n  return tanh(s + dropout(m, 0.5))\n}\n"
        + CELL.replace("x: f32[B, I])", "x: f32[B, I], m: f32[B, S, H])")
        + "  use d = inner\n  s = scan[S] d(h, m)\n  return dropout(s[:, S - 1], 0.3) + x @ a\n}",
        "  use c = cell\n  return scan[T] c(0, x, m)",
        None,
    ),
}


def program_of(name):
    layers, model, _ = {**CASES, **DRAWS}[name]
    final, summed = name == "one layer four times", name in SUMMED
    return PROGRAM % {
        "layers": layers,
        "model": model,
        "result": "f32[B, H]" if final else "f32[T, B, H]" if summed else "f32[B, T, H]",
        "over": "sum" if summed else "mean",
        "loss": "sum[H] h * w[:, 0]" if final else "sum[T, H] h" if summed else "sum[T, H] (h + h ^ 2) * w",
    }


def loss_of(name, p, data):
    x, k, m, w = data
    h = CASES[name][2](p, x, k, m)
    if name == "one layer four times":
        return (h * w[:, 0]).sum() / 6
    if name in SUMMED:
        return h.sum()
    return ((h + h**2) * w).sum() / 6
