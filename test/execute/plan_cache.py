#!/usr/bin/python3
"""The plan cache: a hit gives the same binary, byte for byte, as a search; nothing that can be wrong with the folder or with an entry
changes what comes out; it stays within its bound. And the line that is printed while planning takes long.
"""

import json
import os
import pty
import re
import shutil
import subprocess
import time

import programs

verdicts = programs.Verdicts()
MODEL = programs.HERE / "gpt.cinch"
OTHER = programs.HERE / "mlp.cinch"
FLAGS = ["--memory-budget", "8900KiB"]


def environment(**changes):
    kept = {key: value for key, value in os.environ.items() if key not in ("XDG_CACHE_HOME", "HOME", "XDG_CONFIG_HOME")}
    return {**kept, **{key: str(value) for key, value in changes.items()}}


def cinch(*words, **changes):
    done = subprocess.run([programs.CINCH, *map(str, words)], env=environment(**changes), capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def binary(name, *flags, model=MODEL, **changes):
    exe = programs.FOLDER / name
    code, out, err = cinch(model, "-o", exe, *flags, **changes)
    verdicts.expect(code == 0, f"{name}: exit {code}: {err}")
    return exe.read_bytes() if code == 0 else b""


def scheduled(name, *flags, **changes):
    """The program with its plan applied: everything that code is made from, without making it."""
    return binary(name + ".mlir", "--stop-after", "scheduled", *flags, **changes)


def entries(folder):
    return sorted(p for p in (folder / "cinch").glob("*") if p.is_file()) if (folder / "cinch").exists() else []


fresh = binary("fresh", "--no-plan-cache", *FLAGS, XDG_CACHE_HOME=programs.FOLDER / "unused")
verdicts.expect(not entries(programs.FOLDER / "unused"), "--no-plan-cache keeps an entry")

cache = programs.FOLDER / "cache"
verdicts.expect(binary("first", *FLAGS, XDG_CACHE_HOME=cache) == fresh, "with an empty cache another binary comes out")
kept = entries(cache)
verdicts.expect(len(kept) == 1 and kept[0].suffix == ".plan", f"one entry is expected, there are {kept}")
good = kept[0].read_text()
verdicts.expect(binary("hit", *FLAGS, XDG_CACHE_HOME=cache) == fresh, "with a hit another binary comes out")
verdicts.expect(entries(cache) == kept and kept[0].read_text() == good, "a hit changes the entry")
body = json.loads(good.split("\n", 1)[1])

plain = scheduled("plain", "--no-plan-cache", *FLAGS)
verdicts.expect(scheduled("again", *FLAGS, XDG_CACHE_HOME=cache) == plain, "with a hit another plan comes out")

# Damage of every kind: cut off, a changed digit, not JSON, another key, empty, a folder in its place.
damaged = {
    "cut": good[: len(good) // 2],
    "digit": re.sub(r'"microbatch":(\d)', lambda m: '"microbatch":' + str((int(m.group(1)) + 1) % 10), good, count=1),
    "garbage": "\0\xff garbage",
    "empty": "",
    "no sum": json.dumps(body),
    "wrong sum": "0123456789abcdef\n" + json.dumps(body) + "\n",
}
for name, text in damaged.items():
    verdicts.expect(text != good, f"{name}: the entry is not damaged")
    kept[0].write_text(text, encoding="latin-1")
    verdicts.expect(scheduled("damaged", *FLAGS, XDG_CACHE_HOME=cache) == plain, f"{name}: a damaged entry changes the binary")
    verdicts.expect(kept[0].read_text(encoding="latin-1") == good, f"{name}: the damaged entry was not written anew")
kept[0].unlink()
kept[0].mkdir()
verdicts.expect(scheduled("folder", *FLAGS, XDG_CACHE_HOME=cache) == plain, "a folder in an entry's place changes the binary")
kept[0].rmdir()
verdicts.expect(not [e for e in entries(cache) if e.name.startswith(".new")], "temporary files stay behind")

# Other problems have other entries; a name or a comment is no other problem.
scheduled("budget", "--memory-budget", "9500KiB", XDG_CACHE_HOME=cache)
scheduled("budget", "--memory-budget", "9500KiB", XDG_CACHE_HOME=cache)
verdicts.expect(len(entries(cache)) == 1, "another budget needs another entry")
renamed = programs.source("renamed", MODEL.read_text() + "\n// a comment\n")
scheduled("renamed", "--memory-budget", "9500KiB", model=renamed, XDG_CACHE_HOME=cache)
verdicts.expect(len(entries(cache)) == 1, "a comment makes another entry")
scheduled("other", model=OTHER, XDG_CACHE_HOME=cache)
verdicts.expect(len(entries(cache)) == 2, "another program needs another entry")

# Its table and page are those of a search.
table = cinch("plan", MODEL, *FLAGS, "--no-plan-cache")[1]
for _ in range(2):
    verdicts.expect(cinch("plan", MODEL, *FLAGS, XDG_CACHE_HOME=cache)[1] == table, "the cache changes the table of `cinch plan`")

# Folders that cannot serve.
readonly = programs.FOLDER / "readonly"
readonly.write_text("a file, not a folder")
for name, changes in {
    "a file in the folder's place": {"XDG_CACHE_HOME": readonly},
    "below /proc": {"XDG_CACHE_HOME": "/proc/none"},
    "a relative path": {"XDG_CACHE_HOME": "relative"},
    "HOME unset": {},
    "HOME without a folder": {"HOME": readonly / "home"},
}.items():
    verdicts.expect(scheduled("unwritable", *FLAGS, **changes) == plain, f"{name}: another binary comes out")
home = programs.FOLDER / "home"
home.mkdir()
scheduled("at-home", *FLAGS, HOME=home)
verdicts.expect(len(entries(home / ".cache")) == 1, "without XDG_CACHE_HOME the cache is in ~/.cache")

# Bound: the oldest entries make room.
for i in range(300):
    (cache / "cinch" / f"{i:032x}.plan").write_text("old")
    os.utime(cache / "cinch" / f"{i:032x}.plan", (i, i))
stale = cache / "cinch" / ".new-0000000000"
stale.write_text("left behind")
os.utime(stale, (1, 1))
scheduled("bound", "--memory-budget", "10MiB", XDG_CACHE_HOME=cache)
left = entries(cache)
verdicts.expect(len(left) <= 256, f"{len(left)} entries are kept")
verdicts.expect(not stale.exists(), "a temporary file of an ended process stays")
verdicts.expect(not (cache / "cinch" / f"{0:032x}.plan").exists() and len(left) > 200, "not the oldest entries went")

# Many at once.
shutil.rmtree(cache)
crowd = [
    subprocess.Popen([programs.CINCH, str(MODEL), "-o", str(programs.FOLDER / f"crowd{i}"), *FLAGS],
                     env=environment(XDG_CACHE_HOME=cache), stdout=subprocess.DEVNULL)
    for i in range(4)
]
verdicts.expect([p.wait() for p in crowd] == [0] * 4, "compiling at the same time")
verdicts.expect(all((programs.FOLDER / f"crowd{i}").read_bytes() == fresh for i in range(4)), "compiling at the same time: other binaries")
verdicts.expect(len(entries(cache)) == 1 and entries(cache)[0].read_text() == good, "compiling at the same time: the entry")

# Planning that takes longer than two seconds says so: on a terminal in one line, wiped at the end; programs hear nothing.
DEEP = ["plan", programs.HERE.parent.parent / "bench/models/gpt2_124m.cinch", "-DN=20", "-DD=64", "-DA=2", "-DT=32", "-DV=500", "-DB=64",
        "--no-plan-cache"]
begin = time.monotonic()
code, out, err = cinch(*DEEP)
seconds = time.monotonic() - begin
verdicts.expect(code == 0 and seconds > 2.5, f"a deep program is planned in {seconds:.1f} s: too quick to see the line")
verdicts.expect(err == "", f"planning for {seconds:.1f} s says {err!r} to a program")
leader, follower = pty.openpty()
process = subprocess.Popen([programs.CINCH, *map(str, DEEP)], stdout=subprocess.DEVNULL, stderr=follower)
os.close(follower)
text = b""
while True:
    try:
        piece = os.read(leader, 4096)
    except OSError: # the other end is closed
        piece = b""
    if not piece:
        break
    text += piece
verdicts.expect(process.wait() == 0, "planning on a terminal")
lines = text.decode().split("\r\x1b[K")
verdicts.expect(len(lines) > 2 and lines[0] == "" and lines[-1] == "" and all(re.fullmatch(r"planning .*, \d+ s", l) for l in lines[1:-1]),
                f"on a terminal the line is {text!r}")

verdicts.finish()
