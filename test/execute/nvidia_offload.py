#!/usr/bin/python3
"""Programs for a GPU whose optimizer state, or values between forward and backward, lie in pinned memory of the host (--host-memory-budget),
executed on the CPU (standin.py): the bits are those of the CPU's program whatever is moved, by one worker or several, with graphs and without, with
copies made as late and as early as their waits allow, after kills, behind a closed gate; waits that are forgotten are found out; and every refusal.

usage: nvidia_offload.py [NAME...]     NAME chooses by a part of the function's name
"""
import json
import re
import signal
import sys

import numpy as np

import nvidia_runtime as runtime
import programs
import standin

verdicts = runtime.verdicts

# States of several sizes, two of an update and one; a parameter that nobody updates; running statistics, which the loop reads.
NET = """dim B = 12 batch, I = 37, H = 45, G = 200, C = 5

data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)

model net(x: f32[B, I]) -> f32[B, C] {
  use fc1 = linear[H], norm = batch_norm(group = 3), fc2 = linear[G], fc3 = linear[H], fc4 = linear[C]
  return fc4(dropout(gelu(fc3(gelu(fc2(norm(fc1(x)))))), 0.25))
}

train net on train seed 42 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer OPTIMIZER
  schedule cosine(warmup = 3, end = 0.1)
  clip norm(1)
  steps 12
  RULES
}
"""
ADAMW, MOMENTUM = "adamw(lr = 0.01, decay = 0.1)", "sgd(lr = 0.01, momentum = 0.9)"


def net(name, optimizer=ADAMW, rules=""):
    return programs.source(name, NET.replace("OPTIMIZER", optimizer).replace("RULES", rules))


def plan(source, *flags):
    return json.loads(programs.call([programs.CINCH, "plan", source, "--json", "--target", "nvidia", *flags]).stdout)


def smallest(source, *flags):
    said = programs.call([programs.CINCH, "plan", source, "--target", "nvidia", "--memory-budget", "64", *flags], allowed=(1,)).stdout
    return int(re.search(r"smallest budget that compiles: (\d+) bytes", said).group(1))


def budgets(source, *flags):
    """Of the device: what is smallest with all state on the host, half of the way to the smallest without, and that less 64 bytes."""
    without, least = smallest(source, *flags), smallest(source, "--host-memory-budget", "1GiB", *flags)
    verdicts.expect(least < 0.8 * without, "state on the host lowers the smallest budget from %d to %d" % (without, least))
    return [least, (least + without) // 2 // 64 * 64, without - 64]


# ---- Bits ------------------------------------------------------------------------------------------------------------


def plans():
    """The CPU's bits, whatever lies on the host."""
    data = runtime.arrays("plans-data")
    for number, optimizer in enumerate((ADAMW, MOMENTUM)):
        source = net("plans%d" % number, optimizer)
        wanted = runtime.final(runtime.trained_on_cpu(source, data, "plans%d" % number))
        moved = set()
        for place, budget in enumerate(budgets(source)):
            flags = ["--memory-budget", budget, "--host-memory-budget", "1GiB"]
            host = plan(source, *flags)["host"]
            moved.add(host["bytes"])
            program = standin.Program(source, "plans%d-%d" % (number, place), *flags)
            for late, settings in enumerate(({}, {"eager": 1}, {"fail": "cuStreamBeginCapture_v2"}, {"fail": "cuStreamBeginCapture_v2", "eager": 1})):
                out = programs.FOLDER / ("plans%d-%d-%d-out" % (number, place, late))
                asked, said = runtime.log_of(program, "--data", data, "--out", out, seed=late, **settings)
                verdicts.expect(runtime.final(out) == wanted, "%s in %d bytes, %s: other bits than the CPU's" % (optimizer, budget, settings))
                verdicts.expect(asked.count("pinned") == 1 and asked.count("allocation") == 1, "pinned memory is taken %d times" % asked.count("pinned"))
                verdicts.expect(asked.count("graph") == (0 if "fail" in settings else 11), "%d steps are graphs" % asked.count("graph"))
        verdicts.expect(len(moved) == 3, "the budgets move other state: %s" % moved)


def other_programs():
    """A GPT with evaluations and checkpoints in between, tied weights, dropout; a loop along an axis; a loss whose divisor is counted first."""
    source, folder, flags = runtime.gpt()
    cases = [("gpt", source, folder, flags)]
    for name, text, shape in (("loop", runtime.LSTM, (20, 5, 3)), ("masked", runtime.MASKED, (20, 6))):
        folder = programs.FOLDER / (name + "-data")
        folder.mkdir()
        np.save(folder / "x.npy", np.random.default_rng(len(name)).standard_normal(shape).astype("f4"))
        cases.append((name, programs.source(name, text), folder, []))
    for name, source, folder, flags in cases:
        wanted = runtime.final(runtime.trained_on_cpu(source, folder, name, *flags))
        least = smallest(source, "--host-memory-budget", "1GiB", *flags)
        program = standin.Program(source, name, "--memory-budget", least, "--host-memory-budget", "1GiB", *flags)
        for eager in (0, 1):
            out = programs.FOLDER / ("%s-%d-out" % (name, eager))
            asked, _ = runtime.log_of(program, "--data", folder, "--out", out, "--quiet", eager=eager)
            verdicts.expect(runtime.final(out) == wanted, "%s: other bits than the CPU's" % name)
            verdicts.expect(asked.count("pinned") == 1, "%s: nothing lies in pinned memory" % name)


def double():
    """f64, and a budget of the host that has room for some of the state only."""
    data = runtime.arrays("double-data")
    source = net("double")
    flags = ["--set", "train.precision=f64"]
    wanted = runtime.final(runtime.trained_on_cpu(source, data, "double", *flags))
    all_of_it, some = (smallest(source, "--host-memory-budget", size, *flags) for size in ("1GiB", "200KiB"))
    verdicts.expect(all_of_it < some, "less on the host is no larger on the device")
    program = standin.Program(source, "double", "--memory-budget", some, "--host-memory-budget", "200KiB", *flags)
    out = programs.FOLDER / "double-out"
    program.run("--data", data, "--out", out, "--quiet")
    verdicts.expect(runtime.final(out) == wanted, "f64: other bits than the CPU's")


def stopped():
    """Stopped and killed in the middle, and on with other state on the host, with none, and on a CPU."""
    data = runtime.arrays("stop-data")
    source = programs.source("stop", net("stop", ADAMW, "every 3 checkpoint(\"run\", keep = 2)").read_text().replace("steps 12", "steps 40"))
    wanted = runtime.final(runtime.trained_on_cpu(source, data, "stop"))
    least, half, most = budgets(source)
    programs_of = [standin.Program(source, "stop%d" % i, *flags) for i, flags in
                   enumerate((["--memory-budget", least, "--host-memory-budget", "1GiB"], ["--memory-budget", most, "--host-memory-budget", "1GiB"], []))]
    cpu = programs.compiled(source, "stop-cpu")
    for number, (how, code, first, then) in enumerate(((signal.SIGTERM, 75, 0, 1), (signal.SIGKILL, -9, 1, 0), (signal.SIGTERM, 75, 0, 2),
                                                       (signal.SIGKILL, -9, 2, 0), (signal.SIGTERM, 75, 0, -1))):
        out = programs.FOLDER / ("stop%d-out" % number)
        ended, said = runtime.ended_by(how, programs_of[first], "step 12/", "--data", data, "--out", out, eager=number % 2)
        verdicts.expect(ended == code and not (out / "final.safetensors").exists(), "%s: exit %d, %s" % (how, ended, said[-200:]))
        if then < 0:
            programs.call([cpu, "--data", data, "--out", out, "--resume", "--quiet"])
        else:
            programs_of[then].run("--data", data, "--out", out, "--resume", "--quiet")
        verdicts.expect(runtime.final(out) == wanted, "%s: a resumed run has other parameters (%d, %d)" % (how, first, then))


def closed_gate():
    """A number that no step survives: what is said, and what the checkpoints have, state included, is as with all state on the device."""
    folder = runtime.arrays("bad-data", spoiled=40)
    source = programs.source("bad", net("bad", ADAMW, "every 1 checkpoint(\"run\", keep = 9)").read_text().replace("fc1(x)", "fc1(x * (1 - 1e-30 * x))"))
    plain = standin.Program(source, "bad-plain")
    device = standin.Program(source, "bad", "--memory-budget", budgets(source)[0], "--host-memory-budget", "1GiB")
    said, saved = [], []
    for number, run in enumerate((lambda *w: plain.run(*w, allowed=(4,)), lambda *w: device.run(*w, allowed=(4,)),
                                  lambda *w: device.run(*w, allowed=(4,), eager=1), lambda *w: device.run(*w, allowed=(4,), fail="cuStreamBeginCapture_v2"))):
        out = programs.FOLDER / ("bad%d-out" % number)
        text = run("--data", folder, "--out", out, "--quiet").stdout.replace(str(out), "OUT")
        said.append([line for line in text.splitlines() if "note:" not in line])
        saved.append([path.read_bytes() for path in sorted(out.glob("**/*.safetensors"))])
    verdicts.expect(any("bad.cinch:" in line for line in said[0]) and saved[0], "the run ended otherwise: %s" % said[0])
    verdicts.expect(said[1:] == said[:1] * 3, "what is said differs: %s" % said)
    verdicts.expect(saved[1:] == saved[:1] * 3, "checkpoints before the failed step differ")


# ---- Values of the loop ----------------------------------------------------------------------------------------------

# What the forward sweep leaves is most of it, and no state is there.
DEEP = """dim B = 48 batch, I = 37, H = 64, C = 5

data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)

model net(x: f32[B, I]) -> f32[B, C] {
  use fc0 = linear[H], fc1 = linear[H], fc2 = linear[H], fc3 = linear[H], fc4 = linear[H], fc5 = linear[H], fc6 = linear[C]
  a = dropout(gelu(fc1(gelu(fc0(x)))), 0.25)
  b = gelu(fc3(tanh(fc2(a)))) + a
  return fc6(gelu(fc5(gelu(fc4(b)))) + b)
}

train net on train seed 42 {
  loss = mean[B] cross_entropy(net(x), y)
  optimizer OPTIMIZER
  steps 12
  RULES
}
"""
ALL_KEPT = ["--remat", "none"]  # then only what waits on the host makes a plan smaller


def deep(name, optimizer="sgd(lr = 0.01)", rules=""):
    return programs.source(name, DEEP.replace("OPTIMIZER", optimizer).replace("RULES", rules))


def values():
    """Values of the loop that wait on the host: the CPU's bits under several budgets, with one micro-batch and with several."""
    data = runtime.arrays("values-data")
    source = deep("values")
    wanted = runtime.final(runtime.trained_on_cpu(source, data, "values"))
    for number, ways in enumerate((ALL_KEPT + ["--microbatch", "48"], ALL_KEPT + ["--microbatch", "12"])):
        without, least = smallest(source, *ways), smallest(source, "--host-memory-budget", "1GiB", *ways)
        verdicts.expect(least < without, "%s: values on the host lower the smallest budget from %d to %d" % (ways, without, least))
        for place, budget in enumerate((least, (least + without) // 2 // 64 * 64)):
            flags = ["--memory-budget", budget, "--host-memory-budget", "1GiB", *ways]
            host = plan(source, *flags)["host"]
            verdicts.expect(host["bytes"] > host["state"] == 0, "%s in %d bytes: no value lies on the host: %s" % (ways, budget, host))
            program = standin.Program(source, "values%d-%d" % (number, place), *flags)
            for late, settings in enumerate(({}, {"eager": 1}, {"fail": "cuStreamBeginCapture_v2"}, {"fail": "cuStreamBeginCapture_v2", "eager": 1})):
                out = programs.FOLDER / ("values%d-%d-%d-out" % (number, place, late))
                asked, said = runtime.log_of(program, "--data", data, "--out", out, seed=late, **settings)
                verdicts.expect(runtime.final(out) == wanted, "%s in %d bytes, %s: other bits than the CPU's" % (ways, budget, settings))
                verdicts.expect(asked.count("pinned") == 1, "pinned memory is taken %d times" % asked.count("pinned"))


def values_stopped():
    """Stopped and killed in the middle, and on with other values on the host, with none, and on a CPU."""
    data = runtime.arrays("values-stop-data")
    source = programs.source("values-stop", deep("values-stop", ADAMW, "every 3 checkpoint(\"run\", keep = 2)").read_text().replace("steps 12", "steps 40"))
    wanted = runtime.final(runtime.trained_on_cpu(source, data, "values-stop"))
    ways = [*ALL_KEPT, "--microbatch", "24"]
    both = standin.Program(source, "values-stop", "--memory-budget", smallest(source, "--host-memory-budget", "1GiB", *ways), "--host-memory-budget", "1GiB", *ways)
    none, cpu = standin.Program(source, "values-stop-none"), programs.compiled(source, "values-stop-cpu")
    for number, (how, code) in enumerate(((signal.SIGTERM, 75), (signal.SIGKILL, -9))):
        for first, then in ((both, both), (both, none), (none, both), (both, None)):
            out = programs.FOLDER / ("values-stop%d-%d-out" % (number, verdicts.passed))
            ended, said = runtime.ended_by(how, first, "step 12/", "--data", data, "--out", out, eager=number)
            verdicts.expect(ended == code, "%s: exit %d, %s" % (how, ended, said[-200:]))
            then.run("--data", data, "--out", out, "--resume", "--quiet") if then else programs.call([cpu, "--data", data, "--out", out, "--resume", "--quiet"])
            verdicts.expect(runtime.final(out) == wanted, "%s: a resumed run has other parameters" % how)


# ---- Several workers -------------------------------------------------------------------------------------------------


def workers():
    """Stages, replicas, schedules, ways to combine: the CPU's bits, and each worker that has state on the host has pinned memory of its own."""
    data = runtime.arrays("workers-data")
    pairs = ["--stages", "2", "--microbatch", "3"]
    cases = [("", ["--stages", "2"]), ("", ["--stages", "3", "--microbatch", "6"]), ("", ["--replicas", "2"]), ("", [*pairs, "--schedule", "zbv"]),
             ("delay 1", [*pairs, "--schedule", "2bw"]), ("combine reduce(2)", ["--stages", "3"]), ("combine ring_average(2)", [])]

    def train(case):
        number, (rules, ways) = case
        name = "workers%d" % number
        source = net(name, rules=rules)
        wanted = runtime.final(runtime.trained_on_cpu(source, data, name))
        least, without = smallest(source, "--host-memory-budget", "1GiB", *ways), smallest(source, *ways)
        verdicts.expect(least < without, "%s %s: state on the host lowers the smallest budget from %d to %d" % (rules, ways, without, least))
        for place, budget in enumerate((least, (least + without) // 2 // 64 * 64)):
            flags = ["--memory-budget", budget, "--host-memory-budget", "1GiB", *ways]
            planned = plan(source, *flags)["workers"]
            moved = [worker["plan"]["host"]["state"] for worker in planned if "host" in worker["plan"]]
            verdicts.expect(moved and max(worker["arena"] for worker in planned) <= budget, "%s %s in %d bytes: %s of state lie on the host" % (
                rules, ways, budget, moved))
            program = standin.Program(source, "%s-%d" % (name, place), *flags)
            for eager in (0, 1):
                out = programs.FOLDER / ("%s-%d-%d-out" % (name, place, eager))
                asked, said = runtime.log_of(program, "--data", data, "--out", out, seed=place, devices=1 + place, arenas=len(planned), eager=eager)
                verdicts.expect(runtime.final(out) == wanted, "%s %s in %d bytes: other bits than the CPU's" % (rules, ways, budget))
                verdicts.expect(asked.count("pinned") == len(moved), "%s %s: pinned memory is taken %d times, %d workers have some" % (
                    rules, ways, asked.count("pinned"), len(moved)))
                verdicts.expect(asked.count("graph") == (0 if "2bw" in ways else 11), "%s %s: %d steps are graphs" % (rules, ways, asked.count("graph")))

    programs.in_parallel(train, enumerate(cases))


def workers_in_bf16():
    """Weights have copies in bf16, whatever the workers: one set of bits on a kind of GPU, in as little memory as they can, with the host's and without."""
    source, folder, sizes = runtime.gpt()
    target, sizes = "nvidia:a100", [*sizes, "--set", "train.precision=bf16"]
    priced = [*sizes, "--target", target]

    def left(name, count, *flags):
        out = programs.FOLDER / (name + "-out")
        settings = dict(devices=2, arenas=count) if count > 1 else {}
        standin.Program(source, name, *sizes, *flags, target=target).run("--data", folder, "--out", out, "--quiet", tensor="a100", **settings)
        return runtime.final(out)

    wanted = left("narrow", 1)
    for number, (ways, count) in enumerate(((["--stages", "2"], 2), (["--stages", "2", "--replicas", "2", "--microbatch", "1"], 4))):
        planned = programs.call([programs.CINCH, source, *priced, *ways, "--stop-after", "planned", "--emit", "plan", "-o", "-"]).stdout
        verdicts.expect(re.search(r"attn.qkv: cast.*\(tensor<36x12xf32>\) -> tensor<36x12xbf16>", planned), "%s: weights have no copies" % ways)
        for place, host in enumerate(([], ["--host-memory-budget", "1GiB"])):
            least = smallest(source, *priced, *ways, *host)
            found = left("narrow%d-%d" % (number, place), count, *ways, *host, "--memory-budget", least)
            verdicts.expect(found == wanted, "%s %s in %d bytes: other bits than one worker's" % (ways, host, least))
        verdicts.expect(left("narrow%d" % number, count, *ways) == wanted, "%s: other bits than one worker's" % ways)


def worker_processes():
    """A GPT that is evaluated and saved, on workers that are processes, which send state to who writes it; killed, and on with one worker."""
    source, folder, sizes = runtime.gpt()
    wanted = runtime.final(runtime.trained_on_cpu(source, folder, "processes", *sizes))
    for number, (ways, count) in enumerate(((["--stages", "2"], 2), (["--stages", "2", "--replicas", "2", "--microbatch", "1"], 4))):
        least = smallest(source, "--host-memory-budget", "1GiB", *sizes, *ways)
        program = standin.Program(source, "processes%d" % number, "--memory-budget", least, "--host-memory-budget", "1GiB", *sizes, *ways)
        for how in ([], ["--gpu-messages", "host"]):
            out = programs.FOLDER / ("processes%d-%d-out" % (number, len(how)))
            ended = program.run_each(count, "--data", folder, "--out", out, *how, devices=count)
            verdicts.expect(ended.all(0) and runtime.final(out) == wanted, "%s: %s %s" % (ways, ended.codes, ended.text[-800:]))
        out = programs.FOLDER / ("processes%d-killed-out" % number)
        ended = program.run_each(count, "--data", folder, "--out", out, devices=count, fail="launch:700")
        verdicts.expect(5 in ended.codes and list(out.glob("run/step-*.safetensors")), "a kernel that fails: %s %s" % (ended.codes, ended.text[-800:]))
        if number == 0:
            programs.call([programs.compiled(source, "processes-cpu", *sizes), "--data", folder, "--out", out, "--resume", "--quiet"])
        else:
            ended = program.run_each(count, "--data", folder, "--out", out, "--resume", devices=count)
        verdicts.expect(runtime.final(out) == wanted, "%s: a resumed run has other parameters" % ways)


# ---- Faults ----------------------------------------------------------------------------------------------------------


def forgotten_waits():
    """Each wait of the first step, left out once: with copies as late or as early as the others allow, the bits tell, but for waits that another
    one implies. State behind the loop; values in it, of one micro-batch and of several."""
    data = runtime.arrays("forget-data")
    state = net("forget", MOMENTUM) # of two states of an update one's waits would imply the other's
    values_of = deep("forget-values")
    cases = [("state", state, ["--memory-budget", budgets(state)[0]], 0.5)]
    for size in (48, 24):
        ways = [*ALL_KEPT, "--microbatch", size]
        cases.append(("values-%d" % size, values_of, [*ways, "--memory-budget", smallest(values_of, "--host-memory-budget", "1GiB", *ways)], 0.7))
    for name, source, flags, share in cases:
        program = standin.Program(source, "forget-" + name, "--host-memory-budget", "1GiB", *flags)
        arguments = ("--data", data, "--quiet", "--steps", "2")
        settings = {"fail": "cuStreamBeginCapture_v2"}
        out = programs.FOLDER / ("forget-%s-out" % name)
        asked, _ = runtime.log_of(program, *arguments, "--out", out, **settings)
        wanted, waits = runtime.final(out), asked.count("waits") // 2

        found = set()

        def forget(wait):
            for eager in (0, 1):
                out = programs.FOLDER / ("forget-%s-%d-%d" % (name, wait, eager))
                ended = program.run(*arguments, "--out", out, allowed=(0, 4), forget=wait, eager=eager, **settings)
                if ended.returncode or runtime.final(out) != wanted:
                    found.add(wait)

        programs.in_parallel(forget, range(1, waits + 1))
        print("%s: %d of %d forgotten waits are found" % (name, len(found), waits))
        verdicts.expect(waits >= 16 and len(found) >= share * waits, "%s: %d of %d forgotten waits are found" % (name, len(found), waits))


def refusals():
    """No pinned memory; a CPU; a budget of the host that is too small, none at all; and advice that is true."""
    data, source = runtime.arrays("refuse-data"), net("refuse")
    least, half, _ = budgets(source)
    flags = ["--memory-budget", half, "--host-memory-budget", "1GiB"]
    program = standin.Program(source, "refuse", *flags)
    out = programs.FOLDER / "refuse-out"
    said = program.run("--data", data, "--out", out, allowed=(5,), fail="cuMemHostRegister_v2").stdout
    verdicts.expect("cannot pin" in said and "--host-memory-budget" in said, "no pinned memory: %s" % said)
    call = lambda code, *words: programs.call([programs.CINCH, *words], allowed=(code,)).stdout
    said = call(2, source, "--host-memory-budget", "1GiB")
    verdicts.expect("--target nvidia" in said, "a CPU: %s" % said)
    said = call(2, source, "--target", "nvidia", "--host-memory-budget", "many")
    verdicts.expect("--host-memory-budget expects a number" in said, "no number: %s" % said)
    said = call(0, "plan", source, "--target", "nvidia", "--stages", "2", "--host-memory-budget", "1GiB")
    verdicts.expect("nothing lies in pinned memory: the device has no --memory-budget" in said, "two stages: %s" % said)
    fits = smallest(source, "--stages", "2", "--host-memory-budget", "1GiB")
    said = call(0, "plan", source, "--target", "nvidia", "--stages", "2", "--memory-budget", fits, "--host-memory-budget", "1GiB", "--bound")
    verdicts.expect("of state in pinned memory" in said and "a worker" in said, "two stages: the plan does not tell: %s" % said)
    said = call(1, "plan", source, "--target", "nvidia", "--stages", "2", "--memory-budget", fits)
    verdicts.expect("help: --host-memory-budget 1MiB would fit" in said, "two stages: a host budget would help: %s" % said)
    call(0, "plan", source, "--target", "nvidia", "--stages", "2", "--memory-budget", fits, "--host-memory-budget", "1MiB")
    said = call(1, "plan", source, "--target", "nvidia", "--stages", "2", "--memory-budget", 1000)
    verdicts.expect("--host-memory-budget" not in said, "two stages: a host budget would not help: %s" % said)
    said = call(0, "plan", source, "--target", "nvidia", "--stages", "auto", "--memory-budget", fits, "--host-memory-budget", "1GiB")
    verdicts.expect("2 workers" in said, "as few workers as fit: %s" % said)
    said = call(1, source, "--target", "nvidia", "--memory-budget", half, "-o", "x")
    verdicts.expect("help: --host-memory-budget 1MiB would fit" in said, "a host budget would help: %s" % said)
    call(0, "plan", source, "--target", "nvidia", "--memory-budget", half, "--host-memory-budget", "1MiB")
    said = call(1, source, "--target", "nvidia", "--memory-budget", least - 64, "-o", "x")
    verdicts.expect("--host-memory-budget" not in said, "a host budget would not help: %s" % said)
    said = call(1, source, "--target", "nvidia", "--memory-budget", half, "--host-memory-budget", "1KiB", "-o", "x")
    verdicts.expect("smallest budget that compiles" in said, "1 KiB of pinned memory: %s" % said)
    for given in ([], ["--memory-budget", "1GiB"]):
        said = call(0, "plan", source, "--target", "nvidia", "--host-memory-budget", "1GiB", *given)
        verdicts.expect("nothing lies in pinned memory" in said, "enough memory: %s" % said)
    # Blocks of rows lower what is proven, with memory of the host, too.
    said = call(1, "plan", programs.HERE / "gpt.cinch", "-D", "V=3000", "--target", "nvidia", "--memory-budget", "1KiB", "--host-memory-budget", "1GiB")
    smallest_that_fits, bound = (int(re.search(r"%s: +(\d+) bytes" % words, said).group(1)) for words in ("smallest budget that compiles", "proven lower bound"))
    verdicts.expect(bound <= smallest_that_fits, "a plan of %d bytes is below the proven bound, %d" % (smallest_that_fits, bound))
    said = call(0, "plan", source, "--target", "nvidia", *flags)
    verdicts.expect("of state in pinned memory" in said and "not hidden" in said, "the plan does not tell: %s" % said)


def main():
    for test in (plans, values, values_stopped, other_programs, double, stopped, closed_gate, workers, workers_in_bf16, worker_processes, forgotten_waits, refusals):
        if len(sys.argv) < 2 or any(word in test.__name__ for word in sys.argv[1:]):
            test()


if __name__ == "__main__":
    verdicts.run(main)
