#!/usr/bin/python3
"""examples/embed: the static and the shared library train to the bits of the executable, from C and from Python; what is wrong comes back
as a code with a message and leaves the model as it was. The same for a GPU, executed on the CPU (standin.py)."""
import ctypes
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import threading

import numpy as np
import programs
import standin
import tensorfile

EXAMPLE = programs.HERE.parent.parent / "examples" / "embed"
verdicts = programs.Verdicts()


def build(folder):
    shutil.copytree(EXAMPLE, folder)
    run = lambda *command, **more: programs.call([*command], cwd=folder, **more).stdout
    run(sys.executable, "points.py")
    said = run(programs.CINCH, "moons.cinch", "--emit=lib", "-o", "moons")
    verdicts.expect("libmoons.a" in said and "moons.h" in said, said)
    (folder / "named").mkdir()
    said = run(programs.CINCH, "moons.cinch", "--emit=lib", "-o", "named/libother.so")
    verdicts.expect(sorted(path.name for path in (folder / "named").iterdir()) == ["libother.a", "libother.so", "other.h"], "-o names a library: " + said)
    (folder / "x*").mkdir()
    shutil.copy(folder / "moons.cinch", folder / "x*" / "moons.cinch")
    (folder / "starred").mkdir()
    run(programs.CINCH, "x*/moons.cinch", "--emit=lib", "-o", "starred/moons")
    run("cc", "-Wall", "-Werror", "-fsyntax-only", "starred/moons.h")
    run(programs.CINCH, "moons.cinch", "-o", "moons-exe")
    run("./moons-exe", "--data", ".", "--out", "out", "--quiet")
    return run


def examples(folder, run):
    final = (folder / "out/final.safetensors").read_bytes()
    run("cc", "-Wall", "-Wextra", "-Werror", "train.c", "-I.", "libmoons.a", "-lpthread", "-o", "train-c")
    printed = run("./train-c")
    verdicts.expect((folder / "from-c.safetensors").read_bytes() == final, "the static library: other bits")
    (folder / "from-c.safetensors").unlink()
    run("cc", "train.c", "-I.", "-L.", "-lmoons", "-Wl,-rpath,.", "-o", "train-shared")
    verdicts.expect(run("./train-shared") == printed, "the shared library prints something else")
    verdicts.expect((folder / "from-c.safetensors").read_bytes() == final, "the shared library: other bits")
    verdicts.expect(run(sys.executable, "train.py", "./libmoons.so") == printed, "Python prints something else")
    verdicts.expect((folder / "from-python.safetensors").read_bytes() == final, "Python: other bits")
    verdicts.expect("100.0 % right" in printed or "99." in printed, printed)
    seen = run("nm", "-D", "--defined-only", "libmoons.so").split("\n")
    verdicts.expect(all("cinch_model_" in line for line in seen if line), "seen from outside: %s" % seen)
    (folder / "cxx.cpp").write_text('#include "moons.h"\nint main() { return cinch_model_init(1); }\n')
    run("c++", "-Wall", "-Werror", "cxx.cpp", "-I.", "libmoons.a", "-lpthread", "-o", "cxx")
    run("./cxx")


def refused(model, code, words, call):
    try:
        call()
        verdicts.expect(False, "not refused: " + words)
    except RuntimeError as error:
        verdicts.expect(words in str(error) and "(%d)" % code in str(error), "%s: %s" % (words, error))


def for_a_gpu(folder, run):
    """Without a driver the library says so; under the stand-in it trains to the CPU's bits, and parameters are those of the device."""
    (folder / "gpu").mkdir()
    flags = ["--target", "nvidia"]
    run(programs.CINCH, "moons.cinch", "--emit=lib", "-o", "gpu/moons", *flags, "--ptxas", "none")
    run("cc", "-Wall", "-Wextra", "-Werror", "train.c", "-Igpu", "gpu/libmoons.a", "-lpthread", "-o", "train-gpu")
    ended = programs.call([folder / "train-gpu"], cwd=folder, allowed=(0, 5))
    verdicts.expect(ended.returncode == 0 or "driver" in ended.stdout or "GPU" in ended.stdout, "without a driver: " + ended.stdout)
    kernels = standin.kernels(folder / "moons.cinch", "moons-gpu", flags)
    (folder / "from-c.safetensors").unlink()
    run("env", "LD_LIBRARY_PATH=%s" % standin.DRIVER, "STANDIN_KERNELS=%s" % kernels, "./train-gpu")
    verdicts.expect((folder / "from-c.safetensors").read_bytes() == (folder / "out/final.safetensors").read_bytes(), "on a GPU: other bits")
    os.environ["STANDIN_KERNELS"] = str(kernels)
    os.environ["STANDIN_DEVICES"] = "2"
    cuda = ctypes.CDLL(str(standin.DRIVER / "libcuda.so.1"), ctypes.RTLD_GLOBAL)
    beside_others(cuda, ctypes.CDLL(str(folder / "gpu" / "libmoons.so")), folder)
    from_python(folder, "./gpu/libmoons.so", 1)


def beside_others(cuda, library, folder):
    """The calling thread has a context of another device, or none: each call works in the library's own, and gives back what it found."""
    other, found = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1)
    x, label = np.ones((32, 2), np.float32), np.zeros(32, np.int32)
    fields = (ctypes.c_void_p * 2)(x.ctypes.data, label.ctypes.data)
    metrics = (ctypes.c_double * 2)()
    path = str(folder / "beside.safetensors").encode()
    calls = [("cinch_model_init", ctypes.c_int64(1)), ("cinch_model_step", fields, None), ("cinch_model_evaluate", fields, ctypes.c_int64(32), metrics),
             ("cinch_model_save", path), ("cinch_model_load", path)]
    for name, *arguments in calls:
        for mine in (other, ctypes.c_void_p()):
            cuda.cuCtxSetCurrent(mine)
            code = getattr(library, name)(*arguments)
            cuda.cuCtxGetCurrent(ctypes.byref(found))
            verdicts.expect(code == 0 and found.value == mine.value, "%s ends with %d; current was %s and is %s" % (name, code, mine.value, found.value))
    cuda.cuCtxSetCurrent(other)
    code = library.cinch_model_load(str(folder / "missing.safetensors").encode())
    cuda.cuCtxGetCurrent(ctypes.byref(found))
    verdicts.expect(code == 3 and found.value == other.value, "a call that fails ends with %d; current was %s and is %s" % (code, other.value, found.value))


def shapes(train, model, library, x, label):
    """Arrays of other shapes, which the library would read past, and a second model of one library are refused."""
    def wrong(words, call, kind=ValueError):
        try:
            call()
            verdicts.expect(False, "not refused: " + words)
        except kind as error:
            verdicts.expect(words in str(error), "expected `%s`, got `%s`" % (words, error))

    wrong("field `x` has the shape [2, 32]; expected [examples, 2]", lambda: model.predict(x=x[:32].T))
    wrong("field `x` has the shape [32, 1]; expected [examples, 2]", lambda: model.predict(x=x[:32, :1]))
    wrong("field `x` has the shape [2]; expected [examples, 2]", lambda: model.predict(x=x[0]))
    wrong("field `x` has the shape []; expected [examples, 2]", lambda: model.predict(x=1.0))
    wrong("field `label` has the shape [31]; expected [32]", lambda: model.step(x=x[:32], label=label[:31]))
    wrong("field `label` has the shape [32, 1]; expected [32]", lambda: model.evaluate(x=x[:32], label=label[:32, None]))
    wrong("field `x` has 31 examples; expected the 32 of a batch", lambda: model.step(x=x[:31], label=label[:31]))
    wrong("there is no field `lable`; expected `x`, `label`", lambda: model.step(x=x[:32], lable=label[:32]))
    wrong("field `label` is not given, and step reads it; expected an array of [examples]", lambda: model.step(x=x[:32]))
    wrong("no field is given; expected `x`, `label`", lambda: model.predict())
    wrong("has a model in this process already", lambda: train.Model(library), RuntimeError)


def from_python(folder, library="./libmoons.so", threads=2):
    sys.path.insert(0, str(folder))
    import train

    os.chdir(folder)
    table = np.loadtxt("points.csv", delimiter=",", skiprows=1)
    x, label = table[:, :2].astype(np.float32), table[:, 2].astype(np.int32)
    model = train.Model(library, threads=threads)
    verdicts.expect(model.fields == {"x": (np.float32, (2,)), "label": (np.int32, ())}, str(model.fields))
    verdicts.expect(list(model.metrics) == ["loss", "right"] and list(model.results) == ["share"], "metrics, results")
    batch = dict(x=x[:32], label=label[:32])
    start = model.parameter("a.weight").copy()
    bad = x[:32].copy()
    bad[3, 1] = np.nan
    refused(model, 3, "field `x` has nan in example 3", lambda: model.step(x=bad, label=label[:32]))
    refused(model, 3, "declared below 2, but has 2 in example 5", lambda: model.step(x=x[:32], label=np.full(32, 2) * (np.arange(32) == 5)))
    refused(model, 2, "field `label` is NULL", lambda: model.call("step", (ctypes.c_void_p * 2)(batch["x"].ctypes.data, None), None))
    shapes(train, model, library, x, label)
    refused(model, 2, "no parameter is called `c`", lambda: model.parameter("c"))
    refused(model, 2, "did you mean `lr`", lambda: model.set("lt=1"))
    refused(model, 3, "missing.safetensors", lambda: model.load("missing.safetensors"))
    verdicts.expect(np.array_equal(model.parameter("a.weight"), start), "refused calls change nothing")
    weights = model.parameter("out.weight")
    kept = weights.copy()
    weights[:] = 3e38
    refused(model, 4, "the parameters are as they were", lambda: model.step(**batch))
    verdicts.expect(np.all(model.parameter("out.weight") == np.float32(3e38)), "behind the gate nothing changed")
    weights[0] = np.inf
    refused(model, 4, "`out.weight` is not finite any more", lambda: model.save("infinite.safetensors"))
    verdicts.expect(not os.path.exists("infinite.safetensors") and np.all(weights[0] == np.inf), "what is refused is not written, and stays as it is")
    weights[:] = kept
    first = model.step(**batch)
    # A limit on the size of files ends a call, and not the process; what a damaged file has in a name may be no text.
    model.save("good.safetensors")
    damaged = bytearray(pathlib.Path("good.safetensors").read_bytes())
    damaged[damaged.index(b"a.weight") + 3] = 0x94
    pathlib.Path("damaged.safetensors").write_bytes(damaged)
    refused(model, 3, "damaged.safetensors", lambda: model.load("damaged.safetensors"))
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_DFL), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    refused(model, 5, "File too large", lambda: model.save("good.safetensors"))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)
    refused(model, 2, "the setting is NULL", lambda: model.call("set", None))
    refused(model, 2, "the path is NULL", lambda: model.call("load", None))
    refused(model, 2, "the path is NULL", lambda: model.call("save", None))
    refused(model, 2, "the path is NULL", lambda: model.call("parameter", None, None))
    refused(model, 2, "the place of the value is NULL", lambda: model.call("parameter", b"a.weight", None))
    refused(model, 2, "the place of the value is NULL", lambda: model.call("value", 0, ctypes.c_int64(0), None))
    # Another seed is one from the beginning on.
    model.set("seed=77")
    refused(model, 2, "the seed was changed; cinch_model_init has to be called again", lambda: model.step(**batch))
    model.call("init", 0)
    verdicts.expect(not np.array_equal(model.parameter("a.weight"), start), "another seed draws other parameters")
    model.set("seed=1")
    model.call("init", 0)
    verdicts.expect(np.array_equal(model.parameter("a.weight"), start), "init starts anew")
    verdicts.expect(model.step(**batch) == first, "and computes the same")
    model.set("lr=0")
    before = model.parameter("a.weight").copy()
    model.step(**batch)
    verdicts.expect(np.array_equal(model.parameter("a.weight"), before), "set lr=0")
    # Any number of examples; parameters of a trained model; rows do not depend on one another.
    model.load("out/final.safetensors")
    whole = model.predict(x=x)["share"]
    for count in (1, 5, 32, 33):
        verdicts.expect(np.array_equal(model.predict(x=x[:count])["share"], whole[:count]), "%d examples" % count)
    final = tensorfile.read("out/final.safetensors")
    h = np.tanh(np.tanh(x @ final["a.weight"].T + final["a.bias"]) @ final["b.weight"].T + final["b.bias"])
    logits = h @ final["out.weight"].T + final["out.bias"]
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    verdicts.expect(np.abs(share - whole).max() < 1e-5, "predicted shares are NumPy's")
    verdicts.expect(abs(model.evaluate(x=x, label=label)["right"] - (share.argmax(axis=1) == label).mean()) < 1e-6, "evaluate")


def from_two_threads(folder):
    """A call while another one is running is turned away and harms nothing; so is one in a child of fork()."""
    import train

    os.chdir(folder)
    table = np.loadtxt("points.csv", delimiter=",", skiprows=1)
    x, label = table[:, :2].astype(np.float32), table[:, 2].astype(np.int32)
    model = train.Model("./libmoons.so", threads=2)
    model.load("out/final.safetensors")
    many = dict(x=np.tile(x, (2000, 1)), label=np.tile(label, 2000))
    want, said, done = model.evaluate(**many), [], threading.Event()

    def other():
        while not done.is_set():
            try:
                model.library.cinch_model_batch()
                model.call("load", b"out/final.safetensors")
            except RuntimeError as error:
                said.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    got = []
    while len(got) < 20 and not said:
        try:
            got.append(model.evaluate(**many))
        except RuntimeError as error:
            said.append(str(error))
    done.set()
    thread.join()
    verdicts.expect(said and all("another call is running" in text and "(2)" in text for text in said), "a call beside another: %s" % said[:3])
    verdicts.expect(all(each == want for each in got) and model.evaluate(**many) == want, "turned away, it harms nothing")
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            model.evaluate(x=x, label=label)
            os._exit(1)
        except RuntimeError as error:
            os._exit(0 if "was forked" in str(error) and "(2)" in str(error) else 2)
    verdicts.expect(os.waitpid(child, 0)[1] == 0, "a call in a child of fork()")
    verdicts.expect(model.evaluate(**many) == want, "the parent goes on")


def other_programs():
    """f64, bool, metrics with axes, several results, epochs: what a header says is what comes."""
    folder = programs.FOLDER / "other"
    folder.mkdir()
    (folder / "p.cinch").write_text("""dim B = 4 batch, I = 3, C = 2
data train = npz("t.npz") -> (x: f32[B, I], y: i32[B] below C, on: bool[B])
model net(x: f32[B, I]) -> f32[B, C] { use l = linear[C]; return l(x) }
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] where(on, cross_entropy(logits, y), 0)
  metric table = sum[B] confusion[C](argmax(logits), y)
  predict twice = 2 * logits
  predict on = on
  optimizer sgd(lr = 0.1, momentum = 0.9)
  precision f64
  epochs 2
}
""")
    programs.call([programs.CINCH, "p.cinch", "--emit=lib", "-o", folder / "p", "--memory-budget", "4MiB"], cwd=folder)
    header = (folder / "p.h").read_text()
    for words in ("double x[examples][3]", "unsigned char on[examples]", "table[2][2]", 'double "l.weight"[2][3]', "batch 4"):
        verdicts.expect(words in header, "%s in\n%s" % (words, header[:900]))
    import train

    model = train.Model(str(folder / "libp.so"))
    x, y, on = np.random.default_rng(1).normal(size=(7, 3)), np.arange(7) % 2, np.arange(7) % 3 > 0
    refused(model, 2, "steps", lambda: model.step(x=x[:4], y=y[:4], on=on[:4]))
    model.set("steps=5")
    model.step(x=x[:4], y=y[:4], on=on[:4])
    got = model.predict(x=x, on=on)
    logits = x @ model.parameter("l.weight").T + model.parameter("l.bias")
    verdicts.expect(np.allclose(got["twice"], 2 * logits, rtol=1e-13), "f64 results")
    verdicts.expect(np.array_equal(got["on"], on), "bool results")
    table = np.zeros((2, 2))
    np.add.at(table, (logits.argmax(axis=1), y), 1)
    measured = model.evaluate(x=x, y=y, on=on)["table"]
    verdicts.expect(np.array_equal(measured, table) or np.array_equal(measured, table.T), "a metric with axes: %s" % measured)


def from_a_file(folder):
    """A program with `init "file"` begins with its parameters; without the file nothing is computed until another one is loaded."""
    text = (folder / "moons.cinch").read_text()
    assert "  steps 300\n" in text
    (folder / "tuned.cinch").write_text(text.replace("  steps 300\n", '  steps 300\n  init "begin.safetensors"\n'))
    programs.call([programs.CINCH, "tuned.cinch", "--emit=lib", "-o", "tuned"], cwd=folder)
    shutil.copy(folder / "out/final.safetensors", folder / "begin.safetensors")
    begin = tensorfile.read(folder / "begin.safetensors")
    import train

    here = os.getcwd()
    os.chdir(folder)
    try:
        model = train.Model("./libtuned.so", 1)
        same = lambda: all(np.array_equal(model.parameter(name), value) for name, value in begin.items())
        verdicts.expect(same(), "the parameters are not those of the file")
        os.rename("begin.safetensors", "elsewhere.safetensors")
        with open("begin.safetensors", "wb") as file:
            file.write(open("elsewhere.safetensors", "rb").read()[:-40])
        x, label = np.zeros((32, 2), np.float32), np.zeros(32, np.int32)
        model.step(x=x, label=label)
        before = {name: model.parameter(name).copy() for name in begin}
        shares = model.predict(x=x)["share"]
        refused(model, 3, "begin.safetensors", lambda: model.call("init", ctypes.c_int64(1)))
        verdicts.expect(all(np.array_equal(model.parameter(name), value) for name, value in before.items()) and model.library.cinch_model_steps_done() == 1
                        and np.array_equal(model.predict(x=x)["share"], shares), "a file that is refused changes the model")
        # The first call of another process: there is no model, until the file is right.
        fresh = "import ctypes, os, sys; l = ctypes.CDLL('./libtuned.so'); a = l.cinch_model_init(ctypes.c_int64(1)); b = l.cinch_model_save(b'none.safetensors')" \
                "; os.replace('elsewhere.safetensors', 'begin.safetensors'); print(a, b, l.cinch_model_init(ctypes.c_int64(1)), l.cinch_model_save(b'some.safetensors'))"
        said = programs.call([sys.executable, "-c", fresh]).stdout
        verdicts.expect(said == "3 2 0 0\n" and open("some.safetensors", "rb").read() == open("begin.safetensors", "rb").read(), "init in another process: " + said)
        os.rename("begin.safetensors", "elsewhere.safetensors")
        model.call("init", ctypes.c_int64(1))
        refused(model, 3, "start from begin.safetensors", lambda: model.predict(x=x))
        refused(model, 3, "start from begin.safetensors", lambda: model.step(x=x, label=np.zeros(32, np.int32)))
        refused(model, 3, "start from begin.safetensors", lambda: model.call("save", b"nothing.safetensors"))
        model.call("load", b"elsewhere.safetensors")
        verdicts.expect(same() and len(model.predict(x=x)["share"]) == 32, "what was loaded takes its place")
    finally:
        os.chdir(here)


CLOSED = """
#include <dlfcn.h>
#include <unistd.h>
int main(void) {
  void *library = dlopen("./libmoons.so", RTLD_NOW);
  int (*init)(long) = (int (*)(long))dlsym(library, "cinch_model_init");
  if (init(2)) return 1;
  dlclose(library);
  usleep(200000);
  return 0;
}
"""


def held(folder, run):
    """What a library holds: its threads outlive dlclose, and calls, refused or not, leave no descriptor and no memory behind."""
    (folder / "closed.c").write_text(CLOSED)
    run("cc", "closed.c", "-o", "closed", "-ldl")
    run("./closed")
    import train

    here = os.getcwd()
    os.chdir(folder)
    try:
        model = train.Model("./libmoons.so", 2)
        start = tensorfile.read("out/final.safetensors")
        model.load("out/final.safetensors")
        for value in (1e300, -1e39):
            wide = {key: each.astype(np.float64) for key, each in start.items()}
            wide["b.weight"].flat[7] = value
            tensorfile.write("wide.safetensors", wide)
            refused(model, 3, "`b.weight` has %s in it, as element 7" % "%g" % value, lambda: model.load("wide.safetensors"))
        verdicts.expect(all(np.array_equal(model.parameter(key), value) for key, value in start.items()), "a refused file changes parameters")
        wide["b.weight"].flat[7] = np.inf
        tensorfile.write("wide.safetensors", wide)
        model.load("wide.safetensors")
        verdicts.expect(np.isinf(model.parameter("b.weight").flat[7]), "an infinity stays one")
        open("bad.safetensors", "wb").write(b"\x10" + bytes(100))
        before = len(os.listdir("/proc/self/fd"))
        for path in ["bad.safetensors", "out", "missing", "nowhere/x"] * 10:
            refused(model, 3, path, lambda: model.load(path))
        refused(model, 5, "nowhere", lambda: model.save("nowhere/x.safetensors"))
        model.load("out/final.safetensors")
        verdicts.expect(len(os.listdir("/proc/self/fd")) == before, "descriptors are left open")
        resident = lambda: int(re.search(r"VmRSS:\s+(\d+) kB", open("/proc/self/status").read()).group(1))
        model.set("lr=0.1")
        before = resident()
        for _ in range(300000):
            model.library.cinch_model_set(b"lr=0.1")
        for _ in range(300):
            model.load("out/final.safetensors")
        verdicts.expect(resident() - before < 1000, "calls leave memory behind: %d kB" % (resident() - before))
    finally:
        os.chdir(here)


def normalized():
    """What a field was normalized with is known to a file or to the caller: a library that nobody has told saves nothing."""
    folder = programs.FOLDER / "normalized"
    folder.mkdir()
    (folder / "p.cinch").write_text("""dim B = 4 batch, I = 3
data train = npz("t.npz") -> (x: f32[B, I] normalize, y: f32[B] scale 1/145)
names hub { "l.weight" = "fc.weight"; "*" = "*" }
model net(x: f32[B, I]) -> f32[B] { use l = linear[1]; return l(x)[.., 0] }
train net on train seed 1 {
  loss = mean[B] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 5
}
""")
    x = (np.random.default_rng(2).normal(size=(8, 3)) * [1, 20, 300] + [5, 0, -40]).astype(np.float32)
    y = (x @ np.array([1, 0.1, 0.01], np.float32)).astype(np.float32)
    np.savez(folder / "t.npz", x=x, y=y * np.float32(145))
    programs.call([programs.CINCH, "p.cinch", "--emit=lib", "-o", folder / "p"], cwd=folder)
    programs.call([programs.CINCH, "p.cinch", "-o", folder / "exe"], cwd=folder)
    header = (folder / "p.h").read_text()
    for name in ("mean", "std"):
        verdicts.expect('double "data.train.x.%s"[3], of field x: from a file, or written by whoever trains' % name in header, header[:900])
    verdicts.expect("float y[examples], what the data has times 0.006896551724137931" in header, header[:900])
    described = programs.call([folder / "exe", "info"]).stdout
    verdicts.expect("train.x: F32[3] from npz(t.npz), normalized\n" in described, described)
    verdicts.expect("from npz(t.npz), scale 0.006896551724137931\n" in described, described)
    import train

    model = train.Model(str(folder / "libp.so"))
    mean, std = x.astype(np.float64).mean(axis=0), x.astype(np.float64).std(axis=0)
    given = ((x - mean) / std).astype(np.float32)
    model.step(x=given[:4], y=y[:4])
    out = str(folder / "from-library.safetensors")
    refused(model, 2, "nobody has said what field `x` was normalized with", lambda: model.save(out))
    model.parameter("data.train.x.mean")[:] = mean
    refused(model, 2, "nobody has said what field `x` was normalized with", lambda: model.save(out))
    verdicts.expect(not os.path.exists(out), "a file without mean and deviation was left")
    model.parameter("data.train.x.std")[:] = std
    model.save(out)
    said = programs.call([folder / "exe", "eval", "--init", out, "--data", folder, "--out", folder / "out"]).stdout
    loss = re.search(r"loss +([0-9.e+-]+)", said)
    verdicts.expect(loss and np.isclose(float(loss.group(1)), model.evaluate(x=given, y=y)["loss"], rtol=1e-4), "the executable says: " + said)
    model.call("init", ctypes.c_int64(0))
    model.load(out)
    model.save(str(folder / "again.safetensors"))
    verdicts.expect((folder / "again.safetensors").read_bytes() == open(out, "rb").read(), "what was loaded is saved")
    # Of another framework: an executable has a flag for it, a library has none.
    other = str(folder / "other.safetensors")
    tensorfile.write(other, {"fc.weight": np.ones((1, 3), np.float32), "l.bias": np.ones(1, np.float32)})
    np.save(folder / "vec.npy", x)
    for path, words, flag in ((other, "l.weight", True), (str(folder / "vec.npy"), "it is an NPY file", False)):
        ended = programs.call([folder / "exe", "eval", "--init", path, "--data", folder, "--out", folder / "out"], allowed=(3,))
        said = ended.stdout + (ended.stderr or "")
        verdicts.expect(words in said and ("is read with --names hub" in said) == flag, said)
        refused(model, 3, words, lambda: model.load(path))
        try:
            model.load(path)
        except RuntimeError as error:
            verdicts.expect("--names" not in str(error), str(error))


def main():
    folder = programs.FOLDER / "embed"
    run = build(folder)
    examples(folder, run)
    from_python(folder)
    from_two_threads(folder)
    from_a_file(folder)
    held(folder, run)
    other_programs()
    normalized()
    for_a_gpu(folder, run)


verdicts.run(main)
