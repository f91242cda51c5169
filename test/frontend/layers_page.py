#!/usr/bin/python3
"""docs/layers.md lists every layer and built-in of the library with its sizes and arguments as the prelude has them, and nothing else."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def parts(text):
    """What commas separate, outside of brackets."""
    found, depth = [""], 0
    for c in text:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return [" ".join(part.split()) for part in found if part.strip()]


def group(text, at):
    """What stands between the bracket at `at` and the one that closes it; and where it ends."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "[({") - (text[end] in "])}")
        if depth == 0:
            return text[at + 1:end], end + 1
    raise ValueError(text[at:at + 40])


def signatures(prelude):
    """Name and signature: sizes that are given, arguments with their defaults."""
    text = re.sub(r"//[^\n]*", "", prelude)
    found = {}
    for match in re.finditer(r"^(?:layer|builtin) (\w+)", text, re.M):
        sizes, at = group(text, match.end()) if text[match.end()] == "[" else ("", match.end())
        arguments, _ = group(text, at)
        given = [size for size in parts(sizes) if not size.endswith("?")]
        found[match.group(1)] = match.group(1) + ("[%s]" % ", ".join(given) if given else "") + "(%s)" % ", ".join(parts(arguments))
    return found


def main():
    wanted = signatures((ROOT / "compiler/frontend/prelude.cinch").read_text())
    page = (ROOT / "docs/layers.md").read_text()
    listed = {}
    for cell in re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", page, re.M):
        for signature in re.findall(r"`([^`]+)`", cell):
            listed[re.match(r"\w+", signature).group()] = signature
    failed = 0
    for name in sorted(wanted.keys() | listed.keys()):
        if wanted.get(name) != listed.get(name):
            failed += 1
            print("FAILED: %s: the library has %s, the page %s" % (name, wanted.get(name), listed.get(name)))
    print("%d passed, %d failed" % (len(wanted) - min(failed, len(wanted)), failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
