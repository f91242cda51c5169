#!/usr/bin/env python3
"""run.py [ARCHIVE] [--only=NAME].. [--except=NAME].. [--times=N]: tests of the runtime with hand-written programs; N runs of those that look
for something rare (3). Prints `N passed, N failed`."""

import os
import shutil
import subprocess
import sys
import tempfile

import tests_archives
import tests_data
import tests_kills
import tests_run
import tests_state
import tests_system
import tests_workers
import tests_workers_join
import tests_workers_mpi
import tests_workers_tcp
from cases import Cases
from programs import ROOT


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    left_out = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--except=")]
    only = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--only=")]
    archive = arguments[0] if arguments else os.path.join(ROOT, "build", "lib", "libcinchrt.a")
    folder = tempfile.mkdtemp(prefix="cinch-runtime-")
    times = [int(a.split("=", 1)[1]) for a in sys.argv[1:] if a.startswith("--times=")]
    cases = Cases(folder, archive, *times)
    try:
        for module in (tests_run, tests_data, tests_archives, tests_state, tests_kills, tests_system, tests_workers, tests_workers_tcp, tests_workers_join,
                       tests_workers_mpi):
            for name, test in list(vars(module).items()):
                if name.startswith("test_") and (not only or any(o in name for o in only)) and not any(o in name for o in left_out):
                    cases.run(name, test)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d passed, %d failed" % (cases.passed, cases.failed))
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
