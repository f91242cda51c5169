#!/usr/bin/env python3
"""gpu_plans: what the planner says of GPT-2 and LLaMA 7B on a GPU, beside published speeds.   bench/gpu_plans.py [--quick] [--eight]

Every model in bf16, 64 examples of GPT-2 or 8 of LLaMA: the smallest budget, and the predicted step under all of the memory but 2 GiB (the
driver's context, code). Prices are those of compiler/analysis/Target.cpp, fitted on one model on an H200. The speeds of
bench/models/gpu_published.csv were measured by others, on several GPUs that exchange gradients, which our price of one leaves out.
--eight: eight GPUs too: replicas of GPT-2, stages of LLaMA, whose parameters and state do not fit on one; such plans take minutes each.
What does not fit is planned again with so much of the optimizer's state on the host as it takes (--host-memory-budget), at PCIe's rate.
A second table (alone with --budgets) has steps under budgets that leave no room for all values, with memory of the host and without.
Nothing is run. --quick: GPT-2 124M on an A100. --seen: alone, the step that was run on an H200, predicted and seen, by groups of kernels.
"""
import argparse
import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import programs

MODELS_FOLDER = programs.BENCH / "models"
GIB = 2**30
HOST = ["--host-memory-budget", "1TiB"]
# name -> (file, sizes, tokens an example, examples a GPU, what eight GPUs are)
MODELS = {
    "gpt2_124m": ("gpt2_124m.cinch", {"N": 12, "D": 768, "A": 12}, 1024, 64, "replicas"),
    "gpt2_355m": ("gpt2_124m.cinch", {"N": 24, "D": 1024, "A": 16}, 1024, 64, "replicas"),
    "gpt2_774m": ("gpt2_124m.cinch", {"N": 36, "D": 1280, "A": 20}, 1024, 64, "replicas"),
    "gpt2_1558m": ("gpt2_124m.cinch", {"N": 48, "D": 1600, "A": 25}, 1024, 64, "replicas"),
    "llama_7b": ("llama_7b.cinch", {}, 2048, 8, "stages"),
}
DEVICES = {"a100": 80, "h100": 80}  # gigabytes
# Of the second table: (model, device, budget); None: all of the memory but 2 GiB.
BUDGETS = [("gpt2_124m", "a100", "3GiB"), ("gpt2_1558m", "a100", "32GiB"), ("gpt2_1558m", "a100-40gb", None)]
MEMORY = {**DEVICES, "a100-40gb": 40}


def rows_of(file):
    return csv.DictReader(line for line in (MODELS_FOLDER / file).read_text().splitlines() if not line.startswith("#"))


def published():
    return {(row["model"], row["device"]): row for row in rows_of("gpu_published.csv")}


def flags_of(sizes, examples, device, ways):
    text = ["--set", "train.precision=bf16", "--target", f"nvidia:{device}", "--no-plan-cache", *ways]
    for key, value in {**sizes, "B": examples}.items():
        text += ["-D", f"{key}={value}"]
    return text


def whole_budget(device):
    return ["--memory-budget", str(MEMORY[device] * 10**9 - 2 * GIB)]


def look(name, device, count):
    """Smallest budget a GPU, tokens a second and GPU (None: it does not fit), and GiB of state on the host."""
    file, sizes, tokens, examples, kind = MODELS[name]
    examples *= count
    ways = [] if count == 1 else [f"--{kind}", str(count)]
    flags = flags_of(sizes, examples, device, ways)
    source = MODELS_FOLDER / file
    least = programs.smallest_budget(source, *flags)
    plan = programs.plan(source, *flags, *whole_budget(device))
    if plan is None:
        plan = programs.plan(source, *flags, *whole_budget(device), *HOST)
    parts = [worker["plan"] for worker in plan["workers"]] or [plan] if plan else []
    host = sum(part["host"]["bytes"] for part in parts if "host" in part) / GIB
    return least, plan and tokens * examples / float(plan["seconds"]) / count, host


def under_budgets():
    """Steps under budgets, without memory of the host and with it."""
    heads = (f"{'again':>8}", f"{'with host':>12}", f"{'again':>8}", f"{'values':>8}", f"{'GiB':>8}", f"{'state GiB':>11}", f"{'not hidden':>12}")
    print(f"{'model':<12}{'GPU':>10}{'budget':>12}{'step':>11}", *heads, sep="")
    for name, device, budget in BUDGETS:
        file, sizes, tokens, examples, _ = MODELS[name]
        flags = flags_of(sizes, examples, device, ["--memory-budget", budget] if budget else whole_budget(device))
        without, beside = (programs.plan(MODELS_FOLDER / file, *flags, *ways) for ways in ([], HOST))
        line = f"{name:<12}{device:>10}{budget or 'its memory':>12}"
        result = f"gpu_plans.{name}.{device}.{budget or 'memory'}"
        for word, plan in (("", without), ("_with_host", beside)):
            if not plan:
                line += f"{'refused':>11}{'':>8}"
                continue
            seconds = float(plan["seconds"])
            line += f"{seconds:10.3f}s{100 * float(plan['recompute_seconds']) / seconds:7.1f}%"
            programs.result(f"{result}.seconds{word}", seconds)
        if beside and "host" in beside:
            host = beside["host"]
            values, state = sum(value["bytes"] for value in host["values"]), host["state"]
            line += f"{len(host['values']):8}{values / GIB:8.2f}{state / GIB:11.2f}{1000 * float(host['waited_seconds']):9.0f} ms"
            programs.result(f"{result}.host_gib", host["bytes"] / GIB)
        print(line, flush=True)


def group_of(kernel, lines):
    """Of GPT-2's kernels, as `bench/models/gpu_seen.csv` names them."""
    line, in_loop = lines.get(str(kernel["line"]), ""), kernel["section"] == "loop"
    if kernel["work"] == "product":
        return "logits" if "@ wte'" in line else "products of the blocks"
    if kernel["work"].startswith("attention"):
        return "attention"
    if line.startswith("loss"):
        return "cross entropy" if in_loop else "the rest"
    return "column sums" if in_loop and kernel["name"].endswith("reduce (gradient)") else "the rest"


def beside_seen():
    """Milliseconds of a step on an H200, predicted and seen. Its mma.sync is that of sm_100, which is priced as an H200."""
    examples, (file, sizes, tokens, _, _) = 32, MODELS["gpt2_124m"]
    predicted, ratios = {}, {}
    for kind, device in (("wgmma", "h200"), ("mma.sync", "sm_100")):
        plan = programs.plan(MODELS_FOLDER / file, *flags_of(sizes, examples, device, ["--memory-budget", "60GiB"]))
        for kernel in plan["kernels"] if kind == "wgmma" else []:
            group = group_of(kernel, plan["source_lines"])
            predicted[group] = predicted.get(group, 0) + 1000 * kernel["runs"] * float(kernel["seconds"])
        predicted[kind] = 1000 * float(plan["seconds"])
    print(f"{'kernels of a step':<26}{'predicted':>12}{'seen':>10}{'ratio':>8}")
    for row in rows_of("gpu_seen.csv"):
        ours, seen = predicted[row["group"]], float(row["milliseconds"])
        print(f"{row['group']:<26}{ours:9.1f} ms{seen:7.1f} ms{ours / seen:8.2f}")
        ratios[row["group"].replace(" ", "_")] = ours / seen
    for kind in ("wgmma", "mma.sync"):
        print(f"by {kind}: {1000 * tokens * examples / predicted[kind]:.0f} tokens a second are predicted")
    for group, ratio in ratios.items():
        programs.result(f"gpu_plans.seen.{group}.ratio", ratio)


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="GPT-2 124M on an A100 only")
    parser.add_argument("--eight", action="store_true", help="eight GPUs too; takes long")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one")
    parser.add_argument("--budgets", action="store_true", help="the second table only")
    parser.add_argument("--seen", action="store_true", help="only the step that was run on an H200")
    arguments = parser.parse_args()
    if arguments.seen:
        return beside_seen()
    if arguments.budgets:
        return under_budgets()
    others = published()
    print(f"{'model':<12}{'GPUs':>8}{'smallest budget':>18}{'tokens/s a GPU':>16}{'published':>12}{'ratio':>8}")
    for name in ["gpt2_124m"] if arguments.quick else arguments.model or MODELS:
        for device in ["a100"] if arguments.quick else DEVICES:
            for count in (1, 8) if arguments.eight else (1,):
                least, speed, host = look(name, device, count)
                other = others.get((name, device))
                shown = f"{speed:.0f}" if speed else "refused"
                beside = f"{float(other['tokens']):12.0f}{speed / float(other['tokens']):8.2f}" if other and speed else ""
                beside += f"   {host:.2f} GiB of state on the host" if host else ""
                print(f"{name:<12}{count:>3} {device}{least / GIB:>14.2f} GiB{shown:>16}{beside}", flush=True)
                programs.result(f"gpu_plans.{name}.{device}.{count}.smallest_gib", least / GIB)
                if speed:
                    programs.result(f"gpu_plans.{name}.{device}.{count}.tokens", speed)
                if other and speed:
                    programs.result(f"gpu_plans.{name}.{device}.{count}.over_published", speed / float(other["tokens"]))
    if not arguments.quick and not arguments.model:
        under_budgets()


programs.main(body)
