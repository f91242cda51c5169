#!/usr/bin/python3
"""Exported PyTorch programs become .cinch programs: the logits that `predict` gives of them are PyTorch's in eval mode, within 1e-4 of the largest.

The graphs of some small models are stored in test/importer, with inputs and PyTorch's logits, and run without PyTorch. So are the graphs of
test/importer/by_hand.py, small things that an importer may get wrong without a word; what they compute is said there in NumPy. With --torch the test
is run by a Python that has it: all models of test/importer/models.py and odd.py are exported, saved, and imported by `python -m cinch_import`;
refusals; and the three lines by which a result is read back in PyTorch. --store writes the stored graphs anew.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np

import programs
import tensorfile

ROOT = programs.HERE.parent.parent
STORED = ROOT / "test/importer"
sys.path[:0] = [str(ROOT / "tools"), str(STORED)]
import by_hand  # noqa: E402  (found through the line above)

STORE = ("mlp", "gpt2_by_hand", "bert", "lstm", "unet", "conv_text", "padded_causal", "translates")
verdicts = programs.Verdicts()


def run(name, source, arrays, *logits):
    """Compiles, starts from the weights, predicts all that the model returns; an unseen label is made up."""
    folder = source.parent
    text = source.read_text()
    label, kind, axes = re.search(r"(\w+): (f32|i32)\[([^\]]*)\](?: below \d+)?\s*\)\n", text).groups()
    shape = [len(logits[0]) if size == "B" else int(size) for size in axes.split(", ")]
    np.savez(folder / "train.npz", **arrays, **{label: np.zeros(shape, np.int32 if kind == "i32" else np.float32)})
    exe = programs.compiled(source, name + "-exe")
    out = folder / "out"
    programs.call([exe, "--data", folder, "--out", out, "--steps", "0", "--quiet"])
    programs.call([exe, "predict", "--on", "train", "--data", folder, "--out", out])
    for number, wanted in enumerate(logits, 1):
        result = "out%d" % number if number > 1 else "out"
        got = np.load(out / "predict/train" / (result + ".npy"))
        far = np.abs(got - wanted).max() / np.abs(wanted).max() if got.shape == wanted.shape else np.inf
        verdicts.expect(far < 1e-4, "%s: `%s` is off by %.2g of the largest (%s, %s)\n%s" % (name, result, far, got.shape, wanted.shape, text))
    programs.call([exe, "--data", folder, "--out", folder / "trained", "--steps", "3", "--quiet"])
    verdicts.expect(programs.call([programs.CINCH, "fmt", "--check", source], allowed=(0, 1)).returncode == 0, "%s: not formatted" % name)
    return exe, folder, text


def imported(name, file, *flags, code=0):
    folder = programs.FOLDER / name
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join([os.path.dirname(programs.CINCH), os.environ["PATH"]])
    done = subprocess.run([sys.executable, "-m", "cinch_import", file, "-o", folder / (name + ".cinch"), "--batch", "4", *flags], text=True,
                          env=dict(os.environ, PYTHONPATH=str(ROOT / "tools"), PATH=path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    verdicts.expect(done.returncode == code, "%s: exit %d\n%s" % (name, done.returncode, done.stdout[-800:]))
    return folder / (name + ".cinch"), done.stdout


def stored(name):
    source, _ = imported(name, STORED / (name + ".json"))
    with np.load(STORED / (name + ".logits.npz")) as arrays:
        inputs = {key: arrays[key] for key in arrays.files if key != "logits"}
        _, _, text = run(name, source, inputs, arrays["logits"])
    wanted = {"gpt2_by_hand": ["repeat 3 gpt_block", "linear[72]", "layer_norm"], "unet": ["conv_transpose[8, 2, 2]", "resize_bilinear[2]"],
              "lstm": ["= lstm[12]"], "mlp": ["batch_norm(group = B)", "gelu("], "bert": ["repeat 2 bert_layer"],
              "padded_causal": ["repeat 2 transformer_encoder_layer", "attend("]}
    for words in wanted.get(name, []):
        verdicts.expect(words in text, "%s: no `%s` in\n%s" % (name, words, text))


def written(name, graph):
    """A graph by hand, as the file that `--store` writes."""
    file = programs.FOLDER / (name + ".json")
    file.write_text(json.dumps(graph.data()))
    np.savez(file.with_suffix(".npz"), **graph.weights)
    return file


def graphs_by_hand():
    for make in by_hand.ACCEPTED:
        graph = make()
        source, _ = imported(make.__name__, written(make.__name__, graph))
        if source.exists():
            run(make.__name__, source, graph.arrays(), *graph.expected())
    for make in by_hand.REFUSED:
        graph, words = make()
        _, said = imported(make.__name__, written(make.__name__, graph), code=1)
        verdicts.expect(all(word in said for word in words) and "Traceback" not in said, "%s: %s" % (make.__name__, said))


def padding_stays():
    """The row of the padding gets no gradient, all others that are read do."""
    source = programs.FOLDER / "padded_words/padded_words.cinch"
    folder = source.parent
    exe = programs.compiled(source, "padded_words-still", "--set", "decay=0")
    programs.call([exe, "--data", folder, "--out", folder / "still", "--steps", "3", "--quiet"])
    before, after = (programs.tensorfile.read(path)["table.weight"] for path in (source.with_suffix(".safetensors"), folder / "still/final.safetensors"))
    moved = (before != after).any(1)
    verdicts.expect(not moved[2] and moved[[0, 1, 3, 4, 5, 6]].all(), "rows of the table that training moves: %s" % moved)


def ends_with_a_message():
    """What the compiler does not take is said; so is where nothing can be written, and a fault of the importer itself."""
    graph, _ = by_hand.start(6)
    graph.give("x")
    _, said = imported("no_parameter", written("no_parameter", graph), code=1)
    verdicts.expect("E0605" in said and "the compiler does not take it" in said and "parameters in" not in said, said)
    _, said = imported("nowhere", STORED / "mlp.json", "-o", programs.FOLDER / "no folder/net.cinch", code=1)
    verdicts.expect("cinch_import: " in said and "no folder/net.cinch" in said and "Traceback" not in said, said)
    broken = programs.FOLDER / "broken.json"
    broken.write_text("{}")
    np.savez(broken.with_suffix(".npz"))
    _, said = imported("broken", broken, code=70)
    verdicts.expect("a fault of cinch_import" in said and "Traceback" not in said, said)


def by_command(folder, *words, path=()):
    """The importer in a folder, as a person calls it: the exit code and what it says."""
    done = subprocess.run([sys.executable, "-m", "cinch_import", *words], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join([*map(str, path), str(ROOT / "tools")])))
    verdicts.expect("Traceback" not in done.stdout, "%s: %s" % (words, done.stdout))
    return done.returncode, done.stdout


def replaces_nothing_unasked():
    """A program that was edited, the weights of another one and the input itself stay; with --force both files are new, or neither."""
    folder = programs.FOLDER / "kept"
    folder.mkdir()
    net, net2 = folder / "net.cinch", folder / "net2.cinch"
    for ending in (".json", ".npz"):
        (folder / ("net" + ending)).write_bytes((STORED / ("mlp" + ending)).read_bytes())
    graph = (folder / "net.json").read_bytes()
    code, said = by_command(folder, "net.json")
    first = net.read_text()
    verdicts.expect(code == 0 and (folder / "net.safetensors").exists(), said)
    net.write_text("// mine\n" + first)
    code, said = by_command(folder, "net.json")
    verdicts.expect(code == 1 and net.read_text().startswith("// mine") and "--force" in said and "net.cinch and net.safetensors" in said, said)
    net.rename(net2)
    code, said = by_command(folder, "net.json")
    verdicts.expect(code == 1 and not net.exists() and "net.safetensors" in said, "another program may need the weights: " + said)
    (folder / "net.safetensors").write_text("mine")
    (folder / "net.cinch").symlink_to("net2.cinch")
    code, said = by_command(folder, "net.json", "--force")
    verdicts.expect(code == 0 and net.is_symlink() and net2.read_text() == first, "--force: " + said)
    mine = [folder / (name + ".tmp") for name in ("net2.cinch", "net.safetensors")]
    for path in mine:
        path.write_text("mine")
    code, said = by_command(folder, "net.json", "--force")
    verdicts.expect(code == 0 and sorted(folder.glob("*.tmp")) == sorted(mine) and all(path.read_text() == "mine" for path in mine), "files of the user's: " + said)
    for path in mine:
        path.unlink()
    # An import that fails behind the program's text: a parameter that the file lacks.
    net2.write_text("mine")
    arrays = dict(np.load(folder / "net.npz"))
    del arrays[sorted(arrays)[0]]
    np.savez(folder / "net.npz", **arrays)
    code, said = by_command(folder, "net.json", "--force")
    verdicts.expect(code != 0 and net2.read_text() == "mine" and not list(folder.glob("*.tmp")), "%d: %s" % (code, said))
    for out in ("net.json", "x.safetensors", ".", "..", "", "we\nird.cinch"):
        code, said = by_command(folder, "net.json", "--force", "-o", out)
        verdicts.expect(code == 2 and (folder / "net.json").read_bytes() == graph, "-o %r: %d: %s" % (out, code, said))
    code, said = by_command(folder, ".")
    verdicts.expect(code == 2 and "folder" in said, said)


def named_oddly():
    """Quotes and backslashes in the name of the weights are escaped in the program."""
    folder = programs.FOLDER / "odd names"
    folder.mkdir()
    out = 'we"i\\rd.cinch'
    code, said = by_command(folder, STORED / "mlp.json", "-o", out)
    verdicts.expect(code == 0 and 'init "we\\"i\\\\rd.safetensors"' in (folder / out).read_text(), said)
    done = programs.call([programs.CINCH, "check", folder / out])
    verdicts.expect("error" not in done.stdout, done.stdout)


def without_numpy():
    folder = programs.FOLDER / "no numpy"
    folder.mkdir()
    (folder / "numpy.py").write_text('raise ImportError("there is none")')
    code, said = by_command(folder, STORED / "mlp.json", path=[folder])
    verdicts.expect(code == 1 and "needs NumPy" in said, "%d: %s" % (code, said))


def refused_without_torch():
    """An export without a dynamic batch, files that are no program, a Python without PyTorch: a message, and no traceback."""
    data = json.loads((STORED / "mlp.json").read_text())

    def fixed(value):
        if isinstance(value, dict) and list(value) == ["B"]:
            return 4 * value["B"]
        if isinstance(value, dict):
            return {key: fixed(each) for key, each in value.items()}
        return [fixed(each) for each in value] if isinstance(value, list) else value

    static = programs.FOLDER / "static.json"
    static.write_text(json.dumps(fixed(data)))
    static.with_suffix(".npz").write_bytes((STORED / "mlp.npz").read_bytes())
    weights = programs.FOLDER / "weights.pt"
    with zipfile.ZipFile(weights, "w") as archive:
        archive.writestr("weights/data.pkl", b"")
    program = programs.FOLDER / "program.pt2"
    with zipfile.ZipFile(program, "w") as archive:
        archive.writestr("models/model.json", b"")
    damaged = programs.FOLDER / "damaged.pt2"
    damaged.write_bytes(program.read_bytes().replace(b"PK\1\2", b"PK\1\3"))
    text = programs.FOLDER / "text.pt2"
    text.write_text("no program")
    cases = {static: ["axis 0 of input `x`", "is not dynamic", "dynamic_shapes=({0: torch.export.Dim("], weights: ["it holds tensors", "torch.export.export("],
             text: ["it is no exported program", "torch.export.save("], damaged: ["it is a damaged zip file"]}
    if subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        cases[program] = ["reading it needs PyTorch", "pip install torch"]
    for file, words in cases.items():
        _, said = imported("wrong_" + file.stem, file, code=1)
        verdicts.expect(all(word in said for word in words) and "Traceback" not in said, "%s: %s" % (file, said))


# ---- With PyTorch -----------------------------------------------------------------------------------------------------------
def with_torch():
    import models
    import torch
    from cinch_import.graph import from_exported, store

    keep = {}
    for name, module, inputs in models.models():
        exported = models.export(module, inputs)
        file = programs.FOLDER / (name + ".pt2")
        torch.export.save(exported, file)
        with torch.no_grad():
            logits = module.eval()(*inputs).numpy()
        arrays = {each["name"]: tensor.numpy() for each, tensor in zip(from_exported(exported).inputs, inputs)}
        if "--store" in sys.argv and name in STORE:
            store(from_exported(exported), STORED / (name + ".json"))
            np.savez(STORED / (name + ".logits.npz"), logits=logits, **arrays)
        source, _ = imported(name, file)
        keep[name] = run(name, source, arrays, logits), module, inputs
    read_back(*keep["llama"])
    refusals(models, torch)
    odd_ones(models, torch)


def odd_ones(models, torch):
    """Each computes what PyTorch computes, or is refused by what it is. The graphs go through files of `--store`, which are read without PyTorch."""
    import odd
    from cinch_import.graph import Refused, from_exported, store

    for name, module, inputs, words in odd.odd():
        exported = models.export(module, inputs)
        file = programs.FOLDER / (name + ".json")
        try:
            graph = from_exported(exported)
        except Refused as refusal:
            verdicts.expect(words and words in str(refusal), "%s: %s" % (name, refusal))
            continue
        store(graph, file)
        source, said = imported(name, file, code=1 if words else 0)
        if words:
            verdicts.expect(words in said and "Traceback" not in said, "%s: %s" % (name, said))
        elif source.exists():
            with torch.no_grad():
                results = module.eval()(*inputs)
            arrays = {each["name"]: tensor.numpy() for each, tensor in zip(graph.inputs, inputs)}
            results = list(results.values()) if isinstance(results, dict) else results if isinstance(results, tuple) else [results]
            run(name, source, arrays, *(each.numpy() for each in results))
            frozen(name, source, module)


def frozen(name, source, module):
    """What does not require a gradient there does not move here, and all else does; a model of which nothing does is trained as a whole."""
    kept = {each for each, parameter in module.named_parameters() if not parameter.requires_grad}
    lines = re.findall(r'freeze\("(.*)"\)', source.read_text())
    count = len(list(module.parameters()))
    verdicts.expect(bool(lines) == (0 < len(kept) < count), "%s: freezes %s, there %s" % (name, lines, kept))
    if kept:
        before, after = (tensorfile.read(source.parent / folder / "final.safetensors") for folder in ("out", "trained"))
        still = sum(np.array_equal(before[each], after[each]) for each in before)
        verdicts.expect(len(before) == count and still == len(kept) % count, "%s: %d of %d stay, there %s" % (name, still, len(before), kept))


def read_back(result, module, inputs):
    """The lines of the README, with the trained parameters."""
    import torch
    from safetensors.torch import load_file

    exe, folder, _ = result
    state = load_file(folder / "trained/final.safetensors")
    module.load_state_dict(state)
    with torch.no_grad():
        logits = module.eval()(*inputs).numpy()
    programs.call([exe, "predict", "--on", "train", "--data", folder, "--out", folder / "trained"])
    got = np.load(folder / "trained/predict/train/out.npy")
    verdicts.expect(np.abs(got - logits).max() < 1e-4 * np.abs(logits).max(), "the trained parameters give other logits in PyTorch")


def refusals(models, torch):
    class Wrong(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.fc, self.function = torch.nn.Linear(6, 4), function

        def forward(self, x):
            return self.function(self.fc(x))

    cases = {
        "cumsum": (lambda y: torch.cumsum(y, 1), "operation `aten.cumsum.default` is not known here"),
        "over_examples": (lambda y: y - y.mean(0, keepdim=True), "over the examples"),
        "sorted": (lambda y: torch.sort(y, 1)[0], "aten.sort"),
        "first_example": (lambda y: y[:1] + y, ""),
    }
    for name, (function, words) in cases.items():
        exported = models.export(Wrong(function), (torch.randn(4, 6),))
        file = programs.FOLDER / (name + ".pt2")
        torch.export.save(exported, file)
        _, said = imported(name, file, code=1)
        verdicts.expect(words in said and "Traceback" not in said, "%s: %s" % (name, said))
    _, said = imported("nothing", programs.FOLDER / "nothing.pt2", code=1)
    verdicts.expect("Traceback" not in said, said[-600:])


def python_with_torch():
    for python in (os.environ.get("PEERS_VENV", str(ROOT / "bench/peers/venv")) + "/bin/python", "/usr/bin/python3"):
        if pathlib.Path(python).exists() and subprocess.run([python, "-c", "import torch, safetensors"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def main():
    if "--torch" in sys.argv:
        try:
            import torch  # noqa: F401
        except ImportError:
            python = python_with_torch()
            if not python:
                print("no PyTorch here: bench/peers/setup installs it")
                verdicts.expect(True, "")
                return
            sys.stdout.flush()
            os.execv(python, [python, *sys.argv])
        with_torch()
        return
    for name in STORE:
        stored(name)
    graphs_by_hand()
    padding_stays()
    ends_with_a_message()
    replaces_nothing_unasked()
    named_oddly()
    without_numpy()
    refused_without_torch()


verdicts.run(main)
