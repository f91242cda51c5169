"""tests_data.py: the readers, what they refuse, the walk over the data, initial values."""

import array
import math
import os
import struct
import time

import programs
import reference
from cases import content


def test_initial_values(t):
    programs.write(t.path("x.npy"), programs.npy("<i4", [16], list(range(16)), "i"))
    dataset = dict(name="train", source="npy", files=["x.npy"], fields=[dict(name="x", dtype="I32", shape=[])])
    kinds = [
        ("a.constant", [7], "constant", 0.5),
        ("a.normal", [3, 5, 7], "normal", 0.02),
        ("b.normal", [105], "normal", 1.0),
        ("a.uniform", [101], "uniform", 0.3),
        ("a.truncated", [513], "truncated_normal", 2.0),
    ]
    single = t.recorder(
        dataset, 1, 8, parameters=kinds + [("wide", [6, 20], "orthogonal", 1.5), ("tall", [20, 6], "orthogonal", 1.0)]
    )
    double = t.recorder(dataset, 1, 8, parameters=kinds, precision="f64")
    for program, code, threads in ((single, "f", 1), (single, "f", 3), (double, "d", 2)):
        done = t.call(program, "--data", ".", "--out", "a", "--steps", 0, "--threads", threads)
        t.check(done[0] == 0, "--steps 0", done[2])
        _, tensors = programs.read_safetensors(t.path("a", "final.safetensors"))
        for path, shape, kind, a in kinds:
            expected = array.array(code, reference.initial(7, path, kind, a, len(tensors[path][1])))
            t.check(tensors[path][0] == shape and tensors[path][1] == expected, "%s in %s" % (path, code))
        if code == "d":
            continue
        for path, gain in (("wide", 1.5), ("tall", 1.0)):
            (rows, columns), values = tensors[path]
            vectors = [[values[r * columns + c] for c in range(columns)] for r in range(rows)]
            if rows > columns:
                vectors = list(zip(*vectors))
            worst = max(
                abs(sum(x * y for x, y in zip(a, b)) - (gain * gain if a is b else 0)) for a in vectors for b in vectors
            )
            t.check(worst < 1e-5, "%s is orthogonal" % path, str(worst))
    normal = reference.initial(7, "long", "normal", 1.0, 4000)
    mean, square = sum(normal) / 4000, sum(x * x for x in normal) / 4000
    t.check(abs(mean) < 0.06 and abs(square - 1) < 0.08, "normal numbers are normal", "%f %f" % (mean, square))
    worst = max(abs(reference.log(x) - math.log(x)) for x in (1e-16, 0.1, 0.5, 0.7, 0.70710678, 0.999999, 1.0))
    t.check(worst < 1e-14, "log")


def test_shuffle(t):
    for count in (1, 2, 3, 10, 16, 17, 64, 65, 1000):
        for epoch in (0, 1):
            order = [reference.shuffled(7, epoch, count, place) for place in range(count)]
            t.check(sorted(order) == list(range(count)), "a permutation of %d" % count)
    count = 37
    programs.write(t.path("x.npy"), programs.npy("<i4", [count], [3 * i for i in range(count)], "i"))
    dataset = dict(name="train", source="npy", files=["x.npy"], fields=[dict(name="x", dtype="I32", shape=[])])
    program = t.recorder(dataset, 1, 160)
    t.call(program, "--data", ".", "--out", "a", "--steps", 20, "--threads", 2)
    seen = list(programs.read_safetensors(t.path("a", "final.safetensors"))[1]["seen"][1])
    expected = [3 * reference.shuffled(7, p // count, count, p % count) for p in range(160)]
    t.check(seen == expected, "the walk over the examples", "%s %s" % (seen[:10], expected[:10]))
    t.check(seen[:count] != sorted(seen[:count]) and seen[:count] != seen[count : 2 * count], "epochs differ")
    plain = t.recorder(dict(dataset, shuffle=False), 1, 160)
    t.call(plain, "--data", ".", "--out", "b", "--steps", 20)
    seen = list(programs.read_safetensors(t.path("b", "final.safetensors"))[1]["seen"][1])
    t.check(seen == [3 * (p % count) for p in range(160)], "shuffle = false")


def walk(t, program, name, width, count):
    """The first `count` examples as the program sees them (the data set is not shuffled)."""
    done = t.call(program, "--data", ".", "--out", name, "--steps", (count + 7) // 8)
    t.check(done[0] == 0, "%s is read" % name, done[2])
    _, tensors = programs.read_safetensors(t.path(name, "final.safetensors"))
    values = list(tensors["seen"][1])
    return [values[i * width : (i + 1) * width] for i in range(count)]


def test_windows(t):
    text = bytes((i * 7) % 251 for i in range(1000))
    programs.write(t.path("text"), text)
    dataset = dict(
        name="train",
        source="text",
        files=["text"],
        window=9,
        stride=4,
        shuffle=False,
        fields=[dict(name="text", dtype="I32", shape=[9], below=256)],
    )
    t.check(
        walk(t, t.recorder(dataset, 9, 40), "text-out", 9, 40) == [list(text[4 * e : 4 * e + 9]) for e in range(40)],
        "text",
    )
    for bits, code in ((16, "H"), (32, "I")):
        values = [(i * 37) % 60000 for i in range(300)]
        programs.write(t.path("tokens"), b"header!!" + struct.pack("<300" + code, *values))
        dataset = dict(
            name="train",
            source="tokens",
            files=["tokens"],
            window=6,
            stride=5,
            header=8,
            token_bits=bits,
            shuffle=False,
            fields=[dict(name="text", dtype="I32", shape=[6], below=60000)],
        )
        got = walk(t, t.recorder(dataset, 6, 32), "tokens%d" % bits, 6, 32)
        t.check(got == [values[5 * e : 5 * e + 6] for e in range(32)], "tokens of %d bits" % bits)
        # Several files, of which the second one ends within a stride: no window lies in two.
        parts = [values[:101], values[101:150], values[150:]]
        for name, part in zip(("one", "two", "three"), parts):
            programs.write(t.path(name), b"header!!" + struct.pack("<%d%s" % (len(part), code), *part))
        several = dict(dataset, files=["one", "two", "three"])
        windows = [part[at : at + 6] for part in parts for at in range(0, len(part) - 5, 5)]
        program = t.recorder(several, 6, 32)
        for again in (False, True):
            got = walk(t, program, "several%d" % bits, 6, 32)
            t.check(got == windows[:32] and len(windows) >= 32, "tokens of three files" + (", checked before" if again else ""))
        programs.write(t.path("two"), b"header!!" + struct.pack("<5" + code, *values[:5]))
        t.refused(3, ["two", "5 tokens are fewer than one window of 6"], program, "--data", ".", "--out", "few", "--steps", 1)


def test_npy_and_idx_types(t):
    dataset = dict(
        name="train", source="npy", files=["x.npy"], shuffle=False, fields=[dict(name="x", dtype="I32", shape=[2])]
    )
    program = t.recorder(dataset, 2, 8)
    whole = [1, 0, 2, 100, 3, 77, 4, 5] * 2
    signed = [-v if i % 3 == 0 else v for i, v in enumerate(whole)]
    expected = lambda values: [values[2 * e : 2 * e + 2] for e in range(8)]
    for descr, code, order, values in (
        ("|u1", "B", "<", whole),
        ("|i1", "b", "<", signed),
        ("<u2", "H", "<", whole),
        (">i2", "h", ">", signed),
        ("<u4", "I", "<", whole),
        ("<i4", "i", "<", signed),
        ("<i8", "q", "<", signed),
        (">u8", "Q", ">", whole),
    ):
        for version in (1, 2):
            programs.write(t.path("x.npy"), programs.npy(descr, [8, 2], values, code, order, version))
            t.check(walk(t, program, "n", 2, 8) == expected(values), "npy %s version %d" % (descr, version))
    dataset = dict(dataset, source="idx")
    program = t.recorder(dataset, 2, 8)
    for kind, code, values in ((8, "B", whole), (9, "b", signed), (11, "h", signed), (12, "i", signed)):
        programs.write(t.path("x.npy"), programs.idx(kind, [8, 2, 1], values, code))
        t.check(walk(t, program, "i", 2, 8) == expected(values), "idx type %02x" % kind)
    # Floating-point fields: the bits of the f32 are recorded as if they were an i32.
    dataset = dict(
        name="train",
        source="npy",
        files=["x.npy"],
        shuffle=False,
        fields=[dict(name="x", dtype="F32", shape=[2], scale=0.1)],
    )
    program = t.recorder(dataset, 2, 8)
    single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    bits = lambda x: struct.unpack("i", struct.pack("f", x))[0]
    real = [0.1, -2.5, 3.25, 1e-8, 7.0, -0.0, 65504.0, 2.0**-24] * 2
    half = [0.5, -2.5, 3.25, 0.0, 7.0, -0.0, 65504.0, 2.0**-24] * 2
    for descr, code, order, values in (
        ("<f4", "f", "<", real),
        (">f8", "d", ">", real),
        ("<f2", "e", "<", half),
        ("|u1", "B", "<", whole),
    ):
        programs.write(t.path("x.npy"), programs.npy(descr, [8, 2], values, code, order))
        want = [bits(single(single(v) * single(0.1))) for v in values]
        t.check(walk(t, program, "f", 2, 8) == expected(want), "floating-point field from %s" % descr)


def test_axes_of_a_file(t):
    """Behind the first axis a file has the declared axes, but for axes of size 1 and merged or split neighbours."""
    dataset = lambda *shape: dict(name="train", source="npy", files=["x.npy"], shuffle=False,
                                  fields=[dict(name="x", dtype="I32", shape=list(shape))])
    values = list(range(8 * 24))
    rows = [values[24 * e : 24 * e + 24] for e in range(8)]
    image, table = t.recorder(dataset(2, 3, 4), 24, 8), t.recorder(dataset(4, 6), 24, 8)
    save = lambda *shape: programs.write(t.path("x.npy"), programs.npy("<i4", [8] + list(shape), values, "i"))
    for program, shapes in ((image, ([2, 3, 4], [24], [6, 4], [2, 12], [2, 1, 3, 4], [2, 3, 4, 1], [2, 3, 2, 2])),
                            (table, ([4, 6], [24], [2, 2, 6], [4, 2, 3], [1, 24], [2, 2, 2, 3]))):
        for shape in shapes:
            save(*shape)
            t.check(walk(t, program, "out", 24, 8) == rows, "a file of shape %s" % shape)
    for program, shape, parts in (
        (image, [3, 4, 2], ["[2, 3, 4]", "[8, 3, 4, 2]", "transpose(0, 3, 1, 2)"]),
        (image, [4, 6], ["[2, 3, 4]", "[8, 4, 6]", "[8, 24]"]),
        (image, [12, 2], ["[2, 3, 4]", "[8, 12, 2]"]),
        (image, [4, 3, 1, 2], ["[2, 3, 4]", "[8, 4, 3, 1, 2]"]),
        (table, [6, 4], ["[4, 6]", "[8, 6, 4]", "transpose(0, 2, 1)"]),
        (table, [3, 8], ["[4, 6]", "[8, 3, 8]"]),
        (table, [3, 2, 4], ["[4, 6]", "[8, 3, 2, 4]"]),
    ):
        save(*shape)
        t.refused(3, ["x.npy", "field `x`"] + parts, program, "--data", ".", "--out", "a", "--steps", 1)


def test_wrong_files(t):
    program = t.linear()
    images, labels = programs.digits(t.path(), "train", 150, 1)
    programs.digits(t.path(), "valid", 50, 2)
    sound_images, sound_labels = content(t.path("train-images")), content(t.path("train-labels"))

    def wrong(parts, images=None, labels=None):
        programs.write(t.path("train-images"), sound_images if images is None else images)
        programs.write(t.path("train-labels"), sound_labels if labels is None else labels)
        t.refused(3, parts, program, "--data", ".", "--out", "a", "--steps", 1)
        t.check(not os.path.exists(t.path("a", "final.safetensors")), "nothing is trained")

    wrong(["train-images", "truncated"], images=sound_images[:-1])
    wrong(["train-images", "truncated"], images=sound_images[:7])
    wrong(["train-images", "truncated"], images=b"")
    wrong(["train-images", "3 bytes follow"], images=sound_images + b"abc")
    wrong(["not an IDX file", "expected 00 00"], images=b"\x89PNG" + sound_images[4:])
    wrong(["gzip"], images=b"\x1f\x8b\x08\x00" + sound_images[4:])
    wrong(["type byte is 77"], images=b"\0\0\x77\x03" + sound_images[4:])
    wrong(["claims 0 axes"], images=b"\0\0\x08\x00" + sound_images[4:])
    wrong(["claims 200 axes"], images=b"\0\0\x08\xc8" + sound_images[4:])
    wrong(["too large"], images=b"\0\0\x08\x04" + b"\xff" * 16)
    wrong(["`x` has shape [12] an example", "has shape [12], where", "x[None]"], images=programs.idx(8, [12], [0] * 12, "B"))
    wrong(["`y` is one number", "[150, 10]", "argmax(-1)"], labels=programs.idx(8, [150, 10], [0] * 1500, "B"))
    wrong(["needs 12 values", "[150, 11]"], images=programs.idx(8, [150, 11], [0] * 1650, "B"))
    wrong(["`y`", "149 examples", "`x`", "has 150"], labels=programs.idx(8, [149], labels[:149], "B"))
    wrong(["`y` is i32", "f32"], labels=programs.idx(13, [150], labels, "f"))
    wrong(["below 10", "has 10", "example 77"], labels=programs.idx(8, [150], labels[:77] + [10] + labels[78:], "B"))
    wrong(["below 10", "has -1", "example 149"], labels=programs.idx(12, [150], labels[:149] + [-1], "i"))
    wrong(["no example"], images=programs.idx(8, [0, 12], [], "B"), labels=programs.idx(8, [0], [], "B"))
    floats = [0.5] * 1800
    wrong(
        ["`x` has nan in example 3, value 5"],
        images=programs.idx(13, [150, 12], floats[:41] + [math.nan] + floats[42:], "f"),
    )
    wrong(["`x` has inf"], images=programs.idx(13, [150, 12], floats[:41] + [math.inf] + floats[42:], "f"))
    wrong(["1e+300", "too large for f32"], images=programs.idx(14, [150, 12], floats[:41] + [1e300] + floats[42:], "d"))
    os.unlink(t.path("train-images"))
    t.refused(3, ["train-images", "No such file", "--data"], program, "--data", ".", "--out", "a")
    os.mkdir(t.path("train-images"))
    t.refused(3, ["it is not a file"], program, "--data", ".", "--out", "a")

    def npy_wrong(parts, content, field=dict(name="x", dtype="I32", shape=[2], below=200)):
        programs.write(t.path("x.npy"), content)
        key = repr(field)
        if key not in t.built:
            t.built[key] = t.recorder(dict(name="train", source="npy", files=["x.npy"], fields=[field]), 2, 8)
        t.refused(3, ["x.npy"] + parts, t.built[key], "--data", ".", "--out", "b", "--steps", 1)

    good = programs.npy("<i4", [4, 2], [1] * 8, "i")
    npy_wrong(["not an NPY file"], b"PK\x03\x04" + good[4:])
    npy_wrong(["truncated"], good[:9])
    npy_wrong(["truncated"], good[:60])
    npy_wrong(["truncated"], good[:-4])
    npy_wrong(["NPY format 9"], good[:6] + b"\x09" + good[7:])
    npy_wrong(["Fortran order"], programs.npy("<i4", [4, 2], [1] * 8, "i", fortran=True))
    npy_wrong(["type `<c8`"], programs.npy("<c8", [4, 2], [1] * 16, "i"))
    npy_wrong(["records"], good.replace(b"'<i4'  "[:5], b"[(1)]"))
    npy_wrong(["dictionary"], good[:10] + b"x" + good[11:])
    npy_wrong(["one value without axes"], programs.npy("<i4", [], [1], "i"))
    npy_wrong(["needs 2 values", "[8]"], programs.npy("<i4", [8], [1] * 8, "i"))
    npy_wrong(["`x` is i32, but the file holds f8".replace("f8", "f64")], programs.npy("<f8", [4, 2], [1] * 8, "d"))
    npy_wrong(["below 200", "has 255", "example 3, value 1"], programs.npy("|u1", [4, 2], [1] * 7 + [255], "B"))
    npy_wrong(
        ["is i32, but has 4294967296"],
        programs.npy("<i8", [4, 2], [1] * 7 + [1 << 32], "q"),
        dict(name="x", dtype="I32", shape=[2]),
    )
    # A value that is too large with its scale only; that it fits without was seen, and does not count.
    large, real = programs.npy("<f4", [4, 2], [1] * 7 + [-3e38], "f"), dict(name="x", dtype="F32", shape=[2], scale=1)
    programs.write(t.path("x.npy"), large)
    walk(t, t.recorder(dict(name="train", source="npy", files=["x.npy"], shuffle=False, fields=[real]), 2, 8), "b", 2, 4)
    npy_wrong(["has -3e+38 in example 3, value 1", "with its scale of 10, is too large for f32"], large, dict(real, scale=10))
    npy_wrong(["has 2e+10 in example 3, value 1", "with its scale of 1e+30,"], programs.npy("<u8", [4, 2], [1] * 7 + [20000000000], "Q"), dict(real, scale=1e30))
    programs.write(t.path("x.npy"), programs.npy("<i8", [4, 2], [1] * 7 + [-100], "q"))
    program = t.recorder(
        dict(
            name="train",
            source="npy",
            files=["x.npy"],
            shuffle=False,
            fields=[dict(name="x", dtype="I32", shape=[2], below=5, **{"except": -100})],
        ),
        2,
        8,
    )
    t.check(walk(t, program, "c", 2, 4)[3] == [1, -100], "`except` may occur")

    def tokens_wrong(parts, content, **more):
        programs.write(t.path("tokens"), content)
        dataset = dict(
            name="train",
            source="tokens",
            files=["tokens"],
            window=6,
            stride=5,
            header=4,
            token_bits=16,
            fields=[dict(name="text", dtype="I32", shape=[6], below=50)],
        )
        t.refused(
            3, ["tokens"] + parts, t.recorder(dict(dataset, **more), 6, 8), "--data", ".", "--out", "d", "--steps", 1
        )

    tokens_wrong(["fewer than its header"], b"ab")
    tokens_wrong(["no multiple of 2"], b"head" + b"\1" * 33)
    tokens_wrong(["5 tokens are fewer than one window of 6"], b"head" + b"\1\0" * 5)
    tokens_wrong(["below 50", "has 50 at position 9"], b"head" + b"\1\0" * 9 + b"\x32\0")


def test_verdict_is_remembered(t):
    program = t.linear()
    t.digits()
    run = lambda: t.call(program, "--data", ".", "--out", "a", "--steps", 1)
    t.check(run()[0] == 0, "sound data")
    before = open(t.path("a", "data-checked.txt")).read()
    t.check(len(before.splitlines()) == 4, "four files were checked", before)
    run()
    t.check(open(t.path("a", "data-checked.txt")).read() == before, "nothing is checked twice")
    labels = content(t.path("train-labels"))
    status = os.stat(t.path("train-labels"))
    programs.write(t.path("train-labels"), labels[:-1] + b"\x0a")
    t.check(run()[0] == 3, "a changed file is checked again")
    programs.write(t.path("train-labels"), labels)
    os.utime(t.path("train-labels"), ns=(status.st_atime_ns, status.st_mtime_ns))
    t.check(run()[0] == 0, "sound again")
