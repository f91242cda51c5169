#!/usr/bin/python3
"""Programs with `precision tf32`. On a CPU they leave the bits of `precision f32`. For a GPU, executed on the CPU (standin.py), products run on tensor
cores, whose sums are those of a model of an A100's or an H100's (test/nvidia/TensorCore.h): on one kind of GPU no plan changes a bit, and the
parameters are near the CPU's. No words that lanes read from shared memory together lie in the same banks. A rounding left out is found,
as other faults are.

The cases are those of nvidia_bf16.py, and some that only a product of f32 has.
usage: nvidia_tf32.py [NAME...]      a NAME chooses cases by a part of it
"""
import copy
import shutil

import nvidia_bf16 as bf16
import programs
import standin

verdicts = bf16.verdicts
TF32 = ["--set", "train.precision=tf32"]
F32 = ["--set", "train.precision=f32"]
MOST = 0.003 # of a parameter's movement: factors are within 2^-11, those of bf16 within 2^-9
ROWS = ("f32[B, T, D]", "f32[B, T, D]")
# Operands in all four orders, batched, with one index of k and with two, and a factor without examples.
ORDERS = """model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use f = linear[D], g = linear[D]
  param u: f32[D, 3, 5] ~ normal(0.2)
  param w: f32[5, D, 3] ~ normal(0.2)
  p = f(x)
  q = g(x)
  s[b, t, e] = sum[d] p[b, t, d] * q[b, e, d]
  o[b, t, d] = sum[e] tanh(s[b, e, t]) / T * x[b, e, d]
  a[b, t, i, j] = sum[d] o[b, t, d] * u[d, i, j]
  c[b, t, d] = sum[i, j] a[b, t, i, j] * w[j, d, i]
  return tanh(c) + o
}"""
# A table of images: dilations, groups, strides, channels that are no multiple of four, and a convolution of each channel by itself.
IMAGES = """model net(x: f32[B, D, T, T]) -> f32[B] {
  use c = conv[10, 3], e = conv[12, 3, 2, g = 2], f = conv[12, 3, g = 12], last = conv[6, 3], out = linear[1]
  param w: f32[6, 6, 2, 2] ~ normal(0.3)
  h = tanh(conv2d(last(tanh(f(tanh(e(tanh(c(x))))))), w, dilate = 2))
  p[b, k] = mean[i, j] h[b, k, i, j]
  o = out(p)
  return o[:, 0]
}"""
LINEAR = "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(tanh(up(x)))\n}"
WORKERS = [[], ["--stages", "2"], ["--replicas", "2"]]
GPT = """model net(x: i32[B, T] below V) -> f32[B, T, V] {
  use table = embedding[V, D], block = transformer_block[2, D](causal = true, rate = 0.1), norm = layer_norm, out = linear[V]
  return out(norm(block(table(x))))
}"""

def smooth(case):
    """A case without the edges of relu and of a largest number: on which side of them a number is would depend on how factors are rounded."""
    case = copy.copy(case)
    case.text = case.text.replace("relu(", "tanh(").replace("max_pool2d(", "avg_pool2d(")
    return case


CASES = [*map(smooth, bf16.CASES),
         bf16.Case("orders", "T = 21, D = 12", *ROWS, ORDERS, bf16.SQUARED, bf16.PLANS + [["--microbatch", "2"]]),
         bf16.Case("images", "T = 9, D = 3", "f32[B, D, T, T]", "f32[B]", IMAGES, "mean[B] squared_error(net(x), y)"),
         bf16.Case("a GPT, rows in blocks", "T = 64, D = 24, V = 101", "i32[B, T] below V", "i32[B, T] below V", GPT,
                   "mean[B, T] cross_entropy(net(x), y)", bf16.PLANS + [["--microbatch", "2", "--row-blocks", "32"]]),
         bf16.Case("examples alone, grains", "T = 1, D = 24, H = 40", "f32[B, D]", "f32[B, D]", LINEAR.replace("B, T, D", "B, D"),
                   "mean[B, D] squared_error(net(x), y)", [["--microbatch", "2"], ["--microbatch", "4"]], "grain 2"),
         bf16.Case("several workers", "T = 24, D = 24, H = 40", *ROWS, LINEAR, bf16.SQUARED, WORKERS),
         bf16.Case("several workers, grains", "T = 24, D = 24, H = 40", *ROWS, LINEAR, bf16.SQUARED, WORKERS, "grain 2")]


def check(entry):
    left = bf16.check(entry, most=MOST, settings=TF32)
    number, case = entry
    source, out = programs.source("bf%d" % number, case.text), programs.FOLDER / ("f32-%d-out" % number)
    programs.call([programs.compiled(source, "f32-%d" % number, *F32), "--data", programs.FOLDER / ("data%d" % number), "--quiet", "--out", out])
    verdicts.expect(left.read_bytes() == (out / "final.safetensors").read_bytes(), "%s: on a CPU the bits are not those of f32" % case.name)


def resumed():
    """A checkpoint of the program of f32 is one of tf32, on a CPU and on a GPU."""
    case = bf16.Case("resumed", "T = 8, D = 12, H = 20", *ROWS, LINEAR, bf16.SQUARED, more='every 1 checkpoint("run", keep = 3)')
    source, folder = bf16.made(300, case, 1)
    data, plain = ["--data", folder, "--quiet"], programs.FOLDER / "resumed-f32"
    programs.call([programs.compiled(source, "resumed-f32-exe", *F32), *data, "--steps", "1", "--out", plain])
    for name, target in (("cpu", None), ("gpu", "nvidia")):
        out = programs.FOLDER / ("resumed-" + name)
        shutil.copytree(plain, out)
        words = [*data, "--out", out, "--resume", "--steps", "2"]
        if target:
            said = standin.Program(source, "resumed-gpu-exe", *TF32, target=target).run(*words, allowed=range(256))
        else:
            said = programs.call([programs.compiled(source, "resumed-cpu-exe", *TF32), *words], allowed=range(256))
        verdicts.expect(said.returncode == 0, "a checkpoint of f32 in tf32, %s: exit code %d\n%s" % (name, said.returncode, said.stdout))


def planted_faults():
    resumed()
    bf16.planted_faults({**bf16.FAULTS, "rounding": "@llvm.nvvm.f2tf32.rna"}, TF32)


if __name__ == "__main__":
    verdicts.run(lambda: standin.try_cases(CASES, check, planted_faults))
