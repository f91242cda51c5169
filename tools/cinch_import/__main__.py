"""python -m cinch_import FILE.pt2 [-o NAME.cinch] [--batch N]

Reads what torch.export.save wrote (export in train mode, with the batch as the one dynamic size) and writes NAME.cinch and
NAME.safetensors. What has no counterpart is refused by name. If `cinch` is on the PATH, it lays the program out and checks it.

Exit codes: 0 the program is written, 1 refused, 2 wrong arguments, 70 a fault of this tool.
"""
import argparse
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
    parser.add_argument("--store", type=pathlib.Path, help="writes the graph as JSON, with an .npz of the weights, too")
    options = parser.parse_args()
    if options.batch < 1:
        parser.error("a batch has at least one example, got %d" % options.batch)
    options.out = options.out or pathlib.Path(options.file.with_suffix(".cinch").name)
    return options


def write(options):
    """Both files; says how many parameters there are."""
    weights = options.out.with_suffix(".safetensors")
    options.file.open("rb").close()
    graph = load(options.file)
    if options.store:
        store(graph, options.store)
    text, wanted = program(graph, options.batch, weights.name)
    options.out.write_text(text)
    write_weights(weights, graph, wanted)
    return "%s, %s: %d parameters in %d tensors" % (options.out, weights, sum(graph.weights[name].size for name in wanted), len(wanted))


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
