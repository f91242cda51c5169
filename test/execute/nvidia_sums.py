#!/usr/bin/python3
"""Column sums of bf16 programs for a GPU, executed on the CPU (standin.py): sums of 32 rows of an example each, one after the other, whatever the
columns, the micro-batch, the budget and the order of threads; the bits are those that NumPy finds. What two launches hand to one
another lies where the plan has room for it. Barriers left out between the values of a batch and their sum are found.

usage: nvidia_sums.py [NAME...]      a NAME chooses cases by a part of it
"""
import re

import numpy as np

import programs
import standin

verdicts = programs.Verdicts()

# The gradient of `shift` is the column sum of y / 4, which is rounded nowhere: y holds bf16.
TEXT = """dim B = 4 batch, T = %(T)d, D = %(D)d
data train = npz("t.npz", shuffle = false) -> (x: f32[B, T, D], y: f32[B, T, D])
model net(x: f32[B, T, D]) -> f32[B, T, D] {
  param scale: f32[D] ~ ones
  param shift: f32[D] ~ zeros
  %(weights)s
  return %(result)s
}
train net on train seed 3 {
  precision bf16(master = f32, accumulate = f32)
  o = net(x)
  s[b] = sum[t, d] o[b, t, d] * y[b, t, d]
  loss = mean[b] s[b]
  optimizer sgd(lr = 0.5)
  steps 1
  %(more)s
}
"""
PLAIN, DROPPED = "x * scale + shift", "dropout(gelu(x * scale), 0.3) + shift"
PRODUCT = "(scale * x)[:, :, :8] @ weight' + shift" # what a product reads, too, lies in memory as bf16
MICROBATCHES = [["--microbatch", str(n)] for n in (4, 2, 1)]


class Case:
    def __init__(self, name, T, D, plans=MICROBATCHES, result=PLAIN, more="", rows=32):
        self.name, self.T, self.D, self.plans, self.rows = name, T, D, plans, rows
        weights = "param weight: f32[D, 8] ~ normal(0.1)" if result == PRODUCT else ""
        self.text = TEXT % dict(T=T, D=D, result=result, more=more, weights=weights)


CASES = [
    Case("four and two columns a thread", 4096, 1032),
    Case("eight columns a thread", 4096, 1032, result=PRODUCT),
    Case("few columns, whole blocks of threads for the sums of blocks", 640, 24, MICROBATCHES + [["--microbatch", "4", "--order-seed", "5"]]),
    Case("odd columns", 96, 37),
    Case("a block an example", 32, 24),
    Case("summands that draw and divide", 256, 144, result=DROPPED),
    Case("rows that 32 does not divide", 48, 40, rows=4 * 48),
    Case("grain", 64, 40, [["--microbatch", "4"], ["--microbatch", "2"]], more="grain 2", rows=2 * 64),
]


def blocks(y, rows):
    """Of rows: sums of so many at a time, from 0, one after the other, then of these."""
    total = np.zeros(y.shape[-1], "f4")
    for block in y.reshape(-1, rows, y.shape[-1]):
        part = np.zeros_like(total)
        for row in block:
            part += row
        total += part
    return total


def made(number, case):
    folder, draw = programs.FOLDER / ("sums%d-data" % number), np.random.default_rng(number)
    folder.mkdir()
    x, y = (draw.standard_normal((4, case.T, case.D)).astype("f4") for _ in range(2))
    y = (y.view("u4") & 0xFFFF0000).view("f4")
    np.savez(folder / "t.npz", x=x, y=y)
    return programs.source("sums%d" % number, case.text), folder, y


def check(entry):
    number, case = entry
    source, folder, y = made(number, case)
    wanted = -np.float32(0.5) * blocks(y / np.float32(4), case.rows)
    refused = programs.compiled(source, "refused%d" % number, "--target", "nvidia", "--memory-budget", "100", allowed=(1,))
    least = re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout).group(1)
    first = None
    for place, plan in enumerate([*case.plans, ["--memory-budget", least]]):
        name = "sums%d-%d" % (number, place)
        out = programs.FOLDER / (name + "-out")
        standin.Program(source, name, *plan).run("--data", folder, "--quiet", "--out", out, seed=number + place)
        data = (out / "final.safetensors").read_bytes()
        first = first or data
        verdicts.expect(data == first, "%s: other bits under %s" % (case.name, " ".join(plan)))
        (shift,) = (value for path, value in programs.tensorfile.read(out / "final.safetensors").items() if path.endswith("shift"))
        verdicts.expect(shift.tobytes() == wanted.tobytes(), "%s, %s: not the sums of blocks" % (case.name, " ".join(plan)))


def planted_faults():
    """Each barrier of the second launch is left out in turn: it is a race, or stays without an effect."""
    number, case = next(entry for entry in enumerate(CASES) if "few columns" in entry[1].name)
    source, folder, _ = made(len(CASES), case)
    built = standin.Program(source, "faults", "--microbatch", "4")
    run = ["--data", folder, "--quiet"]
    wanted = programs.FOLDER / "faults-out"
    built.run(*run, "--out", wanted)
    ir, kernel, place, inside = (programs.FOLDER / "faults.ll").read_text(), "", 0, []
    for line in ir.splitlines():
        if line.startswith("define"):
            kernel = re.search(r"@(\w+)", line).group(1)
        if "call void @llvm.nvvm.barrier" in line:
            place += 1
            if kernel.endswith("_then"):
                inside.append(place)
    verdicts.expect(len(inside) >= 3, "the second launch has %d barriers" % len(inside))
    found = []

    def plant(barrier):
        ended, left = built.run_with_fault("barrier", barrier, *run)
        right = left == (wanted / "final.safetensors").read_bytes()
        verdicts.expect(right or ended.returncode != 0, "barrier %d: wrong bits, but nobody complains" % barrier)
        found.append(ended.returncode == 99 and "a race on" in ended.stdout)

    programs.in_parallel(plant, inside)
    verdicts.expect(sum(found) >= 2, "%d of %d barriers that are left out are found" % (sum(found), len(found)))


if __name__ == "__main__":
    verdicts.run(lambda: standin.try_cases(CASES, check, planted_faults))
