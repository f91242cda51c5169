#!/usr/bin/python3
"""Attention of a GPU, executed on the CPU (standin.py): over sizes beside and beyond its tiles, masks, biases, groups, dropout, sums in
blocks, the parameters after two steps are those of the CPU's kernels, bit for bit, under other orders of threads and other plans.

In programs of bf16 it runs on tensor cores, of which there is a model of an A100's (mma.sync) and of an H100's (wgmma, where heads have at most 64
features). After two steps the parameters' movements are near those that the same program has in f64, nearer to those of the CPU's program of bf16,
and the same bits under other plans and orders of threads. Faults planted into its barriers, shuffles and matrices are found.

usage: nvidia_attend.py [NAME...]      a NAME chooses cases by a part of it; bf16, f32, faults: all cases of these
"""
import re
import sys

import numpy as np

import programs
import standin

verdicts = programs.Verdicts()

# Queries, keys and values are products of the data with parameters, so that every gradient reaches some.
TEXT = """dim B = %(B)d batch, T = %(T)d, S = %(S)d, A = %(A)d, G = %(G)d, K = %(K)d, E = %(E)d
data train = npz("t.npz") -> (x: f32[B, T, 7], z: f32[B, S, 7], keep: i32[B, S])
model net(x: f32[B, T, 7], z: f32[B, S, 7], keep: i32[B, S]) -> f32[B, A, T, E] {
  param wq: f32[7, A, K] ~ normal(0.7)
  param wk: f32[7, G, K] ~ normal(0.7)
  param wv: f32[7, G, E] ~ normal(0.7)
  %(bias)s
  q[b, a, t, f] = sum[d] x[b, t, d] * wq[d, a, f]
  k[b, g, s, f] = sum[d] z[b, s, d] * wk[d, g, f]
  v[b, g, s, e] = sum[d] z[b, s, d] * wv[d, g, e]
  %(keys)s
  return attend(q, k, v%(arguments)s)
}
train net on train seed 3 {
  y = net(x, z, keep)
  loss = sum[B, A, T, E] (y * y + y) / (B * T)
  optimizer sgd(lr = 0.1)
  steps 2
  %(more)s
}
"""
SIZES = dict(B=2, T=16, S=16, A=2, G=2, K=8, E=8)
CASES = [
    ("one tile", {}, ""),
    ("beside a tile", dict(T=21, S=19, K=17, E=5), ""),
    ("causal", dict(T=37, S=37, K=8, E=9), ", causal = true"),
    ("several blocks", dict(B=1, T=130, S=70, A=1, G=1, K=20, E=18), ""),
    ("several blocks, causal", dict(B=1, T=133, S=133, A=1, G=1), ", causal = true, dropout = 0.2"),
    ("more keys than queries, causal", dict(B=1, T=20, S=70, A=1, G=1), ", causal = true"),
    ("more queries than keys, causal", dict(B=1, T=70, S=20, A=1, G=1), ", causal = true"),
    ("groups", dict(A=4, G=2, T=9, S=9), ", causal = true"),
    ("keys", dict(T=9, S=13), ", keys"),
    ("bias", dict(T=18, S=9, A=4, G=2), ", bias = p"),
    ("bias, causal, grain", dict(B=4, T=66, S=66, A=1, G=1, K=4, E=4), ", bias = p, causal = true"),
    ("wide heads", dict(B=1, A=1, G=1, T=9, S=10, K=150, E=200), ""),
    ("dropout", dict(T=20, S=64), ", dropout = 0.4"),
    ("dropout, draws within groups", dict(T=7, S=67), ", keys, dropout = 0.4"),
    ("dropout, bias", dict(T=19, S=35, A=2, G=1, K=5, E=3), ", bias = p, dropout = 0.3"),
    ("one key", dict(T=5, S=1, K=8, E=8), ", bias = p, dropout = 0.3"),
    ("one query and one key", dict(T=1, S=1, A=4, G=2, K=1, E=1), ", causal = true"),
]


# Beyond those: sizes at the edges of tiles of tensor cores (16 rows, 32 queries, 64 keys, 128 queries, 64 and 128 features).
CASES_OF_BF16 = CASES + [
    ("a tile of queries and one more", dict(B=1, T=129, S=65, A=1, G=1, K=16, E=24), ""),
    ("long, causal", dict(B=1, T=160, S=160, A=2, G=1, K=16, E=16), ", causal = true"),
    ("64 features", dict(B=2, T=40, S=72, A=1, G=1, K=64, E=64), ", dropout = 0.3"),
    ("features beyond 64", dict(B=1, T=40, S=72, A=2, G=1, K=72, E=100), ", causal = true, dropout = 0.3"),
    ("128 features", dict(B=2, T=33, S=100, A=1, G=1, K=128, E=128), ", keys"),
    ("few queries, many keys", dict(B=1, T=1, S=200, A=1, G=1, K=24, E=8), ", bias = p"),
    ("features beyond 64, bias, dropout", dict(B=1, T=39, S=71, A=2, G=1, K=70, E=6), ", bias = p, causal = true, dropout = 0.3"),
    ("more keys than queries, causal, bias", dict(B=1, T=20, S=150, A=2, G=2, K=72, E=80), ", bias = p, causal = true"),
    # Two examples have heads enough for all multiprocessors, one has not: then backward has blocks of all keys of a head, and others.
    ("many heads, causal, dropout", dict(B=2, T=40, S=40, A=34, G=34, K=16, E=24), ", causal = true, dropout = 0.2"),
    ("many heads, two blocks of keys", dict(B=2, T=33, S=192, A=34, G=34, K=16, E=8), ", dropout = 0.1"),
    ("many heads, groups, bias", dict(B=2, T=20, S=38, A=68, G=34, K=40, E=8), ", bias = p, dropout = 0.3"),
    ("many heads, keys", dict(B=2, T=50, S=33, A=34, G=34, K=17, E=10), ", keys"),
    ("more queries than keys, causal, keys", dict(B=2, T=150, S=20, A=2, G=1, K=12, E=20), ", keys, causal = true, dropout = 0.5"),
]


def made(number, case, kind, seed, mark=""):
    """The source of a case, its data drawn from `seed`, and the arguments of a run; `mark` tells it from the same case elsewhere."""
    name, sizes, arguments = case
    sizes = {**SIZES, **sizes}
    bias = "param p: f32[A, T, S] ~ normal(1)" if "bias" in arguments else ""
    more = ["grain 2"] * ("grain" in name) + ["precision bf16(master = f32, accumulate = f32)"] * (kind == "bf16")
    text = TEXT % dict(sizes, arguments=arguments, bias=bias, keys="keys = keep > 0" if "keys" in arguments else "", more="\n  ".join(more))
    folder = programs.FOLDER / ("data-%s%d%s" % (kind, number, mark))
    folder.mkdir()
    draw = np.random.default_rng(seed)
    np.savez(folder / "t.npz", x=draw.standard_normal((8, sizes["T"], 7)).astype("f4"), z=draw.standard_normal((8, sizes["S"], 7)).astype("f4"),
             keep=draw.integers(0, 2, (8, sizes["S"])).astype("i4") * (np.arange(8) % 3 > 0)[:, None])
    return programs.source("attend-%s%d%s" % (kind, number, mark), text), ["--data", folder, "--quiet"]


def final(out):
    return programs.tensorfile.read(out / "final.safetensors")


def check(entry):
    number, case = entry
    source, run = made(number, case, "f32", number)
    wanted = programs.FOLDER / ("cpu%d" % number)
    programs.call([programs.compiled(source, "cpu%d.exe" % number), *run, "--out", wanted])
    built = standin.Program(source, "device%d" % number, *(["--microbatch", "2"] if "grain" in case[0] else ["--microbatch", "1"]))
    out = programs.FOLDER / ("out%d" % number)
    built.run(*run, "--out", out, seed=number)
    first, second = final(wanted), final(out)
    wrong = [path for path in first if first[path].tobytes() != second[path].tobytes()]
    verdicts.expect(not wrong, "%s: other bits than the CPU's in %s" % (case[0], ", ".join(wrong)))
    moved = [path for path in first if not np.isfinite(first[path]).all()]
    verdicts.expect(not moved, "%s: not finite: %s" % (case[0], ", ".join(moved)))


def apart(found, wanted, start):
    """How far the movements of each parameter are apart: the root of the mean square, as a share of the wanted movement's."""
    size = lambda x: float(np.sqrt(np.mean(np.square(x, dtype="f8"))))
    return {path: size(found[path] - wanted[path]) / (size(wanted[path] - start[path]) or 1.0) for path in wanted}


def check_bf16(entry):
    number, case = entry
    # Where heads are many, a block has a head: both kinds of GPU do that in ways of their own.
    for kind in ["a100", "h100"] if case[0].startswith("many heads") else ["a100" if number % 3 == 0 else "h100"]:
        check_on(kind, number, case)


def check_on(kind, number, case):
    source, run = made(number, case, "bf16", number, kind)
    name = "narrow%d-%s" % (number, kind)

    def cpu(kind, flags, words=()):
        out = programs.FOLDER / (name + kind)
        programs.call([programs.compiled(source, name + kind + ".exe", *flags), *run, "--out", out, *words])
        return final(out)

    near, start = cpu("-cpu", []), cpu("-start", [], ["--steps", "0"])
    exact = cpu("-f64", ["--set", "train.precision=f64"])
    exact = {path: value.astype("f8") for path, value in exact.items()}
    cut = "2" if "grain" in case[0] else "1"
    builds = [standin.Program(source, name + cut, "--microbatch", cut, target="nvidia:" + kind),
              standin.Program(source, name + "all", "--remat", "all", "--order-seed", "2", target="nvidia:" + kind)]
    seen = set()
    for place, built in enumerate(builds + builds[:1]):
        out = programs.FOLDER / ("%s-out%d" % (name, place))
        built.run(*run, "--out", out, seed=number + 10 * place, tensor=kind, banks=1)
        seen.add((out / "final.safetensors").read_bytes())
    verdicts.expect(len(seen) == 1, "%s, bf16: other bits under another plan or order of threads" % case[0])
    found = final(out)
    if case[1].get("S") == 1: # a share is 1 whatever its score is: nothing but rounding moves what scores are made of
        start = {"wv": start["wv"]}
        near, exact, found = ({"wv": values["wv"]} for values in (near, exact, found))
    still = [path for path in start if not np.abs(exact[path] - start[path]).max() > 1e-4]
    verdicts.expect(not still, "%s, bf16: nothing moves %s" % (case[0], ", ".join(still)))
    far = {path: share for path, share in apart(found, near, start).items() if not share < 0.004}
    verdicts.expect(not far, "%s, bf16: movements apart from the CPU's: %s" % (case[0], far))
    of_cpu = apart(near, exact, start) # rounded in the same places
    far = {path: (share, of_cpu[path]) for path, share in apart(found, exact, start).items() if not share < 1.25 * of_cpu[path] + 0.002}
    verdicts.expect(not far, "%s, bf16: movements farther from f64's than the CPU's are: %s" % (case[0], far))


MOST_FAULTS = 8 # of each kind


def planted_faults():
    """Barriers left out, shuffles from the lane beside, matrices read 16 bytes beside, accesses behind the arena: in kernels that do nothing but
    attention each is found, as a race, by the arena's bounds, or as other bits than the right ones."""
    case = ("faults", dict(B=1, T=70, S=130, A=1, G=1, K=40, E=24), ", causal = true, dropout = 0.2")
    source, run = made(99, case, "bf16", 99)
    built = standin.Program(source, "faults", "--microbatch", "1")
    wanted, times = programs.FOLDER / "faults-out", programs.FOLDER / "faults.times"
    built.run(*run, "--out", wanted, "--kernel-times", times)
    right = (wanted / "final.safetensors").read_bytes()
    ir = (programs.FOLDER / "faults.ll").read_text()
    ran = {line.split("\t")[5] for line in times.read_text().splitlines()} # nobody finds a fault in a kernel of predictions, which training does not run
    names = {"barrier": "void @llvm.nvvm.barrier", "shuffle": "i32 @llvm.nvvm.shfl", "matrix": "@llvm.nvvm.ldmatrix"}
    # The places, counted through all of the module, that lie in kernels of attention: these have shared memory of its names.
    places = {kind: [] for kind in names}
    counts = dict.fromkeys(names, 0)
    for kernel in re.split(r"(?m)^define ", ir)[1:]:
        name = re.search(r"@(\w+)\(", kernel).group(1)
        mine = name in ran and re.search(r"@kernel_\w+_(keys|slopes)\b", kernel) is not None
        for line in kernel.splitlines():
            for kind, word in names.items():
                if "call " in line and word in line:
                    counts[kind] += 1
                    # A second or third shuffle from a lane more beside brings the same number.
                    if mine and not (kind == "shuffle" and re.search("i32 [24], i32 31", line)):
                        places[kind].append(counts[kind])
    verdicts.expect(all(len(list_) >= 4 for list_ in places.values()), "no places for faults: %s" % {k: len(v) for k, v in places.items()})

    def plant(kind, number):
        ended, left = built.run_with_fault(kind, number, *run)
        said = ended.returncode == 99 and re.search("a race on|threads wait|meet at different", ended.stdout)
        other = ended.returncode == 0 and left != right
        return said or other or ended.returncode not in (0, 99)

    chosen = {kind: standin.spread(list_, MOST_FAULTS) for kind, list_ in places.items()}
    found = standin.faults_found(plant, chosen)
    # Behind the last item of a block nobody needs the barrier that the next one would.
    missed = {kind: len(chosen[kind]) - found[kind] for kind in names}
    verdicts.expect(missed["barrier"] <= 2 and missed["shuffle"] == 0 and missed["matrix"] == 0, "faults were not found: %s" % missed)


GROUP_FAULTS = {"barrier": "void @llvm.nvvm.barrier", "show": "fence.proxy.async", "products": "wgmma.wait_group", "swizzle": "wgmma.mma_async",
                "lines": "wgmma.mma_async", "turned": "wgmma.mma_async", "rows": "wgmma.mma_async", "copy": "llvm.nvvm.cp.async.cg"}


def planted_faults_of_groups():
    """By wgmma, each kind of fault is found somewhere: fences and waits that are left out, matrices described in another way, registers exchanged."""
    case = ("faults of groups", dict(B=1, T=70, S=66, A=68, G=68, K=24, E=16), ", causal = true, dropout = 0.2")
    source, run = made(98, case, "bf16", 98)
    built = standin.Program(source, "group-faults", "--microbatch", "1", target="nvidia:h100")
    wanted, run = programs.FOLDER / "group-faults-out", [*run, "--steps", "1"]
    built.run(*run, "--out", wanted)
    right = (wanted / "final.safetensors").read_bytes()
    kernels = re.split(r"(?m)^define ", (programs.FOLDER / "group-faults.ll").read_text())
    counts, places = dict.fromkeys(GROUP_FAULTS, 0), {kind: [] for kind in GROUP_FAULTS}
    for kernel in kernels[1:]:
        mine = "wgmma.mma_async" in kernel and "ex2.approx" in kernel
        for line in kernel.splitlines():
            for kind, word in GROUP_FAULTS.items():
                inRegisters = "}, {" in line
                if "call " in line and word in line and (word != "wgmma.mma_async" or inRegisters == (kind == "rows")):
                    counts[kind] += 1
                    if mine:
                        places[kind].append(counts[kind])
    verdicts.expect(all(len(list_) >= 4 for list_ in places.values()), "no places for faults: %s" % {k: len(v) for k, v in places.items()})

    def plant(kind, number):
        ended, left = built.run_with_fault(kind, number, *run)
        return ended.returncode in (4, 99) or (ended.returncode == 0 and left != right)

    found = standin.faults_found(plant, {kind: standin.spread(list_, 3) for kind, list_ in places.items()})
    verdicts.expect(min(found.values()) > 0, "a kind of fault was not found: %s" % found)


def main():
    words = sys.argv[1:]
    chosen = lambda list_, kind: [case for case in enumerate(list_) if not words or kind in words or any(word in case[1][0] for word in words)]
    programs.in_parallel(check, chosen(CASES, "f32"))
    programs.in_parallel(check_bf16, chosen(CASES_OF_BF16, "bf16"))
    if not words or "faults" in words:
        planted_faults()
        planted_faults_of_groups()


if __name__ == "__main__":
    verdicts.run(main)
