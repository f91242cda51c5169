// The plan, and small helpers of all parts of the page.
'use strict';
const whole = JSON.parse(document.getElementById('plan').textContent);
// Of several workers the page shows one at a time.
const workerAsked = () => Math.min(Math.max(0, whole.workers.length - 1), +(/worker=(\d+)/.exec(location.hash) || [0, 0])[1]);
const shownWorker = workerAsked();
const plan = whole.workers.length ? {...whole, ...whole.workers[shownWorker].plan} : whole;
const runCount = plan.runs.kernel.length;
const classes = [
  ['state', 'parameters, optimizer state, data'],
  ['accumulators', 'gradient accumulators'],
  ['stored', 'activations, stored'],
  ['recomputed', 'activations, recomputed'],
  ['working', 'other values (gradients of activations, update)'],
  ['scratch', 'scratch of the running kernel'],
];
const svgSpace = document.querySelector('svg').namespaceURI;
const $ = id => document.getElementById(id);

// Rounded up, of what is typed as a budget.
const bytesTextUp = bytes => bytes >= 10 * 2 ** 30 ? (Math.ceil(bytes / 2 ** 30 * 100) / 100).toFixed(2) + ' GiB' : (Math.ceil(bytes / 2 ** 20 * 10) / 10).toFixed(1) + ' MiB';
function bytesText(bytes) {
  if (bytes >= 10 * 2 ** 30) return (bytes / 2 ** 30).toFixed(2) + ' GiB';
  if (bytes >= 2 ** 20 / 10) return (bytes / 2 ** 20).toFixed(1) + ' MiB';
  return bytes >= 1024 ? (bytes / 1024).toFixed(1) + ' KiB' : bytes + ' B';
}
const tickText = bytes => bytesText(bytes).replace(/\.0+ /, ' ');
function secondsText(s) {
  if (s === 0) return '0';
  if (s >= 1) return s.toFixed(s >= 100 ? 1 : 3) + ' s';
  return s >= 1e-3 ? (s * 1e3).toFixed(s >= .1 ? 0 : 2) + ' ms' : (s * 1e6).toFixed(1) + ' \u00b5s';
}
const percentText = part => (100 * part).toFixed(1) + ' %';
const placeText = line => line > 0 ? plan.source.split('/').pop() + ':' + line : '';
const lineText = line => plan.source_lines[line] || '';
const libraryText = line => plan.library_lines[line] || '';
// Where work of the library is written, and in which part of the model: prelude.cinch:112 in blocks.3
const libraryPlace = (line, name) => {
  if (!(line > 0)) return '';
  const at = name.indexOf(': '), path = at < 0 ? '' : name.slice(0, at).replace(/^(rows of|loop for|scratch of) /, '');
  return 'prelude.cinch:' + line + (path ? ' in ' + path : '');
};
// What people call the ops that kernels are named after.
const opWords = {contract: 'product', reduce: 'sum or mean', attend: 'attention', attend_grad: 'attention', mul: '*', div: '/', add: '+', sub: '\u2212',
  compare: '==, <', where: 'where', gather: 'lookup', scatter_add: 'sum at places', transpose: 'axes moved', reshape: 'reshape', broadcast: 'repeated',
  conv: 'convolution', sum_pool: 'pool', max_pool: 'pool', max_pool_grad: 'pool', sum_pool_grad: 'pool', random: 'draw', cast: 'cast',
  group_mean: 'mean over a group', update: 'optimizer', sum_squares: 'norm of the gradient', scan: 'loop', new_state: 'state'};
function wordOf(name) {
  const op = (/(?:^|: )([a-z_]+)(?: \(gradient\))?$/.exec(name) || [])[1], word = opWords[op];
  return word && word !== op ? word : '';
}
// blocks.3.ff: mul -> blocks.*.ff: mul
function generalName(name) {
  const at = name.indexOf(': ');
  return at < 0 ? name : name.slice(0, at).split('.').map(p => /^\d+$/.test(p) ? '*' : p).join('.') + name.slice(at);
}

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
  e.append(...children);
  return e;
}
function shape(tag, attributes, text) {
  const e = document.createElementNS(svgSpace, tag);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}
function tip(event, text) {
  const t = $('tip');
  t.hidden = !text;
  if (!text) return;
  t.textContent = text;
  const box = t.getBoundingClientRect();
  t.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + 'px';
  t.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + 'px';
}
// About `count` round numbers from 0 to `most`; of bytes if `binary`.
function ticks(least, most, count, binary) {
  const base = binary ? 2 : 10, raw = (most - least) / count;
  let step = base ** Math.floor(Math.log(raw) / Math.log(base));
  if (!binary) for (const f of [1, 2, 5, 10]) if (step * f >= raw) { step *= f; break; }
  if (binary && step < raw) step *= 2;
  const list = [];
  for (let v = Math.ceil(least / step) * step; v <= most; v += step) list.push(v);
  return list;
}

const kernelOf = run => plan.kernels[plan.runs.kernel[run]];
const nameOfInstance = i => plan.instances.buffer[i] >= 0 ? plan.buffers.name[plan.instances.buffer[i]]
                                                         : 'scratch of ' + kernelOf(plan.instances.run[i]).name;
const lineOfInstance = i => plan.instances.buffer[i] >= 0 ? plan.buffers.line[plan.instances.buffer[i]]
                                                         : kernelOf(plan.instances.run[i]).line;
const libraryLineOfInstance = i => plan.instances.buffer[i] >= 0 ? plan.buffers.library_line[plan.instances.buffer[i]]
                                                                : kernelOf(plan.instances.run[i]).library_line;
const classOfInstance = i => plan.classes[plan.instances.class[i]];
const liveAt = run => classes.reduce((sum, [c]) => sum + plan.timeline[c][run], 0);

// Pieces of storages: which instance owns which bytes when. Of in-place work each owns them until the next is born.
const pieces = (() => {
  const owners = plan.storages.bytes.map(() => []), list = [];
  plan.instances.storage.forEach((s, i) => owners[s].push(i));
  owners.forEach((of, s) => {
    of.sort((a, b) => plan.instances.lower[a] - plan.instances.lower[b]);
    of.forEach((i, n) => list.push({
      instance: i, bytes: plan.storages.bytes[s], offset: plan.storages.offset[s],
      lower: n === 0 ? plan.storages.lower[s] : plan.instances.lower[i],
      upper: n + 1 < of.length ? plan.instances.lower[of[n + 1]] : plan.storages.upper[s],
    }));
  });
  return list.filter(p => p.bytes > 0 && p.upper > p.lower);
})();

// Horizontal scale: a run is as wide as every other, or as its predicted time.
let scale = 'runs';
const clock = [0];
for (let r = 0; r < runCount; ++r) clock.push(clock[r] + kernelOf(r).seconds);
const along = run => scale === 'runs' || clock[runCount] === 0 ? run / runCount : clock[run] / clock[runCount];
function runAlong(part) {
  let low = 0, high = runCount - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (along(middle) <= part) low = middle; else high = middle - 1;
  }
  return low;
}
function sectionOf(run) {
  if (run < plan.loop[0]) return 'before the loop';
  if (run >= plan.loop[1]) return 'after the loop';
  return run < plan.turn ? 'forward' : 'backward';
}
