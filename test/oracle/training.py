"""Optimizers, schedules, clipping and batches, from the formulas page; parameters are dictionaries of float64
arrays.
"""

import fnmatch
import math

import numpy as np


def rate(kind, lr, steps, warmup=0, end=0.0, power=1.0, every=None, at=(), factor=1.0, decay=0):
    """The learning rate as a function of the step, from 0; `steps` is the horizon."""

    def share(s):
        t = min(max((s - warmup) / max(steps - warmup, 1), 0.0), 1.0)
        if kind == "constant":
            return 1.0
        if kind == "linear":
            return 1 - (1 - end) * t
        if kind == "cosine":
            if every:
                t = (s - warmup) % every / every
            elif at:
                begin = max([warmup] + [place for place in at if place <= s])
                finish = min([place for place in at if place > s] or [steps])
                t = min(max((s - begin) / max(finish - begin, 1), 0.0), 1.0)
            return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * t))
        if kind == "polynomial":
            return end + (1 - end) * (1 - t) ** power
        if kind == "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / max(s + 1, warmup, 1))
        if kind == "step":
            return factor ** (s // every if every else sum(place <= s for place in at))
        if kind == "exponential":
            return factor ** (s / every)
        if kind == "wsd":
            return 1.0 if s < steps - decay else 1 - (1 - end) * (s - (steps - decay)) / decay
        raise ValueError(kind)

    return lambda s: lr * ((s + 1) / warmup) if s < warmup else lr * share(s)


def clip(gradients, limit):
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
    factor = min(1.0, limit / (norm + 1e-6))
    return {name: g * factor for name, g in gradients.items()}, norm


def decays(name, exceptions):
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in exceptions)


class SGD:
    def __init__(self, rate, momentum=0.0, nesterov=False, decay=0.0, exceptions=()):
        self.rate, self.momentum, self.nesterov, self.decay, self.exceptions = (
            rate,
            momentum,
            nesterov,
            decay,
            exceptions,
        )
        self.buffers = {}

    def update(self, parameters, gradients, step):
        for name, p in parameters.items():
            g = gradients[name]
            if decays(name, self.exceptions):
                g = g + self.decay * p
            if self.momentum:
                buffer = self.buffers.get(name, 0.0) * self.momentum + g
                self.buffers[name] = buffer
                g = g + self.momentum * buffer if self.nesterov else buffer
            parameters[name] = p - self.rate(step) * g


class Adam:
    """`coupled`: the decay is part of the gradient (Adam), else it shrinks the parameter (AdamW)."""

    def __init__(self, rate, betas=(0.9, 0.999), eps=1e-8, decay=0.0, exceptions=(), coupled=False):
        self.rate, self.betas, self.eps, self.decay = rate, betas, eps, decay
        self.exceptions, self.coupled = exceptions, coupled
        self.m, self.v = {}, {}

    def update(self, parameters, gradients, step):
        b1, b2 = self.betas
        lr = self.rate(step)
        for name, p in parameters.items():
            g = gradients[name]
            decay = self.decay if decays(name, self.exceptions) else 0.0
            if self.coupled:
                g = g + decay * p
            else:
                p = p * (1 - lr * decay)
            m = self.m[name] = b1 * self.m.get(name, 0.0) + (1 - b1) * g
            v = self.v[name] = b2 * self.v.get(name, 0.0) + (1 - b2) * g**2
            root = np.sqrt(v) / math.sqrt(1 - b2 ** (step + 1)) + self.eps
            parameters[name] = p - lr / (1 - b1 ** (step + 1)) * m / root


class Lion:
    def __init__(self, rate, betas=(0.9, 0.99), decay=0.0, exceptions=()):
        self.rate, self.betas, self.decay, self.exceptions = rate, betas, decay, exceptions
        self.m = {}

    def update(self, parameters, gradients, step):
        b1, b2 = self.betas
        for name, p in parameters.items():
            g, m = gradients[name], self.m.get(name, 0.0)
            decay = self.decay if decays(name, self.exceptions) else 0.0
            parameters[name] = p - self.rate(step) * (np.sign(b1 * m + (1 - b1) * g) + decay * p)
            self.m[name] = b2 * m + (1 - b2) * g


class RMSprop:
    def __init__(self, rate, alpha=0.99, momentum=0.0, eps=1e-8, decay=0.0):
        self.rate, self.alpha, self.momentum, self.eps, self.decay = rate, alpha, momentum, eps, decay
        self.v, self.m = {}, {}

    def update(self, parameters, gradients, step):
        for name, p in parameters.items():
            g = gradients[name] + self.decay * p
            v = self.v[name] = self.alpha * self.v.get(name, 0.0) + (1 - self.alpha) * g**2
            d = self.m[name] = self.momentum * self.m.get(name, 0.0) + g / (np.sqrt(v) + self.eps)
            parameters[name] = p - self.rate(step) * d


class Adagrad:
    def __init__(self, rate, eps=1e-10, decay=0.0):
        self.rate, self.eps, self.decay = rate, eps, decay
        self.v = {}

    def update(self, parameters, gradients, step):
        for name, p in parameters.items():
            g = gradients[name] + self.decay * p
            v = self.v[name] = self.v.get(name, 0.0) + g**2
            parameters[name] = p - self.rate(step) * g / (np.sqrt(v) + self.eps)


class RAdam:
    def __init__(self, rate, betas=(0.9, 0.999), eps=1e-8, decay=0.0):
        self.rate, self.betas, self.eps, self.decay = rate, betas, eps, decay
        self.m, self.v = {}, {}

    def update(self, parameters, gradients, step):
        t, (b1, b2) = step + 1, self.betas
        most = 2 / (1 - b2) - 1
        rho = most - 2 * t * b2**t / (1 - b2**t)
        for name, p in parameters.items():
            g = gradients[name] + self.decay * p
            m = self.m[name] = b1 * self.m.get(name, 0.0) + (1 - b1) * g
            v = self.v[name] = b2 * self.v.get(name, 0.0) + (1 - b2) * g**2
            move = m / (1 - b1**t)
            if rho > 5:
                rectified = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)
                move = move * math.sqrt(rectified) * math.sqrt(1 - b2**t) / (np.sqrt(v) + self.eps)
            parameters[name] = p - self.rate(step) * move


class Muon:
    def __init__(self, rate, momentum=0.95, nesterov=True, decay=0.0):
        self.rate, self.momentum, self.nesterov, self.decay = rate, momentum, nesterov, decay
        self.m = {}

    def update(self, parameters, gradients, step):
        for name, p in parameters.items():
            g, beta = gradients[name], self.momentum
            m = self.m[name] = beta * self.m.get(name, 0.0) + (1 - beta) * g
            x = ((1 - beta) * g + beta * m if self.nesterov else m).reshape(len(p), -1)
            rows, columns = x.shape
            x = x / max(np.sqrt((x**2).sum()), 1e-7)
            for _ in range(5):
                s = x @ x.T
                x = 3.4445 * x + (-4.775 * s + 2.0315 * s @ s) @ x
            lr = self.rate(step)
            scale = math.sqrt(max(1.0, rows / columns))
            parameters[name] = p * (1 - lr * self.decay) - lr * scale * x.reshape(p.shape)


class Parts:
    """Each parameter goes to the first optimizer whose pattern it matches."""

    def __init__(self, *parts):
        self.parts = parts

    def update(self, parameters, gradients, step):
        for i, (pattern, optimizer) in enumerate(self.parts):
            mine = [
                name
                for name in parameters
                if next(k for k, (p, _) in enumerate(self.parts) if fnmatch.fnmatchcase(name, p)) == i
            ]
            own = {name: parameters[name] for name in mine}
            optimizer.update(own, gradients, step)
            parameters.update(own)


# Optimizers, schedules and clipping on the classifier: lines of `train`, the same in NumPy, norm to clip at (test/execute/reference.py).
CASES = [
    ("optimizer sgd(lr = 0.1)", lambda: SGD(rate("constant", 0.1, 10)), None),
    (
        'optimizer sgd(lr = 0.1, momentum = 0.8, nesterov = true, decay = 0.01 except "*.bias"); '
        "schedule linear(end = 0.2)",
        lambda: SGD(rate("linear", 0.1, 10, end=0.2), 0.8, True, 0.01, ("*.bias",)),
        None,
    ),
    (
        "optimizer adam(lr = 1e-2, decay = 0.05); schedule polynomial(power = 2, end = 0.1, warmup = 2)",
        lambda: Adam(
            rate("polynomial", 1e-2, 10, power=2, end=0.1, warmup=2), decay=0.05, coupled=True
        ),
        None,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.05, betas = (0.8, 0.99), eps = 1e-6); "
        "schedule inverse_sqrt(warmup = 4); clip norm(0.5)",
        lambda: Adam(rate("inverse_sqrt", 1e-2, 10, warmup=4), (0.8, 0.99), 1e-6, 0.05),
        0.5,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.1); schedule step(every = 3, factor = 0.5); clip norm(100)",
        lambda: Adam(rate("step", 1e-2, 10, every=3, factor=0.5), decay=0.1),
        100.0,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.1); schedule cosine(end = 0.1, every = 3, warmup = 2)",
        lambda: Adam(rate("cosine", 1e-2, 10, every=3, end=0.1, warmup=2), decay=0.1),
        None,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.1); schedule cosine(end = 0, at = (2, 5), warmup = 3)",
        lambda: Adam(rate("cosine", 1e-2, 10, at=(2, 5), end=0, warmup=3), decay=0.1),
        None,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.1); schedule exponential(every = 2, factor = 0.9)",
        lambda: Adam(rate("exponential", 1e-2, 10, every=2, factor=0.9), decay=0.1),
        None,
    ),
    (
        "optimizer adamw(lr = 1e-2, decay = 0.1); schedule wsd(decay = 5, end = 0.1, warmup = 2)",
        lambda: Adam(rate("wsd", 1e-2, 10, decay=5, end=0.1, warmup=2), decay=0.1),
        None,
    ),
    (
        'optimizer lion(lr = 1e-3, betas = (0.8, 0.95), decay = 0.05 except "*.bias"); schedule linear(end = 0.2)',
        lambda: Lion(rate("linear", 1e-3, 10, end=0.2), (0.8, 0.95), 0.05, ("*.bias",)),
        None,
    ),
    # Of ten steps the first five are not rectified; with the second line none is.
    (
        "optimizer radam(lr = 1e-2, betas = (0.8, 0.99), decay = 0.01); schedule linear(end = 0.2)",
        lambda: RAdam(rate("linear", 1e-2, 10, end=0.2), (0.8, 0.99), decay=0.01),
        None,
    ),
    ("optimizer radam(lr = 1e-3, betas = (0.9, 0.5))", lambda: RAdam(rate("constant", 1e-3, 10), (0.9, 0.5)), None),
    (
        "optimizer rmsprop(lr = 1e-3, alpha = 0.9, momentum = 0.8, decay = 0.01)",
        lambda: RMSprop(rate("constant", 1e-3, 10), 0.9, 0.8, decay=0.01),
        None,
    ),
    ("optimizer rmsprop(lr = 1e-3, eps = 1e-6)", lambda: RMSprop(rate("constant", 1e-3, 10), eps=1e-6), None),
    (
        "optimizer adagrad(lr = 1e-2, decay = 0.01); schedule linear(end = 0)",
        lambda: Adagrad(rate("linear", 1e-2, 10, end=0), decay=0.01),
        None,
    ),
    (
        'optimizer muon(lr = 1e-2, decay = 0.1) on ("*.weight"); optimizer sgd(lr = 0.1); schedule linear(end = 0.5)',
        lambda: Parts(
            ("*.weight", Muon(rate("linear", 1e-2, 10, end=0.5), decay=0.1)),
            ("*", SGD(rate("linear", 0.1, 10, end=0.5))),
        ),
        None,
    ),
    (
        'optimizer muon(lr = 1e-2, momentum = 0.8, nesterov = false) on ("*.weight"); optimizer sgd(lr = 0.1); clip norm(0.5)',
        lambda: Parts(
            ("*.weight", Muon(rate("constant", 1e-2, 10), 0.8, False)),
            ("*", SGD(rate("constant", 0.1, 10))),
        ),
        0.5,
    ),
]
