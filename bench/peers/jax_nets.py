"""The networks of bench/rivals in JAX: functions of {our name: array} that give the loss.

Weights of linear layers lie as [in, out], filters as [row, column, in, out], images as [example, row, column, channel]: see `lay_out`.
"""
import jax
import jax.numpy as jnp
from jax import lax


def lay_out(name, array):
    if array.ndim == 4:
        return array.transpose(2, 3, 0, 1) if ".widen." in name else array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 and name.endswith(".weight") else array


class Draws:
    """Dropout: a new key for every use."""

    def __init__(self, rate, key):
        self.rate, self.key, self.used = rate, key, 0

    def __call__(self, x):
        if self.rate == 0:
            return x
        self.used += 1
        keep = jax.random.bernoulli(jax.random.fold_in(self.key, self.used), 1 - self.rate, x.shape)
        return jnp.where(keep, x / (1 - self.rate), 0)


def linear(p, name, x):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def layer_norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def mlp(sizes, p, x, y, drop):
    return cross_entropy(linear(p, "fc3", jax.nn.relu(linear(p, "fc2", jax.nn.relu(linear(p, "fc1", x))))), y)


def attend(qkv, heads, drop):
    b, t, width = qkv.shape
    q, k, v = (part.reshape(b, t, heads, -1) for part in jnp.split(qkv, 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // 3 // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", drop(jax.nn.softmax(scores, -1)), v).reshape(b, t, width // 3)


def transformer(sizes, p, text, targets, drop, names, approximate):
    """`names`: of the blocks, their two norms, the four products and the last norm."""
    blocks, ln1, ln2, qkv, out, up, down, last = names
    h = drop(p["wte"][text] + p["wpe"])
    for layer in range(sizes["N"]):
        at = f"{blocks}.{layer}."
        h = h + drop(linear(p, at + out, attend(linear(p, at + qkv, layer_norm(p, at + ln1, h)), sizes["A"], drop)))
        inner = jax.nn.gelu(linear(p, at + up, layer_norm(p, at + ln2, h)), approximate=approximate)
        h = h + drop(linear(p, at + down, inner))
    return cross_entropy(layer_norm(p, last, h) @ p["wte"].T, targets)


def gpt(*arguments):
    return transformer(*arguments, ("blocks", "ln1", "ln2", "attn.qkv", "attn.out", "ff.up", "ff.down", "lnf"), False)


def gpt2(*arguments):
    return transformer(*arguments, ("h", "ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "ff.c_fc", "ff.c_proj", "ln_f"), True)


def conv(p, name, x, stride=1):
    taps = p[name + ".weight"].shape[0]
    edge = ((taps - 1) // 2,) * 2
    y = lax.conv_general_dilated(x, p[name + ".weight"], (stride, stride), (edge, edge), dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p[name + ".bias"] if name + ".bias" in p else y


def conv_bn(p, name, x, stride=1):
    x = conv(p, name + ".c", x, stride)
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * (lax.rsqrt(variance + 1e-5) * p[name + ".bn.weight"]) + p[name + ".bn.bias"]


def resnet18(sizes, p, x, y, drop):
    def basic(at, x, stride):
        skip = conv_bn(p, at + ".p", x, stride) if at + ".p.c.weight" in p else x
        return jax.nn.relu(conv_bn(p, at + ".b", jax.nn.relu(conv_bn(p, at + ".a", x, stride))) + skip)

    h = jax.nn.relu(conv_bn(p, "stem", x))
    for stage, stride in (("s1", 1), ("s2", 2), ("s3", 2), ("s4", 2)):
        h = basic(stage + ".second", basic(stage + ".first", h, stride), 1)
    return cross_entropy(linear(p, "head", h.mean((1, 2))), y)


def group_norm(p, name, x):
    b, height, width, c = x.shape
    r = x.reshape(b, height, width, 4, c // 4)
    mean = r.mean((1, 2, 4), keepdims=True)
    variance = ((r - mean) ** 2).mean((1, 2, 4), keepdims=True)
    n = ((r - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return n * p[name + ".weight"] + p[name + ".bias"]


def halved(x):
    b, height, width, c = x.shape
    return x.reshape(b, height // 2, 2, width // 2, 2, c).max((2, 4))


def doubled(p, name, x):
    """A transposed convolution of 2 x 2 taps with stride 2: every output has one tap."""
    b, height, width, _ = x.shape
    y = jnp.einsum("bhwi,rsio->bhrwso", x, p[name + ".weight"])
    return y.reshape(b, 2 * height, 2 * width, -1) + p[name + ".bias"]


def unet(sizes, p, x, y, drop):
    def double(at, x):
        x = jax.nn.relu(group_norm(p, at + ".n1", conv(p, at + ".c1", x)))
        return jax.nn.relu(group_norm(p, at + ".n2", conv(p, at + ".c2", x)))

    seen = [double("d1", x)]
    for at in ("d2", "d3", "d4"):
        seen.append(double(at, halved(seen[-1])))
    h = seen.pop()
    for at in ("u3", "u2", "u1"):
        h = double(at + ".merge", jnp.concatenate((seen.pop(), doubled(p, at + ".widen", h)), -1))
    return cross_entropy(conv(p, "head", h), y)


def lstm(sizes, p, text, targets, drop):
    x = p["embedding"][text]
    for name in ("a", "b"):
        hidden = p[name + ".cell.hidden.weight"]
        inputs = jnp.swapaxes(linear(p, name + ".inputs", x) + p[name + ".cell.hidden.bias"], 0, 1)

        def trip(state, g):
            h, c = state
            i, f, n, o = jnp.split(g + h @ hidden, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[0], sizes["H"]), x.dtype)
        x = jnp.swapaxes(lax.scan(trip, (zero, zero), inputs)[1], 0, 1)
    return cross_entropy(linear(p, "out", x), targets)


NETWORKS = {"mlp": mlp, "gpt": gpt, "gpt2": gpt2, "resnet18": resnet18, "unet": unet, "lstm": lstm}
