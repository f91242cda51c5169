#!/usr/bin/python3
"""`cinch calibrate` and `--profile`: a profile is measured and used; what it says decides predicted times and never a number of the
training; a file that is no profile is refused by name.
"""

import json
import os
import signal
import subprocess
import time

import programs

verdicts = programs.Verdicts()
MODEL = programs.HERE / "gpt.cinch"
KEYS = ["product_flops", "attend_flops", "attend_grad_flops", "loop_flops", "bytes_per_second", "launch_seconds", "message_seconds"]


def cinch(*words, config=None):
    env = {key: value for key, value in os.environ.items() if key not in ("XDG_CONFIG_HOME", "HOME")}
    if config:
        env["XDG_CONFIG_HOME"] = str(config)
    return subprocess.run([programs.CINCH, *map(str, words)], env=env, capture_output=True, text=True, timeout=600)


def planned(*flags, config=None):
    done = cinch("plan", MODEL, "--json", "--no-plan-cache", *flags, config=config)
    verdicts.expect(done.returncode == 0, f"plan {flags}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


# A measurement: into the place where it is picked up from.
config = programs.FOLDER / "config"
stored = config / "cinch" / "profile.json"
done = cinch("calibrate", config=config)
verdicts.expect(done.returncode == 0, f"calibrate: exit {done.returncode}: {done.stderr}")
profile = json.loads(stored.read_text()) if stored.exists() else {"measured": [], "cpu": ""}
verdicts.expect(profile.get("kind") == "cinch cost profile", "the stored profile says what it is")
threads = [entry["threads"] for entry in profile["measured"]]
verdicts.expect(threads and threads[0] == 1 and threads == sorted(set(threads)) and threads[-1] == profile["processors"],
                f"threads measured: {threads}")
for entry in profile["measured"]:
    for key in KEYS:
        verdicts.expect(entry[key] > 0, f"{key} of {entry['threads']} threads: {entry[key]}")
    # Orders of magnitude that every machine keeps, however busy it is.
    verdicts.expect(1e8 < entry["product_flops"] < 1e14 and 1e8 < entry["bytes_per_second"] < 1e13
                    and 1e-8 < entry["launch_seconds"] < 1e-2, f"rates out of this world: {entry}")
verdicts.expect("GFLOP/s" in done.stdout and "GB/s" in done.stdout, "the table of rates: " + done.stdout)
verdicts.expect(os.listdir(stored.parent) == [stored.name], "a temporary profile stays behind")

# What stands in the way is found before anything is measured, and a signal leaves nothing behind.
blocked = programs.FOLDER / "blocked"
(blocked / "cinch" / "profile.json").mkdir(parents=True)
begin = time.monotonic()
done = cinch("calibrate", config=blocked)
verdicts.expect(done.returncode == 5 and "Is a directory" in done.stderr and time.monotonic() - begin < 2, f"a folder in the place of the profile: {done.returncode} {done.stderr}")
done = subprocess.run([programs.CINCH, "calibrate", "-o", programs.FOLDER / "p.json"], env=dict(os.environ, TMPDIR="/nonexistent"), capture_output=True, text=True)
verdicts.expect(done.returncode == 5 and "/nonexistent" in done.stderr, f"no place for temporary files: {done.returncode} {done.stderr}")
def answer_signals():  # whatever started this test ignores
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    place = programs.FOLDER / f"signal-{number}"
    place.mkdir()
    process = subprocess.Popen([programs.CINCH, "calibrate", "-o", place / "p.json"], env=dict(os.environ, TMPDIR=str(place)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=answer_signals)
    until = time.monotonic() + 60
    while not list(place.glob("cinch-calibrate*/run*")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(number)
    code = process.wait(timeout=120)
    verdicts.expect(code == -number and not os.listdir(place), f"signal {number}: {code}, {os.listdir(place)} stay behind")
for cpu in (None, 0, []):
    wrong = programs.FOLDER / "wrong.json"
    wrong.write_text(json.dumps(dict(profile, cpu=cpu)))
    done = cinch("plan", MODEL, "--profile", wrong)
    verdicts.expect(done.returncode == 2 and '"cpu"' in done.stderr, f"a profile of the processor {cpu}: {done.stderr}")

# Made-up rates: predicted times follow the formula. Memory is as quick as the caches are taken to be, so that it does not matter what lies in them.
made = {"kind": "cinch cost profile", "version": 1, "cpu": profile["cpu"], "processors": 2, "measured": [
    {"threads": 1, **dict.fromkeys(KEYS[:4], 5e10), "bytes_per_second": 1.5e11, "launch_seconds": 1e-5},
    {"threads": 2, "product_flops": 1e11, "attend_flops": 1.5e11, "attend_grad_flops": 2e11, "loop_flops": 2.5e11, "bytes_per_second": 3e11,
     "launch_seconds": 1.2e-5}]}
path = programs.FOLDER / "made.json"
path.write_text(json.dumps(made))
RATES = {"product": "product_flops", "attention": "attend_flops", "attention_grad": "attend_grad_flops", "loop": "loop_flops"}
for flags, rates in [(["--max-threads", "8"], made["measured"][1]), (["--max-threads", "1"], made["measured"][0])]:
    plan = planned("--profile", path, *flags)
    wrong = uneven = alone = 0
    for kernel in plan["kernels"]:
        if kernel["work"] == "nothing":
            wrong += kernel["seconds"] != 0
            continue
        # What sums in f64 (the norm of the gradients) does so at half the rate. `busy`: two threads that share an odd number of pieces have one piece in the
        # last round, so that fewer than two of them are busy on average. What is done sooner by one of them alone, one does.
        one = made["measured"][0]
        def price(half, busy, launch=rates["launch_seconds"]):
            memory = min(rates["bytes_per_second"], busy * one["bytes_per_second"]) if busy < rates["threads"] else rates["bytes_per_second"]
            part = lambda i, n: max(kernel["flops"][i] * n * half / (rates[RATES[kernel["work"]]] * busy / rates["threads"]), kernel["traffic"][i] * n / memory)
            return part(0, 1) + part(1, plan["microbatch"]) + launch
        halves = (1, 2) if kernel["work"] == "loop" and kernel["section"] == "behind" else (1,)
        whole = any(close(kernel["seconds"], price(half, rates["threads"])) for half in halves)
        few = rates["threads"] > 1 and kernel["work"] != "product" and any(
            close(kernel["seconds"], price(half, pieces / ((pieces + 1) // 2))) for half in halves for pieces in range(1, 400, 2))
        single = rates["threads"] > 1 and any(close(kernel["seconds"], price(half, 1, one["launch_seconds"])) and
                                              kernel["seconds"] < (1 + 1e-6) * price(half, rates["threads"]) for half in halves)
        alone += single
        uneven += few and not whole and not single
        wrong += not whole and not few and not single
    verdicts.expect(wrong == 0, f"{flags}: {wrong} kernels are not priced by the profile")
    verdicts.expect((alone > 0) == (rates["threads"] > 1) and uneven < len(plan["kernels"]) / 2,
                    f"{flags}: {uneven} kernels have few pieces, {alone} are one thread's")
    verdicts.expect(profile["cpu"] in plan["costs"] and "measured" in plan["costs"], f"the plan does not name its costs: {plan['costs']}")

# With slow memory, what finds room in the caches is cheaper than what does not, and nothing is dearer than the formula says.
slow = dict(made["measured"][1], bytes_per_second=1e9)
path.write_text(json.dumps(dict(made, measured=[slow])))
plan, cheaper = planned("--profile", path, "--max-threads", "2"), 0
for kernel in plan["kernels"]:
    seconds = lambda i, n, half: max(kernel["flops"][i] * n * half / slow[RATES[kernel["work"]]], kernel["traffic"][i] * n / 1e9)
    if kernel["work"] != "nothing":
        most = seconds(0, 1, 2) + seconds(1, plan["microbatch"], 2) + slow["launch_seconds"]
        verdicts.expect(kernel["seconds"] <= most * (1 + 1e-6), f"{kernel['name']} is dearer than from memory")
        cheaper += kernel["section"] != "behind" and kernel["seconds"] < 0.9 * most
verdicts.expect(cheaper > 0, "no kernel's traffic is the caches'")

path.write_text(json.dumps(made))

# A chain over the positions of an example is one thread's: two of them take as long as one.
chains = programs.source("chains", """dim B = 4 batch, T = 4096, D = 16
data train = npy("x.npy") -> (x: f32[B, T, D])
model net(x: f32[B, T, D]) -> f32[B, D] {
  param w: f32[D] ~ ones
  return mean[T] tanh(x * w)
}
train net on train seed 1 {
  loss = mean[B, D] net(x) ^ 2
  optimizer sgd(lr = 0.1)
  steps 1
}
""")
took = []
for examples in (1, 2, 4):
    done = cinch("plan", chains, "--json", "--no-plan-cache", "--max-threads", "2", "--microbatch", examples, "--profile", "none")
    took.append(json.loads(done.stdout)["kernels"][0]["seconds"])
verdicts.expect(0.9 < took[0] / took[1] < 1.1 and 1.8 < took[2] / took[1] < 2.2, f"sums of one, two and four examples by two threads: {took}")

# Which costs are used, and that it is said.
default = planned()
verdicts.expect(default["costs"] == "built-in costs", "without a profile: " + default["costs"])
verdicts.expect(planned("--profile", "none", config=config)["seconds"] == default["seconds"], "--profile none: other costs")
verdicts.expect("measured" in planned(config=config)["costs"], "a stored profile is not picked up")
verdicts.expect(planned("--cpu", "haswell", config=config)["costs"] == ("built-in costs" if profile["cpu"] != "haswell" else planned(config=config)["costs"]),
                "a stored profile of another CPU is used")
text = cinch("plan", MODEL, "--profile", path).stdout
verdicts.expect("costs measured on" in text and "2 threads" in text, "the table does not say where its costs come from: " + text[:600])

# What a message takes beside its bytes: optional, and in the price of several workers; not in that of one.
stages = []
for seconds in (None, 1e-6, 1e-2):
    path.write_text(json.dumps({**made, "measured": [{**made["measured"][0], **({"message_seconds": seconds} if seconds else {})}]}))
    alone, several = planned("--profile", path), planned("--profile", path, "--stages", "2", "--microbatch", "1")
    stages.append((alone["seconds"], several["seconds"]))
verdicts.expect(stages[0][0] == stages[1][0] == stages[2][0], f"the price of a message counts for one worker: {stages}")
verdicts.expect(stages[1][1] < stages[0][1] < stages[2][1] - 0.02, f"the price of a message does not count for two workers: {stages}")

# It never changes a bit.
data = programs.FOLDER / "data"
data.mkdir()
for name in ("train.txt", "valid.txt"):
    (data / name).write_bytes(programs.byte_text(40000))
results = [programs.run(programs.compiled(MODEL, f"exe{i}", *flags), data, 4).bytes
           for i, flags in enumerate([["--profile", "none"], ["--profile", str(path)]])]
verdicts.expect(results[0] == results[1], "a profile changes the parameters")

# Tiles: an entry serves the product that it names, and no other; the code is another one, and no bit of the training changes.
rows = programs.source("rows", """dim B = 64 batch, F = 96, G = 200
data train = npy("x.npy", "y.npy") -> (x: f32[B, F], y: f32[B, G])

model net(x: f32[B, F]) -> f32[B, G] {
  use fc = linear[G]
  return fc(x)
}
train net on train seed 3 {
  loss       = mean[B, G] (net(x) - y) ^ 2
  optimizer  sgd(lr = 0.1)
  steps      4
}
""")
random = programs.np.random.default_rng(5)
numbers = programs.arrays("numbers", x=random.normal(size=(256, 96)), y=random.normal(size=(256, 200)))
TILE = {"rows": 3, "vectors": 1, "steps": 64, "near_bytes": 1000, "far_bytes": 7000}
PRODUCT = "8 m 64 n 200 k 96 A f32 96,1 B f32 1,96 C f32 200,1"
code, results = {}, {}
for name, tiles in {"untiled": [], "another": [{"product": PRODUCT.replace("k 96", "k 97"), **TILE}], "tile": [{"product": PRODUCT, **TILE}]}.items():
    path = programs.FOLDER / f"{name}.json"
    path.write_text(json.dumps({**made, "tiles": tiles}))
    flags = ["--cpu", "haswell", "--microbatch", "64", "--profile", str(path)]
    done = cinch(rows, *flags, "--emit", "asm", "-o", programs.FOLDER / f"{name}.s")
    verdicts.expect(done.returncode == 0, f"tiles, {name}: {done.stderr}")
    code[name] = (programs.FOLDER / f"{name}.s").read_text()
    results[name] = programs.run(programs.compiled(rows, f"rows-{name}", *flags), numbers, 4).bytes
verdicts.expect(code["untiled"] == code["another"], "an entry for a product that the program lacks changes its code")
verdicts.expect(code["untiled"] != code["tile"], "an entry for a product of the program changes nothing")
verdicts.expect(results["untiled"] == results["tile"], "a tile changes the parameters")

# --tune: into a profile that exists; what is kept are tiles that the compiler takes.
profile_to_tune = programs.FOLDER / "tuned.json"
profile_to_tune.write_text(json.dumps({**made, "cpu": profile["cpu"], "tiles": [{"product": "of another program", **TILE}]}))
done = cinch("calibrate", "--tune", rows, "--time-limit", "4", "--microbatch", "64", "-o", profile_to_tune)
tuned = json.loads(profile_to_tune.read_text())
verdicts.expect(done.returncode == 0 and "products of the program" in done.stdout and "64 by 200, sums of 96" in done.stdout,
                f"calibrate --tune: exit {done.returncode}: {done.stdout}{done.stderr}")
kept = [{key: entry[key] for key in old} for entry, old in zip(tuned["measured"], made["measured"])]
verdicts.expect(kept == made["measured"], "--tune changes the rates")
verdicts.expect("of another program" in [tile["product"] for tile in tuned["tiles"]], "--tune forgets the tiles of other programs")
result = programs.run(programs.compiled(rows, "rows-tuned", "--microbatch", "64", "--profile", str(profile_to_tune)), numbers, 4).bytes
verdicts.expect(result == results["untiled"], "tuned tiles change the parameters")
for words, said in {("--tune", "nowhere.cinch"): "nowhere.cinch", ("--tune", rows, "--time-limit", "0"): "--time-limit",
                    ("--memory-budget", "1GiB"): "--tune"}.items():
    done = cinch("calibrate", *words, "-o", profile_to_tune)
    verdicts.expect(done.returncode == 2 and said in done.stderr, f"calibrate {words}: exit {done.returncode}: {done.stderr}")
done = cinch("calibrate", "--tune", rows, "--memory-budget", "1KiB", "-o", profile_to_tune)
verdicts.expect(done.returncode == 1 and "smallest budget that compiles" in done.stderr, f"--tune of what is refused: {done.returncode}: {done.stderr}")

# A file in the current folder; a link to a profile stays one.
(programs.FOLDER / "behind.json").write_text(profile_to_tune.read_text())
(programs.FOLDER / "bare.json").symlink_to("behind.json")
done = subprocess.run([programs.CINCH, "calibrate", "--tune", rows, "--time-limit", "1", "--microbatch", "64", "-o", "bare.json"], cwd=programs.FOLDER,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
verdicts.expect(done.returncode == 0, f"calibrate -o bare.json: exit {done.returncode}: {done.stdout}")
verdicts.expect((programs.FOLDER / "bare.json").is_symlink() and not list(programs.FOLDER.glob("*.new-*")), "a link to a profile is replaced by a file")

# What is no profile.
wrong = {
    "empty": "", "garbage": "\0\1\2", "another JSON": "{}", "a list": "[1, 2]", "another version": json.dumps({**made, "version": 2}),
    "nothing measured": json.dumps({**made, "measured": []}),
    "a rate of zero": json.dumps({**made, "measured": [{**made["measured"][0], "loop_flops": 0}]}),
    "a rate missing": json.dumps({**made, "measured": [{"threads": 1}]}),
    "messages that take no time": json.dumps({**made, "measured": [{**made["measured"][0], "message_seconds": 0}]}),
    "a rate of no machine": json.dumps({**made, "measured": [{**made["measured"][0], "loop_flops": 1e-290}]}),
    "a start that takes for ever": json.dumps({**made, "measured": [{**made["measured"][0], "launch_seconds": 1e300}]}),
    "brackets alone": "[" * 300000,
    "a rate in words": json.dumps({**made, "measured": [{**made["measured"][0], "loop_flops": "fast"}]}),
    "threads not rising": json.dumps({**made, "measured": made["measured"][::-1]}),
    "cut off": json.dumps(made)[:100],
    "a tile that no registers hold": json.dumps({**made, "tiles": [{"product": PRODUCT, **TILE, "rows": 20, "vectors": 20}]}),
    "a tile without a product": json.dumps({**made, "tiles": [TILE]}),
    "a tile in words": json.dumps({**made, "tiles": [{"product": PRODUCT, **TILE, "steps": "many"}]}),
    "a tile of a product without a name": json.dumps({**made, "tiles": [{"product": "", **TILE}]}),
    "two tiles of one product": json.dumps({**made, "tiles": [{"product": PRODUCT, **TILE}, {"product": PRODUCT, **TILE}]}),
    "tiles that are no list": json.dumps({**made, "tiles": 5}),
    "fewer processors than none": json.dumps({**made, "processors": -1}),
    "blocks of one step": json.dumps({**made, "tiles": [{"product": PRODUCT, **TILE, "steps": 1}]}),
}
bad = programs.FOLDER / "bad.json"
for name, text in wrong.items():
    bad.write_text(text)
    done = cinch("plan", MODEL, "--profile", bad)
    verdicts.expect(done.returncode == 2 and str(bad) in done.stderr and "cannot be used" in done.stderr and "help:" in done.stderr,
                    f"{name}: exit {done.returncode}: {done.stderr}")
stored.write_text("{}")
done = cinch("plan", MODEL, config=config)
verdicts.expect(done.returncode == 2 and str(stored) in done.stderr, f"a spoilt stored profile: exit {done.returncode}: {done.stderr}")
done = cinch("plan", MODEL, "--profile", programs.FOLDER / "none.json")
verdicts.expect(done.returncode == 2 and "none.json" in done.stderr, f"a missing profile: exit {done.returncode}: {done.stderr}")
# A file that is no profile is not replaced by one, and nothing is measured before that is said.
for name in ("empty", "garbage", "another JSON", "a list", "cut off"):
    bad.write_text(wrong[name])
    done = cinch("calibrate", "-o", bad)
    verdicts.expect(done.returncode == 2 and str(bad) in done.stderr and "no profile" in done.stderr and bad.read_text() == wrong[name],
                    f"calibrate over {name}: exit {done.returncode}: {done.stdout}{done.stderr}")
done = cinch("calibrate", "-o", programs.FOLDER / "made.json" / "below")
verdicts.expect(done.returncode == 5 and "cannot write" in done.stderr, f"a profile that cannot be written: exit {done.returncode}: {done.stderr}")
done = cinch("calibrate")
verdicts.expect(done.returncode == 5 and "-o" in done.stderr, f"calibrate without a home: exit {done.returncode}: {done.stderr}")

verdicts.finish()
