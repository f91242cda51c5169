"""tests_system.py: what the run asks of the system: allocations, failing calls, memory."""

import os
import re
import shutil
import subprocess

import programs
from cases import content

COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static long calls;
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
void *malloc(size_t n) { __atomic_add_fetch(&calls, 1, 5); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { __atomic_add_fetch(&calls, 1, 5); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { __atomic_add_fetch(&calls, 1, 5); return __libc_realloc(p, n); }
__attribute__((destructor)) static void tell(void) { dprintf(2, "allocations: %ld\\n", calls); }
"""


def test_no_allocation_in_the_loop(t):
    data = t.digits()
    programs.write(t.path("counter.c"), COUNTER.encode())
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", t.path("counter.c"), "-o", t.path("counter.so")], check=True)
    counts = []
    for steps in (2, 60):
        code, out, err = t.call(
            t.linear(),
            "--data",
            data,
            "--out",
            "a%d" % steps,
            "--steps",
            steps,
            "--threads",
            2,
            env=dict(os.environ, LD_PRELOAD=t.path("counter.so")),
        )
        counts.append(int(re.search(r"allocations: (\d+)", err)[1]))
    t.check(counts[0] == counts[1], "2 steps and 60 steps allocate equally often", str(counts))
    trace = (
        subprocess.run(
            [
                "strace",
                "-f",
                "-e",
                "trace=mmap,brk,mremap",
                "-o",
                t.path("trace"),
                t.linear(),
                "--data",
                data,
                "--out",
                "b",
            ],
            cwd=t.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if shutil.which("strace")
        else None
    )
    if trace and trace.returncode == 0:
        short = subprocess.run(
            [
                "strace",
                "-f",
                "-e",
                "trace=mmap,brk,mremap",
                "-o",
                t.path("short"),
                t.linear(),
                "--data",
                data,
                "--out",
                "c",
                "--steps",
                "2",
            ],
            cwd=t.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lines = lambda name: len(open(t.path(name)).read().splitlines())
        t.check(
            lines("trace") <= lines("short") + 1,
            "and map memory equally often",
            "%d %d" % (lines("short"), lines("trace")),
        )


def test_failing_calls(t):
    """Writes, fsyncs, renames, opens of a run fail once, or the process is killed there: the run ends the same, or says
    what could not be written; going on gives the same end."""
    if not shutil.which("strace"):
        return
    data = t.digits()
    program = t.linear(
        steps=8,
        every=[
            dict(steps=2, kind="checkpoint", dir="run", keep=2, best="", best_is_max=False),
            dict(steps=2, kind="log", csv=True, jsonl=True, tensorboard=True),
        ],
    )
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    total = {}
    for name, error in (
        ("write", "KILL"),
        ("fsync", "KILL"),
        ("rename", "KILL"),
        ("openat", "KILL"),
        ("write", "ENOSPC"),
        ("write", "EIO"),
        ("fsync", "EIO"),
        ("rename", "ENOSPC"),
        ("openat", "EMFILE"),
        ("pread64", "EIO"),
    ):
        if name not in total:
            subprocess.run(
                [
                    "strace",
                    "-f",
                    "-e",
                    "trace=" + name,
                    "-o",
                    t.path("trace"),
                    program,
                    "--data",
                    data,
                    "--out",
                    "count",
                    "--threads",
                    "1",
                ],
                cwd=t.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            total[name] = sum(1 for line in open(t.path("trace")) if " " + name + "(" in line)
            shutil.rmtree(t.path("count"), ignore_errors=True)
        step = max(1, total[name] // 12)
        for number in range(1, total[name] + 1, step):
            shutil.rmtree(t.path("a"), ignore_errors=True)
            done = subprocess.run(
                [
                    "strace",
                    "-f",
                    "-e",
                    "trace=" + name,
                    "-e",
                    "inject=%s:%s=%s:when=%d" % (name, "signal" if error == "KILL" else "error", error, number),
                    "-o",
                    "/dev/null",
                    program,
                    "--data",
                    data,
                    "--out",
                    "a",
                    "--threads",
                    "1",
                ],
                cwd=t.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=60,
            )
            err = done.stderr.decode()
            final = t.path("a", "final.safetensors")
            label = "%s number %d fails with %s" % (name, number, error)
            if error == "KILL":
                t.check(done.returncode != 0, label + ": killed", str(done.returncode))
            else:
                t.check(
                    done.returncode in (0, 3, 5, 127), label + ": a right exit code", "%d %s" % (done.returncode, err)
                )
            if done.returncode == 0:
                t.check(content(final) == whole, label + ": the same end", err)
            elif name in ("write", "fsync", "rename") and error != "KILL":
                t.check(done.returncode == 5 and "could not" in err or "cannot" in err, label + ": it is said", err)
            # Whatever is there is sound: going on from it gives the same end.
            code, out, err = t.call(program, "--data", data, "--out", "a", "--resume")
            t.check(
                code == 0 and "passed over" not in err and content(final) == whole,
                label + ": resumed, the same end",
                out + err,
            )


def test_memory_beside_the_arena(t):
    data = t.digits()
    for threads in (1, 4):
        code, out, err = t.call(t.linear(), "--data", data, "--out", "a", "--threads", threads)
        peak, arena = map(int, re.search(r"peak memory (\d+) bytes \(.*\), arena (\d+)", out).groups())
        t.check(peak - arena < (3 << 20), "what is not arena is small with %d threads" % threads, str(peak - arena))
