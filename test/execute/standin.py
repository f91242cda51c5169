"""Programs for a GPU, executed on the CPU: the kernels' LLVM IR as this CPU's code (test/nvidia/nvcpu.cpp), under a driver that is none
(test/nvidia/standin.cpp). What runs is the binary that would run on a GPU, but for the code generator of PTX, ptxas and the driver."""
import collections
import hashlib
import sys
import threading

import processes
import programs

BUILD = programs.HERE.parent.parent / "build"
DRIVER = BUILD / "standin"
NVCPU = BUILD / "bin" / "nvcpu"
libraries = {}  # of the kernels' text and of nvcpu's options
guards = collections.defaultdict(threading.Lock)  # of the same: cases run side by side


def kernels(source, name, flags, options=("--check",)):
    """The library of a program's kernels."""
    ir = programs.FOLDER / (name + ".ll")
    programs.call([programs.CINCH, source, "--emit", "nvvm", "-o", ir, *flags])
    return library_of(ir, name, options)


def library_of(ir, name, options):
    """The same kernels are compiled once: plans differ in the order of kernels more often than in kernels."""
    key = hashlib.sha256(ir.read_bytes()).digest(), options
    with guards[key]:
        if key not in libraries:
            libraries[key] = compiled(ir, name, options)
        return libraries[key]


def compiled(ir, name, options):
    made, library = (programs.FOLDER / (name + suffix) for suffix in (".o", ".so"))
    programs.call([NVCPU, ir, "-o", made, *options])
    programs.call(["cc", "-shared", made, "-o", library, "-L" + str(DRIVER), "-l:libcuda.so.1"])
    return library


class Program:
    def __init__(self, source, name, *flags, target="nvidia", options=("--check",)):
        self.name, self.flags = name, ["--target", target, *flags]
        assembler = [] if any(str(flag).startswith("--ptxas") for flag in flags) else ["--ptxas", "none"]
        ir = programs.FOLDER / (name + ".ll")
        self.exe = programs.compiled(source, name, *self.flags, *assembler, "--save-nvvm", ir)
        self.library = library_of(ir, name, options)

    def run(self, *arguments, allowed=(0,), library=None, timeout=300, **settings):
        """The finished process; `settings` become STANDIN_.. of its environment."""
        words = ["LD_LIBRARY_PATH=" + str(DRIVER), "STANDIN_KERNELS=" + str(library or self.library)]
        words += ["STANDIN_%s=%s" % (name.upper(), value) for name, value in settings.items()]
        return programs.call(["env", *words, self.exe, *arguments], allowed=allowed, timeout=timeout)

    def run_each(self, workers, *arguments, kill=None, **settings):
        """A process for each worker, which meet over TCP: their exit codes, and what they said (processes.Ended)."""
        words = dict(LD_LIBRARY_PATH=str(DRIVER), STANDIN_KERNELS=str(self.library))
        words.update({"STANDIN_" + name.upper(): str(value) for name, value in settings.items()})
        return processes.over_tcp(self.exe, workers, arguments, kill, words)

    def run_with_fault(self, kind, number, *arguments):
        """The finished process with a fault planted into the kernels, at the `number`-th place that one of this kind can have (nvcpu --plant); and
        the parameters that it left, None if it failed."""
        name = "%s-%s%d" % (self.name, kind, number)
        library = library_of(programs.FOLDER / (self.name + ".ll"), name, ("--check", "--plant", "%s:%d" % (kind, number)))
        out = programs.FOLDER / (name + "-out")
        ended = self.run(*arguments, "--out", out, library=library, allowed=range(256), seed=number)
        return ended, (out / "final.safetensors").read_bytes() if ended.returncode == 0 else None


def spread(places, most):
    """At most `most` of the places, from the first to the last, each once: two runs with the same fault would write the same files."""
    return sorted({places[i * (len(places) - 1) // (most - 1)] for i in range(most)})


def faults_found(plant, places):
    """How many faults of each kind are found, of those at its places (kind: numbers): `plant` says it of one."""
    chosen = [(kind, number) for kind, numbers in places.items() for number in numbers]
    hits = programs.in_parallel(lambda fault: bool(plant(*fault)), chosen)
    return {kind: sum(hit for hit, fault in zip(hits, chosen) if fault[0] == kind) for kind in places}


def try_cases(cases, check, planted_faults):
    """A script's cases, numbered, side by side; then its faults. With words on the command line: the cases with one of them in their name, and
    the faults if one is `faults`."""
    words = sys.argv[1:]
    programs.in_parallel(check, [entry for entry in enumerate(cases) if not words or any(word in entry[1].name for word in words)])
    if not words or "faults" in words:
        planted_faults()
