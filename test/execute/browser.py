#!/usr/bin/python3
"""The page of `--report` in a real browser without a window (Debian's chromium), driven over DevTools' pipe: no error on the console, no
request to anywhere, the scrubber moves by slider, keys and buttons, and what it shows at many moments is what `cinch plan --json` says.
Pictures in light and dark: pass a folder to keep them.   browser.py [FOLDER]
"""

import json
import pathlib
import shutil
import sys
import time

import chromium
import programs

verdicts = programs.Verdicts()
ROOT = programs.HERE.parent.parent
PICTURES = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else programs.FOLDER
CASES = {
    "mlp": (ROOT / "examples/mlp/mlp.cinch", []),
    "gpt": (ROOT / "examples/gpt/gpt.cinch", ["--memory-budget", "110MiB"]),
    "resnet": (ROOT / "examples/resnet/resnet.cinch", ["--memory-budget", "400MiB"]),
    "gpt2": (ROOT / "bench/models/gpt2_124m.cinch", ["--memory-budget", "2500MiB"]),
}
CLASSES = ["state", "accumulators", "stored", "recomputed", "working", "scratch"]


SHOWN = """(() => {
  const rows = Object.fromEntries([...document.querySelectorAll('#classes tbody tr')].map(r => [r.dataset.class, +r.dataset.bytes]));
  const ring = document.getElementById('ring'), at = [+ring.getAttribute('cx'), +ring.getAttribute('cy')];
  const nodes = [...document.querySelectorAll('#nodes circle[data-kernel]')];
  const ringed = nodes.find(c => +c.getAttribute('cx') === at[0] && +c.getAttribute('cy') === at[1]);
  return {run: +document.getElementById('slider').value, rows, words: document.getElementById('now').textContent,
          texts: Object.fromEntries([...document.querySelectorAll('#classes tbody tr')].map(r => [r.dataset.class, r.cells[1].textContent])),
          ringed: ringed ? +ringed.dataset.kernel : -1, cursor: +document.getElementById('cursor').getAttribute('x1'),
          states: Object.fromEntries(nodes.map(c => [c.dataset.kernel, c.getAttribute('class').replace('node ', '')])),
          largest: [...document.querySelectorAll('#largest tbody tr')].map(r => [r.cells[0].textContent, +r.dataset.bytes])};
})()"""


# Words in a picture that lie on one another, or reach out of the bar that they stand in.
COLLISIONS = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const words = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim() && t.getBoundingClientRect().width)
      .map(t => [t.textContent, t.getBoundingClientRect(), t]);
    words.forEach(([a, p], i) => words.slice(i + 1).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left), down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > 3) found.push(a + ' / ' + b);
    }));
    for (const [text, box, t] of words.filter(([, , t]) => t.classList.contains('in-action'))) {
      let bar = t.previousElementSibling;
      while (!bar.classList.contains('action')) bar = bar.previousElementSibling;
      const around = bar.getBoundingClientRect();
      if (box.left < around.left || box.right > around.right) found.push(text + ' in its bar');
    }
  }
  return found;
})()"""


def words_of(count):
    if count >= 10 * 2**30:
        return f"{count / 2**30:.2f} GiB"
    if count >= 2**20 / 10:
        return f"{count / 2**20:.1f} MiB"
    return f"{count / 1024:.1f} KiB" if count >= 1024 else f"{count} B"


def same_words(a, b):
    """Equal, but for the last digit of a number halfway between two."""
    return a == b or (a.split()[1] == b.split()[1] and abs(float(a.split()[0]) - float(b.split()[0])) < 0.11)


def held(plan, run):
    """What the circle of each kernel should show."""
    instances, runs = plan["instances"], plan["runs"]
    first = {}
    for t, k in enumerate(runs["kernel"]):
        first.setdefault(k, t)
    states = {}
    for b, r, low, high, c in zip(*(instances[key] for key in ("buffer", "run", "lower", "upper", "class"))):
        if low <= run < high and r >= 0 and b >= 0:
            k = runs["kernel"][r]
            if states.get(k) != "recomputed":
                states[k] = plan["classes"][c]
    sums = {plan["buffers"]["kernel"][b] for b, kind in enumerate(plan["buffers"]["kind"]) if kind == "accumulator"}
    return lambda k: states.get(k) or ("later" if first.get(k, run + 1) > run else "accumulators" if k in sums else "gone")


def compare(name, plan, shown, run):
    where = f"{name}, run {run + 1}"
    if not verdicts.expect(shown["run"] == run, f"{where}: the page shows run {shown['run'] + 1}"):
        return
    wanted = {c: plan["timeline"][c][run] for c in CLASSES}
    wanted["allowance"] = plan["allowance"]
    wanted["total"] = sum(wanted.values())
    verdicts.expect(shown["rows"] == wanted, f"{where}: bytes {shown['rows']}, the plan says {wanted}")
    verdicts.expect(all(same_words(shown["texts"][c], words_of(n)) for c, n in wanted.items()), f"{where}: {shown['texts']} for {wanted}")
    kernel = plan["runs"]["kernel"][run]
    verdicts.expect(plan["kernels"][kernel]["name"] in shown["words"] and f"Run {run + 1} of " in shown["words"],
                    f"{where}: says {shown['words']!r}")
    inside = str(kernel) in shown["states"]
    verdicts.expect(shown["ringed"] == (kernel if inside else -1), f"{where}: kernel {shown['ringed']} is ringed, not {kernel}")
    state = held(plan, run)
    wrong = {k: (s, state(int(k))) for k, s in shown["states"].items() if s != state(int(k))}
    verdicts.expect(not wrong, f"{where}: states of kernels: {dict(list(wrong.items())[:3])}")
    sizes = [n for _, n in shown["largest"]]
    storages = plan["storages"]
    live = sorted((n for n, low, high in zip(storages["bytes"], storages["lower"], storages["upper"]) if low <= run < high), reverse=True)
    verdicts.expect(sizes == live[: len(sizes)] and len(sizes) == min(9, sum(n > 0 for n in live)), f"{where}: largest {sizes}, alive {live[:9]}")


def case(browser, name, program, flags):
    path = programs.FOLDER / f"{name}.html"
    plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json", *flags]).stdout)
    programs.call([programs.CINCH, "plan", program, "--report", path, *flags])
    runs = len(plan["runs"]["kernel"])
    browser.open(path)
    compare(name, plan, browser.value(SHOWN), plan["peak_run"])
    in_loop = sum(k["section"] == "loop" and k["name"] not in ("gate", "results") for k in plan["kernels"])
    verdicts.expect(browser.value("document.querySelectorAll('#nodes circle[data-kernel]').length") == in_loop, f"{name}: a circle a kernel")

    cursors = {}
    for step in range(12):
        run = step * (runs - 1) // 11
        browser.value(f"(() => {{ const s = document.getElementById('slider'); s.value = {run}; s.dispatchEvent(new Event('input')); }})()")
        shown = browser.value(SHOWN)
        compare(name, plan, shown, run)
        cursors[run] = shown["cursor"]
    verdicts.expect(sorted(cursors.values()) == [cursors[r] for r in sorted(cursors)] and len(set(cursors.values())) == len(cursors),
                    f"{name}: the cursor on the timeline does not follow: {cursors}")

    browser.value("document.activeElement.blur()")
    run = 0
    for key, shift, to in [("Home", False, lambda r: 0), ("ArrowRight", False, lambda r: r + 1), ("ArrowRight", True, lambda r: r + 10),
                           ("ArrowLeft", False, lambda r: r - 1), ("End", False, lambda r: runs - 1), ("ArrowRight", False, lambda r: r),
                           ("ArrowLeft", True, lambda r: r - 10), ("p", False, lambda r: plan["peak_run"])]:
        browser.key(key, shift)
        run = max(0, min(runs - 1, to(run)))
        compare(f"{name}, key {key}", plan, browser.value(SHOWN), run)
    browser.click("#back")
    run = max(0, run - 1)
    compare(f"{name}, button back", plan, browser.value(SHOWN), run)
    browser.click("#forth")
    compare(f"{name}, button forth", plan, browser.value(SHOWN), run + 1)
    browser.click("#to-peak")
    compare(f"{name}, button peak", plan, browser.value(SHOWN), plan["peak_run"])
    browser.key("Home")
    browser.click("#play")
    time.sleep(1)
    browser.click("#play")
    played = browser.value(SHOWN)
    verdicts.expect(0 < played["run"], f"{name}: playing does not move")
    compare(f"{name}, played", plan, played, played["run"])
    browser.click("#timeline-picture")
    clicked = browser.value(SHOWN)
    compare(f"{name}, a click on the timeline", plan, clicked, clicked["run"])
    verdicts.expect(abs(clicked["run"] - runs / 2) < 0.1 * runs + 2, f"{name}: a click in the middle goes to run {clicked['run'] + 1} of {runs}")
    browser.click("input[value=seconds]")
    compare(f"{name}, by time", plan, browser.value(SHOWN), clicked["run"])
    browser.click("input[value=runs]")
    browser.value(f"location.hash = 'run={plan['peak_run'] + 1}'")

    collisions = browser.value(COLLISIONS)
    verdicts.expect(not collisions, f"{name}: words on one another: {collisions[:5]}")
    wide = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    verdicts.expect(wide <= 0, f"{name}: the page is {wide} pixels too wide")
    colors = {scheme: browser.picture(PICTURES / f"{name}-{scheme}.png", scheme) for scheme in ("light", "dark")}
    sums = {s: sum(map(int, c[c.index("(") + 1 : -1].split(",")[:3])) for s, c in colors.items()}
    verdicts.expect(sums["light"] > 600 and sums["dark"] < 150, f"{name}: backgrounds {colors}")
    for scheme in colors:
        verdicts.expect((PICTURES / f"{name}-{scheme}.png").stat().st_size > 50_000, f"{name}: the {scheme} picture is empty")
    browser.call("Emulation.setEmulatedMedia", features=[])

    said = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
    verdicts.expect(not said, f"{name}: on the console: {json.dumps(said)[:600]}")
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    verdicts.expect([u.split("#")[0] for u in asked if not u.startswith("data:")] == [path.as_uri()], f"{name}: requests: {asked[:5]}")
    unnamed = browser.value("[...document.querySelectorAll('button, input, canvas, svg[role=img], [tabindex]')].filter(e => "
                            "!e.getAttribute('aria-label') && !e.textContent.trim() && !(e.labels && e.labels.length)).length")
    verdicts.expect(unnamed == 0, f"{name}: {unnamed} controls or pictures without a name")


def workers(browser):
    """Several workers: every action is drawn where it runs, and the page turns to another worker."""
    flags = ["--stages", "3", "--schedule", "zb-h1", "--max-threads", "2"]
    program, path = ROOT / "examples/gpt/gpt.cinch", programs.FOLDER / "workers.html"
    plan = json.loads(programs.call([programs.CINCH, "plan", program, "--json", *flags]).stdout)
    programs.call([programs.CINCH, "plan", program, "--report", path, *flags])
    browser.open(path)
    drawn = browser.value("[...document.querySelectorAll('#workers rect.action')].map(r => [r.dataset.name, +r.getAttribute('x'), "
                          "+r.getAttribute('width'), +r.getAttribute('y')])")
    wanted = [(name, w, begin, end) for w, worker in enumerate(plan["workers"])
              for name, begin, end in zip(*(worker["actions"][key] for key in ("name", "begin", "end")))]
    verdicts.expect([d[0] for d in drawn] == [name for name, *_ in wanted], f"workers: {len(drawn)} actions drawn of {len(wanted)}")
    rows = sorted({d[3] for d in drawn})
    verdicts.expect(len(rows) == 3, f"workers: rows at {rows}")
    scale = (drawn[-1][1] - drawn[0][1]) / (wanted[-1][2] - wanted[0][2])
    wrong = [name for (name, x, width, y), (_, w, begin, end) in zip(drawn, wanted)
             if rows[w] != y or abs(x - drawn[0][1] - scale * (begin - wanted[0][2])) > .1 or abs(width - max(.5, scale * (end - begin))) > .1]
    verdicts.expect(not wrong, f"workers: drawn elsewhere: {wrong[:5]}")
    for w, worker in enumerate(plan["workers"]):
        if w > 0:
            browser.click(f"#workers-table tbody tr:nth-child({w + 1}) a")
            time.sleep(1)
        own = {**plan, **worker["plan"]}
        compare(f"workers, worker {w}", own, browser.value(SHOWN), own["peak_run"])
    verdicts.expect(browser.value("document.querySelectorAll('#workers .idle-line, #workers .late-line').length") == 2, "workers: hatches")
    collisions = browser.value(COLLISIONS)
    verdicts.expect(not collisions, f"workers: words on one another: {collisions[:5]}")
    browser.picture(PICTURES / "workers.png", "light")
    said = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
    verdicts.expect(not said, f"workers: on the console: {json.dumps(said)[:600]}")


if not shutil.which("chromium"):
    raise SystemExit("chromium is not installed (tools/prepare with CINCH_BROWSER=1 installs it)")
PICTURES.mkdir(parents=True, exist_ok=True)
browser = chromium.Browser()
try:
    for name, (program, flags) in CASES.items():
        case(browser, name, program, flags)
    workers(browser)
finally:
    browser.close()
verdicts.finish()
