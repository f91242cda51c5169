"""Programs that once failed: programs/random/*.cinch. Each line `// flags: ..` is a plan under which it must compile, and leave
the bits of the plan without recomputation; `--memory-budget smallest` stands for the smallest that its refusal names.
"""
import re
import zlib

import numpy as np

import programs

FOLDER = programs.HERE / "programs" / "random"


def sizes_of(text):
    sizes = {}
    for line in re.findall(r"^dim (.*)$", text, re.M):
        for name, value in re.findall(r"(\w+) = ([^,]+?)(?: batch)?(?:,|$)", line):
            sizes[name] = eval(value, {"__builtins__": {}}, sizes)
    return sizes


def write_data(text, folder):
    sizes = sizes_of(text)
    line = re.search(r"^data .*$", text, re.M).group()
    fields = re.findall(r"\w+: (f32|i32)\[([^\]]*)\](?: below (\w+))?", line.split("->", 1)[1])
    draw = np.random.RandomState(zlib.crc32(text.encode()) % 2**31)
    for name, (dtype, axes, below) in zip(re.findall(r'"([^"]+)"', line.split("->")[0]), fields):
        shape = [eval(axis, {"__builtins__": {}}, sizes) for axis in axes.split(",")]
        shape[0] *= 2
        limit = sizes.get(below) or int(below or 0)
        values = draw.randint(0, limit, shape) if dtype == "i32" else draw.uniform(-1, 1, shape)
        np.save(folder / name, values.astype(np.int32 if dtype == "i32" else np.float32))


def smallest(source, flags):
    done = programs.compiled(source, "refused-" + source.stem, *flags, "--memory-budget", "1KiB", allowed=(1,))
    named = re.search(r"smallest budget that compiles: (\d+) bytes", done.stdout)
    if not named:
        raise programs.Failure("no smallest budget is named: " + done.stdout[-1000:])
    return int(named.group(1))


def meaning(flags):
    """The flags that say what is computed; the others are the plan."""
    return [word for pair in zip(flags[::2], flags[1::2]) for word in pair if pair[0] in ("-D", "--set")]


def check_one(path, verdicts):
    text = path.read_text()
    data = programs.FOLDER / ("data-" + path.stem)
    data.mkdir()
    write_data(text, data)
    references = {}

    def bits(line, number):
        flags, budget = line.split(), None
        try:
            if "smallest" in flags:
                at = flags.index("smallest")
                budget = smallest(path, flags[:at - 1] + flags[at + 1:])
                flags[at] = str(budget)
            result = programs.run(programs.compiled(path, "%s-%s" % (path.stem, number), *flags), data, 3)
        except programs.Failure as failure:
            verdicts.expect(False, "%s under `%s`: %s" % (path.name, line, failure))
            return None
        if budget:
            for flag in ("--stages", "--replicas"):
                budget *= int(flags[flags.index(flag) + 1]) if flag in flags else 1
            verdicts.expect(result.peak <= budget, "%s under `%s`: a peak of %d bytes" % (path.name, line, result.peak))
        return result.bytes

    for i, line in enumerate(re.findall(r"^// flags: *(.*)$", text, re.M)):
        plain = " ".join(["--remat none", *meaning(line.split())])
        if plain not in references:
            references[plain] = bits(plain, "plain%d" % i)
        found = bits(line, i)
        if found and references[plain]:
            verdicts.expect(found == references[plain], "%s: other bits under `%s` than `%s`" % (path.name, line, plain))


def check(verdicts):
    programs.in_parallel(lambda path: check_one(path, verdicts), sorted(FOLDER.glob("*.cinch")))
