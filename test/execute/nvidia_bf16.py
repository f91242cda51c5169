#!/usr/bin/python3
"""Programs with `precision bf16` for a GPU, executed on the CPU (standin.py): products run on tensor cores, whose sums are those of a
model of an A100's or an H100's (test/nvidia/TensorCore.h). On one kind of GPU no plan changes a bit; the parameters are near those
of the CPU's program, whose products add in another order. Faults planted into the kernels' copies, barriers and matrices are found.

usage: nvidia_bf16.py [NAME...]      a NAME chooses cases by a part of it
"""
import re

import numpy as np

import programs
import standin

verdicts = programs.Verdicts()

TEXT = """dim B = 4 batch, %(dims)s
data train = npz("t.npz") -> (x: %(x)s, y: %(y)s)
%(model)s
train net on train seed 3 {
  precision bf16(master = f32, accumulate = f32)
  loss = %(loss)s
  optimizer sgd(lr = 0.5)
  steps 2
  %(more)s
}
"""
PLANS = [["--microbatch", "1"], ["--microbatch", "4", "--remat", "all", "--order-seed", "2"]]


class Case:
    def __init__(self, name, dims, x, y, model, loss, plans=PLANS, more=""):
        self.name, self.plans = name, plans
        self.text = TEXT % dict(dims=dims, x=x, y=y, model=model, loss=loss, more=more)
        self.shapes = (x, y)


SQUARED = "mean[B, T, D] squared_error(net(x), y)"
CASES = [
    Case("products", "T = 64, D = 24, H = 72", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}",
         SQUARED, PLANS + [["--microbatch", "2", "--row-blocks", "32"]]),
    Case("odd sizes", "T = 33, D = 13, H = 67", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(gelu(up(x)))\n}", SQUARED),
    Case("large tiles", "T = 35, D = 136, H = 144", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}",
         SQUARED),
    Case("large tiles, odd rows", "T = 64, D = 136, H = 133", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}",
         SQUARED),
    Case("examples alone", "T = 1, D = 24, H = 40", "f32[B, D]", "f32[B, D]",
         "model net(x: f32[B, D]) -> f32[B, D] {\n  use up = linear[H], down = linear[D]\n  return down(dropout(relu(up(x)), 0.3))\n}",
         "mean[B, D] squared_error(net(x), y)"),
    Case("grain", "T = 40, D = 24, H = 40", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}",
         SQUARED, [["--microbatch", "2"], ["--microbatch", "4"]], "grain 2"),
    Case("transposed", "T = 24, D = 16", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use f = linear[D], g = linear[D]\n  p = f(x)\n  q = g(x)\n"
         "  s[b, t, u] = sum[d] p[b, t, d] * q[b, u, d]\n  o[b, t, d] = sum[u] s[b, u, t] * x[b, u, d]\n  return o\n}", SQUARED),
    Case("attention", "T = 20, D = 32", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use block = transformer_block[2, D](causal = true, rate = 0.1)\n"
         "  return block(x)\n}", SQUARED),
    Case("convolutions", "T = 8, D = 6", "f32[B, D, T, T]", "f32[B]",
         "model net(x: f32[B, D, T, T]) -> f32[B] {\n  use c = conv[16, 3], e = conv[24, 3, 2], out = linear[1]\n"
         "  h = relu(e(max_pool2d(relu(c(x)), 2)))\n  p[b, f] = mean[i, j] h[b, f, i, j]\n  o = out(p)\n  return o[:, 0]\n}",
         "mean[B] squared_error(net(x), y)"),
    Case("long rows of odd length", "T = 3, D = 24, V = 531", "f32[B, T, D]", "i32[B, T] below V",
         "model net(x: f32[B, T, D]) -> f32[B, T, V] {\n  use up = linear[V], norm = layer_norm, out = linear[V]\n"
         "  return out(dropout(gelu_tanh(norm(up(x))), 0.1))\n}", "mean[B, T] cross_entropy(net(x), y)"),
    Case("padded rows between products", "T = 64, D = 24, H = 533", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}",
         SQUARED, PLANS + [["--microbatch", "2", "--row-blocks", "32"]]),
    Case("padded rows without positions", "T = 1, D = 24, V = 515", "f32[B, D]", "i32[B] below V",
         "model net(x: f32[B, D]) -> f32[B, V] {\n  use up = linear[V](with_bias = false), out = linear[V]\n  return out(tanh(up(x)))\n}",
         "mean[B] cross_entropy(net(x), y)"),
    Case("parts of padded rows", "T = 9, U = 8, D = 24, V = 519", "f32[B, T, D]", "i32[B, U] below V",
         "model net(x: f32[B, T, D]) -> f32[B, T, V] {\n  use out = linear[V](with_bias = false)\n  return out(x)\n}",
         "mean[B, U] cross_entropy(net(x)[:, 0 : U], y)"),
    Case("rows that are parts of longer ones", "T = 5, D = 24, V = 517", "f32[B, T, D]", "i32[B, T] below V",
         "model net(x: f32[B, T, D]) -> f32[B, T, V] {\n  use out = linear[V](with_bias = false)\n  return out(x)\n}",
         "mean[B, T] cross_entropy(net(x), y) + 0.01 * (mean[B, T, V] squared_error(net(x), 0))"),
    Case("column sums in blocks of rows", "T = 256, D = 24, H = 72", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use norm = layer_norm, up = linear[H], down = linear[D]\n"
         "  return down(relu(up(norm(x))))\n}",
         SQUARED, PLANS + [["--microbatch", "2", "--row-blocks", "64"], ["--microbatch", "1", "--row-blocks", "32"]]),
    Case("flags drawn by eight threads", "T = 6, D = 24, H = 192", "f32[B, T, D]", "f32[B, T, D]",
         "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(dropout(relu(up(x)), 0.3))\n}",
         SQUARED),
    Case("gathers, a loop", "T = 7, D = 16, V = 11", "i32[B, T] below V", "i32[B] below 3",
         "model net(x: i32[B, T] below V) -> f32[B, 3] {\n  use table = embedding[V, D], cell = lstm[D], out = linear[3]\n"
         "  h = cell(table(x))\n  return out(h[:, T - 1])\n}", "mean[B] cross_entropy(net(x), y)"),
]


def array(text, sizes, draw):
    words = text.replace("]", "[").split("[")
    shape = [8] + [sizes[name.strip()] for name in words[1].split(",")[1:]]
    if words[0] == "i32":
        below = words[2].split()[-1]
        return draw.integers(0, sizes.get(below) or int(below), shape).astype("i4")
    return draw.standard_normal(shape).astype("f4")


def made(number, case, seed):
    """The source of a case and the folder of its data, drawn from `seed`."""
    sizes = {name.strip(): int(size) for name, size in (part.split("=") for part in case.text.split("\n")[0][len("dim B = 4 batch, "):].split(","))}
    folder = programs.FOLDER / ("data%d" % number)
    folder.mkdir()
    draw = np.random.default_rng(seed)
    np.savez(folder / "t.npz", x=array(case.shapes[0], sizes, draw), y=array(case.shapes[1], sizes, draw))
    return programs.source("bf%d" % number, case.text), folder


def check(entry, kinds=None, most=0.02, settings=(), every_plan=False):
    """`kinds`: targets; without them an A100, or an H100, or both. `most`: the share of its movement that a parameter may be off the CPU's. `settings`
    are flags that say what is computed. `every_plan`: on each target, not on the first one alone. What the CPU's program leaves."""
    number, case = entry
    source, folder = made(number, case, number)
    run = ["--data", folder, "--quiet"]

    exe = programs.compiled(source, "cpu%d" % number, *settings)

    def cpu(name, *flags):
        out = programs.FOLDER / (name + "-out")
        programs.call([exe, *run, "--out", out, *flags])
        return programs.tensorfile.read(out / "final.safetensors")

    near, start = cpu("cpu%d" % number), cpu("start%d" % number, "--set", "lr=0")
    usual = ("a100", "sm_90") if case.name == "products" else ("sm_90",) if number % 2 else ("a100",)
    for turn, kind in enumerate(kinds or usual):
        first = None
        for place, plan in enumerate(case.plans[:1] if turn and not every_plan else case.plans):
            name = "bf%d-%s-%d" % (number, kind, place)
            built = standin.Program(source, name, *settings, *plan, target="nvidia:" + kind)
            out = programs.FOLDER / (name + "-out")
            built.run(*run, "--out", out, seed=number + place, tensor="a100" if kind == "a100" else "h100", banks=1, devices=2)
            data = (out / "final.safetensors").read_bytes()
            first = first or data
            verdicts.expect(data == first, "%s on %s: other bits under %s" % (case.name, kind, " ".join(plan)))
        found = programs.tensorfile.read(out / "final.safetensors")
        for path in found:
            moved = np.abs(near[path] - start[path]).max() or 1.0
            apart = np.abs(found[path] - near[path]).max() / moved
            verdicts.expect(apart < most, "%s on %s: %s is %.3g of its movement off the CPU's" % (case.name, kind, path, apart))
    return programs.FOLDER / ("cpu%d-out" % number) / "final.safetensors"


FAULTS = {"wait": "void @llvm.nvvm.cp.async.wait.group", "copy": "void @llvm.nvvm.cp.async.c", "source": "void @llvm.nvvm.cp.async.c",
          "matrix": "@llvm.nvvm.ldmatrix", "barrier": "void @llvm.nvvm.barrier"} # how what each is done to is called


def planted_faults(names=FAULTS, settings=()):
    """A wait for one group too few, a copy or a matrix 16 bytes beside, a copy from behind the arena, a barrier left out: each is found where
    it lies in a kernel that runs, as an access while a copy is on its way, a race, an access outside of the arena, or other bits. A factor that is not
    rounded to tf32 is found where it is multiplied."""
    case = next(case for case in CASES if case.name == "products")
    source, folder = programs.source("faults", case.text), programs.FOLDER / "faults-data"
    folder.mkdir()
    draw = np.random.default_rng(1)
    np.savez(folder / "t.npz", x=draw.standard_normal((8, 64, 24)).astype("f4"), y=draw.standard_normal((8, 64, 24)).astype("f4"))
    built = standin.Program(source, "faults", *settings, "--microbatch", "1")
    run = ["--data", folder, "--quiet", "--steps", "1"]
    wanted = programs.FOLDER / "faults-out"
    built.run(*run, "--out", wanted)
    ir = (programs.FOLDER / "faults.ll").read_text()
    counts = {kind: len([line for line in ir.splitlines() if "call " in line and name in line]) for kind, name in names.items()}
    verdicts.expect(min(counts.values()) > 0, "no place for a fault: %s" % counts)

    def plant(kind, number):
        ended, left = built.run_with_fault(kind, number, *run)
        said = re.search("on its way|a race on|outside of the arena|not rounded to tf32", ended.stdout)
        right = left == (wanted / "final.safetensors").read_bytes()
        beside = kind in ("copy", "matrix") # other elements of the same tile
        verdicts.expect(right or ended.returncode != 0 or beside, "%s %d: wrong bits, but nobody complains" % (kind, number))
        return (ended.returncode == 99 and said) or (beside and not right)

    found = standin.faults_found(plant, {kind: standin.spread(range(1, count + 1), 3) for kind, count in counts.items()})
    verdicts.expect(min(found.values()) > 0 and sum(found.values()) >= 8, "too few faults were found: %s" % found)


if __name__ == "__main__":
    verdicts.run(lambda: standin.try_cases(CASES, check, planted_faults))
