// The moment that is looked at: which kernels' values are held, drawn as two rows (forward above, backward below, each
// backward kernel under the block that it belongs to), the bytes of each class, and the largest tensors.
const moments = (() => {
  let now = -1, timer = null;
  const host = $('nodes'), slider = $('slider');
  slider.max = runCount - 1;

  // Columns: stretches of forward kernels of one block or layer; backward kernels join the column of their name, or of
  // the values that they read.
  const columns = [], columnOf = new Map(), firstRun = plan.kernels.map(() => -1);
  plan.runs.kernel.forEach((k, r) => { if (firstRun[k] < 0) firstRun[k] = r; });
  function keyOf(name) {
    const at = name.indexOf(': ');
    if (at < 0) return '';
    const parts = name.slice(0, at).split('.'), number = parts.findIndex(p => /^\d+$/.test(p));
    return number >= 0 ? parts.slice(0, number + 1).join('.') : parts[0];
  }
  const inLoop = k => plan.kernels[k].section === 'loop' && plan.kernels[k].name !== 'results';
  plan.kernels.forEach((kernel, k) => {
    if (!inLoop(k) || kernel.backward) return;
    const key = keyOf(kernel.name);
    if (!columns.length || columns[columns.length - 1].key !== key) columns.push({key, forward: [], backward: []});
    columns[columns.length - 1].forward.push(k);
    columnOf.set(k, columns.length - 1);
  });
  if (!columns.length) columns.push({key: '', forward: [], backward: []});
  let previous = columns.length - 1;
  plan.kernels.forEach((kernel, k) => {
    if (!inLoop(k) || !kernel.backward) return;
    const key = keyOf(kernel.name), votes = new Map();
    for (const i of firstRun[k] >= 0 ? plan.runs.reads[firstRun[k]] : []) {
      const b = plan.instances.buffer[i], c = b >= 0 ? columnOf.get(plan.buffers.kernel[b]) : undefined;
      if (c !== undefined && !plan.kernels[plan.buffers.kernel[b]].backward && columns[c].key === key) votes.set(c, (votes.get(c) || 0) + 1);
    }
    let column = previous;
    if (votes.size) column = [...votes].sort((a, b) => b[1] - a[1] || b[0] - a[0])[0][0];
    else if (columns[previous].key !== key) {
      const same = columns.map((c, n) => n).filter(n => columns[n].key === key);
      if (same.length) column = same.reduce((a, b) => Math.abs(b - previous) < Math.abs(a - previous) ? b : a);
    }
    columns[column].backward.push(k);
    columnOf.set(k, column);
    previous = column;
  });

  // The rest of the picture: circles, found again by kernel.
  const circles = new Map(), state = new Map();
  let ring = null, size = 0;
  function draw() {
    const room = Math.max(300, host.clientWidth), gap = 10;
    const most = (list, rows) => Math.max(1, Math.ceil(list.length / rows));
    let layout = null;
    for (let rows = 1; rows <= 6; ++rows)
      for (const cell of [34, 27, 22, 18, 15, 12, 10]) {
        // The backward sweep has more kernels: twice the rows once there are several.
        const below = rows === 1 ? 1 : 2 * rows;
        const widths = columns.map(c => Math.max(most(c.forward, rows), most(c.backward, below)) * cell);
        const total = widths.reduce((a, b) => a + b + gap, 0);
        if (!layout || total < layout.total) if (!layout || layout.total > room) layout = {rows, below, cell, widths, total};
      }
    const {rows, below, cell, widths, total} = layout;
    size = cell;
    const top = 20, middle = top + rows * cell + 12, bottom = middle + below * cell, width = Math.max(room, total), height = bottom + 10;
    const svg = shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`});
    circles.clear();
    state.clear();
    let x = 0;
    columns.forEach((c, n) => {
      svg.append(shape('rect', {class: 'column', x, y: top - 3, width: widths[n] + 4, height: bottom - top + 8, rx: 3}));
      const word = c.key, fit = Math.floor((widths[n] + gap - 2) / 6.1);
      if (word) {
        const short = word.length <= fit ? word : /\.\d+$/.test(word) ? word.replace(/^.*\./, '') : fit > 3 ? word.slice(0, fit - 1) + '\u2026' : '';
        const label = shape('text', {x: x + 2, y: top - 8}, short);
        label.append(shape('title', {}, word));
        svg.append(label);
      }
      const place = (list, from, perColumn, backward) => list.forEach((k, i) => {
        const across = Math.floor(i / perColumn), down = i % perColumn;
        const cx = backward ? x + 2 + widths[n] - (across + .5) * cell : x + 2 + (across + .5) * cell;
        const circle = shape('circle', {class: 'node later', cx, cy: from + (down + .5) * cell, r: cell * .36, 'data-kernel': k});
        svg.append(circle);
        circles.set(k, circle);
        state.set(k, 'later');
      });
      place(c.forward, top, rows, false);
      place(c.backward, middle, below, true);
      x += widths[n] + gap;
    });
    ring = shape('circle', {class: 'ring', r: cell * .36 + 2, cx: -99, cy: -99, id: 'ring'});
    svg.append(ring);
    svg.addEventListener('pointermove', event => {
      const k = event.target.dataset && event.target.dataset.kernel;
      tip(event, k === undefined ? '' : describe(+k));
    });
    svg.addEventListener('pointerleave', event => tip(event, ''));
    svg.addEventListener('click', event => {
      const k = event.target.dataset && event.target.dataset.kernel;
      if (k !== undefined && firstRun[k] >= 0) go(firstRun[k]);
    });
    host.replaceChildren(svg);
    const run = now;
    now = -1;
    if (run >= 0) go(run);
  }
  function describe(k) {
    const kernel = plan.kernels[k], words = {later: 'not run yet', gone: 'nothing of it is held', stored: 'held since the forward sweep',
      recomputed: 'held, computed again', working: 'held', accumulators: 'its sum goes on'};
    const word = wordOf(kernel.name);
    return `${kernel.name}${word ? ' (' + word + ')' : ''} ${placeText(kernel.line)}\n${kernel.library_line > 0 ? libraryPlace(kernel.library_line, kernel.name) + '\n' : ''}${words[state.get(k)]}\n${kernel.runs} run${kernel.runs > 1 ? 's' : ''} in a micro-batch, ` +
      `${secondsText(kernel.seconds)} each`;
  }

  function statesAt(run) {
    const held = new Map();
    for (let i = 0; i < plan.instances.buffer.length; ++i) {
      if (plan.instances.lower[i] > run || plan.instances.upper[i] <= run || plan.instances.run[i] < 0) continue;
      if (plan.instances.buffer[i] < 0) continue;
      const k = plan.runs.kernel[plan.instances.run[i]];
      if (held.get(k) !== 'recomputed') held.set(k, classOfInstance(i));
    }
    return k => held.get(k) || (firstRun[k] < 0 || firstRun[k] > run ? 'later' : sums[k] ? 'accumulators' : 'gone');
  }
  const sums = plan.kernels.map(() => false);
  plan.buffers.kind.forEach((kind, b) => { if (kind === 'accumulator' && plan.buffers.kernel[b] >= 0) sums[plan.buffers.kernel[b]] = true; });

  function go(run) {
    run = Math.max(0, Math.min(runCount - 1, run));
    if (run === now) return;
    now = run;
    slider.value = run;
    slider.setAttribute('aria-valuetext', `run ${run + 1} of ${runCount}, ${kernelOf(run).name}`);
    const stateOf = statesAt(run), current = plan.runs.kernel[run];
    for (const [k, circle] of circles) {
      const s = stateOf(k);
      if (s !== state.get(k)) {
        circle.setAttribute('class', 'node ' + s);
        state.set(k, s);
      }
    }
    const at = circles.get(current);
    ring.setAttribute('cx', at ? at.getAttribute('cx') : -99);
    ring.setAttribute('cy', at ? at.getAttribute('cy') : -99);
    if (at && host.scrollWidth > host.clientWidth) {
      const cx = +at.getAttribute('cx');
      if (cx < host.scrollLeft + 40 || cx > host.scrollLeft + host.clientWidth - 40) host.scrollLeft = cx - host.clientWidth / 2;
    }
    const kernel = kernelOf(run), again = plan.runs.recomputed[run];
    $('now').replaceChildren(
      element('strong', {}, `Run ${run + 1} of ${runCount}`), `, ${sectionOf(run)}${again ? ', computed again' : ''}: `, kernel.name + ' ',
      element('span', {class: 'word'}, wordOf(kernel.name) ? wordOf(kernel.name) + ' ' : ''),
      element('span', {class: 'quiet', title: lineText(kernel.line)}, [placeText(kernel.line), libraryPlace(kernel.library_line, kernel.name)].filter(t => t).join(', ')), ` \u2014 ${secondsText(kernel.seconds)}`);
    numbersAt(run);
    timeline.move(run);
    arena.move(run);
  }
  function numbersAt(run) {
    const total = liveAt(run) + plan.allowance, rows = [];
    const row = (name, words, bytes) => element('tr', {'data-class': name, 'data-bytes': bytes},
      element('td', {}, ...(name === 'total' ? [] : [element('span', {class: 'swatch', style: `background: var(--${name})`})]), words),
      element('td', {class: 'number'}, bytesText(bytes)), element('td', {class: 'number'}, percentText(bytes / total)));
    rows.push(row('allowance', 'code, stacks, runtime (allowance)', plan.allowance));
    for (const [name, words] of classes) rows.push(row(name, words, plan.timeline[name][run]));
    const sum = row('total', 'process', total);
    sum.className = 'total';
    rows.push(sum);
    $('classes').tBodies[0].replaceChildren(...rows);
    const live = pieces.filter(p => p.lower <= run && run < p.upper).sort((a, b) => b.bytes - a.bytes || a.instance - b.instance).slice(0, 9);
    $('largest').tBodies[0].replaceChildren(...live.map(p => element('tr', {'data-bytes': p.bytes},
      element('td', {}, element('span', {class: 'swatch', style: `background: var(--${classOfInstance(p.instance)})`}), nameCell(nameOfInstance(p.instance))),
      element('td', {title: libraryPlace(libraryLineOfInstance(p.instance), nameOfInstance(p.instance))}, placeText(lineOfInstance(p.instance))), element('td', {class: 'number'}, bytesText(p.bytes)))));
  }

  function play(on) {
    clearInterval(timer);
    timer = null;
    $('play').textContent = on ? 'Pause' : 'Play';
    $('play').setAttribute('aria-pressed', on);
    $('now').setAttribute('aria-live', on ? 'off' : 'polite');
    if (!on) return;
    if (now === runCount - 1) go(0);
    const steps = Math.max(1, runCount / (20 * 15)); // the step takes about 15 s
    let at = now;
    timer = setInterval(() => {
      at += steps;
      go(Math.floor(at));
      if (now === runCount - 1) play(false);
    }, runCount < 150 ? 120 : 50);
  }
  slider.addEventListener('input', () => { play(false); go(+slider.value); });
  $('play').addEventListener('click', () => play(!timer));
  $('back').addEventListener('click', () => { play(false); go(now - 1); });
  $('forth').addEventListener('click', () => { play(false); go(now + 1); });
  $('to-peak').addEventListener('click', () => { play(false); go(plan.peak_run); });
  document.addEventListener('keydown', event => {
    if (event.altKey || event.ctrlKey || event.metaKey || ['INPUT', 'BUTTON'].includes(event.target.tagName) && event.key === ' ') return;
    const far = event.shiftKey ? 10 : 1;
    const to = {ArrowLeft: now - far, ArrowRight: now + far, Home: 0, End: runCount - 1, p: plan.peak_run, P: plan.peak_run}[event.key];
    if (event.key === ' ') play(!timer);
    else if (to !== undefined && event.target.type !== 'radio') { play(false); go(to); }
    else return;
    event.preventDefault();
  });
  return {draw, go, get now() { return now; }};
})();
