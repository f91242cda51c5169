#!/usr/bin/python3
"""`cmake --install BUILD --prefix FOLDER`: what lies there compiles and runs a program, wherever the folder is moved to. While its runtime
library is being written it says so, or compiles as ever."""
import os
import re
import shutil
import threading

import programs

BUILD = programs.HERE.parent.parent / "build"
verdicts = programs.Verdicts()


def main():
    prefix, moved = programs.FOLDER / "prefix", programs.FOLDER / "moved"
    programs.call(["cmake", "--install", BUILD, "--prefix", prefix])
    files = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())
    for wanted in ("bin/cinch", "lib/libcinchrt.a", "share/cinch/docs/from-pytorch.md", "share/cinch/examples/mlp/mlp.cinch", "share/cinch/tools/images"):
        verdicts.expect(wanted in files, "%s is not there: %s" % (wanted, files))
    links(prefix / "share/cinch")
    shutil.move(prefix, moved)
    (programs.FOLDER / "t.txt").write_bytes(programs.BYTES)
    source = programs.source("lm", programs.BYTES_MODEL)
    exe = programs.FOLDER / "lm"
    programs.call([moved / "bin/cinch", source, "-o", exe], cwd="/")
    programs.call([exe, "--data", programs.FOLDER, "--out", programs.FOLDER / "out"])
    verdicts.expect((programs.FOLDER / "out/final.safetensors").exists(), "what it compiles trains")
    verdicts.expect(os.access(moved / "bin/cinch", os.X_OK), "a program")
    half_written(moved, source)


def links(folder):
    """Links of the pages lead to what is there."""
    for page in [folder / "README.md", *folder.glob("docs/*.md"), *folder.glob("examples/*/README.md")]:
        for target in re.findall(r"\[[^\]`]+\]\(([A-Za-z./_-]+)\)", page.read_text()):
            if "/" in target or "." in target:
                verdicts.expect((page.parent / target).exists(), "%s: %s is not there" % (page.relative_to(folder), target))


def half_written(moved, source):
    """Half a library is an error of the machine, with both ways to link; and so it is while somebody writes it, again and again."""
    library, exe = moved / "lib/libcinchrt.a", programs.FOLDER / "half"
    whole = library.read_bytes()
    for size in (0, 4, 100, len(whole) // 3, len(whole) - 1):
        for flags in ([], ["--emit=lib"]):
            library.write_bytes(whole[:size])
            done = programs.call([moved / "bin/cinch", source, "-o", exe, *flags], allowed=range(256))
            said = "is not whole" in done.stdout and "run cinch again" in done.stdout
            verdicts.expect(done.returncode == 5 and said, "%d bytes of the library, %s: %d %s" % (size, flags, done.returncode, done.stdout[-300:]))
            verdicts.expect(not exe.exists(), "%d bytes of the library: there is an executable" % size)
    library.unlink()
    done = programs.call([moved / "bin/cinch", source, "-o", exe], allowed=range(256))
    verdicts.expect(done.returncode == 5 and "cannot be read" in done.stdout, "no library: %d %s" % (done.returncode, done.stdout[-300:]))
    library.write_bytes(whole)
    ended = threading.Event()

    def write():
        while not ended.is_set():
            with open(library, "r+b") as file:
                file.truncate(0)
                file.write(whole)

    writer = threading.Thread(target=write)
    writer.start()
    codes = [programs.call([moved / "bin/cinch", source, "-o", exe], allowed=range(256)).returncode for _ in range(20)]
    ended.set()
    writer.join()
    verdicts.expect(set(codes) <= {0, 5}, "while the library is written, compiling ends with %s" % codes)


verdicts.run(main)
