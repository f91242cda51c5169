#!/usr/bin/python3
"""Runs every suite of tests, several at a time: suites.py [--all] [--fresh] [--jobs N] [--list] [SUITE...]

A suite is a program whose last line is `N passed, N failed`, or a folder of lit tests. One line is printed for each as it ends,
the end of its output too if it failed, with the seconds that it took and the processors' seconds of all its processes; the logs lie in
build/check. The last line is the sum. What prints no tally, ends with
another code than its tally says, or takes longer than its limit counts as one more failure.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "check"
PYTHON = "/usr/bin/python3"  # Debian's, which has NumPy
LIT = "/usr/lib/llvm-22/bin/lit"
TAIL = 25
MINUTE = 60


class Suite:
    def __init__(self, name, command, limit=15 * MINUTE):
        self.name, self.command, self.limit = name, [str(word) for word in command], limit


def python(path, *arguments, name=None, limit=20 * MINUTE):
    return Suite(name or path[:-len(".py")], [PYTHON, ROOT / "test" / path, *arguments], limit)


def lit_suites():
    """One a folder, of the files that say how they are run; others are inputs."""
    folders = {}
    for suffix in ("mlir", "cinch", "test"):
        for path in sorted((ROOT / "test").glob("*/*." + suffix)):
            if "RUN:" in path.read_text(errors="replace"):
                folders.setdefault(path.parent.name, []).append(path)
    return [Suite("lit/" + name, [PYTHON, LIT, "-v", "-j", "1", *paths]) for name, paths in sorted(folders.items())]


def quick_suites():
    """The longest first, so that the last to end is a short one."""
    suites = [
        python("execute/random_programs.py"),
        python("execute/gradcheck.py"),
        python("execute/bits.py", "--pairs", name="execute/bits (pairs)"),
        python("execute/bits.py", "--pairs", "--microbatches", "8,4,2", "--row-blocks", "auto,none,64", "--flags", "--set train.grain=2",
               name="execute/bits (grain)"),
        python("execute/opbits.py"),
        python("execute/recorded_bits.py"),
        python("execute/reference.py"),
        python("execute/budget.py"),
        python("execute/monotone.py"),
        python("execute/fuzz_plans.py"),
        python("execute/grain.py"),
        python("execute/delay.py"),
        python("execute/overlap.py"),
        python("execute/masked.py"),
        python("execute/evaluation_sums.py"),
        python("execute/groups.py"),
        python("execute/scan.py"),
        python("execute/meeting.py"),
        python("execute/grids.py"),
        python("execute/stages.py"),
        python("execute/replicas.py"),
        python("execute/pieces.py"),
        python("execute/combine.py"),
        python("execute/shards.py"),
        python("execute/shard_programs.py"),
        python("execute/own_steps.py"),
        python("execute/convs.py"),
        python("execute/bands.py"),
        python("execute/reversible.py"),
        python("execute/bf16.py"),
        python("execute/bf16_layers.py"),
        python("execute/bf16_plans.py"),
        python("execute/nvidia.py"),
        python("execute/nvidia_runtime.py"),
        python("execute/nvidia_peers.py"),
        python("execute/nvidia_offload.py"),
        python("execute/nvidia_attend.py"),
        python("execute/nvidia_bf16.py"),
        python("execute/nvidia_tf32.py"),
        python("execute/nvidia_wgmma.py"),
        python("execute/nvidia_sums.py"),
        python("execute/nvidia_rows.py"),
        python("execute/nvidia_parts.py"),
        python("execute/nvidia_random.py"),
        python("execute/cpus.py"),
        python("execute/deep.py"),
        python("execute/overflow.py"),
        python("execute/resume.py"),
        python("execute/state.py"),
        python("execute/tables.py"),
        python("execute/datasets.py"),
        python("execute/images.py"),
        python("execute/importer.py"),
        python("execute/predict.py"),
        python("execute/corners.py"),
        python("execute/logs.py"),
        python("execute/values.py"),
        python("execute/kernel_profile.py"),
        python("execute/finetune.py"),
        python("execute/examples.py"),
        python("execute/report.py"),
        python("execute/plan_cache.py"),
        python("execute/install.py"),
        python("execute/kernel_cache.py"),
        python("execute/embed.py"),
        python("execute/documents.py"),
        python("execute/calibrate.py"),
        python("execute/solve_stages.py"),
        python("execute/processes.py"),
        python("execute/solve_cluster.py"),
        python("runtime/run.py", "--except=test_workers", "--except=test_tcp", "--except=test_mpi", name="runtime"),
        python("runtime/run.py", "--only=test_workers", "--only=test_tcp", "--only=test_mpi", name="runtime/workers"),
        python("frontend/grammar_verdicts.py"),
        python("frontend/format.py"),
        python("frontend/layers_page.py"),
        python("frontend/lsp.py"),
    ]
    suites += [Suite("unit/" + path.stem, [BUILD / "bin" / path.stem]) for path in sorted((ROOT / "test/unit").glob("*.cpp"))]
    return suites + lit_suites()


def long_suites():
    fuzz = ROOT / "test/fuzz/run"
    return [
        python("execute/bits.py", limit=90 * MINUTE),
        python("execute/package.py"),
        python("execute/opbits.py", "--all", name="execute/opbits (every case)", limit=60 * MINUTE),
        python("execute/deep.py", "--long", name="execute/deep (networks of the literature compiled)"),
        python("execute/examples.py", "--long", name="execute/examples (long)", limit=90 * MINUTE),
        python("execute/fuzz_plans.py", "--count", "300", "--seed", "9", name="execute/fuzz_plans (300)", limit=90 * MINUTE),
        python("execute/random_programs.py", "--count", "3000", "--seed", "2", name="execute/random_programs (3000)",
               limit=120 * MINUTE),
        python("execute/meeting.py", "--count", "1000", "--seed", "100", name="execute/meeting (1000)", limit=60 * MINUTE),
        python("execute/stages.py", "--all", name="execute/stages (every schedule)", limit=90 * MINUTE),
        python("execute/replicas.py", "--all", name="execute/replicas (every grid)", limit=120 * MINUTE),
        python("execute/grids.py", "--all", name="execute/grids (the whole product)", limit=120 * MINUTE),
        python("runtime/run.py", "--only=large_messages", "--times=50", name="runtime/workers (50 runs of large messages)", limit=60 * MINUTE),
        python("execute/browser.py"),
        python("execute/nvidia.py", "--all", name="execute/nvidia (every program)"),
        python("execute/nvidia_ptx.py"),
        python("execute/importer.py", "--torch", name="execute/importer (PyTorch)"),
        python("execute/shards.py", "--all", name="execute/shards (every grid)", limit=60 * MINUTE),
        python("execute/shard_programs.py", "--all", name="execute/shard_programs (every program)", limit=60 * MINUTE),
        python("execute/processes.py", "--all", name="execute/processes (every transport)"),
        python("execute/bf16.py", "--all", name="execute/bf16 (more plans)"),
        python("execute/bf16_plans.py", "--all", name="execute/bf16_plans (more plans)"),
        python("execute/resume.py", "2", name="execute/resume (other moments)"),
        python("execute/benches.py", limit=90 * MINUTE),
        Suite("unit/contract (2000 products)", [BUILD / "bin/contract", "7", "2000"], 60 * MINUTE),
        Suite("unit/frontend_mutants (50000)", [BUILD / "bin/frontend_mutants", "50000", "7"], 60 * MINUTE),
        Suite("unit/dag (2000 graphs of 12 nodes)", [BUILD / "bin/dag", "2000", "12"], 60 * MINUTE),
        Suite("unit/stage_splits (60000 chains, 20000 graphs)", [BUILD / "bin/stage_splits", "60000", "20000", "5"], 60 * MINUTE),
        Suite("fuzz/frontend", [fuzz, "frontend", "600"], 30 * MINUTE),
        Suite("fuzz/readers", [fuzz, "readers", "600"], 30 * MINUTE),
    ]


def tally(suite, text, code):
    """(passed, failed) as the suite's own output says."""
    if suite.name.startswith("lit/"):
        count = lambda word: sum(int(n) for n in re.findall(r"^ *%s *: *(\d+)" % word, text, re.M))
        passed = count("Passed")
        failed = count("Failed") + count("Unresolved") + count("Timed Out") + count("Unexpectedly Passed")
    elif suite.name.startswith("fuzz/"):  # a fuzzer ends with 0 if it found nothing in its time
        passed, failed = int(code == 0), int(code != 0)
    else:
        found = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
        passed, failed = map(int, found[-1]) if found else (0, 0)
    if passed + failed == 0 or (code != 0 and failed == 0):
        failed += 1
    return passed, failed


class Board:
    """Prints the lines; suites end at any time."""

    def __init__(self, width):
        self.width, self.passed, self.failed, self.processor, self.lock = width, 0, 0, 0, threading.Lock()

    def add(self, suite, passed, failed, seconds, processor, text):
        with self.lock:
            self.passed += passed
            self.failed += failed
            self.processor += processor
            print("%-*s %6d passed, %d failed %6.0f s, of processors %6.0f s" % (self.width, suite.name, passed, failed, seconds, processor),
                  flush=True)
            if failed:
                for line in text.splitlines()[-TAIL:]:
                    print("    " + line[:400])
                print("    (whole log: %s)" % log_of(suite).relative_to(ROOT), flush=True)


def log_of(suite):
    return LOGS / (re.sub(r"[^A-Za-z0-9_]+", "-", suite.name).strip("-") + ".log")


running = set()  # process groups of suites


def run(suite, board):
    begin, processor, late = time.monotonic(), 0, threading.Event()
    log = log_of(suite)
    with open(log, "w") as output:
        try:
            process = subprocess.Popen(suite.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        except OSError as error:
            code = -1
            output.write("%s\n" % error)
        else:
            def stop():
                late.set()
                os.killpg(process.pid, signal.SIGKILL)

            timer = threading.Timer(suite.limit, stop)
            timer.start()
            running.add(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            running.discard(process.pid)
            timer.cancel()
            code = process.returncode = os.waitstatus_to_exitcode(status)
            processor = usage.ru_utime + usage.ru_stime
            if late.is_set():
                output.write("\nstopped after %d s\n" % suite.limit)
    text = log.read_text(errors="replace")
    board.add(suite, *tally(suite, text, code), time.monotonic() - begin, processor, text)


def prepare_caches(fresh):
    """Neither plans found by earlier builds nor a profile of this machine's user may decide what is tested. Code of kernels may come from an
    earlier run, on this checkout or another, as objects come from ccache: an entry's name is a hash over the kernel's text, the CPU, LLVM's
    version and the sources that lower it, so what any change reaches is generated anew. --fresh generates all of it."""
    kept = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cinch-check" / "kernels"
    for variable, folder in (("XDG_CACHE_HOME", LOGS / "cache"), ("XDG_CONFIG_HOME", LOGS / "config")):
        shutil.rmtree(folder, ignore_errors=True)
        os.environ[variable] = str(folder)
    if fresh:
        return
    (LOGS / "cache/cinch").mkdir(parents=True)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        (LOGS / "cache/cinch/kernels").symlink_to(kept)
    except OSError:
        pass  # no home that can be written to


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="take no code of kernels from earlier runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("suite", nargs="*")
    options = parser.parse_args()
    suites = quick_suites() + (long_suites() if options.all else [])
    suites = [s for s in suites if not options.suite or any(word in s.name for word in options.suite)]
    if options.list or not suites:
        print("\n".join(s.name for s in suites) or "no suite has such a name")
        return 0 if suites else 2
    LOGS.mkdir(parents=True, exist_ok=True)
    prepare_caches(options.fresh)
    begin, board = time.monotonic(), Board(max(len(s.name) for s in suites))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        try:
            for _ in pool.map(lambda suite: run(suite, board), suites):
                pass
        except BaseException:  # Ctrl-C: suites are in groups of their own and would go on
            pool.shutdown(wait=False, cancel_futures=True)
            for group in list(running):
                try:
                    os.killpg(group, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it has just ended
            raise
    print("%.0f s, of processors %.0f s" % (time.monotonic() - begin, board.processor))
    print("%d passed, %d failed" % (board.passed, board.failed))
    return 1 if board.failed else 0


if __name__ == "__main__":
    sys.exit(main())
