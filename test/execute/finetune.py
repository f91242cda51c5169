#!/usr/bin/python3
"""Starting from a file: `init` and `names` of a program, `--init` with `--names` and `--partial`, halves. The logits of
examples/gpt2 from a generated file of the published layout, against NumPy."""
import json
import re
import struct

import numpy as np
import programs
import tensorfile

ROOT = programs.HERE.parent.parent
SIZES = dict(B=4, T=12, V=50, N=2, D=24, A=3)
verdicts = programs.Verdicts()


# ---- GPT-2 -----------------------------------------------------------------------------------------------------------
def published(rng):
    """A file as the ecosystem's, with smaller sizes: Conv1D weights are [in, out], and the causal mask is saved too."""
    d, v, t = SIZES["D"], SIZES["V"], SIZES["T"]
    draw = lambda *shape: rng.normal(size=shape, scale=0.3).astype(np.float32)
    tensors = {"wte.weight": draw(v, d), "wpe.weight": draw(t, d), "ln_f.weight": 1 + draw(d), "ln_f.bias": draw(d)}
    for i in range(SIZES["N"]):
        for name, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d),
                                    ("mlp.c_proj", 4 * d, d)):
            tensors["h.%d.%s.weight" % (i, name)] = draw(rows, columns)
            tensors["h.%d.%s.bias" % (i, name)] = draw(columns)
        for name in ("ln_1", "ln_2"):
            tensors["h.%d.%s.weight" % (i, name)] = 1 + draw(d)
            tensors["h.%d.%s.bias" % (i, name)] = draw(d)
        tensors["h.%d.attn.bias" % i] = np.tril(np.ones((1, 1, t, t), np.float32))
    return tensors


def reference(w, text):
    """The published model's logits, in f64."""
    w = {name: value.astype(float) for name, value in w.items()}
    heads, t = SIZES["A"], text.shape[1]

    def norm(x, name):
        c = x - x.mean(-1, keepdims=True)
        return c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    conv = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["wte.weight"][text] + w["wpe.weight"][:t]
    for i in range(SIZES["N"]):
        h = "h.%d." % i
        q, k, v = (part.reshape(*part.shape[:2], heads, -1).swapaxes(1, 2)
                   for part in np.split(conv(norm(x, h + "ln_1"), h + "attn.c_attn"), 3, axis=-1))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        o = (p / p.sum(-1, keepdims=True)) @ v
        x = x + conv(o.swapaxes(1, 2).reshape(x.shape), h + "attn.c_proj")
        u = conv(norm(x, h + "ln_2"), h + "mlp.c_fc")
        u = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        x = x + conv(u, h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def gpt2(data):
    rng = np.random.default_rng(3)
    weights = published(rng)
    tensorfile.write(data / "model.safetensors", weights)
    windows, t = 6, SIZES["T"]
    for name in ("train", "valid"):
        (data / (name + ".bin")).write_bytes(rng.integers(0, SIZES["V"], windows * t + 1).astype(np.uint16).tobytes())
    text = np.frombuffer((data / "train.bin").read_bytes(), np.uint16).astype(int)[:-1].reshape(windows, t)
    flags = [word for name, value in SIZES.items() for word in ("-D", "%s=%d" % (name, value))]
    wanted = reference(weights, text)
    ours = [("wte", "wte.weight", False), ("h.1.attn.c_attn.weight", "h.1.attn.c_attn.weight", True),
            ("h.0.ff.c_proj.weight", "h.0.mlp.c_proj.weight", True), ("h.0.ff.c_fc.bias", "h.0.mlp.c_fc.bias", False)]
    for precision, tolerance in (("f32", 1e-4), ("f64", 1e-10)):
        exe = programs.compiled(ROOT / "examples/gpt2/gpt2.cinch", "gpt2-" + precision, *flags,
                                "--set", "train.precision=" + precision)
        out = programs.FOLDER / ("gpt2-out-" + precision)
        call = lambda *words: programs.call([exe, *words, "--data", data, "--out", out])
        call("predict", "--on", "train", "--init", data / "model.safetensors", "--names", "huggingface")
        logits = np.load(out / "predict/train/gpt2.npy")
        far = np.abs(logits - wanted).max()
        verdicts.expect(logits.shape == wanted.shape and far < tolerance, "gpt2, %s: logits off by %g" % (precision, far))
        said = call("train", "--steps", 0).stdout
        final = tensorfile.read(out / "final.safetensors")
        verdicts.expect("parameters from %s/model.safetensors" % data in said, "init of the program: " + said)
        for path, theirs, transposed in ours:
            value = weights[theirs].T if transposed else weights[theirs]
            verdicts.expect(np.array_equal(final[path], value.astype(final[path].dtype)), "gpt2: " + path)
        call("train", "--steps", 3)
    # What the program itself has written has our names.
    call("predict", "--on", "train", "--init", out / "final.safetensors")


# ---- Files that fit in part ------------------------------------------------------------------------------------------
NET = """
dim B = 16 batch, I = 6, H = 8, C = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
model net(x: f32[B, I]) -> f32[B, C] {
  use fc = linear[H], head = linear[C]
  return head(relu(fc(x)))
}
names theirs {
  "fc.*" = "body.*"
  "_" = "body.mask"
}
names headless {
  "head.*" = "_"
  "fc.*" = "body.*"
  "_" = "body.mask"
  "_" = "extra"
}
names misspelt {
  "head.*" = "_"
  "fc.*" = "bdy.*"
}
train net on train seed 1 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer adam(lr = 0.1)
  ema 0.9
  steps 4
}
"""


def narrow(value, kind):
    """The bits of f32 values rounded to F16, or cut to BF16."""
    if kind == "F16":
        return value.astype(np.float16).tobytes()
    return (np.ascontiguousarray(value, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write_halves(path, tensors, kind):
    header, chunks, at = {}, [], 0
    for name, value in tensors.items():
        raw = narrow(value, kind)
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def parts(data):
    rng = np.random.default_rng(5)
    np.save(data / "x.npy", rng.normal(size=(40, 6)).astype(np.float32))
    np.save(data / "y.npy", rng.integers(0, 4, 40).astype(np.int32))
    exe = programs.compiled(programs.source("net", NET), "net")
    out = programs.FOLDER / "net-out"
    call = lambda *words, allowed=(0,): programs.call([exe, *words, "--data", data, "--out", out], allowed=allowed)
    final = lambda: tensorfile.read(out / "final.safetensors")
    call("train", "--steps", 0)
    fresh = final()
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    body = {"fc.weight": draw(8, 6), "fc.bias": draw(8)}
    tensorfile.write(data / "body.safetensors", {**body, "old_head.weight": draw(3, 8)})

    said = call("train", "--steps", 0, "--init", data / "body.safetensors", "--partial").stdout
    got = final()
    verdicts.expect(all(np.array_equal(got[n], v) and np.array_equal(got[n + ".ema"], v) for n, v in body.items()),
                    "--partial: what is there, and its averages")
    verdicts.expect(all(np.array_equal(got[n], fresh[n]) for n in ("head.weight", "head.bias", "head.bias.ema")),
                    "--partial: what is missing keeps its initial values")
    lines = [re.sub(" +", " ", line.strip()) for line in said.splitlines()]
    verdicts.expect("loaded fc.weight, fc.bias, fc.weight.ema, fc.bias.ema" in lines and "unexpected old_head.weight" in lines
                    and "missing head.weight, head.bias, head.weight.ema, head.bias.ema" in lines, "--partial says " + said)
    verdicts.expect("body.safetensors: 4 of 8 tensors loaded" in said, said)

    # A checkpoint of this program: the parameters and nothing of its position or its optimizer.
    call("train", "--init", data / "body.safetensors", "--partial")
    checkpoint = sorted((out / "checkpoints").glob("step-*.safetensors"))[-1].rename(data / "step.safetensors")
    trained = final()
    said = call("train", "--steps", 0, "--init", checkpoint, "--partial").stdout
    verdicts.expect("8 of 8 tensors loaded" in said and "unexpected" not in said, said)
    verdicts.expect(all(np.array_equal(final()[n], trained[n]) for n in trained), "a checkpoint as --init")
    verdicts.expect("steps 0 to 4" in call("train", "--init", checkpoint, "--partial").stdout, "it starts at step 0")

    # Through a name map, with left-overs on both sides.
    theirs = {"body.weight": body["fc.weight"], "body.bias": body["fc.bias"], "body.mask": draw(2), "extra": draw(2)}
    tensorfile.write(data / "theirs.safetensors", theirs)
    said = call("train", "--steps", 0, "--init", data / "theirs.safetensors", "--names", "theirs", "--partial").stdout
    verdicts.expect(np.array_equal(final()["fc.weight"], body["fc.weight"]) and "unexpected extra\n" in said
                    and "mask" not in said, "--partial through a map: " + said)

    # What the map says the file does not have starts as the program says, without --partial; all else must be there.
    call("train", "--steps", 0, "--init", data / "theirs.safetensors", "--names", "headless")
    got = final()
    verdicts.expect(all(np.array_equal(got[n], body[n]) and np.array_equal(got[n + ".ema"], body[n]) for n in body)
                    and all(np.array_equal(got[n], fresh[n]) for n in ("head.weight", "head.bias", "head.bias.ema")), "a head that is not in the file")
    tensorfile.write(data / "bare.safetensors", {"body.weight": body["fc.weight"]})
    said = call("train", "--steps", 0, "--init", data / "bare.safetensors", "--names", "headless", allowed=(3,)).stdout
    verdicts.expect("the tensor `body.bias` (here `fc.bias`) is missing in it; of its names these are nearest: `body.weight`" in said,
                    "a body that lacks a tensor: " + said)
    # `train` trains it; what only reads says which parameters were never trained, and takes their initial values.
    for command in (("eval", "--on", "train"), ("predict", "--on", "train")):
        said = call(*command, "--init", data / "theirs.safetensors", "--names", "headless").stdout
        verdicts.expect("warning: %s/theirs.safetensors does not have head.weight, head.bias: they have their initial values" % data in said, said)
    logits = np.load(out / "predict/train/net.npy")
    hidden = np.maximum(np.load(data / "x.npy") @ body["fc.weight"].T + body["fc.bias"], 0)
    verdicts.expect(np.allclose(logits, hidden @ fresh["head.weight"].T + fresh["head.bias"], atol=1e-5), "initial values of a head")
    call("train", "--steps", 0, "--init", data / "theirs.safetensors", "--names", "headless")
    verdicts.expect("does not have" not in call("eval", "--on", "train").stdout, "a file of our own has all")
    inside = programs.source("headless", NET.replace("steps 4", 'steps 4; init "theirs.safetensors" names headless'))
    programs.call([programs.compiled(inside, "headless"), "--data", data, "--out", out, "--steps", 0])
    got = final()
    verdicts.expect(np.array_equal(got["fc.bias"], body["fc.bias"]) and np.array_equal(got["head.weight"], fresh["head.weight"]), "the program's own init")

    # Halves.
    for kind in ("F16", "BF16"):
        special = {n: v.copy() for n, v in fresh.items() if not n.endswith(".ema")}
        special["fc.bias"][:6] = [0.0, -0.0, 6.1e-5, 5.96e-8, 65504 if kind == "F16" else 3e38, -1.5]
        write_halves(data / "halves.safetensors", special, kind)
        call("train", "--steps", 0, "--init", data / "halves.safetensors")
        got = final()
        for name, value in special.items():
            bits = np.frombuffer(narrow(value, kind), np.float16 if kind == "F16" else np.uint16)
            exact = bits.astype(np.float32) if kind == "F16" else (bits.astype(np.uint32) << 16).view(np.float32)
            verdicts.expect(np.array_equal(got[name].ravel().view(np.uint32), exact.view(np.uint32)), "%s %s" % (kind, name))

    def refused(code, words, *flags):
        said = call("train", *flags, allowed=(code,)).stdout
        verdicts.expect(all(word in said for word in words), "%s says %s" % (" ".join(map(str, flags)), said))

    tensorfile.write(data / "other.safetensors", {"fc.weight": draw(8, 7), "fc.bias": draw(8)})
    tensorfile.write(data / "nothing.safetensors", {"a": draw(2)})
    init = lambda name: ("--init", data / (name + ".safetensors"))
    refused(3, ["`fc.weight` has shape [8, 7] in it, expected [8, 6]", '`"fc.weight" = "_"` and `"_" = "fc.weight"`'], *init("other"), "--partial")
    refused(3, ["no tensor of it has the name of a parameter of this program, such as `fc.weight`"], *init("nothing"), "--partial")
    refused(3, ["`old_head.weight` is no parameter of this program", "--names theirs"], *init("body"))
    tensorfile.write(data / "more.safetensors", {**theirs, "more": draw(2)})
    refused(3, ["`more` is no parameter of this program", '"_" = "more"` in `names headless` passes it over'], *init("more"), "--names", "headless")
    refused(3, ["`names theirs` does not say what `head.weight` is called in it"], *init("theirs"), "--names", "theirs")
    refused(3, ["the tensor `bdy.weight` (here `fc.weight`) is missing in it; of its names these are nearest: `body.weight`, "], *init("theirs"),
            "--names", "misspelt")
    (data / "pt.safetensors").write_bytes(b"PK\3\4" + bytes(200))
    (data / "old.safetensors").write_bytes(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9" + bytes(200))
    refused(3, ["it is a zip (PyTorch) file", "safetensors.torch.save_file(model.state_dict()"], *init("pt"))
    refused(3, ["it is a pickle (PyTorch) file"], *init("old"))
    refused(2, ["--names their: there is no such map; the program has theirs, headless, misspelt"], *init("theirs"), "--names", "their")
    refused(3, ["cannot open it: No such file or directory\n"], "--init", data / "nowhere.safetensors")
    refused(2, ["--names says what parameters are called in the file of --init"], "--names", "theirs")
    refused(2, ["--partial says how the file of --init is read"], "--partial")
    refused(3, ["cannot open it: No such file"], *init("nowhere"), "--partial")


NORMALIZED = """dim B = 4 batch, I = 3
data sales = npz("t.npz") -> (x: f32[B, I] normalize, y: f32[B])
names parameters { "l.weight" = "l.weight"; "l.bias" = "l.bias" }
names moved { "data.sales.*" = "data.train.*"; "*" = "*" }
names nothing { "data.*" = "_"; "*" = "*" }
model net(x: f32[B, I]) -> f32[B] { use l = linear[1]; return l(x)[.., 0] }
train net on sales seed 1 {
  loss = mean[B] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 5
}
"""


def normalized(data):
    """What data was normalized with has a name in a map, too. Training finds it in its data; an evaluation has it from the file alone."""
    np.savez(data / "t.npz", x=9 * np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), y=np.ones(8, np.float32))
    theirs = "\n".join(line for line in NORMALIZED.replace("sales", "train").split("\n") if not line.startswith("names"))
    other, exe = (programs.compiled(programs.source(name, text), name + "-exe") for name, text in (("theirs", theirs), ("ours", NORMALIZED)))
    left, out = programs.FOLDER / "normalized-theirs", programs.FOLDER / "normalized-out"
    programs.call([other, "--data", data, "--out", left, "--quiet"])
    evaluate = lambda exe, *flags, allowed=(0,): programs.call(
        [exe, "eval", "--data", data, "--out", out, "--init", left / "final.safetensors", *flags], allowed=allowed).stdout
    losses = [re.search(r"loss +(\S+)", evaluate(*each)).group(1) for each in ((other,), (exe, "--names", "moved"))]
    verdicts.expect(losses[0] == losses[1], "under another name of the data: %s" % losses)
    for name, words in (("parameters", "does not say what `data.sales.x.mean` is called in it"), ("nothing", "`data.sales.x.mean` is not in it")):
        said = evaluate(exe, "--names", name, allowed=(3,))
        verdicts.expect(words in said and "train with this file and `--steps 0`" in said, "%s: %s" % (name, said))
    said = programs.call([exe, "--data", data, "--out", out, "--init", left / "final.safetensors", "--names", "nothing", "--partial"]).stdout
    verdicts.expect("what is missing was found in the training data" in said and "initial values" not in said, said)


def main():
    for test in (gpt2, parts, normalized):
        data = programs.FOLDER / ("data-" + test.__name__)
        data.mkdir()
        test(data)


verdicts.run(main)
