#!/usr/bin/python3
"""Examples of a group that see one another: `group_all`, `group_place`. Losses and metrics are compared with NumPy in f64 (an evaluation
leaves out what fills no group), gradients with central differences of the NumPy loss; every micro-batch of whole groups, strategy, number of
threads, stages and replicas, and the smallest budget, must leave the same bits. What stands in no product and no sum of its own is there too:
several groups in one program, vectors, integers, moved axes, draws; bf16, a GPU's program, what a loop made, a library. And no row is repeated: a large group costs no memory.
"""

import json
import re
import sys

import numpy as np

import programs
import standin

PROGRAM = """dim B = 12 batch, I = 5, D = 3, T = 2, G = %d, E = 3
data train = npy("x.npy", "z.npy", "y.npy", shuffle = false) -> (x: f32[B, I], z: f32[B, I], y: i32[B] below 4)
model two(x: f32[B, I], z: f32[B, I]) -> (f32[B, D], f32[B, D]) {
  use p = linear[D], q = linear[D]
  return tanh(p(x)), q(z)
}
train two on train seed 3 {
  u, v = two(x, z)
%s
  optimizer sgd(lr = 1)
  steps 2
}
"""


def rows(x, g):
    """f[n, ..] as f[n, g, ..]: for every example all of its group."""
    groups = x.reshape((len(x) // g, g) + x.shape[1:])
    return np.repeat(groups[:, None], g, 1).reshape((len(x), g) + x.shape[1:])


def place(x, g):
    return np.arange(len(x)) % g


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(s, y):
    top = s.max(-1, keepdims=True)
    return np.log(np.exp(s - top).sum(-1)) + top[..., 0] - np.take_along_axis(s, y[..., None], -1)[..., 0]


def scores(u, v, g):
    return np.einsum("bd,bjd->bj", u, rows(v, g))


def triplet(u, v, y, g):
    far = ((u[:, None] - rows(v, g)) ** 2).sum(-1)
    other = np.where(rows(y, g) == y[:, None], 9, far)
    return np.maximum(0.3 + far[np.arange(len(u)), place(u, g)] - other.min(-1), 0).mean()


def attended(u, v, g):
    return ((np.einsum("bj,bjd->bd", softmax(scores(u, v, g)), rows(v, g)) - u) ** 2).mean()


def clip(u, v, g):
    at = place(u, g)
    return (cross_entropy(scores(u, v, g) / 0.5, at).mean() + cross_entropy(scores(v, u, g) / 0.5, at).mean()) / 2


def several(u, v):
    s, t = scores(u, v, 2), scores(u, v, 3)
    return (cross_entropy(s, place(u, 2)) * cross_entropy(t, place(u, 3))).mean() + (s[:, :, None] * rows(t, 2)).mean()


def alike(u, v, y, g):
    same = (rows(y, g) == y[:, None]) & (np.arange(g) != place(u, g)[:, None])
    logp = np.log(softmax(scores(u, v, g)))
    return -((logp * same).sum(1) / np.maximum(same.sum(1), 1)).mean()


def moved(u, v, g):
    w = np.stack([v, np.sin(v)], 1)  # [B, T, D]
    m = np.einsum("btd,bjsd->btsj", w, rows(w, g))
    return (m**2).mean() + (np.tanh(w)[:, None] * rows(w, g)).mean()


def of_groups(u, v, g):
    k = rows(rows(v, g), g)
    m = np.einsum("bd,bijd->bij", u, k)
    return (m**2 * rows(place(u, g), g)[:, None]).mean() + (u[:, None, None] * np.sin(k)).mean()


def in_others(u, v):
    w = rows(np.tanh(rows(v, 3)), 2)
    return np.einsum("bd,bijd->bij", u, w).mean() + (u[:, None, None] * w).mean()


SCORES = "  r = group_all(v, group = G)\n  s[b, j] = sum[d] u[b, d] * r[b, j, d]\n"
# name -> (group, text, the same in NumPy of u, v, y; None: it draws)
LOSSES = {
    "scores": (4, SCORES + "  loss = mean[B] cross_entropy(s, group_place(group = G))", lambda u, v, y: cross_entropy(scores(u, v, 4), place(u, 4)).mean()),
    "both ways": (
        6,
        SCORES + "  k = group_all(u, group = G)\n  t[b, j] = sum[d] v[b, d] * k[b, j, d]\n  at = group_place(group = G)\n"
        "  loss = (mean[B] cross_entropy(s / 0.5, at) + mean[B] cross_entropy(t / 0.5, at)) / 2",
        lambda u, v, y: clip(u, v, 6),
    ),
    "one product sign": (
        3,
        "  r = group_all(v, group = 3)\n  s = reshape[B, 3](reshape[B, 1, D](u) @ r')\n  loss = mean[B] cross_entropy(s, group_place(3))",
        lambda u, v, y: cross_entropy(scores(u, v, 3), place(u, 3)).mean(),
    ),
    "attention over the group": (
        4, SCORES + "  p = softmax(s)\n  o[b, d] = sum[j] p[b, j] * r[b, j, d]\n  loss = mean[B, D] (o - u) ^ 2", lambda u, v, y: attended(u, v, 4)),
    "triplet": (
        6,
        "  r = group_all(v, group = G)\n  d[b, j, e] = u[b, e] - r[b, j, e]\n  far = sum[D] d ^ 2\n  l = group_all(y, group = G)\n"
        "  other[b, j] = where(l[b, j] == y[b], 9, far[b, j])\n  at = group_place(group = G)\n  own[b] = far[b, at[b]]\n"
        "  loss = mean[B] max(0.3 + own - min[G] other, 0)",
        lambda u, v, y: triplet(u, v, y, 6),
    ),
    "of one label": (
        4,
        SCORES + "  l = group_all(y, group = G)\n  number = range[G]\n  at = group_place(group = G)\n"
        "  same[b, i] = l[b, i] == y[b] and not (number[i] == at[b])\n  n = sum[G] same\n  p = log_softmax(s)\n"
        "  loss = mean[B] (-(sum[G where same] p) / max(n, 1))",
        lambda u, v, y: alike(u, v, y, 4),
    ),
    "several groups": (
        2,
        SCORES + "  c = group_all(v, group = E)\n  t[b, j] = sum[d] u[b, d] * c[b, j, d]\n"
        "  a = cross_entropy(s, group_place(group = 2))\n  e = cross_entropy(t, group_place(group = E))\n"
        "  w = group_all(t, group = 2)\n  m[b, i, j] = s[b, i] * w[b, i, j]\n  loss = mean[B] (a * e) + mean[B, E, G] m",
        lambda u, v, y: several(u, v),
    ),
    "groups of groups": (
        4,
        "  k = group_all(group_all(v, group = G), group = G)\n  at = group_all(group_place(group = G), group = G)\n"
        "  m[b, i, j] = sum[d] u[b, d] * k[b, i, j, d]\n  f[b, i, j, d] = u[b, d] * sin(k[b, i, j, d])\n"
        "  loss = (mean[b, i, j] (m[b, i, j] ^ 2 * f32(at[b, j]))) + mean[b, i, j, d] f[b, i, j, d]",
        lambda u, v, y: of_groups(u, v, 4),
    ),
    "groups in other groups": (
        2,
        "  w = group_all(tanh(group_all(v, group = E)), group = 2)\n  m[b, i, j] = sum[d] u[b, d] * w[b, i, j, d]\n"
        "  f[b, i, j, d] = u[b, d] * w[b, i, j, d]\n  loss = (mean[b, i, j] m[b, i, j]) + mean[b, i, j, d] f[b, i, j, d]",
        lambda u, v, y: in_others(u, v),
    ),
    "vectors": (
        4,
        "  n = sum[D] v\n  r = group_all(n, group = G)\n  d[b, j] = n[b] * sin(r[b, j])\n  loss = mean[B, G] d",
        lambda u, v, y: (v.sum(-1)[:, None] * np.sin(rows(v.sum(-1), 4))).mean(),
    ),
    "moved axes": (
        3,
        "  k = sin(v)\n  w = reshape[B, T, D](concat(v, k, axis = 1))\n  h[t, b, d] = w[b, t, d]\n  r = group_all(h, group = G)\n"
        "  m[b, t, s, j] = sum[d] h[t, b, d] * r[s, b, j, d]\n  f[t, b, j, d] = tanh(h[t, b, d]) * r[t, b, j, d]\n"
        "  a = reshape[B, T, T * G](m ^ 2)\n  c = mean[T, D] f\n  n = mean[T] a\n  loss = mean[b, i] n[b, i] + mean[B, G] c",
        lambda u, v, y: moved(u, v, 3),
    ),
    "a parameter between": (
        4,
        '  r = group_all(v, group = G)\n  c = weight("q.bias")\n  d[b, j, e] = tanh(r[b, j, e] * c[e] + u[b, e])\n  loss = mean[B, G, D] d ^ 2',
        lambda u, v, y, c: (np.tanh(rows(v, 4) * c + u[:, None]) ** 2).mean(),
    ),
    "a group of one": (1, SCORES + "  loss = mean[B] (sum[G] s ^ 2)", lambda u, v, y: ((u * v).sum(-1) ** 2).mean()),
    "all examples": (
        12, SCORES.replace("group = G", "group = B") + "  loss = mean[B] cross_entropy(s, group_place(group = B))",
        lambda u, v, y: cross_entropy(scores(u, v, 12), place(u, 12)).mean()),
    "draws": (
        3,
        "  r = dropout(group_all(v, group = G), 0.4)\n  k = group_all(dropout(u, 0.3), group = G)\n  d[b, j, e] = r[b, j, e] * k[b, j, e] + u[b, e]\n"
        "  f = dropout(d, 0.2)\n  loss = mean[B, G, D] f ^ 2",
        None,
    ),
}
verdicts = programs.Verdicts()


def make_data():
    rng = np.random.default_rng(7)
    folder = programs.FOLDER / "data"
    folder.mkdir()
    x, z = rng.normal(size=(2, 29, 5)).astype(np.float32)
    y = rng.integers(0, 4, 29).astype(np.int32)
    for name, values in (("x", x), ("z", z), ("y", y)):
        np.save(folder / (name + ".npy"), values)
    return folder, x, z, y


def reference(loss, of, x, z, y):
    u = np.tanh(x.astype(np.float64) @ of["p.weight"].T + of["p.bias"])
    v = z.astype(np.float64) @ of["q.weight"].T + of["q.bias"]
    return loss(u, v, y, of["q.bias"]) if loss.__code__.co_argcount == 4 else loss(u, v, y)


def difference(loss, parameters, path, at, batch):
    sides = []
    for step in (1e-5, -1e-5):
        near = {name: value.copy() for name, value in parameters.items()}
        near[path][at] += step
        sides.append(reference(loss, near, *batch))
    return (sides[0] - sides[1]) / 2e-5


def together(name):
    group = LOSSES[name][0]
    return 6 if name in ("several groups", "groups in other groups") else group


def in_f64(name, data):
    folder, x, z, y = data
    group, text, loss = LOSSES[name]
    if loss is None:
        return
    program = programs.source("f64-" + name.replace(" ", "-"), PROGRAM % (group, text))
    exe = programs.compiled(program, program.stem, "--set", "train.precision=f64", "--microbatch", str(together(name)))
    start, result = programs.run(exe, folder, 0).parameters, programs.run(exe, folder, 1)
    batch = x[:12], z[:12], y[:12]
    expected = reference(loss, start, *batch)
    verdicts.expect(abs(result.losses[0] - expected) <= 1e-11 * max(1, abs(expected)),
                    "%s: the loss is %r, NumPy says %r" % (name, result.losses[0], expected))
    for path, value in start.items():
        gradient = np.array([difference(loss, start, path, at, batch) for at in np.ndindex(value.shape)]).reshape(value.shape)
        error = np.abs(value - result.parameters[path] - gradient).max()
        verdicts.expect(error <= 1e-7 * max(1e-2, np.abs(gradient).max()), "%s: gradient of %s is off by %.3g" % (name, path, error))
    # 29 examples: those behind the last whole group are left out.
    whole = 29 // together(name) * together(name)
    expected = reference(loss, result.parameters, x[:whole], z[:whole], y[:whole])
    done = programs.call([exe, "eval", "--data", folder, "--out", result.out])
    printed = json.loads(done.stdout.strip().splitlines()[-1])
    verdicts.expect(printed["examples"] == whole and abs(printed["loss"] - expected) <= 1e-9 * max(1, abs(expected)),
                    "%s: eval says %s, NumPy %r of %d" % (name, printed, expected, whole))
    verdicts.expect(("left out" in done.stdout) == (whole < 29), "%s: %s" % (name, done.stdout))


def same_bits(name, data):
    program = programs.source("bits-" + name.replace(" ", "-"), PROGRAM % LOSSES[name][:2])
    unit, first = together(name), None
    settings = [
        ["--microbatch", "12", "--remat", "none"],
        ["--microbatch", str(unit), "--remat", "all"],
        ["--microbatch", str(unit), "--order-seed", "3", "--cpu", "haswell"],
        ["--microbatch", str(unit), "--stages", "2"],
    ] + ([["--microbatch", str(unit), "--replicas", "2"]] if 6 % unit == 0 else [])
    for number, flags in enumerate(settings):
        label = "%s under %s" % (name, " ".join(flags))
        exe = programs.compiled(program, program.stem + str(number), "--max-threads", "3", *flags, allowed=(0, 1))
        if not isinstance(exe, programs.pathlib.Path):
            verdicts.expect("--stages" in flags and "too few" in exe.stdout, "%s: %s" % (label, exe.stdout[-500:]))
            continue
        result = programs.run(exe, data[0], 2, "--threads", str(1 + number % 3))
        first = first or result
        verdicts.expect(result.bytes == first.bytes and result.losses == first.losses, label + ": other bits")
    refusal = programs.compiled(program, "refused", "--memory-budget", "1KiB", allowed=(1,))
    least = int(re.search(r"smallest budget that compiles: (\d+) bytes", refusal.stdout).group(1))
    result = programs.run(programs.compiled(program, program.stem + "-least", "--memory-budget", str(least)), data[0], 2)
    verdicts.expect(result.bytes == first.bytes and result.peak <= least, "%s at the smallest budget: other bits, or a peak of %d" % (name, result.peak))


WIDE = """dim B = 256 batch, I = 8, D = 256
data train = npy("x.npy", "z.npy") -> (x: f32[B, I], z: f32[B, I])
model two(x: f32[B, I], z: f32[B, I]) -> (f32[B, D], f32[B, D]) { use p = linear[D], q = linear[D]; return p(x), q(z) }
train two on train seed 3 {
  u, v = two(x, z)
  r = group_all(v, group = 256)
%s
  optimizer sgd(lr = 0.1)
  steps 2
}
"""
READERS = {
    "a product": "  s[b, j] = sum[d] u[b, d] * r[b, j, d]\n  loss = mean[B] cross_entropy(s, group_place(group = 256))",
    "distances": "  d[b, j, e] = abs(u[b, e] - r[b, j, e])\n  s = sum[D] d\n  loss = mean[B] cross_entropy(-s, group_place(group = 256))",
}


def no_copies():
    """256 examples of 256 numbers are 256 KiB; their rows repeated would be 64 MiB."""
    for name, text in READERS.items():
        done = programs.call([programs.CINCH, "plan", programs.source("wide", WIDE % text), "--json"])
        arena = json.loads(done.stdout)["arena"]
        verdicts.expect(arena < 8 << 20, "%s of 256 examples in one group: an arena of %d bytes" % (name, arena))


def refused(data):
    good = PROGRAM % (4, SCORES + "  loss = mean[B] (sum[G] s ^ 2)")
    wrong = {
        "E0505.*divides the batch, B = 12, but this is": good.replace("G = 4", "G = 5"),
        "E0505.*what is predicted of an example may depend on it alone": good.replace("  loss", "  predict r = s\n  loss"),
        "E0202.*`group_all` takes a tensor with the batch axis": good.replace("  loss", '  n = group_all(weight("q.bias"), group = 2)\n  loss').replace("sum[G] s", "sum[G] s * n[0, 0]"),
        "`grain` must be a multiple of the group, but 6 is none of 4": good.replace("steps 2", "grain 6; steps 2"),
    }
    for message, text in wrong.items():
        done = programs.call([programs.CINCH, "check", programs.source("wrong", text)], allowed=(1,))
        verdicts.expect(re.search(message, done.stdout), "wanted %s, got %s" % (message, done.stdout))
    done = programs.call([programs.CINCH, "plan", programs.source("good", good), "--microbatch", "6"], allowed=(1,))
    verdicts.expect("multiple of 4" in done.stdout, done.stdout)
    few = programs.FOLDER / "few"
    few.mkdir()
    for name, values in zip("xzy", data[1:]):
        np.save(few / (name + ".npy"), values[:3])
    exe = programs.compiled(programs.source("good", good), "good")
    out = programs.run(exe, data[0], 1).out
    done = programs.call([exe, "eval", "--data", few, "--out", out], allowed=(3,))
    verdicts.expect("has 3 examples, but eval compares groups of 4" in done.stdout, done.stdout)


# ---- With what else there is -----------------------------------------------------------------------------------------------
def narrow(name, data):
    """In bf16, the same bits under plans; the losses are those of f32 to bf16's digits."""
    group, text, _ = LOSSES[name]
    program = programs.source("bf16-" + name.replace(" ", "-"), PROGRAM % (group, text))
    wide = programs.run(programs.compiled(program, program.stem + "-wide"), data[0], 1)
    unit, first = together(name), None
    for number, flags in enumerate([["--microbatch", "12", "--remat", "none"], ["--microbatch", str(unit), "--remat", "all"],
                                    ["--microbatch", str(unit), "--cpu", "haswell", "--order-seed", "5"]]):
        exe = programs.compiled(program, program.stem + str(number), "--set", "precision=bf16", "--max-threads", "3", *flags)
        result = programs.run(exe, data[0], 2, "--threads", str(1 + number))
        first = first or result
        verdicts.expect(result.bytes == first.bytes and result.losses == first.losses, "%s in bf16 under %s: other bits" % (name, " ".join(flags)))
    far = abs(first.losses[0] - wide.losses[0])
    verdicts.expect(0 < far <= 0.03 * max(abs(wide.losses[0]), 0.1), "%s in bf16: a loss of %r, in f32 %r" % (name, first.losses[0], wide.losses[0]))


def on_device(name, data):
    """As a program for a GPU, executed on the CPU: the bits of the CPU's kernels."""
    group, text, _ = LOSSES[name]
    program = programs.source("nvidia-" + name.replace(" ", "-"), PROGRAM % (group, text))
    cpu = programs.run(programs.compiled(program, program.stem + "-cpu"), data[0], 2)
    out = programs.FOLDER / (program.stem + "-out")
    built = standin.Program(program, program.stem, "--max-threads", "2", "--microbatch", str(together(name)))
    built.run("--data", data[0], "--out", out, "--steps", "2", "--quiet", seed=3)
    verdicts.expect((out / "final.safetensors").read_bytes() == cpu.bytes, name + " for a GPU: other bits than the CPU's")


LOOP = """dim B = 12 batch, I = 5, T = 5, D = 3, G = 4
data train = npy("x.npy", "z.npy", "y.npy", shuffle = false) -> (x: f32[B, I], z: f32[B, I], y: i32[B] below 4)
layer cell(h: f32[B, D], x: f32[B]) -> f32[B, D] {
  use own = linear[D](with_bias = false)
  param w: f32[D] ~ normal(0.5)
  t[b, d] = x[b] * w[d]
  return tanh(own(h) + t)
}
model two(x: f32[B, I], z: f32[B, I]) -> (f32[B, I, D], f32[B, D]) {
  use c = cell, q = linear[D]
  h[b, d, t] = (scan[I] c(0, x))[b, t, d]
  return h', q(z)
}
train two on train seed 3 {
  u, v = two(x, z)
  r = group_all(v, group = G)
  k = group_all(u, group = G)
  s[b, j, t] = sum[d] u[b, t, d] * r[b, j, d]
  m[b, j, t] = sum[d] k[b, j, t, d] * v[b, d]
  loss = mean[b, j, t] s[b, j, t] ^ 2 + mean[b, j, t] tanh(m[b, j, t])
  optimizer sgd(lr = 1)
  steps 2
}
"""


def loop_loss(x, z, of):
    h, states = np.zeros((len(x), 3)), []
    for t in range(5):
        h = np.tanh(h @ of["c.own.weight"].T + x[:, t, None] * of["c.w"])
        states.append(h)
    u, v = np.stack(states, 1), z @ of["q.weight"].T + of["q.bias"]
    s = np.einsum("btd,bjd->bjt", u, rows(v, 4))
    m = np.einsum("bjtd,bd->bjt", rows(u, 4), v)
    return (s**2).mean() + np.tanh(m).mean()


def behind_a_loop(data):
    """Groups of what a loop along an axis has made: NumPy, central differences, bits."""
    program = programs.source("loop", LOOP)
    exe = programs.compiled(program, "loop-f64", "--set", "precision=f64", "--microbatch", "4")
    start, result = programs.run(exe, data[0], 0).parameters, programs.run(exe, data[0], 1)
    x, z = data[1][:12].astype(np.float64), data[2][:12].astype(np.float64)
    expected = loop_loss(x, z, start)
    verdicts.expect(abs(result.losses[0] - expected) <= 1e-11 * max(1, abs(expected)), "a loop: the loss is %r, NumPy says %r" % (result.losses[0], expected))
    for path, value in start.items():
        for at in np.ndindex(value.shape):
            sides = []
            for step in (1e-5, -1e-5):
                near = {name: each.copy() for name, each in start.items()}
                near[path][at] += step
                sides.append(loop_loss(x, z, near))
            wanted = (sides[0] - sides[1]) / 2e-5
            verdicts.expect(abs(value[at] - result.parameters[path][at] - wanted) <= 1e-7, "a loop: gradient of %s %s" % (path, at))
    first = None
    for number, flags in enumerate([["--microbatch", "12", "--remat", "none"], ["--microbatch", "4", "--remat", "all"],
                                    ["--microbatch", "4", "--cpu", "haswell"], ["--microbatch", "4", "--replicas", "3"]]):
        found = programs.run(programs.compiled(program, "loop%d" % number, "--max-threads", "3", *flags), data[0], 2, "--threads", str(1 + number % 3))
        first = first or found
        verdicts.expect(found.bytes == first.bytes, "a loop under %s: other bits" % " ".join(flags))


def in_a_library(data):
    """`--emit=lib` of a program with groups: step and evaluate as the executable does; examples behind the last whole group are left out."""
    text = PROGRAM % (4, LOSSES["scores"][1])
    folder = programs.FOLDER / "library"
    folder.mkdir()
    (folder / "two.cinch").write_text(text)
    programs.call([programs.CINCH, "two.cinch", "--emit=lib", "-o", "two"], cwd=folder)
    exe = programs.compiled(folder / "two.cinch", "two-exe")
    result = programs.run(exe, data[0], 2)
    sys.path.insert(0, str(programs.HERE.parent.parent / "examples" / "embed"))
    import train

    model = train.Model(str(folder / "libtwo.so"), threads=2)
    _, x, z, y = data
    for step in range(2):
        at = [(12 * step + i) % 29 for i in range(12)]
        batch = dict(x=x[at], z=z[at], y=y[at])
        loss = model.step(**{name: batch[name] for name in model.fields})
        verdicts.expect(np.float32(loss if np.isscalar(loss) else loss[0]) == np.float32(result.losses[step]), "a library: step %d has a loss of %r, not %r" % (step, loss, result.losses[step]))
    for path, value in result.parameters.items():
        verdicts.expect(np.array_equal(model.parameter(path), value), "a library: other bits of " + path)
    done = programs.call([exe, "eval", "--data", data[0], "--out", result.out])
    printed = json.loads(done.stdout.strip().splitlines()[-1])
    found = model.evaluate(**{name: dict(x=x, z=z, y=y)[name] for name in model.fields})
    verdicts.expect(abs(found["loss"] - printed["loss"]) <= 1e-6, "a library evaluates to %s, the executable to %s" % (found, printed))


def of_a_metric():
    """Groups that a metric alone compares may be larger than a micro-batch of training."""
    folder = programs.FOLDER / "metric"
    folder.mkdir()
    x = np.random.default_rng(2).standard_normal(16).astype("f4")
    np.save(folder / "x.npy", x)
    program = programs.source("metric", """dim B = 8 batch
data train = npy("x.npy", shuffle = false) -> (x: f32[B])
model net(x: f32[B]) -> f32[B] {
  param p: f32[] ~ constant(0.5)
  return tanh(x * p)
}
train net on train seed 19 {
  u = net(x)
  r = group_all(u, group = 4)
  loss = mean[B] u ^ 2
  metric m = mean[b, j] tanh(r[b, j])
  optimizer sgd(lr = 0)
  steps 3
  every 1 eval(train)
}
""")
    groups = np.tanh(x * np.float32(0.5)).reshape(4, 4)
    for flags in (["--microbatch", "1"], ["--microbatch", "2"], ["--microbatch", "8"]):
        result = programs.run(programs.compiled(program, "metric" + flags[1], *flags), folder, 3)
        found = result.rows[-1]["train.m"]
        verdicts.expect(abs(found - np.tanh(groups).mean()) < 1e-6, "%s: a metric of groups is %g, not %g" % (flags, found, np.tanh(groups).mean()))
    said = programs.call([programs.CINCH, program, "-o", programs.FOLDER / "none", "--memory-budget", "1KiB", "--microbatch", "2"], allowed=(1,)).stdout
    verdicts.expect("smallest budget that compiles" in said, "a refusal: " + said)


def guarded(check, name, data):
    try:
        check(name, data)
    except programs.Failure as failure:
        verdicts.expect(False, "%s: %s" % (name, failure))


def main():
    data = make_data()
    programs.in_parallel(lambda name: guarded(in_f64, name, data), LOSSES)
    programs.in_parallel(lambda name: guarded(same_bits, name, data), LOSSES)
    programs.in_parallel(lambda name: guarded(narrow, name, data), ["scores", "attention over the group", "triplet", "several groups", "draws"])
    programs.in_parallel(lambda name: guarded(on_device, name, data), ["scores", "triplet", "moved axes", "draws"])
    behind_a_loop(data)
    in_a_library(data)
    no_copies()
    of_a_metric()
    refused(data)


if __name__ == "__main__":
    verdicts.run(main)
