"""What bench/gpu carries to the machine with a GPU: programs for it, their data, and what they should leave there.

The cases are those of the tests that execute kernels on the CPU (test/execute/nvidia*.py), with data drawn anew each time. FOLDER/cases.json
lists them: name; kind (f32, bf16, wgmma: the same with products by wgmma, tf32); programs (the same case under several plans); data; limit;
and names of files with parameters: wanted (the CPU's program left them), start (before the first step), f64 (of the same program in f64, where
there is one), model (the model of tensor cores left them, under the stand-in for the driver), beside (a program with products by mma.sync).
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import sys

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH.parent / "test" / "execute"))
import numpy as np  # noqa: E402

import nvidia  # noqa: E402  (found through the line above, as the next ones)
import nvidia_attend as attend  # noqa: E402
import nvidia_bf16 as bf16  # noqa: E402
import nvidia_tf32 as tf32  # noqa: E402
import nvidia_wgmma as wgmma  # noqa: E402
import programs  # noqa: E402
import standin  # noqa: E402
import tree_programs  # noqa: E402

HOPPER = "sm_90"
NARROW = ["--set", "train.precision=bf16"]
WIDE = ["--set", "train.precision=f64"]


class Pack:
    """`standin`: what is made for the device has its kernels beside it as code of this CPU."""

    def __init__(self, folder, seed, standin):
        self.folder, self.seed, self.standin, self.cases, self.made = folder, seed, standin, [], 0
        self.pool, self.jobs = concurrent.futures.ThreadPoolExecutor(os.cpu_count()), []

    def finish(self, name):
        """Waits for what was added, and lists it in a file of that name."""
        for job in self.jobs:
            job.result()
        (self.folder / name).write_text(json.dumps(self.cases, indent=1))
        self.cases, self.jobs = [], []

    def add(self, name, kind, source, data, plans, settings=(), steps=None, limit=None, exact=False, model=False, target=HOPPER):
        """`settings` are flags that say what is computed, `plans` those that do not; `exact`: f64 tells how far the CPU's program is from it."""
        self.made += 1
        mark = "%03d" % self.made
        case = dict(name=name, kind=kind, data=mark + ".data", limit=limit, steps=steps, programs=[])
        self.cases.append(case)
        shutil.copytree(data, self.folder / case["data"])
        self.jobs.append(self.pool.submit(self.make, mark, case, source, data, plans, settings, exact, model, target))

    def make(self, mark, case, source, data, plans, settings, exact, model, target):
        kind, steps = case["kind"], case["steps"]
        for number, plan in enumerate(plans):
            case["programs"].append(self.device("%s.%d" % (mark, number), source, target, [*settings, *plan]))
        run = ["--data", data, "--quiet", *(["--steps", str(steps)] if steps else [])]
        case["wanted"] = self.left(mark + ".wanted", source, settings, run)
        if kind != "f32":
            case["start"] = self.left(mark + ".start", source, settings, [*run, "--steps", "0"])
        if exact:
            case["f64"] = self.left(mark + ".f64", source, [*settings, *WIDE], run)
        if kind == "wgmma":
            case["beside"] = self.device(mark + ".mma", source, HOPPER, [*settings, *plans[0]])
        if model:
            built = standin.Program(source, mark + "-model", *settings, *plans[0], target="nvidia:" + target, options=())
            out = programs.FOLDER / (mark + "-model-out")
            built.run(*run, "--out", out, tensor="h100")
            case["model"] = self.kept(mark + ".model", out)

    def device(self, name, source, target, flags):
        target = "nvidia" + (":" + target if target else "")
        if self.standin:
            built = standin.Program(source, name, "--max-threads", "2", *flags, target=target)
            shutil.copy(built.library, self.folder / (name + ".so"))
            built = built.exe
        else:
            built = programs.compiled(source, name, "--target", target, "--max-threads", "2", *flags)
        shutil.move(built, self.folder / name)
        return name

    def left(self, name, source, flags, run):
        """The name of the file with what the CPU's program leaves."""
        out = programs.FOLDER / (name + "-out")
        programs.call([programs.compiled(source, name + ".exe", "--stages", "1", *flags), *run, "--out", out])
        return self.kept(name, out)

    def kept(self, name, out):
        shutil.copy(out / "final.safetensors", self.folder / name)
        return name


def of_the_tree(pack):
    for number, program in enumerate(tree_programs.all_programs()):
        if "f64" in " ".join(program.flags):
            continue
        data = programs.FOLDER / ("tree%d" % number)
        data.mkdir()
        program.data(data, np.random.RandomState(pack.seed + number))
        source = tree_programs.ROOT / program.path if program.path else programs.source("tree%d" % number, program.text)
        pack.add(program.name, "f32", source, data, program.plans, program.flags, steps=2)


def examples(pack):
    for name, sizes, write in nvidia.EXAMPLES:
        data = programs.FOLDER / ("example-" + name)
        data.mkdir()
        write(data, np.random.default_rng(pack.seed))
        flags = [word for size in sizes.split() for word in ("-D", size)]
        source = tree_programs.ROOT / "examples" / name / (name + ".cinch")
        pack.add("examples/" + name, "f32", source, data, [[], ["--microbatch", "1" if name == "lstm" else "2"]], flags, steps=2)


def attention(pack):
    for number, case in enumerate(attend.CASES):
        source, run = attend.made(number, case, "f32", pack.seed + number)
        cut = "2" if "grain" in case[0] else "1"
        pack.add("attention, " + case[0], "f32", source, run[1], [[], ["--microbatch", cut]])
    for number, case in enumerate(attend.CASES_OF_BF16):
        source, run = attend.made(number, case, "bf16", pack.seed + number)
        cut = "2" if "grain" in case[0] else "1"
        pack.add("attention, " + case[0], "bf16", source, run[1], [["--microbatch", cut], ["--remat", "all", "--order-seed", "2"]],
                 limit=0.004, exact=case[1].get("S") != 1)
        if max(case[1].get("K", 8), case[1].get("E", 8)) <= 64: # by wgmma, too
            source, run = attend.made(number, case, "bf16", pack.seed + number, "-groups")
            pack.add("attention, " + case[0], "wgmma", source, run[1], [["--microbatch", cut], ["--remat", "all", "--order-seed", "2"]],
                     limit=0.004, target=wgmma.TARGET)


def narrow(pack):
    for number, case in enumerate(bf16.CASES):
        source, data = bf16.made(number, case, pack.seed + number)
        pack.add(case.name, "bf16", source, data, case.plans, limit=0.02, model=case.name != "attention")
    for number, case in enumerate(wgmma.CASES):
        source, data = bf16.made(100 + number, case, pack.seed + 100 + number)
        pack.add(case.name, "wgmma", source, data, case.plans, limit=0.02, model=case.name != "attention", target=wgmma.TARGET)


def of_tf32(pack):
    for number, case in enumerate(tf32.CASES):
        source, data = bf16.made(200 + number, case, pack.seed + 200 + number)
        pack.add(case.name, "tf32", source, data, case.plans, tf32.TF32, limit=tf32.MOST, model=True)


def all_cases(pack):
    for part in (of_the_tree, examples, attention, narrow, of_tf32):
        part(pack)
    pack.finish("cases.json")
