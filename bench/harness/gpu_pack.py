"""The pack of bench/gpu: one .tar.xz of a folder `gpu` with everything that the machine with a GPU needs."""
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH.parent / "test" / "execute"))
import numpy as np  # noqa: E402

import programs  # noqa: E402  (found through the line above)
from harness import gpu_cases  # noqa: E402

EXAMPLES = BENCH.parent / "examples"
# Those of `long`: a CPU trains them in seconds.
LONG = {"mlp": "", "lstm": "B=8 T=16 H=48", "gpt": "B=4 T=64 N=2"}
PLANS = [[], ["--microbatch", "1", "--remat", "all"], ["--stages", "2"]]
GPT2 = {"B": 32, "T": 1024, "V": 50257, "N": 12, "D": 768, "A": 12}
SMALL_GPT2 = {"B": 2, "T": 32, "V": 301, "N": 2, "D": 32, "A": 2}


def defined(sizes):
    return [word for name, size in sizes.items() for word in ("-D", "%s=%s" % (name, size))]


def long(pack, seed):
    """A few steps of examples at sizes that no tile divides; their PTX is for compute capability 8.0 and is assembled by the driver."""
    steps = 2 if pack.standin else 20
    for number, (name, sizes) in enumerate(LONG.items()):
        data = programs.FOLDER / (name + "-data")
        data.mkdir()
        if name == "mlp":
            subprocess.run([sys.executable, str(EXAMPLES / "mlp" / "digits.py"), str(data)], check=True, stdout=subprocess.DEVNULL)
        else:
            draw = np.random.default_rng(seed + number)
            for file in ("train.txt", "valid.txt"):
                (data / file).write_bytes(draw.integers(0, 128, 400000).astype(np.uint8).tobytes())
        flags = [word for size in sizes.split() for word in ("-D", size)]
        pack.add(name, "f32", EXAMPLES / name / (name + ".cinch"), data, PLANS, flags, steps=steps, target=None)
    pack.finish("long.json")


def gpt2(pack, seed):
    small = pack.standin
    sizes = SMALL_GPT2 if small else GPT2
    data = pack.folder / "gpt2.data"
    data.mkdir()
    draw = np.random.default_rng(seed)
    for file in ("train.bin", "valid.bin"):
        draw.integers(0, sizes["V"], 400000).astype("<u2").tofile(data / file)
    source = BENCH / "models" / "gpt2_124m.cinch"
    flags = [*defined(sizes), "--memory-budget", "60GiB"]
    kinds = (("mma", gpu_cases.HOPPER, gpu_cases.NARROW), ("wgmma", "h200", gpu_cases.NARROW), ("tf32", gpu_cases.HOPPER, gpu_cases.tf32.TF32))
    made = {kind: pack.device("gpt2." + kind, source, target, [*flags, *precision]) for kind, target, precision in kinds}
    settings = dict(sizes=sizes, steps=4 if small else 25, programs=made)
    if not small:
        flags = [*defined({**sizes, "B": 512}), *gpu_cases.NARROW, "--memory-budget", "500GiB", "--microbatch", "512"]
        settings["too_big"] = pack.device("gpt2.too_big", source, gpu_cases.HOPPER, flags)
    (pack.folder / "gpt2.json").write_text(json.dumps(settings, indent=1))


def pack(file, seed, standin):
    folder = programs.FOLDER / "gpu"
    folder.mkdir()
    shutil.copy(BENCH / "gpu", folder)
    for name in ("torch_gpu.py", "torch_nets.py"):
        shutil.copy(BENCH / "peers" / name, folder)
    made = gpu_cases.Pack(folder, seed, standin)
    if standin:
        shutil.copytree(gpu_cases.standin.DRIVER, folder / "standin")
    gpt2(made, seed)
    long(made, seed)
    gpu_cases.all_cases(made)
    with tarfile.open(file, "w:xz", preset=6) as archive:
        archive.add(folder, "gpu")
    print("%s: %.1f MiB, %d cases" % (file, pathlib.Path(file).stat().st_size / 2**20, made.made))
