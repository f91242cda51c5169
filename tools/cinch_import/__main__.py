"""python -m cinch_import FILE.pt2 [-o NAME.cinch] [--batch N]

Reads what torch.export.save wrote (export in train mode, with the batch as the one dynamic size) and writes NAME.cinch and
NAME.safetensors. What has no counterpart is refused by name.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

from .graph import Refused, load, store
from .program import program, write_weights


def main():
    parser = argparse.ArgumentParser(prog="python -m cinch_import", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="FILE.pt2")
    parser.add_argument("-o", dest="out", type=pathlib.Path, help="the program (default: FILE.cinch in this folder)")
    parser.add_argument("--batch", type=int, default=32, help="examples a step")
    parser.add_argument("--store", type=pathlib.Path, help="writes the graph as JSON, with an .npz of the weights, too")
    options = parser.parse_args()
    out = options.out or pathlib.Path(options.file.with_suffix(".cinch").name)
    weights = out.with_suffix(".safetensors")
    try:
        options.file.open("rb").close()
        graph = load(options.file)
        if options.store:
            store(graph, options.store)
        text, wanted = program(graph, options.batch, weights.name)
    except Refused as refusal:
        sys.exit("cinch_import: %s: %s" % (options.file, refusal))
    except OSError as error:
        sys.exit("cinch_import: %s" % error)
    out.write_text(text)
    write_weights(weights, graph, wanted)
    cinch = shutil.which("cinch")
    if cinch:  # lays the text out
        subprocess.run([cinch, "fmt", out], check=False)
    print("%s, %s: %d parameters in %d tensors" % (out, weights, sum(graph.weights[name].size for name in wanted), len(wanted)))


main()
