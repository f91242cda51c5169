#!/usr/bin/python3
"""Every benchmark still runs: `bench/run --quick NAME` ends with 0 and its last lines are `RESULT <name> <value>`.   benches.py [NAME...]

Values are not judged (that would assert noise), only that each is a finite number. The scripts only: the C++ programs
compare with a library that need not be installed.
"""
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fault(name):
    """What is wrong with a benchmark, or None."""
    run = subprocess.run([ROOT / "bench/run", "--quick", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         stdin=subprocess.DEVNULL, cwd=ROOT, timeout=1200)
    lines = run.stdout.splitlines()
    if run.returncode != 0:
        return "exit %d\n    %s" % (run.returncode, "\n    ".join(lines[-10:]))
    results = [re.fullmatch(r"RESULT ([a-z0-9_.]+) (\S+)", line) for line in lines if line.startswith("RESULT")]
    if not results or not lines[-1].startswith("RESULT"):
        return "its last line is no RESULT: %s" % (lines[-1:] or "nothing was printed")
    for result, line in zip(results, (line for line in lines if line.startswith("RESULT"))):
        try:
            if result is None or not math.isfinite(float(result.group(2))):
                return "no finite number: " + line
        except ValueError:
            return "no number: " + line
    return None


def main():
    names = sys.argv[1:] or sorted(path.stem for path in (ROOT / "bench").glob("*.py") if os.access(path, os.X_OK))
    failed = 0
    for name in names:
        wrong = fault(name)
        print("%-12s %s" % (name, wrong or "ok"), flush=True)
        failed += wrong is not None
    print("%d passed, %d failed" % (len(names) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
