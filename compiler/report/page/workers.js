// Several workers: who does what when. A row a worker: its actions, coloured by micro-batch, hatched where it waits, and under them the bytes
// that it holds. The other parts of the page are about one of them, which `#worker=N` in the address names.
const workers = (() => {
  if (!plan.schedule) return {draw() {}};
  const {name, microbatches, chunks, seconds} = plan.schedule, list = plan.workers;
  const host = $('workers'), left = 84, right = 12, top = 6, bar = 24, chart = 64, gap = 20, foot = 26;
  const kinds = {F: 'forward', I: 'gradient of its inputs', W: 'gradient of its parameters', B: 'backward'};
  const placeOf = k => k < microbatches ? `micro-batch ${k}` : `micro-batch ${k - microbatches} of the next step`;
  const overlaps = list.some(w => w.actions.microbatch.some(k => k >= microbatches));
  const kindOf = text => text.replace(/[0-9]/g, '');
  const color = (microbatch, kind) => {
    const hue = (210 + 137.508 * microbatch) % 360;
    return kind === 'F' ? `hsl(${hue.toFixed(0)} 62% 68%)` : kind === 'W' ? `hsl(${hue.toFixed(0)} 45% 50%)` : `hsl(${hue.toFixed(0)} 60% 34%)`;
  };
  const gate = Math.max(...list.map(w => w.actions.end.length ? w.actions.end[w.actions.end.length - 1] : 0));
  const stack = ['state', 'accumulators', 'stored', 'recomputed', 'working', 'scratch'];
  const most = 1.04 * Math.max(plan.budget || 0, ...list.map(w => w.arena + plan.allowance));

  // From when to when a worker holds which entry of its bytes.
  const heldOf = list.map(w => {
    const spans = [], actions = w.actions;
    if (w.before > 0) spans.push([0, w.before, 0]);
    actions.begin.forEach((begin, i) => {
      spans.push([begin, actions.end[i], 1 + 2 * i]);
      const next = i + 1 < actions.begin.length ? actions.begin[i + 1] : gate;
      if (next > actions.end[i]) spans.push([actions.end[i], next, 2 + 2 * i]);
    });
    if (w.behind > 0) spans.push([gate, gate + w.behind, 1 + 2 * actions.begin.length]);
    return spans;
  });
  const sumAt = (w, entry) => stack.reduce((sum, c) => sum + list[w].held[c][entry], plan.allowance);

  function hatched(id, line, wide) {
    const pattern = shape('pattern', {id, width: wide, height: wide, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'});
    pattern.append(shape('line', {class: line, x1: 0, x2: 0, y1: 0, y2: wide}));
    return pattern;
  }
  function draw() {
    const longest = Math.max(...list.map(w => w.actions.name.length));
    const width = Math.max(320, host.clientWidth, Math.min(12000, left + right + 9 * longest)), inside = width - left - right;
    const height = top + list.length * (bar + chart + gap) + foot;
    const x = t => left + inside * t / seconds;
    const svg = shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', id: 'workers-picture',
      'aria-label': `schedule ${name} of ${list.length} workers and ${microbatches} micro-batches: ${secondsText(seconds)} a step`});
    const definitions = shape('defs', {});
    definitions.append(hatched('late', 'late-line', 5), hatched('idle', 'idle-line', 7));
    svg.append(definitions);
    const hint = (at, text) => {
      at.addEventListener('pointermove', event => tip(event, text));
      at.addEventListener('pointerleave', event => tip(event, ''));
      return at;
    };
    list.forEach((worker, w) => {
      const y = top + w * (bar + chart + gap), actions = worker.actions, base = y + bar + 4 + chart;
      svg.append(shape('text', {class: 'strong', x: left - 8, y: y + bar / 2 + 4, 'text-anchor': 'end'}, 'worker ' + w));
      svg.append(hint(shape('rect', {class: 'wait', x: left, width: inside, y, height: bar, fill: 'url(#idle)'}), `worker ${w} waits`));
      const around = (from, to, words) => to > from && svg.append(hint(
        shape('rect', {class: 'around', x: x(from), width: x(to) - x(from), y, height: bar}), `worker ${w}, ${words}: ${secondsText(to - from)}`));
      around(0, worker.before, 'before the loop');
      around(gate, gate + worker.behind, 'behind the loop: gate, update');
      actions.name.forEach((text, i) => {
        const kind = kindOf(text), from = x(actions.begin[i]), wide = Math.max(.5, x(actions.end[i]) - from);
        const words = `${text}: ${kinds[kind]}, ${placeOf(actions.microbatch[i])}, stage ${actions.stage[i]}\n` +
          `${secondsText(actions.begin[i])} to ${secondsText(actions.end[i])}\nworker ${w} holds ${bytesText(sumAt(w, 1 + 2 * i))}`;
        const box = {x: from, width: wide, y, height: bar};
        svg.append(hint(shape('rect', {class: 'action ' + kind, ...box, fill: color(actions.microbatch[i], kind), 'data-name': text}), words));
        if (kind === 'W') svg.append(shape('rect', {...box, fill: 'url(#late)', 'pointer-events': 'none'}));
        const label = [text, String(actions.microbatch[i]), ''].find(words => !words || wide > 7.5 * words.length + 4);
        if (label) svg.append(shape('text', {class: 'in-action ' + kind, x: from + wide / 2, y: y + bar / 2 + 4, 'text-anchor': 'middle',
                                                    'pointer-events': 'none'}, label));
      });
      // The bytes: each class on top of those below it.
      const at = bytes => base - chart * bytes / most;
      svg.append(shape('rect', {class: 'allowance', x: left, width: inside, y: at(plan.allowance), height: base - at(plan.allowance)}));
      const below = heldOf[w].map(() => plan.allowance);
      for (const c of stack) {
        const path = heldOf[w].map(([from, to, entry], i) => {
          const bytes = worker.held[c][entry], low = at(below[i]);
          below[i] += bytes;
          return bytes && to > from ? `M${x(from).toFixed(1)} ${low.toFixed(1)}V${at(below[i]).toFixed(1)}H${x(to).toFixed(1)}V${low.toFixed(1)}Z` : '';
        }).join('');
        if (path) svg.append(shape('path', {class: c, d: path, 'pointer-events': 'none'}));
      }
      const line = (kind, bytes) => bytes && svg.append(shape('line', {class: kind, x1: left, x2: width - right, y1: at(bytes), y2: at(bytes)}));
      line('arena-line', worker.arena + plan.allowance);
      line('budget', plan.budget);
      svg.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: base, y2: base}),
                 shape('text', {x: left - 8, y: at(worker.arena + plan.allowance) + 4, 'text-anchor': 'end'}, bytesText(worker.arena + plan.allowance)));
    });
    for (const t of ticks(0, seconds, Math.max(4, inside / 130), false))
      svg.append(shape('line', {class: 'mark', x1: x(t), x2: x(t), y1: top, y2: height - foot}),
                 shape('text', {x: x(t), y: height - 8, 'text-anchor': 'middle'}, secondsText(t)));
    host.replaceChildren(svg);
  }

  const waiting = 1 - sumOf(list, 'busy') / Math.max(1e-30, seconds * list.length);
  $('workers-section').hidden = false;
  $('workers-note').textContent = `Schedule \u201c${name}\u201d${chunks > 1 ? `, ${chunks} stages a worker` : ''}: ${microbatches} micro-batch${microbatches > 1 ? 'es' : ''} go through ` +
    `${list.length} workers; a step takes ${secondsText(seconds)}, of which they wait ${percentText(waiting)} on average. Times are predicted from each worker\u2019s plan; ` +
    (overlaps ? `Steps overlap: micro-batches from ${microbatches} on are those of the next step; what a worker leaves out was done with the step before. ` : '') +
    'under each row the bytes that the worker holds, with its memory and the budget as lines.';
  const key = (fill, words, late) => {
    const svg = shape('svg', {width: 22, height: 12, 'aria-hidden': 'true'});
    svg.append(shape('rect', {width: 22, height: 12, fill}));
    if (late) svg.append(shape('rect', {width: 22, height: 12, fill: 'url(#late)'}));
    $('workers-key').append(element('li', {}, svg, words));
  };
  const split = list.some(w => w.actions.name.some(n => kindOf(n) === 'I'));
  key(color(0, 'F'), 'forward');
  key(color(0, 'B'), split ? 'gradient of a stage\u2019s inputs' : 'backward');
  if (split) key(color(0, 'W'), 'gradient of its parameters', true);
  key('url(#idle)', 'waits');
  $('workers-key').append(element('li', {}, 'one colour a micro-batch'));
  fillTable('workers-table', [['worker'], ['from'], ['to'], ['forward', 1], ['backward', 1], ['busy', 1], ['waits', 1], ['memory', 1], ['for messages', 1]],
    list.map((w, n) => ({this: n === shownWorker, cells: [element('a', {href: '#worker=' + n}, 'worker ' + n), w.begins, w.ends, secondsText(w.forward),
      secondsText(w.backward), secondsText(w.busy), percentText(1 - w.busy / seconds), bytesText(w.arena + plan.allowance), bytesText(w.messages)]})));
  $('worker-note').textContent = `What follows is the plan of worker ${shownWorker}; the table chooses another. Its messages lie behind its arena and are not drawn.`;
  // The parts of the page are made for one worker: another one is a page anew.
  addEventListener('hashchange', () => {
    if (workerAsked() !== shownWorker) location.reload();
  });
  return {draw};
})();
