#!/usr/bin/python3
"""`cinch plan --json` and `--report`: the numbers agree with one another, recounted here from tensors and lifetimes alone, and the page
holds exactly that JSON and asks for nothing from outside. What the page does in a browser is the business of browser.py.
"""

import html.parser
import json
import os
import re

import programs

verdicts = programs.Verdicts()
CASES = [
    (programs.HERE / "mlp.cinch", []),
    (programs.HERE / "gpt.cinch", []),
    (programs.HERE / "gpt.cinch", ["--remat", "all", "--microbatch", "2"]),
    (programs.HERE / "gpt.cinch", ["--remat", "every:1", "--memory-budget", "64MiB"]),
]
CLASSES = ["state", "accumulators", "stored", "recomputed", "working", "scratch"]


class Page(html.parser.HTMLParser):
    """The text of the element called `plan`, and everything that names another file."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.data, self.outside, self.ids, self.tags = None, "", [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.inside = attributes.get("id") if tag == "script" else None
        self.ids.add(attributes.get("id"))
        for key in ("src", "href", "srcset", "data", "action"):
            if attributes.get(key, "data:,") != "data:,":
                self.outside.append(attributes[key])

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "plan":
            self.data += data


def columns(table):
    lengths = {len(column) for column in table.values()}
    assert len(lengths) == 1, lengths
    return [dict(zip(table, row)) for row in zip(*table.values())]


def recount(name, plan):
    """The plan's figures from its tables."""
    runs, instances, storages = columns(plan["runs"]), columns(plan["instances"]), columns(plan["storages"])
    kernels, count = plan["kernels"], len(runs)
    live = [sum(s["bytes"] for s in storages if s["lower"] <= t < s["upper"]) for t in range(count)]
    verdicts.expect(max(live) == plan["peak_live"], f"{name}: {max(live)} bytes alive at most, said {plan['peak_live']}")
    verdicts.expect(live[plan["peak_run"]] == max(live), f"{name}: the peak is not at run {plan['peak_run']}")
    summed = [sum(plan["timeline"][c][t] for c in CLASSES) for t in range(count)]
    verdicts.expect(summed == live, f"{name}: the classes of the timeline do not add up to what is alive")
    top = max(s["offset"] + s["bytes"] for s in storages)
    verdicts.expect(top <= plan["arena"] == plan["memory"] - plan["allowance"], f"{name}: the arena ends below its tensors")
    clashes = [
        (a, b)
        for i, a in enumerate(storages)
        for b in storages[:i]
        if a["lower"] < b["upper"] and b["lower"] < a["upper"]
        and a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"] and a["bytes"] and b["bytes"]
    ]
    verdicts.expect(not clashes, f"{name}: storages overlap: {clashes[:1]}")

    begin, end = plan["loop"]
    seen, again, seconds, spent = set(), {}, 0.0, 0.0
    for t, run in enumerate(runs):
        kernel, times = run["kernel"], plan["count"] if begin <= t < end else 1
        seconds += kernels[kernel]["seconds"] * times
        verdicts.expect(bool(run["recomputed"]) == (kernel in seen), f"{name}: run {t} is said to be recomputed: {run['recomputed']}")
        if kernel in seen:
            again[kernel] = again.get(kernel, 0) + 1
            spent += kernels[kernel]["seconds"] * times
        seen.add(kernel)
    close = lambda a, b: abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    verdicts.expect(close(seconds, plan["seconds"]), f"{name}: the runs take {seconds} s, said {plan['seconds']}")
    verdicts.expect(close(spent, plan["recompute_seconds"]), f"{name}: recomputation takes {spent} s, said {plan['recompute_seconds']}")
    verdicts.expect({r["kernel"]: r["times"] for r in plan["recomputed"]} == again, f"{name}: the list of what is recomputed")
    verdicts.expect(close(sum(r["seconds"] for r in plan["recomputed"]), spent), f"{name}: the prices of what is recomputed")
    verdicts.expect(sum(again.values()) == plan["recomputed_runs"], f"{name}: {again} recomputed, said {plan['recomputed_runs']}")

    turn = next((t for t in range(begin, end) if kernels[runs[t]["kernel"]]["backward"]), end)
    held = sorted(
        i["bytes"] for i in instances
        if begin <= i["run"] < turn < i["upper"] and i["buffer"] >= 0 and plan["buffers"]["kind"][i["buffer"]] == "value"
        and not runs[i["run"]]["recomputed"]
    )
    verdicts.expect(plan["turn"] == turn, f"{name}: the sweep turns at {turn}, said {plan['turn']}")
    verdicts.expect(sorted(v["bytes"] for v in plan["kept"]) == held, f"{name}: the list of what is kept")
    dead = [t for t, run in enumerate(runs) for i in run["reads"] if not instances[i]["lower"] <= t < instances[i]["upper"]]
    verdicts.expect(not dead, f"{name}: runs {dead[:5]} read what is dead")


def case(number, program, flags):
    name = " ".join([program.stem, *flags])
    plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json", *flags]).stdout)
    recount(name, plan)
    path = programs.FOLDER / f"report{number}.html"
    programs.call([programs.CINCH, "plan", program, "--report", path, *flags])
    text = path.read_text()
    page = Page(text)
    verdicts.expect(json.loads(page.data) == plan, f"{name}: the page holds another plan than --json prints")
    verdicts.expect(not page.outside, f"{name}: the page names {page.outside}")
    found = re.findall(r"https?:|//[a-z]+\.|@import|url\((?!#)|fetch\(|XMLHttp|WebSocket|import\(", text)
    verdicts.expect(not found, f"{name}: the page reaches out: {found}")
    wanted = {"slider", "timeline", "arena", "curve", "nodes", "kept", "again", "peak", "strategies"}
    verdicts.expect(wanted <= page.ids, f"{name}: the page lacks {wanted - page.ids}")
    verdicts.expect(len(text) < 200_000 + 400 * len(plan["runs"]["kernel"]), f"{name}: {len(text)} bytes")
    exe = programs.FOLDER / f"exe{number}"
    programs.call([programs.CINCH, program, "-o", exe, "--report", path, *flags])
    verdicts.expect(exe.exists() and path.read_text() == text, f"{name}: compiling writes another page than planning")


WORKERS = [(2, "1f1b", []), (3, "zb-h1", ["--microbatch", "2"]), (2, "interleaved", ["--microbatch", "1"]), (2, "zbv", []), (2, "naive", [])]


def several_workers():
    """Each worker's plan, and a table of actions that ends when the step is said to end, in the bytes of the workers."""
    program = programs.HERE / "gpt.cinch"
    for count, schedule, more in WORKERS:
        flags = ["--stages", str(count), "--schedule", schedule, *more, "--max-threads", "2"]
        name = " ".join(flags)
        plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json", *flags]).stdout)
        path = programs.FOLDER / f"workers-{count}-{schedule}.html"
        programs.call([programs.CINCH, "plan", program, "--report", path, *flags])
        verdicts.expect(json.loads(Page(path.read_text()).data) == plan, f"{name}: the page holds another plan than --json prints")
        verdicts.expect(plan["schedule"]["name"] == schedule and len(plan["workers"]) == count == plan["schedule"]["workers"], f"{name}: {plan['schedule']}")
        verdicts.expect(plan["arena"] == sum(w["arena"] for w in plan["workers"]), f"{name}: arenas do not add up")
        stages, split = count * plan["schedule"]["chunks"], schedule in ("zb-h1", "zbv")
        done, gate, behind = {}, 0, 0
        for w, worker in enumerate(plan["workers"]):
            recount(f"{name}, worker {w}", {**plan, **worker["plan"], "arena": worker["arena"], "memory": worker["arena"] + plan["allowance"]})
            actions, busy, at = columns(worker["actions"]), worker["before"] + worker["behind"], worker["before"]
            for action in actions:
                verdicts.expect(action["begin"] >= at - 1e-12, f"{name}: {action['name']} begins before what stands before it ends")
                at, busy = action["end"], busy + action["end"] - action["begin"]
                done[action["name"]] = action
            verdicts.expect(abs(busy - worker["busy"]) <= 1e-9 * busy, f"{name}: worker {w} works {busy} s, said {worker['busy']}")
            gate, behind = max(gate, at), max(behind, worker["behind"])
            held = [sum(entry) for entry in zip(*(worker["held"][c] for c in CLASSES))]
            verdicts.expect(len(held) == 2 + 2 * len(actions), f"{name}: {len(held)} entries of bytes for {len(actions)} actions")
            verdicts.expect(max(held) <= worker["plan"]["peak_live"] <= worker["arena"], f"{name}: worker {w} holds {max(held)} bytes")
            verdicts.expect(min(map(min, worker["held"].values())) >= 0, f"{name}: worker {w} holds less than nothing")
        verdicts.expect(abs(gate + behind - plan["seconds"]) <= 1e-9 * plan["seconds"], f"{name}: ends at {gate + behind}, said {plan['seconds']}")
        kinds = "FIW" if split else "FB"
        wanted = {f"{s}{kind}{k}" for s in range(stages) for kind in kinds for k in range(plan["count"])}
        verdicts.expect(set(done) == wanted, f"{name}: actions {sorted(set(done) ^ wanted)[:5]}")
        for s in range(1, stages):
            for k in range(plan["count"]):
                before, after = done[f"{s - 1}F{k}"], done[f"{s}F{k}"]
                verdicts.expect(before["end"] <= after["begin"] + 1e-12, f"{name}: {s}F{k} begins before its input is there")


def odd_sources():
    """A source line must not end the page's script early."""
    text = (programs.HERE / "mlp.cinch").read_text()
    marked = re.sub(r"(?m)^(.*(?:return|loss).*)$", r"\1 // </script><b>&amp; \\u003c <!--cinch:data-->", text)
    program = programs.source("odd", marked)
    path = programs.FOLDER / "odd.html"
    programs.call([programs.CINCH, "plan", program, "--report", path])
    plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json"]).stdout)
    page = Page(path.read_text())
    verdicts.expect(json.loads(page.data) == plan, "a source line with </script> changes the page's data")
    verdicts.expect(any("</script>" in line for line in plan["source_lines"].values()), "the odd line is not in the plan")
    verdicts.expect("b" not in page.tags, "a source line becomes an element of the page")


def odd_path():
    """A path may be any bytes: what of them is no UTF-8 is replaced in the page, in the JSON and in the binary's description of itself."""
    program, path = programs.FOLDER / os.fsdecode(b"n\xfct.cinch"), programs.FOLDER / "odd-path.html"
    program.write_text((programs.HERE / "mlp.cinch").read_text())
    exe = programs.FOLDER / "odd-path"
    programs.call([programs.CINCH, program, "-o", exe, "--report", path])
    plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json"]).stdout)
    verdicts.expect(json.loads(Page(path.read_text()).data) == plan, "a path that is no UTF-8: the page has another plan")
    said = programs.call([exe, "info"]).stdout
    verdicts.expect("n\ufffdt.cinch" in said, "a path that is no UTF-8: " + said)


def refused():
    """Of a budget that is too small the page shows the smallest plan."""
    program, path = programs.HERE / "gpt.cinch", programs.FOLDER / "refused.html"
    done = programs.call([programs.CINCH, program, "-o", programs.FOLDER / "none", "--report", path, "--memory-budget", "1MiB"], allowed=(1,))
    verdicts.expect("smallest budget that compiles" in done.stdout, "a refused budget: " + done.stdout)
    plan = json.loads(Page(path.read_text()).data)
    recount("refused", plan)
    verdicts.expect(plan["budget"] == 1 << 20 and plan["memory"] == plan["smallest_budget"],
                    f"refused: the plan takes {plan['memory']} bytes, the smallest {plan['smallest_budget']}")


def unwritable():
    program = programs.HERE / "mlp.cinch"
    for early in (["--emit", "nn"], ["--stop-after", "differentiated"]):
        done = programs.call([programs.CINCH, program, "--report", programs.FOLDER / "early.html", *early], allowed=(2,))
        verdicts.expect(done.returncode == 2 and "before there is one" in done.stdout, "a report of no plan: " + done.stdout)
    done = programs.call([programs.CINCH, "plan", program, "--report", programs.FOLDER / "none" / "x.html"], allowed=(5,))
    verdicts.expect(done.returncode == 5 and "cannot write" in done.stdout, "a report that cannot be written: " + done.stdout)
    done = programs.call([programs.CINCH, "plan", program, "--report", ""], allowed=(2,))
    verdicts.expect(done.returncode == 2, "an empty name of a report")


for number, (program, flags) in enumerate(CASES):
    case(number, program, flags)
several_workers()
odd_sources()
odd_path()
refused()
unwritable()
verdicts.finish()
