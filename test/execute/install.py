#!/usr/bin/python3
"""`cmake --install BUILD --prefix FOLDER`: what lies there compiles and runs a program, wherever the folder is moved to."""
import os
import shutil

import programs

BUILD = programs.HERE.parent.parent / "build"
PROGRAM = """
dim B = 4 batch, T = 8, V = 128
data train = text("t.txt", window = T + 1) -> (text: i32[B, T + 1] below V)
model lm(x: i32[B, T] below V) -> f32[B, T, V] { use e = embedding[V, V]; return e(x) }
train lm on train seed 3 {
  loss = mean[B, T] cross_entropy(lm(text[:, :T]), text[:, 1:])
  optimizer sgd(lr = 1)
  steps 5
}
"""
verdicts = programs.Verdicts()


def main():
    prefix, moved = programs.FOLDER / "prefix", programs.FOLDER / "moved"
    programs.call(["cmake", "--install", BUILD, "--prefix", prefix])
    files = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())
    for wanted in ("bin/cinch", "lib/libcinchrt.a", "share/doc/cinch/from-pytorch.md", "share/cinch/examples/mlp/mlp.cinch"):
        verdicts.expect(wanted in files, "%s is not there: %s" % (wanted, files))
    shutil.move(prefix, moved)
    (programs.FOLDER / "t.txt").write_bytes(b"hello world, hello moon. " * 20)
    source = programs.source("lm", PROGRAM)
    exe = programs.FOLDER / "lm"
    programs.call([moved / "bin/cinch", source, "-o", exe], cwd="/")
    programs.call([exe, "--data", programs.FOLDER, "--out", programs.FOLDER / "out"])
    verdicts.expect((programs.FOLDER / "out/final.safetensors").exists(), "what it compiles trains")
    verdicts.expect(os.access(moved / "bin/cinch", os.X_OK), "a program")


verdicts.run(main)
