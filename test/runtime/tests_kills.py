"""tests_kills.py: runs that are killed, anywhere or around the renames of their files, and runs that are asked to stop."""

import os
import random
import signal
import subprocess
import time

import programs
from cases import content
from tests_state import checkpoints


def test_kills(t):
    data = t.digits()
    program = t.linear(
        steps=3000,
        every=[
            dict(steps=500, kind="eval", dataset=1, batches=0),
            dict(steps=7, kind="checkpoint", dir="run", keep=2, best="", best_is_max=False),
            dict(steps=3, kind="log", csv=True, jsonl=True, tensorboard=True),
        ],
    )
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    draw = random.Random(5)
    kills = 0
    while True:  # killed after some of the 1000 lines, and a moment
        process = subprocess.Popen(
            [program, "--data", data, "--out", "a", "--resume", "--threads", str(1 + kills % 3)],
            cwd=t.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        lines = draw.randrange(3, 200) if kills < 12 else 1 << 30
        while lines and process.stdout.readline():
            lines -= 1
        if lines:
            process.wait()
            break
        time.sleep(draw.random() * 0.003)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    t.check(process.returncode == 0 and kills >= 5, "killed %d times, then done" % kills)
    t.check(content(t.path("a", "final.safetensors")) == whole, "killed and resumed: the same bits")
    strip = lambda name: [line.split(",")[:5] for line in open(t.path(name, "log.csv"))]
    t.check(strip("a") == strip("whole"), "the log is the same, too")
    t.check(not [n for n in os.listdir(t.path("a", "run")) if n.endswith(".tmp")], "no temporary files are left")


TORN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int ends(const char *path) { size_t n = strlen(path); return n > 12 && strcmp(path + n - 12, ".safetensors") == 0; }
int rename(const char *from, const char *to) {
  static int count;
  int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  int dies = ends(to) && ++count == atoi(getenv("DIE_AT"));
  if (dies && getenv("BEFORE")) _exit(9);
  int result = next(from, to);
  if (dies) _exit(9);
  return result;
}
"""


def test_torn_best(t):
    """A run that is killed around any rename of a checkpoint and of the best one leaves, resumed, the files of a run that nobody disturbed."""
    data = t.digits()
    programs.write(t.path("torn.c"), TORN.encode())
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", t.path("torn.c"), "-o", t.path("torn.so")], check=True)
    files = lambda out: {name: content(t.path(out, "run", name)) for name in os.listdir(t.path(out, "run"))}
    t.call(t.linear(), "--data", data, "--out", "whole")
    whole, died = files("whole"), 0
    for at in range(1, 12):
        for before in ({}, {"BEFORE": "1"}):
            out = "torn%d%d" % (at, len(before))
            code, _, _ = t.call(t.linear(), "--data", data, "--out", out, env=dict(os.environ, LD_PRELOAD=t.path("torn.so"), DIE_AT=str(at), **before))
            died += code == 9
            t.call(t.linear(), "--data", data, "--out", out, "--resume")
            t.check(files(out) == whole, "killed at rename %d %s" % (at, before), str(sorted(os.listdir(t.path(out, "run")))))
    t.check(died == 22, "each of these runs is killed", str(died))


def test_signals(t):
    data = t.digits()
    program = t.linear(
        steps=200000,
        every=[
            dict(steps=100000, kind="checkpoint", dir="run", keep=2, best="", best_is_max=False),
            dict(steps=11, kind="eval", dataset=1, batches=0),
        ],
    )
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [program, "--data", data, "--out", "a", "--resume"],
            cwd=t.folder,
            stdout=subprocess.PIPE,
            # Tests that were started by nohup have it ignored, and the program would respect that.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        for line in process.stdout:
            if line.startswith(b"step "):
                break
        time.sleep(0.05)
        process.send_signal(number)
        out = process.communicate(timeout=120)[0].decode()
        t.check(
            process.returncode == 75 and "saved in" in out, "signal %d saves and leaves with 75" % number, out[-300:]
        )
    # `timeout` and others signal a process and then its group: two at once are one wish. Both are there when the process goes on.
    process = subprocess.Popen([program, "--data", data, "--out", "a", "--resume"], cwd=t.folder, stdout=subprocess.PIPE)
    for line in process.stdout:
        if line.startswith(b"step "):
            break
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        process.send_signal(number)
    out = process.communicate(timeout=120)[0].decode()
    # The line may have been of a step that the run before has saved.
    t.check(process.returncode == 75 and ("saved in" in out or "is saved already" in out), "two signals at once", "%s %s" % (process.returncode, out[-300:]))
    t.check(len(checkpoints(t, "a")) == 2, "the last two are there", str(checkpoints(t, "a")))
    last = int(checkpoints(t, "a")[-1][5:13])
    t.call(program, "--data", data, "--out", "b", "--steps", last)
    saved = programs.read_safetensors(t.path("a", "run", checkpoints(t, "a")[-1]))[1]
    final = programs.read_safetensors(t.path("b", "final.safetensors"))[1]
    t.check(all(saved[name][1] == final[name][1] for name in final), "what was saved is the state at that step")
