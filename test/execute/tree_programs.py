"""The programs of the tree at tiny sizes, with drawn data: what tests of bits run (recorded_bits.py, stages.py)."""
import numpy as np

import gradcheck
import programs

ROOT = programs.HERE.parent.parent
FREE, TIGHT = [], ["--remat", "all", "--microbatch", "1"]
BOTH = [FREE, TIGHT]
HALF = ["--remat", "sqrt", "--microbatch", "2"]
GRAIN = ["--set", "train.grain=2"]
F64 = ["--set", "train.precision=f64"]


class Program:
    """`sizes` shrink it, `settings` are part of what it computes, `plans` is not: flags of two plans, the first chosen freely."""

    def __init__(self, name, path, data, sizes="", settings=(), plans=BOTH, text=None):
        self.name, self.path, self.data, self.text = name, path, data, text
        self.flags = [word for size in sizes.split() for word in ("-D", size)] + list(settings)
        self.plans = plans


# ---- Data: RandomState's stream never changes ------------------------------------------------------------------------


def pictures(side, names, classes=10):
    def write(folder, draw):
        for images, labels in names:
            programs.write_idx(folder / images, draw.randint(0, 256, (40, side, side)).astype(np.uint8))
            programs.write_idx(folder / labels, draw.randint(0, classes, 40).astype(np.uint8))

    return write


def text(folder, draw):
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_bytes(draw.randint(0, 64, 3000).astype(np.uint8).tobytes())


def tokens(folder, draw):
    for name in ("train.bin", "valid.bin"):
        (folder / name).write_bytes(draw.randint(0, 64, 3000).astype("<u2").tobytes())


def vectors(width):
    def write(folder, draw):
        np.save(folder / "x.npy", draw.uniform(-1, 1, (40, width)).astype(np.float32))
        np.save(folder / "y.npy", draw.randint(0, 10, 40).astype(np.int32))

    return write


def labelled_images(folder, draw):
    np.save(folder / "x.npy", draw.uniform(-1, 1, (40, 3, 8, 8)).astype(np.float32))
    np.save(folder / "y.npy", draw.randint(0, 5, 40).astype(np.int32))


def pairs(folder, draw):
    for name in ("x.npy", "y.npy"):
        np.save(folder / name, draw.uniform(-1, 1, (40, 6)).astype(np.float32))


def sequences(*names):
    def write(folder, draw):
        fields = {
            "text": draw.randint(0, 50, (40, 8)),
            "segment": draw.randint(0, 2, (40, 8)),
            "length": draw.randint(1, 9, 40),
        }
        for name in names:
            np.savez(folder / name, **{key: value.astype(np.int32) for key, value in fields.items()})

    return write


def masked(folder, draw):
    labels = draw.randint(0, 3, (40, 5)).astype(np.int32)
    labels[draw.uniform(size=labels.shape) < 0.2] = 255
    np.savez(folder / "t.npz", x=draw.uniform(-1, 1, (40, 5, 3)).astype(np.float32), y=labels,
             w=draw.uniform(0.1, 0.9, (40, 3)).astype(np.float32))


def lengths(folder, draw):
    np.savez(folder / "t.npz", x=draw.uniform(-1, 1, (40, 8, 16)).astype(np.float32),
             length=draw.randint(1, 9, 40).astype(np.int32))


# ---- Programs --------------------------------------------------------------------------------------------------------

# Everything of it is a sum, a product, a root or a maximum.
PLAIN = """dim B = 6 batch, T = 5, D = 13, H = 17
data train = npy("x.npy", "y.npy") -> (x: f32[B, T, D], y: f32[B, T, D])
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use norm = layer_norm, up = linear[H], down = linear[D]
  param tied: f32[D, D] ~ orthogonal(1)
  h = norm(x @ tied)
  return down(dropout(relu(up(h)), 0.2)) @ tied' + h
}
train net on train seed 3 {
  loss      = mean[B, T, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.1, momentum = 0.9, nesterov = true, decay = 1e-3 except "*.bias")
  clip      norm(0.1)
  steps     3
}
"""


def plain_data(folder, draw):
    for name in ("x.npy", "y.npy"):
        np.save(folder / name, draw.uniform(-1, 1, (40, 5, 13)).astype(np.float32))


def bert_text():
    """The masked language model, divided by a constant: by the number that a mask decides is not there yet."""
    words = (ROOT / "test/frontend/language/models/bert.cinch").read_text()
    return words.replace("loss         = mean[B, T where chosen] cross_entropy(logits, text)",
                         "loss         = sum[B, T where chosen] cross_entropy(logits, text) / (B * T)")


MNIST = [("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")]
SMALL_GPT = "B=4 T=9 V=64 D=24 A=3"
PROGRAMS = [
    Program("examples/mlp", "examples/mlp/mlp.cinch", pictures(6, MNIST), "B=8 I=36 H=19"),
    Program("examples/gpt", "examples/gpt/gpt.cinch", text, "B=4 T=10 V=64 D=24 A=3 N=1"),
    Program("examples/gpt, f64", "examples/gpt/gpt.cinch", text, "B=4 T=10 V=64 D=24 A=3 N=1", F64, [TIGHT]),
    Program("mlp", "test/execute/mlp.cinch", pictures(8, [("images", "labels")]), "B=12"),
    Program("mlp, grain", "test/execute/mlp.cinch", pictures(8, [("images", "labels")]), "B=12", GRAIN, [FREE, HALF]),
    Program("gpt", "test/execute/gpt.cinch", text, SMALL_GPT, (), [FREE]),
    Program("gpt, row blocks", "test/execute/gpt.cinch", text, SMALL_GPT + " N=1", (), [[*HALF, "--row-blocks", "3"]]),
    Program("gpt, grain", "test/execute/gpt.cinch", text, SMALL_GPT + " N=1", GRAIN, [[*HALF, "--row-blocks", "18"]]),
    Program("chain", "bench/models/chain.cinch", vectors(24), "B=8 W=24 N=5"),
    Program("deep", "bench/models/deep.cinch", vectors(20), "B=8 W=20 N=3"),
    Program("bench gpt", "bench/models/gpt.cinch", text, "B=4 T=12 V=64 D=30 A=5 N=1", (), [TIGHT]),
    Program("gpt2", "bench/models/gpt2_124m.cinch", tokens, "B=4 T=16 V=64 D=24 A=2 N=1"),
    Program("bert", None, sequences("wiki-train.npz", "wiki-valid.npz"), "B=8 T=8 V=110 D=24 A=2 N=1", (), BOTH, bert_text()),
    Program("vae", "test/frontend/language/models/vae.cinch", pictures(6, [("train-images", "l"), ("test-images", "l")]),
            "B=8 I=36 H=19 Z=5"),
    Program("losses", "test/frontend/checked/losses.cinch", masked),
    Program("norms", "test/frontend/checked/norms.cinch", lengths, "", (), [TIGHT]),
    Program("sums and roots", None, plain_data, "", (), BOTH, PLAIN),
    Program("sums and roots, f64", None, plain_data, "", F64, [FREE, HALF], PLAIN),
    Program("sums and roots, grain", None, plain_data, "", GRAIN, [FREE, HALF], PLAIN),
]
# Cases of gradcheck.py, by name, as programs of f32 with AdamW.
CASES = [
    "element-wise gelu(u)", "element-wise u ^ p", "element-wise mish(u)", "reshape of a parameter", "concat",
    "gather by data, along the last axis", "reduce mean[I]", "reduce prod[J]", "softmax over another axis",
    "cross_entropy, smooth", "matmul of parameters", "contraction of two axes", "a layer called twice", "rope", "attend, bias",
    "attend, grouped heads", "attend, dropout", "drop_path", "random_normal", "draws without examples",
]


def case_program(case, number):
    words = gradcheck.text_of(case).replace("sgd(lr = 1)", "adamw(lr = 0.01, decay = 0.1)").replace("steps      1\n", "steps 3\n")

    def write(folder, draw):
        x = draw.uniform(0.4, 1.6, (gradcheck.B, gradcheck.I, gradcheck.J))
        np.save(folder / "x.npy", x * (1 if case.positive else draw.choice([-1, 1], x.shape)))
        np.save(folder / "r.npy", draw.normal(size=[gradcheck.B] + [gradcheck.size(a) for a in case.axes.split() if a != "B"]))
        if case.more:
            axis, limit = gradcheck.LIMITS[case.more]
            np.save(folder / "ids.npy", draw.randint(0, limit, (gradcheck.B, gradcheck.size(axis))).astype(np.int32))

    grained = number % 3 == 0
    return Program("case " + case.name, None, write, "", GRAIN if grained else (),
                   [FREE, HALF if grained else TIGHT], words)


# Every op of images: groups of three examples stay together.
IMAGES = [Program(name, "test/execute/windows.cinch", labelled_images, "", settings, [FREE, ["--remat", "all", "--microbatch", "3"]])
          for name, settings in (("images", ()), ("images, bf16", ("--set", "train.precision=bf16")))]


def all_programs():
    cases = {case.name: case for case in gradcheck.all_cases()}
    return PROGRAMS + [case_program(cases[name], number) for number, name in enumerate(CASES)]


def prepared(program, name):
    """(source, folder of its data)"""
    folder = programs.FOLDER / name
    folder.mkdir()
    program.data(folder, np.random.RandomState(1))
    return ROOT / program.path if program.path else programs.source(name, program.text), folder
