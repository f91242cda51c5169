#!/usr/bin/python3
"""Kernels' objects are kept: compiling again after a change that leaves kernels as they are generates none of them; the executables are
the same with and without the cache and on any number of processors; damaged entries are made anew; the folder keeps its size."""
import os
import pathlib
import time

import programs

PROGRAM = """
dim B = 16 batch, T = 32, V = 128, D = 64
data train = text("t.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model lm(x: i32[B, T] below V) -> f32[B, T, V] {
  use e = embedding[V, D], b = repeat 2 transformer_block[2, 4 * D](causal = true, rate = 0.1, init = normal(0.02), init_out = normal(0.02)),
      out = linear[V]
  return out(b(e(x)))
}
train lm on train seed 3 {
  loss = mean[B, T] cross_entropy(lm(text[:, :T]), text[:, 1:])
  optimizer adamw(lr = 1e-3, decay = 0.1)
  steps 4
}
"""
verdicts = programs.Verdicts()
CACHE = programs.FOLDER / "cache"
FOLDER = CACHE / "cinch/kernels"


def compiled(text, name, *flags, one=False):
    """(executable, bytes, seconds), on one processor or on all."""
    exe = programs.FOLDER / name
    command = [programs.CINCH, programs.source("lm", text), "-o", exe, "--cpu", "haswell", *flags]
    begin = time.monotonic()
    programs.call((["taskset", "-c", str(min(os.sched_getaffinity(0)))] if one else []) + command)
    return exe, exe.read_bytes(), time.monotonic() - begin


def entries():
    return sorted(FOLDER.glob("*.kernel")) if FOLDER.exists() else []


def of_a_gpu():
    """Kernels of a GPU are found, too; their PTX is the same with and without the cache, on one processor and on all."""
    source = programs.source("lm", PROGRAM)
    for arch in ("sm_80", "h100"):
        command = [programs.CINCH, source, "--target", "nvidia:" + arch, "--set", "train.precision=bf16"]

        def emitted(what, *flags, one=False):
            return programs.call((["taskset", "-c", str(min(os.sched_getaffinity(0)))] if one else []) + command + ["--emit", what, "-o", "-", *flags]).stdout

        ptx, ir = emitted("ptx", "--no-kernel-cache"), emitted("nvvm", "--no-kernel-cache")
        before = entries()
        verdicts.expect(emitted("ptx") == ptx, "%s: the cache changes the PTX" % arch)
        made = [path for path in entries() if path not in before]
        verdicts.expect(len(made) > 10, "%s: %d kernels are kept" % (arch, len(made)))
        good = {path: path.read_bytes() for path in made}
        made[0].write_bytes(good[made[0]][:-1] + b"!")
        made[1].write_bytes(b"")
        verdicts.expect(emitted("ptx") == ptx and emitted("nvvm") == ir, "%s: found again" % arch)
        verdicts.expect(all(path.read_bytes() == good[path] for path in made), "%s: damaged entries are made anew" % arch)
        verdicts.expect(emitted("ptx", "--no-kernel-cache", one=True) == ptx, "%s: one processor and all of them" % arch)
        for text, name in ((ptx, "ptx"), (ir, "nvvm")):
            verdicts.expect("cinch_one_kernel" not in text and text.count("cinch_gate(") >= 1, "%s: names in the %s" % (arch, name))


def main():
    os.environ["XDG_CACHE_HOME"] = str(CACHE)
    _, without, _ = compiled(PROGRAM, "without", "--no-kernel-cache", "--max-threads", "4")
    verdicts.expect(not FOLDER.exists(), "--no-kernel-cache keeps nothing")
    exe, first, cold = compiled(PROGRAM, "first", "--max-threads", "4")
    made = {path: path.stat().st_mtime_ns for path in entries()}
    verdicts.expect(first == without and len(made) > 10, "the cache changes the executable; %d entries" % len(made))
    verdicts.expect(FOLDER.stat().st_mode & 0o777 == 0o700 and not list(FOLDER.glob("*.tmp")), "its folder is the user's alone")
    _, again, warm = compiled(PROGRAM, "again", "--max-threads", "4")
    verdicts.expect(again == first and entries() == sorted(made), "compiling again")
    print("cold %.2f s, warm %.2f s" % (cold, warm))
    verdicts.expect(warm < cold, "kernels that are there take %.2f s, from nothing %.2f s" % (warm, cold))
    _, one, _ = compiled(PROGRAM, "one", "--no-kernel-cache", "--max-threads", "4", one=True)
    verdicts.expect(one == first, "one processor and all of them")

    # Numbers are words of the launch: another rate of dropout, of attention's too, is no other kernel. A whole other function is.
    _, changed, _ = compiled(PROGRAM.replace("rate = 0.1", "rate = 0.2"), "changed", "--max-threads", "4")
    verdicts.expect(entries() == sorted(made) and changed != first, "another rate makes no kernel")
    compiled(PROGRAM.replace("steps 4", "steps 5").replace("lr = 1e-3", "lr = 2e-3"), "values", "--max-threads", "4")
    verdicts.expect(entries() == sorted(made), "values of the run make no kernel")
    compiled(PROGRAM.replace("return out(b(e(x)))", "return out(sin(b(e(x))))"), "other", "--max-threads", "4")
    fresh = [path for path in entries() if path not in made]
    verdicts.expect(0 < len(fresh) < len(made) / 2, "%d of %d kernels are new" % (len(fresh), len(made)))

    # Damaged, cut, empty.
    good = {path: path.read_bytes() for path in made}
    for path, text in zip(sorted(made), [b"", b"x" * 40, None, None]):
        path.write_bytes(good[path][:-1] + b"!" if text is None else text)
    _, mended, _ = compiled(PROGRAM, "mended", "--max-threads", "4")
    verdicts.expect(mended == first and all(path.read_bytes() == good[path] for path in made), "damaged entries are made anew")

    # At most 1 GiB: what was used longest ago goes first. The entries are looked at if nobody did so in the last ten minutes.
    old = FOLDER / "kernel_of_old_times.kernel"
    with open(old, "wb") as file:
        file.truncate(2**30)
    os.utime(old, (1, 1))
    compiled(PROGRAM.replace("D = 64", "D = 72"), "soon", "--max-threads", "4")
    verdicts.expect(old.exists(), "entries are looked at once in ten minutes")
    looked = time.time() - 601
    os.utime(FOLDER / "trimmed", (looked, looked))
    compiled(PROGRAM.replace("D = 64", "D = 80"), "wider", "--max-threads", "4")
    verdicts.expect(not old.exists() and sum(path.stat().st_size for path in entries()) < 2**30 and set(made) <= set(entries()), "the folder keeps its size")

    of_a_gpu()

    # A folder that cannot be written is no error.
    os.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
    _, none, _ = compiled(PROGRAM, "none", "--max-threads", "4")
    verdicts.expect(none == first, "without a place for the cache")


verdicts.run(main)
