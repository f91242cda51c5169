"""tests_workers_mpi.py: the same program under the mpirun of Open MPI and of MPICH, as Debian packages them."""

import os
import re
import shutil
import signal
import subprocess
import time

import programs
from cases import content
from tests_workers import final, slow

MPIS = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}
RANK = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}


def there(t):
    found = [name for name, command in MPIS.items() if shutil.which(command[0])]
    t.check(len(found) == 2, "both MPIs are installed (openmpi-bin libopenmpi3 mpich)", str(found))
    return found


def mpirun(t, mpi, count, program, *arguments, env=None, kill=None, suspend=None, limit=60):
    """(exit code, output, errors). kill: (rank, when, signal), see Cases.wait_for. suspend: (when, seconds) for which all processes stop."""
    start = t.path("start-" + mpi)
    programs.write(start, b'#!/bin/sh\necho $$ > "%s.$%s"\nexec "$@"\n' % (t.path("pid").encode(), RANK[mpi].encode()))
    os.chmod(start, 0o755)
    env = dict(env or os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.Popen(
        [*MPIS[mpi], "-np", str(count), start, program, *map(str, arguments)], cwd=t.folder, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    if kill:
        t.wait_for(kill[1])
        os.kill(int(content(t.path("pid.%d" % kill[0]))), kill[2])
    if suspend:
        t.wait_for(suspend[0])
        pids = [int(content(t.path("pid.%d" % rank))) for rank in range(count)]
        for sent, seconds in ((signal.SIGSTOP, suspend[1]), (signal.SIGCONT, 0)):
            for pid in pids:
                os.kill(pid, sent)
            time.sleep(seconds)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += b" (it hung)"
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def test_mpi_same_bits(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for mpi in there(t):
        for workers, one_f_one_b, boxes, microbatch in ((2, False, 1, 4), (3, True, 2, 2), (2, True, 1, 16)):
            program = t.stages(workers, one_f_one_b=one_f_one_b, boxes=boxes, microbatch=microbatch)
            result = mpirun(t, mpi, workers, program, "--data", data, "--out", mpi, env=slow(100))
            t.check(result[0] == 0 and final(t, mpi) == final(t, "one"), "%d processes of %s" % (workers, mpi), repr(result))
            t.check("of the MPI library" in result[1] and not result[2], "its memory is said, and nothing else", repr(result))
            for name in sorted(os.listdir(t.path(mpi, "run"))):
                t.check(content(t.path(mpi, "run", name)) == content(t.path("one", "run", name)), "the same checkpoint " + name)


def test_mpi_large_messages(t):
    data = t.digits()
    wide = dict(width=1 << 18, microbatch=4, batch=8, steps=2, every=[])
    t.call(t.stages(1, **wide), "--data", data, "--out", "one")
    for mpi in there(t):
        for i in range(t.times):
            result = mpirun(t, mpi, 2, t.stages(2, one_f_one_b=i % 2 == 1, **wide), "--data", data, "--out", mpi)
            t.check(result[0] == 0 and final(t, mpi) == final(t, "one"), "messages of 4 MiB over %s" % mpi, repr(result))


def test_mpi_other_commands(t):
    data = t.digits()
    one, two = t.stages(1), t.stages(2)
    t.call(one, "--data", data, "--out", "one")
    expected = t.call(one, "eval", "--data", data, "--out", "one", "--quiet")[1]
    t.call(one, "predict", "--data", data, "--out", "one")
    for mpi in there(t):
        shutil.copytree(t.path("one"), t.path(mpi), ignore=shutil.ignore_patterns("predict"))
        result = mpirun(t, mpi, 2, two, "eval", "--data", data, "--out", mpi, "--quiet")
        t.check(result[0] == 0 and result[1].replace("\r", "") == expected, "eval over " + mpi, repr((result, expected)))
        result = mpirun(t, mpi, 2, two, "predict", "--data", data, "--out", mpi)
        t.check(result[0] == 0, "predict over " + mpi, repr(result))
        t.check(content(t.path(mpi, "predict", "valid", "logits.npy")) == content(t.path("one", "predict", "valid", "logits.npy")), "the same results")
        result = mpirun(t, mpi, 2, two, "info")
        t.check(result[0] == 0 and result[1].count("workers      2") == 1, "info is said once", repr(result))


def test_mpi_ends(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for mpi in there(t):
        folder = "s" + mpi
        result = mpirun(t, mpi, 2, t.stages(2), "--data", data, "--out", folder, env=slow(4000), kill=(0, folder, signal.SIGTERM))
        t.check(result[0] == 75 and "go on with --resume" in result[1], "SIGTERM to worker 0 saves", repr(result))
        result = mpirun(t, mpi, 2, t.stages(2), "--data", data, "--out", folder, "--resume")
        t.check(result[0] == 0 and final(t, folder) == final(t, "one"), "resumed", repr(result))
        planted = t.stages(2, defines=dict(PLANT_STEP=7, PLANTS="{0, 8}"))
        result = mpirun(t, mpi, 2, planted, "--data", data, "--out", "n" + mpi)
        t.check(result[0] == 4 and "layer 0 made the first number" in result[2], "a bad number ends all with 4", repr(result))
        start = time.time()
        result = mpirun(t, mpi, 3, t.stages(3), "--data", data, "--out", "k" + mpi, env=slow(5000), kill=(1, "k" + mpi, signal.SIGKILL), limit=15)
        t.check(result[0] != 0 and time.time() - start < 10, "a killed worker ends the job", "%.1f s %r" % (time.time() - start, result))
        result = t.call(t.stages(1), "--data", data, "--out", "k" + mpi, "--resume")
        t.check(result[0] == 0 and final(t, "k" + mpi) == final(t, "one"), "resumed by one worker", repr(result))
        # Once a step is done: while all of them join, a minute is granted.
        start = time.time()
        result = mpirun(t, mpi, 2, t.stages(2), "--data", data, "--out", "h" + mpi, "--worker-timeout", 2, env=slow(5000), kill=(1, "h" + mpi, signal.SIGSTOP), limit=15)
        t.check(result[0] == 5 and time.time() - start < 10 and re.search(r"worker 1 \(stage 1\) lost in (update of )?step \d+: nothing was heard", result[2]), "one that stands still is lost", "%.1f s %r" % (time.time() - start, result))


def test_mpi_suspended(t):
    """As over TCP: a job that is suspended goes on."""
    data, program = t.digits(), dict(microbatch=16)
    t.call(t.stages(1, **program), "--data", data, "--out", "one")
    for mpi in there(t):
        result = mpirun(t, mpi, 2, t.stages(2, **program), "--data", data, "--out", mpi, "--worker-timeout", 2, env=slow(4000), suspend=(mpi, 3.5))
        t.check(result[0] == 0 and final(t, mpi) == final(t, "one"), "suspended under " + mpi, repr(result))


def test_mpi_late_start(t):
    """As over TCP: who waits says so after three seconds."""
    data, two = t.digits(), t.stages(2)
    late = os.path.join(t.folder, "late")
    programs.write(late, b'#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && sleep 5\nexec %s "$@"\n' % two.encode())
    os.chmod(late, 0o755)
    for mpi in there(t):
        result = mpirun(t, mpi, 2, late, "--data", data, "--out", "l" + mpi, "--quiet")
        t.check(result[0] == 0 and "worker 0 of 2 waits for " in result[2], "a process of %s that comes late" % mpi, repr(result))


def test_mpi_wrong_start(t):
    data = t.digits()
    found = there(t)
    two = t.stages(2)
    for mpi in found:
        result = mpirun(t, mpi, 3, two, "--data", data, "--out", "w")
        t.check(result[0] == 2 and "the program has 2 workers" in result[2] and "3 processes" in result[2], "too many processes", repr(result))
        result = mpirun(t, mpi, 2, t.stages(1), "--data", data, "--out", "w")
        t.check(result[0] == 2 and "the program has one worker" in result[2] and "2 processes" in result[2], "one worker, two processes", repr(result))
        for other in found:
            if other != mpi:
                env = dict(os.environ, CINCH_MPI=other)
                result = mpirun(t, mpi, 2, two, "--data", data, "--out", "w", env=env, limit=20)
                t.check(result[0] == 2 and "another MPI" in result[2], "%s's library under %s" % (other, mpi), repr(result))
    t.refused(2, ["--transport mpi", "mpirun -np 2"], two, "--data", data, "--transport", "mpi")
