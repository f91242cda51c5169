#!/usr/bin/env python3
"""workers: measured beside simulated step times of two workers, each pinned to a processor of its own.   bench/workers.py [--quick] [--rounds N]

For every schedule, a GPT in eight micro-batches on two workers with one thread each. A step is measured (the median), and beside it stand
the step that the compiler predicts, and the one that it would predict if every kernel took as long as it did here: by what the second
one is off, the table, the messages and the handing over are; by what the first is off beyond that, the costs of kernels. The share of time in
which workers wait is measured (what no kernel used of both processors), simulated, and given by theory for stages of equal length.
Microseconds an action: what a step of a model of almost no work takes, over the actions of a worker.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

MODEL = programs.BENCH / "models" / "gpt.cinch"
WORKERS = 2
SCHEDULES = ["naive", "gpipe", "1f1b", "2bw", "interleaved", "zb-h1", "zbv"]
TINY = """dim B = 64 batch, I = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: f32[B, I])
model net(x: f32[B, I]) -> f32[B, I] {
  use a = linear[I], b = linear[I]
  return b(tanh(a(x)))
}
train net on train seed 1 {
  loss = mean[B, I] squared_error(net(x), y)
  optimizer sgd(lr = 0.1)
  steps 100000
  every 1 log(csv)
}
"""


def theory(schedule, m):
    """Share of waiting on two workers whose forward, input and weight gradients all take the same time; of `2bw` at most: the workers meet
    behind every step, and the last one's backward may be all that is left to wait for."""
    late = {"naive": 1, "gpipe": 1, "1f1b": 1, "2bw": 2 / 3, "interleaved": 1 / 2, "zb-h1": 1 / 3, "zbv": 1 / 6}[schedule] * (WORKERS - 1)
    return late / (m + late)


def pin(process):
    """Worker w of a process runs on the w-th processor that this one may use."""
    allowed = sorted(os.sched_getaffinity(0))
    for _ in range(200):
        try:
            threads = sorted(int(task.name) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir())
        except OSError:
            return
        if len(threads) >= WORKERS:
            break
        time.sleep(0.005)
    for worker, thread in enumerate(threads[:WORKERS]):
        try:
            os.sched_setaffinity(thread, {allowed[worker % len(allowed)]})
        except OSError:
            return


def run(exe, folder, out, steps):
    """Seconds a step (the median), and seconds a step that kernels took on all workers together."""
    times = folder / "times.txt"
    taken, _ = programs.train(exe, folder, out, steps, 1, "--kernel-times", str(times), started=pin)
    busy = sum(float(line.split("\t")[1]) * float(line.split("\t")[3]) for line in times.read_text().splitlines())
    return programs.median(taken), busy / steps


def table(quick, rounds, folder):
    sizes = dict(B=8, T=32, N=4, D=32, A=2) if quick else dict(B=16, T=128, N=8, D=256, A=4)
    shape = [part for name, value in sizes.items() for part in ("-D", f"{name}={value}")]
    m, steps = 8, 4 if quick else 8
    data.text(folder, 400 * (sizes["T"] + 1))
    print(f"{', '.join(f'{k} = {v}' for k, v in sizes.items())}; {WORKERS} workers, {m} micro-batches; {programs.machine_line()}")
    print(f"{'schedule':<12}{'measured ms':>12}{'predicted':>11}{'own kernels':>13}{'waits %':>9}{'simulated':>11}{'theory':>8}")
    delayed = folder / "delayed.cinch" # steps overlap where gradients are one update late
    delayed.write_text(MODEL.read_text().replace("\n  steps ", "\n  delay        1\n  steps "))
    found, plans = {}, {}
    for schedule in SCHEDULES:
        size = sizes["B"] if schedule == "naive" else sizes["B"] // m
        options = [*shape, "--stages", str(WORKERS), "--schedule", schedule, "--microbatch", str(size), "--max-threads", "1"]
        source = delayed if schedule == "2bw" else MODEL
        plans[schedule] = programs.plan(source, *options)
        programs.compile(source, folder / schedule, *options)
        found[schedule] = []
    for _ in range(rounds): # in turns, so that a slow minute of the machine is everybody's
        for schedule in SCHEDULES:
            found[schedule].append(run(folder / schedule, folder, folder / f"out-{schedule}", steps))
    results = []
    for schedule in SCHEDULES:
        plan = plans[schedule]
        step, busy = (programs.median([f[i] for f in found[schedule]]) for i in (0, 1))
        predicted, planned = plan["schedule"]["seconds"], sum(w["busy"] for w in plan["workers"])
        own = predicted * busy / planned
        waits, simulated = 1 - busy / (WORKERS * step), 1 - planned / (WORKERS * predicted)
        print(f"{schedule:<12}{1e3 * step:12.2f}{1e3 * predicted:11.2f}{1e3 * own:13.2f}{100 * waits:9.1f}{100 * simulated:11.1f}"
              f"{100 * theory(schedule, 1 if schedule == 'naive' else m):8.1f}", flush=True)
        results += [(f"{schedule.replace('-', '')}.{name}", value) for name, value in
                    (("predicted_ratio", predicted / step), ("own_kernels_ratio", own / step), ("waits", waits), ("waits_simulated", simulated))]
    return results


def actions(quick, folder):
    source = folder / "tiny.cinch"
    source.write_text(TINY)
    for name in ("x", "y"):
        data.write_npy(folder / f"{name}.npy", "f", [[0.25 * ((3 * i + j) % 7) for j in range(4)] for i in range(256)])
    options = ["--stages", str(WORKERS), "--microbatch", "1", "--max-threads", "1"]
    programs.compile(source, folder / "tiny", *options)
    step, busy = run(folder / "tiny", folder, folder / "out-tiny", 50 if quick else 500)
    each = 1e6 * step / (2 * 64)
    print(f"an action of almost no work: {each:.2f} us, of which kernels {1e6 * busy / WORKERS / (2 * 64):.2f} us")
    return [("us_an_action", each)]


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small shapes, one round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = table(arguments.quick, 1 if arguments.quick else arguments.rounds, pathlib.Path(temporary))
        results += actions(arguments.quick, pathlib.Path(temporary))
    for name, value in results:
        programs.result("workers." + name, value)


programs.main(body)
