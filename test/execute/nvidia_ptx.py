#!/usr/bin/python3
"""What NVIDIA's own assembler makes of the PTX: registers, shared memory and spills of each kind of kernel for sm_80, sm_90 and sm_100,
and what the main loop of a product on tensor cores consists of. No kernel may spill. Skipped, and said so, where neither `ptxas` nor the
wheels `nvidia-cuda-nvcc` and `nvidia-cuda-nvdisasm` can be had.

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
EXAMPLES = [("mlp", []), ("gpt", ["-D", "B=2", "-D", "N=1"]), ("gpt", ["-D", "B=2", "-D", "N=1", *BF16]), ("lstm", []),
            ("resnet", ["-D", "B=4", "-D", "G=2"]), ("resnet", ["-D", "B=4", "-D", "G=2", *BF16])]


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
        verdicts.expect(int(stores) + int(loads) == 0, "%s for %s: %s spills" % (ptx.name, chip, name))


def main_loop(nvdisasm, cubin, name):
    """The instructions of the loop that has the most products, from a label to the jump back."""
    code = programs.call([nvdisasm, "-c", cubin]).stdout.split(".text.%s:" % name)[1].split("\n.L_x_END")[0]
    lines = code.splitlines()
    labels = {line.strip()[:-1]: place for place, line in enumerate(lines) if re.match(r"\.L_x_\d+:$", line.strip())}
    best = []
    for place, line in enumerate(lines):
        jump = re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", line)
        if line.startswith(".section") or line.startswith("//--------------------- .text"):
            break
        if jump and labels.get(jump.group(1), place) < place:
            body = lines[labels[jump.group(1)]:place]
            count = sum("HMMA" in one for one in body)
            if count and (not best or len(body) < len(best) or count > sum("HMMA" in one for one in best)):
                best = body
    names = {"tensor-core products": "HMMA", "reads of matrices": "LDSM", "copies begun": "LDGSTS", "loads": "LDG", "barriers": "BAR.SYNC"}
    counts = {what: sum(re.search(r"\b" + word.replace(".", r"\."), line) is not None for line in best) for what, word in names.items()}
    counts["instructions"] = sum(";" in line for line in best)
    return counts


def main():
    ptxas, nvdisasm = tool("ptxas", "nvidia-cuda-nvcc"), tool("nvdisasm", "nvidia-cuda-nvdisasm")
    if not ptxas:
        print("skipped: no ptxas, and its wheel could not be had")
        return
    table, loops = {}, {}
    for number, (name, flags) in enumerate(EXAMPLES):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        source, ptx = tree_programs.ROOT / "examples" / name / (name + ".cinch"), programs.FOLDER / ("%s%d.ptx" % (name, number))
        programs.call([programs.CINCH, source, "--target", "nvidia", "--memory-budget", "64GiB", "--emit", "ptx", "-o", ptx, *flags])
        for chip in CHIPS:
            cubin = programs.FOLDER / ("%s%d-%s.cubin" % (name, number, chip))
            assemble(ptxas, chip, ptx, cubin, table)
            largest = max((body.count("mma.sync"), entry) for entry, body in entries(ptx.read_text()).items())
            if nvdisasm and largest[0] and name == "gpt":
                loops[chip] = main_loop(nvdisasm, cubin, largest[1])
    print("%-32s %-7s %8s %10s %14s %7s" % ("kind", "for", "kernels", "registers", "shared bytes", "spills"))
    for (kind, chip), row in sorted(table.items()):
        print("%-32s %-7s %8d %10d %14d %7d" % (kind, chip, *row))
    for chip, counts in loops.items():
        print("main loop of a product on tensor cores, %s: %s" % (chip, ", ".join("%d %s" % (count, what) for what, count in counts.items())))
        verdicts.expect(counts["tensor-core products"] >= 16 and counts["barriers"] == 1, "an odd main loop for %s: %s" % (chip, counts))
    if not nvdisasm:
        print("skipped: the main loops; no nvdisasm, and its wheel could not be had")


if __name__ == "__main__":
    verdicts.run(main)
