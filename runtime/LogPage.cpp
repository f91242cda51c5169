// LogPage.cpp: see LogPage.h. The rows stand in the page as they stand in log.csv; its script draws one picture for each kind of number.
#include "runtime/LogPage.h"
#include "runtime/Files.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

static const char kHead[] = R"page(<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Training</title>
<style>
body { font: 14px system-ui, sans-serif; margin: 24px auto; max-width: 1100px; color: #222; background: #fff }
h1 { font-size: 18px } h2 { font-size: 14px; margin: 18px 0 4px }
svg { width: 100%; height: 220px; display: block } svg text { font-size: 11px; fill: #666 }
.key span { margin-right: 14px } .key b { display: inline-block; width: 12px; height: 3px; margin-right: 5px; vertical-align: middle }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #16181c } svg text { fill: #999 } }
</style>
<h1></h1><p id="last"></p><label><input type="checkbox" id="logarithmic"> logarithmic losses</label><div id="pictures"></div>
<script type="text/plain" id="rows">
)page";

static const char kTail[] = R"page(</script>
<script>
"use strict";
const lines = document.getElementById("rows").textContent.trim().split("\n").map(line => line.split(","));
const names = lines[0], rows = lines.slice(1), colours = ["#2a6fbb", "#c8553d", "#3d8b5f", "#8a5fb0", "#b08a1e", "#3a9aa8"];
const points = name => {
  const column = names.indexOf(name), found = [];
  for (const row of rows) if (row[column] !== undefined && row[column] !== "") found.push([+row[0], +row[column]]);
  return found.filter(point => isFinite(point[1]));
};
const kindOf = name => ["loss", "mean_loss"].includes(name) || name.endsWith(".loss") ? "loss"
  : name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
const groups = new Map();
for (const name of names.slice(1)) if (name !== "seconds") groups.set(kindOf(name), [...(groups.get(kindOf(name)) || []), name]);
const short = value => Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : +value.toPrecision(4);
const element = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
};
function thin(list, most) { // of many points the least and the largest of each stretch
  if (list.length <= most) return list;
  const kept = [], step = Math.ceil(2 * list.length / most);
  for (let i = 0; i < list.length; i += step) {
    const part = list.slice(i, i + step), by = part.slice().sort((a, b) => a[1] - b[1]);
    kept.push(...[by[0], by[by.length - 1]].sort((a, b) => a[0] - b[0]));
  }
  return kept;
}
function draw(kind, members, logarithmic) {
  const series = members.map(name => ({ name, list: points(name) })).filter(each => each.list.length);
  if (!series.length) return;
  const change = value => logarithmic && kind === "loss" ? Math.log10(Math.max(value, 1e-12)) : value;
  const all = series.flatMap(each => each.list), xs = all.map(p => p[0]), ys = all.map(p => change(p[1]));
  const least = values => values.reduce((a, b) => Math.min(a, b)), most = values => values.reduce((a, b) => Math.max(a, b));
  const x0 = least(xs), x1 = Math.max(most(xs), x0 + 1), y0 = least(ys), y1 = most(ys) > y0 ? most(ys) : y0 + 1;
  const width = 1060, height = 220, left = 64, bottom = 22;
  const x = value => left + (value - x0) / (x1 - x0) * (width - left - 10), y = value => height - bottom - (change(value) - y0) / (y1 - y0) * (height - bottom - 12);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` });
  for (let i = 0; i <= 4; ++i) {
    const at = y0 + (y1 - y0) * i / 4, place = height - bottom - i / 4 * (height - bottom - 12);
    svg.append(element("line", { x1: left, x2: width - 10, y1: place, y2: place, stroke: "#8884" }));
    svg.append(element("text", { x: left - 6, y: place + 4, "text-anchor": "end" }, short(logarithmic && kind === "loss" ? 10 ** at : at)));
    const step = x0 + (x1 - x0) * i / 4;
    svg.append(element("text", { x: x(step), y: height - 6, "text-anchor": i ? i < 4 ? "middle" : "end" : "start" }, Math.round(step)));
  }
  const title = document.createElement("h2"), key = document.createElement("div");
  title.textContent = kind;
  key.className = "key";
  series.forEach((each, i) => {
    const colour = colours[i % colours.length], last = each.list[each.list.length - 1];
    const path = thin(each.list, 2000).map(p => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
    const line = element("polyline", { points: path, fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-opacity": each.name === "loss" && series.length > 1 ? 0.45 : 1 });
    line.append(element("title", {}, each.name));
    svg.append(line);
    if (each.list.length < 40) for (const p of each.list) {
      const dot = element("circle", { cx: x(p[0]), cy: y(p[1]), r: 2.5, fill: colour });
      dot.append(element("title", {}, `${each.name} at step ${p[0]}: ${p[1]}`));
      svg.append(dot);
    }
    const span = document.createElement("span"), mark = document.createElement("b");
    mark.style.background = colour;
    span.append(mark, `${each.name} ${short(last[1])}`);
    key.append(span);
  });
  document.getElementById("pictures").append(title, svg, key);
}
function drawAll() {
  document.getElementById("pictures").replaceChildren();
  for (const [kind, members] of groups) draw(kind, members, document.getElementById("logarithmic").checked);
}
const heading = document.getElementById("rows").dataset.program || "Training";
document.title = heading;
document.querySelector("h1").textContent = heading;
if (rows.length) document.getElementById("last").textContent = `step ${rows[rows.length - 1][0]}, ${rows.length} rows`;
document.getElementById("logarithmic").onchange = drawAll;
drawAll();
</script>
</html>
)page";

bool writeLogPage() {
  Path path, rows;
  joinPath(path, run.options.out, "log.html");
  joinPath(rows, run.options.out, "log.csv");
  const char *why;
  int64_t size;
  int from = openToRead(rows.text, size, why);
  if (from < 0)
    return false;
  AtomicFile page;
  bool good = beginFile(page, path.text);
  if (!good) {
    close(from);
    return false;
  }
  // The name of the model and of the file stand in the tag of the rows.
  const char *tag = strstr(kHead, "id=\"rows\"");
  size_t before = size_t(tag - kHead) + strlen("id=\"rows\"");
  Text name;
  name.add(" data-program=\"%.100s, ", run.meta.program);
  for (const char *at = run.meta.source; *at && name.size < 300; ++at)
    name.add(*at == '"' || *at == '<' || *at == '&' ? "_" : "%c", *at);
  name.add("\"");
  good = writeAll(page.fd, kHead, before) && writeAll(page.fd, name.data, name.size) &&
         writeAll(page.fd, kHead + before, sizeof kHead - 1 - before);
  static char buffer[8192];
  for (int64_t at = 0; good && at < size;) {
    int64_t now = size - at < int64_t(sizeof buffer) ? size - at : int64_t(sizeof buffer);
    good = readAt(from, buffer, size_t(now), at) && writeAll(page.fd, buffer, size_t(now));
    at += now;
  }
  close(from);
  good = good && writeAll(page.fd, kTail, sizeof kTail - 1);
  if (!good) {
    abandonFile(page);
    return false;
  }
  return commitFile(page);
}

} // namespace cinch::rt
