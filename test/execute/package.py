#!/usr/bin/python3
"""tools/package: in a root that has the C library, a shell and nothing else (no compiler, no LLVM, no C start files), what is unpacked
from the tarball and from the .deb compiles a program, which trains and predicts. Needs root, for chroot and mount."""
import os
import shutil
import subprocess

import programs

ROOT = programs.HERE.parent.parent
verdicts = programs.Verdicts()


def bare(root):
    """A root with the C library and busy hands only."""
    for folder in ("bin", "lib64", "lib/x86_64-linux-gnu", "tmp", "work", "usr", "proc"):
        (root / folder).mkdir(parents=True)
    for library in ("libc.so.6", "libm.so.6"):
        shutil.copy("/lib/x86_64-linux-gnu/" + library, root / "lib/x86_64-linux-gnu")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    shutil.copy("/bin/dash", root / "bin/sh")
    (root / "work/p.cinch").write_text(programs.BYTES_MODEL)
    (root / "work/t.txt").write_bytes(programs.BYTES)


def try_in(root, cinch):
    # /proc says where an executable lies, which the loader wants to know; mounted for this command alone.
    mounted = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$1"'
    run = lambda command: programs.call(["unshare", "-m", "sh", "-c", mounted, root, "cd /work && export HOME=/tmp && " + command]).stdout
    said = run("%s p.cinch -o train" % cinch)
    verdicts.expect("step " in said, said)
    run("./train --out out")
    run("./train predict --out out")
    verdicts.expect((root / "work/out/final.safetensors").exists(), "it trains")
    run("%s p.cinch --emit=lib -o lm" % cinch)
    verdicts.expect((root / "work/liblm.so").exists(), "libraries, too")
    verdicts.expect("E0203" in run("%s explain E0203" % cinch), "explain")


def main():
    if os.geteuid() != 0:
        print("needs root: not run")
        verdicts.expect(True, "")
        return
    out = programs.FOLDER / "package"
    programs.call([ROOT / "tools/package", out], timeout=600)
    (archive,) = out.glob("cinch-*.tar.gz")
    (deb,) = out.glob("cinch_*.deb")
    tar = programs.FOLDER / "root-tar"
    bare(tar)
    programs.call(["tar", "-C", tar / "work", "-xzf", archive])
    try_in(tar, "/work/%s/bin/cinch" % archive.name[: -len(".tar.gz")])
    shutil.rmtree(tar)
    root = programs.FOLDER / "root-deb"
    bare(root)
    subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    try_in(root, "/usr/bin/cinch")
    verdicts.expect("libc6" in programs.call(["dpkg-deb", "-f", deb, "Depends"]).stdout, "the package depends on the C library alone")


verdicts.run(main)
