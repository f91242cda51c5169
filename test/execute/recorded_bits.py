#!/usr/bin/python3
"""The bits that a few steps leave in the parameters stay what they were: the programs of the tree at tiny sizes, and a sample of
the operations of gradcheck.py, most under two plans, against the hashes of recorded_bits.json.

usage: recorded_bits.py [--record] [NAME...]      --record writes the hashes down anew; a NAME chooses programs by a part of it

A hash is one over the path, type, shape and bytes of a tensor in final.safetensors, never of a file. f32 and f64 alike are the
same on every CPU: elementary functions, draws and initial values are formulas of this tree, no code calls libm
(runtime/FORMULAS.md).
Bits may change only where the order or the formula of a calculation is changed on purpose; then they are recorded anew.
"""
import argparse
import hashlib
import json

import numpy as np

import programs
import tree_programs

RECORD = programs.HERE / "recorded_bits.json"
STEPS = 3
verdicts = programs.Verdicts()


# ---- Hashes ----------------------------------------------------------------------------------------------------------


def hashes(tensors):
    """{path: hash}."""
    found = {}
    for path, value in sorted(tensors.items()):
        digest = hashlib.sha256(("%s %s %s\n" % (path, value.dtype.name, list(value.shape))).encode())
        digest.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
        found[path] = digest.hexdigest()[:16]
    return found


def check(program, number, recorded):
    """Compares with what is recorded, or without a record only the two plans; returns the hashes."""
    source, folder = tree_programs.prepared(program, "bits%d" % number)
    got = None
    for index, plan in enumerate(program.plans):
        flags = [*program.flags, *plan]
        label = "%s (%s)" % (program.name, " ".join(flags))
        try:
            exe = programs.compiled(source, "bits%d-%d" % (number, index), "--max-threads", "2", *flags)
            result = programs.run(exe, folder, STEPS, "--threads", str(1 + index))
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (label, failure))
            continue
        found = hashes(result.parameters)
        expected, whose = (recorded, "recorded") if recorded is not None else (got or found, "of the first plan")
        wrong = sorted(path for path in {*expected, *found} if expected.get(path) != found.get(path))
        verdicts.expect(not wrong, "%s: other bits than %s in %d of %d tensors: %s" % (
            label, whose, len(wrong), len(expected), ", ".join(wrong[:5])))
        got = got or found
    return got


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    anew = options.record and not options.names
    record = {} if anew or not RECORD.exists() else json.loads(RECORD.read_text())
    chosen = [(p, i) for i, p in enumerate(tree_programs.all_programs() + tree_programs.IMAGES) if not options.names or any(n in p.name for n in options.names)]

    def one(entry):
        program, number = entry
        known = None if options.record else record.get(program.name)
        if not options.record and known is None:
            verdicts.expect(False, "%s: nothing is recorded" % program.name)
        found = check(program, number, known)
        if options.record and found:
            record[program.name] = found

    programs.in_parallel(one, chosen)
    if options.record and not verdicts.failed:
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    verdicts.finish()


if __name__ == "__main__":
    main()
