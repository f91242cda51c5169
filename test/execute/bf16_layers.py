#!/usr/bin/python3
"""precision bf16 of convolutions, pools, loops, reversible layers and products of parameters: ten steps against NumPy that rounds where the
rules say, bit for bit.
"""

import numpy as np

import programs  # first: it finds the folder of the oracles
from rounding import Conv, product, rounded

STEPS = 10
PRECISION = "precision bf16(master = f32, accumulate = f32)"
LR = np.float32(0.0078125)
verdicts = programs.Verdicts()
expect = verdicts.expect


def relu(x):
    return np.maximum(x, np.float32(0))


def where(x, dy):
    return np.where(x > 0, dy, np.float32(0))


def gradient_of_loss(y, v, B):
    """Of mean[B] sum (y - v) ^ 2, rounded."""
    one = np.float32(1) / np.float32(B) * (y - v)
    return rounded(one + one)


def train(name, text, data, step, steps=STEPS):
    """The program's parameters after ten steps and NumPy's are the same."""
    folder = programs.FOLDER / name
    folder.mkdir(exist_ok=True)
    for field, values in data.items():
        np.save(folder / (field + ".npy"), values)
    program = programs.source(name, text)
    exe = programs.compiled(program, name + ".exe", "--max-threads", 2)
    p = programs.run(exe, folder, 0).parameters
    end = programs.run(exe, folder, steps).parameters
    B = len(data["v"]) // 2
    for i in range(steps):
        batch = {field: values[i % 2 * B : i % 2 * B + B] for field, values in data.items()}
        gradient = step(p, batch, B)
        p = {key: value - LR * gradient[key] for key, value in p.items()}
    for key, value in p.items():
        same = np.array_equal(value.view(np.uint32), end[key].view(np.uint32))
        expect(same, "%s: %s differs by at most %g" % (name, key, np.abs(value - end[key]).max()))
    return program, folder


# ---- Convolutions ------------------------------------------------------------------------------------------------------
CONVS = """dim B = 4 batch, C = 3, K = 10
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, C, 12, 10], v: f32[B, K])
model net(x: f32[B, C, 12, 10]) -> f32[B, K] {
  use a = conv[6, 3](with_bias = false), d = conv[6, 3, 2, g = 6](with_bias = false), e = conv[40, 1](with_bias = false)
  use g = conv[8, 3, g = 4](with_bias = false), f = conv[9, 1, 2](with_bias = false)
  use s = conv[33, 3, 2, 1](with_bias = false), l = linear[K](with_bias = false)
  param w: f32[5, 33, 2, 2] ~ normal(0.1)
  param t: f32[5, 7, 2, 2] ~ normal(0.3)
  h = max_pool2d(relu(a(x)), 2, stride = 2)
  i = relu(f(relu(g(relu(e(relu(d(h))))))))
  j = conv2d(relu(s(i)), w, stride = 1, pad = 2, dilate = 2)
  u = conv_transpose2d(j, t, stride = 2)
  return l(reshape[B, 7 * 6 * 6](u))
}
train net on train seed 5 {
  loss = mean[B] sum[K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
""" % PRECISION


def last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def step_convs(p, batch, B):
    x = last(rounded(batch["x"]))
    layers = [("a", Conv(1, 1)), ("d", Conv(2, 1, groups=6)), ("e", Conv()), ("g", Conv(1, 1, groups=4)), ("f", Conv(2)), ("s", Conv(2, 1))]
    filters = {name: p[name + ".weight"].transpose(2, 3, 1, 0) for name, _ in layers}
    inputs, results, h = {}, {}, x
    for name, conv in layers:
        inputs[name] = h
        results[name] = rounded(conv.output(h, filters[name]))
        h = relu(results[name])
        if name == "a":
            windows = h.reshape(B, 6, 2, 5, 2, 6).transpose(0, 1, 3, 5, 2, 4).reshape(B, 6, 5, 6, 4)
            place, h = windows.argmax(-1), windows.max(-1)
    dilated, transposed = Conv(1, 2, 2), Conv(2, 0)
    w, t = p["w"].transpose(2, 3, 1, 0), p["t"].transpose(2, 3, 1, 0)  # t: from 7 (the image's) to 5
    j = rounded(dilated.output(h, w))
    size = tuple((n - 1) * 2 + 2 for n in j.shape[1:3])
    u = rounded(transposed.image(j, t, size))
    flat = first(u).reshape(B, -1)
    y = rounded(product(flat, p["l.weight"].T))
    dy = gradient_of_loss(y, batch["v"], B)
    gradient = {"l.weight": product(dy.T, flat, range(B))}
    du = last(rounded(product(dy, p["l.weight"])).reshape(B, 7, *size))
    gradient["t"] = transposed.filter(du, j, (2, 2)).transpose(3, 2, 0, 1)
    dj = rounded(transposed.output(du, t))
    gradient["w"] = dilated.filter(h, dj, (2, 2)).transpose(3, 2, 0, 1)
    dh = rounded(dilated.image(dj, w, h.shape[1:3]))
    for name, conv in reversed(layers):
        if name == "a":
            spread = (np.arange(4) == place[..., None]) * dh[..., None]
            dh = spread.reshape(B, 6, 5, 6, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(B, 12, 10, 6).astype(np.float32)
        dz = where(results[name], dh)
        taps = filters[name].shape[:2]
        gradient[name + ".weight"] = conv.filter(inputs[name], dz, taps).transpose(3, 2, 0, 1)
        if name != "a":
            dh = rounded(conv.image(dz, filters[name], inputs[name].shape[1:3]))
    return gradient


# Chains longer than a block of k is: of 800 channels, which whole blocks of 32 fill, and of 801.
WIDE = """dim B = 2 batch, K = 3
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, 3, 3, 4], v: f32[B, K])
model net(x: f32[B, 3, 3, 4]) -> f32[B, K] {
  use a = conv[800, 1](with_bias = false), b = conv[20, 3](with_bias = false), c = conv[801, 3](with_bias = false)
  use d = conv[K, 3](with_bias = false), e = conv[K, 4, 1, 0](with_bias = false)
  return reshape[B, K](e(pad(d(relu(c(relu(b(relu(a(x))))))), before = 1, after = 0, axis = 2)))
}
train net on train seed 5 {
  loss = mean[B] sum[K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
""" % PRECISION


def step_wide(p, batch, B):
    convs = {"a": Conv(), "b": Conv(1, 1), "c": Conv(1, 1), "d": Conv(1, 1), "e": Conv()}
    filters = {name: p[name + ".weight"].transpose(2, 3, 1, 0) for name in convs}
    inputs, results, h = {}, {}, last(rounded(batch["x"]))
    for name, conv in convs.items():
        if name == "e":
            h = np.pad(results["d"], ((0, 0), (1, 0), (0, 0), (0, 0)))
        inputs[name], results[name] = h, rounded(conv.output(h, filters[name]))
        h = relu(results[name])
    dz, gradient = gradient_of_loss(results["e"].reshape(B, -1), batch["v"], B).reshape(B, 1, 1, -1), {}
    for name in reversed(convs):
        gradient[name + ".weight"] = convs[name].filter(inputs[name], dz, filters[name].shape[:2]).transpose(3, 2, 0, 1)
        dh = rounded(convs[name].image(dz, filters[name], inputs[name].shape[1:3]))
        before = chr(ord(name) - 1)
        dz = dh[:, 1:] if name == "e" else where(results[before], dh) if before in results else None
    return gradient


# ---- A product of parameters alone -------------------------------------------------------------------------------------
PARAMETERS = """dim B = 4 batch, D = 37, K = 5
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, D], v: f32[B, K])
model net(x: f32[B, D]) -> f32[B, K] {
  param p: f32[D, 40] ~ normal(0.2)
  param q: f32[40, K] ~ normal(0.2)
  return x @ (p @ q)
}
train net on train seed 5 {
  loss = mean[B] sum[K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
""" % PRECISION


def step_parameters(p, batch, B):
    """The result of their product is rounded, and what it contributes; its operands' gradients are not."""
    x, m = rounded(batch["x"]), rounded(product(p["p"], p["q"]))
    dy = gradient_of_loss(rounded(product(x, m)), batch["v"], B)
    dm = rounded(product(x.T, dy, range(B)))
    return {"p": product(dm, p["q"].T), "q": product(p["p"].T, dm)}


# ---- A loop ------------------------------------------------------------------------------------------------------------
LOOP = """dim B = 4 batch, T = %d, I = 3, H = %d, K = 5
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, T, I], v: f32[B, T, K])
layer cell(h: f32[B, H], x: f32[B, H]) -> f32[B, H] {
  use hidden = linear[H](with_bias = false)
  return relu(x + hidden(h))
}
model net(x: f32[B, T, I]) -> f32[B, T, K] {
  use a = linear[H](with_bias = false), c = cell, l = linear[K](with_bias = false)
  h = scan[T] c(0, a(x))
  return l(h)
}
train net on train seed 5 {
  loss = mean[B] sum[T, K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
"""


def step_loop(p, batch, B):
    x = rounded(batch["x"])
    T, H = x.shape[1], len(p["a.weight"])
    rows, starts = (lambda z: z.reshape(B * T, -1)), range(0, B * T, T)
    inputs = rounded(product(rows(x), p["a.weight"].T)).reshape(B, T, H)
    hidden = p["c.hidden.weight"]
    h, sums, before, states = np.zeros((B, H), np.float32), [], [], []
    for t in range(T):
        before.append(rounded(h))
        sums.append(inputs[:, t] + rounded(product(h, hidden.T)))
        h = relu(sums[-1])
        states.append(rounded(h))
    before, states = np.stack(before, 1), np.stack(states, 1)
    y = rounded(product(rows(states), p["l.weight"].T)).reshape(B, T, -1)
    dy = gradient_of_loss(y, batch["v"], B)
    dstates = rounded(product(rows(dy), p["l.weight"])).reshape(B, T, H)
    dh, dinputs = np.zeros((B, H), np.float32), np.zeros((B, T, H), np.float32)
    for t in reversed(range(T)):
        dz = where(sums[t], dstates[:, t] + dh)
        dinputs[:, t] = rounded(dz)
        dh = rounded(product(rounded(dz), hidden))
    return {
        "a.weight": product(rows(dinputs).T, rows(x), starts),
        "c.hidden.weight": product(rows(dinputs).T, rows(before), starts),
        "l.weight": product(rows(dy).T, rows(states), starts),
    }


# ---- Reversible layers -------------------------------------------------------------------------------------------------
STREAMS = """dim B = 4 batch, D = 37, K = 5
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, D], v: f32[B, K])
layer mix(x: f32[B, D]) -> f32[B, D] {
  use l = linear[D](with_bias = false)
  return relu(l(x))
}
reversible layer block(x1: f32[B, D], x2: f32[B, D]) -> (f32[B, D], f32[B, D]) {
  use f = mix, g = mix
  y1 = x1 + f(x2)
  return y1, x2 + g(y1)
}
model net(x: f32[B, D]) -> f32[B, K] {
  use a = linear[D](with_bias = false), blocks = repeat 3 block, l = linear[K](with_bias = false)
  h = a(x)
  c, d = blocks(h, h)
  m = c + d
  return l(m)
}
train net on train seed 5 {
  loss = mean[B] sum[K] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
""" % PRECISION


def step_streams(p, batch, B):
    x = rounded(batch["x"])
    blocks = sorted({key.rsplit(".f.", 1)[0] for key in p if ".f." in key})
    times = lambda a, w: rounded(product(a, p[w].T))
    one = two = h = times(x, "a.weight")
    for block in blocks:
        one = one + relu(times(two, block + ".f.l.weight"))
        two = two + relu(times(one, block + ".g.l.weight"))
    m = rounded(one + two)
    y = times(m, "l.weight")
    dy = gradient_of_loss(y, batch["v"], B)
    gradient = {"l.weight": product(dy.T, m, range(B))}
    done = dtwo = rounded(product(dy, p["l.weight"]))
    for block in reversed(blocks):
        for w in (block + ".g.l.weight", block + ".f.l.weight"):
            # `two` went on by what `one` gave; then they change places.
            u = times(one, w)
            two = two - relu(u)
            du = where(u, rounded(dtwo))
            gradient[w] = product(du.T, rounded(one), range(B))
            done = done + rounded(product(du, p[w]))
            one, two, done, dtwo = two, one, dtwo, done
    dh = rounded(done + dtwo)
    gradient["a.weight"] = product(dh.T, x, range(B))
    return gradient


# ---- What stands around a tensor is rounded with it --------------------------------------------------------------------
PADDED = """dim B = 4 batch, I = 8, H = 16, C = 4
data train = npy("x.npy", "v.npy", shuffle = false) -> (x: f32[B, I], v: f32[B, C])
model net(x: f32[B, I]) -> f32[B, C] {
  use a = linear[H](with_bias = false), b = linear[C](with_bias = false)
  h = relu(a(x))
  %s
}
train net on train seed 5 {
  loss = mean[B] sum[C] (net(x) - v) ^ 2
  optimizer sgd(lr = 0.0078125)
  %s
  steps 10
}
"""


def step_padded(p, batch, B):
    x = rounded(batch["x"])
    h = relu(rounded(product(x, p["a.weight"].T)))
    padded = rounded(np.pad(h, ((0, 0), (1, 1)), constant_values=np.float32(0.1)))
    dy = gradient_of_loss(rounded(product(padded, p["b.weight"].T)), batch["v"], B)
    dh = where(h, rounded(product(dy, p["b.weight"]))[:, 1:-1])
    return {"a.weight": product(dh.T, x, range(B)), "b.weight": product(dy.T, padded, range(B))}


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def main():
    rng = np.random.default_rng(8)
    train("convs", CONVS, {"x": random(rng, 8, 3, 12, 10), "v": random(rng, 8, 10)}, step_convs)
    train("wide", WIDE, {"x": random(rng, 4, 3, 3, 4), "v": random(rng, 4, 3)}, step_wide, 3)
    train("parameters", PARAMETERS, {"x": random(rng, 8, 37), "v": random(rng, 8, 5)}, step_parameters)
    for T, H in ((1, 7), (9, 40), (37, 17)):
        data = {"x": random(rng, 8, T, 3), "v": random(rng, 8, T, 5)}
        train("loop%d" % T, LOOP % (T, H, PRECISION), data, step_loop)
    for number, body in enumerate(("p = pad(h, before = 1, after = 1, axis = 1, value = 0.1)\n  return b(p)", "return b(pad(h, before = 1, after = 1, axis = 1, value = 0.1))")):
        train("padded%d" % number, PADDED % (body, PRECISION), {"x": random(rng, 8, 8), "v": random(rng, 8, 4)}, step_padded)
    train("streams", STREAMS, {"x": random(rng, 8, 37), "v": random(rng, 8, 5)}, step_streams)


verdicts.run(main)
