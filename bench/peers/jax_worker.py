"""A network of jax_nets.py, trained by JAX: a worker for bench/rivals (see worker.py).

One jitted step, its parameters and state donated, layers unrolled; masks are drawn with the generator that is fastest on CPUs. Running
statistics of batch norms are left out: nothing of a training step reads them. Variant `bf16`: the network's parameters and inputs are cast, and
so is all between them; the update stays in f32.
"""
import functools

import jax
import jax.numpy as jnp

import worker
from jax_nets import NETWORKS, Draws, lay_out

jax.config.update("jax_default_prng_impl", "unsafe_rbg")
map_ = jax.tree.map


def sgd(grads, params, state, count, lr, decay, nesterov):
    grads = {name: g + decay(name, g) * params[name] if decay(name, g) else g for name, g in grads.items()}
    momentum = map_(lambda m, g: 0.9 * m + g, state[0], grads)
    moved = map_(lambda m, g: g + 0.9 * m, momentum, grads) if nesterov else momentum
    return map_(lambda p, m: p - lr * m, params, moved), (momentum,)


def adam(grads, params, state, count, lr, decay, betas):
    first = map_(lambda m, g: betas[0] * m + (1 - betas[0]) * g, state[0], grads)
    second = map_(lambda v, g: betas[1] * v + (1 - betas[1]) * g * g, state[1], grads)
    c1, c2 = 1 - betas[0] ** count, 1 - betas[1] ** count

    def moved(name, p):
        step = first[name] / c1 / (jnp.sqrt(second[name] / c2) + 1e-8)
        return p - lr * (step + decay(name, p) * p)

    return {name: moved(name, p) for name, p in params.items()}, (first, second)


def never(name, p):
    return 0.0


def on_matrices(name, p):
    return 0.1 if p.ndim == 2 and name != "wpe" else 0.0


def on_filters(name, p):
    return 0.0 if name.endswith(".bias") or name.endswith(".bn.weight") else 5e-4


UPDATES = {
    "mlp": functools.partial(sgd, lr=0.1, decay=never, nesterov=False),
    "resnet18": functools.partial(sgd, lr=0.01, decay=on_filters, nesterov=True),
    "gpt": functools.partial(adam, lr=1e-3, decay=on_matrices, betas=(0.9, 0.95)),
    "gpt2": functools.partial(adam, lr=6e-4, decay=on_matrices, betas=(0.9, 0.95)),
    "unet": functools.partial(adam, lr=2e-3, decay=never, betas=(0.9, 0.999)),
    "lstm": functools.partial(adam, lr=2e-3, decay=never, betas=(0.9, 0.999)),
}


def main():
    jnp.zeros(1).block_until_ready() # the runtime is part of what importing brings
    imported = worker.peak()
    the = worker.task()
    network, update, clip = NETWORKS[the.network], UPDATES[the.network], the.network in ("gpt", "lstm")
    params = {name: jnp.asarray(lay_out(name, array)) for name, array in worker.parameters(the.weights).items() if ".running_" not in name}
    copies = 1 if update.func is sgd else 2
    state = tuple(map_(jnp.zeros_like, params) for _ in range(copies))
    x, y = worker.batch(the)
    x = jnp.asarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)
    y = jnp.asarray(y)
    key = jax.random.key(3)

    def lower(value):
        return value.astype(jnp.bfloat16) if "bf16" in the.variant and value.dtype == jnp.float32 else value

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, count, x, y):
        def loss_of(params):
            params = map_(lower, params)
            return network(the.sizes, params, lower(x), y, Draws(the.rate, jax.random.fold_in(key, count))).astype(jnp.float32)

        loss, grads = jax.value_and_grad(loss_of)(params)
        if clip:
            norm = jnp.sqrt(sum((g ** 2).sum() for g in grads.values()))
            grads = map_(lambda g: g * jnp.minimum(1, 1 / (norm + 1e-6)), grads)
        return *update(grads, params, state, count), loss

    count = 0

    def step():
        nonlocal params, state, count
        count += 1
        params, state, loss = train(params, state, count, x, y)
        jax.block_until_ready(params)
        return float(loss)

    worker.serve(step, imported)


main()
