"""programs.py: builds hand-written programs (linear.c, recorder.c) with the runtime, and their data files."""

import array
import json
import os
import random
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CLASSES, INPUTS = 10, 12


class Layout:
    """Hands out offsets, multiples of 64."""

    def __init__(self):
        self.at, self.names = 0, {}

    def place(self, name, size):
        self.names[name] = self.at
        self.at += (size + 63) // 64 * 64
        return self.names[name]


def c_string(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def build(folder, archive, source, meta, defines, name="program"):
    lines = ["#define META " + c_string(json.dumps(meta))]
    lines += ["#define %s %s" % pair for pair in defines.items()]
    path = os.path.join(folder, name)
    os.makedirs(path + ".d", exist_ok=True)
    with open(path + ".d/program.h", "w") as file:
        file.write("\n".join(lines) + "\n")
    flags = os.environ.get("CINCH_TEST_CFLAGS", "").split()  # such as -fsanitize=address, for an archive built with it
    subprocess.run(
        [
            "cc",
            *flags,
            "-O1",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-Wl,--gc-sections",
            "-I",
            path + ".d",
            "-I",
            ROOT,
            os.path.join(HERE, source),
            archive,
            *(["-Wl,-u,cinch_join_peers"] if "workers" in meta else []),  # as the compiler links it
            "-lpthread",
            "-o",
            path,
        ],
        check=True,
    )
    return path


def linear_meta(microbatch=8, batch=32, steps=60, every=None, plan=(), hash="00000000deadbeef", epochs=0, **more):
    """The description of linear.c and its layout."""
    eval_microbatch = 16
    layout = Layout()
    w = layout.place("W", CLASSES * INPUTS * 4)
    b = layout.place("BIAS", CLASSES * 4)
    wm = layout.place("W_M", CLASSES * INPUTS * 4)
    bm = layout.place("BIAS_M", CLASSES * 4)
    persistent = layout.at
    layout.place("DW", CLASSES * INPUTS * 4)
    layout.place("DB", CLASSES * 4)
    for name in ("LOSS", "NORM", "RATE", "ACC", "COUNT", "VALID"):
        layout.place(name, 64)
    layout.place("TABLE", CLASSES * CLASSES * 4)
    layout.place("FIELD_X", microbatch * INPUTS * 4)
    layout.place("FIELD_Y", microbatch * 4)
    layout.place("LOGITS", microbatch * CLASSES * 4)
    layout.place("EVAL_X", eval_microbatch * INPUTS * 4)
    layout.place("EVAL_Y", eval_microbatch * 4)
    layout.place("EVAL_LOGITS", eval_microbatch * CLASSES * 4)
    o = layout.names
    layout.place("PADDING", more.pop("padding", 64))
    tensor = lambda path, shape, offset, **rest: dict(path=path, dtype="F32", shape=shape, offset=offset, **rest)
    fields = [
        dict(name="x", dtype="F32", shape=[INPUTS], scale=1 / 255),
        dict(name="y", dtype="I32", shape=[], scale=1, below=CLASSES),
    ]
    data = lambda name, files, fields=fields: dict(name=name, source="idx", files=files, shuffle=True, fields=fields)
    eval_fields = [
        dict(index=0, offset=o["EVAL_X"], bytes=eval_microbatch * INPUTS * 4, needed_by=["acc", "table"]),
        dict(index=1, offset=o["EVAL_Y"], bytes=eval_microbatch * 4, needed_by=["acc", "table"]),
    ]
    logits = dict(offset=o["LOGITS"], dtype="F32", count=microbatch * CLASSES)
    meta = dict(
        program="linear",
        hash=hash,
        source="linear.cinch",
        version="test",
        seed=42,
        batch=batch,
        steps=0 if epochs else steps,
        epochs=epochs,
        precision="f32",
        arena_bytes=layout.at,
        budget=0,
        allowance=4 << 20,
        max_threads=4,
        persistent_bytes=persistent,
        parameters=[
            tensor("fc.weight", [CLASSES, INPUTS], w, frozen=False, init=dict(kind="normal", a=0.1)),
            tensor("fc.bias", [CLASSES], b, frozen=False, init=dict(kind="constant", a=0)),
        ],
        slots=[tensor("fc.weight.m", [CLASSES, INPUTS], wm), tensor("fc.bias.m", [CLASSES], bm)],
        datasets=[data("train", ["train-images", "train-labels"]), data("valid", ["valid-images", "valid-labels"])]
        + [data(*other) for other in more.pop("others", [])],
        train=dict(
            dataset=0,
            clip_norm=0,
            every=(
                every
                if every is not None
                else [
                    dict(steps=20, kind="eval", dataset=1, batches=0),
                    dict(steps=5, kind="checkpoint", dir="run", keep=3, best="acc", best_is_max=True),
                    dict(steps=5, kind="log", csv=True, jsonl=True, tensorboard=True),
                ]
            ),
        ),
        entries=[
            dict(
                name="train",
                microbatch=microbatch,
                count=batch // microbatch,
                valid=-1,
                bytes=0,
                scalars=[],
                results=[],
                fields=[
                    dict(index=0, offset=o["FIELD_X"], bytes=microbatch * INPUTS * 4),
                    dict(index=1, offset=o["FIELD_Y"], bytes=microbatch * 4),
                ],
            ),
            dict(
                name="eval",
                microbatch=eval_microbatch,
                count=0,
                valid=o["VALID"],
                fields=eval_fields,
                results=[],
                bytes=0,
                scalars=[
                    dict(name="acc", dtype="F32", offset=o["ACC"]),
                    dict(name="table", dtype="F32", shape=[CLASSES, CLASSES], offset=o["TABLE"]),
                ],
            ),
            dict(
                name="predict",
                microbatch=eval_microbatch,
                count=0,
                valid=-1,
                fields=[dict(eval_fields[0], needed_by=["logits"])],
                scalars=[],
                bytes=0,
                results=[dict(name="logits", dtype="F32", shape=[CLASSES], offset=o["EVAL_LOGITS"])],
            ),
        ],
        gate=dict(loss=o["LOSS"], norm=o["NORM"], dtype="F32", lr=o["RATE"]),
        launches=[
            dict(kernel="k0", line=7, text="fc: product", outputs=[logits]),
            dict(
                kernel="k1",
                file="prelude.cinch",
                line=9,
                text="loss: cross_entropy",
                outputs=[dict(offset=o["LOSS"], dtype="F32", count=1)],
            ),
            dict(kernel="k2", line=7, text="fc: gradient", outputs=[]),
        ]
        + [dict(kernel="k%d" % i, line=1, text="", outputs=[]) for i in range(3, 9)],
        plan=list(plan),
    )
    meta.update(more)
    defines = dict(o, B=batch, MB=microbatch, EMB=eval_microbatch, C=CLASSES, I=INPUTS, LR="0.3")
    return meta, defines


def recorder_meta(
    dataset, width, capacity, batch=8, microbatch=4, parameters=(), steps=1000, vocabulary=256, table=0, **more
):
    """The description of recorder.c: `dataset` has one i32 field of `width` values; `capacity` examples are kept."""
    layout = Layout()
    seen = layout.place("SEEN", capacity * width * 4)
    extra = []
    for path, shape, kind, a in parameters:
        count = 1
        for dim in shape:
            count *= dim
        wide = 8 if more.get("precision") == "f64" else 4
        extra.append(
            dict(
                path=path,
                dtype="F64" if wide == 8 else "F32",
                shape=shape,
                frozen=False,
                offset=layout.place(path.replace(".", "_"), count * wide),
                init=dict(kind=kind, a=a),
            )
        )
    persistent = layout.at
    layout.place("LOSS", 64)
    layout.place("FIELD", microbatch * width * 4)
    layout.place("LOGITS", width * vocabulary * 4)
    o = layout.names
    meta = dict(
        program="recorder",
        hash="00000000feedbeef",
        source="recorder.cinch",
        version="test",
        seed=7,
        batch=batch,
        steps=steps,
        epochs=0,
        precision="f32",
        arena_bytes=layout.at,
        budget=0,
        allowance=4 << 20,
        max_threads=4,
        persistent_bytes=persistent,
        parameters=[
            dict(
                path="seen",
                dtype="I32",
                shape=[capacity, width],
                offset=seen,
                frozen=True,
                init=dict(kind="constant", a=0),
            )
        ]
        + extra,
        slots=[],
        datasets=[dataset],
        train=dict(dataset=0, every=[]),
        entries=[
            dict(
                name="train",
                microbatch=microbatch,
                count=batch // microbatch,
                valid=-1,
                scalars=[],
                results=[],
                fields=[dict(index=0, offset=o["FIELD"], bytes=microbatch * width * 4)],
            ),
            dict(
                name="eval",
                microbatch=microbatch,
                count=0,
                valid=-1,
                results=[],
                fields=[],
                scalars=[dict(name="table", dtype="F32", shape=[table, table], offset=o["LOGITS"])] if table else [],
            ),
            dict(
                name="predict",
                microbatch=1,
                count=0,
                valid=-1,
                scalars=[],
                fields=[dict(index=0, offset=o["FIELD"], bytes=width * 4)],
                results=[dict(name="logits", dtype="F32", shape=[max(width - 1, 1), vocabulary], offset=o["LOGITS"])],
            ),
        ],
        gate=dict(loss=o["LOSS"], norm=-1, dtype="F32", lr=-1),
        launches=[],
        plan=[],
    )
    if width > 1:
        meta["model_text"] = dict(field=0, length=width, vocab=vocabulary)
    meta.update(more)
    return meta, dict(
        B=batch,
        MB=microbatch,
        WIDTH=width,
        CAPACITY=capacity,
        SEEN=seen,
        FIELD=o["FIELD"],
        LOSS=o["LOSS"],
        LOGITS=o["LOGITS"],
        VOCABULARY=vocabulary,
    )


# ---- Files


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def idx(kind, shape, values, code):
    """IDX: big-endian values with struct code `code`."""
    head = bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", dim) for dim in shape)
    return head + struct.pack(">%d%s" % (len(values), code), *values)


def npy(descr, shape, values, code, order="<", version=1, fortran=False):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (
        descr,
        fortran,
        "".join("%d, " % d for d in shape),
    )
    head = 10 if version == 1 else 12
    text += " " * (-(head + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + length
        + text.encode()
        + struct.pack("%s%d%s" % (order, len(values), code), *values)
    )


def digits(folder, prefix, count, seed):
    """Blurred one-hot images that a linear model learns."""
    draw = random.Random(seed)
    images, labels = [], []
    for _ in range(count):
        label = draw.randrange(CLASSES)
        labels.append(label)
        images += [min(255, int(draw.random() * 120) + (130 if i == label else 0)) for i in range(INPUTS)]
    write(os.path.join(folder, prefix + "-images"), idx(8, [count, 3, INPUTS // 3], images, "B"))
    write(os.path.join(folder, prefix + "-labels"), idx(8, [count], labels, "B"))
    return images, labels


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    info = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array({"F32": "f", "F64": "d", "I32": "i"}[entry["dtype"]])
        values.frombytes(content[8 + length + begin : 8 + length + end])
        tensors[name] = (entry["shape"], values)
    return info, tensors


def write_safetensors(path, tensors, dtype="F32", info=None):
    header, data = {}, b""
    if info is not None:
        header["__metadata__"] = info
    for name, (shape, values) in tensors.items():
        raw = array.array("d" if dtype == "F64" else "f", values).tobytes()
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + data)


def read_npy(path):
    with open(path, "rb") as file:
        content = file.read()
    assert content[:6] == b"\x93NUMPY"
    (length,) = struct.unpack("<H", content[8:10])
    header = eval(content[10 : 10 + length])
    assert (10 + length) % 64 == 0
    values = array.array({"<f4": "f", "<i4": "i", "<f8": "d"}[header["descr"]])
    values.frombytes(content[10 + length :])
    return header["shape"], values
