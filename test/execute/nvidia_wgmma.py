#!/usr/bin/python3
"""Products by wgmma (`--target nvidia:sm_90a`), executed on the CPU (standin.py): descriptions of matrices, swizzled lines, barriers' phases,
products that go on by themselves and copies of boxes by maps of tensors (TMA) are modelled after the PTX manual (test/nvidia/standin.cpp); what is
added, as for mma.sync. The cases are those of nvidia_bf16.py without convolutions, and some whose tiles are many or wide, or whose examples end
within a box. Planted faults are found.

usage: nvidia_wgmma.py [NAME...]      a NAME chooses cases by a part of it
"""

import numpy as np

import nvidia_bf16 as bf16
import programs
import standin

verdicts = bf16.verdicts
TARGET = "sm_90a"
MODEL = "model net(x: f32[B, T, D]) -> f32[B, T, D] {\n  use up = linear[H], down = linear[D]\n  return down(relu(up(x)))\n}"
# Sums over two indices that lie otherwise in one operand than in the other: no map names their places as one axis.
TWO_INDICES = """model net(x: f32[B, T, D]) -> f32[B, T, D] {
  use up = linear[H], down = linear[D]
  param u: f32[D, 2, 32] ~ normal(0.1)
  param w: f32[32, 2, D] ~ normal(0.1)
  p[b, t, i, j] = sum[d] x[b, t, d] * u[d, i, j]
  q[b, t, d] = sum[i, j] p[b, t, i, j] * w[j, i, d]
  return down(relu(up(x))) + q
}"""
F32 = ("f32[B, T, D]", "f32[B, T, D]")
CASES = [case for case in bf16.CASES if case.name != "convolutions"] + [
    bf16.Case("stages go round", "T = 130, D = 392, H = 72", *F32, MODEL, bf16.SQUARED, [["--microbatch", "1"], ["--microbatch", "4"]]),
    bf16.Case("two indices of k", "T = 70, D = 200, H = 72", *F32, TWO_INDICES, bf16.SQUARED),
    bf16.Case("more tiles than blocks", "T = 4240, D = 8, H = 16", *F32, MODEL, bf16.SQUARED, [["--microbatch", "4"]]),
    bf16.Case("ends within boxes", "T = 201, D = 72, H = 136", *F32, MODEL, bf16.SQUARED,
              [["--microbatch", "1"], ["--microbatch", "4"], ["--microbatch", "2", "--remat", "all", "--order-seed", "2"]]),
    bf16.Case("grains of boxes", "T = 72, D = 136, H = 264", *F32, MODEL, bf16.SQUARED, [["--microbatch", "2"], ["--microbatch", "4"]], "grain 2"),
    # 66 rows of tiles, of which 132 multiprocessors have a tile of 160 columns or less each; 63 columns of tiles, in two rows.
    bf16.Case("tiles of 160 columns", "T = 2112, D = 16, H = 320", *F32, MODEL, bf16.SQUARED, [["--microbatch", "4"]]),
    bf16.Case("tiles of 144 columns", "T = 2, D = 9000, H = 136", *F32, MODEL, bf16.SQUARED, [["--microbatch", "4"], ["--microbatch", "1"]]),
    bf16.Case("wide tiles", "T = 2112, D = 16, H = 512", *F32, MODEL, bf16.SQUARED, [["--microbatch", "4"]]),
]


def planted_faults():
    """Waits, arrivals, fences and copies that are left out or moved, matrices described in another way: each kind is found in a kernel that runs, by
    the stand-in, as numbers that are not finite, or as other bits."""
    sizes = dict(T=70, D=200, H=72)
    case = bf16.Case("faults", "T = 70, D = 200, H = 72", *F32, TWO_INDICES, bf16.SQUARED)
    source, folder = programs.source("wgmma-faults", case.text), programs.FOLDER / "wgmma-faults-data"
    folder.mkdir()
    draw = np.random.default_rng(1)
    shape = (8, sizes["T"], sizes["D"])
    np.savez(folder / "t.npz", x=draw.standard_normal(shape).astype("f4"), y=draw.standard_normal(shape).astype("f4"))
    built = standin.Program(source, "wgmma-faults", "--microbatch", "1", target="nvidia:" + TARGET)
    run = ["--data", folder, "--quiet", "--steps", "1"]
    wanted = programs.FOLDER / "wgmma-faults-out"
    built.run(*run, "--out", wanted)
    ir = (programs.FOLDER / "wgmma-faults.ll").read_text()
    names = {"phase": "mbarrier.try_wait", "arrive": "mbarrier.arrive", "show": "fence.proxy.async", "products": "wgmma.wait_group",
             "swizzle": "wgmma.mma_async", "lines": "wgmma.mma_async", "turned": "wgmma.mma_async", "barrier": "llvm.nvvm.barrier",
             "copy": "llvm.nvvm.cp.async.cg", "source": "llvm.nvvm.cp.async.cg", "wait": "llvm.nvvm.cp.async.wait.group",
             "bytes": "mbarrier.expect_tx", "box": "cp.async.bulk.tensor", "end": "cp.async.bulk.tensor", "place": "cp.async.bulk.tensor"}
    counts = {kind: len([line for line in ir.splitlines() if " call " in line and name in line]) for kind, name in names.items()}
    verdicts.expect(min(counts.values()) > 0, "no place for a fault: %s" % counts)

    def plant(kind, number):
        ended, left = built.run_with_fault(kind, number, *run)
        return ended.returncode in (4, 99) or (ended.returncode == 0 and left != (wanted / "final.safetensors").read_bytes())

    found = standin.faults_found(plant, {kind: standin.spread(range(1, count + 1), 5) for kind, count in counts.items()})
    # Lines of the maps that the driver makes are swizzled in another way.
    ended = built.run(*run, "--out", programs.FOLDER / "wgmma-maps-out", allowed=range(256), maps="64")
    left = programs.FOLDER / "wgmma-maps-out" / "final.safetensors"
    verdicts.expect(ended.returncode in (4, 99) or left.read_bytes() != (wanted / "final.safetensors").read_bytes(), "maps: a fault was not found")
    # Of the five places of a kind some are in kernels that this step does not run, or on a way that it does not take.
    verdicts.expect(min(found.values()) > 0, "a kind of fault was not found: %s" % found)


if __name__ == "__main__":
    verdicts.run(lambda: standin.try_cases(CASES, lambda entry: bf16.check(entry, (TARGET,)), planted_faults))
