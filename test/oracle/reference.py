"""Whole training runs in NumPy: the small GPT and the classifier, from the language's rules and the formulas page."""

import numpy as np

import draws
import models
import shuffle
import tape
import training


def dropout(rate, seed, step):
    def drop(chain, x):
        if rate == 0:
            return x
        kept = draws.kept(seed, step, draws.key_of(chain), np.arange(x.shape[0]), x.value[0].size, 1 - rate).reshape(
            x.shape
        )
        return x.apply(np.where(kept, x.value / (1 - rate), 0), kept / (1 - rate))

    return drop


def train(parameters, steps, seed, size, count, loss_of, optimizer, clip=None):
    """Parameters after `steps` steps, and the losses before each; `loss_of(nodes, examples, step)`."""
    parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
    losses = []
    for step in range(steps):
        nodes = {name: tape.Node(value) for name, value in parameters.items()}
        loss = loss_of(nodes, shuffle.batch(seed, step, size, count), step)
        tape.backward(loss)
        gradients = {name: node.grad if node.grad is not None else np.zeros(node.shape) for name, node in nodes.items()}
        if clip is not None:
            gradients, _ = training.clip(gradients, clip)
        optimizer.update(parameters, gradients, step)
        losses.append(float(loss.value))
    return parameters, losses


def train_gpt(parameters, text, steps, horizon, rate, size=8, window=33, blocks=2, heads=3, seed=1337, clip=1.0):
    text = np.frombuffer(text, np.uint8).astype(np.int64)
    windows = np.stack([text[i : i + window] for i in range(0, len(text) - window + 1, window - 1)])

    def loss_of(nodes, examples, step):
        batch = windows[examples]
        logits = models.gpt(nodes, batch[:, :-1], blocks, heads, dropout(rate, seed, step))
        return tape.cross_entropy(logits, batch[:, 1:]).mean()

    optimizer = training.Adam(
        training.rate("cosine", 1e-3, horizon, end=0.1),
        betas=(0.9, 0.95),
        decay=0.1,
        exceptions=("wpe", "*.bias", "*ln?.weight"),
    )
    return train(parameters, steps, seed, size, len(windows), loss_of, optimizer, clip)


def train_mlp(parameters, images, labels, steps, rate, optimizer, clip=None, size=32, seed=42):
    x = images.reshape(len(images), -1) * (1 / 255)

    def loss_of(nodes, examples, step):
        return tape.cross_entropy(
            models.mlp(nodes, x[examples], dropout(rate, seed, step)), labels[examples].astype(np.int64)
        ).mean()

    return train(parameters, steps, seed, size, len(images), loss_of, optimizer, clip)
