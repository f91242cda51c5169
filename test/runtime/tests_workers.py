"""tests_workers.py: programs of several workers, as threads of one process: the same bits as one worker, whatever the timing."""

import os
import re
import signal
import subprocess
import time

import programs
from cases import content


def slow(most=300):
    """Kernels wait at random, up to so many microseconds."""
    return dict(os.environ, DELAY=str(most))


def final(t, name):
    return content(t.path(name, "final.safetensors"))


def test_workers_same_bits(t):
    data = t.digits()
    code, out, err = t.call(t.stages(1), "--data", data, "--out", "one")
    t.check(code == 0, "one worker", out + err)
    reference = final(t, "one")
    number = 0
    for workers in (2, 3):
        for one_f_one_b in (False, True):
            for boxes, microbatch in ((1, 4), (2, 2), (1, 16), (3, 8)):
                for threads, delay in ((1, 0), (2, 200)):
                    number += 1
                    program = t.stages(workers, one_f_one_b=one_f_one_b, boxes=boxes, microbatch=microbatch)
                    code, out, err = t.call(program, "--data", data, "--out", number, "--threads", threads, env=slow(delay))
                    t.check(code == 0 and "%d workers with %d thread" % (workers, threads) in out, "workers run", out + err)
                    t.check(final(t, str(number)) == reference, "%d workers give the bits of one" % workers)
                    columns = lambda name: [line.split(b",")[:4] for line in content(t.path(name, "log.csv")).split(b"\n")]
                    t.check(columns(str(number)) == columns("one"), "the log is the same", repr(columns(str(number))[:3]))


def test_workers_never_hang(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for i in range(25):
        for workers, one_f_one_b in ((2, True), (3, i % 2 == 0)):
            program = t.stages(workers, one_f_one_b=one_f_one_b, boxes=1, microbatch=2)
            code, out, err = t.call(program, "--data", data, "--out", "a", "--threads", 1 + i % 2, env=slow(20 + 17 * i))
            if not t.check(code == 0 and final(t, "a") == final(t, "one"), "run %d of %d workers" % (i, workers), out + err):
                return


def test_workers_large_messages(t):
    data = t.digits()
    wide = dict(width=1 << 18, microbatch=4, batch=8, steps=2, every=[])
    t.call(t.stages(1, **wide), "--data", data, "--out", "one")
    for workers in (2, 3):
        code, out, err = t.call(t.stages(workers, **wide), "--data", data, "--out", workers, "--threads", 2)
        t.check(code == 0 and final(t, str(workers)) == final(t, "one"), "messages of 4 MiB", out + err)


def test_workers_other_commands(t):
    data = t.digits()
    outputs = []
    for workers in (1, 2, 3):
        program = t.stages(workers)
        folder = "c%d" % workers
        t.call(program, "--data", data, "--out", folder)
        evaluated = t.call(program, "eval", "--data", data, "--out", folder, "--quiet")
        predicted = t.call(program, "predict", "--data", data, "--out", folder)
        results = content(t.path(folder, "predict", "valid", "logits.npy"))
        again = t.call(program, "--data", data, "--out", folder + "i", "--init", t.path(folder, "final.safetensors"), "--steps", 3)
        t.check(evaluated[0] == predicted[0] == again[0] == 0, "eval, predict, --init", repr((evaluated, predicted, again)))
        outputs.append((evaluated[1], results, final(t, folder + "i")))
        start = time.time()
        code, out, err = t.call(program, "info")
        t.check(code == 0 and time.time() - start < 0.5, "info", out + err)
        t.check(workers == 1 or "workers      %d" % workers in out, "info names the workers", out)
    t.check(outputs[0] == outputs[1] == outputs[2], "any number of workers says the same")


def test_workers_stop_and_resume(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for workers in (2, 3):
        folder = "s%d" % workers
        process = subprocess.Popen(
            [t.stages(workers), "--data", data, "--out", folder], cwd=t.folder, env=slow(3000), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        t.wait_for(folder)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        t.check(process.returncode == 75, "SIGTERM saves", (out + err).decode())
        code, out, err = t.call(t.stages(5 - workers), "--data", data, "--out", folder, "--resume")
        t.check(code == 0 and final(t, folder) == final(t, "one"), "resumed with another number of workers", out + err)


def test_workers_gate(t):
    """The first bad number is the same whatever the number of workers, the table and the timing."""
    data = t.digits()
    plants = {
        # layer and first example of the micro-batch of each infinity; layer and micro-batch that are named
        "{2, 4}": "layer 2",
        "{0, 8}": "layer 0",
        "{1, 12, 2, 0}": "layer 2",  # the earlier micro-batch comes first
        "{2, 4, 0, 4}": "layer 0",  # of one micro-batch, the earlier in the program
        "{0, 12, 1, 8, 2, 8}": "layer 1",
    }
    for plant, named in plants.items():
        messages = set()
        for workers, one_f_one_b in ((1, False), (2, False), (2, True), (3, False), (3, True)):
            program = t.stages(workers, one_f_one_b=one_f_one_b, boxes=1, defines=dict(PLANT_STEP=7, PLANTS=plant))
            for i in range(3):
                code, out, err = t.call(program, "--data", data, "--out", "a", env=slow(400))
                t.check(code == 4, "ends with 4", out + err)
                messages.add("\n".join(line for line in err.split("\n") if "stages.cinch" in line))
        # With GPipe's table in one worker, too, every forward runs before a backward, so that one message is expected.
        t.check(len(messages) == 1 and named + " made the first number" in messages.pop(), "%s names %s" % (plant, named), err)
    program = t.stages(3, defines=dict(PLANT_STEP=7, PLANTS="{1, 4}"))
    t.call(program, "--data", data, "--out", "b")
    t.call(t.stages(1), "--data", data, "--out", "c", "--steps", 7)
    saved = programs.read_safetensors(t.path("b", "run", "step-00000007.safetensors"))[1]
    sound = programs.read_safetensors(t.path("c", "final.safetensors"))[1]
    t.check(all(saved[name][1] == sound[name][1] for name in sound), "the parameters are those before the bad step")


def test_workers_memory(t):
    """One worker costs nothing more than before; several cost their arenas and stacks."""
    data = t.digits()
    peaks = {}
    for workers in (1, 2, 3):
        code, out, err = t.call(t.stages(workers), "--data", data, "--out", workers, "--threads", 1)
        peaks[workers] = int(re.search(r"peak memory (\d+)", out)[1])
    t.check(peaks[3] - peaks[1] < 400 << 10, "two more workers stay below 400 KiB", str(peaks))


def test_workers_description(t):
    """What does not fit is the compiler's fault, and found before anything runs."""
    data = t.digits()
    for what, change in {
        "part": lambda meta: meta["workers"][1].update(at=64),
        "loss": lambda meta: meta["gate"]["gates"][1].update(loss=0),
        "channel": lambda meta: meta["channels"][0].update(at=meta["channels"][1]["at"]),
        "boxes": lambda meta: meta["channels"][0].update(boxes=0),
    }.items():
        import stages_program

        meta, layout = stages_program.stages_meta(2)
        change(meta)
        program = programs.build(t.base, t.archive, "stages.c", meta, layout, "wrong-" + what)
        t.refused(70, ["internal error"], program, "--data", data, "--out", what)
