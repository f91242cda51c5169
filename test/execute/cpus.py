#!/usr/bin/python3
"""Code for AVX2 and for AVX-512 gives the same bits: whole training steps of the test programs, under three plans,
and with sums in blocks.

Where the CPU has AVX-512 both executables run; everywhere (if bochs is installed) the AVX-512 object also runs in an
emulator, against the AVX2 object run natively: parameters, optimizer state and loss after two steps. A program for another CPU is refused.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import programs

HERE = pathlib.Path(__file__).resolve().parent
EMULATOR = HERE.parent / "emulator"
verdicts = programs.Verdicts()


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("%s failed:\n%s%s" % (" ".join(map(str, command)), done.stdout[-2000:], done.stderr[-2000:]))
    return done.stdout


def metadata(obj):
    data = obj.read_bytes()
    begin = data.index(b'{"program"')
    return json.loads(data[begin:data.index(b"\0", begin)])


def table(meta):
    train = next(e for e in meta["entries"] if e["name"] == "train")
    dataset = meta["datasets"][meta["train"]["dataset"]]
    rows = []
    for field in train["fields"]:
        described = dataset["fields"][field["index"]]
        rows.append("{%d, %d, %d}" % (field["offset"], field["bytes"] // 4, described.get("below", 0)))
    parameters = max(p["offset"] + 4 * size(p["shape"]) for p in meta["parameters"])
    return """#define ARENA %d
#define MICROBATCH %d
#define FIELDS %d
#define PARAMETER_BYTES %d
#define PERSISTENT_BYTES %d
#define LOSS %d
static const struct { long offset, count; int below; } fields[] = {%s};
static const struct { long place; double value; } values[] = {%s};
#define VALUES %d
""" % (meta["arena_bytes"], train["microbatch"], len(rows), parameters, meta["persistent_bytes"], meta["gate"]["loss"],
       ", ".join(rows), ", ".join("{%d, %r}" % (v["place"], float(v["value"])) for v in meta["values"]), len(meta["values"]))


def size(shape):
    n = 1
    for s in shape:
        n *= s
    return n


def hash_of(program, flags, cpu, emulated):
    work = programs.FOLDER / ("cpu-%s-%s" % (program.stem, cpu))
    work.mkdir(exist_ok=True)
    obj = work / "program.o"
    run(programs.CINCH, program, "--cpu", cpu, "--emit", "obj", "-o", obj, "--max-threads", "2", *flags)
    (work / "table.h").write_text(table(metadata(obj)))
    common = ["-I", work, "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-mavx2"]
    if emulated:
        run("cc", *common, "-DEMULATED", "-ffreestanding", "-mno-red-zone", "-fno-stack-protector", "-fno-pic", "-c",
            EMULATOR / "step.c", "-o", work / "step.o")
        return run(EMULATOR / "run", work / "step.o", obj).strip()
    run("cc", *common, EMULATOR / "step.c", obj, "-o", work / "step")
    return run(work / "step").strip()


def other_machine():
    """A program for a CPU that this one is not says so before it does anything; what it is can still be asked."""
    if programs.has("avx512_vp2intersect"):
        return print("this CPU has what Tiger Lake has")
    exe = programs.FOLDER / "for-another-cpu"
    run(programs.CINCH, HERE / "mlp.cinch", "--cpu", "tigerlake", "-o", exe)
    done = subprocess.run([str(exe), "--data", str(programs.FOLDER)], capture_output=True, text=True)
    verdicts.expect(done.returncode == 5 and "compiled for the CPU `tigerlake`" in done.stderr and "--cpu native" in done.stderr,
                    "another CPU: exit %d, %s" % (done.returncode, done.stderr))
    verdicts.expect(subprocess.run([str(exe), "info"], capture_output=True).returncode == 0, "info of a program for another CPU")


def main():
    other_machine()
    flags = set(re.search(r"^flags\s*:(.*)$", open("/proc/cpuinfo").read(), re.M).group(1).split())
    native512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags
    emulator = shutil.which("bochs") is not None
    if not native512 and not emulator:
        print("neither AVX-512 nor bochs here")
    for program in (HERE / "mlp.cinch", HERE / "gpt.cinch"):
        for plan in (
            ["--remat", "none", "--microbatch", "8"],
            ["--remat", "all", "--microbatch", "2"],
            ["--remat", "none", "--microbatch", "4", "--set", "train.grain=2"],
            *([["--row-blocks", "8", "--microbatch", "8"]] if program.stem == "gpt" else []),  # the classifier has no such work
        ):
            avx2 = hash_of(program, plan, "haswell", False)
            verdicts.expect(re.fullmatch("[0-9a-f]{16}", avx2), "%s: no hash: %s" % (program.name, avx2))
            if native512:
                native = hash_of(program, plan, "skylake-avx512", False)
                verdicts.expect(native == avx2, "%s %s: AVX-512 %s, AVX2 %s" % (program.name, plan, native, avx2))
            # Bochs 2.7 ends with a fault at a vgatherqps of the GPT that hardware executes; the classifier has none.
            if emulator and program.stem == "mlp":
                emulated = hash_of(program, plan, "skylake-avx512", True)
                verdicts.expect(emulated == avx2, "%s %s: emulated AVX-512 %s, AVX2 %s" % (program.name, plan, emulated, avx2))
    verdicts.finish()


main()
