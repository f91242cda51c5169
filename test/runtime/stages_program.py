"""stages_program.py: the description and layout of stages.c for any number of workers."""

import programs

INPUTS = programs.INPUTS


class Parts:
    """Hands out offsets in the parts of several workers, one behind the other; `local` counts from the part's begin."""

    def __init__(self, workers):
        self.sizes, self.pending = [0] * workers, []

    def place(self, worker, size):
        at = self.sizes[worker]
        self.sizes[worker] += (size + 63) // 64 * 64
        return at

    def begin(self, worker):
        return sum((size + 4095) // 4096 * 4096 for size in self.sizes[:worker])


def stages_meta(workers=1, layers=3, width=24, microbatch=4, batch=16, one_f_one_b=False, boxes=1, steps=30, every=None, **more):
    parts = Parts(workers)
    microbatches = batch // microbatch
    stage = lambda layer: layer * workers // layers
    rows = (microbatch * width * 4 + 63) // 64 * 64
    last = workers - 1
    weight = [parts.place(stage(l), 8 * width) for l in range(layers)]
    momentum = [parts.place(stage(l), 8 * width) for l in range(layers)]
    gradient = [parts.place(stage(l), 8 * width) for l in range(layers)]
    inputs = [parts.place(stage(l), rows * microbatches) for l in range(layers)]
    outputs = [parts.place(w, rows * microbatches) for w in range(workers)]
    deltas = [parts.place(w, rows) for w in range(workers)]
    gates = [parts.place(w, 64) for w in range(workers)]
    sums = [parts.place(w, 8 * layers + 64) for w in range(workers)]
    received = parts.place(0, 8 * layers + 64)
    results = parts.place(0, rows) if workers > 1 else outputs[0]
    acc = parts.place(0, 64)
    field_x = parts.place(0, microbatch * INPUTS * 4)
    field_y = parts.place(last, microbatch * 4)
    valid = parts.place(last, microbatch)
    other_valid = parts.place(0, microbatch)
    links = [(w, w + 1, rows, "forward %d" % w) for w in range(last)]
    links += [(w + 1, w, rows, "backward %d" % w) for w in range(last)]
    links += [(w, 0, 8 * layers + 64, "sums %d" % w) for w in range(1, workers)]
    links += [(0, w, 64, "gate %d" % w) for w in range(1, workers)]
    links += [(last, 0, rows, "logits")] if workers > 1 else []
    boxed = [
        (source, target, size, name, parts.place(target, boxes * ((size + 63) // 64 * 64)), parts.place(source, size))
        for source, target, size, name in links
    ]
    padding = more.pop("padding", 0)
    for w in range(workers):
        parts.place(w, padding)
    at = [parts.begin(w) for w in range(workers)]
    where = lambda worker, local: at[worker] + local
    tensor = lambda path, l, offset, **rest: dict(
        path=path, dtype="F32", shape=[2, width], offset=where(stage(l), offset), **rest
    )
    fields = [
        dict(name="x", dtype="F32", shape=[INPUTS], scale=1 / 255),
        dict(name="y", dtype="I32", shape=[], scale=1, below=programs.CLASSES),
    ]
    data = lambda name, files: dict(name=name, source="idx", files=files, shuffle=True, fields=fields)
    x = dict(index=0, offset=where(0, field_x), bytes=microbatch * INPUTS * 4)
    y = dict(index=1, offset=where(last, field_y), bytes=microbatch * 4)
    needed = lambda field, name: dict(field, needed_by=[name])
    entry = lambda name, count, fields, scalars=(), results=(), valid=-1: dict(
        name=name, microbatch=microbatch, count=count, valid=valid, bytes=0, fields=fields, scalars=list(scalars), results=list(results)
    )
    count = microbatch * width
    word = lambda number: dict(word=number, dtype="F32", count=count)
    launch = lambda kernel, text, line, outputs=(), inputs=(), **rest: dict(
        kernel=kernel, line=line, text=text, outputs=list(outputs), **({"inputs": list(inputs), "examples": microbatch, "ops": rest["op"]} if "op" in rest else {})
    )
    operations = [dict(list=[dict(name="layer %d" % l, line=10 + l, batch=True)], nodes=[]) for l in range(layers)]
    operations += [dict(list=[dict(name="the loss", line=20)], nodes=[])]
    operations += [dict(list=[dict(name="gradient of layer %d" % l, line=10 + l)], nodes=[]) for l in range(layers)]
    operations += [dict(list=[dict(name="norm", line=30)], nodes=[])]
    weights = dict(word=1, dtype="F32", count=2 * width)
    launches = [launch("spread", "x", 9, [dict(word=1, dtype="F32", count=count)], [dict(word=0, dtype="F32", count=microbatch * INPUTS)])]
    launches += [launch("forward", "layer %d" % l, 10 + l, [word(2)], [word(0), weights], op=l) for l in range(layers)]
    launches += [launch("loss", "loss", 20, [word(1), dict(word=2, dtype="F32", count=1)], [word(0), dict(word=2, dtype="F32", count=1)], op=layers)]
    launches += [
        launch("backward", "gradient of layer %d" % l, 10 + l, [word(3), dict(word=4, dtype="F32", count=2 * width)],
               [word(0), word(1), word(3), dict(word=4, dtype="F32", count=2 * width)], op=layers + 1 + l)
        for l in range(layers)
    ]
    double = lambda number, count: dict(word=number, dtype="F64", count=count)
    launches += [
        launch("square", "norm", 30, [double(1, 1)], [dict(word=0, dtype="F32", count=2 * width)], op=2 * layers + 1),
        launch("merge", "norm", 30),
        launch("agree", "norm", 30, [dict(word=1, dtype="F32", count=1), dict(word=2, dtype="F32", count=1)],
               [double(0, layers), dict(word=3, dtype="F32", count=1)], op=2 * layers + 1),
    ]
    launches += [launch("rest", "", 31) for _ in range(3)]
    gate = dict(loss=where(0, gates[0]), norm=where(0, gates[0] + 4), dtype="F32", lr=-1)
    meta = dict(
        program="stages", hash="00000000deadbeef", source="stages.cinch", version="test", seed=42, batch=batch, steps=steps, epochs=0,
        precision="f32", arena_bytes=parts.begin(workers), budget=0, allowance=4 << 20, max_threads=4, persistent_bytes=0,
        parameters=[
            tensor("layer%d.w" % l, l, weight[l], frozen=False, init=dict(kind="normal", a=0.6)) for l in range(layers)
        ],
        slots=[tensor("layer%d.w.m" % l, l, momentum[l]) for l in range(layers)],
        datasets=[data("train", ["train-images", "train-labels"]), data("valid", ["valid-images", "valid-labels"])],
        train=dict(dataset=0, clip_norm=0, every=every if every is not None else [
            dict(steps=10, kind="eval", dataset=1, batches=0),
            dict(steps=5, kind="checkpoint", dir="run", keep=3),
            dict(steps=5, kind="log", csv=True),
        ]),
        entries=[
            entry("train", microbatches, [x, y]),
            entry("eval", 0, [needed(x, "acc"), needed(y, "acc")], [dict(name="acc", dtype="F32", offset=where(0, acc))], valid=where(0, other_valid)),
            entry("predict", 0, [needed(x, "logits")], (), [dict(name="logits", dtype="F32", shape=[width], offset=where(0, results))]),
        ],
        gate=gate, launches=launches, operations=operations, plan=[],
    )
    meta["entries"][1]["valids"] = [where(0, other_valid), where(last, valid)] if workers > 1 else [where(0, valid)]
    if workers == 1:
        meta["persistent_bytes"] = meta["arena_bytes"]
    else:
        gate["gates"] = [dict(loss=where(w, gates[w]), norm=where(w, gates[w] + 4)) for w in range(workers)]
        meta["workers"] = [dict(at=at[w], bytes=parts.begin(w + 1) - at[w]) for w in range(workers)]
        meta["channels"] = [
            {"from": source, "to": target, "bytes": size, "boxes": boxes, "at": where(target, box), "staging": where(source, staging), "name": name}
            for source, target, size, name, box, staging in boxed
        ]
    meta.update(more)
    listed = lambda values: "{%s}" % ", ".join(map(str, values))
    defines = dict(
        WORKERS=workers, LAYERS=layers, WIDTH=width, MB=microbatch, B=batch, INPUTS=INPUTS, ROWS_BYTES=rows, ONE_F_ONE_B=int(one_f_one_b),
        WEIGHT=listed(weight), MOMENTUM=listed(momentum), GRADIENT=listed(gradient), INPUT=listed(inputs), OUTPUT=listed(outputs),
        DELTA=listed(deltas), FIELD_X=field_x, FIELD_Y=listed([field_y]), LOSS=listed(gates), NORM=listed([g + 4 for g in gates]),
        MESSAGE_BYTES=listed([size for _, _, size, *_ in links] or [0]), SUMS=listed(sums), RECEIVED=received, RESULTS=results, ACC=acc, VALID=valid,
    )
    return meta, defines
