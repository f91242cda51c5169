#!/usr/bin/python3
"""`cmake --install BUILD --prefix FOLDER`: what lies there compiles and runs a program, wherever the folder is moved to."""
import os
import shutil

import programs

BUILD = programs.HERE.parent.parent / "build"
verdicts = programs.Verdicts()


def main():
    prefix, moved = programs.FOLDER / "prefix", programs.FOLDER / "moved"
    programs.call(["cmake", "--install", BUILD, "--prefix", prefix])
    files = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())
    for wanted in ("bin/cinch", "lib/libcinchrt.a", "share/doc/cinch/from-pytorch.md", "share/cinch/examples/mlp/mlp.cinch"):
        verdicts.expect(wanted in files, "%s is not there: %s" % (wanted, files))
    shutil.move(prefix, moved)
    (programs.FOLDER / "t.txt").write_bytes(programs.BYTES)
    source = programs.source("lm", programs.BYTES_MODEL)
    exe = programs.FOLDER / "lm"
    programs.call([moved / "bin/cinch", source, "-o", exe], cwd="/")
    programs.call([exe, "--data", programs.FOLDER, "--out", programs.FOLDER / "out"])
    verdicts.expect((programs.FOLDER / "out/final.safetensors").exists(), "what it compiles trains")
    verdicts.expect(os.access(moved / "bin/cinch", os.X_OK), "a program")


verdicts.run(main)
