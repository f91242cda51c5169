#!/usr/bin/env python3
"""depth: ten times the layers in the bytes of activations that the shallow net needs when nothing is recomputed.

    bench/depth.py [--quick] [--rounds N] [--only PART,..]

Three nets: residual feed-forward blocks (models/deep.cinch) and a ResNet (models/resnet_deep.cinch), which are real programs, and a residual net
of convolutions as a cost graph, planned by `cinch solve remat`. Then bytes of activations by depth: a ResNet under `sqrt`, and examples/revnet,
whose blocks are reversible. Ten times the depth: activations are what the peak takes beyond parameters, state, all gradients and copies of filters,
which grow with the depth whatever is recomputed. By depth: what is alive at the peak beside parameters, state, copies and the gradients that have begun. Times are per block, beside the deep net that recomputes nothing.

The counting bound: when the backward sweep starts, no more than those bytes are held, and each value that it reads and that is not held
is computed again at least once. Counting units alone, nine tenths of the forward sweep run again; choosing what is held by its price
(seconds a byte, fractions allowed) is less, and no plan beats that.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import data, programs

THREADS = 2


def percent(ratio):
    return f"{100 * (ratio - 1):+.2f} %"


def copies(found):
    """Bytes at the peak of what is made before the loop: filters as convolutions read them, one copy a filter whatever the batch."""
    kernels, runs, made, peak = found["kernels"], found["runs"], found["instances"], found["peak_run"]
    return sum(size for size, run, lower, upper in zip(made["bytes"], made["run"], made["lower"], made["upper"])
               if run >= 0 and lower <= peak < upper and kernels[runs["kernel"][run]]["section"] == "before")


def accumulators(found):
    """Bytes of all gradients. With one micro-batch each of them begins late: until then others may use its bytes."""
    made, kinds = found["instances"], found["buffers"]["kind"]
    return sum(size for size, buffer in zip(made["bytes"], made["buffer"]) if kinds[buffer] == "accumulator")


def held(found):
    """What the peak takes beyond parameters, state, all gradients and copies of filters."""
    return found["peak_live"] - found["persistent"] - accumulators(found) - copies(found)


def alive(found):
    """What is alive at the peak beside parameters, state, copies of filters and those gradients that have begun."""
    return found["peak_live"] - found["persistent"] - found["peak_accumulators"] - copies(found)


def bounds(found, room):
    """Forward seconds of a micro-batch's loop, and the least that must run again with `room` bytes of activations."""
    kernels, runs, made = found["kernels"], found["runs"], found["instances"]
    kinds = found["buffers"]["kind"]
    saved = {}  # forward kernel -> bytes that the backward sweep reads
    for kernel, reads in zip(runs["kernel"], runs["reads"]):
        if kernels[kernel]["section"] != "loop" or not kernels[kernel]["backward"]:
            continue
        for instance in reads:
            run = made["run"][instance]
            if run < 0 or kinds[made["buffer"][instance]] != "value":
                continue
            writer = runs["kernel"][run]
            if kernels[writer]["section"] == "loop" and not kernels[writer]["backward"]:
                saved.setdefault(writer, {})[instance] = made["bytes"][instance]
    forward = sum(k["seconds"] for k in kernels if k["section"] == "loop" and not k["backward"])
    items = sorted((kernels[k]["seconds"] / sum(b.values()), sum(b.values()), kernels[k]["seconds"]) for k, b in saved.items())
    again = sum(seconds for _, _, seconds in items)
    for _, size, seconds in reversed(items):
        share = min(1.0, room / size)
        again -= share * seconds
        room -= share * size
        if room <= 0:
            break
    return forward, again


def measured(model, plans, rounds, steps, folder):
    """Seconds of a step of each program: they take turns, the least median of the rounds counts."""
    for name, options in plans.items():
        programs.compile(model, folder / name, *options)
    seconds = {name: [] for name in plans}
    for _ in range(rounds):
        for name in plans:
            taken, _ = programs.train(folder / name, folder, folder / "out", steps, THREADS)
            seconds[name].append(programs.median(taken))
    return {name: min(values) for name, values in seconds.items()}


class Net:
    """A program whose depth is -D N: so many `blocks` for each. `write` makes its data."""

    def __init__(self, name, label, file, batch, blocks, write):
        self.name, self.label, self.file, self.batch, self.blocks, self.write = name, label, programs.BENCH / "models" / file, batch, blocks, write

    def options(self, depth, *more):
        return ["-D", f"N={depth}", "-D", f"B={self.batch}", "--max-threads", str(THREADS), *more]

    def plain(self, depth):
        return self.options(depth, "--remat", "none", "--microbatch", str(self.batch))


def vectors(folder, count):
    data.vectors(folder, 256, 10, count)


def images(folder, count):
    draw = random.Random(1)
    data.write_array(folder / "x.npy", "f", (count, 3, 32, 32), [draw.gauss(0, 1) for _ in range(count * 3 * 32 * 32)])
    data.write_array(folder / "y.npy", "i", (count,), [draw.randrange(10) for _ in range(count)])


def headline(net, depth, rounds, steps):
    """`depth` and ten times as many; what they take beside the deep one that recomputes nothing."""
    shallow, deep = (programs.plan(net.file, *net.plain(n)) for n in (depth, 10 * depth))
    budget = deep["memory"] - held(deep) + held(shallow)
    limit = ["--memory-budget", f"{budget}B", "--remat", "auto"]
    wanted = {"fixed": [*limit, "--microbatch", str(net.batch)], "free": [*limit, "--microbatch", "auto"]}
    found = {name: programs.plan(net.file, *net.options(10 * depth, *more)) for name, more in wanted.items()}
    forward, again = bounds(deep, held(shallow) + accumulators(deep))  # when the backward sweep starts no gradient has begun
    count, dear = 1 + 0.9 * forward / deep["seconds"], 1 + again / deep["seconds"]
    times = {}
    if rounds:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            net.write(folder, 2 * net.batch)
            programs_of = {"shallow": net.plain(depth), "deep": net.plain(10 * depth)}
            programs_of.update({name: net.options(10 * depth, *more) for name, more in wanted.items()})
            times = measured(net.file, programs_of, rounds, steps, folder)
    few, many = depth * net.blocks, 10 * depth * net.blocks
    print(f"\n{net.label}, batch {net.batch}, {few} and {many} blocks")
    print(f"{'':34}{'activations MiB':>16}{'micro-batch':>12}{'ms a block':>12}{'beside':>11}{'measured':>10}{'beside':>11}")

    def row(label, plan, blocks, name):
        shown = f"{1e3 * times[name] / blocks:10.3f}{percent(times[name] / times['deep'] * many / blocks):>11}" if times else ""
        ratio = plan["seconds"] / blocks / (deep["seconds"] / many)
        print(f"{label:34}{held(plan) / 2**20:16.2f}{plan['microbatch']:12}{1e3 * plan['seconds'] / blocks:12.3f}"
              f"{percent(ratio):>11}{shown}", flush=True)

    row(f"{few} blocks, nothing recomputed", shallow, few, "shallow")
    row(f"{many} blocks, nothing recomputed", deep, many, "deep")
    for name in wanted:
        if found[name] is None:
            raise programs.Failed(f"{many} blocks do not fit into {budget} bytes, micro-batch {name}")
        row(f"{many} blocks, micro-batch {name}", found[name], many, name)
    print(f"counting bound {percent(count)}, no plan with this micro-batch is below {percent(dear)}")
    results = {name: plan["seconds"] / deep["seconds"] for name, plan in found.items()}
    results["counting_bound"] = count
    for name in wanted if times else ():
        results[f"{name}_measured"] = times[name] / times["deep"]
    return {f"depth.{net.name}.{name}": value for name, value in results.items()}


def feed_forward(layers, batch, rounds, steps):
    return headline(Net("feed_forward", "residual feed-forward blocks", "deep.cinch", batch, 1, vectors), layers, rounds, steps)


def resnet(stage, batch, rounds, steps):
    return headline(Net("resnet", "a ResNet (models/resnet_deep.cinch)", "resnet_deep.cinch", batch, 3, images), stage, rounds, steps)


# Costs are hundredths of a convolution of the whole batch; a launch costs a thousandth of one. Weight gradients are accumulators.
def residual_net(blocks, parts):
    """The training graph of a micro-batch of 1 / parts of the batch."""
    nodes, edges = [], []

    def node(name, cost, units, *sources):
        nodes.append({"id": len(nodes), "name": name, "cost": cost / parts + 0.1, "bytes": 6400 * units // parts or 1})
        edges.extend({"source": s, "target": len(nodes) - 1} for s in sources)
        return len(nodes) - 1

    x = node("stem", 10, 1)
    kept = []
    for i in range(blocks):
        first = node(f"{i}.conv1", 100, 1, x)
        inner = node(f"{i}.bn1", 2, 1, first)
        second = node(f"{i}.conv2", 100, 1, inner)
        y = node(f"{i}.bn2.add", 3, 1, second, x)
        kept.append((x, first, inner, second, y))
        x = y
    forward = sum(n["cost"] for n in nodes)
    gradient = node("loss", 5, 1, x)
    for i in reversed(range(blocks)):
        x, first, inner, second, y = kept[i]
        skip = node(f"{i}.relu2.grad", 2, 1, gradient, y)
        inside = node(f"{i}.bn2.grad", 3, 1, skip, second)
        node(f"{i}.conv2.dw", 100, 0, inside, inner)
        d = node(f"{i}.conv2.dx", 100, 1, inside)
        d = node(f"{i}.bn1.grad", 4, 1, d, inner, first)
        node(f"{i}.conv1.dw", 100, 0, d, x)
        d = node(f"{i}.conv1.dx", 100, 1, d)
        gradient = node(f"{i}.add.grad", 2, 1, skip, d)
    return {"nodes": nodes, "edges": edges}, forward, sum(n["cost"] for n in nodes)


def solved(graph, budget, seconds, folder):
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    limit = ["--time-limit", str(seconds)] if seconds else []
    done = subprocess.run([programs.CINCH, "solve", "remat", str(path), "--budget", str(budget), *limit], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise programs.Failed(f"cinch solve remat: exit {done.returncode}\n{done.stderr[:2000]}")
    return json.loads(done.stdout)


def convolutions(layers, seconds):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        everything = 10**12
        shallow, _, small = residual_net(layers, 1)
        budget = solved(shallow, everything, 0, folder)["peak"]
        deep, forward, plain = residual_net(10 * layers, 1)
        rows = [(f"{layers} layers, nothing recomputed", budget, 1, small / layers),
                (f"{10 * layers} layers, nothing recomputed", solved(deep, everything, 0, folder)["peak"], 1, plain / (10 * layers))]
        costs = {}
        for parts in (1, 2, 4, 8):
            graph = residual_net(10 * layers, parts)[0]
            answer = solved(graph, budget, seconds, folder)
            if answer["cost"] is None:
                continue
            costs[parts] = answer["cost"] * parts
            rows.append((f"{10 * layers} layers, {parts} micro-batches", answer["peak"], parts, costs[parts] / (10 * layers)))
            if parts == 1:
                bound = answer["bound"] / plain
        print(f"\nresidual net of convolutions (cost graph), {layers} and {10 * layers} blocks")
        print(f"{'':34}{'activation bytes':>17}{'parts':>7}{'cost a block':>14}{'beside':>11}")
        for label, peak, parts, cost in rows:
            print(f"{label:34}{peak:17}{parts:7}{cost:14.2f}{percent(cost / (plain / (10 * layers))):>11}")
        count = 1 + 0.9 * forward / plain
        print(f"counting bound {percent(count)}, proven for one micro-batch {percent(bound)}")
        if 1 not in costs:
            raise programs.Failed("the deep residual net does not fit")
        return {"depth.residual.fixed": costs[1] / plain, "depth.residual.free": min(costs.values()) / plain,
                "depth.residual.counting_bound": count}


def by_depth(stages):
    """Bytes of activations by blocks: of a ResNet under `sqrt`, of one whose blocks are reversible under `none`; each with the whole batch at once."""
    nets = {"sqrt": (programs.BENCH / "models" / "resnet_deep.cinch", ["--remat", "sqrt", "--microbatch", "64"]),
            "reversible": (programs.BENCH.parent / "examples" / "revnet" / "revnet.cinch", ["-D", "M=8", "--remat", "none", "--microbatch", "128"])}
    print("\nbytes of activations by depth: models/resnet_deep.cinch with `--remat sqrt`, examples/revnet (reversible) with nothing recomputed but what it says")
    print(f"{'blocks':>8}{'sqrt: MiB':>12}{'predicted s':>13}{'MiB / sqrt(blocks)':>20}{'reversible: MiB':>18}{'predicted s':>13}")
    held_of = {name: [] for name in nets}
    for blocks in stages:
        found = {name: programs.plan(file, "-D", f"N={blocks}", "--max-threads", str(THREADS), *more) for name, (file, more) in nets.items()}
        for name, plan in found.items():
            held_of[name].append(alive(plan))
        mebi = {name: alive(plan) / 2**20 for name, plan in found.items()}
        print(f"{3 * blocks:8}{mebi['sqrt']:12.2f}{found['sqrt']['seconds']:13.3f}{mebi['sqrt'] / (3 * blocks) ** 0.5:20.2f}"
              f"{mebi['reversible']:18.2f}{found['reversible']['seconds']:13.3f}", flush=True)
    root = (stages[-1] / stages[0]) ** 0.5
    return {"depth.reversible.bytes_growth": held_of["reversible"][-1] / held_of["reversible"][0],
            "depth.sqrt.bytes_growth_beside_root": held_of["sqrt"][-1] / held_of["sqrt"][0] / root}


def body():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="shallow nets, one round")
    parser.add_argument("--rounds", type=int, default=3, help="of measuring; 0: predicted times only")
    parser.add_argument("--seconds", type=float, default=40, help="for each graph that cinch solve remat plans")
    parser.add_argument("--only", default="", help="some of feed_forward,resnet,residual,by_depth")
    arguments = parser.parse_args()
    programs.use_processors(THREADS)
    print(f"ten times the depth in the same bytes of activations, {THREADS} threads; {programs.machine_line()}")
    quick, rounds = arguments.quick, arguments.rounds
    parts = {"feed_forward": lambda: feed_forward(4, 64, 1, 3) if quick else feed_forward(16, 2048, rounds, 3),
             "resnet": lambda: resnet(1, 64, 1, 3) if quick else resnet(6, 64, rounds, 3),
             "residual": lambda: convolutions(4, 2) if quick else convolutions(16, arguments.seconds),
             "by_depth": lambda: by_depth([1, 2] if quick else [6, 17, 67, 333])}
    results = {}
    for part in arguments.only.split(",") if arguments.only else parts:
        results.update(parts[part]())
    for name, value in results.items():
        programs.result(name, value)


programs.main(body)
