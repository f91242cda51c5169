#!/usr/bin/python3
"""`cinch solve cluster` and `cinch plan --cluster`: the examples of compiler/solve/README.md; published runs within 10 % at their
layouts, with the constants of bench/models/narayanan2021/a100.json; the free choice is no slower, for thousands of devices in seconds; refusals.
"""
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CINCH = ROOT / "build/bin/cinch"
INPUTS = ROOT / "bench/models/narayanan2021"
passed = failed = 0


def expect(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED: " + what)


def run(model, cluster, *flags, command=("solve", "cluster")):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, content in (("model.json", model), ("cluster.json", cluster)):
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
        done = subprocess.run([CINCH, *command, folder / "model.json", "--cluster", folder / "cluster.json", *flags], capture_output=True,
                              text=True)
    return done.returncode, done.stdout, done.stderr


def cluster_of(nodes):
    cluster = json.loads((INPUTS / "a100.json").read_text())
    cluster["groups"][0]["nodes"] = nodes
    return cluster


def programs():
    """The sizes are read from a GPT's program: the answer for the same sizes in JSON."""
    gpt, cluster = ROOT / "examples/gpt/gpt.cinch", json.loads((INPUTS / "a100.json").read_text())
    cluster["groups"][0]["flops"]["f32"] = 19.5e12
    sizes = {"layers": 6, "hidden": 256, "heads": 4, "sequence": 256, "vocabulary": 256, "batch": 32}
    cases = [([], {}, "f32"), (["-D", "B=512"], {"batch": 512}, "f32"), ([], {}, "bf16")]
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "cluster.json"
        for flags, other, precision in cases:
            if precision == "bf16":
                del cluster["groups"][0]["flops"]["f32"]
            path.write_text(json.dumps(cluster))
            done = subprocess.run([CINCH, "plan", gpt, "--cluster", path, "--json", *flags], capture_output=True, text=True)
            code, out, error = run(sizes | other | {"precision": precision}, cluster)
            drop = lambda text: re.sub(r'"search_seconds":[0-9.]+,', "", text)
            expect(done.returncode == 0 and code == 0 and drop(done.stdout) == drop(out), f"gpt.cinch {flags} {precision}: {done.stdout[:300]} "
                   f"{done.stderr}, expected {out[:300]} {error}")
            expect(("planned with bf16" in done.stderr) == (precision == "bf16"), f"gpt.cinch {flags} {precision}: {done.stderr}")
        done = subprocess.run([CINCH, "plan", ROOT / "examples/lstm/lstm.cinch", "--cluster", path], capture_output=True, text=True)
        expect(done.returncode == 1 and "is none: it has no `attend`" in done.stderr, f"an LSTM: {done.returncode} {done.stderr}")
        done = subprocess.run([CINCH, "plan", gpt, "--cluster", path, "--stages", "2"], capture_output=True, text=True)
        expect(done.returncode == 2 and "--stages does not go with --cluster" in done.stderr, f"--stages: {done.returncode} {done.stderr}")


def published():
    """Every row at its own layout: TFLOP/s a device as published, within 10 %; the free choice is no slower."""
    table = list(csv.DictReader(line for line in (INPUTS / "table1.csv").read_text().splitlines() if not line.startswith("#")))
    expect(len(table) == 10, f"{len(table)} rows in the table")
    for row in table:
        model = {key: int(row[key]) for key in ("layers", "hidden", "heads", "batch")} | {"sequence": 2048, "vocabulary": 51200}
        stages, shards, devices = int(row["stages"]), int(row["shards"]), int(row["devices"])
        cluster, who = cluster_of(devices // 8), row["parameters_1e9"] + "B"
        code, out, error = run(model, cluster, "--grid", f"{stages}x{shards}x{devices // stages // shards}", "--microbatch",
                               row["microbatch"], "--schedule", "interleaved" if row["chunks"] != "1" else "1f1b", "--chunks",
                               row["chunks"], "--recompute", "full")
        expect(code == 0, f"{who}: exit {code} {error}")
        answer = json.loads(out)
        own = answer["best"]
        expect(abs(own["teraflops"] / int(row["teraflops"]) - 1) < 0.1,
               f"{who}: {own['teraflops']:.1f} TFLOP/s, published {row['teraflops']}")
        # The formula, computed here: floating-point operations of a step with one recomputation.
        l, h, B, s, V = model["layers"], model["hidden"], model["batch"], 2048, 51200
        flops = 96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h))
        expect(abs(own["teraflops"] * 1e12 * own["seconds"] * devices / flops - 1) < 1e-6, f"{who}: seconds and TFLOP/s disagree")
        expect(own["bytes"] <= 80e9, f"{who}: {own['bytes']} bytes a device")
        begin = time.monotonic()
        code, out, error = run(model, cluster)
        took = time.monotonic() - begin
        free = json.loads(out)
        best = free["best"]
        expect(code == 0 and best["seconds"] <= own["seconds"] and best["bytes"] <= 80e9, f"{who}: the free choice {best}")
        expect(best["stages"] * best["shards"] * best["replicas"] == devices, f"{who}: grid of the free choice {best}")
        expect(all(a["seconds"] >= best["seconds"] for a in free["alternatives"]) and free["alternatives"], f"{who}: alternatives")
        expect(took < 60, f"{who}: {took:.0f} s for {devices} devices")
        # The chosen layout, asked for alone, costs what the search said.
        code, out, error = run(model, cluster, "--grid", f"{best['stages']}x{best['shards']}x{best['replicas']}", "--microbatch",
                               str(best["microbatch"]), "--schedule", best["schedule"], "--chunks", str(best["chunks"]), "--recompute",
                               best["recompute"])
        expect(code == 0 and json.loads(out)["best"] == best, f"{who}: the choice again: {out} {error}")


def main():
    page = (ROOT / "compiler/solve/README.md").read_text().split("## cinch solve cluster")[1]
    model, cluster = re.findall(r"```json\n(.*?)```", page, re.S)
    code, out, error = run(model, cluster)
    expect(code == 0 and json.loads(out)["status"] == "optimal", f"the page's example: exit {code} {error}")
    code, out, error = run(model, cluster, command=("plan",))
    expect(code == 0 and re.search(r"^\d+ x \d+ x \d+ ", out, re.M) and "none of the others can be faster" in out, f"plan: {out} {error}")
    programs()
    published()

    small, machines = json.loads(model), json.loads(cluster)
    code, out, error = run(small, machines | {"groups": [machines["groups"][0] | {"memory": "1GB"}]})
    expect(code == 1 and json.loads(out)["status"] == "infeasible" and "GiB a device" in error, f"no memory: exit {code} {error}")
    tiny = {"layers": 1, "hidden": 8, "heads": 4, "sequence": 8, "vocabulary": 8, "batch": 512}
    code, out, error = run(tiny, machines | {"groups": [machines["groups"][0] | {"memory": 10}]})
    expect(code == 1 and re.search(r"needs [1-9][0-9.]* (bytes|KiB) a device", error), f"ten bytes of memory: exit {code} {error}")
    for changed, other, flags, why in [(small | {"state_bytes": -1}, machines, [], "state_bytes is at least 0"),
                                       (small | {"gradient_bytes": 0}, machines, [], "gradient_bytes is at least 1"),
                                       (small, machines | {"groups": [machines["groups"][0] | {"bandwidth": 1e-308}]}, [], "from 1e-100"),
                                       (small, machines | {"network": {"bandwidth": 1e-308, "latency": 0}}, [], "from 1e-100"),
                                       (small | {"layer": 1}, machines, [], "unknown key `layer`"),
                                       ({}, machines, [], "expected `layers`"),
                                       (small | {"heads": 63}, machines, [], "heads must divide hidden"),
                                       (small | {"precision": "f32"}, machines, [], "no flops for precision f32"),
                                       (small, {"groups": []}, [], "expected `network`"),
                                       (small, machines | {"groups": [machines["groups"][0] | {"memory": "80 apples"}]}, [], "80GB"),
                                       (small, machines | {"groups": [machines["groups"][0] | {"efficiency": 2}]}, [], "efficiency"),
                                       (small, machines, ["--grid", "2x8"], "no value for `--grid`"),
                                       (small, machines, ["--grid", "3x8x32"], "no layout"),
                                       (small, machines, ["--schedule", "2bw"], "no value for `--schedule`"),
                                       (small, machines, ["--microbatch", "0"], "no value for `--microbatch`"),
                                       (small, machines, ["--recompute", "some"], "no value for `--recompute`")]:
        code, out, error = run(changed, other, *flags)
        expect(code == 2 and why in error and not out, f"{flags}: exit {code}, expected `{why}`, got {error}")
    for flags, why in [(["--memory-budget", "1GiB"], "does not go with --cluster")]:
        code, out, error = run(small, machines, *flags, command=("plan",))
        expect(code == 2 and why in error, f"plan {flags}: exit {code} {error}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
