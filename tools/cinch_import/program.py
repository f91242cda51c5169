"""The whole program around the model, the name map, and the file with the weights."""
import json
import re
import struct

from .node import Refused
from .scopes import Writer
from .values import TYPES, Value, free_name, is_batch, type_text


def _matches(pattern, path):
    """What the stars of a pattern stand for in a path, or None: as little as fits, from the left."""
    found = re.fullmatch("(.*?)".join(re.escape(piece) for piece in pattern.split("*")), path)
    return found.groups() if found else None


def _translated(lines, path):
    for ours, theirs in lines:
        stars = _matches(ours, path)
        if stars is not None:
            for star in stars:
                theirs = theirs.replace("*", star, 1)
            return theirs
    return path


def _general(ours, theirs):
    """The common end of both becomes a star; so does a number in the middle that is the same on both sides."""
    a, b = ours.split("."), theirs.split(".")
    common = 0
    while common < min(len(a), len(b)) - 1 and a[-1 - common] == b[-1 - common]:
        common += 1
    star = ["*"] if common else []
    a, b = a[:len(a) - common] + star, b[:len(b) - common] + star
    numbers = [word for word in a if word.isdigit()]
    if len(numbers) == 1 and b.count(numbers[0]) == 1:
        a, b = (["*" if word == numbers[0] else word for word in side] for side in (a, b))
    return ".".join(a), ".".join(b)


def map_lines(paths):
    """Lines of a `names` block for parameters that are called otherwise, the particular ones first."""
    changed = [pair for pair in paths if pair[0] != pair[1]]
    lines = sorted(dict.fromkeys(_general(*pair) for pair in changed), key=lambda line: -len(line[0].split(".")))
    if any(_translated(lines, ours) != theirs for ours, theirs in paths):
        return changed
    return lines


def fields_of(graph):
    """Inputs that are read -> what the program calls them. `train` has names of its own."""
    names = ["out"] + ["out%d" % number for number in range(2, len(graph.outputs) + 1)]
    fields = {}
    for each in graph.inputs:
        if each["name"] in graph.outputs or any(each["name"] in node.reads() for node in graph.nodes):
            if each["dtype"] not in TYPES:
                raise Refused("input `%s` is of %s" % (each["name"], each["dtype"]))
            fields[each["name"]] = free_name(each["name"], {*names, *fields.values()})
    return fields, names


def label_of(taken):
    """What the made-up labels are called."""
    words = ["y", "target", "label"] + ["label%d" % number for number in range(2, len(taken) + 3)]
    return next(word for word in words if word not in taken)


def quoted(text):
    """A string of the language."""
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")


def _freezes(paths, frozen):
    """Lines that keep what `requires_grad = False` keeps: a whole part by one line, where all parameters in it stay."""
    ours = [mine for mine, theirs in paths if theirs in frozen]
    free = [mine for mine, theirs in paths if theirs not in frozen]
    if ours and not free:
        return ["  // Every parameter is frozen in the file; then there would be nothing to train, so none is here."]
    lines = []
    for mine in ours:
        words = mine.split(".")
        heads = [".".join(words[:count]) + "." for count in range(1, len(words))]
        head = next((head for head in heads if not any(other.startswith(head) for other in free)), None)
        lines.append('  freeze("%s")' % (head + "*" if head else mine))
    return list(dict.fromkeys(lines))


def program(graph, batch, weights):
    called, names = fields_of(graph)
    label = label_of({*called, *called.values()})
    writer = Writer(graph, [*called.values(), *names, label, "loss", "train"])
    inputs = {each["name"]: Value(called[each["name"]], each["shape"], TYPES[each["dtype"]], below=writer.below.get(each["name"]))
              for each in graph.inputs if each["name"] in called}
    name, results, paths, _ = writer.write(writer.root, inputs)
    fields = ["%s: %s%s" % (v.text, type_text(v.shape, v.dtype, v.below), "" if v.text == key else ' from "%s"' % key) for key, v in inputs.items()]
    # The made-up loss reads the first result that has a derivative.
    at = next((number for number, (_, value) in enumerate(results) if value.dtype == "f32"), 0)
    first = results[at][1]
    of_words = any(v.dtype == "i32" for v in inputs.values())
    classes = first.shape[-1] if first.rank in (2, 3 if of_words else 2) and is_batch(first.shape[0]) else 0
    if classes > 1 and first.dtype == "f32":
        fields.append("%s: %s" % (label, type_text(first.shape[:-1], "i32", classes)))
        loss = ["  loss = mean[..] cross_entropy(%%s, %s)" % label, "  metric right = mean[..] (argmax(%%s) == %s)" % label]
    else:
        fields.append("%s: %s" % (label, type_text(first.shape, "f32")))
        loss = ["  loss = mean[..] (%s - %s) ^ 2" % ("%s" if first.dtype == "f32" else "f32(%s)", label)]
    # A tensor that is returned twice is computed once, and predicted under both names.
    firsts = [names[graph.outputs.index(node)] for node, _ in results]
    kept = dict(zip((node for node, _ in results), firsts))
    lines = map_lines(paths)
    text = ["// From an exported PyTorch program. Data, loss and training are a beginning: make them yours.",
            "dim B = %d batch" % batch, "",
            'data train = npz("train.npz") -> (%s)' % ", ".join(fields), ""]
    text += writer.order
    if lines:
        text += ["names pytorch {"] + ['  "%s" = "%s"' % line for line in lines] + ['  "*" = "*"', "}", ""]
    text += ["train %s on train seed 1 {" % name, "  init %s%s" % (quoted(weights), " names pytorch" if lines else ""),
             "  %s = %s(%s)" % (", ".join(firsts), name, ", ".join(called.values()))]
    text += [line % firsts[at] for line in loss]
    text += ["  predict %s = %s" % (each, kept[node]) for each, node in zip(names, graph.outputs)]
    text += _freezes([pair for pair in paths if pair[1] in graph.parameters], graph.frozen)
    text += ["  optimizer adamw(lr = 1e-3, decay = 0.01)", "  steps 1000", "}", ""]
    return "\n".join(text), [theirs for _, theirs in paths]


def write_weights(path, graph, wanted):
    """safetensors: the length of the header, the header, the numbers, all as f32."""
    import numpy

    header, blobs, at = {}, [], 0
    for name in wanted:
        if name not in graph.weights:
            raise Refused("the file does not hold `%s`" % name)
        array = numpy.asarray(graph.weights[name], dtype="<f4", order="C")
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        blobs.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
