#!/usr/bin/python3
"""What NVIDIA's own assembler makes of the PTX: registers, shared memory and spills of each kind of kernel for sm_80, sm_90 and sm_100, and of
products by wgmma for sm_90a, and what the main loops of a product and of attention on tensor cores consist of. No product and no backward pass of attention on tensor cores may spill, other
kernels a few words, and none in a main loop on sm_80 and sm_90. From the instructions of a loop follows
which share of the tensor cores' time it can reach at most: see `bound`. Skipped, and said so, where neither `ptxas` nor the wheels
`nvidia-cuda-nvcc` and `nvidia-cuda-nvdisasm` can be had.

usage: nvidia_ptx.py [EXAMPLE...]
"""
import os
import re
import shutil
import subprocess
import sys
import zipfile

import programs
import tree_programs

verdicts = programs.Verdicts()
CHIPS = ("sm_80", "sm_90", "sm_100")
BF16 = ["--set", "train.precision=bf16"]
TF32 = ["--set", "train.precision=tf32"]
EXAMPLES = [("mlp", []), ("gpt", ["-D", "B=2", "-D", "N=1"]), ("gpt", ["-D", "B=2", "-D", "N=1", *BF16]), ("lstm", []),
            ("resnet", ["-D", "B=4", "-D", "G=2"]), ("resnet", ["-D", "B=4", "-D", "G=2", *BF16]),
            ("gpt", ["-D", "B=2", "-D", "N=1", *TF32]), ("resnet", ["-D", "B=4", "-D", "G=2", *TF32]), ("gpt2_124m", ["-D", "B=2", "-D", "N=1", *TF32]),
            ("llama_7b", ["-D", "B=1", "-D", "N=1", *BF16]), ("gpt2_124m", ["-D", "B=2", "-D", "N=1", *BF16])]
WARPGROUPS = "sm_90a" # products by wgmma: of these examples alone
LOOPS = "gpt2_124m" # whose main loops are looked at; without dropout, whose draws are a loop of their own
BOTH_TURNED = "adds, 1, 1, 1, 1;" # a product of slopes and keys, whose lines are keys both
MOST_SPILLED = 96 # bytes that a kernel writes and reads; no product may, and no backward pass of attention on tensor cores
MOST_SPILLED_SINGLY = 304 # attention of f32, backward, heads of 64 features


def tool(name, wheel):
    """Of this machine, or out of a wheel; None if neither can be had."""
    found = os.environ.get(name.upper()) or shutil.which(name)
    if found:
        return found
    folder = programs.FOLDER / name
    try:
        programs.call([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, wheel], timeout=300)
        (archive,) = folder.glob("*.whl")
        zipfile.ZipFile(archive).extractall(folder)
        (found,) = folder.glob("nvidia/*/bin/" + name)
        found.chmod(0o755)
        return str(found)
    except (programs.Failure, ValueError, subprocess.TimeoutExpired):
        return None


def kind_of(body):
    """What a kernel is, by what stands in its PTX."""
    if "wgmma" in body and "ex2.approx" in body:
        return "attention, %s, warpgroups" % ("backward" if BOTH_TURNED in body else "forward")
    if "wgmma" in body:
        return "product, warpgroups" + (", copies" if "cp.async.cg" in body else "") + (", boxes" if "cp.async.bulk.tensor" in body else "")
    if "mma.sync" in body and ("_slopes" in body or "_keys" in body):
        return "attention, %s, tensor cores" % ("backward" if "_slopes" in body else "forward")
    if ".tf32" in body:
        return "product, tf32"
    if "mma.sync" in body:
        return "product, tensor cores" + (", copies" if "cp.async.cg" in body else "")
    if "_slopes" in body:
        return "attention, backward"
    if "_staged" in body:
        return "attention, forward"
    if "_tiles" in body:
        return "product"
    return "loops, sums of rows" if "shfl.sync" in body else "loops, pools"


def entries(text):
    return {name: body for name, body in re.findall(r"\.entry (\w+)(\(.*?\n\})", text, re.S)}


def assemble(ptxas, chip, ptx, cubin, table):
    said = programs.call([ptxas, "-arch=" + chip, "-v", ptx, "-o", cubin]).stdout
    kernels = entries(ptx.read_text())
    found = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", said, re.S)
    verdicts.expect(len(found) == len(kernels), "%s for %s: %d of %d kernels" % (ptx.name, chip, len(found), len(kernels)))
    for name, stores, loads, registers, rest in found:
        shared = re.search(r"(\d+) bytes smem", rest)
        row = table.setdefault((kind_of(kernels[name]), chip), [0, 0, 0, 0])
        for place, value in enumerate((1, int(registers), int(shared.group(1)) if shared else 0, int(stores) + int(loads))):
            row[place] = row[place] + value if place in (0, 3) else max(row[place], value)
        spilled = int(stores) + int(loads)
        kind = kind_of(kernels[name])
        most = MOST_SPILLED_SINGLY if kind == "attention, backward" else 0 if kind.startswith("product") or "backward" in kind else MOST_SPILLED
        verdicts.expect(spilled <= most, "%s for %s: %s spills %d bytes" % (ptx.name, chip, name, spilled))


# Cycles that an HMMA.16816 keeps the tensor cores of a quarter of a multiprocessor busy: 4096 operations at 512 a cycle (A100: 312 TFLOP/s), and
# at 1024 (H100: 989), of which mma.sync reaches 63 % (arXiv 2402.13499). An HMMA.1688 of tf32 has half as many operations at half of the rate. Of sm_100 nothing is published for mma.sync.
TENSOR_CYCLES = {"sm_80": 8.0, "sm_90": 4 / 0.63}
# 128 bytes a cycle come from or go to shared memory, for all four quarters together: cycles of a warp's instruction. Copies of four bytes go to two lines
# at once, some of whose words lie in the same banks.
SHARED = {"LDSM": 4}
COPIES_OF_16, COPIES_OF_4 = 4, 2
COUNTED = {"tensor-core products": "HMMA", "reads of matrices": "LDSM", "copies begun": "LDGSTS", "loads": "LDG", "barriers": "BAR", "stores": "STS"}


def instructions(code, name):
    """The lines of a kernel's code, of all that nvdisasm says."""
    lines = []
    for line in code.split(".text.%s:" % name)[1].splitlines():
        if line.startswith(".section") or line.startswith("//--------------------- .text"):
            break
        lines.append(line)
    return lines


def main_loops(code, name, word="HMMA"):
    """The innermost loops with such operations: of each all operations, with their suffixes."""
    lines = instructions(code, name)
    labels = {line.strip()[:-1]: place for place, line in enumerate(lines) if re.match(r"\.L_x_\d+:$", line.strip())}
    spans = []
    for place, line in enumerate(lines):
        jump = re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", line)
        back = word == "HMMA" or not re.search(r"\*/\s+BRA `", line) # of barriers' phases those without a condition come back from waiting
        if jump and back and labels.get(jump.group(1), place) < place:
            span = (labels[jump.group(1)], place)
            holds = any(re.search(r"\b%s\b" % word, one) for one in lines[span[0]:span[1]])
            if holds and not any(span[0] <= x[0] and x[1] <= span[1] for x in spans):
                spans.append(span)
    found = [re.findall(r"\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)", "\n".join(lines[begin:end + 1])) for begin, end in spans]
    return sorted(found, key=lambda loop: -sum(one.startswith(word) for one in loop))


def bound(loop, chip):
    """The largest share of the time of mma.sync that a loop can reach: while tensor cores multiply, each quarter begins an instruction a cycle,
    and shared memory serves all four. Every instruction of the loop is counted, those for tiles at an edge, too."""
    tensor = TENSOR_CYCLES[chip] * sum(one.startswith("HMMA") for one in loop)
    shared = 0
    for one in loop:
        word = one.split(".")[0]
        wide = 4 if ".128" in one else 2 if ".64" in one else 1
        copied = COPIES_OF_16 if ".128" in one else COPIES_OF_4
        shared += copied if word == "LDGSTS" else SHARED.get(word, wide if word in ("LDS", "STS") else 0)
    return tensor / max(tensor, len(loop), 4 * shared)


def bound_of_warpgroups(code, name, body):
    """The same for wgmma, and the counts of its loops. While a warpgroup of four warps multiplies 64 x 16 by 16 x N, which takes tensor cores N / 2
    cycles (a multiprocessor of an H100 has 4096 operations a cycle), both operands are read from shared memory. Two warpgroups do, and a third
    one writes a step of both operands there; a quarter of a multiprocessor has a warp of each."""
    multiplies = main_loops(code, name, "HGMMA")[0]
    products = [one for one in multiplies if one.startswith("HGMMA")]
    columns = int(re.search(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16", body).group(1))
    # What is brought one element at a time takes a loop of its own within that of the steps, 64 x rows / 128 elements a thread.
    singly = lambda loop: sum(one.startswith("STS.U16") for one in loop)
    holds = lambda loop, word: any(one.startswith(word) for one in loop)
    found = [main_loops(code, name, word) for word in ("LDGSTS", "STS", "SYNCS", "UTMALDG")]
    steps = [loop for loop in sum(found, []) if holds(loop, "SYNCS") and not holds(loop, "HGMMA") and len(loop) > 20]
    within = [loop for loop in found[1] if singly(loop) and not holds(loop, "SYNCS")]
    brings = max(steps, key=len, default=[]) + [one for loop in within for one in loop * (max(128, columns) // 2 // singly(loop))]
    tensor = 2 * len(products) * columns / 2
    shared = 2 * len(products) * (64 + columns) * 16 * 2 / 128 + (128 + columns) * 64 * 2 / 128
    issued = 2 * len(multiplies) + len(brings)
    return tensor / max(tensor, issued, shared), columns, multiplies, brings


def bound_of_attention(code, name):
    """The same for attention by wgmma, of the loop without masks, the shortest one with products: a quarter of a multiprocessor has a warp of each of
    two warpgroups, or four in forward, all of which do the same. Heads have 64 features, and all products 64 columns."""
    loop = min((one for one in main_loops(code, name, "HGMMA") if sum(x.startswith("HGMMA") for x in one) >= 8), key=len)
    tensor = 64 / 2 * sum(one.startswith("HGMMA") for one in loop)
    return tensor / max(tensor, len(loop)), 0, loop, []


def note_warpgroups(nvdisasm, ptx, cubin, loops):
    code = programs.call([nvdisasm, "-c", cubin]).stdout
    for name, body in entries(ptx.read_text()).items():
        if kind_of(body).startswith("attention") and "wgmma" in body:
            loops[kind_of(body)] = bound_of_attention(code, name)
        elif "wgmma" in body:
            found = bound_of_warpgroups(code, name, body)
            kind = "%s, 128 x %d outputs" % (kind_of(body), found[1])
            loops[kind] = min(found, loops.get(kind, found), key=lambda one: one[0])


def note_loops(nvdisasm, ptx, cubin, chip, loops):
    """Of attention the loops of the largest kernel: forward has one main loop, backward one for dq and one for dk, dv. A product has one: the loop
    of that with the least bound."""
    code = programs.call([nvdisasm, "-c", cubin]).stdout
    kernels = {}
    for name, body in entries(ptx.read_text()).items():
        if "mma.sync" in body:
            kernels.setdefault(kind_of(body), []).append((body.count("mma.sync"), name))
    for kind, list_ in kernels.items():
        if kind.startswith("product"):
            cycles_of = chip if chip in TENSOR_CYCLES else "sm_90"
            loops[kind, 1, chip] = min((main_loops(code, name)[0] for _, name in list_), key=lambda loop: bound(loop, cycles_of))
            continue
        found = main_loops(code, max(list_)[1])
        for number in range(2 if "backward" in kind else 1):
            loops[kind, number + 1, chip] = found[number]


def main():
    ptxas, nvdisasm = tool("ptxas", "nvidia-cuda-nvcc"), tool("nvdisasm", "nvidia-cuda-nvdisasm")
    if not ptxas:
        print("skipped: no ptxas, and its wheel could not be had")
        verdicts.expect(True, "")
        return
    table, loops, grouped = {}, {}, {}
    for number, (name, flags) in enumerate(EXAMPLES):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        source, ptx = tree_programs.ROOT / "examples" / name / (name + ".cinch"), programs.FOLDER / ("%s%d.ptx" % (name, number))
        if not source.exists():
            text = (tree_programs.ROOT / "bench" / "models" / (name + ".cinch")).read_text()
            source = programs.source(name, text.replace("const rate = 0.1", "const rate = 0"))
        programs.call([programs.CINCH, source, "--target", "nvidia", "--memory-budget", "64GiB", "--emit", "ptx", "-o", ptx, *flags])
        for chip in CHIPS:
            cubin = programs.FOLDER / ("%s%d-%s.cubin" % (name, number, chip))
            assemble(ptxas, chip, ptx, cubin, table)
            if nvdisasm and name == LOOPS:
                note_loops(nvdisasm, ptx, cubin, chip, loops)
        if BF16[1] in flags and not source.match("resnet.cinch"):
            # Of heads enough for all multiprocessors, whose gradients go by wgmma, too.
            flags = ["B=12" if name == LOOPS and flag == "B=2" else flag for flag in flags]
            target = ["--target", "nvidia:" + WARPGROUPS, "--memory-budget", "64GiB"]
            programs.call([programs.CINCH, source, *target, "--emit", "ptx", "-o", ptx, *flags])
            cubin = programs.FOLDER / ("%s%d-%s.cubin" % (name, number, WARPGROUPS))
            assemble(ptxas, WARPGROUPS, ptx, cubin, table)
            if nvdisasm:
                note_warpgroups(nvdisasm, ptx, cubin, grouped)
    print("%-36s %-7s %8s %10s %14s %7s" % ("kind", "for", "kernels", "registers", "shared bytes", "spills"))
    for (kind, chip), row in sorted(table.items()):
        print("%-36s %-7s %8d %10d %14d %7d" % (kind, chip, *row))
    for (kind, number, chip), loop in sorted(loops.items()):
        counts = {what: sum(one.split(".")[0] == word for one in loop) for what, word in COUNTED.items()}
        said = "%d instructions, %s" % (len(loop), ", ".join("%d %s" % (count, what) for what, count in counts.items()))
        if chip in TENSOR_CYCLES:
            share = bound(loop, chip)
            said += "; at most %.2f of mma.sync's time" % share
            least = 0.6 if "attention" in kind else 0.8
            verdicts.expect(share >= least, "%s for %s: %.2f, not %.1f" % (kind, chip, share, least))
            spilled = sum(one.split(".")[0] in ("STL", "LDL") for one in loop)
            verdicts.expect(spilled == 0, "%s for %s: main loop %d reads or writes %d words that were spilled" % (kind, chip, number, spilled))
        print("main loop %d of %s, %s: %s" % (number, kind, chip, said))
        barriers = 2 if "forward" in kind else 1 # AttendTensorForward.cpp, AttendTensorGrad.cpp: of a turn
        verdicts.expect(counts["tensor-core products"] >= 32 and counts["barriers"] == barriers, "an odd main loop: " + said)
    for kind, (share, columns, multiplies, brings) in sorted(grouped.items()):
        if kind.startswith("attention"):
            print("main loop of %s: %d instructions, %d HGMMA; at most %.2f of wgmma's time" %
                  (kind, len(multiplies), sum(one.startswith("HGMMA") for one in multiplies), share))
            spilled = sum(one.split(".")[0] in ("STL", "LDL") for one in multiplies)
            verdicts.expect(spilled == 0 and share >= 0.6, "%s: %.2f, not 0.6, or %d words that were spilled" % (kind, share, spilled))
            continue
        words = ("HGMMA", "UTMALDG", "LDGSTS", "LDG", "STS", "SYNCS", "WARPGROUP")
        of = lambda loop, word: sum(one.split(".")[0] == word for one in loop)
        counted = lambda loop: "%d instructions, %s" % (len(loop), ", ".join("%d %s" % (of(loop, word), word) for word in words))
        print("worst main loop of %s: %s; beside it %s; at most %.2f of wgmma's time" % (kind, counted(multiplies), counted(brings), share))
        least = 0.8 if columns > 64 else 0.55 # for outputs that are few, and more multiprocessors share them
        verdicts.expect(share >= least and sum(one.startswith("HGMMA") for one in multiplies) == 4, "%s: %.2f, not %.2f" % (kind, share, least))
    verdicts.expect(not nvdisasm or sys.argv[1:] or {kind.split(",")[0] for kind in grouped} == {"product", "attention"}, "no product by wgmma, or no attention")
    verdicts.expect(not nvdisasm or sys.argv[1:] or len(loops) == 5 * len(CHIPS), "%d main loops" % len(loops))
    if not nvdisasm:
        print("skipped: the main loops; no nvdisasm, and its wheel could not be had")


if __name__ == "__main__":
    verdicts.run(main)
