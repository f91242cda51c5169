"""tests_archives.py: npz, safetensors, csv and records as sources of data."""

import json
import io
import os
import random
import struct
import warnings
import zipfile

import programs
from cases import content
from tests_data import walk

WHOLE = [[3 * e, (7 * e) % 11] for e in range(8)]
FLAT = [value for row in WHOLE for value in row]


def npz(arrays, compression=zipfile.ZIP_STORED, zip64=False):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, content_ in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=zip64) as entry:
                entry.write(content_)
    return target.getvalue()


def dataset(source, name, **field):
    return dict(
        name="train",
        source=source,
        files=[name],
        shuffle=False,
        fields=[dict(dict({"name": "x", "dtype": "I32", "shape": [2], "from": ["x"]}), **field)],
    )


def test_npz(t):
    arrays = {"other": programs.npy("<f4", [3], [1, 2, 3], "f"), "x": programs.npy("<i8", [8, 2], FLAT, "q")}
    program = t.recorder(dataset("npz", "x.npz"), 2, 8)
    for zip64 in (False, True):
        programs.write(t.path("x.npz"), npz(arrays, zip64=zip64))
        t.check(walk(t, program, "out", 2, 8) == WHOLE, "an array of an npz file")
    sound = npz(arrays)

    def wrong(parts, content_):
        programs.write(t.path("x.npz"), content_)
        t.refused(3, ["x.npz"] + parts, program, "--data", ".", "--out", "a", "--steps", 1)

    wrong(["compressed", "numpy.savez"], npz(arrays, zipfile.ZIP_BZIP2))
    wrong(["no array `x`", "other, y"], npz({"other": arrays["other"], "y": arrays["x"]}))
    with io.BytesIO() as target:
        with zipfile.ZipFile(target, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy would read the last one, others the first
            for name in ("x", "other", "x"):
                archive.writestr(name + ".npy", arrays[name])
        wrong(["two arrays `x`"], target.getvalue())
    wrong(["truncated"], sound[:-1])
    wrong(["truncated"], sound[:10])
    wrong(["not an NPZ file"], arrays["x"])
    wrong(["needs 2 values"], npz({"x": arrays["other"]}))
    wrong(["array `x`", "Fortran order"], npz({"x": programs.npy("<i8", [8, 2], FLAT, "q", fortran=True)}))
    wrong(["array `x`", "type `<c8`"], npz({"x": programs.npy("<c8", [4, 2], [1] * 16, "i")}))
    wrong(["field `x` is truncated"], npz({"x": arrays["x"][:-4]}))
    wrong(["field `x`: 4 bytes follow"], npz({"x": arrays["x"] + b"1234"}))
    draw = random.Random(1)
    for _ in range(150):
        at = draw.randrange(len(sound))
        programs.write(t.path("x.npz"), sound[:at] + bytes([draw.randrange(256)]) + sound[at + 1 :])
        code = t.call(program, "--data", ".", "--out", "a", "--steps", 1)[0]
        t.check(code in (0, 3), "byte %d changed" % at, str(code))
    # Values that are sound in themselves, under another checksum than the directory's.
    value = sound.rindex(struct.pack("<q", FLAT[-1]), 0, sound.rindex(b"PK\1\2"))
    wrong(["`x` is damaged: its checksum is another one"], sound[:value] + bytes([sound[value] ^ 1]) + sound[value + 1 :])


def test_compressed(t):
    """Unpacked once, under OUT; every kind of block, and damage that ends with 3."""
    program = t.recorder(dataset("npz", "x.npz"), 2, 8)
    for zip64 in (False, True):
        programs.write(t.path("x.npz"), npz({"x": programs.npy("<i8", [8, 2], FLAT, "q")}, zipfile.ZIP_DEFLATED, zip64))
        t.check(walk(t, program, "out", 2, 8) == WHOLE, "a compressed array")
    draw = random.Random(3)
    noise = [draw.randrange(1 << 31) for _ in range(60000)]
    text = [[7, 7, 7, 8][i % 4] if i % 1000 else i for i in range(60000)]
    for level in (0, 1, 6, 9):
        for values in (noise, text, [5] * 60000, noise[:200] * 300):
            target = io.BytesIO()
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
                archive.writestr("x.npy", programs.npy("<i4", [30000, 2], values, "i"))
            programs.write(t.path("x.npz"), target.getvalue())
            code, out, err = t.call(program, "--data", ".", "--out", "a", "--steps", 1)
            kept = content(t.path("a", "train.x.npz-values")).split(b"\n", 1)[1]
            t.check(code == 0 and kept == programs.npy("<i4", [30000, 2], values, "i"), "level %d" % level, err)
    sound = npz({"x": programs.npy("<i8", [8, 2], FLAT, "q")}, zipfile.ZIP_DEFLATED)
    for i in range(300):
        at = draw.randrange(len(sound))
        programs.write(t.path("x.npz"), sound[:at] + bytes([draw.randrange(256)]) + sound[at + 1 :])
        code = t.call(program, "--data", ".", "--out", "b", "--steps", 1)[0]
        t.check(code in (0, 3), "byte %d changed" % at, str(code))


def test_tensors_as_data(t):
    program = t.recorder(dataset("safetensors", "x", dtype="F32", scale=1), 2, 8)
    bits = lambda x: struct.unpack("i", struct.pack("f", x))[0]
    for dtype in ("F32", "F64"):
        programs.write_safetensors(
            t.path("x"), {"y": ([3], [1, 2, 3]), "x": ([8, 2], FLAT), "z": ([1], [0])}, dtype, {"a": "b"}
        )
        t.check(walk(t, program, "out", 2, 8) == [[bits(v) for v in row] for row in WHOLE], "a tensor of type " + dtype)
    head = json.dumps({"x": dict(dtype="BF16", shape=[8, 2], data_offsets=[0, 32])}).encode()
    upper = struct.pack("<16H", *(bits(v) >> 16 for v in FLAT))
    programs.write(t.path("x"), struct.pack("<Q", len(head)) + head + upper)
    t.check(walk(t, program, "out", 2, 8) == [[bits(v) >> 16 << 16 for v in row] for row in WHOLE], "a tensor of type BF16")
    programs.write_safetensors(t.path("x"), {"y": ([3], [1, 2, 3]), "x": ([8, 2], FLAT), "z": ([1], [0])}, "F64", {"a": "b"})
    sound = content(t.path("x"))
    one = json.dumps({"x": dict(dtype="F32", shape=[8, 2], data_offsets=[0, 64])})[1:-1]
    twice = ("{%s, %s}" % (one, one)).encode()
    programs.write(t.path("x"), struct.pack("<Q", len(twice)) + twice + struct.pack("<16f", *FLAT))
    t.refused(3, ["two tensors `x`"], program, "--data", ".", "--out", "a", "--steps", 1)
    programs.write_safetensors(t.path("x"), {"y": ([3], [1, 2, 3]), "w": ([8, 2], FLAT)})
    t.refused(3, ["no tensor `x`", "it has y, w"], program, "--data", ".", "--out", "a", "--steps", 1)
    for parts, content_ in (
        (["truncated"], sound[:-60]),
        (["truncated"], sound[:5]),
        (["not a safetensors"], b"\xff" * 100),
        (["damaged at byte"], sound[:12] + b"\0" + sound[13:]),
    ):
        programs.write(t.path("x"), content_)
        t.refused(3, parts, program, "--data", ".", "--out", "a", "--steps", 1)


def test_records(t):
    """One byte an element; files one behind the other, each with its header."""
    source = dataset("records", "a.bin")
    source.update(files=["a.bin", "b.bin", "c.bin"], header=3)
    program = t.recorder(source, 2, 8)
    write = lambda name, rows, head=b"HEA": programs.write(t.path(name), head + bytes(v for row in rows for v in row))
    write("a.bin", WHOLE[:3])
    write("b.bin", WHOLE[3:4])
    write("c.bin", WHOLE[4:])
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "records of three files")
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "records that were checked before")
    refused = lambda parts: t.refused(3, parts, program, "--data", ".", "--out", "a", "--steps", 1)
    programs.write(t.path("b.bin"), b"HEA\1\2\3")
    refused(["b.bin", "6 bytes", "header of 3", "records of 2 bytes"])
    programs.write(t.path("b.bin"), b"HEA")
    refused(["b.bin", "no record", "header of 3"])
    programs.write(t.path("b.bin"), b"HE")
    refused(["b.bin", "2 bytes"])
    os.remove(t.path("b.bin"))
    refused(["cannot open", "b.bin"])
    programs.write(t.path("b.bin.npy"), b"")
    refused(["cannot open", "write \"b.bin.npy\" in the program"])
    below = dataset("records", "a.bin", below=20)
    below.update(header=3)
    write("a.bin", WHOLE)
    t.refused(3, ["a.bin", "below 20", "example 7, value 0"], t.recorder(below, 2, 8), "--data", ".", "--out", "b", "--steps", 1)


def test_csv(t):
    text = "id,a,b,name\r\n" + "".join(
        '%d,%d," %d ","n, ""q"" %d"\r\n' % (e, a, b, e) for e, (a, b) in enumerate(WHOLE)
    )
    source = dataset("csv", "x.csv", **{"from": ["a", "b"]})
    source.update(csv_header=True, separator=",")
    program = t.recorder(source, 2, 8)
    programs.write(t.path("x.csv"), text.encode())
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "two columns")
    before = os.stat(t.path("out", "train.x.csv-values")).st_mtime_ns
    t.check(
        walk(t, program, "out", 2, 8) == WHOLE and os.stat(t.path("out", "train.x.csv-values")).st_mtime_ns == before,
        "read once",
    )
    programs.write(t.path("x.csv"), (text.replace("0,0,", "0,5,", 1) + "\n").encode())
    t.check(walk(t, program, "out", 2, 8)[0] == [5, 0], "a changed file is read again")
    plain = dataset("csv", "y.csv", **{"from": ["2", "0"]})
    plain.update(csv_header=False, separator=";")
    programs.write(t.path("y.csv"), "".join("%d;x;%d\n" % (b, a) for a, b in WHOLE).encode()[:-1])
    t.check(
        walk(t, t.recorder(plain, 2, 8), "plain", 2, 8) == WHOLE,
        "columns by number, another separator, no last newline",
    )
    spaced = "id , a,b , name\n" + "".join('%d , %d,   %d  , "n" \n' % (e, a, b) for e, (a, b) in enumerate(WHOLE))
    programs.write(t.path("x.csv"), spaced.encode())
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "blanks around names and numbers")
    holes = "a,b\n" + "".join("%s,%d\n" % ("NA" if e == 1 else "" if e == 2 else " ?" if e == 3 else a, b)
                                for e, (a, b) in enumerate(WHOLE))
    programs.write(t.path("x.csv"), holes.encode())
    for more in ({}, {"missing": 7}):
        t.refused(3, ["x.csv: line 3, column 1: `NA` is no value, but field `x` is i32", "remove the row"],
                  t.recorder(dict(source, **more), 2, 8), "--data", ".", "--out", "out")
    real = dict(source, fields=[dict(source["fields"][0], dtype="F32", scale=1)])
    t.refused(3, ["line 3, column 1: `NA` is no value of field `x`", "`missing = ..` of csv(..)"], t.recorder(real, 2, 8), "--data", ".", "--out", "out")
    bits = lambda x: struct.unpack("i", struct.pack("f", x))[0]
    t.check(
        walk(t, t.recorder(dict(real, missing=7), 2, 8), "filled", 2, 8)
        == [[bits(v) for v in ([7, b] if e in (1, 2, 3) else [a, b])] for e, (a, b) in enumerate(WHOLE)],
        "missing numbers",
    )
    named = dict(source, missing=0, fields=[dict(source["fields"][0], shape=[], below=2, names=["no", "NA"], **{"from": ["v"]})])
    programs.write(t.path("x.csv"), b"v,w\nno,1\nNA,2\n,3\n")
    t.refused(3, ["line 4, column 1: the cell is empty, but field `x` has names", "a name of their own"], t.recorder(named, 1, 8), "--data", ".", "--out", "out")
    flags = dict(source, missing=0, fields=[dict(source["fields"][0], dtype="BOOL", shape=[], **{"from": ["w"]})])
    programs.write(t.path("x.csv"), b"v,w\nno,1\nno,0\nno, \n")
    t.refused(3, ["line 4, column 2: the cell is empty, but field `x` is bool"], t.recorder(flags, 1, 8), "--data", ".", "--out", "out")
    mark = b"\xef\xbb\xbf"
    rows = "".join("%d,%d\n" % (a, b) for a, b in WHOLE).encode()
    programs.write(t.path("x.csv"), mark + b"a,b\n" + rows)
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "a byte order mark before a name")
    programs.write(t.path("y.csv"), mark + rows.replace(b",", b";x;"))
    first = dataset("csv", "y.csv", **{"from": ["0", "2"]})
    first.update(csv_header=False, separator=";")
    t.check(walk(t, t.recorder(first, 2, 8), "first", 2, 8) == WHOLE, "a byte order mark before a number")
    real = dataset("csv", "r.csv", dtype="F32", scale=0.5)
    real["fields"] = [dict(real["fields"][0], shape=[], **{"from": ["v"]})]
    programs.write(t.path("r.csv"), ("v\n" + "".join("%r\n" % (e / 3) for e in range(9000))).encode())
    single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    want = [[struct.unpack("i", struct.pack("f", single(e / 3) * 0.5))[0]] for e in range(16)]
    t.check(walk(t, t.recorder(real, 1, 16), "real", 1, 16) == want, "numbers with a fraction")

    # What lost its end, has one too many, or was changed is written anew. Its first line has the time, and what is behind it stays the same.
    kept = t.path("out", "train.x.csv-values")
    programs.write(t.path("x.csv"), text.encode())
    t.check(walk(t, program, "out", 2, 8) == WHOLE, "before the values are cut")
    whole = content(kept)
    values = lambda: content(kept).split(b"\n", 1)[1]
    wanted = values()
    for size in (0, 20, len(whole) - 8 * 14, len(whole) - 1):
        programs.write(kept, whole[:size])
        t.check(walk(t, program, "out", 2, 8) == WHOLE and values() == wanted, "values cut to %d bytes" % size)
    programs.write(kept, whole + bytes(16))
    t.check(walk(t, program, "out", 2, 8) == WHOLE and values() == wanted, "values with more at their end")
    for at in (len(whole) - len(wanted), len(whole) - 1, len(whole) - len(wanted) - 30, 3):
        whole = content(kept)
        programs.write(kept, whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
        t.check(walk(t, program, "out", 2, 8) == WHOLE and values() == wanted, "values with another byte at %d" % at)
    # One that was copied is taken, and has its time again.
    written = os.stat(kept)
    os.utime(kept, ns=(written.st_atime_ns, written.st_mtime_ns - 10**12))
    taken = walk(t, program, "out", 2, 8) == WHOLE
    now = os.stat(kept)
    t.check(taken and (now.st_ino, now.st_mtime_ns) == (written.st_ino, written.st_mtime_ns), "values that were copied")
    lone = dict(real, missing=7)
    for ends in ("", "\n", "\n\n\n", "\r\n \r\n"):
        programs.write(t.path("r.csv"), ("v\n1\n\n2\n3\n4\n5\n6\n8" + ends).encode())
        seen = walk(t, t.recorder(lone, 1, 16), "lone", 1, 16)
        t.check(seen == [[bits(0.5 * v)] for v in (1, 7, 2, 3, 4, 5, 6, 8)] * 2, "a column with an empty cell, and lines behind it: %r" % ends, str(seen))

    programs.write(t.path("x.csv"), b"1,2.5,one\n2,3.5,two\n")
    t.refused(3, ["x.csv: field `x` takes the column `a`, but the file has 1, 2.5, one; if this is a row of values, write header = false"], program,
              "--data", ".", "--out", "bad")

    def wrong(parts, content_):
        programs.write(t.path("x.csv"), content_.encode())
        t.refused(3, ["x.csv"] + parts, program, "--data", ".", "--out", "bad", "--steps", 1)
        t.check(not os.path.exists(t.path("bad", "train.x.csv-values")), "nothing is kept of it")

    wrong(["empty"], "")
    wrong(["empty"], "\ufeff")
    wrong(["no example in it, only the names of the columns"], "a,b\n")
    wrong(["its lines end with CR alone; end them with LF"], "a,b\r1,2\r")
    wrong(["line 3, column 1: there is a byte of value 0"], "a,b\n1,2\n3\x004,5\n")
    wrong(["line 2, column 2: there is a byte of value 0"], 'a,b\n1,"2\x00"\n')
    wrong(["the column `b`", "the file has a, c"], "a,c\n1,2\n")
    wrong(["two columns are called `a`"], "a,a,b\n1,2,3\n")
    wrong(["line 3, column 2: `x` is no number"], "a,b\n1,2\n3,x\n")
    wrong(["line 3, column 2: the cell is empty, but field `x` is i32"], "a,b\n1,2\n3,\n")
    wrong(["line 3 has 1 cells, expected 2"], "a,b\n1,2\n3\n")
    wrong(["line 2 has 3 cells, expected 2"], "a,b\n1,2,3\n")
    wrong(["line 3 has 3 cells, expected 2"], "a,b\n1,2\nx,1,2\n") # `x` is a third cell
    wrong(["whole numbers, but has 1.5 in line 2, column 1"], "a,b\n1.5,2\n")
    wrong(["line 3, column 2: there is text behind the closing quote"], 'a,b\n1,2\n1,"2"5\n')
    wrong(["line 4, column 1: there is text behind the closing quote"], 'a,b\n1,2\n"1\n" 5,2\n')
    wrong(["line 1, column 2: there is text behind the closing quote"], 'a,"b"c\n1,2\n')
    wrong(["line 1 is empty; it has the names of the columns"], "\na,b\n1,2\n")
    wrong(["empty"], "\n\n")
    wrong(["line 3: a quote does not end"], 'a,b\n1,2\n1,"2\n3,4\n5,6\n')
    wrong(["not separated by `,`", 'separator = ";"'], "a;b\n1;2\n")
    wrong(["not separated by `,`", 'separator = "\\t"'], "a\tb\n1\t2\n")
    wrong(["`x` is no number; words are numbered by names"], "a,b\n1,x\n")
    wrong(["the column `b`, but the file has a"], "a\n1\n")
    wrong(["more than 255 bytes"], "a,b\n1," + "2" * 300 + "\n")
    wrong(["i32, but has"], "a,b\n1,1e12\n")
