"""Two LSTM layers over bytes in JAX (lax.scan), the network and update of bench/models/lstm.cinch, as a worker for bench/lstm.

The products with the inputs stand outside of the scan, the step is jitted, its parameters and state are donated.
"""
import functools

import jax
import jax.numpy as jnp
import numpy

from worker import options, serve


def parameters(sizes):
    draw = numpy.random.default_rng(1)

    def uniform(*shape):
        return jnp.asarray(draw.uniform(-1, 1, shape) / sizes.width**0.5, jnp.float32)

    def layer():
        gates, width = 4 * sizes.width, sizes.width
        return {"inputs": uniform(width, gates), "hidden": uniform(width, gates), "bias": uniform(gates)}

    return {"embedding": uniform(sizes.vocabulary, sizes.width), "layers": [layer() for _ in range(sizes.layers)],
            "out": uniform(sizes.width, sizes.vocabulary), "bias": uniform(sizes.vocabulary)}


def run_layer(p, x):
    inputs = jnp.swapaxes(x @ p["inputs"] + p["bias"], 0, 1)

    def trip(state, g):
        h, c = state
        i, f, n, o = jnp.split(g + h @ p["hidden"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[0], p["hidden"].shape[0]), x.dtype)
    return jnp.swapaxes(jax.lax.scan(trip, (zero, zero), inputs)[1], 0, 1)


def loss_of(params, batch):
    x = params["embedding"][batch[:, :-1]]
    for p in params["layers"]:
        x = run_layer(p, x)
    logits = x @ params["out"] + params["bias"]
    chosen = jnp.take_along_axis(logits, batch[:, 1:, None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def update(params, first, second, batch, count):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / (norm + 1e-6)), grads)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    rate = 0.002 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return params, first, second, loss


def main():
    sizes = options()
    state = [parameters(sizes)]
    state += [jax.tree.map(jnp.zeros_like, state[0]) for _ in range(2)]
    batch = jnp.asarray(numpy.random.default_rng(2).integers(0, sizes.vocabulary, (sizes.batch, sizes.length + 1)), jnp.int32)
    count = 0

    def step():
        nonlocal count
        count += 1
        *state[:], loss = update(*state, batch, jnp.float32(count))
        return float(loss)

    serve(step)


main()
