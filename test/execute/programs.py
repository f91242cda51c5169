"""Compiles .cinch programs and runs what comes out, for the tests of this folder."""

import atexit
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))
import tensorfile  # noqa: E402  (found through the line above)

NO_ROWS = "no work of this program can run in blocks of"  # the refusal of --row-blocks NUMBER
CINCH = os.environ.get("CINCH", str(HERE.parent.parent / "build" / "bin" / "cinch"))
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="cinch-test-"))
if not os.environ.get("CINCH_KEEP"):
    atexit.register(shutil.rmtree, FOLDER, True)
# Neither plans found before nor a profile of this machine's user decide what is tested.
os.environ.setdefault("XDG_CACHE_HOME", str(FOLDER / "plans"))
os.environ.setdefault("XDG_CONFIG_HOME", str(FOLDER / "config"))


# A small model of bytes and what it may read, for tests of what lies around a program.
BYTES_MODEL = """
dim B = 4 batch, T = 8, V = 128
data train = text("t.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model lm(x: i32[B, T] below V) -> f32[B, T, V] { use e = embedding[V, V]; return e(x) }
train lm on train seed 3 {
  loss = mean[B, T] cross_entropy(lm(text[:, :T]), text[:, 1:])
  optimizer sgd(lr = 1)
  steps 5
}
"""
BYTES = b"hello world, hello moon. " * 20


class Verdicts:
    """Counts cases; one line a failure, the last line is the tally."""

    def __init__(self):
        self.passed = self.failed = 0
        self.lock = threading.Lock()

    def expect(self, ok, what):
        with self.lock:
            if ok:
                self.passed += 1
            else:
                self.failed += 1
                print("FAILED: " + what, flush=True)
        return ok

    def run(self, main):
        """All of a test; a command that fails ends it."""
        try:
            main()
        except Failure as failure:
            self.expect(False, str(failure))
        self.finish()

    def finish(self):
        print("%d passed, %d failed" % (self.passed, self.failed))
        sys.exit(self.failed != 0)


class Failure(Exception):
    """What was called, how it ended, and the end of what it said; `output` is all of that."""

    def __init__(self, text, output=""):
        super().__init__(text)
        self.output = output


def in_parallel(function, items):
    """What `function` says of every item, as many at once as there are processors (each mostly waits for a program)."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def call(command, timeout=300, cwd=None, allowed=(0,)):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        timeout=timeout,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode not in allowed:
        raise Failure(
            "%s: exit %d\n%s" % (" ".join(str(word) for word in command), done.returncode, done.stdout[-2000:]), done.stdout
        )
    return done


def has(*features):
    """Whether this machine's processors have them all."""
    with open("/proc/cpuinfo") as file:
        flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    return set(features) <= flags


def has_avx512():
    """Whether this machine executes what `--cpu skylake-avx512` makes."""
    return has("avx512f", "avx512vl", "avx512bw", "avx512dq")


def has_dots():
    """.. and what `--cpu cooperlake` makes, with its instruction for products of bf16."""
    return has_avx512() and has("avx512_bf16", "avx512_vnni")


def has_amx():
    """.. and what `--cpu sapphirerapids` makes, with products of bf16 by AMX."""
    return has_dots() and has("amx_tile", "amx_bf16", "avx512_fp16")


def source(name, text):
    path = FOLDER / (name + ".cinch")
    path.write_text(text)
    return path


def compiled(program, name, *flags, allowed=(0,)):
    """The executable, or with other exit codes allowed the finished process when it is not 0. The compiler is given 300 s of a processor; how long
    that takes depends on what else the machine does."""
    exe = FOLDER / name
    done = call(["prlimit", "--cpu=300", CINCH, program, "-o", exe, *flags], timeout=3600, allowed=allowed)
    return exe if done.returncode == 0 else done


class Result:
    def __init__(self, out, text):
        self.out, self.text = out, text
        self.parameters = tensorfile.read(out / "final.safetensors")
        self.bytes = (out / "final.safetensors").read_bytes()

    @property
    def rows(self):
        path = self.out / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def losses(self):
        return [row["loss"] for row in self.rows]

    @property
    def peak(self):
        return int(re.search(r"peak memory (\d+) bytes", self.text).group(1))


def run(exe, data, steps, *flags, init=None, timeout=300):
    out = pathlib.Path(tempfile.mkdtemp(dir=FOLDER, prefix="out-"))
    command = [exe, "--data", data, "--out", out, "--steps", steps, "--log", "jsonl", "--quiet", *flags]
    done = call(command + (["--init", init] if init else []), timeout=timeout)
    return Result(out, done.stdout)


# ---- Data files ------------------------------------------------------------------------------------------------------


def arrays(name, **values):
    """A folder of .npy files in f32."""
    folder = FOLDER / name
    folder.mkdir()
    for file, value in values.items():
        np.save(folder / (file + ".npy"), value.astype(np.float32))
    return folder


def write_idx(path, values):
    kinds = {np.uint8: 8, np.int32: 12, np.float32: 13, np.float64: 14}
    values = np.asarray(values)
    head = struct.pack(">BBBB", 0, 0, kinds[values.dtype.type], values.ndim) + struct.pack(
        ">%dI" % values.ndim, *values.shape
    )
    pathlib.Path(path).write_bytes(head + values.astype(values.dtype.newbyteorder(">")).tobytes())


def byte_text(count, seed=1):
    """English-like bytes: words drawn from a small vocabulary."""
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgk", np.uint8)
    words = [bytes(rng.choice(letters, rng.integers(2, 9))) for _ in range(200)]
    text = b""
    while len(text) < count:
        text += words[int(rng.zipf(1.4)) % 200] + b" "
    return text[:count]
