"""tests_workers_tcp.py: programs of several workers, one process each, over TCP: the bits of one worker, and how a run ends."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import programs
from cases import content
from tests_workers import final, slow


def codes(results):
    return [code for code, out, err in results]


def test_tcp_same_bits(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    number = 0
    for workers in (2, 3):
        for one_f_one_b, boxes, microbatch in ((False, 1, 4), (True, 2, 2), (True, 1, 16)):
            number += 1
            program = t.stages(workers, one_f_one_b=one_f_one_b, boxes=boxes, microbatch=microbatch)
            results = t.together([program] * workers, "--data", data, "--out", number, env=slow(100))
            if not t.check(codes(results) == [0] * workers and final(t, str(number)) == final(t, "one"), "%d processes" % workers, repr(results)):
                return
            t.check(all(out == err == "" for code, out, err in results[1:]), "only worker 0 speaks", repr(results))
            for folder in sorted(os.listdir(t.path(str(number), "run"))):
                t.check(content(t.path(str(number), "run", folder)) == content(t.path("one", "run", folder)), "the same checkpoint " + folder)


def test_tcp_large_messages(t):
    data = t.digits()
    wide = dict(width=1 << 18, microbatch=4, batch=8, steps=2, every=[])
    t.call(t.stages(1, **wide), "--data", data, "--out", "one")
    for workers in (2, 3):
        for schedule in (False, True):
            results = t.together([t.stages(workers, one_f_one_b=schedule, **wide)] * workers, "--data", data, "--out", workers)
            t.check(codes(results) == [0] * workers and final(t, str(workers)) == final(t, "one"), "messages of 4 MiB", repr(results))


def test_tcp_other_commands(t):
    data = t.digits()
    one, three = t.stages(1), t.stages(3)
    t.call(one, "--data", data, "--out", "one")
    shutil.copytree(t.path("one"), t.path("three"))
    shutil.rmtree(t.path("three", "predict"), ignore_errors=True)
    t.call(one, "predict", "--data", data, "--out", "one")
    expected = t.call(one, "eval", "--data", data, "--out", "one", "--quiet")
    results = t.together([three] * 3, "eval", "--data", data, "--out", "three", "--quiet")
    t.check(codes(results) == [0] * 3 and results[0][1] == expected[1], "eval", repr((results, expected)))
    results = t.together([three] * 3, "predict", "--data", data, "--out", "three")
    t.check(codes(results) == [0] * 3, "predict", repr(results))
    t.check(content(t.path("three", "predict", "valid", "logits.npy")) == content(t.path("one", "predict", "valid", "logits.npy")), "the same results")
    results = t.together([three] * 3, "info")
    t.check(codes(results) == [0] * 3 and results[1][1] == "" and "workers      3" in results[0][1], "info starts no transport", repr(results))


def test_tcp_stop_and_resume(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for workers in (2, 3):
        folder = "s%d" % workers
        program = t.stages(workers)
        results = t.together([program] * workers, "--data", data, "--out", folder, env=slow(4000), kill=(0, folder, signal.SIGTERM))
        t.check(codes(results) == [75] * workers and "go on with --resume" in results[0][1], "SIGTERM to worker 0 ends all with 75", repr(results))
        results = t.together([program] * workers, "--data", data, "--out", folder, "--resume")
        t.check(codes(results) == [0] * workers and final(t, folder) == final(t, "one"), "resumed", repr(results))
    # Others leave the decision to worker 0.
    results = t.together([t.stages(2)] * 2, "--data", data, "--out", "t", env=slow(1000), kill=(1, "t", signal.SIGTERM))
    t.check(codes(results) == [0, 0] and final(t, "t") == final(t, "one"), "SIGTERM to another worker changes nothing", repr(results))


def test_tcp_stopped_early(t):
    """SIGTERM while worker 0 still waits for the others: there is nothing to save, and it does not count as killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = dict(os.environ, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    process = subprocess.Popen([t.stages(2), "--data", t.digits(), "--out", "early"], cwd=t.folder, env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    caught, until = 0, time.time() + 20
    while not caught >> (signal.SIGTERM - 1) & 1 and time.time() < until:
        with open("/proc/%d/status" % process.pid) as status:
            caught = int(re.search(r"SigCgt:\s*(\w+)", status.read()).group(1), 16)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    t.check(process.returncode == 75 and "nothing is to be saved" in out, "SIGTERM before the start", repr((process.returncode, out, err)))


def test_tcp_lost_worker(t):
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    for victim, after, how in ((1, 0.5, signal.SIGKILL), (2, 0.8, signal.SIGKILL), (0, 0.6, signal.SIGKILL), (1, 0.5, signal.SIGSTOP)):
        folder = "k%d%d" % (victim, how)
        program = t.stages(3)
        start = time.time()
        results = t.together([program] * 3, "--data", data, "--out", folder, "--worker-timeout", 2, env=slow(5000), kill=(victim, after, how), limit=9)
        seconds = time.time() - start
        others = [results[i] for i in range(3) if i != victim]
        t.check(codes(others) == [5, 5] and seconds < 10, "a lost worker ends the run with 5", "%.1f s %r" % (seconds, results))
        said = "".join(err for code, out, err in others)  # by whoever noticed it first
        t.check(re.search(r"worker %d \(stage %d\) lost in (update of )?step \d+: " % (victim, victim), said), "it is named", repr(results))
        results = t.together([t.stages(2)] * 2, "--data", data, "--out", folder, "--resume")
        t.check(codes(results) == [0, 0] and final(t, folder) == final(t, "one"), "resumed on another grid", repr(results))


def test_tcp_silent_for_a_while(t):
    """A worker may be silent for nearly as long as --worker-timeout says."""
    data = t.digits()
    processes = t.begin([t.stages(2)] * 2, "--data", data, "--out", "silent", "--worker-timeout", 8, env=slow(5000))
    t.wait_for("silent")
    processes[1].send_signal(signal.SIGSTOP)
    time.sleep(6.8)
    processes[1].send_signal(signal.SIGCONT)
    results = t.finish(processes)
    t.check(codes(results) == [0, 0], "silent for 6.8 s of 8", repr(results))


def test_tcp_gate(t):
    data = t.digits()
    for plant in ("{2, 4}", "{0, 12, 1, 8, 2, 8}"):
        defines = dict(PLANT_STEP=7, PLANTS=plant)
        expected = t.call(t.stages(1, defines=defines), "--data", data, "--out", "a")[2]
        for workers in (2, 3):
            program = t.stages(workers, one_f_one_b=True, defines=defines)
            results = t.together([program] * workers, "--data", data, "--out", "a", env=slow(200))
            t.check(codes(results) == [4] * workers and results[0][2] == expected, "exit 4 everywhere, the same op", repr((results, expected)))


def test_tcp_wrong_start(t):
    data = t.digits()
    two, three = t.stages(2), t.stages(3)
    arguments = ("--data", data, "--out", "w")

    def refused(results, who, parts, what):
        t.check(all(results[i][0] == 2 and all(part in results[i][2] for part in parts) for i in who), what, repr(results))

    refused(t.together([two] * 3, *arguments), (0, 1, 2), ["the program has 2 workers", "started 3 processes"], "too many processes")
    refused(t.together([three] * 2, *arguments), (0, 1), ["the program has 3 workers", "started 2 processes"], "too few processes")
    twice = [three, (three, dict(RANK="1")), (three, dict(RANK="1"))]
    refused(t.together(twice, *arguments), (0, 1, 2), ["two processes were started as worker 1"], "a number twice")
    other = t.stages(2, hash="00000000deadbee0")
    refused(t.together([two, other], *arguments), (0, 1), ["00000000deadbeef", "00000000deadbee0", "worker 1", "worker 0"], "another program")
    plan = t.stages(2, boxes=2)
    refused(t.together([two, plan], *arguments), (0, 1), ["different plans", "worker 1", "worker 0"], "another plan")
    t.refused(2, ["MASTER_ADDR"], two, *arguments, env=dict(os.environ, RANK="0", WORLD_SIZE="2"))
    for name in ("RANK", "WORLD_SIZE"): # it would train as threads, and a second process into the same folder
        for word in ("x", "-1", "1.5"):
            t.refused(2, [name, "`%s`" % word], two, *arguments, env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", name: word})
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        t.refused(2, [name + " is `0`", "from 1"], two, *arguments, env={**os.environ, **place, name: "0"})
    t.refused(2, ["LOCAL_WORLD_SIZE is `x`"], two, *arguments, env={**os.environ, **place, "LOCAL_WORLD_SIZE": "x"})
    slurm = dict(SLURM_STEP_ID="0", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1", SLURM_STEP_TASKS_PER_NODE="1,1")
    t.check(t.call(t.stages(1), "--data", data, "--out", "slurm", env={**os.environ, **slurm})[0] == 0, "tasks of Slurm's nodes that differ")
    for name in ("RANK", "WORLD_SIZE"): # forgotten, or empty
        for program in (two, t.stages(1)):
            for env in ({**os.environ, **place, name: ""}, {key: value for key, value in {**os.environ, **place}.items() if key != name}):
                t.refused(2, [name + " is not set", "MASTER_ADDR"], program, *arguments, env=env)
    t.refused(2, ["--transport tcp", "RANK"], two, "--transport", "tcp")
    t.refused(2, ["did you mean `threads`"], two, "--transport", "thread")
    one = t.stages(1)
    t.refused(2, ["one worker"], one, "--transport", "tcp")
    # Two processes of one worker would each train the whole, and write into the same folder.
    refused(t.together([one] * 2, *arguments), (0, 1), ["the program has one worker", "started 2 processes"], "one worker, two processes")
    t.check(not os.path.exists(t.path("w")), "nothing was written")
    t.check(codes(t.together([one] * 2, "info")) == [0, 0], "info starts no transport")
    t.check(codes(t.together([one], *arguments)) == [0], "one worker, one process")
    t.check(codes(t.together([(one, dict(WORLD_SIZE="2"))], *arguments, "--transport", "threads")) == [0], "a run of its own in spite of the variables")
    code, out, err = t.call(two, *arguments, "--transport", "threads", env=dict(os.environ, RANK="0", WORLD_SIZE="2"))
    t.check(code == 0, "threads in spite of the variables", out + err)


def test_tcp_asked(t):
    """Worker 0 acts on the command and its flags for all: what another worker is told has to be the same, or nothing."""
    data, two = t.digits(), t.stages(2)

    def told(words, to):
        script = os.path.join(t.folder, "told")
        programs.write(script, b'#!/bin/sh\n[ $RANK = %d ] && exec %s %s "$@"\nexec %s "$@"\n' % (to, two.encode(), words.encode(), two.encode()))
        os.chmod(script, 0o755)
        return t.together([script] * 2, "--data", data, "--out", "asked")

    for words, said in (("--steps 3", "--steps 3"), ("eval --batches 1", "eval --batches 1"), ("--resume --set seed=4", "--set seed=4 --resume"),
                        ("--init /elsewhere/file", "--init")):
        results = told(words, 1)
        line = "worker 1 at .* was started with `%s`, worker 0 at .* with nothing of the kind: .* tell the others the same or nothing" % said
        t.check(codes(results) == [2, 2] and all(re.search(line, result[2]) for result in results), "%s to worker 1" % words, repr(results))
    t.check(not os.path.exists(t.path("asked")), "nothing was written")
    t.check(codes(told("--steps 3", 0)) == [0, 0], "what worker 0 alone is told")
    t.check(t.call(t.stages(1), "--data", data, "--out", "asked-one", "--steps", 3)[0] == 0 and final(t, "asked") == final(t, "asked-one"), "it holds for all")


def test_tcp_late_start(t):
    """Whoever waits for others says for whom and where after three seconds, with --quiet too, and once."""
    data, three = t.digits(), t.stages(3)
    t.call(three, "--data", data, "--out", "one")
    late = os.path.join(t.folder, "late")
    programs.write(late, b'#!/bin/sh\n[ $RANK = 1 ] && sleep 5\nexec %s "$@"\n' % three.encode())
    os.chmod(late, 0o755)
    results = t.together([late] * 3, "--data", data, "--out", "b", "--quiet")
    said = [result[2] for result in results]
    t.check(codes(results) == [0, 0, 0] and final(t, "b") == final(t, "one"), "a worker that comes late", repr(results))
    t.check(said[0].startswith("worker 0 of 3 waits at ") and "port" in said[0] and "for worker 1 to call" in said[0], "worker 0 says so", said[0])
    t.check(said[2].startswith("worker 2 of 3 waits for worker 0 at 127.0.0.1:"), "worker 2 says so", said[2])
    t.check([text.count("waits") for text in said] == [1, 0, 1], "once", repr(said))


def test_tcp_slurm(t):
    """What srun sets is enough for --transport tcp: the first machine of the step, a port by the numbers of job and step, tasks of a machine."""
    data, two = t.digits(), t.stages(2)
    t.call(two, "--data", data, "--out", "one", "--threads", "1")
    for number, (nodes, per_node) in enumerate([("localhost", "2"), ("127.0.0.[1-2],other", "2(x1)")]):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("RANK", "WORLD_SIZE", "MASTER_", "SLURM_"))}
        env.update(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_ID=str(number), SLURM_STEP_NODELIST=nodes, SLURM_STEP_NUM_TASKS="2",
                   SLURM_STEP_TASKS_PER_NODE=per_node)
        out = "slurm%d" % number
        processes = [subprocess.Popen([two, "--transport", "tcp", "--data", data, "--out", out, "--threads", "1"], cwd=t.folder,
                                      env=dict(env, SLURM_PROCID=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
        results = [(process.communicate(timeout=60), process.returncode) for process in processes]
        t.check([code for _, code in results] == [0, 0] and final(t, out) == final(t, "one"), "two tasks of Slurm's step on " + nodes, repr(results))


def test_tcp_data(t):
    """A worker's files are its own; what differs, or is missing, ends all with 3."""
    data = t.digits()
    os.makedirs(t.path("other"))
    for name in ("train-labels", "valid-labels", "train-images", "valid-images"):
        shutil.copy(t.path(name), t.path("other", name))
    two = t.stages(2)
    t.call(two, "--data", data, "--out", "one")

    def run(out):
        here = os.path.join(t.folder, "start")
        programs.write(here, b"#!/bin/sh\n[ $RANK = 0 ] && exec %s --data . --out %s\nexec %s --data other --out %s\n" % (two.encode(), out, two.encode(), out))
        os.chmod(here, 0o755)
        return t.together([here, here])

    os.remove(t.path("other", "train-images"))  # worker 1 reads labels only
    results = run(b"a")
    t.check(codes(results) == [0, 0] and final(t, "a") == final(t, "one"), "each worker reads its own fields", repr(results))
    labels = bytearray(content(t.path("other", "train-labels")))
    programs.write(t.path("other", "train-labels"), labels[:4] + (149).to_bytes(4, "big") + labels[8:-1])
    results = run(b"b")
    t.check(codes(results) == [3, 3] and "150 examples" in results[0][2] and "149" in results[0][2], "numbers of examples differ", repr(results))
    os.remove(t.path("other", "train-labels"))
    results = run(b"c")
    t.check(codes(results) == [3, 3] and "train-labels" in results[1][2], "a file is missing", repr(results))


def test_tcp_memory(t):
    """Each process holds its own part only."""
    data = t.digits()
    program = t.stages(2, padding=24 << 20)
    results = t.together([program] * 2, "--data", data, "--out", "m", "--steps", 3, "--threads", 1)
    peaks = [int(peak) for peak in re.findall(r"peak memory (\d+)", results[0][1])]
    t.check(codes(results) == [0, 0] and len(peaks) == 2, "the peak of each process is said", repr(results))
    t.check(all((24 << 20) <= peak < (27 << 20) for peak in peaks), "each holds its own part of the arena", repr(peaks))
