#!/usr/bin/python3
"""Programs for a GPU of NVIDIA, executed on the CPU (standin.py): the programs of the tree leave the very bits that the CPU's kernels
leave (recorded_bits.json), under several plans and orders of threads; every access is inside of the arena, no two threads race on
shared memory; barriers that are left out are found; each way in which a driver fails is said; runs are resumed, evaluated, predicted.

usage: nvidia.py [--all] [NAME...]     --all: every program of the tree; a NAME chooses programs by a part of it
"""
import argparse
import json
import re
import shutil

import numpy as np

import programs
import recorded_bits
import standin
import tree_programs

verdicts = programs.Verdicts()
QUICK = ("gpt, row blocks", "gather", "norms", "grouped heads", "attend, dropout", "contraction", "grain")
PROGRAM = """dim B = 12 batch, I = 37, H = 45, C = 5

data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)

model mlp(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[H], norm = layer_norm, fc2 = linear[C]
  return fc2(dropout(gelu(norm(fc1(x))), 0.25))
}

train mlp on train seed 42 {
  loss = mean[B] cross_entropy(mlp(x), y)
  metric top = max[B, C] mlp(x)
  metric right = mean[B] f32(argmax(mlp(x)) == y)
  optimizer adamw(lr = 0.01, decay = 0.1)
  clip norm(1)
  steps 6
  every 2 checkpoint("run", keep = 3)
  every 3 eval(train)
}
"""


# ---- Bits ------------------------------------------------------------------------------------------------------------


def same_bits(program, number, recorded):
    source, folder = tree_programs.prepared(program, "nv%d" % number)
    for index, plan in enumerate(program.plans):
        flags = [*program.flags, *plan]
        label = "%s (%s)" % (program.name, " ".join(flags))
        out = programs.FOLDER / ("nv%d-%d-out" % (number, index))
        try:
            built = standin.Program(source, "nv%d-%d" % (number, index), "--max-threads", "2", "--stages", "1", *flags)
            built.run("--data", folder, "--out", out, "--steps", recorded_bits.STEPS, "--quiet", seed=number * 2 + index)
        except programs.Failure as failure:
            verdicts.expect(False, "%s: %s" % (label, failure))
            continue
        found = recorded_bits.hashes(programs.tensorfile.read(out / "final.safetensors"))
        wrong = sorted(path for path in {*recorded, *found} if recorded.get(path) != found.get(path))
        verdicts.expect(not wrong, "%s: other bits than the CPU's in %d of %d tensors: %s" % (label, len(wrong), len(recorded), ", ".join(wrong[:5])))


def trees(options):
    record = json.loads(recorded_bits.RECORD.read_text())
    chosen, kinds = [], set()
    for number, program in enumerate(tree_programs.all_programs()):
        if options.names and not any(name in program.name for name in options.names):
            continue
        if not options.all and not options.names:
            # One program of a kind; those of the examples all the way.
            kind = next((word for word in QUICK if word in program.name), None)
            if kind is None or kind in kinds or "f64" in " ".join(program.flags):
                continue
            kinds.add(kind)
        chosen.append((program, number))
    programs.in_parallel(lambda entry: same_bits(*entry, record[entry[0].name]), chosen)


def records(folder, draw):
    for name in ["data_batch_%d.bin" % i for i in range(1, 6)] + ["test_batch.bin"]:
        images = draw.integers(0, 256, (8, 1 + 3 * 8 * 8)).astype(np.uint8)
        images[:, 0] %= 10
        (folder / name).write_bytes(images.tobytes())


def words(folder, draw):
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_bytes(draw.integers(0, 64, 600).astype(np.uint8).tobytes())


# Examples that recorded_bits.json has nothing of.
EXAMPLES = [
    ("lstm", "B=3 T=7 H=13 V=64", words),
    ("resnet", "B=4 S=8 F=4 G=2", records),
]


def examples(options):
    for name, sizes, write in EXAMPLES:
        if options.names and not any(word in name for word in options.names):
            continue
        folder = programs.FOLDER / name
        folder.mkdir()
        write(folder, np.random.default_rng(5))
        source = tree_programs.ROOT / "examples" / name / (name + ".cinch")
        flags = [word for size in sizes.split() for word in ("-D", size)]
        cpu = programs.compiled(source, name + "-cpu", *flags)
        outs = [programs.FOLDER / (name + end) for end in ("-cpu-out", "-out")]
        run = ["--data", folder, "--steps", "2", "--quiet"]
        programs.call([cpu, *run, "--out", outs[0]])
        standin.Program(source, name + "-device", *flags, "--microbatch", "1" if name == "lstm" else "2").run(*run, "--out", outs[1], seed=3)
        verdicts.expect(parameters(outs[0]) == parameters(outs[1]), "examples/%s: other bits than the CPU's" % name)


# ---- One program, all commands -----------------------------------------------------------------------------------------


def make_data():
    rng = np.random.default_rng(1)
    folder = programs.FOLDER / "data"
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", rng.standard_normal((40, 37)).astype("f4"))
    np.save(folder / "y.npy", rng.integers(0, 5, 40).astype("i4"))
    return folder


def parameters(out):
    return (out / "final.safetensors").read_bytes()


def commands(source, data):
    """Training, a kill, evaluation and prediction give what the CPU's program gives."""
    cpu = programs.compiled(source, "cpu")
    wanted = programs.FOLDER / "cpu-out"
    programs.call([cpu, "--data", data, "--out", wanted, "--quiet"])
    device = standin.Program(source, "device")
    out = programs.FOLDER / "device-out"
    device.run("--data", data, "--out", out, "--quiet")
    verdicts.expect(parameters(out) == parameters(wanted), "final parameters differ from the CPU's")
    for command in ("eval", "predict"):
        ours = device.run(command, "--data", data, "--out", out).stdout
        theirs = programs.call([cpu, command, "--data", data, "--out", wanted]).stdout
        json_of = lambda text: [line for line in text.splitlines() if line.startswith("{")]
        verdicts.expect(json_of(ours) == json_of(theirs), "%s differs: %s and %s" % (command, ours, theirs))
    results = sorted(path.relative_to(wanted) for path in wanted.glob("predict/*/*.npy"))
    verdicts.expect(bool(results), "predict wrote nothing")
    for path in results:
        verdicts.expect((out / path).read_bytes() == (wanted / path).read_bytes(), "%s differs" % path)
    stopped = programs.FOLDER / "stopped-out"
    device.run("--data", data, "--out", stopped, "--quiet", "--steps", "3")
    device.run("--data", data, "--out", stopped, "--quiet", "--resume")
    verdicts.expect(parameters(stopped) == parameters(wanted), "a resumed run has other parameters")
    over = programs.FOLDER / "over-out"
    shutil.copytree(stopped, over)
    (over / "final.safetensors").unlink()
    programs.call([cpu, "--data", data, "--out", over, "--quiet", "--resume"])
    verdicts.expect(parameters(over) == parameters(wanted), "the CPU's program cannot go on from a checkpoint of the device's")
    return device, wanted


def plans(source, data, wanted):
    """No plan changes a bit, whatever the order of the threads."""
    refused = programs.compiled(source, "refused", "--target", "nvidia", "--memory-budget", "100", allowed=(1,))
    least = int(re.search(r"smallest budget that compiles: (\d+) bytes", refused.stdout).group(1))
    for number, plan in enumerate((["--memory-budget", str(least)], ["--microbatch", "1"], ["--microbatch", "3", "--remat", "all"],
                                   ["--microbatch", "4", "--remat", "sqrt"], ["--order-seed", "3"])):
        target = "nvidia:h100" if number % 2 else "nvidia"
        built = standin.Program(source, "plan%d" % number, *plan, target=target)
        out = programs.FOLDER / ("plan%d-out" % number)
        ended = built.run("--data", data, "--out", out, "--quiet", seed=number, memory=least if number == 0 else 1 << 30)
        verdicts.expect(parameters(out) == parameters(wanted), "plan %s: other parameters" % " ".join(plan))
        if number == 0:
            held = int(re.search(r"device memory (\d+) bytes", ended.stdout).group(1))
            verdicts.expect(held <= least, "%d bytes are held, %d were promised" % (held, least))


# Rows enough for column sums by whole blocks and for shares of a table's places (LoopGang.cpp, LoopShares.cpp).
MANY_ROWS = """dim B = 8 batch, T = 70, D = 37, V = 61
data train = npz("t.npz") -> (x: i32[B, T] below V, y: f32[B, T, D])
model net(x: i32[B, T] below V) -> f32[B, T, D] {
  use table = embedding[V, D], norm = layer_norm, up = linear[D], down = linear[19], out = linear[D]
  return out(dropout(relu(down(norm(table(x) + up(table(x))))), 0.3))
}
train net on train seed 3 {
  loss = mean[B, T, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.5)
  steps 2
  %s
}
"""


# Slices of a loop's values that do not begin at 16 bytes (6 x 13 x 13 numbers), and a table of single numbers, where one thread of a team adds.
TRIPS = """dim B = 6 batch, T = 3, D = 13, I = 5
data train = npz("t.npz") -> (x: f32[B, T, D, I], y: f32[B, T, D, D])
layer cell(h: f32[B, D, D], x: f32[B, D, D]) -> f32[B, D, D] {
  return tanh(h + 0.5 * (x @ x))
}
model net(x: f32[B, T, D, I]) -> f32[B, T, D, D] {
  param w: f32[D, I] ~ uniform(0.8)
  use walk = cell
  v = max(x @ w', 0.1)
  return scan[T] walk(0, v)
}
train net on train seed 3 {
  o = net(x)
  loss = mean[b, t, d, e] (o[b, t, d, e] * y[b, t, d, e])
  optimizer sgd(lr = 0.5)
  steps 2
}
"""
PLACES = """dim B = 6 batch, T = 4, V = 5
data train = npz("t.npz") -> (x: i32[B, T, T] below V, y: f32[B])
model net(x: i32[B, T, T] below V) -> f32[B] {
  param p: f32[V] ~ normal(0.3)
  v[b, t, u] = tanh(p[x[b, t, u]])
  o[b] = mean[t, u] v[b, t, u]
  return o
}
train net on train seed 3 {
  loss = mean[B] squared_error(net(x), y)
  optimizer sgd(lr = 0.5)
  steps 2
}
"""


def trips_and_places():
    draw = np.random.default_rng(8)
    normal = lambda *shape: draw.standard_normal(shape).astype("f4")
    for name, text, x, y in (("trips", TRIPS, normal(12, 3, 13, 5), normal(12, 3, 13, 13)),
                             ("places", PLACES, draw.integers(0, 5, (12, 4, 4)).astype("i4"), normal(12))):
        folder, source = programs.FOLDER / (name + "-data"), programs.source(name, text)
        folder.mkdir()
        np.savez(folder / "t.npz", x=x, y=y)
        wanted, out = programs.FOLDER / (name + "-cpu"), programs.FOLDER / (name + "-out")
        programs.call([programs.compiled(source, name + "-exe"), "--data", folder, "--out", wanted, "--quiet"])
        standin.Program(source, name).run("--data", folder, "--out", out, "--quiet", seed=1)
        verdicts.expect(parameters(out) == parameters(wanted), "%s: other parameters than the CPU's" % name)


def many_rows():
    folder, draw = programs.FOLDER / "rows", np.random.default_rng(7)
    folder.mkdir()
    np.savez(folder / "t.npz", x=draw.integers(0, 61, (16, 70)).astype("i4"), y=draw.standard_normal((16, 70, 37)).astype("f4"))
    for number, (more, plan) in enumerate([("", []), ("", ["--microbatch", "4", "--remat", "all"]), ("grain 2", ["--microbatch", "4"]),
                                           ("precision f64", [])]):
        source = programs.source("rows%d" % number, MANY_ROWS % more)
        run, outs = ["--data", folder, "--quiet", "--out"], [programs.FOLDER / ("rows%d-%s-out" % (number, end)) for end in ("cpu", "device")]
        programs.call([programs.compiled(source, "rows%d-cpu" % number, "--stages", "1"), *run, outs[0]])
        standin.Program(source, "rows%d-device" % number, "--stages", "1", *plan).run(*run, outs[1], seed=number)
        verdicts.expect(parameters(outs[0]) == parameters(outs[1]), "many rows, %s: other bits than the CPU's" % " ".join([more, *plan]))


# Rows of an odd length, of which threads take several columns at a time from where they may (LoopWide.cpp), and quotients that cannot
# be found quickly (LoopQuotients.cpp): shares near 0, zeros, norms of rows that hardly differ.
LONG_ROWS = """dim B = 8 batch, T = 3, D = 21, V = 531
data train = npz("t.npz") -> (x: f32[B, T, D], y: i32[B, T] below V)
model net(x: f32[B, T, D]) -> f32[B, T, V] {
  use up = linear[V], norm = layer_norm, mix = linear[V]
  h = dropout(relu(norm(1e-18 * up(x)) + up(x)), 0.1)
  return mix(softmax(40.0 * h)) + 60.0 * h
}
train net on train seed 3 {
  loss = mean[B, T] cross_entropy(net(x), y)
  optimizer sgd(lr = 0.5)
  steps 3
}
"""

# In bf16, without products, which add in another order than a CPU, in rows of 192 and of 531. Roundings leave the CPU's bits; quotients and tanh,
# which a GPU approximates, are near the CPU's, and the same under other plans.
NARROW_ROWS = """dim B = 8 batch, T = 6, D = %d, V = 23
data train = npz("t.npz") -> (x: i32[B, T] below V, y: f32[B, T, D])
model net(x: i32[B, T] below V) -> f32[B, T, D] {
  use table = embedding[V, D], other = embedding[V, D]%s
}
train net on train seed 3 {
  precision bf16(master = f32, accumulate = f32)
  loss = mean[B, T, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.5)
  steps 3
}
"""
ROUNDINGS = """
  a = table(x) * 3
  b = a + other(x)
  return where(random_bool[B, T, D](0.7), relu(b), b * other(x))"""
APPROXIMATED = """, norm = layer_norm
  return dropout(gelu_tanh(norm(dropout(table(x), 0.3) + other(x))), 0.1)"""


def narrow_rows():
    for columns in (192, 531):
        folder, draw = programs.FOLDER / ("narrow%d" % columns), np.random.default_rng(columns)
        folder.mkdir()
        np.savez(folder / "t.npz", x=draw.integers(0, 23, (16, 6)).astype("i4"), y=draw.standard_normal((16, 6, columns)).astype("f4"))
        for name, body in (("roundings", ROUNDINGS), ("approximated", APPROXIMATED)):
            narrow_row("%s of rows of %d in bf16" % (name, columns), folder, NARROW_ROWS % (columns, body), body is ROUNDINGS)


def narrow_row(name, folder, text, exact):
    source = programs.source(name.replace(" ", "-"), text)
    run, out = ["--data", folder, "--quiet", "--out"], programs.FOLDER / (name.replace(" ", "-") + "-out")
    exe = programs.compiled(source, "narrow-cpu", "--stages", "1")
    programs.call([exe, *run, out])
    wanted, values = parameters(out), programs.tensorfile.read(out / "final.safetensors")
    programs.call([exe, *run, out, "--steps", "0"])
    start, left = programs.tensorfile.read(out / "final.safetensors"), []
    for number, plan in enumerate([[], ["--microbatch", "4", "--remat", "all"]]):
        standin.Program(source, "narrow-device", "--stages", "1", *plan).run(*run, out, seed=number)
        left.append(parameters(out))
    found = programs.tensorfile.read(out / "final.safetensors")
    size = lambda x: float(np.sqrt(np.mean(np.square(x, dtype="f8"))))
    apart = max(size(found[path] - values[path]) / size(values[path] - start[path]) for path in values)
    verdicts.expect(left[0] == left[1], name + ": other bits under another plan")
    verdicts.expect(left[0] == wanted if exact else apart < 0.004, "%s: apart from the CPU's: %.3g" % (name, apart))


def long_rows():
    folder, draw = programs.FOLDER / "long", np.random.default_rng(7)
    folder.mkdir()
    np.savez(folder / "t.npz", x=draw.standard_normal((16, 3, 21)).astype("f4"), y=draw.integers(0, 531, (16, 3)).astype("i4"))
    source = programs.source("long", LONG_ROWS)
    run, outs = ["--data", folder, "--quiet", "--out"], [programs.FOLDER / ("long-%s-out" % end) for end in ("cpu", "device")]
    programs.call([programs.compiled(source, "long-cpu", "--stages", "1"), *run, outs[0]])
    for number, plan in enumerate([[], ["--microbatch", "4", "--remat", "all"]]):
        standin.Program(source, "long-device", "--stages", "1", *plan).run(*run, outs[1], seed=number)
        verdicts.expect(parameters(outs[0]) == parameters(outs[1]), "long rows, %s: other bits than the CPU's" % " ".join(plan))


# ---- What goes wrong ---------------------------------------------------------------------------------------------------


def refusals(device, data):
    out = programs.FOLDER / "refused-out"

    def refused(what, pattern, code=5, **settings):
        ended = device.run("--data", data, "--out", out, "--quiet", allowed=range(256), **settings)
        verdicts.expect(ended.returncode == code and re.search(pattern, ended.stdout),
                        "%s: exit %d, %s" % (what, ended.returncode, ended.stdout[-300:]))

    ended = programs.call([device.exe, "--data", data, "--out", out], allowed=range(256))
    verdicts.expect(ended.returncode == 5 and "libcuda.so.1" in ended.stdout, "no driver: %s" % ended.stdout)
    old = programs.FOLDER / "old"
    old.mkdir()
    (old / "old.c").write_text("int cuInit(unsigned n) { return 0; }\n")
    programs.call(["cc", "-shared", "-fPIC", old / "old.c", "-o", old / "libcuda.so.1"])
    ended = programs.call(["env", "LD_LIBRARY_PATH=" + str(old), device.exe, "--data", data, "--out", out], allowed=range(256))
    verdicts.expect(ended.returncode == 5 and "too old" in ended.stdout, "an old driver: %s" % ended.stdout)
    refused("no device", "no GPU of NVIDIA", fail="cuInit")
    refused("no device may be used", "no GPU of NVIDIA", fail="cuDeviceGetCount")
    refused("an old GPU", r"capability 7\.5.*8\.0", capability=75)
    refused("old PTX", "too old for sm_80", fail="cuModuleLoadDataEx")
    refused("a small device", "smaller --memory-budget", memory=1000)
    refused("a device that is taken", "another process holds", memory=100000, taken=99000)
    refused("a kernel does not start", r"start a kernel, starting .*\.cinch:\d+", fail="cuLaunchKernel")
    refused("a kernel fails", "in step 0: unspecified launch failure", fail="launch:9")
    shutil.rmtree(out, ignore_errors=True)
    refused("a kernel fails later", "--resume", fail="launch:150")
    saved = sorted((out / "run").glob("*.safetensors"))
    verdicts.expect(bool(saved), "no checkpoint is left after the failure")


def many_numbers():
    """A kernel's parameters are 4352 bytes at most, however many numbers a program has."""
    lines = ["  h%d = where(h%d > %g, %g, %g)" % (i + 1, i, 0.1 + i / 1e4, 0.7 - i / 1e4, 0.05 + i / 1e4) for i in range(200)]
    text = """dim B = 8 batch, D = 6
data train = npy("x.npy", "y.npy") -> (x: f32[B, D], y: f32[B, D])
model net(x: f32[B, D]) -> f32[B, D] {
  use a = linear[D], b = linear[D]
  h0 = a(x)
%s
  return b(h200 + h0)
}
train net on train seed 3 {
  loss = mean[B, D] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 3
}
""" % "\n".join(lines)
    ptx = programs.FOLDER / "many.ptx"
    programs.call([programs.CINCH, programs.source("many", text), "--target", "nvidia", "--emit", "ptx", "-o", ptx])
    sizes = []
    for entry in ptx.read_text().split(".entry")[1:]:
        sizes.append(sum(int(count) for count in re.findall(r"\.param[^\n]*\[(\d+)\]", entry.split("{")[0])))
    verdicts.expect(sizes and max(sizes) + 64 <= 4352, "a kernel has parameters of %s bytes" % max(sizes, default=None))


def bad_numbers(data):
    """The replay of a failed step names the op, as the CPU's does, though another kernel may compute it."""
    text = PROGRAM.replace("gelu(norm(fc1(x)))", "log(relu(norm(fc1(x))) - 100.0)")
    source = programs.source("bad", text)
    cpu = programs.compiled(source, "bad-cpu")
    device = standin.Program(source, "bad-device")
    said = []
    for number, run in enumerate((lambda *w: programs.call([cpu, *w], allowed=(4,)), lambda *w: device.run(*w, allowed=(4,)))):
        out = programs.FOLDER / ("bad%d-out" % number)
        text = run("--data", data, "--out", out, "--quiet").stdout
        said.append([line.split(" (in kernel")[0] for line in text.splitlines() if "bad.cinch:" in line])
    verdicts.expect(said[0] and said[0] == said[1], "the CPU says %s, the device %s" % tuple(said))


def planted_faults(device, data):
    """A fault is found, as a race, an access outside of the arena, or other bits. Of those in places that two steps do not need (kernels of
    the evaluation, the barrier behind the last step of a sum where a block has one tile only) the bits must be right."""
    ir = (programs.FOLDER / "device.ll").read_text()
    counts = {"barrier": ir.count("call void @llvm.nvvm.barrier"), "shuffle": ir.count("@llvm.nvvm.shfl.sync.down.i32("), "access": 40}
    wanted = programs.FOLDER / "two-out"
    device.run("--data", data, "--out", wanted, "--quiet", "--steps", "2")

    def plant(kind, number):
        name = "%s%d" % (kind, number)
        library = standin.library_of(programs.FOLDER / "device.ll", name, ("--check", "--plant", "%s:%d" % (kind, number)))
        out = programs.FOLDER / (name + "-out")
        ended = device.run("--data", data, "--out", out, "--quiet", "--steps", "2", library=library, allowed=range(256), seed=number)
        words = {"barrier": "a race on shared memory", "access": "outside of the arena"}.get(kind)
        right = ended.returncode == 0 and parameters(out) == parameters(wanted)
        seen = ended.returncode == 99 and words and words in ended.stdout or (kind == "shuffle" and not right)
        verdicts.expect(seen or (right and kind != "access"), "planted %s %d: exit %d, %s" % (kind, number, ended.returncode, ended.stdout[-200:]))
        return seen

    found = standin.faults_found(plant, {kind: standin.spread(range(1, count + 1), 6) for kind, count in counts.items()})
    verdicts.expect(found["barrier"] >= 3 and found["access"] == 6 and sum(found.values()) >= 10, "too few faults were found: %s" % found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if not options.names:
        data, source = make_data(), programs.source("device", PROGRAM)
        device, wanted = commands(source, data)
        plans(source, data, wanted)
        refusals(device, data)
        bad_numbers(data)
        many_numbers()
        many_rows()
        trips_and_places()
        long_rows()
        narrow_rows()
        planted_faults(device, data)
    examples(options)
    trees(options)


if __name__ == "__main__":
    verdicts.run(main)
