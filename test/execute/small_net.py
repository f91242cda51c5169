"""A small model whose matrix is used twice, with a parameter that is frozen: what tests of optimizers compare with NumPy."""
import numpy as np

import programs  # noqa: F401  (first: it finds the folder of the oracles)
import training

I, H = 5, 4
OPTIMIZERS = {  # the program's words, the reference's, the limit of the norm
    "sgd": ("optimizer sgd(lr = 0.3, momentum = 0.8)", lambda: training.SGD(lambda step: 0.3, momentum=0.8), None),
    "adamw": ("optimizer adamw(lr = 0.02, decay = 0.1)\n  clip norm(0.05)", lambda: training.Adam(lambda step: 0.02, decay=0.1), 0.05),
    # Its products are computed of the momentum.
    "muon": ('optimizer muon(lr = 0.05) on ("down", "up.weight"); optimizer sgd(lr = 0.3)', lambda: training.Parts(
        ("*.bias", training.SGD(lambda step: 0.3)), ("*", training.Muon(lambda step: 0.05))), None),
}


def program(batch, steps):
    """Its text, with %s where the optimizer belongs."""
    return """dim B = BATCH batch, I = 5, H = 4
data train = npy("x.npy", "y.npy", shuffle = false) -> (x: f32[B, I], y: f32[B, I])
model net(x: f32[B, I]) -> f32[B, I] {
  use up = linear[H]
  param down: f32[I, H] ~ normal(0.5)
  param still: f32[I] ~ normal(1)
  h = tanh(up(x))
  return h @ down' + tanh(h @ down') * 0.5 + still
}
train net on train seed 4 {
  loss = mean[B, I] squared_error(net(x), y)
  %s
  freeze("still")
  steps STEPS
  every 2 checkpoint("run", keep = 2)
}
""".replace("BATCH", str(batch)).replace("STEPS", str(steps))


def gradients(p, x, y):
    h = np.tanh(x @ p["up.weight"].T + p["up.bias"])
    z = h @ p["down"].T
    t = np.tanh(z)
    error = z + 0.5 * t + p["still"] - y
    d = 2 * error / error.size * (1 + 0.5 * (1 - t * t))
    inner = (d @ p["down"]) * (1 - h * h)
    return (error**2).mean(), {"up.weight": inner.T @ x, "up.bias": inner.sum(0), "down": d.T @ h}
