"""A byte-level GPT in JAX, the same network and update as bench/models/gpt.cinch, as a worker for bench/gpt (see worker.py).

One jitted step, its parameters and state donated, the blocks unrolled; masks are drawn with the generator that is fastest on CPUs.
"""
import functools

import jax
import jax.numpy as jnp
import numpy

from worker import options, serve

jax.config.update("jax_default_prng_impl", "unsafe_rbg")


def parameters(sizes):
    draw = numpy.random.default_rng(1)
    width = sizes.width

    def normal(*shape, std=0.02):
        return jnp.asarray(draw.normal(0, std, shape), jnp.float32)

    def linear(inputs, outputs):
        return {"weight": normal(inputs, outputs), "bias": jnp.zeros(outputs)}

    def norm():
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

    blocks = [{"ln1": norm(), "qkv": linear(width, 3 * width), "out": linear(width, width),
               "ln2": norm(), "up": linear(width, 4 * width), "down": linear(4 * width, width)} for _ in range(sizes.layers)]
    return {"wte": normal(sizes.vocabulary, width), "wpe": normal(sizes.length, width, std=0.01), "blocks": blocks, "lnf": norm()}


def apply_linear(p, x):
    return x @ p["weight"] + p["bias"]


def apply_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def loss_of(sizes, params, batch, key):
    drawn = 0

    def drop(x):
        nonlocal drawn
        drawn += 1
        if sizes.rate == 0:
            return x
        keep = jax.random.bernoulli(jax.random.fold_in(key, drawn), 1 - sizes.rate, x.shape)
        return jnp.where(keep, x / (1 - sizes.rate), 0)

    def attention(p, x):
        b, t, width = x.shape
        q, k, v = (part.reshape(b, t, sizes.heads, width // sizes.heads) for part in jnp.split(apply_linear(p["qkv"], x), 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // sizes.heads) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        y = jnp.einsum("bhqk,bkhd->bqhd", drop(jax.nn.softmax(scores, -1)), v)
        return apply_linear(p["out"], y.reshape(b, t, width))

    text, targets = batch[:, :-1], batch[:, 1:]
    h = drop(params["wte"][text] + params["wpe"])
    for p in params["blocks"]:
        h = h + drop(attention(p, apply_norm(p["ln1"], h)))
        h = h + drop(apply_linear(p["down"], jax.nn.gelu(apply_linear(p["up"], apply_norm(p["ln2"], h)), approximate=False)))
    logits = apply_norm(params["lnf"], h) @ params["wte"].T
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2, 3))
def update(sizes, params, first, second, count, batch, key):
    loss, grads = jax.value_and_grad(functools.partial(loss_of, sizes))(params, batch, jax.random.fold_in(key, count))
    norm = jnp.sqrt(sum((g ** 2).sum() for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1, 1 / (norm + 1e-6))
    grads = jax.tree.map(lambda g: g * scale, grads)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)
    c1, c2 = 1 - 0.9 ** count, 1 - 0.95 ** count

    def moved(path, p, m, v):
        decay = 0.1 if p.ndim == 2 and path[0].key != "wpe" else 0.0
        return p - 1e-3 * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + decay * p)

    return jax.tree_util.tree_map_with_path(moved, params, first, second), first, second, loss


def main():
    sizes = options()
    params = parameters(sizes)
    state = [params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)]
    batch = jnp.asarray(numpy.random.default_rng(2).integers(sizes.vocabulary, size=(sizes.batch, sizes.length + 1)), jnp.int32)
    key, count = jax.random.key(3), 0
    del params

    def step():
        nonlocal count
        count += 1
        *state[:], loss = update(sizes, *state, count, batch, key)
        jax.block_until_ready(state)
        return float(loss)

    serve(step)


main()
