"""Random settings of `train`: optimizer, schedule, clipping, grain and what else a block may hold."""


def optimizer(rng, names):
    rate = rng.choice(["0.05", "0.01", "3e-3"])
    spare = rng.choice(names)
    except_ = ' except "%s"' % spare if rng.random() < 0.3 else ""
    return rng.choice([
        "sgd(lr = %s)" % rate,
        "sgd(lr = %s, momentum = 0.9)" % rate,
        "sgd(lr = %s, momentum = 0.5, nesterov = true, decay = 1e-3%s)" % (rate, except_),
        "sgd(lr = %s, decay = 0.01)" % rate,
        "adam(lr = %s)" % rate,
        "adam(lr = %s, betas = (0.8, 0.95), decay = 0.01%s)" % (rate, except_),
        "adamw(lr = %s, decay = 0.1%s)" % (rate, except_),
        "adamw(lr = %s, decay = 0.1, betas = (0.8, 0.95), eps = 1e-6)" % rate,
        "rmsprop(lr = %s)" % rate,
        "rmsprop(lr = %s, alpha = 0.9, momentum = 0.5, decay = 0.01%s)" % (rate, except_),
        "adagrad(lr = %s, decay = 0.01)" % rate,
        "lion(lr = %s, decay = 0.1%s)" % (rate, except_),
    ])


SCHEDULES = [
    "constant(warmup = 1)", "linear(end = 0.2)", "linear(warmup = 2, end = 0)", "cosine(end = 0.1)",
    "cosine(warmup = 1, end = 0.1)", "polynomial(power = 2, end = 0.1)", "inverse_sqrt(warmup = 2)",
    "step(every = 2, factor = 0.5)", "step(at = (1, 2), factor = 0.5)", "exponential(every = 2, factor = 0.9)",
    "wsd(decay = 2, end = 0.1, warmup = 1)", "cosine(end = 0.1, every = 2)", "cosine(end = 0, at = (1, 3), warmup = 1)",
]


def settings(rng, program):
    """(lines by kind, grain, metrics)."""
    program.text({})  # paths of the parameters
    names = [path for path, _, _ in program.model.all_parameters()]
    lines = {"optimizer": "optimizer " + optimizer(rng, names)}
    if len(names) > 1 and rng.random() < 0.2:
        lines["second"] = 'optimizer %s on ("%s")' % (optimizer(rng, names), rng.choice(names))
    matrices = [path for path, type_, _ in program.model.all_parameters() if len(type_.axes) >= 2]
    if len(names) > 1 and matrices and "second" not in lines and rng.random() < 0.2:
        lines["second"] = 'optimizer muon(lr = 0.02, momentum = %s, nesterov = %s%s) on ("%s")' % (
            rng.choice(["0", "0.9"]), rng.choice(["true", "false"]), rng.choice(["", ", decay = 0.01"]), rng.choice(matrices))
    if rng.random() < 0.5:
        lines["schedule"] = "schedule " + rng.choice(SCHEDULES)
    if rng.random() < 0.4:
        lines["clip"] = "clip " + rng.choice(["norm(0.5)", "norm(10)", "value(0.05)"])
    if len(names) > 1 and rng.random() < 0.25:
        lines["freeze"] = 'freeze("%s")' % rng.choice(names)  # `attempt` sees to it that another one is trained
    grain = 0
    if rng.random() < 0.25:
        grain = rng.choice([g for g in range(1, program.batch + 1) if program.batch % g == 0 and g % program.unit == 0])
        lines["grain"] = "grain %d" % grain
    if rng.random() < 0.1:
        lines["delay"] = "delay 1"
    lines["steps"] = "steps 3"
    metrics = []
    if rng.random() < 0.3:
        metrics.append(rng.choice(["loss * 2", "exp(-loss ^ 2)", "1 / (1 + loss ^ 2)"]))
        lines["every"] = "every 2 eval(train)"
    if rng.random() < 0.1:
        lines["checkpoint"] = 'every 2 checkpoint("run", keep = 1)'
    if rng.random() < 0.1:
        lines["log"] = "every 1 log(csv, tensorboard)"
    return lines, grain, metrics
