#!/usr/bin/python3
"""`cinch solve stages`: the example of compiler/solve/README.md and random chains, the printed answer recomputed from the printed table.

Dependences, bytes and the makespan are computed here anew from the file and from the answer's cuts and ways; refusals name the smallest
budget, with which the same file is then solved; wrong files and flags end with exit code 2 and say where.
"""
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CINCH = ROOT / "build/bin/cinch"
passed = failed = 0


def expect(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED: " + what)


def solve(problem, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(problem if isinstance(problem, str) else json.dumps(problem))
        file.flush()
        done = subprocess.run([CINCH, "solve", "stages", file.name, *flags], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def fault(problem, answer):
    """What is wrong with an answer to a chain (`output`, no `values`), or None."""
    segments, latency, bandwidth = problem["segments"], problem.get("latency", 0), problem.get("bandwidth", float("inf"))
    borders = [0, *answer["cuts"], len(segments)]
    if any(a >= b for a, b in zip(borders, borders[1:])):
        return "an empty stage"
    stage_of = {}
    for stage, (first, end) in enumerate(zip(borders, borders[1:])):
        for k in range(first, end):
            stage_of[k] = stage
    seconds = {}
    for k, segment in enumerate(segments):
        way = segment.get("ways", [{}])[answer["ways"][k]]
        for kind, time in (("F", segment["forward"]), ("I", segment.get("input", 0) + way.get("seconds", 0)),
                           ("W", segment.get("weight", 0))):
            key = (stage_of[k], kind)
            seconds[key] = seconds.get(key, 0) + time
    ends, worker_of = {}, {}
    for worker, row in enumerate(answer["table"]):
        clock = 0
        for action, begin, end in row:
            if action[0] == "U":
                continue
            stage, kind, microbatch = re.fullmatch(r"(\d+)([FIWB])(\d+)", action).groups()
            stage, microbatch = int(stage), int(microbatch)
            time = seconds[stage, "I"] + seconds[stage, "W"] if kind == "B" else seconds[stage, kind]
            if begin < clock - 1e-9 or abs(end - begin - time) > 1e-9:
                return f"{action}: {begin} to {end}, expected {time} s after {clock}"
            clock = end
            worker_of[stage] = worker
            ends[stage, kind, microbatch] = (begin, end)
    stages = len(borders) - 1
    for (stage, kind, microbatch), (begin, _) in ends.items():
        def after(stage_before, kinds, size):
            """Begins after what it reads has ended and travelled."""
            _, end = next(ends[stage_before, k, microbatch] for k in kinds if (stage_before, k, microbatch) in ends)
            travel = latency + size / bandwidth if worker_of[stage_before] != worker_of[stage] else 0
            return begin >= end + travel - 1e-9
        if kind == "F" and stage and not after(stage - 1, "F", segments[borders[stage] - 1].get("output", 0)):
            return f"{stage}F{microbatch} begins before its input is there"
        if kind in "IB" and stage + 1 < stages and not after(stage + 1, "IB", segments[borders[stage + 1] - 1].get("output", 0)):
            return f"{stage}{kind}{microbatch} begins before its gradient is there"
    expected = stages * answer["microbatches"]
    if sum(kind == "F" for _, kind, _ in ends) != expected or sum(kind in "IB" for _, kind, _ in ends) != expected:
        return "actions are missing"
    if abs(max(end for row in answer["table"] for _, _, end in row) - answer["makespan"]) > 1e-9:
        return "the makespan is not the end of the table"
    for worker in answer["workers"]:
        total = most = 0
        for stage in worker["stages"]:
            own = range(stage["first"], stage["end"])
            ways = [segments[k].get("ways", [{}])[answer["ways"][k]] for k in own]
            received = segments[stage["first"] - 1].get("output", 0) if stage["first"] else 0
            sent = segments[stage["end"] - 1].get("output", 0) if stage["end"] < len(segments) else 0
            more = received if stage["slots"] < answer["microbatches"] else 0
            total += sum(segments[k].get("fixed", 0) for k in own) + more + received + 2 * sent
            total += stage["slots"] * (sum(way.get("held", 0) for way in ways) + received)
            total += stage["late_slots"] * sum(segments[k].get("late", 0) for k in own)
            most = max([most, *(way.get("work", 0) for way in ways)])
        if total + most != worker["bytes"] or worker["peak"] > worker["bytes"] or \
                (worker["budget"] is not None and worker["bytes"] > worker["budget"]):
            return f"a worker with {worker['bytes']} bytes, peak {worker['peak']}, budget {worker['budget']}; expected {total + most}"
    return None


def random_chain(rng):
    schedule = rng.choice(["gpipe", "1f1b", "zb-h1", "zbv", "interleaved"])
    chunks = 2 if schedule in ("zbv", "interleaved") else 1
    stages = rng.randint(1, 3 if chunks == 2 else 5)
    segments = []
    for _ in range(stages * chunks + rng.randint(0, 12 // chunks)):
        held = rng.randint(1, 40)
        segments.append({"forward": rng.randint(1, 9), "input": rng.randint(1, 9), "weight": rng.randint(0, 9),
                         "fixed": rng.randint(0, 99), "late": rng.randint(0, 3), "output": rng.randint(0, 9),
                         "ways": [{"held": held}, {"seconds": rng.randint(1, 9), "held": held // 4, "work": held}]})
    return {"schedule": schedule, "chunks": chunks, "stages": stages, "microbatches": rng.randint(1, 12), "segments": segments,
            "latency": rng.choice([0, 0.5]), "bandwidth": rng.choice([1e9, 10])}


def main():
    page = (ROOT / "compiler/solve/README.md").read_text()
    example = re.search(r"## cinch solve stages.*?```json\n(.*?)```", page, re.S).group(1)
    code, out, error = solve(example)
    answer = json.loads(out)
    expect(code == 0 and answer["status"] == "optimal", "the page's example: " + error)
    wrong = fault(json.loads(example), answer)
    expect(wrong is None, f"the page's example: {wrong}")
    code, out, error = solve(example, "--table")
    expect(code == 0 and out.startswith("worker 0  0F0 0F1") and "proved: no split ends sooner" in out.splitlines()[-1], "--table: " + out + error)
    code, out, error = solve(example, "--table", "--work-limit", "0")
    expect(code == 0 and "not proved: no split ends before" in out.splitlines()[-1], "--table without work: " + out + error)

    for flags, seconds in [(["--stages", "4", "--microbatches", "8"], 33),
                           (["--schedule", "zb-h1", "--stages", "4", "--microbatches", "8"], 27),
                           (["--schedule", "zbv", "--stages", "4", "--microbatches", "8"], 25.5),
                           (["--schedule", "interleaved", "--chunks", "4", "--stages", "8", "--microbatches", "16"], 53.25)]:
        done = subprocess.run([CINCH, "solve", "stages", "--table", *flags], capture_output=True, text=True)
        rows = len(re.findall(r"^worker \d+ +\S+ ", done.stdout.split("\n\n")[0], re.M))
        expect(done.returncode == 0 and f"makespan {seconds:g} s" in done.stdout and rows == int(flags[flags.index("--stages") + 1]),
               f"a table alone, {flags}: {done.stdout} {done.stderr}")

    rng = random.Random(1)
    for number in range(60):
        problem = random_chain(rng)
        code, out, error = solve(problem)
        free = json.loads(out)
        wrong = fault(problem, free) if code == 0 else f"exit {code} {error}"
        expect(wrong is None, f"chain {number} without a budget: {wrong}")
        least = free["least_budget"]
        code, out, error = solve(problem, "--budget", str(least))
        tight = json.loads(out)
        wrong = fault(problem, tight) if code == 0 else f"exit {code} {error}"
        expect(wrong is None and tight["makespan"] >= free["bound"] - 1e-9, f"chain {number} at its smallest budget: {wrong}")
        if least > 0 and free["least_budget_proved"]:
            code, out, error = solve(problem, "--budget", str(least - 1))
            expect(code == 1 and json.loads(out)["status"] == "infeasible" and f" {least} bytes" in error,
                   f"chain {number} below its smallest budget: exit {code} {error}")

    chain = {"schedule": "1f1b", "microbatches": 4, "budget": 250, "segments": [{"forward": 1, "fixed": 100}] * 6}
    code, out, error = solve(chain, "--stages", "2")
    expect(code == 1 and " 300 bytes a worker" in error and "--stages 3 fits" in error, f"the number of stages that fits: {error}")
    code, out, error = solve(chain, "--stages", "3")
    expect(code == 0, f"and does: {error}")

    segment = {"forward": 1}
    for file, flags, why in [({"segments": [segment], "stagse": 1}, [], "unknown key `stagse`"),
                             ({"segments": [{"forward": 1, "ways": [{"hold": 1}]}]}, [], "segment 0, way 0: unknown key `hold`"),
                             ({"segments": [{}]}, [], "segment 0: expected `forward`"),
                             ({"segments": [{"forward": "1"}]}, [], "expected a number for `forward`"),
                             ({"segments": [{"forward": 1, "fixed": 0.5}]}, [], "expected an integer for `fixed`"),
                             ({"segments": [segment], "schedule": "1b1f"}, [], "expected one of naive, gpipe"),
                             ({"segments": [segment]}, ["--stages", "2"], "never empty"),
                             ({"segments": [{"forward": 1e101}]}, [], "seconds must be at most 1e100"),
                             ({"segments": [segment], "bandwidth": 1e-300}, [], "a bandwidth of at least 1e-100"),
                             ({"segments": [{"forward": 1, "ways": [{"held": 1 << 50}]}], "microbatches": 1 << 14}, ["--schedule", "gpipe"], "more than 2^60 bytes together"),
                             ({"segments": [segment] * 2, "values": [{"source": 0, "targets": [1], "bytes": 1 << 50}], "microbatches": 1 << 14}, [], "more than 2^60 bytes together"),
                             ({"segments": [{"forward": 1, "fixed": 1 << 50}] * 1024, "shared": [{"bytes": 1 << 50, "segments": [0]}]}, [], "more than 2^60 bytes together"),
                             ({"segments": [segment]}, ["--stages", "0"], "is no value for `--stages`"),
                             ({"segments": [segment]}, ["--budget", "1GiB"], "is no value for `--budget`"),
                             ({"segments": [segment] * 2}, ["--schedule", "2bw", "--stages", "2"], "as many micro-batches"),
                             ({"segments": [segment] * 2}, ["--schedule", "zbv"], "two chunks"),
                             ({"segments": [segment], "budget": [1, 2]}, [], "a budget for each of 1 workers, got 2"),
                             ("{", [], "error"), ("[]", [], "expected an object"), ({}, [], "expected `segments`")]:
        code, out, error = solve(file, *flags)
        expect(code == 2 and why in error and not out, f"{file} {flags}: exit {code}, expected `{why}`, got {error}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
