"""python -m cinch_import FILE.pt2 [-o NAME.cinch] [--batch N] [--force]

Reads what torch.export.save wrote (export in train mode, with the batch as the one dynamic size) and writes NAME.cinch and
NAME.safetensors, both or neither. What has no counterpart is refused by name, and files that are there already are replaced with
--force alone. If `cinch` is on the PATH, it lays the program out and checks it.

Exit codes: 0 the program is written, 1 refused, 2 wrong arguments, 70 a fault of this tool.
"""
import argparse
import itertools
import os
import pathlib
import shutil
import subprocess
import sys

from .graph import Refused, load, store
from .program import program, write_weights

FAULT = 70  # the code of the compiler, too


def arguments():
    parser = argparse.ArgumentParser(prog="python -m cinch_import", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="FILE.pt2")
    parser.add_argument("-o", dest="out", type=pathlib.Path, help="the program (default: FILE.cinch in this folder)")
    parser.add_argument("--batch", type=int, default=32, help="examples a step")
    parser.add_argument("--force", action="store_true", help="replaces NAME.cinch and NAME.safetensors")
    parser.add_argument("--store", type=pathlib.Path, help="writes the graph as JSON, with an .npz of the weights, too")
    options = parser.parse_args()
    if options.batch < 1:
        parser.error("a batch has at least one example, got %d" % options.batch)
    if options.file.is_dir():
        parser.error("FILE.pt2 is a file, and %s is a folder" % options.file)
    options.out = options.out or pathlib.Path(options.file.with_suffix(".cinch").name)
    why = why_no_program(options)
    if why:
        parser.error("-o %s: %s" % (ascii(str(options.out)), why))
    options.weights = options.out.with_suffix(".safetensors")
    return options


def why_no_program(options):
    """What is wrong with the name of the program, or None. The program says in one line of text where its weights are."""
    out = options.out
    if out.is_dir() or not out.name:
        return "the program is a file, and this is a folder"
    if out.suffix == ".safetensors":
        return "the weights get this name, and the program needs another one"
    if any(path.exists() and options.file.exists() and path.samefile(options.file) for path in (out, out.with_suffix(".safetensors"))):
        return "%s is read, and would be written over" % options.file
    if not all(each.isprintable() or each == "\t" for each in out.name):
        return "a program cannot name such a file"
    return None


def new_draft(path):
    """An empty file beside `path`, under a name that no file has."""
    for number in itertools.count():
        draft = path.with_name("%s.%d-%d.tmp" % (path.name, os.getpid(), number))
        try:
            draft.open("x").close()
            return draft
        except FileExistsError:
            pass


def write(options):
    """Both files; says how many parameters there are."""
    options.file.open("rb").close()
    there = [str(path) for path in (options.out, options.weights) if path.exists()]
    if there and not options.force:
        raise Refused("%s would be replaced; choose another name with -o, or say --force" % " and ".join(there))
    graph = load(options.file)
    if options.store:
        store(graph, options.store)
    text, wanted = program(graph, options.batch, options.weights.name)
    # Each under another name first, and what a link leads to, not the link: an import that fails changes neither.
    whole = [pathlib.Path(os.path.realpath(path)) for path in (options.out, options.weights)]
    drafts = []
    try:
        for path in whole:
            drafts.append(new_draft(path))
        drafts[0].write_text(text, encoding="utf-8")
        write_weights(drafts[1], graph, wanted)
        for draft, path in zip(drafts, whole):
            draft.replace(path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
    return "%s, %s: %d parameters in %d tensors" % (options.out, options.weights, sum(graph.weights[name].size for name in wanted), len(wanted))


def checked(out):
    """What the compiler says against the program, if it is at hand; it lays the text out, too."""
    cinch = shutil.which("cinch")
    for command in ("fmt", "check") if cinch else ():
        done = subprocess.run([cinch, command, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            return done.stdout.strip()
    return None


def main():
    options = arguments()
    try:
        said = write(options)
        wrong = checked(options.out)
    except Refused as refusal:
        sys.exit("cinch_import: %s: %s" % (options.file, refusal))
    except OSError as error:
        sys.exit("cinch_import: %s" % error)
    except Exception as error:  # whatever it is, the model is not to blame
        print("cinch_import: %s: this is a fault of cinch_import: %s: %s" % (options.file, type(error).__name__, error), file=sys.stderr)
        sys.exit(FAULT)
    if wrong:
        sys.exit("%s\ncinch_import: %s is written, but the compiler does not take it (above)" % (wrong, options.out))
    print(said)


main()
