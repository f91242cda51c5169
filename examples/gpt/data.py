#!/usr/bin/python3
"""Gathers real text that a Debian machine has into train.txt and valid.txt:  data.py FOLDER [--licences]

The licences under /usr/share/common-licenses, and the headers and TableGen files of the newest installed LLVM and MLIR (megabytes; not
with --licences). One piece of 16 KiB in twenty is for validation; which ones depends on nothing but the text.
"""
import argparse
import pathlib
import random

LICENCES = pathlib.Path("/usr/share/common-licenses")
PIECE = 16 * 1024


def files(licences_only):
    yield from sorted(path for path in LICENCES.iterdir() if path.is_file() and not path.is_symlink())
    if licences_only:
        return
    versions = [path for path in pathlib.Path("/usr/lib").glob("llvm-*/include") if path.is_dir()]
    if not versions:
        return
    newest = max(versions, key=lambda path: int("".join(c for c in path.parent.name if c.isdigit()) or "0"))
    for part in ("llvm", "mlir"):
        folder = (newest / part).resolve()
        if folder.is_dir():
            yield from sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".td") and path.is_file())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--licences", action="store_true")
    options = parser.parse_args()
    text = b"".join(path.read_bytes() for path in files(options.licences))
    pieces = [text[at:at + PIECE] for at in range(0, len(text), PIECE)]
    random.Random(1).shuffle(pieces)
    held = max(1, len(pieces) // 20)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train.txt", pieces[held:]), ("valid.txt", pieces[:held])):
        path = options.folder / name
        path.write_bytes(b"".join(part))
        print("%s: %d bytes" % (path, path.stat().st_size))


main()
