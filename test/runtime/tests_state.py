"""tests_state.py: checkpoints, resuming, full disks, foreign and damaged files."""

import fcntl
import json
import os
import random
import re
import resource
import shutil
import stat
import struct
import subprocess

import programs
from cases import content


def checkpoints(t, out, folder="run"):
    return sorted(name for name in os.listdir(t.path(out, folder)) if name.startswith("step-"))


def test_keep_and_best(t):
    data = t.digits()
    t.call(t.linear(), "--data", data, "--out", "a")
    t.check(
        checkpoints(t, "a") == ["step-000000%d.safetensors" % s for s in (50, 55, 60)],
        "the last three are kept",
        str(checkpoints(t, "a")),
    )
    info, tensors = programs.read_safetensors(t.path("a", "run", "step-00000060.safetensors"))
    t.check(
        info["step"] == "60" and "optimizer/fc.weight.m" in tensors and info["hash"] == "00000000deadbeef",
        "a checkpoint",
        str(info),
    )
    best, _ = programs.read_safetensors(t.path("a", "run", "best.safetensors"))
    rows = [json.loads(line) for line in open(t.path("a", "log.jsonl"))]
    t.check(
        float(best["best"].split(":")[2]) >= max(row.get("valid.acc", 0) for row in rows),
        "the best one is kept",
        str(best),
    )
    every = [
        dict(steps=20, kind="eval", dataset=1, batches=0),
        dict(steps=5, kind="checkpoint", dir="few", keep=0, best="", best_is_max=True),
    ]
    t.call(t.linear(every=every), "--data", data, "--out", "b")
    t.check(len(checkpoints(t, "b", "few")) == 12, "keep = 0 keeps all")


def test_resume(t):
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    log = [line.rsplit(",", 3)[0] for line in open(t.path("whole", "log.csv"))]
    log = [line.split(",")[:5] for line in open(t.path("whole", "log.csv"))]
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume", "--steps", 13)
    t.check(code == 0 and "no checkpoint in a/run to resume from: starting afresh" in out, "--resume without a checkpoint says so", out + err)
    t.check(checkpoints(t, "a")[-1] == "step-00000013.safetensors", "the last step is saved", str(checkpoints(t, "a")))
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume", "--steps", 41)
    t.check(code == 0 and "resumed at step 13" in out, "resumed", out + err)
    code, out, err = t.call(t.linear(microbatch=16), "--data", data, "--out", "a", "--resume", "--threads", 3)
    t.check(code == 0 and "resumed at step 41" in out, "resumed under another plan", out + err)
    t.check(content(t.path("a", "final.safetensors")) == whole, "the same bits as one never stopped")
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume")
    t.check(
        code == 0 and content(t.path("a", "final.safetensors")) == whole, "after the end it exits with 0", out + err
    )
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume", "--steps", 20)
    t.check(
        code == 0 and "nothing to do" in out and content(t.path("a", "final.safetensors")) == whole,
        "a smaller --steps does nothing",
        out + err,
    )
    code, out, err = t.call(program, "--data", data, "--out", "a", "--steps", 100)
    t.check(code == 0 and "--steps 100: the run ends after 60 steps" in err, "--steps beyond the end", err)
    t.check(os.path.exists(t.path("a", "run.previous", "step-00000060.safetensors")), "an earlier run is not lost")
    # The length in force is that of the checkpoint; the program's folder has another name now.
    code, out, err = t.call(program, "--data", data, "--out", "b", "--set", "steps=70", "--steps", 3)
    code, out, err = t.call(program, "--data", data, "--out", "b", "--resume", "--steps", 65)
    t.check(code == 0 and "steps 3 to 65" in out and not err, "--steps beyond the program's end, within the checkpoint's", out + err)
    os.rename(t.path("b", "run"), t.path("b", "old"))
    code, out, err = t.call(program, "--data", data, "--out", "b", "--resume", "--steps", 1)
    t.check("b/old holds checkpoints" in out and "renamed to b/run" in out, "checkpoints under another name", out + err)


def test_early_stop(t):
    """`patience` counts evaluations without a better metric; the count is part of a checkpoint."""
    data = t.digits()
    every = [
        dict(steps=1, kind="eval", dataset=1, batches=0, patience=3, best="acc", best_is_max=True),
        dict(steps=5, kind="checkpoint", dir="run", keep=0, best="", best_is_max=False),
        dict(steps=4, kind="log", csv=False, jsonl=True, tensorboard=False),
    ]
    program = t.linear(steps=400, every=every)
    code, out, err = t.call(program, "--data", data, "--out", "whole")
    rows = [json.loads(line) for line in open(t.path("whole", "log.jsonl"))]
    accuracies = [row["valid.acc"] for row in rows if "valid.acc" in row]
    best = accuracies.index(max(accuracies))
    last = len(accuracies)
    t.check(code == 0 and last == best + 1 + 3 and last < 400, "stopped three evaluations after the best one", str(accuracies))
    t.check("training stops early" in out and "step %d:" % last in out, "it says so", out)
    t.check(
        all(max(accuracies[: i + 1]) > max(accuracies[:i], default=-1) for i in range(1) if i)
        and all(len(accuracies[: i + 1]) - 1 - accuracies.index(max(accuracies[: i + 1])) < 3 for i in range(last - 1)),
        "not before",
        str(accuracies),
    )
    whole = content(t.path("whole", "final.safetensors"))
    code, out, err = t.call(program, "--data", data, "--out", "whole", "--resume")
    t.check(
        code == 0 and "stops early" in out and content(t.path("whole", "final.safetensors")) == whole,
        "resuming starts nothing",
        out + err,
    )
    for stop in (1, last - 3, last - 1):  # the count goes on where it was
        t.call(program, "--data", data, "--out", "a", "--resume", "--steps", stop)
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume")
    t.check("step %d:" % last in out and content(t.path("a", "final.safetensors")) == whole, "resumed: stops at the same step", out)
    strip = lambda name: [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "examples_per_second")}
                          for line in open(t.path(name, "log.jsonl"))]
    rows = strip("a")
    t.check([row for row in rows if row["step"] % 4 == 0] == [row for row in strip("whole") if row["step"] % 4 == 0],
            "mean losses go on, too", str(rows))
    every[0]["patience"] = 1000
    code, out, err = t.call(t.linear(steps=400, every=every), "--data", data, "--out", "a", "--resume", "--steps", last + 2)
    t.check(code == 0 and "stops early" not in out and "step %d/" % (last + 2) in out, "more patience: it goes on", out + err)


def limit(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_full_disk(t):
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    size = len(whole)
    small = [
        dict(steps=20, kind="eval", dataset=1, batches=0),
        dict(steps=5, kind="checkpoint", dir="run", keep=3, best="", best_is_max=True),
    ]
    few = t.linear(every=small)
    # Checkpoints (with optimizer state) do not fit under the limit, the final parameters do.
    code, out, err = t.call(few, "--data", data, "--out", "a", preexec_fn=limit(size + 64))
    t.check(
        code == 5 and err.count("could not be written") >= 12 and "File too large" in err and "the checkpoint of the last step was not written" in err
        and "train anew" in err,
        "failed checkpoints are warnings, but that of the last step ends with 5",
        err,
    )
    t.check(content(t.path("a", "final.safetensors")) == whole, "and the run goes on to the same end")
    t.check(os.listdir(t.path("a", "run")) == [], "no half-written file is left", str(os.listdir(t.path("a", "run"))))
    t.refused(5, ["final parameters could not be written"], few, "--data", data, "--out", "b", preexec_fn=limit(600))
    t.check(not os.path.exists(t.path("b", "final.safetensors")), "no half-written final file")
    # A log that fails is a warning.
    logged = t.linear(every=[dict(steps=1, kind="log", csv=True, jsonl=True, tensorboard=True)])
    code, out, err = t.call(logged, "--data", data, "--out", "c", preexec_fn=limit(size + 64))
    t.check(code == 5 and "log" in err and err.count("log.csv could not") <= 1, "a failed log is a warning, once", err)
    # A full file system, where one can be mounted.
    os.mkdir(t.path("disk"))
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", t.path("disk")], stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )
    if mounted:
        try:
            code, out, err = t.call(few, "--data", data, "--out", "disk")
            t.check(
                code == 5 and "No space left" in err or code == 0 and "No space left" in err, "a full disk is said", err
            )
        finally:
            subprocess.run(["umount", t.path("disk")])
    code, out, err = t.call(program, "--data", data, "--out", "p", "--profile", preexec_fn=limit(100))
    t.check("cannot write p/profile.tsv: File too large" in err and "Success" not in err and "all of it" not in out, "a profile that is not written", out + err)
    t.refused(5, ["/dev/null/out"], program, "--data", data, "--out", "/dev/null/out")
    programs.write(t.path("file"), b"")
    t.refused(5, ["file"], program, "--data", data, "--out", "file")


def test_unreadable_folder(t):
    """Where it cannot be looked for checkpoints, there may be some: no fresh run begins there."""
    data, program = t.digits(), t.linear()
    t.call(program, "--data", data, "--out", "u")
    before = content(t.path("u", "final.safetensors"))
    os.rename(t.path("u", "run"), t.path("u", "elsewhere"))
    os.symlink("run", t.path("u", "run"))  # a link to itself
    t.refused(3, ["cannot look for checkpoints in u/run", "symbolic links"], program, "--data", data, "--out", "u", "--resume")
    t.check(content(t.path("u", "final.safetensors")) == before, "all is left in its place")


def test_no_plain_file(t):
    """A pipe is written to, and the file behind a link; none of them is replaced."""
    data, program = t.digits(), t.linear()
    os.mkfifo(t.path("pipe"))
    reader = subprocess.Popen(["cat", t.path("pipe")], stdout=subprocess.PIPE)
    t.check(t.call(program, "--data", data, "--out", "n", "--kernel-times", "pipe")[0] == 0, "into a pipe")
    if stat.S_ISFIFO(os.stat(t.path("pipe")).st_mode):
        t.check(len(reader.communicate(timeout=60)[0].splitlines()) > 0, "who reads it gets the lines")
    else:
        reader.kill()
        t.check(False, "it is a pipe still")
    os.mkdir(t.path("elsewhere"))
    os.symlink("elsewhere/times", t.path("link"))
    programs.write(t.path("elsewhere", "times"), b"")
    t.check(t.call(program, "--data", data, "--out", "n", "--kernel-times", "link")[0] == 0, "through a link")
    t.check(os.path.islink(t.path("link")) and content(t.path("elsewhere", "times")), "a link stays one")


def test_two_runs(t):
    data = t.digits()
    slow = t.linear(steps=10000000, every=[])
    process = subprocess.Popen([slow, "--data", data, "--out", "a"], cwd=t.folder, stdout=subprocess.PIPE)
    process.stdout.readline()
    t.refused(5, ["another run"], slow, "--data", data, "--out", "a")
    process.kill()
    process.communicate()


def test_memory_of_many_checkpoints(t):
    """However many checkpoints are passed over, and whatever else lies there: a run takes the memory that it takes without them."""
    data = t.digits()
    every = [
        dict(steps=5, kind="checkpoint", dir="run", keep=100000),
        dict(steps=10, kind="checkpoint", dir="other", keep=100000),
    ]
    program = t.linear(every=every)
    peak_of = lambda out: int(re.search(r"peak memory (\d+) bytes", out)[1])
    t.call(program, "--data", data, "--out", "a", "--steps", 30)
    sound = content(t.path("a", "run", "step-00000030.safetensors"))
    os.unlink(t.path("a", "final.safetensors"))
    for folder in "run", "other":
        os.unlink(t.path("a", folder, "step-00000030.safetensors"))
    shutil.copytree(t.path("a"), t.path("b"))
    code, out, err = t.call(program, "--data", data, "--out", "b", "--resume", "--steps", 35)
    t.check(code == 0 and "resumed at step 25" in out, "it resumes", out + err)
    alone = peak_of(out)
    damaged = 1500
    for folder in "run", "other":
        for step in range(1000, 1000 + damaged):
            programs.write(t.path("a", folder, "step-%08d.safetensors" % step), sound[:-100] if step % 100 == 0 else b"damaged")
        for number in range(10000):
            programs.write(t.path("a", folder, "step-%07d.safetensors" % number), b"")  # seven digits: none of ours
    code, out, err = t.call(program, "eval", "--data", data, "--out", "a", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (12 << 20, 12 << 20)))
    t.check(code == 0 and "parameters from a/run/step-00000025" in out, "eval keeps to its memory, too", out[-500:] + err[-500:])
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume", "--steps", 35)
    t.check(code == 0 and "resumed at step 25" in out, "the newest sound one is found", out + err[-500:])
    t.check(err.count("is passed over") == 2 * damaged, "each damaged one is tried once", str(err.count("is passed over")))
    steps = [(int(step), folder) for folder, step in re.findall(r"a/(run|other)/step-(\d+)\.safetensors is passed over", err)]
    t.check(steps == sorted(steps, reverse=True), "the newest first, those of a step in the order of the rules")
    t.check(peak_of(out) <= alone + (64 << 10), "a peak of %d bytes, without them %d" % (peak_of(out), alone))
    t.check(len(checkpoints(t, "a")) == 10000 + damaged + 7, "files that are not ours stay", str(len(checkpoints(t, "a"))))


def test_damaged_checkpoints(t):
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    t.call(program, "--data", data, "--out", "a", "--steps", 30)
    newest, older = t.path("a", "run", "step-00000030.safetensors"), t.path("a", "run", "step-00000025.safetensors")
    sound = content(newest)
    header = 8 + struct.unpack("<Q", sound[:8])[0]

    def damaged(name, content_, parts):
        shutil.rmtree(t.path("b"), ignore_errors=True)
        shutil.copytree(t.path("a"), t.path("b"))
        programs.write(t.path("b", "run", "step-00000030.safetensors"), content_)
        code, out, err = t.call(program, "--data", data, "--out", "b", "--resume")
        t.check(
            code == 0
            and "resumed at step 25" in out
            and "step-00000030.safetensors is passed over" in err
            and all(part in err for part in parts),
            name,
            out[:300] + err,
        )
        t.check(content(t.path("b", "final.safetensors")) == whole, name + ": the same bits")

    damaged("empty", b"", ["too few"])
    damaged("truncated in its header", sound[: header // 2], ["truncated"])
    damaged("truncated in its data", sound[:-100], ["truncated"])
    damaged("longer", sound + b"\0" * 8, ["bytes of data follow"])
    damaged("not safetensors", b"PK\x03\x04" * 100, ["not a safetensors file"])
    damaged("a bit flipped in the data", sound[:-5] + bytes([sound[-5] ^ 16]) + sound[-4:], ["corrupt", "checksum"])
    at = sound.index(b'"step":"30"')
    damaged("a digit of the position changed", sound[: at + 8] + b"2" + sound[at + 9 :], ["corrupt"])
    damaged("a digit of the hash changed", sound.replace(b"deadbeef", b"deadbeee"), ["corrupt"])
    damaged("no JSON", sound[:8] + b"{" * (header - 8) + sound[header:], ["damaged at byte"])
    draw = random.Random(3)
    for i in range(20):
        at = draw.randrange(8, len(sound))
        damaged(
            "byte %d changed" % at, sound[:at] + bytes([sound[at] ^ (1 << draw.randrange(8))]) + sound[at + 1 :], []
        )

    shutil.rmtree(t.path("b"))
    shutil.copytree(t.path("a"), t.path("b"))
    for name in checkpoints(t, "b"):
        programs.write(t.path("b", "run", name), b"damaged")
    before = sorted(os.listdir(t.path("b"))) + checkpoints(t, "b")
    t.refused(3, ["step-00000020.safetensors is passed over: it has 7 bytes", "none of the checkpoints under b can be read; 3 are passed over",
                  "the newest is b/run/step-00000030.safetensors", "without --resume"], program, "--data", data, "--out", "b", "--resume")
    t.check(sorted(os.listdir(t.path("b"))) + checkpoints(t, "b") == before, "nothing was renamed", str(before))
    if os.path.exists(t.path("b", "final.safetensors")):
        os.unlink(t.path("b", "final.safetensors"))
    t.refused(3, ["none of the checkpoints can be read", "--init"], program, "eval", "--data", data, "--out", "b")
    code, out, err = t.call(program, "--data", data, "--out", "b")
    t.check(code == 0 and content(t.path("b", "final.safetensors")) == whole, "without --resume it begins anew", out + err)

    other = t.linear(hash="0123456789abcdef")
    code, out, err = t.call(other, "--data", data, "--out", "a", "--resume")
    t.check(
        code == 3 and "another program" in err and "the step computes something else" in err and "--init a/" in err,
        "a foreign checkpoint is refused",
        err,
    )
    t.check(content(newest) == sound, "and left alone")


def test_init_file(t):
    data = t.digits()
    program = t.linear()
    draw = random.Random(1)
    weight = [draw.random() for _ in range(120)]
    bias = [draw.random() for _ in range(10)]
    tensors = {"fc.bias": ([10], bias), "fc.weight": ([10, 12], weight)}
    for dtype in ("F32", "F64"):
        programs.write_safetensors(t.path("init"), tensors, dtype, {"format": "pt", "note": "x" * 5000})
        code, out, err = t.call(program, "--data", data, "--out", "a", "--steps", 0, "--init", t.path("init"))
        _, final = programs.read_safetensors(t.path("a", "final.safetensors"))
        single = lambda values: [struct.unpack("f", struct.pack("f", v))[0] for v in values]
        t.check(
            code == 0 and list(final["fc.weight"][1]) == single(weight) and list(final["fc.bias"][1]) == single(bias),
            "--init from %s" % dtype,
            err,
        )

    def wrong(parts, **change):
        programs.write_safetensors(t.path("init"), dict(tensors, **change))
        t.refused(3, parts, program, "--data", data, "--out", "a", "--steps", 0, "--init", t.path("init"))

    wrong(["`fc.weight` has shape [12, 10] in it, expected [10, 12]"], **{"fc.weight": ([12, 10], weight)})
    wrong(["`fc.wieght` is no parameter", "did you mean `fc.weight`?"], **{"fc.wieght": ([1], [0])})
    programs.write_safetensors(t.path("init"), {"fc.bias": ([10], bias)})
    t.refused(3, ["`fc.weight` is missing"], program, "--data", data, "--init", t.path("init"))
    t.refused(3, ["cannot open"], program, "--data", data, "--init", t.path("nothing"))
    for text, parts in (
        (b'{"fc.bias":{"dtype":"F8_E4M3","shape":[10],"data_offsets":[0,10]}}', ["F8_E4M3", "expected F32, F64, F16 or BF16"]),
        (b'{"fc.bias":{"dtype":"X9","shape":[10],"data_offsets":[0,40]}}', ["unknown type"]),
        (b'{"fc.bias":{"dtype":"F32","shape":[-1],"data_offsets":[0,40]}}', ["described wrongly"]),
        (b'{"fc.bias":{"dtype":"F32","shape":[9999999999,9999999999],"data_offsets":[0,40]}}', ["described wrongly"]),
        (b'{"fc.bias":{"dtype":"F32","shape":[10],"data_offsets":[40,0]}}', ["described wrongly"]),
        (
            b'{"fc.bias":{"dtype":"F32","shape":[10],"data_offsets":[0,40]},'
            b'"fc.bias":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}}',
            ["twice"],
        ),
    ):
        programs.write(t.path("init"), struct.pack("<Q", len(text)) + text + b"\0" * 40)
        t.refused(3, parts, program, "--data", data, "--init", t.path("init"))
    t.call(program, "--data", data, "--out", "c", "--steps", 10)
    code, out, err = t.call(
        program, "--data", data, "--out", "d", "--steps", 0, "--init", t.path("c", "run", "step-00000010.safetensors")
    )
    t.check(
        code == 0 and content(t.path("d", "final.safetensors")) == content(t.path("c", "final.safetensors")),
        "--init from a checkpoint",
        err,
    )
    programs.write_safetensors(t.path("nan"), dict(tensors, **{"fc.bias": ([10], [float("nan")] * 10)}))
    t.refused(4, ["`fc.bias` was not finite before the first step"], program, "--data", data, "--out", "n", "--init", t.path("nan"))
    # A file that is refused moves nothing; nor does one that the run would move away, and a later one remove.
    final = content(t.path("c", "final.safetensors"))
    t.refused(3, ["cannot open"], program, "--data", data, "--out", "c", "--init", t.path("nothing"))
    t.check(content(t.path("c", "final.safetensors")) == final, "a refused --init leaves the earlier run where it is")
    os.symlink("c", t.path("link"))
    for name in ("c/final.safetensors", "link/final.safetensors", "c/run/step-00000010.safetensors"):
        t.refused(2, ["the parameters of " + name, "--out"], program, "--data", data, "--out", "c", "--steps", 0, "--init", name)
    t.check(content(t.path("c", "final.safetensors")) == final, "a refused --init moves nothing")
    shutil.copy(t.path("c", "final.safetensors"), t.path("c", "start.safetensors"))
    code, out, err = t.call(program, "--data", data, "--out", "c", "--steps", 0, "--init", "c/start.safetensors")
    t.check(code == 0 and not err and content(t.path("c", "final.safetensors")) == final, "--init from another file under --out", out + err)
    t.refused(2, ["c/final.safetensors.previous"], program, "--data", data, "--out", "c", "--init", "c/final.safetensors.previous")
    code, out, err = t.call(program, "--data", data, "--out", "c", "--steps", 0, "--quiet")
    t.check(code == 0 and "earlier run left in c was renamed to *.previous; the *.previous of the run before that one are gone" in err, "what is removed for good is said", out + err)
    # Nor does a run move or write over the data that it reads.
    moved = t.linear(others=[("other", ["log.csv", "train-labels"])])
    os.makedirs(t.path("own"))
    for name in ("train-images", "train-labels", "valid-images", "valid-labels"):
        shutil.copy(os.path.join(data, name), t.path("own", name))
    shutil.copy(os.path.join(data, "train-images"), t.path("own", "log.csv"))
    for flags in ((), ("--resume",)):
        t.refused(2, ["the data file own/log.csv would be lost", "--out"], moved, "--data", "own", "--out", "own", *flags)
    t.check(content(t.path("own", "log.csv")) == content(os.path.join(data, "train-images")), "the data are where they were")
    t.call(program, "--data", data, "--out", "e", "--steps", 2)
    code, out, err = t.call(program, "--data", data, "--out", "e", "--steps", 3, "--resume", "--init", t.path("nothing"))
    t.check(code == 0 and "--init " + t.path("nothing") + " is not used" in err, "--init beside a checkpoint", out + err)


def test_temporaries(t):
    """Files are written under names that nobody has. What killed runs left so is removed with the next file, if its writer is not there."""
    data = t.digits()
    os.makedirs(t.path("t"))
    mine, left, held = (t.path("t", "final.safetensors" + ending) for ending in (".tmp", ".7-0.tmp", ".7-1.tmp"))
    for name in (mine, left, held):
        programs.write(name, b"mine")
    with open(held) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        t.call(t.linear(), "--data", data, "--out", "t", "--steps", 2)
    t.check(content(mine) == b"mine", "a file of the user's called final.safetensors.tmp")
    t.check(os.path.exists(held) and not os.path.exists(left), "what is being written stays, what a killed run left goes")
    there = [os.path.join(folder, name) for folder, _, names in os.walk(t.path("t")) for name in names if name.endswith(".tmp")]
    t.check(sorted(there) == sorted([mine, held]), "nothing else is left", str(there))


def test_epochs(t):
    data = t.digits()
    every = [
        dict(steps=0, kind="checkpoint", dir="run", keep=0, best="", best_is_max=False),
        dict(steps=0, kind="eval", dataset=1, batches=0),
    ]
    program = t.linear(epochs=3, every=every)
    code, out, err = t.call(program, "--data", data, "--out", "a")
    t.check(code == 0 and "steps 0 to 14" in out, "3 epochs of 150 in batches of 32", out + err)
    t.check([int(n[5:13]) for n in checkpoints(t, "a")] == [4, 9, 14], "every epoch", str(checkpoints(t, "a")))
    t.check(re.findall(r"step (\d+)/14  valid:", out) == ["4", "9", "14"], "the last epoch is evaluated like the others", out)
    whole = t.linear(epochs=2, batch=30, microbatch=10, every=every)
    out = t.call(whole, "--data", data, "--out", "b")[1]
    t.check(re.findall(r"step (\d+)/10  valid:", out) == ["5", "10"], "epochs of whole batches", out)
    few = t.linear(epochs=1, batch=160)
    t.refused(3, ["1 epoch of 150 examples", "one batch of 160", "--set epochs=2"], few, "--data", data, "--out", "c")
    code, out, err = t.call(few, "--data", data, "--out", "d", "--set", "epochs=2")
    t.check(code == 0 and "steps 0 to 1" in out, "the remedy makes a step", out + err)
    code, out, err = t.call(few, "--data", data, "--out", "e", "--steps", 0)
    t.check(code == 0 and "steps 0 to 0" in out, "--steps 0 asks for none", out + err)


def crc32c(crc, data):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def without_marks(path):
    """The checkpoint as one that says nothing of its data, with sound checksums."""
    sound = content(path)
    (length,) = struct.unpack("<Q", sound[:8])
    header, data = json.loads(sound[8 : 8 + length]), sound[8 + length :]
    info = header.pop("__metadata__")
    info = {key: value for key, value in info.items() if not key.startswith("data.")}
    text = json.dumps({"__metadata__": dict(info, check="0" * 16), **header}, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    check = "%08x%08x" % (crc32c(0, data), crc32c(0, text.encode()))
    text = text.replace('"check":"%s"' % ("0" * 16), '"check":"%s"' % check)
    programs.write(path, struct.pack("<Q", len(text)) + text.encode() + data)


def test_changed_data(t):
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    t.call(program, "--data", data, "--out", "a", "--steps", 30)
    shutil.copytree(t.path("a"), t.path("old"))
    saved = content(t.path("a", "run", "step-00000030.safetensors"))
    resume = lambda folder, out, *more: (program, "--data", folder, "--out", out, "--resume", *more)

    def copied(name):
        os.mkdir(t.path(name))
        for file in ("train-images", "train-labels", "valid-images", "valid-labels"):
            shutil.copyfile(t.path(file), t.path(name, file))
        return name

    # One value changed in place, its size and time of change as before.
    labels, status = content(t.path("train-labels")), os.stat(t.path("train-labels"))
    changed = labels[:-3] + bytes([(labels[-3] + 1) % 10]) + labels[-2:]
    programs.write(t.path("train-labels"), changed)
    os.utime(t.path("train-labels"), ns=(status.st_atime_ns, status.st_mtime_ns))
    words = ["train-labels", "field `y`", "step-00000030.safetensors", "checksum"]
    t.refused(3, words + ["%08x" % crc32c(0, changed[8:]), "%08x" % crc32c(0, labels[8:])], *resume(data, "a"))
    t.check(content(t.path("a", "run", "step-00000030.safetensors")) == saved, "the checkpoint is left alone")
    t.check(t.call(program, "eval", "--data", data, "--out", "a")[0] == 0, "eval does not mind")
    programs.write(t.path("train-labels"), labels)

    # Fewer examples, in sound files.
    short = copied("short")
    images = content(t.path("train-images"))
    programs.write(t.path(short, "train-images"), images[:4] + struct.pack(">I", 149) + images[8:-12])
    programs.write(t.path(short, "train-labels"), labels[:4] + struct.pack(">I", 149) + labels[8:-1])
    t.refused(3, ["short/train-images", "field `x`", "1788 bytes", "1800"], *resume(short, "a"))
    other = copied("other")
    programs.write(t.path(other, "train-labels"), labels[:2] + b"\x09" + labels[3:])  # the same bytes as i8
    t.refused(3, ["other/train-labels", "field `y`", "i8", "u8"], *resume(other, "a"))

    moved = copied("moved")
    code, out, err = t.call(*resume(moved, "a"))
    t.check(code == 0 and "resumed at step 30" in out and not err, "the same data in another folder", out + err)
    t.check(content(t.path("a", "final.safetensors")) == whole, "the same bits")

    without_marks(t.path("old", "run", "step-00000030.safetensors"))
    code, out, err = t.call(*resume(data, "old", "--steps", 31))
    t.check(code == 0 and "resumed at step 30" in out, "a checkpoint of an earlier version is taken", out + err)
    t.check("step-00000030.safetensors does not say which data" in err, "and what is not known is said", err)
    programs.write(t.path("train-labels"), changed)
    t.refused(3, ["step-00000031.safetensors"], *resume(data, "old"))


def test_changed_text_and_table(t):
    text = bytes(range(256)) * 4
    field = dict(name="text", dtype="I32", shape=[9], below=256)
    source = dict(name="train", source="text", files=["text"], window=9, stride=8, fields=[field])
    table = dict(name="train", source="csv", files=["t.csv"], csv_header=True, separator=",")
    table["fields"] = [dict(name="x", dtype="I32", shape=[2], **{"from": ["a", "b"]})]
    rows = "a,b\n" + "".join("%d,%d\n" % (e, 2 * e) for e in range(50))
    for name, width, spec, before, after, rewritten in (
        ("text", 9, source, text, text[:-8], None),
        ("t.csv", 2, table, rows.encode(), rows.replace("7,14", "8,14").encode(), rows.replace(",", " , ").encode()),
    ):
        program = t.recorder(spec, width, 8, steps=20)
        resume = (program, "--data", ".", "--out", "out-" + name, "--resume")
        programs.write(t.path(name), before)
        t.check(t.call(program, "--data", ".", "--out", "out-" + name, "--steps", 5)[0] == 0, "trains")
        programs.write(t.path(name), after)
        t.refused(3, [name + " is not what it was", "step-00000005"], *resume)
        programs.write(t.path(name), before)
        t.check(t.call(*resume, "--steps", 6)[0] == 0, name + " is as before")
        if rewritten:
            programs.write(t.path(name), rewritten.replace(b"a , b", b"a,b"))
            t.check(t.call(*resume)[0] == 0, "the same numbers, written otherwise")


def test_no_file(t):
    """Fifos and folders where files are expected are refused, and nothing waits for them."""
    data = t.digits()
    program = t.linear()
    t.call(program, "--data", data, "--out", "whole")
    whole = content(t.path("whole", "final.safetensors"))
    t.call(program, "--data", data, "--out", "a", "--steps", 30)
    os.mkfifo(t.path("a", "run", "step-00000040.safetensors"))
    os.mkdir(t.path("a", "run", "step-00000050.safetensors"))
    for name in ("log.csv", "data-checked.txt"):
        os.unlink(t.path("a", name))
        os.mkfifo(t.path("a", name))
    code, out, err = t.call(program, "--data", data, "--out", "a", "--resume")
    t.check(
        code == 0
        and "resumed at step 30" in out
        and "step-00000040.safetensors is passed over: cannot open it: it is not a file" in err
        and "step-00000050.safetensors is passed over: cannot open it: it is not a file" in err,
        "a fifo and a folder among the checkpoints are passed over",
        out + err,
    )
    t.check(content(t.path("a", "final.safetensors")) == whole, "to the same end")
    t.check("log.csv could not be written" in err, "a fifo as log is said", err)
    os.mkfifo(t.path("fifo"))
    os.mkdir(t.path("folder"))
    for name in ("fifo", "folder"):
        t.refused(3, [name, "it is not a file"], program, "--data", data, "--out", "b", "--init", name)
    os.mkdir(t.path("data"))
    for name in ("train-images", "train-labels", "valid-images", "valid-labels"):
        shutil.copy(os.path.join(data, name), t.path("data", name))
    for make in (os.mkfifo, os.mkdir):
        path = t.path("data", "train-labels")
        os.unlink(path) if os.path.exists(path) else None
        make(path)
        t.refused(3, ["train-labels", "it is not a file"], program, "--data", "data", "--out", "c")


def test_internal_error(t):
    program = t.linear(max_threads=4, parameters=[dict(path="w", dtype="F32", shape=[1 << 40], offset=0)])
    t.refused(
        70,
        ["internal error: w lies at", "a fault of Cinch", "`--microbatch N`", "`--memory-budget`", "report it"],
        program,
        "info",
    )
